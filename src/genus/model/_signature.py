"""What event types and kinds declare, read from the classes: names, attributes, parents, vectors and conformance."""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from genus.model._declared import is_hidden
from genus.model._event import Event
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
