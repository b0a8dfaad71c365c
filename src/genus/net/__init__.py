"""Networks: buses between processes, over zenoh, MQTT and CoAP, and gateways between them."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.net._acl import Identity
    from genus.net._cloudevent_files import read_cloudevents, write_cloudevents
    from genus.net._cloudevents import CloudEvent, CloudEventReader, CloudEventWriter, event_id
    from genus.net._coap.link import CoapLink
    from genus.net._envelope import Origin
    from genus.net._gateway.file import GatewayFile, load_gateway
    from genus.net._gateway.gateway import Gateway, GatewaySide
    from genus.net._gateway.rules import RateLimit
    from genus.net._gateway.status import GatewayStatus, SideStatus
    from genus.net._grants import Allowed, Grant, Grants, Permit, Refusal
    from genus.net._grants_file import read_grants
    from genus.net._link.interest import InterestText
    from genus.net._link.netlink import NetLink
    from genus.net._link.presence import AnnouncedChannel, Participant
    from genus.net._metrics import Measured, Metric, MetricsServer, bus_metrics, serve_metrics
    from genus.net._open import open_coap, open_coaps, open_ipc, open_mqtt, open_mqtts, open_zenoh
    from genus.net._problems import EventsLate, EventsLost, EventsUnread
    from genus.net._relay import Arrival, Interest, Relay, RelayLink
    from genus.net._sparkplug.infer import SparkplugTypes, infer_sparkplug
    from genus.net._transport import Abilities, Receiver, Sender, Sending, Transport

__all__ = [
    "Abilities",
    "Allowed",
    "AnnouncedChannel",
    "Arrival",
    "CloudEvent",
    "CloudEventReader",
    "CloudEventWriter",
    "CoapLink",
    "EventsLate",
    "EventsLost",
    "EventsUnread",
    "Gateway",
    "GatewayFile",
    "GatewaySide",
    "GatewayStatus",
    "Grant",
    "Grants",
    "Identity",
    "Interest",
    "InterestText",
    "Measured",
    "Metric",
    "MetricsServer",
    "NetLink",
    "Origin",
    "Participant",
    "Permit",
    "RateLimit",
    "Receiver",
    "Refusal",
    "Relay",
    "RelayLink",
    "Sender",
    "Sending",
    "SideStatus",
    "SparkplugTypes",
    "Transport",
    "bus_metrics",
    "event_id",
    "infer_sparkplug",
    "load_gateway",
    "open_coap",
    "open_coaps",
    "open_ipc",
    "open_mqtt",
    "open_mqtts",
    "open_zenoh",
    "read_cloudevents",
    "read_grants",
    "serve_metrics",
    "write_cloudevents",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
