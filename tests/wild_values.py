"""Random event types with attributes of every kind, and events with good and bad values of all Python types.

For the law that `check`, encoders and decoders accept the same values (tests/model/test_values.py).
"""

import math
import random
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from genus.model import Event, Float32, Int8, Int16, Int64, UInt8, UInt16, UInt32, attributes
from genus.model.internal import INT64_MAX, INT64_MIN
from genus.testing._generator import BLOBS, INTEGERS, REALS, SPANS, TEXTS, TIMES, pool
from tests.generators import Colour, Hue, Level, declare


class Word(str):
    """Text of a class of its own."""


class Size(int):
    """An integer of a class of its own."""


class Share(float):
    """A number of a class of its own."""


class Load(bytes):
    """Bytes of a class of their own."""


class Moment(datetime):
    """A time of a class of its own."""


class Period(timedelta):
    """A duration of a class of its own."""


class Rank(IntEnum):
    """An enumeration whose members are integers."""

    LOW = INT64_MIN
    FIRST = 1
    HIGH = INT64_MAX


class Mark(StrEnum):
    """An enumeration whose members are text."""

    RED = "red"


class Odd(int, Enum):
    """An enumeration whose members are other integers than their values."""

    def __new__(cls, value: int) -> "Odd":
        """A member that is one more than its value."""
        made = int.__new__(cls, value + 1)
        made._value_ = value
        return made

    ONE = 1


class Nowhere(tzinfo):
    """A time zone without an offset: its times are naive."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        """None, as for a naive time."""
        return None

    def dst(self, moment: datetime | None) -> None:
        """No summer time."""

    def tzname(self, moment: datetime | None) -> str:
        """Return a name."""
        return "nowhere"


class Failing(Nowhere):
    """A time zone whose offset cannot be found."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        """Raise LookupError."""
        raise LookupError("no such zone")


class Position(msgspec.Struct):
    """A struct inside an event."""

    x: float
    y: float = 0.0
    seen: datetime | None = None
    tags: list[str] = []


EAST, WEST = timezone(timedelta(hours=5)), timezone(timedelta(hours=-5))
BERLIN = ZoneInfo("Europe/Berlin")

WILD: tuple[Any, ...] = (
    *(None, True, False, *INTEGERS, 2**63, 2**64 - 1, 2**64, INT64_MIN - 1, 10**30, 10**400),
    *(*REALS, math.nan, *TEXTS, "\ud800", "red", "a\udfff", *BLOBS, bytearray(b"x"), memoryview(b"x")),
    *(*TIMES, *SPANS, timedelta.max, timedelta.min, timedelta(microseconds=INT64_MAX + 1), Period(seconds=1)),
    *(Period.max, datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=Nowhere()), datetime(2026, 1, 1, tzinfo=Failing())),
    *(datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1)),
    *(datetime(1800, 1, 1, tzinfo=BERLIN), datetime(1, 1, 1, tzinfo=EAST), datetime(1, 1, 1, 5, tzinfo=EAST)),
    *(datetime(9999, 12, 31, 23, tzinfo=WEST), datetime.max.replace(tzinfo=UTC), Moment(2026, 1, 1, tzinfo=UTC)),
    *(Moment(2026, 1, 1), Moment(1, 1, 1, tzinfo=EAST)),
    *(Word("red"), Word("\ud800"), Size(3), Size(2**70), Share(0.5), Share("nan"), Load(b"x"), Rank.FIRST, Mark.RED),
    *(Odd.ONE, Colour.RED, Level.LOW, Level.HIGH, Hue.ROT, Colour, object(), 1j, print),
    *([], [1], [1, "x"], [2**70], [True], [None], (1, 2), (1, "x"), {1}, frozenset({"a"}), {"a": 1}, {1: 2}, [[1]]),
    *([1.5, math.nan], {math.nan}, [3], {"a": math.nan}, range(3), [Size(4)], [object()], {"a": "\ud800"}, [b"x"]),
    *(Position(1.5), Position(math.nan, tags=["a"]), Position(1, seen=datetime(2026, 1, 1)), Position("x")),  # type: ignore[arg-type]
    *(
        np.int8(3),
        np.uint64(2**63),
        np.float16(0.5),
        np.float64("nan"),
        np.longdouble(0.5),
        np.complex64(1),
        np.bool_(0),
    ),
    *(np.str_("red"), np.bytes_(b"x"), np.datetime64("2026-01-01"), np.timedelta64(3, "ms"), np.timedelta64(3, "ns")),
    *(np.timedelta64("NaT"), np.array([1]), np.array(1), [np.int64(1)], {"a": np.float64(1.5)}),
    *(Position(0, tags=[1]), {"x": 1.5}, [Position(0.5)], msgspec.msgpack.Ext(5, b"x")),  # type: ignore[list-item]
)
"""Values of all types: each is one that attributes of some types may have, or one that none may have."""

ANNOTATIONS: tuple[Any, ...] = (
    *(bool, int, float, str, bytes, datetime, timedelta, Colour, Level, Rank, Mark, Int8, Int16, Int64, UInt8, UInt16),
    *(UInt32, Float32, list[int], list[float], list[Any], tuple[int, ...], tuple[int, str], set[float], frozenset[str]),
    *(dict[str, float], dict[int, int], dict[str, Any], list[Position], list[list[int]], list[datetime], Position),
    *(Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(gt=-2, multiple_of=3)]),
    *(Annotated[float, msgspec.Meta(le=1.5)], Annotated[float, msgspec.Meta(gt=0)]),
    *(Annotated[str, msgspec.Meta(max_length=2)], Annotated[str, msgspec.Meta(pattern="^[a-z]*$")]),
    *(Annotated[bytes, msgspec.Meta(min_length=1)], Annotated[datetime, msgspec.Meta(title="seen")]),
    *(Annotated[list[int], msgspec.Meta(max_length=1)], Annotated[datetime, msgspec.Meta(tz=True)]),
)
"""Annotations of attributes of all types, plain and with bounds."""


def wild_type(chance: random.Random, name: str = "Wild") -> type[Event]:
    """Return an event type with up to six attributes of random types, required or optional."""
    count = chance.randrange(1, 7)
    notes = {f"a{number}": chance.choice(ANNOTATIONS) for number in range(count)}
    return declare(name, Event, {each: note | None if chance.random() < 0.5 else note for each, note in notes.items()})


def wild_event(chance: random.Random, cls: type[Event]) -> Event:
    """An event in which most attributes have an edge value of their type, and others one of any type."""
    present = [each for each in attributes(cls) if not each.optional or chance.random() < 0.6]
    wild = chance.sample([each.name for each in attributes(cls)], chance.choice((0, 0, 1, 2)))
    given = {each.name: chance.choice(pool(each.type)) for each in present}
    return cls(**given | {name: chance.choice(WILD) for name in wild})
