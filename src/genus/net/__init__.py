"""Networks: buses between processes, over zenoh and over MQTT, and gateways between them."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.net._cloudevent_files import read_cloudevents, write_cloudevents
    from genus.net._cloudevents import (
        CloudEvent,
        CloudEventReader,
        CloudEventWriter,
        event_id,
    )
    from genus.net._envelope import Origin

__all__ = [
    "CloudEvent",
    "CloudEventReader",
    "CloudEventWriter",
    "Origin",
    "event_id",
    "read_cloudevents",
    "write_cloudevents",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        _cloudevent_files="read_cloudevents write_cloudevents",
        _cloudevents="CloudEvent CloudEventReader CloudEventWriter event_id",
        _envelope="Origin",
    )
