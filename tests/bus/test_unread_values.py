"""Values that a process cannot read: the event arrives without them, and goes on with them."""

import logging
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, UInt8, UInt16, Unit, check, read_recording
from genus.bus import RecordingWriter
from genus.bus._attribute_map import UnreadValues, units_of
from genus.bus._codec import EventDecoder, Recorded, Rejected, UnitsStated, encode_event
from genus.errors import EventError
from genus.model._values import UnreadSlot, unread_types, unread_values
from genus.net._link.messages import PayloadReader, encode_batch, encode_payload, payload_encoder, split_batch
from tests.evolutions import Evolution
from tests.generators import declare

from ..examples import examples

PACK = msgspec.msgpack.encode


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"


class Newer(Enum):
    CAR = "car"
    TRUCK = "truck"
    BUS = "bus"


OLD: Any = declare("Loop", Event, {"lane": UInt8, "category": Category, "other": Category | None}, tagged=("other",))
NEW: Any = declare(
    "Loop",
    Event,
    {"lane": UInt16, "category": Newer, "other": Newer | None, "speed": Annotated[float, Unit("km/h")] | None},
    tagged=("other",),
)
GROWN = NEW(lane=300, category=Newer.BUS, other=Newer.BUS, speed=90.0)


def read(cls: type[Event], packet: bytes, **units: str) -> tuple[Any, UnreadValues]:
    decoder = EventDecoder([cls])
    if units:
        assert isinstance(decoder.decode(PACK(("units of Loop", 0, units))), UnitsStated)
    found = decoder.decode(packet)
    return (found.event if isinstance(found, Recorded) else found), decoder.unread


# -- what the older program sees ---------------------------------------------------------------------------------------


def test_the_event_arrives_without_what_cannot_be_read() -> None:
    event, unread = read(OLD, encode_event(GROWN, 0))
    assert type(event) is OLD
    assert [event.lane, event.category, event.other] == [None, None, None]
    assert unread == {"Loop.lane": 1, "Loop.category": 1, "Loop.other": 1, "Loop.speed": 1}
    assert unread.reasons["Loop.category"] == "Invalid enum value 'bus'"
    assert unread.reasons["Loop.lane"] == "Expected `int` <= 255"
    assert unread.examples["Loop.category"] == PACK("bus")


def test_equality_hash_and_repr_do_not_see_it() -> None:
    event, _ = read(OLD, encode_event(NEW(lane=1, category=Newer.CAR, speed=90.0), 0))
    plain = OLD(lane=1, category=Category.CAR)
    assert event == plain
    assert hash(event) == hash(plain)
    assert repr(event) == repr(plain)
    assert unread_values(event).keys() == {"speed"}
    assert not unread_values(plain)


def test_what_is_kept_is_freed_with_its_event() -> None:
    class Watched:
        alive = 0

        def __init__(self) -> None:
            Watched.alive += 1

        def __del__(self) -> None:
            Watched.alive -= 1

    for _ in range(100):
        event = OLD(lane=1, category=Category.CAR)
        assert not hasattr(event, "_unread"), "memory of another event"
        UnreadSlot._unread.__set__(event, Watched())  # type: ignore[attr-defined]
    assert Watched.alive == 1
    del event
    assert Watched.alive == 0


@pytest.mark.parametrize(
    "body",
    [
        {"lane": "one", "category": "car"},
        {"lane": 1, "category": 5},
        {"lane": 1, "category": None},
        {"lane": True, "category": "car"},
        {"lane": 1, "category": "car", "place": 8},
        {"lane": 1, "category": "car", "time": "yesterday"},
        {"lane": 1},
        {"category": "bus"},
    ],
)
def test_contradictions_and_missing_attributes_are_rejected(body: dict[str, Any]) -> None:
    """Only a value of the attribute's own sort may be of a newer declaration."""
    found, unread = read(OLD, PACK(("Loop", 0, body)))
    assert isinstance(found, Rejected)
    assert not unread
    assert isinstance(PayloadReader(OLD, unread).read(PACK(body)), Rejected)


def test_a_required_attribute_is_none_only_if_its_value_is_kept() -> None:
    event, _ = read(OLD, encode_event(GROWN, 0))
    check(event)
    for wrong in (OLD(lane=None, category=Category.CAR), msgspec.structs.replace(event, place="A8")):
        with pytest.raises(EventError, match=r"Loop\.(lane|category) is None"):
            check(wrong)
        with pytest.raises(EventError, match=r"Loop\.(lane|category) is None"):
            encode_payload(wrong)


# -- what goes on ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
@examples(300)
def test_random_evolutions_in_packets_and_payloads(seed: int) -> None:
    """Both directions, one event after the other; through any number of older programs, nothing is lost."""
    made = Evolution(seed)
    for _ in range(4):
        new, old = made.new_event(), made.old_event()
        (seen,), counted = through(made.old, new)
        assert seen == made.as_old(new)
        assert {label.partition(".")[2] for label in counted} == made.unread(new) == unread_values(seen).keys()
        (again,), _ = through(made.old, seen)
        assert again == seen
        (back,), counted = through(made.new, again)
        assert back == new
        assert not counted
        (read_old,), counted = through(made.new, old)
        assert read_old == made.as_new(old)
        assert not counted


def through(cls: type[Event], *events: Event) -> tuple[list[Event], UnreadValues]:
    """Events that are sent by their class and received by another; by packets and by payloads, which is the same."""
    decoder, unread = EventDecoder([cls]), UnreadValues()
    sender = type(events[0])
    if units := units_of(sender):
        decoder.decode(PACK((f"units of {sender.__name__}", 0, units)))
    reader = PayloadReader(cls, unread, units)
    found = [decoder.decode(encode_event(event, 0)) for event in events]
    packets = [each.event for each in found if isinstance(each, Recorded)]
    payloads = [reader.read(encode_payload(event)) for event in events]
    quick = [reader.read(payload_encoder(sender)(event)) for event in events]
    batch = [reader.read(each) for each in split_batch(encode_batch(sender, events)) or ()]
    assert packets == payloads == quick == batch
    assert unread == {label: 3 * count for label, count in decoder.unread.items()}
    return packets, decoder.unread


@pytest.mark.parametrize("seed", range(12))
def test_random_evolutions_in_recordings(seed: int, tmp_path: Path) -> None:
    """A recording that an older program makes of what it read is whole for a newer one."""
    made = Evolution(seed)
    events = [made.new_event() for _ in range(30)]
    first, second = tmp_path / "new.genus", tmp_path / "old.genus"
    write(first, events)
    recording = read_recording(first, [made.old])
    seen = [each.event for each in recording]
    assert not recording.problems
    assert seen == [made.as_old(event) for event in events]
    assert recording.unread.total() == sum(len(made.unread(event)) for event in events)
    write(second, seen)
    again = read_recording(second, [made.new])
    assert [each.event for each in again] == events
    assert not again.problems
    assert not again.unread


def write(path: Path, events: list[Event]) -> None:
    with RecordingWriter(path) as recording:
        for at_us, event in enumerate(events):
            recording.write(event, at_us)


def test_a_kept_value_keeps_its_unit() -> None:
    """Whoever can read it converts it, also if the program between states no unit for it."""
    seen, _ = read(OLD, encode_event(GROWN, 0), speed="km/h")
    metric: Any = declare(
        "Loop", Event, {"lane": int, "category": Newer, "speed": Annotated[float, Unit("m/s")] | None}
    )
    event, unread = read(metric, encode_event(seen, 0))
    assert event.speed == 25.0
    assert unread == {"Loop.other": 1}
    same, _ = read(NEW, encode_event(seen, 0))
    assert same == GROWN
    unread = UnreadValues()
    assert PayloadReader(metric, unread).read(encode_payload(seen)) == event


def test_a_value_that_is_too_wide_after_conversion_goes_on_in_the_unit_of_the_class() -> None:
    small: Any = declare("Mast", Event, {"height": Annotated[UInt8, Unit("m")]})
    large: Any = declare("Mast", Event, {"height": Annotated[int, Unit("m")]})
    decoder = EventDecoder([small])
    decoder.decode(PACK(("units of Mast", 0, {"height": "km"})))
    found = decoder.decode(PACK(("Mast", 0, {"height": 3})))
    assert isinstance(found, Recorded)
    assert found.event.height is None  # type: ignore[attr-defined]
    again = EventDecoder([large]).decode(encode_event(found.event, 0))
    assert again == Recorded(0, large(height=3000))


def test_a_cloudevent_has_what_was_not_read() -> None:
    from genus.net._cloudevents import CloudEventWriter
    from genus.net._envelope import Origin

    seen, _ = read(OLD, encode_event(NEW(lane=300, category=Newer.BUS), 0))
    written = msgspec.json.decode(CloudEventWriter().write_structured(seen, Origin(b"12345678", 1), "k"))
    assert written["data"] == {"lane": 300, "category": "bus"}


def test_the_key_of_a_forwarded_event_says_what_its_sender_said() -> None:
    from genus.targets.topics import EventKeys

    seen, _ = read(OLD, encode_event(GROWN, 0))
    assert EventKeys(OLD).key(seen) == EventKeys(NEW).key(GROWN)
    assert EventKeys(OLD).key(OLD(lane=1, category=Category.CAR)) != EventKeys(OLD).key(seen)


# -- what is told ------------------------------------------------------------------------------------------------------


def test_the_first_of_each_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    unread = UnreadValues(is_logged=True)
    reader = PayloadReader(OLD, unread)
    with caplog.at_level(logging.WARNING, "genus.bus"):
        for _ in range(3):
            reader.read(PACK({"lane": 1, "category": "bus"}))
    assert caplog.messages == ["values of Loop.category cannot be read here, and are absent: Invalid enum value 'bus'"]
    assert unread == {"Loop.category": 3}


def test_names_that_others_choose_take_bounded_memory() -> None:
    unread = UnreadValues()
    reader = PayloadReader(OLD, unread)
    for number in range(2 * UnreadValues.MAX_COUNT):
        reader.read(PACK({"lane": 1, "category": "car", f"x{number}" + "y" * 10_000: b"z" * 10_000}))
    assert len(unread) == UnreadValues.MAX_COUNT + 1
    assert unread[UnreadValues.OTHER] == UnreadValues.MAX_COUNT
    texts = [*unread, *unread.reasons.values(), *unread.examples.values()]
    assert sum(map(len, texts)) < 500 * len(unread)


def test_a_process_without_such_values_does_not_ask_for_them() -> None:
    class Fresh(Event):
        lane: UInt8
        speed: Maybe[float] = None

    decoder = EventDecoder([Fresh])
    decoder.decode(encode_event(Fresh(lane=1), 0))
    assert Fresh not in unread_types


def test_what_a_class_refuses_itself_is_no_event() -> None:
    """The values can be read one by one, so nothing is left out."""

    class Even(Event, name="unread.Even"):
        number: int
        more: Maybe[UInt8] = None

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    def packet(**values: int) -> bytes:
        return PACK(("unread.Even", 0, values))

    found, unread = read(Even, packet(number=3))
    assert found == Rejected("not a unread.Even: odd")
    assert list(unread.lines()) == []
    found, unread = read(Even, packet(number=4, more=300))
    assert (found.number, found.more) == (4, None)
    assert len(list(unread.lines())) == 1
