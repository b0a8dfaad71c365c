"""Frames of a bus with sensors, for the simulated board: `python frames.py rooms.json`, one a line."""

import sys
from collections.abc import Iterator
from pathlib import Path

from genus import Event
from genus.can import Identifier, PayloadCodec, Priority
from genus.catalog import Catalog
from genus.codes import load_module

rooms = load_module(str(Path(__file__).with_name("rooms.py")))


def events() -> Iterator[Event]:
    """What happens in the rooms."""
    yield rooms.Temperature(room=1, tenths=215)
    yield rooms.Temperature(room=2, tenths=183)
    yield rooms.RadioTemperature(room=3, tenths=148, battery=80)
    yield rooms.Window(room=3, open=True)
    yield rooms.RadioTemperature(room=3, tenths=146, battery=7)
    yield rooms.Humidity(room=4, percent=65)
    yield rooms.Humidity(room=4, percent=83)
    yield rooms.Valve(room=9, opening=20)
    yield rooms.Window(room=3, open=False)


def frame(number: int, event: Event, catalog: Catalog) -> tuple[int, bytes]:
    """The identifier and the data of an event from node 5; the event tag has the presence bits of tagged attributes."""
    cls = type(event)
    codec = PayloadCodec.of(cls, catalog.vector(cls), catalog.tagged_attributes(cls))
    bits, payload = codec.encode(event, number % 8)
    return Identifier(Priority.NONE, node=5, etag=catalog.etag(cls) | bits).pack(), payload


def main(file: str) -> None:
    catalog = Catalog.load(file)
    for number, event in enumerate(events()):
        identifier, payload = frame(number, event, catalog)
        print(f"{identifier:08x} {payload.hex()} {event!r}")
    print(f"{identifier:08x} {payload[:1].hex()} cut short")
    identifier, payload = frame(0, rooms.Humidity(room=4, percent=100), catalog)
    print(f"{identifier:08x} {payload[:-1].hex()}65 101 percent")


if __name__ == "__main__":
    main(sys.argv[1])
