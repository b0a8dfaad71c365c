"""Classes generated from a catalog, so that a process can receive events of types it never imported.

A generated class has the same name, parents, attributes, units and tagged attributes as the class it replaces, and
nothing that a catalog does not hold. Text from a catalog is never evaluated. Also here: which classes a registration
contains, and in which order.
"""

import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import count
from types import ModuleType
from typing import Annotated, Any

import msgspec

import genus.model as model
from genus.catalog._records import ROOT, TypeRecord, TypeTable, without_names
from genus.catalog._registration import Registration
from genus.codes.internal import order_heaviest_first
from genus.errors import DeclarationError
from genus.model import (
    Event,
    Kind,
    Opaque,
    Renamed,
    Unit,
    attributes,
    is_generated,
    is_type,
    name_of,
    parents,
    vector,
)
from genus.model.internal import GENERATED, read_annotation
from genus.model.types import Attribute, AttributeType, ChoiceType, OpaqueType

_SIZED = (model.Int8, model.Int16, model.Int32, model.UInt8, model.UInt16, model.UInt32, model.Float32)
_ANNOTATIONS: Mapping[AttributeType, Any] = {
    read_annotation(note)[0]: note for note in (bool, int, float, str, bytes, datetime, timedelta, *_SIZED)
}


class ClassCache:
    """State: the classes of one catalog's types, each found, if `find` allows it, or generated once."""

    def __init__(self, *, find: bool = True) -> None:
        self._classes: dict[str, type[Any]] = {ROOT: Event}
        self._find = find

    def declare(
        self, name: str, table: TypeTable, registered: Mapping[str, type], used: Collection[type] = ()
    ) -> type[Any]:
        """Return the class of a type: the registered one, else the latest that fits the record, else a generated one.

        Only those in `used` may have attributes under other names than the table.
        """
        if name not in self._classes:
            entry = table.types[name]
            above = tuple(self.declare(parent, table, registered, used) for parent in entry.parents)
            known = _find_class(entry, above, table, registered.get(name), used) if self._find else None
            found = known or generate_class(entry, above, table)
            _compare(found, table).raise_problems()
            self._classes[name] = found
        return self._classes[name]


def _find_class(
    entry: TypeRecord, above: tuple[type, ...], table: TypeTable, registered: type | None, used: Collection[type]
) -> type[Any] | None:
    """A class of the program that is derived from these classes and adds nothing to a record."""
    beside: list[type] = type.__subclasses__(above[0] if above else Kind)
    named = [cls for cls in beside if name_of(cls) == entry.name and not is_generated(cls)]
    named = [cls for cls in named if cls in used or _has_names_of(cls, entry, table)]
    fitting = [cls for cls in named if set(parents(cls)) == set(above) and _fits(cls, table)]
    return registered if registered in fitting else fitting[-1] if fitting else None


def _has_names_of(cls: type, entry: TypeRecord, table: TypeTable) -> bool:
    """Return whether a class has no attribute under another name than the table has it."""
    known = table.vectors.get(entry.family or ROOT, {})
    return all(attribute.name in known for attribute in attributes(cls))


def _fits(cls: type, table: TypeTable) -> bool:
    registration = _compare(cls, table)
    return not registration.problems and not without_names(registration.result)


def _compare(cls: type, table: TypeTable) -> Registration:
    registration = Registration(table)
    registration.add_class(cls)
    return registration


def generate_class(entry: TypeRecord, above: tuple[type, ...], table: TypeTable) -> type[Any]:
    """A class with all that a record says, derived from these classes; DeclarationError if they do not allow it."""
    name = entry.name.rpartition(".")[2]
    namespace = {"__module__": GENERATED, "__doc__": f"{entry.name}, as a catalog describes it."}
    try:
        if entry.kind:
            metaclass: Any = type(Kind)
            return metaclass(name, above or (Kind,), namespace, name=entry.name)  # type: ignore[no-any-return]
        return _event_type(entry, name, above, namespace, table)
    except TypeError as problem:
        raise DeclarationError(f"{entry.name} cannot be declared here: {problem}") from problem


def _event_type(
    entry: TypeRecord, name: str, above: tuple[type, ...], namespace: dict[str, Any], table: TypeTable
) -> type[Any]:
    assert entry.family is not None
    is_root = entry.name == entry.family
    known = vector(above[0])
    stored = table.vectors[entry.family].values()
    agreed = {a.name: _with_enum(_choose(None if is_root else known.match(a), a)) for a in stored}
    own = [(agreed[name], must) for name, must in entry.attributes.items()]
    namespace["__annotations__"] = {attribute.name: annotation(attribute, must) for attribute, must in own}
    metaclass: Any = type(above[0])
    made: type[Any] = metaclass(name, above, namespace, name=entry.name, tagged=table.tagged.get(entry.name, ()))
    family = vars(made)["__genus_family__"]
    family.is_partial = True
    if is_root:  # so that subscriptions to it may name what only types below it carry, declared or not
        family.append_new(agreed.values())
    return made


def _choose(known: Attribute | None, stored: Attribute) -> Attribute:
    """The attribute as the family has it in this process, which may have fewer values of an enumeration or no unit."""
    if known is None:
        return stored
    alike = isinstance(known.type, ChoiceType) and isinstance(stored.type, ChoiceType)
    return known if alike or known.type == stored.type else stored


def annotation(attribute: Attribute, required: bool) -> Any:
    """Return an annotation that declares an attribute.

    >>> from genus.model.types import FloatType
    >>> str(annotation(Attribute("speed", FloatType(), unit="km/h"), required=True))
    "typing.Annotated[float, Unit(symbol='km/h')]"
    """
    found = _plain_annotation(attribute.type)
    if attribute.unit is not None:
        found = Annotated[found, Unit(attribute.unit)]
    if attribute.former:
        found = Annotated[found, Renamed(*attribute.former)]
    return found if required else typing.Optional[found]  # noqa: UP045


def _plain_annotation(type_: AttributeType) -> Any:
    match type_:
        case OpaqueType(text):
            return Annotated[Any, Opaque(text)]
        case ChoiceType():
            return type_.enum
    return _ANNOTATIONS[type_]


def _with_enum(attribute: Attribute) -> Attribute:
    """Return the attribute with an Enum for its choices, one for the whole family."""
    match attribute.type:
        case ChoiceType(values, None):
            made = ChoiceType(values, make_enum(attribute.name, values))
            return msgspec.structs.replace(attribute, type=made)
    return attribute


def make_enum(name: str, values: Sequence[str | int]) -> type[Enum]:
    """An Enum for the values of an attribute; members are named for the values as far as Python allows.

    >>> list(make_enum("road_user", ["car", "e-bike", "2 wheels", "car!"]))  # doctest: +NORMALIZE_WHITESPACE
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


def types_in(module: ModuleType) -> list[type]:
    """Return the event types and kinds defined in a module or imported into it, in order; without `Event` and `Kind`.

    >>> from types import ModuleType
    >>> from genus import Event
    >>> class Tram(Event):
    ...     line: int
    >>> module = ModuleType("city")
    >>> module.Event, module.Tram = Event, Tram
    >>> types_in(module) == [Tram]
    True
    """
    found = dict.fromkeys(value for value in vars(module).values() if is_type(value))
    return [cls for cls in found if cls not in (Event, Kind)]


def collect_types(what: Iterable[type | ModuleType]) -> list[type]:
    """Return the given classes and those of the given modules; DeclarationError for anything else.

    >>> collect_types([Event, int])
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


def order_classes(classes: Iterable[type], known: Mapping[str, type]) -> list[type]:
    """The classes and all above them, those with most types below them first: heavy subtrees get the small codes.

    A single class right below known ones, by name, comes alone, so that adding it does not cost by its depth.
    """
    queue = list(classes)
    if len(queue) == 1 and all(known.get(name_of(above)) is above for above in parents(queue[0])):
        return queue
    by_name: dict[str, dict[type, None]] = {}
    for cls in queue:
        if cls not in (same_name := by_name.setdefault(name_of(cls), {})):
            same_name[cls] = None
            queue.extend(parents(cls))
    hierarchy = {name: tuple(map(name_of, parents(next(iter(found))))) for name, found in by_name.items()}
    return [cls for name in order_heaviest_first(hierarchy) for cls in by_name[name]]


def describe_clash(known: type, cls: type) -> str | None:
    """Return what is wrong with two classes of one name; None if one is defined again in its place, as in a notebook.

    None also if one of them was generated from a catalog.
    """
    places = [f"{each.__module__}.{each.__qualname__}" for each in (known, cls)]
    if places[0] == places[1] or is_generated(known) or is_generated(cls):
        return None
    return (
        f"is the name of two classes, {' and '.join(places)}; "
        "rename one, or give it another name in catalogs: class X(Event, name=...)"
    )
