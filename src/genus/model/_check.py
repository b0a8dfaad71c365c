"""`check`: test whether the values of an event are those that its attributes may have.

docs/semantics.md says which values these are: exactly those that can be written and read back as an equal event.
Values are not checked when an event is created in Python. Encoders check them before they write, and decoders check
after reading what msgspec leaves out, so that all accept the same values.

The tests of a class are generated when they are first needed, one line per attribute. A value of the usual built-in
class is tested in place. All others (subclasses of it, opaque values, and values with bounds of the user's own) are
encoded and decoded, and must be equal afterwards.
"""

from collections.abc import Callable, Iterable
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from genus.errors import EventError
from genus.model._event import Event
from genus.model._read_back import ReadBack
from genus.model._signature import attributes, name_of
from genus.model._types import (
    INT64_MAX,
    INT64_MIN,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
    int_range,
    is_encodable,
    metas,
)
from genus.model._vector import Attribute

FindInvalid: TypeAlias = Callable[[Event], str | None]
"""A function that returns the name of the first attribute of an event whose value it may not have; None if all fit."""

FindInvalidIn: TypeAlias = Callable[[Iterable[Event]], str | None]
"""The same for several events of one class."""
F = TypeVar("F")

SHORTEST, LONGEST = (timedelta(microseconds=micros) for micros in (INT64_MIN, INT64_MAX))
_SHOWN = 200
"""The most characters of a value in a message."""


def check(event: Event) -> None:
    """Check that every value of an event is one that its attribute may have, so that the event can be read back.

    Raises EventError that names the first attribute of which this is not so, its value and what it must be.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     watts: float
    >>> check(Lamp(watts="sixty"))
    Traceback (most recent call last):
    genus.errors.EventError: Lamp.watts is 'sixty', but must be float64
    """
    name = invalid_finders[type(event)](event)
    if name is not None:
        raise EventError(describe_invalid(event, name).message)


class InvalidValue(NamedTuple):
    """A value that its attribute may not have: what is required, and the message for this value."""

    reason: str
    message: str


def describe_invalid(event: Event, name: str) -> InvalidValue:
    """Describe the value of an attribute that a finder returned."""
    attribute = next(each for each in attributes(type(event)) if each.name == name)
    where, expected = f"{name_of(type(event))}.{name}", _describe_expected(type(event), attribute)
    value = getattr(event, name)
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
    message = f"{where} is {shown}, but must be {expected}{_hint(value, attribute)}"
    return InvalidValue(f"{where} must be {expected}", message)


def _hint(value: object, attribute: Attribute) -> str:
    """What to do with a value that looks right but has another class, such as numpy.int64."""
    base = _BASES.get(type(attribute.type))
    return f"; convert it by {base.__name__}(...)" if base in (bool, int, float) and hasattr(value, "dtype") else ""


def _describe_expected(cls: type, attribute: Attribute) -> str:
    bounds = [str(meta).removeprefix("msgspec.") for meta in _own_bounds(_annotation(cls, attribute), attribute)]
    return ", ".join([_describe_type(attribute), *bounds])


def _describe_type(attribute: Attribute) -> str:
    match attribute.type:
        case TimeType():
            return "a datetime with a time zone, in years 1 to 9999 of UTC"
        case DurationType():
            return "a timedelta of 64 bits of microseconds"
        case ChoiceType(enum=enum):
            assert enum is not None
            return f"one of {', '.join(map(str, enum))}"
        case OpaqueType(text):
            return f"{text} that can be encoded and decoded"
    return str(attribute.type.describe())


# -- tests of a class --------------------------------------------------------------------------------------------------


class _Test(NamedTuple):
    """The code that tests a value `v`, and the names in it."""

    code: str
    names: dict[str, object]


def _invalid_finder(cls: type) -> FindInvalid:
    return _generate((each, _test(cls, each)) for each in attributes(cls))


def _invalid_decoded_finder(cls: type) -> FindInvalid:
    return _generate(_tests_left_out(cls))


def _invalid_decoded_finder_in(cls: type) -> FindInvalidIn:
    find: FindInvalidIn = _generate(_tests_left_out(cls), ["def find_invalid(es):", " for e in es:"], " return None")
    return find


def _tests_left_out(cls: type) -> Iterable[tuple[Attribute, _Test]]:
    left_out = (each for each in attributes(cls) if _is_left_out(cls, each))
    return ((each, _Test(_usual_test(each).removeprefix(" and "), {})) for each in left_out)


class _Finders(dict[type, F], Generic[F]):
    """Functions by event type, each generated when it is first needed."""

    def __init__(self, make: Callable[[type], F]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, cls: type) -> F:
        self[cls] = made = self._make(cls)
        return made


invalid_finders = _Finders(_invalid_finder)
"""By event type: the function that finds an attribute with a value that it may not have."""

invalid_decoded_finders = _Finders(_invalid_decoded_finder)
"""The same for an event that msgspec decoded: it tests what msgspec does not."""

invalid_decoded_finders_in = _Finders(_invalid_decoded_finder_in)
"""The same for several events that msgspec decoded."""


def _generate(
    tests: Iterable[tuple[Attribute, _Test]],
    opening: Iterable[str] = ("def find_invalid(e):",),
    closing: str = "    return None",
) -> Callable[[Any], str | None]:
    names: dict[str, object] = dict(_NAMES)
    lines = list(opening)
    for number, (attribute, (code, own)) in enumerate(tests):
        names |= {f"{name}{number}": value for name, value in own.items()}
        present = "v is not None and " if attribute.optional else ""
        lines.append(f"    v = e.{attribute.name}")
        lines.append(f"    if {present}not ({code.format(n=number)}): return {attribute.name!r}")
    exec(compile("\n".join([*lines, closing]), "<genus check>", "exec"), names)
    found: Callable[[Any], str | None] = names["find_invalid"]  # type: ignore[assignment]
    return found


def _test(cls: type, attribute: Attribute) -> _Test:
    annotation = _annotation(cls, attribute)
    reads = ReadBack(annotation)
    match attribute.type:
        case OpaqueType():
            return _Test("reads{n}(v)", {"reads": reads})
        case ChoiceType(enum=enum):
            return _Test("v.__class__ is enum{n}", {"enum": enum})
    base = _BASES[type(attribute.type)]
    usual = _usual_test(attribute)
    bounds = " and reads{n}(v)" if _own_bounds(annotation, attribute) else ""
    is_base = "v.__class__ is base{n}" + (f" or {_IS_INTEGER}" if base is float else "")
    names = {"base": base, "reads": reads, "is_unusual": _IsUnusual(base, reads)}
    return _Test(f"({is_base} or is_unusual{{n}}(v)){usual}{bounds}", names)


def _usual_test(attribute: Attribute) -> str:
    """The test of a value that has the class of its attribute type, to follow that of its class."""
    match attribute.type:
        case IntType(bits, signed):
            low, high = int_range(bits, signed)
            return f" and {low} <= v <= {high}"
        case TextType():
            return " and (v.isascii() or is_encodable(v))"
        case TimeType():
            return " and (v.tzinfo is UTC or is_time(v))"
        case DurationType():
            return " and SHORTEST <= v <= LONGEST"
    return ""


def _is_left_out(cls: type, attribute: Attribute) -> bool:
    """Whether msgspec accepts values that the attribute may not have, when it decodes."""
    match attribute.type:
        case TimeType() | DurationType():
            return True
        case IntType():
            return bool(_own_bounds(_annotation(cls, attribute), attribute))
    return False


class _IsUnusual(NamedTuple):
    """Tests whether a value has a subclass of the usual class, such as an IntEnum or numpy.float64, and reads back."""

    base: type
    reads_back: ReadBack

    def __call__(self, value: object) -> bool:
        return isinstance(value, self.base) and not isinstance(value, bool) and self.reads_back(value)


def _annotation(cls: type, attribute: Attribute) -> object:
    return _annotations(cls)[attribute.name]


@lru_cache(maxsize=8)
def _annotations(cls: type) -> dict[str, object]:
    """The annotations of a class, kept while its attributes are looked at one after the other."""
    return {field.name: field.type for field in msgspec.structs.fields(cls)}


def has_own_bounds(annotation: object, attribute: Attribute) -> bool:
    """Whether an annotation has bounds besides those of its attribute type."""
    return bool(_own_bounds(annotation, attribute))


def _own_bounds(annotation: object, attribute: Attribute) -> list[msgspec.Meta]:
    """The bounds that an annotation has besides those of its attribute type."""
    implied = [msgspec.Meta(tz=True)]
    if isinstance(attribute.type, IntType):
        low, high = int_range(attribute.type.bits, attribute.type.signed)
        implied = [msgspec.Meta(ge=low, le=high)]
    return [meta for meta in metas(annotation) if meta not in implied]


def _is_time(value: datetime) -> bool:
    """Whether a datetime is an instant in the years 1 to 9999 of UTC."""
    try:
        if value.utcoffset() is None:
            return False
        return MINYEAR < value.year < MAXYEAR or value.astimezone(UTC) is not None
    except Exception:  # OverflowError, and whatever a tzinfo of the user's own raises
        return False


_IS_INTEGER = f"v.__class__ is int and {INT64_MIN} <= v <= {INT64_MAX}"
"""The test of an integer in a float attribute."""

_BASES: dict[type, type] = {
    BoolType: bool,
    IntType: int,
    FloatType: float,
    TextType: str,
    BytesType: bytes,
    TimeType: datetime,
    DurationType: timedelta,
}
"""The class that values of an attribute type have."""

_NAMES: dict[str, object] = {
    "UTC": UTC,
    "SHORTEST": SHORTEST,
    "LONGEST": LONGEST,
    "is_encodable": is_encodable,
    "is_time": _is_time,
}
"""Names in the code of the tests."""
