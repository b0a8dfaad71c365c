"""Attributes and vectors: the form in which catalog, filters and targets read what a type declares.

A family's vector is its ordered, append-only list of attributes: those of `Event` first, then each new name in the
order in which classes of the family declare it. A tag is a set of presence bits over that vector.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from genus.errors import DeclarationError, SubscriptionError, did_you_mean, some_names
from genus.model._types import AttributeType, type_text

CONTEXT = frozenset({"time", "source", "place", "deadline", "expires"})
"""The attributes of `Event`."""

RETYPABLE = frozenset({"source"})
"""Attributes of `Event` that the root class of a family may declare again as an integer.

Many networks number their nodes, and there `source == 11` is meant as a number.
"""


class Attribute(msgspec.Struct, frozen=True):
    """A named, typed field of an event type.

    `optional` says whether an event may lack it, and `unit` is the symbol given by `Unit`. `names` are all its names if
    it was renamed, the one that it was declared or registered under first in front; else it is empty. `deprecated` is
    the note of an attribute that a catalog has as deprecated, else None. `str()` gives the form used in messages, such
    as `speed: float64?`.
    """

    name: str
    type: AttributeType
    optional: bool = False
    unit: str | None = None
    names: tuple[str, ...] = ()
    deprecated: str | None = None

    @property
    def former(self) -> tuple[str, ...]:
        """Its names but for the present one."""
        return tuple(name for name in self.names if name != self.name)

    @property
    def first_name(self) -> str:
        """The name it was registered under first, which is that of its column in a lake."""
        return self.names[0] if self.names else self.name

    def with_names(self, names: Iterable[str]) -> "Attribute":
        """Return the attribute with these names after those it has."""
        merged = tuple(dict.fromkeys((*(self.names or (self.name,)), *names)))
        return self if merged in (self.names, (self.name,)) else msgspec.structs.replace(self, names=merged)

    def without_names(self, others: Collection[str]) -> "Attribute":
        """Return the attribute without these among its names."""
        if not any(name in others for name in self.names):
            return self
        names = tuple(name for name in self.names if name not in others)
        return msgspec.structs.replace(self, names=names if len(names) > 1 else ())

    def __str__(self) -> str:
        kind = self.type.describe()
        text = kind if isinstance(kind, str) else "|".join(map(str, *kind.values())) if "enum" in kind else "opaque"
        return f"{self.name}: {text}{'?' if self.optional else ''}"


class Vector(msgspec.Struct, frozen=True):
    """An ordered list of attributes; bit i of a tag says whether an event carries the i-th.

    `scope` is the name of the family the vector belongs to. Iterating gives the attributes in order.

    >>> from genus.model import Event, vector
    >>> vector(Event).presence_of(["time", "place"])
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
        """Return the attribute of a name, or None."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)

    def match(self, attribute: Attribute) -> Attribute | None:
        """Return the attribute that is the same as one of another vector, though one of them was renamed; or None."""
        if found := self.get(attribute.name):
            return found
        either = {attribute.name, *attribute.names}
        return next((each for each in self.attributes if each.name in either or attribute.name in each.names), None)

    def pair(self, attributes: Iterable[Attribute]) -> dict[str, Attribute]:
        """Return the attributes of a class by the names that they have in this vector."""
        return {found.name: attribute for attribute in attributes if (found := self.match(attribute)) is not None}

    def find(self, name: str, owner: type | None = None) -> Attribute:
        """Return the attribute of a name; SubscriptionError with some attributes in its message if there is none.

        `owner` is the type to name in the message, if it is not the family's root.
        """
        if attribute := self.get(name):
            return attribute
        raise SubscriptionError(self.describe_unknown(name, owner))

    def describe_unknown(self, name: str, owner: type | None = None) -> str:
        """Return a message that an attribute does not exist, with its present or a likely name, and some that exist."""
        label: str = self.scope if owner is None else owner.__genus_name__  # type: ignore[attr-defined]
        if owner is not None and label == self.scope and (carrier := _find_carrier(owner, name)) is not None:
            return (
                f"{label} has no attribute {name!r}, only those that every event may carry; {carrier} has it: "
                f"name {carrier}" + (f", or {carrier} & {label}" if label != "Event" else "")
            )
        now = next((attribute.name for attribute in self.attributes if name in attribute.names), None)
        names = [attribute.name for attribute in self.attributes]
        hint = f"it was renamed to {now!r}; " if now else did_you_mean(name, [*names, *_properties(owner)])
        if name in _properties(owner):
            hint = "it is a property, and `has` and `lacks` take attributes; "
        whose = "its attributes" if label == self.scope else f"the attributes of its family {self.scope}"
        return f"{label} has no attribute {name!r}; {hint}{whose} are {some_names(own_first(names))}"

    def presence_of(self, names: Iterable[str]) -> int:
        """Return the presence bits of some attributes; SubscriptionError if one is not in the vector."""
        position = {attribute.name: bit for bit, attribute in enumerate(self.attributes)}
        return sum(1 << position[self.find(name).name] for name in set(names))

    def names_of(self, tag: int) -> tuple[str, ...]:
        """Return the attributes of some presence bits; SubscriptionError if a bit lies outside the vector."""
        if tag < 0 or tag >> len(self.attributes):
            raise SubscriptionError(f"bit vector {tag:#b} reaches outside the {len(self)} attributes of {self.scope}")
        return tuple(attribute.name for bit, attribute in enumerate(self.attributes) if tag >> bit & 1)


def own_first(names: Iterable[str]) -> list[str]:
    """Names of attributes, those that every event may carry last: messages show the first few."""
    return sorted(names, key=lambda name: name in CONTEXT)


def _properties(owner: type | None) -> list[str]:
    return [name for name in dir(owner) if isinstance(getattr(owner, name, None), property)] if owner else []


def _find_carrier(owner: type, name: str) -> str | None:
    """A type below `Event` or a kind that has an attribute which these lack; None for types of a family."""
    if getattr(owner, "__genus_family__", None) is not None:
        return None
    below: list[type] = list(type.__subclasses__(owner))
    for cls in below:
        if any(each.name == name for each in vars(cls).get("__genus_attributes__", ())):
            return str(vars(cls)["__genus_name__"])
        below += type.__subclasses__(cls)
    return None


def hidden_names(family: Vector, asked: Vector) -> frozenset[str]:
    """The attributes of a family that a subscription takes for absent: those of which its vector has another type.

    `asked` is the vector of the subscribed type: the family's own, which hides nothing, or that of `Event` or a kind.
    """
    if family.scope == asked.scope:
        return frozenset()
    return frozenset(
        each.name
        for each in asked
        if each.name in RETYPABLE and (own := family.get(each.name)) is not None and own.type != each.type
    )


def _was_renamed(attribute: Attribute) -> bool:
    return bool(attribute.names)


class Family(msgspec.Struct, eq=False):
    """State: a root type's growing vector, shared by every class below the root, and its tagged attributes."""

    name: str
    vector: Vector
    tagged: tuple[str, ...] = ()
    is_partial: bool = False
    """Whether classes of it were generated from a catalog, which may have more types than are declared here."""
    stated: set[str] = msgspec.field(default_factory=set)
    """Names that come from statements of others alone: the program may declare them in another way."""

    def check(self, owner: str, attribute: Attribute, *, is_again: bool = False) -> None:
        """Raise DeclarationError for an attribute whose name has another type or unit in this family.

        `is_again` says that the class is defined again, and the family may have the attribute from the one before.
        """
        restart = ", or restart the program, as in it the family keeps what was declared" if is_again else ""
        known = self.vector.get(attribute.name) or attribute
        if known.type != attribute.type:
            raise DeclarationError(
                f"{owner}.{attribute.name} is {type_text(attribute.type)}, but in family {self.name} "
                f"{attribute.name!r} is {type_text(known.type)}; rename the attribute or give it the family's type"
                f"{restart}"
            )
        if attribute.unit not in (None, known.unit):
            raise DeclarationError(
                f"{owner}.{attribute.name} has the unit {attribute.unit}, but in family {self.name} {attribute.name!r} "
                f"has {known.unit}; rename the attribute or give it the family's unit{restart}"
            )

    def check_names(self, owner: str, declared: Iterable[Attribute]) -> None:
        """Raise DeclarationError if former names of attributes are in use, or an attribute is renamed too late."""
        declared = tuple(declared)
        for attribute in declared:
            known = self.vector.get(attribute.name)
            if known is not None and (late := set(attribute.former) - set(known.former)):
                raise DeclarationError(
                    f"{owner}.{attribute.name} is renamed from {', '.join(sorted(late))}, but family {self.name} has "
                    f"{attribute.name!r} already without that; write Renamed where {attribute.name} is declared first"
                )
        grown, renamed = self._grown(declared), dict[str, str]()
        for attribute in filter(_was_renamed, grown):
            for old in attribute.former:
                if grown.get(old) is not None:
                    raise DeclarationError(
                        f"{owner}: {old!r} is a former name of {attribute.name!r} (Renamed) and also an attribute of "
                        f"family {self.name}; rename it in every class of the family, or choose another name"
                    )
                if (other := renamed.setdefault(old, attribute.name)) != attribute.name:
                    raise DeclarationError(
                        f"{owner}: {other!r} and {attribute.name!r} are both renamed from {old!r}; only one can take "
                        "its values"
                    )

    def complete(self, attribute: Attribute) -> Attribute:
        """Return the attribute with the former names that the family knows."""
        known = self.vector.get(attribute.name)
        return attribute if known is None else attribute.with_names(known.names)

    def append_new(self, attributes: Iterable[Attribute]) -> None:
        """Append the attributes that the vector does not have yet."""
        self.vector = self._grown(attributes)

    def declare(self, attributes: Iterable[Attribute]) -> None:
        """Replace what others have stated by the attributes that the program declares, in the same places."""
        own = {each.name: each for each in attributes if each.name in self.stated}
        self.stated -= own.keys()
        kept = (own.get(each.name, each.without_names(own)) for each in self.vector)
        self.vector = Vector(self.name, tuple(kept))

    def learn_names(self, attributes: Iterable[Attribute]) -> None:
        """Take further names of attributes that were renamed elsewhere: values under them are read here, too."""
        for renamed in filter(_was_renamed, attributes):
            own = self.vector.match(renamed)
            if own is not None and (new := set(renamed.names) - {own.name, *own.names, *(a.name for a in self.vector)}):
                named = own.with_names(name for name in renamed.names if name in new)
                rest = tuple(named if each is own else each for each in self.vector)
                self.vector = Vector(self.name, rest)
                self.stated |= new

    def _grown(self, attributes: Iterable[Attribute]) -> Vector:
        new = tuple(attribute for attribute in attributes if self.vector.get(attribute.name) is None)
        return Vector(self.name, (*self.vector.attributes, *new))
