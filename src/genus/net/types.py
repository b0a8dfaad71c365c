"""What calls of `genus.net` return, and protocols and options that programs name in annotations only."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.net._cloudevents import CloudEvent
    from genus.net._coap.link import CoapLink
    from genus.net._envelope import Arrival, Interest, Relay, RelayLink
    from genus.net._gateway.file import GatewayFile
    from genus.net._gateway.machine import GatewayStatus, SideStatus
    from genus.net._grants import Allowed, Grant, Grants, Identity, Permit, Refusal
    from genus.net._link.presence import AnnouncedChannel, InterestText, Participant
    from genus.net._metrics import Measured, Metric, MetricsServer
    from genus.net._sparkplug_host import SparkplugTypes

__all__ = [
    "Allowed",
    "AnnouncedChannel",
    "Arrival",
    "CloudEvent",
    "CoapLink",
    "GatewayFile",
    "GatewayStatus",
    "Grant",
    "Grants",
    "Identity",
    "Interest",
    "InterestText",
    "Measured",
    "Metric",
    "MetricsServer",
    "Participant",
    "Permit",
    "Refusal",
    "Relay",
    "RelayLink",
    "SideStatus",
    "SparkplugTypes",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
