"""Statements: a type and all above it as text, by which programs that do not have its class read its events.

A statement is the text of a catalog without codes and event tags, with the types above one type, its family's vector as
far as the type has it, and nothing else. So all programs that declare a type in the same way state it in the same
bytes. It is read as catalog files are: nothing of it is evaluated.

`StatedClasses` finds or generates the classes of statements. A class of the program is never replaced; a statement that
contradicts it is refused. What may differ: what a catalog takes as growth, the width of numbers and units that can be
converted, because readers of events can handle these value by value.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any
from weakref import WeakSet

import msgspec

from genus.catalog._declare import generate_class, order_classes
from genus.catalog._file import Damage, format_statement, parse_statement
from genus.catalog._records import ROOT, TypeRecord, TypeTable
from genus.catalog._registration import Registration
from genus.errors import CatalogConflict, CatalogDamaged, DeclarationError, HierarchyError
from genus.model import (
    Event,
    attributes,
    is_event_type,
    is_generated,
    is_type,
    name_of,
    parents,
    tagged_attributes,
    vector,
)
from genus.model.internal import declared_types, family_of, unit_conversion
from genus.model.types import Attribute, FloatType, IntType, Vector

MAX_LENGTH = 1 << 16
"""The most bytes of a statement."""
MAX_CLASSES = 5000
"""The largest number of classes that one reader of statements generates: others choose what it reads."""
MAX_ATTRIBUTES = 2000
"""The largest vector of a family that statements add attributes to."""
MAX_STAND_INS = 1000
"""The largest number of types for which one reader has a class without a statement."""
DIGEST_BYTES = 8

_stand_ins: WeakSet[type] = WeakSet()
"""State: the classes that stand for types of which no statement has come."""


class Statement(msgspec.Struct, frozen=True):
    """What was stated about a type: its name, and the table of it and all types above it."""

    name: str
    table: TypeTable

    def _attributes(self) -> list[Attribute]:
        found = self.table.vectors.get(self.table.types[self.name].family or ROOT, {})
        return [found[name] for name in self.table.attributes_of(self.name)]

    def units(self) -> dict[str, str]:
        """Return the units of the type's attributes that have one."""
        return {each.name: each.unit for each in self._attributes() if each.unit is not None}

    def terms(self) -> list[tuple[str, str | None, tuple[str, ...]]]:
        """What must be known to understand values: the attributes that have a unit or other names, with these."""
        stated = ((each.name, each.unit, each.former) for each in self._attributes())
        return sorted(each for each in stated if each[1] is not None or each[2])


def statement_of(cls: type) -> Statement:
    registration = Registration(TypeTable({}, {}))
    for each in dict.fromkeys((Event, *order_classes([cls], {}))):
        registration.add_class(each)
    registration.raise_problems()
    return Statement(name_of(cls), registration.table)


def state_type(cls: type) -> bytes | None:
    """The statement of a class in bytes; None if it cannot be stated: it is too long, or no catalog could have it."""
    try:
        text = format_statement(statement_of(cls).table)
    except (CatalogConflict, HierarchyError, UnicodeEncodeError):  # types of one name, or a text has surrogates
        return None
    return None if len(text) > MAX_LENGTH or is_stand_in(cls) else text


def digest_of(text: bytes) -> str:
    """Return the digest of a statement, in hexadecimal digits."""
    return blake2b(text, digest_size=DIGEST_BYTES).hexdigest()


def read_statement(text: bytes) -> Statement:
    """Read the statement of a type; CatalogDamaged says what is wrong and where.

    >>> from genus import Event, Maybe
    >>> class Tide(Event):
    ...     level: Maybe[float] = None
    >>> read_statement(state_type(Tide)).name
    'Tide'
    """
    if len(text) > MAX_LENGTH:
        raise CatalogDamaged(f"a statement of {len(text):,} bytes; at most {MAX_LENGTH:,} are read")
    try:
        table = parse_statement(text.decode())
    except (Damage, UnicodeDecodeError) as problem:
        raise CatalogDamaged(f"a statement that cannot be read: {problem}") from None
    if not table.types:
        raise CatalogDamaged("a statement without a type")
    name = next(reversed(table.types))
    above = set(_all_above(name, table))
    if len(above) < len(table.types) or not table.vectors.keys() <= {ROOT, table.types[name].family}:
        raise CatalogDamaged(f"a statement of {name} with types that are not above it")
    return Statement(name, table)


def _all_above(name: str, table: TypeTable) -> Iterator[str]:
    """Yield a type and all above it, some more than once."""
    todo, seen = [name], {ROOT, name}
    yield ROOT
    while todo:
        yield (each := todo.pop())
        new = [above for above in table.types[each].parents if above not in seen]
        seen.update(new)
        todo += new


class StatedClasses:
    """State: the classes that were generated from statements, kept for as long as this is."""

    def __init__(self) -> None:
        self._generated: dict[type, None] = {}
        self._stand_ins: dict[type, None] = {}
        self._lock = threading.Lock()

    def named(self) -> Mapping[str, type[Any]]:
        """Return the classes of types that the program has not declared itself, by name; of several, the latest."""
        found = {name_of(cls): cls for cls in list(self._generated)}
        return {name: cls for name, cls in found.items() if not _written(name)}

    def take(self, statement: Statement) -> type[Any]:
        """Return the class of a statement: that of the program, or one that is generated below the program's own.

        Raises CatalogConflict, with the attribute, if the statement contradicts a class of the program or an earlier
        statement, and DeclarationError if such a class cannot be declared here.
        """
        with self._lock:
            table, found = statement.table.copy(), dict[str, type[Any]]()
            for record in statement.table.types.values():
                above = tuple(found[parent] for parent in record.parents)
                found[record.name] = self._find(record.name, above, table) or self._generate(record.name, above, table)
            return found[statement.name]

    def _find(self, name: str, above: tuple[type, ...], table: TypeTable) -> type[Any] | None:
        """The class that has a type already; the vector of its family in the table becomes as the program has it."""
        written: list[type[Any]] = [Event] if name == ROOT else _written(name)
        if written:
            below = [cls for cls in written if set(parents(cls)) == set(above)]
            return _first_that_agrees(reversed(below or written), table)
        generated = _generated(name)
        below = [cls for cls in generated if set(parents(cls)) == set(above)]
        if not below:
            for cls in [each for each in generated if each in self._generated][-1:]:
                _agree(cls, table)  # or it has other parents than an earlier statement says
            return None
        merged = _agree(below[-1], table)
        known = {each for attribute in attributes(below[-1]) for each in (attribute.name, *attribute.names)}
        if not is_event_type(below[-1]) or table.attributes_of(name).keys() <= known:
            self._hold(below[-1])
            return below[-1]
        table.types[name], table.vectors = merged.types[name], merged.vectors
        return None

    def _generate(self, name: str, above: tuple[type, ...], table: TypeTable) -> type[Any]:
        record = table.types[name]
        if not record.kind and record.family in table.vectors and above[0] is not Event:
            _align(table, record.family, vector(above[0]))
            record = _complete(record, above[0], table)
            if len(record.attributes) + len(vector(above[0])) > MAX_ATTRIBUTES:
                raise DeclarationError(f"{name}: more than {MAX_ATTRIBUTES} attributes were stated of its family")
        made = _generate_strictly(record, above, table)
        self._hold(made)
        return made

    def _hold(self, cls: type) -> None:
        if cls not in self._generated and len(self._generated) >= MAX_CLASSES:
            raise DeclarationError(f"{name_of(cls)}: more than {MAX_CLASSES} types were stated")
        self._generated[cls] = None

    def stand_in(self, line: Sequence[str], tagged: int) -> type[Any] | None:
        """A class for a type of which nothing is known but its line, below the nearest class of the program.

        `tagged` is the number of tagged attributes of the family. None if the family is known with another number, if
        it is not known and has some, or if there are too many such types.
        """
        with self._lock:
            for depth in range(len(line) - 1, 0, -1):
                if fitting := [cls for cls in _at(line[:depth]) if len(tagged_attributes(cls)) == tagged]:
                    return self._stand_below(fitting[-1], line[depth:])
            is_other = any(len(tagged_attributes(cls)) != tagged for cls in _at(line[:1]))
            return None if tagged or is_other else self._stand_below(Event, line)

    def _stand_below(self, base: type[Any], names: Sequence[str]) -> type[Any] | None:
        if len(self._stand_ins) >= MAX_STAND_INS:
            return None
        for name in names:
            family = name if base is Event else _line(base)[0]
            table = TypeTable({}, {family: {}})
            base = generate_class(TypeRecord(name, (name_of(base),), False, family, {}), (base,), table)
            _stand_ins.add(base)
            self._stand_ins[base] = None
        return base


def _at(line: Sequence[str]) -> list[type[Any]]:
    """Return the classes of the program at a place of a hierarchy."""
    found = _written(line[-1]) or declared_types(line[-1])
    return [cls for cls in found if is_event_type(cls) and _line(cls) == [*line]]


def is_stand_in(cls: type) -> bool:
    """Return whether a class stands for a type of which no statement has come."""
    return cls in _stand_ins


def known_above(cls: type) -> str:
    """Return the name of the nearest type above a stand-in that is known."""
    return next(name_of(each) for each in cls.__mro__ if each not in _stand_ins)


def _line(cls: type) -> list[str]:
    """Return the names of the event types from a family's root to a class."""
    return [name_of(each) for each in reversed(cls.__mro__) if is_type(each) and family_of(each) is not None]


def _written(name: str) -> list[type[Any]]:
    """Return the classes of a name that the program has declared itself."""
    return [cls for cls in declared_types(name) if not is_generated(cls)]


def _generated(name: str) -> list[type[Any]]:
    """Return the classes of a name that were generated from statements or catalogs."""
    return [cls for cls in declared_types(name) if is_generated(cls) and cls not in _stand_ins]


def _first_that_agrees(classes: Iterable[type[Any]], table: TypeTable) -> type[Any]:
    """Return the first class that a table does not contradict: a program may have several of one name."""
    problem: CatalogConflict | None = None
    for cls in classes:
        try:
            _agree(cls, table)
        except CatalogConflict as found:
            problem = problem or found
        else:
            return cls
    assert problem is not None
    raise problem


def _agree(cls: type, table: TypeTable) -> TypeTable:
    """Return a table with what a class adds to it; CatalogConflict if they contradict each other.

    The vector of the class's family in the table itself becomes as the program has it, where the two may differ.
    """
    aligned = table.copy()
    family, known = table.types[name_of(cls)].family, family_of(cls)
    if known is not None and family not in (None, known.name):
        raise CatalogConflict(f"{name_of(cls)} is of family {known.name}, but of family {family} where it was stated")
    if family in aligned.vectors and is_event_type(cls):
        _align(aligned, family, vector(cls))
    registration = Registration(aligned)
    registration.add_class(cls)
    if registration.problems:
        first = registration.problems[0]
        raise CatalogConflict(f"{first.subject} {first.text}")
    table.vectors = aligned.vectors
    if known is not None:
        known.learn_names(aligned.vectors[known.name].values())
    return registration.table


def _generate_strictly(record: TypeRecord, above: tuple[type, ...], table: TypeTable) -> type[Any]:
    """Generate a class; it may not declare what others have stated in another way, as classes of the program may."""
    family = None if record.kind else family_of(above[0])
    if family is None:
        return generate_class(record, above, table)
    before, stated = {each.name for each in family.vector}, family.stated
    family.stated = set()
    try:
        return generate_class(record, above, table)
    finally:
        family.stated = stated | {each.name for each in family.vector} - before


def _complete(record: TypeRecord, above: type, table: TypeTable) -> TypeRecord:
    """A record that also has what types above it were stated to have, and the class above, an older one, has not."""
    inherited, stated = Vector(name_of(above), attributes(above)), table.vectors[record.family or ROOT]
    missing = {
        name: must for name, must in table.attributes_of(record.name).items() if not inherited.match(stated[name])
    }
    return msgspec.structs.replace(record, attributes=missing | dict(record.attributes))


def _align(table: TypeTable, family: str, known: Vector) -> None:
    """Give the attributes of a family the widths and units of a vector, where the values can be converted."""
    pairs = [(stated, known.match(stated)) for stated in table.vectors[family].values()]
    table.vectors[family] = {a.name: a if own is None else _aligned(a, own) for a, own in pairs}


def _aligned(stated: Attribute, own: Attribute) -> Attribute:
    are_numbers = isinstance(stated.type, IntType | FloatType) and isinstance(own.type, IntType | FloatType)
    is_same = None in (stated.unit, own.unit) or unit_conversion(str(stated.unit), str(own.unit)) is not None
    return msgspec.structs.replace(
        stated, type=own.type if are_numbers else stated.type, unit=own.unit if is_same else stated.unit
    )
