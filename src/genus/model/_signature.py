"""What event types and kinds declare, read from the classes; and `check`, whether an event has such values.

docs/semantics.md says which values these are: exactly those that can be written and read back as an equal event.
Values are not checked when an event is created in Python. Encoders check them before they write, and decoders check
after reading what msgspec leaves out, so that all accept the same values.

The tests of a class are generated when they are first needed, one line per attribute.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from genus.errors import EventError
from genus.model._declared import is_hidden
from genus.model._event import Event
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
from genus.model._vector import Attribute, Family, Vector

C = TypeVar("C", bound=type)

GENERATED = "genus.catalog._declare"
"""The module of classes that are generated from a catalog."""


class Signature(msgspec.Struct, frozen=True):
    """What one event type or kind declares: its name, class, parents, family and attributes.

    `family` is the name of the family's root type, None for `Event` and kinds. Made by `signature`.
    """

    name: str
    type: type
    parents: tuple[str, ...]
    family: str | None
    attributes: tuple[Attribute, ...]

    @property
    def is_kind(self) -> bool:
        """Whether this is a kind: an interface, with no instances of its own."""
        return not is_event_type(self.type)


def signature(cls: type) -> Signature:
    """Return the signature of an event type or kind.

    >>> from genus import Event, Maybe
    >>> class Loop(Event):
    ...     lane: int
    ...     category: Maybe[str] = None
    >>> [str(attribute) for attribute in signature(Loop).attributes][-2:]
    ['lane: int64', 'category: str?']
    """
    family = family_of(cls)
    return Signature(
        name_of(cls), cls, tuple(name_of(p) for p in parents(cls)), family.name if family else None, attributes(cls)
    )


def family_of(cls: type) -> Family | None:
    """Return the family of an event type; None for `Event` and kinds."""
    family: Family | None = getattr(cls, "__genus_family__", None)
    return family


def is_type(cls: object) -> bool:
    """Return whether an object is an event type or a kind, that is, a class derived from `Event` or `Kind`."""
    return isinstance(cls, type) and "__genus_name__" in vars(cls)


def is_generated(cls: type) -> bool:
    """Return whether a class was generated from a catalog."""
    return cls.__module__ == GENERATED


def is_event_type(cls: type) -> bool:
    """Return whether a class is an event type, as opposed to a kind."""
    return "__genus_attributes__" in vars(cls)


def name_of(cls: type) -> str:
    """Return the name an event type or kind has in catalogs, recordings and subscription texts."""
    name: str = cls.__genus_name__  # type: ignore[attr-defined]
    return name


def attributes(cls: type) -> tuple[Attribute, ...]:
    """Return the attributes of an event type in vector order, inherited ones included; a kind has none."""
    found: tuple[Attribute, ...] = vars(cls).get("__genus_attributes__", ())
    return found


def retyped_attributes(cls: type) -> frozenset[str]:
    """Return the attributes of `Event` that a type's family has with another type; subscriptions to `Event` lack them.

    >>> from genus import Event, UInt8
    >>> class Torque(Event):
    ...     source: UInt8
    >>> retyped_attributes(Torque), retyped_attributes(Event)
    (frozenset({'source'}), frozenset())
    """
    found: frozenset[str] = getattr(cls, "__genus_retyped__", frozenset())
    return found


def hidden_attributes(cls: type, asked: type) -> frozenset[str]:
    """The attributes of a class that a subscription to the type `asked` takes for absent, as it means another type."""
    return retyped_attributes(cls) if family_of(asked) is None else frozenset()


def parents(cls: type) -> tuple[type, ...]:
    """Return the types and kinds directly above a class, event type first; `Event` and top-level kinds have none."""
    return tuple(base for base in cls.__bases__ if is_type(base) and not _is_kind_root(base))


def _is_kind_root(cls: type) -> bool:
    return not is_event_type(cls) and cls.__bases__ == (object,)


def vector(cls: type) -> Vector:
    """Return the vector of a type's events: that of its family, or that of `Event` for `Event` and kinds."""
    family = family_of(cls)
    return family.vector if family is not None else Vector(name_of(cls), attributes(Event))


def tagged_attributes(cls: type) -> tuple[str, ...]:
    """Return the tagged attributes of a type's family: those whose presence bits are part of the event tag on CAN.

    `Event` and kinds have none.

    >>> from genus import Event, Maybe
    >>> class Loop(Event, tagged=("place", "category")):
    ...     category: Maybe[str] = None
    >>> class Radar(Loop): ...
    >>> tagged_attributes(Radar), tagged_attributes(Event)
    (('place', 'category'), ())
    """
    family = family_of(cls)
    return family.tagged if family is not None else ()


def subtypes(cls: C) -> Iterator[C]:
    """Return a type and every type declared below it so far, each once, depth first.

    >>> from genus import Event
    >>> class Loop(Event): ...
    >>> class Radar(Loop): ...
    >>> [name_of(each) for each in subtypes(Loop)]
    ['Loop', 'Radar']
    """
    seen: dict[Any, None] = {}
    stack: list[Any] = [cls]
    while stack:
        current = stack.pop()
        if current not in seen:
            seen[current] = None
            stack.extend(each for each in reversed(type.__subclasses__(current)) if not is_hidden(each))
    return iter(seen)


def pure_kind(cls: type) -> type | None:
    """Return the kind of a pure class; None for every other class.

    A class is pure if it derives from `Event` and one kind and adds no public member to that kind. An exact
    subscription to a pure class equals the exact subscription to its kind.
    """
    above = parents(cls)
    if not is_event_type(cls) or len(above) != 2 or parents(above[0]) != () or is_event_type(above[1]):
        return None
    public = {name for name in (*vars(cls), *vars(cls)["__annotations__"]) if not name.startswith("_")}
    return above[1] if public <= set(dir(above[1])) else None


def conforms(cls: type, wanted: type, *, exact: bool = False) -> bool:
    """Return whether events of a class are delivered to subscribers of the type `wanted`.

    With `exact`, only direct conformance counts: types declared below `wanted` are left out.

    >>> from genus import Event, Kind
    >>> class Alarm(Kind): ...
    >>> class Bell(Event, Alarm): ...
    >>> class Siren(Event, Alarm):
    ...     tone: int
    >>> [conforms(cls, Alarm) for cls in (Bell, Siren)], [conforms(cls, Alarm, exact=True) for cls in (Bell, Siren)]
    ([True, True], [True, False])
    """
    if not exact:
        return issubclass(cls, wanted)
    return (pure_kind(cls) or cls) is (pure_kind(wanted) or wanted)


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
