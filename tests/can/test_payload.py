"""Payloads of events: what is written is read again, by every age of reader, and nothing else is ever read."""

import math
import random
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from functools import cache
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Maybe
from genus.bus._codec import EventDecoder, Recorded, Rejected, encode_event
from genus.can._wire.payload import PayloadCodec
from genus.errors import EventError, SubscriptionError
from genus.filters._evaluate import round_to_float32
from genus.model import Float32, Int8, Int16, Int32, UInt8, UInt16, UInt32, attributes, check, vector
from genus.model._event import create_event
from genus.model._plain import is_same
from genus.model._values import unread_values
from genus.model.types import Attribute, ChoiceType, FloatType, IntType, OpaqueType, TextType, Vector
from tests.generators import Generator, Sampler, declare
from tests.wild_values import wild_event


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"


class Loop(Event):
    lane: UInt8
    category: Maybe[Category] = None
    speed: Maybe[Float32] = None


class Radar(Loop):
    speed: Float32
    angle: Int16
    raw: Maybe[bytes] = None


CATALOG = Catalog()
CATALOG.register(Loop, Radar, *Generator(0).types)


@cache
def layout_of(cls: type[Event], tagged: tuple[str, ...] = ()) -> PayloadCodec:
    return PayloadCodec.of(cls, CATALOG.vector(cls), tagged)


def declared(name: str, base: Any = Event, **fields: Any) -> Any:
    """A class of its own, as another program may have it under the same name."""
    metaclass: Any = type(Event)
    return metaclass(name, (base,), {"__annotations__": fields, "__module__": __name__})


def plain(event: object) -> object:
    """What of an event travels: Float32 as 32 bits, NaN as a word, since it is not equal to itself."""
    assert isinstance(event, Event), event
    found: dict[str, object] = {}
    for attribute in attributes(type(event)):
        value = getattr(event, attribute.name)
        if value is not None and isinstance(attribute.type, FloatType):
            value = round_to_float32(value) if attribute.type.bits == 32 else float(value)
            value = "nan" if math.isnan(value) else (value, math.copysign(1, value))
        found[attribute.name] = value.astimezone(UTC) if isinstance(value, datetime) else value
    return type(event), found


# ---- golden vectors: what is on the wire never changes


def test_the_header_has_the_sequence_number_and_the_presence_bits() -> None:
    encode = layout_of(Loop).encode
    assert encode(Loop(lane=2), 0) == (0, bytes.fromhex("00 02"))
    assert encode(Loop(lane=2), 5) == (0, bytes.fromhex("a0 02"))
    assert encode(Loop(lane=2), 8) == (0, bytes.fromhex("00 02"))
    assert encode(Loop(lane=2, category=Category.TRUCK, speed=80.5), 3) == (0, bytes.fromhex("70 30 02 01 42a10000"))
    assert encode(Loop(lane=2, place="A8"), 1) == (0, bytes.fromhex("22 02 4138 02"))
    moment = datetime(2026, 11, 15, 12, 30, 15, 123456, tzinfo=UTC)
    assert encode(Loop(time=moment, lane=1), 0) == (0, bytes.fromhex("08 0006604fd2c5c600 01"))


def test_required_attributes_have_no_bit_but_the_familys_others_do() -> None:
    """`raw` is the ninth of the vector, its sixth bit for a Radar: after speed and angle have none."""
    event = Radar(lane=1, speed=2.0, angle=-2, raw=b"\xff\x00")
    assert layout_of(Radar).encode(event, 7) == (0, bytes.fromhex("f0 10 01 40000000 fffe 02 ff00"))


def test_tagged_attributes_have_their_bits_in_the_event_tag() -> None:
    layout = layout_of(Loop, ("place", "category"))
    assert layout.encode(Loop(lane=2, place="A8", category=Category.CAR), 0) == (3, bytes.fromhex("00 02 4138 02 00"))
    assert layout.encode(Loop(lane=2, place="A8"), 0) == (2, bytes.fromhex("00 02 4138 02"))
    assert layout.encode(Loop(lane=2, category=Category.CAR, speed=1.0), 0) == (
        1,
        bytes.fromhex("10 40 02 00 3f800000"),
    )
    assert layout.decode(0x3FFD, bytes.fromhex("00 02 00")) == Loop(lane=2, category=Category.CAR)


def test_a_tagged_attribute_that_is_required_is_always_said_to_be_there() -> None:
    layout = layout_of(Radar, ("speed", "raw"))
    bits, payload = layout.encode(Radar(lane=1, speed=2.0, angle=3), 0)
    assert bits == 2
    assert layout.decode(2, payload) == Radar(lane=1, speed=2.0, angle=3)
    assert layout.decode(0, payload) == Rejected("Radar.speed is invalid")


# ---- laws


@pytest.mark.parametrize("seed", range(8))
def test_every_event_is_read_as_it_was_written(seed: int) -> None:
    """Events of all types with values from their edges, with any attributes tagged."""
    generator = Generator(seed)
    for cls in generator.types:
        names = [attribute.name for attribute in CATALOG.vector(cls)]
        tagged = tuple(generator.random.sample(names, generator.random.randrange(4)))
        layout = layout_of(cls, tagged)
        for sequence, event in enumerate(generator.events(60, cls)):
            bits, payload = layout.encode(event, sequence)
            assert plain(layout.decode(bits, payload)) == plain(event)
            assert layout.sequence_of(payload) == sequence % 8
            assert bits == sum(
                1 << place
                for place, name in enumerate(reversed(tagged))
                if getattr(event, name, None) is not None and name in {attribute.name for attribute in attributes(cls)}
            )


@pytest.mark.parametrize("seed", range(4))
def test_what_is_cut_short_is_rejected_and_what_follows_is_ignored(seed: int) -> None:
    generator = Generator(seed)
    for event in generator.events(200):
        layout = layout_of(type(event), ("place",))
        bits, payload = layout.encode(event, seed)
        assert plain(layout.decode(bits, payload + generator.random.randbytes(5))) == plain(event)
        cut = payload[: generator.random.randrange(len(payload))]
        assert isinstance(layout.decode(bits, cut), Rejected)


@pytest.mark.parametrize("seed", range(4))
def test_an_event_is_encoded_exactly_if_it_passes_check(seed: int) -> None:
    """Values of any Python type in any attribute."""
    chance, layout = random.Random(seed), layout_of(Sampler)
    encoded = 0
    for event in (wild_event(chance, Sampler) for _ in range(1000)):
        try:
            check(event)
        except EventError:
            with pytest.raises(EventError, match=r"^Sampler\."):
                layout.encode(event, 0)
        else:
            assert is_same(rounded(event), rounded(layout.decode(*layout.encode(event, 0))))
            encoded += 1
    assert 200 < encoded < 900


def rounded(event: Any) -> Any:
    """An event with its Float32 as CAN carries it."""
    single = None if event.single is None else round_to_float32(event.single)
    return msgspec.structs.replace(event, single=single)


@given(st.sampled_from(Generator(0).types), st.integers(0, 3), st.binary(max_size=64))
def test_any_bytes_give_an_event_that_is_valid_or_a_reason(cls: type[Event], bits: int, payload: bytes) -> None:
    found = layout_of(cls, ("place", "source")).decode(bits, payload)
    if isinstance(found, Event):
        check(found)
        msgspec.convert(msgspec.to_builtins(found, builtin_types=(datetime, timedelta, bytes)), cls)
    else:
        assert found.reason.startswith(cls.__name__)


def test_changed_bytes_never_raise() -> None:
    rng = random.Random(5)
    generator = Generator(5)
    reasons = set()
    for event in generator.events(400, Sampler):
        layout = layout_of(Sampler)
        payload = bytearray(layout.encode(event, 0)[1])
        for _ in range(4):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        found = layout.decode(0, bytes(payload))
        reasons.add(found.reason if isinstance(found, Rejected) else "")
    assert {
        "Sampler is cut short",
        "Sampler.flag is invalid",
        "Sampler.text is invalid",
    } < reasons
    assert len(reasons) < 25, "reasons are few, as they are counted"


@pytest.mark.parametrize("seed", range(4))
def test_sizes_bound_every_payload(seed: int) -> None:
    generator = Generator(seed)
    for event in generator.events(200):
        layout = layout_of(type(event))
        payload = layout.encode(event, 0)[1]
        present = [a.name for a in attributes(type(event)) if getattr(event, a.name) is not None]
        largest = layout.max_size_with(present)
        assert layout.min_size <= len(payload)
        assert largest is None or len(payload) <= largest


def test_sizes_of_a_class_are_those_of_its_attributes() -> None:
    layout = layout_of(Loop)
    assert layout.min_size == 2
    assert layout.max_size is None
    assert layout.max_size_with([]) == 2
    assert layout.max_size_with(["category"]) == 4
    assert layout.max_size_with(["category", "speed"]) == 8
    assert layout.max_size_with(["time"]) == 10
    assert layout.max_size_with(["place"]) is None
    assert layout_of(Loop, ("category", "speed")).max_size_with(["category", "speed"]) == 7


@pytest.mark.parametrize(
    ("annotation", "least", "most"),
    [
        (bool, 1, 1), (Int8, 1, 1), (UInt8, 1, 1), (Int16, 2, 2), (UInt16, 2, 2), (Int32, 4, 4), (UInt32, 4, 4),
        (int, 8, 8), (Float32, 4, 4), (float, 8, 8), (datetime, 8, 8), (timedelta, 8, 8), (Category, 1, 1),
        (Annotated[str, msgspec.Meta(max_length=10)], 1, 41), (Annotated[str, msgspec.Meta(max_length=63)], 1, 253),
        (Annotated[str, msgspec.Meta(max_length=64)], 1, 259), (Annotated[bytes, msgspec.Meta(max_length=254)], 1, 255),
        (Annotated[bytes, msgspec.Meta(max_length=255)], 1, 258), (str, 1, None), (bytes, 1, None),
        (Annotated[bytes, msgspec.Meta(max_length=65_534)], 1, 65_537),
        (Annotated[bytes, msgspec.Meta(max_length=65_535)], 1, None),
    ],
    ids=str,
)  # fmt: skip
def test_each_type_has_its_size(annotation: Any, least: int, most: int | None) -> None:
    """Besides the header's byte; letters take up to four bytes, and a length or an index three from 255 on."""
    cls = declared("Sized", value=annotation)
    layout = PayloadCodec.of(cls, vector(cls))
    assert layout.min_size == 1 + least
    assert layout.max_size_with([]) == (None if most is None else 1 + most)


def test_a_text_has_at_most_65535_bytes() -> None:
    """Not letters: those outside ASCII take several."""
    layout = layout_of(Loop)
    for place in ("x" * 65_535, "é" * 32_767):
        assert layout.decode(0, layout.encode(Loop(lane=1, place=place), 0)[1]) == Loop(lane=1, place=place)
    for place in ("x" * 65_536, "é" * 32_768):
        with pytest.raises(EventError, match="it takes 65536 bytes, but at most 65535 are allowed"):
            layout.encode(Loop(lane=1, place=place), 0)


# ---- readers and writers of different age


OLD = declared("Gauge", level=Int16)
NEW = declared("Gauge", level=Int16, flow=float | None, note=str | None)


def test_an_older_reader_ignores_what_was_appended() -> None:
    old, new = PayloadCodec.of(OLD, vector(OLD)), PayloadCodec.of(NEW, vector(NEW))
    bits, payload = new.encode(NEW(level=4, flow=2.5, note="x", place="A8"), 1)
    assert old.decode(bits, payload) == OLD(level=4, place="A8")


def test_a_newer_reader_takes_what_is_missing_for_absent() -> None:
    old, new = PayloadCodec.of(OLD, vector(OLD)), PayloadCodec.of(NEW, vector(NEW))
    assert new.decode(*old.encode(OLD(level=4), 1)) == NEW(level=4)


def test_an_older_reader_skips_whole_bytes_of_presence_bits_it_does_not_know() -> None:
    many = declared("Gauge", level=Int16, **{f"x{n}": UInt8 | None for n in range(30)})
    bits, payload = PayloadCodec.of(many, vector(many)).encode(
        many(level=4, x29=1, x3=7, expires=datetime(2026, 1, 1, tzinfo=UTC)), 0
    )
    assert PayloadCodec.of(OLD, vector(OLD)).decode(bits, payload) == OLD(
        level=4, expires=datetime(2026, 1, 1, tzinfo=UTC)
    )


def test_a_class_that_gains_what_a_sibling_had_moves_no_bit() -> None:
    """The vector does not grow then; were bits counted over the class's own attributes, all after it would move."""
    root = declared("Meter")
    sibling = declared("Cold", root, flow=UInt8 | None)
    before = declared("Warm", root, heat=UInt8 | None)
    agreed = vector(root)
    after = declared("Warm", root, flow=UInt8 | None, heat=UInt8 | None)
    assert vector(root) == agreed
    assert [a.name for a in agreed][-2:] == ["flow", "heat"]
    old, new = PayloadCodec.of(before, agreed), PayloadCodec.of(after, agreed)
    assert old.decode(*new.encode(after(flow=1, heat=2), 0)) == before(heat=2)
    assert new.decode(*old.encode(before(heat=2), 0)) == after(heat=2)
    assert PayloadCodec.of(sibling, agreed).encode(sibling(flow=1), 0)[1] == new.encode(after(flow=1), 0)[1]


@pytest.mark.parametrize(
    ("dropped", "value"),
    [(UInt8, 9), (float, 2.5), (str, "é" * 300), (bytes, b"ab"), (Category, Category.TRUCK), (list[int], [1, 2, 3])],
)
def test_a_class_that_drops_an_attribute_keeps_its_values_for_others(dropped: type, value: object) -> None:
    full = declared("Pipe", one=UInt8 | None, two=dropped | None, three=UInt8 | None)
    less = declared("Pipe", one=UInt8 | None, three=UInt8 | None)
    reader = PayloadCodec.of(less, vector(full), ("one", "two"))
    bits, payload = PayloadCodec.of(full, vector(full), ("one", "two")).encode(full(one=1, two=value, three=3), 0)
    found = reader.decode(bits, payload)
    assert found == less(one=1, three=3)
    assert isinstance(found, Event)
    assert EventDecoder([full]).decode(encode_event(found, 0)) == Recorded(0, full(one=1, two=value, three=3))
    bits, payload = PayloadCodec.of(full, vector(full)).encode(full(two=value, one=1), 0)
    assert PayloadCodec.of(less, vector(full)).decode(bits, payload) == less(one=1)
    assert isinstance(PayloadCodec.of(less, vector(full)).decode(bits, payload[:-1]), Rejected)


def test_a_choice_that_the_class_does_not_know_is_absent_and_kept() -> None:
    """By its value if the catalog has it, and else by its number."""
    more = Vector("Loop", tuple(_with_values(a, ("car", "truck", "bus")) for a in CATALOG.vector(Loop)))
    layout = PayloadCodec.of(Loop, more)
    payload = bytearray(layout.encode(Loop(lane=1, category=Category.TRUCK), 0)[1])
    assert payload[-1] == 1
    for number, values in ((2, ("car", "truck", "bus")), (3, ("car", "truck", "bus", "tram"))):
        payload[-1] = number
        found = layout.decode(0, bytes(payload))
        assert found == Loop(lane=1)
        assert isinstance(found, Loop)
        assert unread_values(found).keys() == {"category"}
        newer = declared("Loop", lane=UInt8, category=Enum("Newer", {each: each for each in values}))
        again = EventDecoder([newer]).decode(encode_event(found, 0))
        assert isinstance(again, Recorded)
        assert again.event.category.value == values[-1]  # type: ignore[attr-defined]
    payload[-1] = 255
    assert layout.decode(0, bytes(payload)) == Rejected("Loop.category is invalid"), "two more bytes would follow"


def _with_values(attribute: Attribute, values: tuple[str, ...]) -> Attribute:
    found = ChoiceType(values) if isinstance(attribute.type, ChoiceType) else attribute.type
    return msgspec.structs.replace(attribute, type=found)


Many = Enum("Many", {f"M{n}": n for n in range(300)})  # type: ignore[misc]
Few = Enum("Few", {f"M{n}": n for n in range(255)})  # type: ignore[misc]


def test_a_list_of_values_may_grow_past_a_byte() -> None:
    """Values that were there before are written as before, so older readers still understand them."""
    grown = declared("Dial", at=Many, then=UInt8)
    small = declared("Dial", at=Few, then=UInt8)
    new, old = PayloadCodec.of(grown, vector(grown)), PayloadCodec.of(small, vector(small))
    assert new.encode(grown(at=Many["M254"], then=7), 0)[1] == bytes.fromhex("00 fe 07")
    assert new.encode(grown(at=Many["M299"], then=7), 0)[1] == bytes.fromhex("00 ff 012b 07")
    for member in Many:
        bits, payload = new.encode(grown(at=member, then=7), 0)
        assert new.decode(bits, payload) == grown(at=member, then=7)
        found = old.decode(bits, payload)
        expected = small(at=Few(member.value), then=7) if member.value < 255 else Rejected("Dial.at is invalid")
        assert found == expected
    assert new.max_size_with([]) == 5
    found = new.decode(0, bytes.fromhex("00 ff ffff 07"))
    assert found == create_event(grown, at=None, then=7)


# ---- what the class itself demands


class Demanding(Event):
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)]
    word: Maybe[Annotated[str, msgspec.Meta(max_length=3, pattern="^[a-zé]*$")]] = None
    blob: Maybe[Annotated[bytes, msgspec.Meta(max_length=2)]] = None
    low: UInt8 = 0
    high: UInt8 = 255

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"{self.low} is above {self.high}")


def test_bounds_of_the_class_hold_for_bytes_from_outside() -> None:
    layout = PayloadCodec.of(Demanding, vector(Demanding))
    bits, payload = layout.encode(Demanding(percent=7, word="é", low=1, high=2), 0)
    assert layout.decode(bits, payload) == Demanding(percent=7, word="é", low=1, high=2)
    at = payload.index(7)
    wider = {
        "percent": payload[:at] + b"\x65" + payload[at + 1 :],
        "word": payload.replace("é".encode(), b"AB"),
    }
    for name, newer in wider.items():
        found = layout.decode(bits, newer)
        assert isinstance(found, Demanding)
        assert getattr(found, name) is None
        assert [*unread_values(found)] == [name]
    assert layout.decode(bits, payload[:-2] + b"\x09\x02") == Rejected("Demanding rejects it: ValueError")


def test_bounded_texts_bound_the_payload() -> None:
    layout = PayloadCodec.of(Demanding, vector(Demanding))
    assert layout.max_size_with(["word", "blob"]) == 2 + 8 + (1 + 12) + (1 + 2) + 1 + 1
    with pytest.raises(EventError, match=r"Demanding\.blob is b'abc', but must be bytes, Meta\(max_length=2\)"):
        layout.encode(Demanding(percent=1, blob=b"abc"), 0)


def test_absent_is_absent_even_where_the_default_is_something_else() -> None:
    metaclass: Any = type(Event)
    cls: Any = metaclass("Lamp", (Event,), {"__annotations__": {"watts": int | None}, "watts": 60})
    layout = PayloadCodec.of(cls, vector(cls))
    assert layout.decode(*layout.encode(cls(watts=None), 0)) == cls(watts=None)
    assert layout.decode(*layout.encode(cls(), 0)) == cls(watts=60)


# ---- what cannot be written or read


WRONG = [
    ({"flag": 1}, "flag"),
    ({"flag": "yes"}, "flag"),
    ({"tiny": 128}, "tiny"),
    ({"octet": -1}, "octet"),
    ({"count": 2**32}, "count"),
    ({"number": 2**63}, "number"),
    ({"number": 1.5}, "number"),
    ({"real": "1"}, "real"),
    ({"real": 10**400}, "real"),
    ({"single": "x"}, "single"),
    ({"text": b"x"}, "text"),
    ({"text": "\ud800"}, "text"),
    ({"text": "x" * 65_536}, "text"),
    ({"blob": "x"}, "blob"),
    ({"blob": bytes(65_536)}, "blob"),
    ({"colour": "pink"}, "colour"),
    ({"colour": []}, "colour"),
    ({"span": 5}, "span"),
    ({"span": timedelta.max}, "span"),
    ({"time": datetime(2026, 1, 1)}, "time"),
    ({"time": datetime.max.replace(tzinfo=timezone(timedelta(hours=-11)))}, "time"),
    ({"parts": [object()]}, "parts"),
]


@pytest.mark.parametrize(("values", "name"), WRONG)
def test_a_value_that_cannot_be_written_is_named(values: dict[str, Any], name: str) -> None:
    with pytest.raises(EventError, match=rf"^Sampler\.{name} is "):
        layout_of(Sampler).encode(Sampler(**values), 0)


@pytest.mark.parametrize(
    "type_", [bool, UInt16, UInt32, float, Float32, str, bytes, datetime, timedelta, Category, list[int]]
)
def test_a_required_attribute_that_is_none_is_named(type_: type) -> None:
    cls: Any = declared("Strict", must=type_)
    with pytest.raises(EventError, match=r"^Strict\.must is None"):
        PayloadCodec.of(cls, vector(cls)).encode(cls(must=None), 0)


def test_float32_beyond_its_range_is_infinite_as_everywhere() -> None:
    layout = layout_of(Loop)
    for value, expected in [(1e300, math.inf), (-1e300, -math.inf), (3.4028235677973362e38, 3.4028234663852886e38)]:
        found = layout.decode(*layout.encode(Loop(lane=1, speed=value), 0))
        assert isinstance(found, Loop)
        assert found.speed == expected


def test_texts_have_one_length_byte_up_to_254_and_three_beyond() -> None:
    layout = layout_of(Loop)
    for length, prefix in [(0, "00"), (254, "fe"), (255, "ff00ff"), (65_535, "ffffff")]:
        event = Loop(lane=1, place="x" * length)
        payload = layout.encode(event, 0)[1]
        assert payload[1:].startswith(bytes.fromhex(prefix))
        assert layout.decode(0, payload) == event


def test_text_that_is_not_utf8_is_rejected() -> None:
    assert layout_of(Loop).decode(0, bytes.fromhex("02 02 c328 02")) == Rejected("Loop.place is invalid")
    assert layout_of(Loop).decode(0, bytes.fromhex("02 03 eda080 02")) == Rejected("Loop.place is invalid")


def test_a_time_outside_the_calendar_is_rejected() -> None:
    assert layout_of(Loop).decode(0, bytes.fromhex("08 7fffffffffffffff 02")) == Rejected("Loop.time is invalid")


def test_an_opaque_value_is_checked_by_its_type() -> None:
    layout = layout_of(Sampler)
    payload = layout.encode(Sampler(parts=[1, 2]), 0)[1]
    assert layout.decode(0, payload) == Sampler(parts=[1, 2])
    assert layout.decode(0, payload[:-1] + b"\xc0") == Sampler(), "a list of another type"
    for hostile in (payload[:-4] + b"\x01\xc0", payload[:-4] + b"\x03\xdd\xff\xff"):
        assert layout.decode(0, hostile) == Rejected("Sampler.parts is invalid")


def test_an_event_of_another_class_is_refused() -> None:
    with pytest.raises(EventError, match="is no Loop; use the codec of its own class"):
        layout_of(Loop).encode(Radar(lane=1, speed=1.0, angle=1), 0)


def test_an_empty_payload_is_no_event() -> None:
    assert layout_of(Loop).decode(0, b"") == Rejected("Loop is cut short")
    assert PayloadCodec.sequence_of(b"") == 0


def test_an_attribute_outside_the_vector_is_refused_with_the_vector() -> None:
    with pytest.raises(SubscriptionError, match=r"Loop has no attribute 'angle'; .*its attributes are .*speed"):
        PayloadCodec.of(Radar, Vector("Loop", tuple(attributes(Loop))))
    with pytest.raises(SubscriptionError, match="no attribute 'colour'"):
        layout_of(Loop, ("colour",))


@pytest.mark.parametrize("other", [IntType(16), TextType(), OpaqueType("Lane"), ChoiceType(("a",))])
def test_an_attribute_that_has_another_type_in_the_vector_is_refused(other: Any) -> None:
    strange = tuple(msgspec.structs.replace(a, type=other) if a.name == "lane" else a for a in CATALOG.vector(Loop))
    with pytest.raises(SubscriptionError, match=r"Loop\.lane is uint8, but .* in the vector of Loop"):
        PayloadCodec.of(Loop, Vector("Loop", strange))


def test_a_value_that_the_vector_does_not_know_is_refused() -> None:
    less = Vector("Loop", tuple(_with_values(a, ("car",)) for a in CATALOG.vector(Loop)))
    with pytest.raises(SubscriptionError, match=r"Loop\.category is .*truck.* in the vector"):
        PayloadCodec.of(Loop, less)


class Bare(Event):
    """Nothing of its own."""


class Tiny(Event):
    offset: Int8


def test_the_smallest_events_take_a_byte_or_two() -> None:
    assert PayloadCodec.of(Bare, vector(Bare)).encode(Bare(), 6) == (0, b"\xc0")
    assert PayloadCodec.of(Tiny, vector(Tiny)).encode(Tiny(offset=-1), 0) == (0, b"\x00\xff")


@pytest.mark.parametrize("count", [100, 130, 700, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_family_may_have_thousands_of_attributes(count: int) -> None:
    """Headers of some bytes are read by nested blocks, longer ones are not: Python has a limit of a hundred."""
    wide = declare("Wide", Event, {f"a{number}": UInt8 | None for number in range(count)})
    codec = PayloadCodec.of(wide, vector(wide))
    for present in ((), (0,), (count - 1,), (3, count // 2), range(count), range(0, count, 7)):
        values: dict[str, Any] = {f"a{number}": number % 256 for number in present}
        event = wide(**values)
        bits, payload = codec.encode(event, 3)
        assert codec.decode(bits, payload) == event
        cuts = [codec.decode(bits, payload[:size]) for size in range(0, len(payload), 1 + len(payload) // 50)]
        assert not any(isinstance(cut, Event) for cut in cuts)
