"""`source` may be a number in a family: everywhere, and hidden from subscriptions that mean the text of `Event`."""

from pathlib import Path
from typing import Any, cast

import pytest

from genus import Catalog, Event, Kind, Maybe, Subscription, UInt8, check, open_bus
from genus.bus import RecordingWriter, read_recording
from genus.can import PayloadCodec
from genus.errors import CatalogConflict, DeclarationError, EventError
from genus.model import Int32, attributes, vector
from genus.model._signature import hidden_attributes, retyped_attributes
from genus.net import CloudEventReader, CloudEventWriter
from genus.net._envelope import Origin
from genus.targets import arrow, can, python
from genus.targets.topics import MQTT, ZENOH, compile, key_of


class Numbered(Kind):
    """What has a number for its source."""


class Torque(Event, Numbered, tagged=("source",)):
    source: Maybe[UInt8] = None  # type: ignore[assignment]
    percent: int


class Retarder(Torque):
    level: Maybe[int] = None


class Hours(Event, Numbered):
    source: UInt8  # type: ignore[assignment]


class Named(Event, Numbered):
    percent: int


EVENTS = [Torque(source=11, percent=1), Torque(percent=2), Retarder(source=0, percent=3), Hours(source=7)]


def test_the_vector_of_the_family_has_it_at_the_same_place() -> None:
    assert [each.name for each in vector(Torque)][:5] == [each.name for each in vector(Event)]
    assert str(vector(Torque).find("source")) == "source: uint8?"
    assert str(vector(Event).find("source")) == "source: str?"
    assert retyped_attributes(Retarder) == hidden_attributes(Retarder, Event) == {"source"}
    assert hidden_attributes(Retarder, Torque) == hidden_attributes(Named, Event) == frozenset()
    assert attributes(Retarder)[1] == attributes(Torque)[1]


def test_only_source_and_only_as_an_integer_and_only_in_the_root() -> None:
    with pytest.raises(DeclarationError, match="in family Wrong 'source' is str"):

        class Wrong(Event):
            source: float  # type: ignore[assignment]

    with pytest.raises(DeclarationError, match="in family Moved 'place' is str"):

        class Moved(Event):
            place: int  # type: ignore[assignment]

    with pytest.raises(DeclarationError, match="in family Named 'source' is str"):

        class Late(Named):
            source: int  # type: ignore[assignment]

    with pytest.raises(DeclarationError, match="in family Torque 'source' is uint8"):

        class Wider(Torque):
            source: Maybe[Int32] = None


def test_values_are_checked_as_numbers() -> None:
    check(EVENTS[0])
    with pytest.raises(EventError, match=r"Torque\.source is 'node', but must be uint8"):
        check(Torque(source="node", percent=1))  # type: ignore[arg-type]


def test_a_recording_and_a_payload_keep_it(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "events.genus") as writer:
        for number, event in enumerate(EVENTS):
            writer.write(event, number)
    read = read_recording(tmp_path / "events.genus", [Torque, Retarder, Hours])
    assert [recorded.event for recorded in read] == EVENTS
    catalog = Catalog()
    catalog.register(*{type(event) for event in EVENTS})
    for event in EVENTS:
        codec = PayloadCodec.of(type(event), catalog.vector(type(event)))
        assert codec.decode(*codec.encode(event, 5)) == event


def test_a_catalog_keeps_it_and_declares_it_again() -> None:
    catalog = Catalog()
    catalog.register(Numbered, Torque, Retarder, Hours, Named)
    again = Catalog.parse(catalog.text())
    assert again.text() == catalog.text()
    again.register(Torque, Named, Event)
    made: Any = again.declare("Retarder", generated=True)
    assert made(source=3, percent=1).source == 3
    assert str(vector(made).find("source")) == "source: uint8?"
    assert retyped_attributes(made) == {"source"}


def test_a_catalog_refuses_a_family_that_changes_its_mind() -> None:
    def declared(note: Any) -> type:
        make: Any = type(Event)
        made: type = make("Changing", (Event,), {"__annotations__": {"source": note}, "source": None})
        return made

    number, text = UInt8 | None, str | None
    for first, second in ((number, text), (text, number)):
        catalog = Catalog()
        catalog.register(declared(first))
        with pytest.raises(
            CatalogConflict, match=r"Changing.source is (str|uint8), but (uint8|str) in family Changing"
        ):
            catalog.register(declared(second))


@pytest.mark.parametrize("wide", ["Event has source", "Event lacks source", "Numbered where source == 'a'"])
def test_a_subscription_to_event_does_not_cover_one_that_means_the_number(wide: str) -> None:
    narrow = [Subscription.parse(text, [Torque]) for text in ("Torque has source", "Torque lacks source")]
    asked = Subscription.parse(wide, [Event, Numbered])
    assert not any(asked.covers(each) for each in narrow)
    assert Subscription(Event).covers(narrow[0])
    assert Subscription.parse("Event has source", [Event]).covers(Subscription.parse("Named has source", [Named]))


@pytest.mark.parametrize(
    "text", ["Event has source", "Event lacks source", "Numbered lacks source", "Torque has source"]
)
def test_tagged_presence_is_that_of_the_family(text: str) -> None:
    """Controllers and topics filter on the presence of the number only for those who mean the number."""
    asked = Subscription.parse(text, [Event, Numbered, Torque])
    catalog = Catalog()
    catalog.register(Numbered, Torque, Retarder, Hours, Named)
    wanted = [asked.matches(event) for event in EVENTS]
    made = can.compile(asked, catalog)
    left = python.compile(made.residual) if made.residual is not None else lambda _: True
    assert [made.accepts(catalog.etag_of(event)) and bool(left(event)) for event in EVENTS] == wanted
    for dialect in (ZENOH, MQTT):
        keyed = compile(asked, dialect, "city", catalog)
        rest = python.compile(keyed.residual) if keyed.residual is not None else lambda _: True
        found = [keyed.accepts(key_of(event, dialect, "city")) and bool(rest(event)) for event in EVENTS]
        assert found == wanted


def test_a_batch_of_any_family_has_no_numbers_for_sources() -> None:
    batch = arrow.to_batch([*EVENTS, Named(source="a", percent=1)], Event)
    assert batch.column("source").to_pylist() == [None, None, None, None, "a"]
    assert arrow.to_batch(EVENTS[:3]).column("source").to_pylist() == [11, None, 0]


def test_cloud_events_have_the_number_as_text_and_give_it_back() -> None:
    writer, reader = CloudEventWriter(), CloudEventReader([Torque, Retarder, Hours])
    for number, event in enumerate(cast("list[Any]", EVENTS)):
        text = writer.write_structured(event, Origin(bytes(8), number))
        assert (b'"source":"11"' in text) == (event.source == 11)
        read = reader.read_structured(text)
        assert getattr(read, "event", read) == event
    foreign = b'{"specversion":"1.0","id":"7","source":"/hall","type":"Torque","data":{"percent":60}}'
    found: Any = reader.read_structured(foreign)
    assert found.event == Torque(percent=60), "the URI of another system is no number"


def test_the_newest_of_each_number_is_kept() -> None:
    with open_bus("local:") as bus:
        channel = bus.channel(Torque, keep=True)
        channel.announce()
        for source, percent in ((11, 1), (3, 2), (11, 3)):
            channel.publish(Torque(source=source, percent=percent))
        found: list[Torque] = []
        bus.collection(Torque).subscribe(found.append)
    assert {event.source: event.percent for event in found} == {11: 3, 3: 2}


def test_a_bus_stamps_texts_only() -> None:
    found: list[Event] = []
    with open_bus("local:", source="node", check=True) as bus:
        bus.collection(Event).subscribe(found.append)
        bus.publish(Torque(percent=1))
        bus.publish(Named(percent=1))
    assert [event.source for event in found] == [None, "node"]
