"""Signatures: what a type declares, in the one form that catalog, filters and targets read.

A family's vector is its ordered, append-only list of attributes: those of `Event` first, then each new name in the
order in which classes of the family declare it. A tag is a set of bits over that vector.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from genus.errors import DeclarationError, SubscriptionError, near
from genus.model._types import AttributeType

C = TypeVar("C", bound=type)


class Attribute(msgspec.Struct, frozen=True):
    """A named, typed field of an event type; an optional one may be absent."""

    name: str
    type: AttributeType
    optional: bool = False
    unit: str | None = None

    def __str__(self) -> str:
        kind = self.type.describe()
        text = kind if isinstance(kind, str) else "|".join(map(str, *kind.values())) if "enum" in kind else "opaque"
        return f"{self.name}: {text}{'?' if self.optional else ''}"


class Vector(msgspec.Struct, frozen=True):
    """An ordered list of attributes; a tag's bit i says whether an event carries the i-th.

    >>> from genus.model import Event, vector
    >>> vector(Event).tag_of(["time", "place"])
    5
    >>> vector(Event).names_of(5)
    ('time', 'place')
    """

    scope: str
    attributes: tuple[Attribute, ...]

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __str__(self) -> str:
        return ", ".join(map(str, self.attributes))

    def get(self, name: str) -> Attribute | None:
        """The attribute of a name, or None."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    def find(self, name: str) -> Attribute:
        """The attribute of a name; refused with the vector in the message if it is outside."""
        if attribute := self.get(name):
            return attribute
        raise SubscriptionError(self.outside(name))

    def outside(self, name: str) -> str:
        """Says that a name is not in the vector, and what is."""
        hint = near(name, [attribute.name for attribute in self.attributes])
        return f"{self.scope} has no attribute {name!r}; {hint}its vector is ({self})"

    def tag_of(self, names: Iterable[str]) -> int:
        """The bits of some attributes."""
        position = {attribute.name: bit for bit, attribute in enumerate(self.attributes)}
        return sum(1 << position[self.find(name).name] for name in set(names))

    def names_of(self, tag: int) -> tuple[str, ...]:
        """The attributes of some bits; refused if a bit lies outside the vector."""
        if tag < 0 or tag >> len(self.attributes):
            raise SubscriptionError(
                f"bit vector {tag:#b} reaches outside the {len(self)} attributes of {self.scope}: ({self})"
            )
        return tuple(attribute.name for bit, attribute in enumerate(self.attributes) if tag >> bit & 1)


class Family(msgspec.Struct, eq=False):
    """State: a root type's growing vector, shared by every class below the root, and what its event tags tell."""

    name: str
    vector: Vector
    tagged: tuple[str, ...] = ()

    def check(self, owner: str, attribute: Attribute) -> None:
        """Refuse an attribute whose name has another type or unit in this family."""
        known = self.vector.get(attribute.name) or attribute
        if known.type != attribute.type:
            raise DeclarationError(
                f"{owner}.{attribute.name} is {attribute.type.describe()}, but in family {self.name} "
                f"{attribute.name!r} is {known.type.describe()}; rename the attribute or give it the family's type"
            )
        if attribute.unit not in (None, known.unit):
            raise DeclarationError(
                f"{owner}.{attribute.name} has the unit {attribute.unit}, but in family {self.name} {attribute.name!r} "
                f"has {known.unit}; rename the attribute or give it the family's unit"
            )

    def admit(self, attributes: Iterable[Attribute]) -> None:
        """Append the attributes that are new."""
        new = tuple(attribute for attribute in attributes if self.vector.get(attribute.name) is None)
        self.vector = Vector(self.name, (*self.vector.attributes, *new))


class Signature(msgspec.Struct, frozen=True):
    """What one event type or kind declares: its place in the hierarchy and its attributes."""

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
    """The signature of an event type or kind.

    >>> from genus import Event, Maybe
    >>> class Loop(Event):
    ...     lane: int
    ...     category: Maybe[str] = None
    >>> [str(attribute) for attribute in signature(Loop).attributes][-2:]
    ['lane: int64', 'category: str?']
    """
    family: Family | None = getattr(cls, "__genus_family__", None)
    return Signature(
        name_of(cls), cls, tuple(name_of(p) for p in parents(cls)), family.name if family else None, attributes(cls)
    )


def is_type(cls: object) -> bool:
    """Whether an object is an event type or a kind."""
    return isinstance(cls, type) and "__genus_name__" in vars(cls)


def is_event_type(cls: type) -> bool:
    """Whether a class is an event type, as opposed to a kind."""
    return "__genus_attributes__" in vars(cls)


def name_of(cls: type) -> str:
    """The name a type has in catalogs, recordings and subscription texts."""
    name: str = cls.__genus_name__  # type: ignore[attr-defined]
    return name


def attributes(cls: type) -> tuple[Attribute, ...]:
    """The attributes of an event type in vector order; a kind has none."""
    found: tuple[Attribute, ...] = vars(cls).get("__genus_attributes__", ())
    return found


def parents(cls: type) -> tuple[type, ...]:
    """The declared types directly above; the state line first. `Event` and a kind of its own have none."""
    return tuple(base for base in cls.__bases__ if is_type(base) and not _is_bare_kind(base))


def _is_bare_kind(cls: type) -> bool:
    return not is_event_type(cls) and cls.__bases__ == (object,)


def vector(cls: type) -> Vector:
    """The vector an event of this type is described by: its family's, or Event's own for `Event` and kinds."""
    family: Family | None = getattr(cls, "__genus_family__", None)
    if family is not None:
        return family.vector
    from genus.model._event import Event

    return Vector(name_of(cls), attributes(Event))


def tagged(cls: type) -> tuple[str, ...]:
    """The attributes whose presence the event tags of a type's family tell; nothing for `Event` and kinds.

    >>> from genus import Event, Maybe
    >>> class Loop(Event, tagged=("place", "category")):
    ...     category: Maybe[str] = None
    >>> class Radar(Loop): ...
    >>> tagged(Radar), tagged(Event)
    (('place', 'category'), ())
    """
    family: Family | None = getattr(cls, "__genus_family__", None)
    return family.tagged if family is not None else ()


def below(cls: C) -> Iterator[C]:
    """A type and every declared type below it, each once."""
    seen: dict[Any, None] = {}
    stack: list[Any] = [cls]
    while stack:
        current = stack.pop()
        if current not in seen:
            seen[current] = None
            stack.extend(reversed(type.__subclasses__(current)))
    return iter(seen)


def is_pure(cls: type) -> bool:
    """Whether a class adds no public member to the one kind it implements, and so declares no type of its own."""
    return pure_kind(cls) is not None


def pure_kind(cls: type) -> type | None:
    """The kind that a pure class stands for; None for every other class."""
    above = parents(cls)
    if not is_event_type(cls) or len(above) != 2 or parents(above[0]) != () or is_event_type(above[1]):
        return None
    public = {name for name in (*vars(cls), *vars(cls)["__annotations__"]) if not name.startswith("_")}
    return above[1] if public <= set(dir(above[1])) else None


def conforms(cls: type, wanted: type, *, exact: bool = False) -> bool:
    """Whether events of a class are delivered to subscribers of a type; exact leaves out what lies below.

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
