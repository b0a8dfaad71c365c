"""Networks: buses between processes, over zenoh, MQTT and CoAP, and gateways between them."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.net._cloudevent_files import read_cloudevents, write_cloudevents
    from genus.net._cloudevents import CloudEventReader, CloudEventWriter
    from genus.net._envelope import Origin
    from genus.net._gateway.file import load_gateway
    from genus.net._gateway.gateway import Gateway, GatewaySide
    from genus.net._gateway.rules import RateLimit
    from genus.net._grants_file import read_grants
    from genus.net._link.netlink import NetLink
    from genus.net._metrics import bus_metrics, serve_metrics
    from genus.net._open import (  # noqa: F401 - the entry points of this package, so not in `__all__`
        open_coap,
        open_coaps,
        open_ipc,
        open_mqtt,
        open_mqtts,
        open_zenoh,
    )
    from genus.net._sparkplug_host import infer_sparkplug
    from genus.net._transport import (
        Abilities,
        EventsLate,
        EventsLost,
        EventsUnread,
        Receiver,
        Sender,
        Sending,
        Transport,
    )

__all__ = [
    "Abilities",
    "CloudEventReader",
    "CloudEventWriter",
    "EventsLate",
    "EventsLost",
    "EventsUnread",
    "Gateway",
    "GatewaySide",
    "NetLink",
    "Origin",
    "RateLimit",
    "Receiver",
    "Sender",
    "Sending",
    "Transport",
    "bus_metrics",
    "infer_sparkplug",
    "load_gateway",
    "read_cloudevents",
    "read_grants",
    "serve_metrics",
    "write_cloudevents",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, google="sparkplug")
