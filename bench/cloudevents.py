"""CloudEvents: an event to bytes and back, with Genus and with the official SDK, structured and binary.

Both make a typed event: what the SDK reads is converted by msgspec, and what it writes comes from msgspec's dictionary.
The SDK has no binding to MQTT, so its binary mode is that of HTTP.
"""

from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
from cloudevents.core.bindings.http import from_binary, to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent

from bench.timing import Contestant, human, least_ns, markdown
from genus import Event, Maybe
from genus.net import CloudEventReader, CloudEventWriter, Origin

FORMAT = JSONFormat()
ORIGIN = Origin(b"12345678", 77)


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    category: Maybe[Category] = None


EVENT = Loop(
    time=datetime(2026, 11, 15, 12, 30, 15, 500_000, UTC),
    source="/a8/km31",
    place="A8/km31",
    lane=2,
    speed=31.25,
    category=Category.TRUCK,
)


def sdk_event(event: Loop, number: int) -> SdkEvent:
    """An event as the SDK has it."""
    attributes: dict[str, Any] = {
        "id": f"3132333435363738-{number}",
        "source": event.source,
        "type": "Loop",
        "time": event.time,
        "subject": event.place,
        "datacontenttype": "application/json",
    }
    return SdkEvent(attributes, msgspec.to_builtins(event))


def contestants() -> dict[str, Contestant]:
    """Statements of Genus and of the SDK, for the same event."""
    writer, reader = CloudEventWriter(), CloudEventReader([Loop])
    sdk_text = FORMAT.write(sdk_event(EVENT, 77))
    message = to_binary(sdk_event(EVENT, 77), FORMAT)
    attributes, data = writer.write_binary(EVENT, ORIGIN)
    names = {
        **globals(),
        "write": writer.write_structured,
        "write_binary": writer.write_binary,
        "read": reader.read_structured,
        "read_binary": reader.read_binary,
        "text": writer.write_structured(EVENT, ORIGIN),
        "sdk_text": sdk_text,
        "attributes": attributes,
        "data": data,
        "message": message,
        "convert": msgspec.convert,
        "from_binary": from_binary,
    }
    return {
        name: (statement, names)
        for name, statement in {
            "write structured": "write(EVENT, ORIGIN)",
            "SDK: write structured": "FORMAT.write(sdk_event(EVENT, 77))",
            "read structured": "read(text)",
            "read structured, written by the SDK": "read(sdk_text)",
            "SDK: read structured": "convert(FORMAT.read(None, text).get_data(), Loop)",
            "write binary": "write_binary(EVENT, ORIGIN)",
            "SDK: write binary": "to_binary(sdk_event(EVENT, 77), FORMAT)",
            "read binary": "read_binary(attributes, data)",
            "SDK: read binary": "convert(from_binary(message, FORMAT).get_data(), Loop)",
        }.items()
    }


def table() -> str:
    """A row per operation: time with Genus, with the SDK, and the ratio."""
    times = least_ns(contestants())
    rows = []
    for name, ns in times.items():
        if not name.startswith("SDK: "):
            against = times["SDK: " + name.partition(",")[0]]
            rows.append([name, human(ns), human(against), f"{against / ns:.1f} ×"])
    return markdown(["CloudEvents, one event", "Genus", "official SDK", "ratio"], rows)


if __name__ == "__main__":
    print(table())
