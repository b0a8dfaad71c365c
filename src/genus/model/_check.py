"""`check`: test whether the values of an event are those that its attributes may have.

docs/semantics.md says which values these are: exactly those that can be written and read back as an equal event.
Values are not checked when an event is created in Python. Encoders check them before they write, and decoders check
after reading what msgspec leaves out, so that all accept the same values.

The tests of a class are generated when they are first needed, one line per attribute.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from genus.errors import EventError
from genus.model._event import Event
from genus.model._signature import attributes, name_of
from genus.model._types import DurationType, IntType, TimeType
from genus.model._values import (
    NAMES,
    InvalidValue,
    ValueTest,
    describe_value,
    own_bounds,
    unread_values,
    usual_test,
    value_test,
)
from genus.model._vector import Attribute

FindInvalid: TypeAlias = Callable[[Event], str | None]
"""A function that returns the name of the first attribute of an event whose value it may not have; None if all fit."""

FindInvalidIn: TypeAlias = Callable[[Iterable[Event]], str | None]
"""The same for several events of one class."""
F = TypeVar("F")
_EACH, _END_OF_EACH = ("def find_invalid(es):", " for e in es:", "    pass"), " return None"


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


def describe_invalid(event: Event, name: str) -> InvalidValue:
    """Describe the value of an attribute that a finder returned."""
    cls = type(event)
    attribute = next(each for each in attributes(cls) if each.name == name)
    return describe_value(name_of(cls), attribute, _annotation(cls, attribute), getattr(event, name))


def _invalid_finder(cls: type) -> FindInvalid:
    return _generate((each, value_test(each, _annotation(cls, each))) for each in attributes(cls))


def _invalid_finder_in(cls: type) -> FindInvalidIn:
    tests = ((each, value_test(each, _annotation(cls, each))) for each in attributes(cls))
    find: FindInvalidIn = _generate(tests, _EACH, _END_OF_EACH)
    return find


def _invalid_decoded_finder(cls: type) -> FindInvalid:
    return _generate(_tests_left_out(cls), is_decoded=True)


def _invalid_decoded_finder_in(cls: type) -> FindInvalidIn:
    find: FindInvalidIn = _generate(_tests_left_out(cls), _EACH, _END_OF_EACH, is_decoded=True)
    return find


def _tests_left_out(cls: type) -> Iterable[tuple[Attribute, ValueTest]]:
    left_out = (each for each in attributes(cls) if _is_left_out(cls, each))
    return ((each, ValueTest(usual_test(each).removeprefix(" and "), {})) for each in left_out)


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

invalid_finders_in = _Finders(_invalid_finder_in)
"""The same for several events of one class."""

invalid_decoded_finders = _Finders(_invalid_decoded_finder)
"""The same for an event that msgspec decoded: it tests what msgspec does not."""

invalid_decoded_finders_in = _Finders(_invalid_decoded_finder_in)
"""The same for several events that msgspec decoded."""


def _generate(
    tests: Iterable[tuple[Attribute, ValueTest]],
    opening: Iterable[str] = ("def find_invalid(e):",),
    closing: str = "    return None",
    *,
    is_decoded: bool = False,
) -> Callable[[Any], str | None]:
    """A function of these tests; a required attribute may be None if its value could not be read, and is kept."""
    names: dict[str, object] = {**NAMES, "is_unread": _is_unread}
    lines = list(opening)
    for number, (attribute, (code, own, usual)) in enumerate(tests):
        names |= {f"{name}{number}": value for name, value in own.items()}
        lines.append(f"    v = e.{attribute.name}")
        indent = "    "
        if attribute.optional or is_decoded:
            lines.append("    if v is not None:")
            indent *= 2
            unless = ""
        else:
            unless = f" and not (v is None and is_unread(e, {attribute.name!r}))"
        refuse = f"return {attribute.name!r}"
        if usual is not None:  # most values have the usual class, which is tested once
            lines.append(f"{indent}if v.__class__ is base{number}:")
            lines.append(f"{indent}    if not ({usual.format(n=number)}): {refuse}" if usual else f"{indent}    pass")
            test = f"(v := plain(v)) is not None and {code.format(n=number)}"
            lines.append(f"{indent}elif not ({test}){unless}: {refuse}")
        else:
            lines.append(f"{indent}if not ({code.format(n=number)}){unless}: {refuse}")
    exec(compile("\n".join([*lines, closing]), "<genus check>", "exec"), names)
    found: Callable[[Any], str | None] = names["find_invalid"]  # type: ignore[assignment]
    return found


def _is_unread(event: Event, name: str) -> bool:
    return name in unread_values(event)


def _is_left_out(cls: type, attribute: Attribute) -> bool:
    """Return whether msgspec accepts values that the attribute may not have, when it decodes."""
    match attribute.type:
        case TimeType() | DurationType():
            return True
        case IntType():
            return bool(own_bounds(_annotation(cls, attribute), attribute))
    return False


def _annotation(cls: type, attribute: Attribute) -> object:
    return _annotations(cls)[attribute.name]


@lru_cache(maxsize=8)
def _annotations(cls: type) -> dict[str, object]:
    """Return the annotations of a class, kept while its attributes are looked at one after the other."""
    return {field.name: field.type for field in msgspec.structs.fields(cls)}
