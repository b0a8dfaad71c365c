"""Classes made from a catalog's entries, so that a process can receive events of types it never imported.

Such a class stands in for the one that another program wrote: it has the same name, parents, attributes, units and
tagged attributes, and nothing that a catalog does not hold. Text from a catalog is never evaluated.
"""

import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import count
from types import ModuleType
from typing import Annotated, Any

import msgspec

import genus.model as model
from genus.catalog._records import ROOT, Declared, Ledger
from genus.catalog._registration import Draft
from genus.codes._topological import heaviest_first
from genus.errors import DeclarationError
from genus.model import (
    Attribute,
    AttributeType,
    ChoiceType,
    Event,
    Kind,
    Opaque,
    OpaqueType,
    Unit,
    is_type,
    name_of,
    parents,
    vector,
)
from genus.model._types import read_annotation

_SIZED = (model.Int8, model.Int16, model.Int32, model.UInt8, model.UInt16, model.UInt32, model.Float32)
_ANNOTATIONS: Mapping[AttributeType, Any] = {
    read_annotation(note)[0]: note for note in (bool, int, float, str, bytes, datetime, timedelta, *_SIZED)
}


def is_stand_in(cls: type) -> bool:
    """Whether a class was made here."""
    return cls.__module__ == __name__


class Declarations:
    """State: the classes of one catalog's types, each found or made once."""

    def __init__(self) -> None:
        self._classes: dict[str, type[Any]] = {ROOT: Event}

    def declare(self, name: str, ledger: Ledger, registered: Mapping[str, type]) -> type[Any]:
        """The class of a type: one that is registered before others that fit, of these the latest, else a new one."""
        if name not in self._classes:
            entry = ledger.types[name]
            above = tuple(self.declare(parent, ledger, registered) for parent in entry.parents)
            found = _known(entry, above, ledger, registered.get(name)) or stand_in(entry, above, ledger)
            _compared(found, ledger).settle()
            self._classes[name] = found
        return self._classes[name]


def _known(entry: Declared, above: tuple[type, ...], ledger: Ledger, registered: type | None) -> type[Any] | None:
    """A class that a program wrote below these others and that adds nothing to an entry."""
    beside: list[type] = type.__subclasses__(above[0] if above else Kind)
    named = [cls for cls in beside if name_of(cls) == entry.name and not is_stand_in(cls)]
    fitting = [cls for cls in named if set(parents(cls)) == set(above) and _fits(cls, ledger)]
    return registered if registered in fitting else fitting[-1] if fitting else None


def _fits(cls: type, ledger: Ledger) -> bool:
    draft = _compared(cls, ledger)
    return not draft.problems and not draft.registered


def _compared(cls: type, ledger: Ledger) -> Draft:
    draft = Draft(ledger)
    draft.admit(cls)
    return draft


def stand_in(entry: Declared, above: tuple[type, ...], ledger: Ledger) -> type[Any]:
    """A class with all that an entry says, below these classes; DeclarationError if these do not allow it."""
    name = entry.name.rpartition(".")[2]
    namespace = {"__module__": __name__, "__doc__": f"{entry.name}, as a catalog describes it."}
    try:
        if entry.kind:
            metaclass: Any = type(Kind)
            return metaclass(name, above or (Kind,), namespace, name=entry.name)  # type: ignore[no-any-return]
        return _event_type(entry, name, above, namespace, ledger)
    except TypeError as problem:
        raise DeclarationError(f"{entry.name} cannot be declared here: {problem}") from problem


def _event_type(
    entry: Declared, name: str, above: tuple[type, ...], namespace: dict[str, Any], ledger: Ledger
) -> type[Any]:
    assert entry.family is not None
    is_root = entry.name == entry.family
    known = {} if is_root else {attribute.name: attribute for attribute in vector(above[0])}
    agreed = {a.name: _with_enum(_agreed(known.get(a.name), a)) for a in ledger.vectors[entry.family].values()}
    namespace["__annotations__"] = {own: annotation(agreed[own], must) for own, must in entry.attributes.items()}
    metaclass: Any = type(above[0])
    made: type[Any] = metaclass(name, above, namespace, name=entry.name, tagged=ledger.tagged.get(entry.name, ()))
    if is_root:  # so that subscriptions to it may name what only types below it carry, declared or not
        vars(made)["__genus_family__"].admit(agreed.values())
    return made


def _agreed(known: Attribute | None, stored: Attribute) -> Attribute:
    """An attribute as its family has it here, which may know fewer values of an enumeration or no unit."""
    if known is None:
        return stored
    alike = isinstance(known.type, ChoiceType) and isinstance(stored.type, ChoiceType)
    return known if alike or known.type == stored.type else stored


def annotation(attribute: Attribute, required: bool) -> Any:
    """An annotation that declares an attribute.

    >>> from genus.model import FloatType
    >>> str(annotation(Attribute("speed", FloatType(), unit="km/h"), required=True))
    "typing.Annotated[float, Unit(symbol='km/h')]"
    """
    found = _plain_annotation(attribute.type)
    if attribute.unit is not None:
        found = Annotated[found, Unit(attribute.unit)]
    return found if required else typing.Optional[found]  # noqa: UP045


def _plain_annotation(type_: AttributeType) -> Any:
    match type_:
        case OpaqueType(text):
            return Annotated[Any, Opaque(text)]
        case ChoiceType():
            return type_.enum
    return _ANNOTATIONS[type_]


def _with_enum(attribute: Attribute) -> Attribute:
    """The attribute with an Enum for its choices, one for the whole family."""
    match attribute.type:
        case ChoiceType(values, None):
            made = ChoiceType(values, enum_of(attribute.name, values))
            return msgspec.structs.replace(attribute, type=made)
    return attribute


def enum_of(name: str, values: Sequence[str | int]) -> type[Enum]:
    """An Enum for the values of an attribute; members are named for the values as far as Python allows.

    >>> list(enum_of("road_user", ["car", "e-bike", "2 wheels", "car!"]))  # doctest: +NORMALIZE_WHITESPACE
    [<RoadUser.CAR: 'car'>, <RoadUser.E_BIKE: 'e-bike'>, <RoadUser.V2_WHEELS: '2 wheels'>, <RoadUser.CAR_1: 'car!'>]
    """
    members: dict[str, str | int] = {}
    for value in values:
        label = _label(value)
        numbered = (f"{label}_{number}" if number else label for number in count())
        members[next(free for free in numbered if free not in members)] = value
    title = "".join(part.capitalize() for part in name.split("_")) or name
    made: Any = Enum(title, members, module=__name__)  # type: ignore[misc]
    return made


def _label(value: str | int) -> str:
    text = "".join(letter if letter.isalnum() else "_" for letter in str(value)).strip("_").upper()
    return next(label for label in (text, f"V{text}", "V") if label.isidentifier())


# From what is given to register, to classes in the order in which they are entered.


def types_in(module: ModuleType) -> list[type]:
    """The event types and kinds defined in a module or imported into it, in their order; not `Event` and `Kind`.

    >>> import genus.testing._generators
    >>> [cls.__name__ for cls in types_in(genus.testing._generators)][:3]
    ['Marked', 'Watched', 'Sampler']
    """
    found = dict.fromkeys(value for value in vars(module).values() if is_type(value))
    return [cls for cls in found if cls not in (Event, Kind)]


def types_of(what: Iterable[type | ModuleType]) -> list[type]:
    """Classes, and those of modules; anything else is refused.

    >>> types_of([Event, int])
    Traceback (most recent call last):
    genus.errors.DeclarationError: <class 'int'> is neither an event type nor a kind nor a module of them
    """
    found: dict[type, None] = {}
    for each in what:
        if isinstance(each, ModuleType):
            found.update(dict.fromkeys(types_in(each)))
        elif is_type(each) and each is not Kind:
            found[each] = None
        else:
            raise DeclarationError(f"{each!r} is neither an event type nor a kind nor a module of them")
    return list(found)


def in_order(classes: Iterable[type]) -> list[type]:
    """The classes and all above them, those with most of them below first: heavy subtrees get the small codes."""
    by_name: dict[str, dict[type, None]] = {}
    queue = list(classes)
    for cls in queue:
        if cls not in (same_name := by_name.setdefault(name_of(cls), {})):
            same_name[cls] = None
            queue.extend(parents(cls))
    hierarchy = {name: tuple(map(name_of, parents(next(iter(found))))) for name, found in by_name.items()}
    return [cls for name in heaviest_first(hierarchy) for cls in by_name[name]]


def clash(known: type, cls: type) -> str | None:
    """What is wrong with two classes of one name; nothing if one is defined again in its place (a notebook does).

    Nothing either if one stands in for the other, being made from a catalog.
    """
    places = [f"{each.__module__}.{each.__qualname__}" for each in (known, cls)]
    if places[0] == places[1] or is_stand_in(known) or is_stand_in(cls):
        return None
    return (
        f"is the name of two classes, {' and '.join(places)}; "
        "rename one, or give it another name in catalogs: class X(Event, name=...)"
    )
