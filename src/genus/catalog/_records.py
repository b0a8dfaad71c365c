"""The type table of a catalog: which types it knows, what they declare, and their numbers.

The record of a type holds only what the type declares itself; inherited attributes follow from the types above it. So a
type that gains an attribute gives it to all below it, without a change of their records.

The numbers are codes, event tags, and the functions that read presence bits. Every type gets a code. Event tags are
few and only CAN buses need them, so there are two ways to one:

* A registration gives them while there is room in what `Event` has: half of all event tags from the start, so that one
  filter accepts every event. Nodes that register the same types then agree without talking to each other. Room is
  planned per registration: a type that comes with others below it gets a block that holds them and, while that is
  cheap, some more.
* A bus asks for those of the types that it carries (`give_etags`), for which the other half is kept. A type that gets
  its event tags so gets room for the types that are registered below it, if that is a small share of what is free.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, Self, TypeAlias, TypeVar

import msgspec

from genus.codes import EtagSpace, LinePrimes
from genus.codes.internal import children_of, merge_blocks, power_of_two
from genus.codes.types import Block, Grant
from genus.errors import EtagsExhausted, HierarchyError
from genus.model.internal import unread_types, unread_values
from genus.model.types import Attribute, Vector

V = TypeVar("V")

Status = Literal["added", "renamed", "deprecated", "kept", "missing", "refused", "conflict"]


class TypeEntry(msgspec.Struct, frozen=True):
    """One type as the catalog has it: its declaration, code and event tags.

    `attributes` are those the type declares itself, each with whether it is required (True) or may be absent (False).
    `blocks` are its blocks of event tags, and `deprecated` is the note of a deprecated type, else None.
    """

    name: str
    parents: tuple[str, ...]
    kind: bool
    family: str | None
    attributes: Mapping[str, bool]
    code: int
    blocks: tuple[Block, ...]
    deprecated: str | None


class Finding(msgspec.Struct, frozen=True):
    """One line of `Catalog.check` or `Catalog.diff`: the status of a type or attribute, and the reason.

    `subject` is the name of a type, or `family.attribute`; `str()` gives the line as text.
    """

    status: Status
    subject: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.subject}" + (f" {self.text}" if self.text else "")


class RegistrationResult(msgspec.Struct, frozen=True):
    """What a registration added; false if it added nothing.

    `types` are the new types, `attributes` the new names in the vector of each family, `gained` the new attributes of
    types that were registered before, `values` the new values of enumerations (`family.attribute`), and `renamed` the
    names that attributes (`family.attribute`) had before.
    """

    types: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[str, ...]] = {}
    gained: Mapping[str, tuple[str, ...]] = {}
    values: Mapping[str, tuple[str | int, ...]] = {}
    renamed: Mapping[str, tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return any((self.types, self.attributes, self.gained, self.values, self.renamed))

    def findings(self) -> Iterator[Finding]:
        """Yield the additions as findings, one for each."""
        for name in self.types:
            yield Finding("added", name)
        for family, names in self.attributes.items():
            for name in names:
                yield Finding("added", f"{family}.{name}", "(attribute)")
        for type_, names in self.gained.items():
            yield Finding("added", type_, f"may now carry {', '.join(names)}")
        for attribute, values in self.values.items():
            yield Finding("added", attribute, f"may now be {', '.join(map(repr, values))}")
        for attribute, names in self.renamed.items():
            yield Finding("renamed", attribute, f"was {', '.join(names)}")


def without_names(result: RegistrationResult) -> RegistrationResult:
    """What a registration added that is not only another name of an attribute, whose bit a class can use as it is."""
    return msgspec.structs.replace(result, renamed={})


ROOT = "Event"
"""The first type of every catalog; its vector is also that of kinds."""


TaggedNames: TypeAlias = tuple[str, ...]
"""Tagged attributes, the one with the highest bit first."""


class TypeRecord(msgspec.Struct, frozen=True):
    """A type as declared, with its own attributes: each is required (True) or may be absent (False)."""

    name: str
    parents: tuple[str, ...]
    kind: bool
    family: str | None
    attributes: Mapping[str, bool]
    deprecated: str | None = None

    @property
    def line(self) -> str | None:
        """The event type it extends; None for `Event` and for kinds."""
        return self.parents[0] if self.parents and not self.kind else None


class TypeTable:
    """State: types by name and vectors by family, in the order of registration, and tagged attributes by family.

    `renamed` has the present name of each former name of an attribute, by family.
    """

    def __init__(
        self,
        types: dict[str, TypeRecord],
        vectors: dict[str, dict[str, Attribute]],
        tagged: dict[str, TaggedNames] | None = None,
    ) -> None:
        self.types = types
        self.vectors = vectors
        self.tagged: dict[str, TaggedNames] = tagged or {}
        self.renamed: dict[str, dict[str, str]] = {}

    def copy(self) -> Self:
        """A copy that can change while this one stays; the frozen records are shared."""
        made = type(self)(dict(self.types), dict(self.vectors), dict(self.tagged))
        made.renamed = dict(self.renamed)
        return made

    def line(self, name: str) -> Iterator[TypeRecord]:
        """Yield a type and the event types it extends, up to `Event`; nothing for a kind."""
        current = None if self.types[name].kind else name
        while current is not None:
            yield self.types[current]
            current = self.types[current].line

    def attributes_of(self, name: str) -> dict[str, bool]:
        """Every attribute that events of a type may carry, inherited ones included, and whether it is required."""
        found: dict[str, bool] = {}
        for declared in reversed(list(self.line(name))):
            found |= declared.attributes
        return found

    def families(self) -> list[str]:
        """Every family but that of `Event` alone."""
        return [family for family in self.vectors if family != ROOT]

    def tagged_attributes(self, name: str) -> TaggedNames:
        """Return the tagged attributes of a type's family; a kind and `Event` have none."""
        return self.tagged.get(self.types[name].family or ROOT, ())

    def own_etag_count(self, name: str) -> int:
        """Return the number of a type's own event tags: one for each set of tagged attributes that may be present."""
        return 1 << len(self.tagged_attributes(name))

    def vector(self, family: str) -> Vector:
        """Return a family's vector; an attribute that its root type requires is required in the whole family."""
        required = self.attributes_of(family)
        found = self.vectors[family].values()
        return Vector(family, tuple(msgspec.structs.replace(a, optional=not required.get(a.name)) for a in found))

    def put(self, declared: TypeRecord) -> None:
        """Add a type, or replace its record."""
        self.types[declared.name] = declared

    def put_attribute(self, family: str, attribute: Attribute) -> None:
        """Append an attribute to a vector, or replace it in place; vectors of other copies stay."""
        self.vectors[family] = {**self.vectors.get(family, {}), attribute.name: attribute}
        self._put_former_names(family, attribute)

    def present_name(self, family: str | None, name: str) -> str:
        """Return the name that an attribute of a family has now."""
        return self.renamed.get(family or ROOT, {}).get(name, name)

    def rename_attribute(self, family: str, old: str, new: str) -> None:
        """Give an attribute another name; its bit, and what types say about it, stay."""
        attribute = self.vectors[family][old]
        attribute = msgspec.structs.replace(attribute.with_names((new,)), name=new)
        self.vectors[family] = _with_key(self.vectors[family] | {old: attribute}, old, new)
        self._put_former_names(family, attribute)
        for declared in [each for each in self.types.values() if each.family == family and old in each.attributes]:
            self.put(msgspec.structs.replace(declared, attributes=_with_key(declared.attributes, old, new)))
        if old in self.tagged.get(family, ()):
            self.tagged[family] = tuple(new if name == old else name for name in self.tagged[family])

    def _put_former_names(self, family: str, attribute: Attribute) -> None:
        if attribute.names:
            known = {old: new for old, new in self.renamed.get(family, {}).items() if old != attribute.name}
            self.renamed[family] = known | dict.fromkeys(attribute.former, attribute.name)

    def family_of(self, name: str, line: str | None) -> str:
        """Return the family of a type that extends another."""
        above = None if line is None else self.types[line].family
        return name if above in (None, ROOT) else str(above)


def _with_key(mapping: Mapping[str, V], old: str, new: str) -> dict[str, V]:
    """Return a mapping in the same order with another key for one of its entries."""
    return {new if key == old else key: value for key, value in mapping.items()}


FAMILY_ROOM = 16
"""The least number of types that a family gets event tags for, as long as there are few families."""

FEW_FAMILIES = 128
"""Up to so many families count as few; a family whose types have n own event tags each counts n times."""

GENEROUS_SHARE = 16
"""A registration gets room to grow if it then takes at most one part in this many of the event tags of `Event`."""


MAX_CODE_DIGITS = 4000
"""The most decimal digits of a code in a catalog file."""

CODE_END = 10**MAX_CODE_DIGITS


class NumberAllocator:
    """State: the codes and event tags allocated so far."""

    def __init__(self, codes: LinePrimes | None = None, etags: EtagSpace | None = None) -> None:
        self.codes = codes or LinePrimes()
        self.etags = etags or EtagSpace()

    def allocate(self, types: Sequence[TypeRecord], table: TypeTable) -> None:
        """Allocate codes to new types, parents first, and event tags while there is room.

        All of them get codes or, with a HierarchyError, none.
        """
        codes = len(self.codes.codes)
        try:
            for declared in types:
                self._allocate_code(declared, is_growth=len(types) <= codes)
        except HierarchyError:
            self.codes = LinePrimes.restore(self.codes.entries[:codes])
            raise
        self._offer_etags([declared for declared in types if not declared.kind], table)

    def give_etags(self, names: Iterable[str], table: TypeTable) -> tuple[str, ...]:
        """Give event tags to types and to those above them that have none, and return which got some.

        All of them get event tags or, with EtagsExhausted, none.
        """
        lines = (declared.name for name in names for declared in reversed(list(table.line(name))))
        new = tuple(name for name in dict.fromkeys(lines) if name not in self.etags)
        grants, rooms = len(self.etags.grants), _rooms_below(table) if new else {}
        try:
            for name in new:
                self._give_etags(table.types[name], rooms[name], table.own_etag_count(name))
        except EtagsExhausted as problem:
            self.etags = self._restore_etags(self.etags.grants[:grants])
            raise EtagsExhausted(f"{problem} ({len(table.types)} types are in the catalog)") from None
        return new

    def _give_etags(self, declared: TypeRecord, room: int, unit: int) -> None:
        """Give a type the room that it should have, or what its parent has free without growth, if that is less."""
        free = max(self.etags.largest_free(ROOT), self.etags.largest_free())
        room = max(unit, min(room, free // GENEROUS_SHARE))
        inside = self.etags.largest_free(declared.line)
        self.etags.add(declared.name, declared.line, inside if unit <= inside < room else room, unit)

    def _allocate_code(self, declared: TypeRecord, *, is_growth: bool) -> None:
        """Give a type a code; primes are kept for kinds to come unless the registration more than doubles the catalog.

        Such a registration is taken for a whole hierarchy, whose kinds come with it.
        """
        code = self.codes.add(declared.name, declared.parents, kind=declared.kind, reserve=is_growth)
        if code >= CODE_END:
            raise HierarchyError(
                f"cannot add {declared.name!r}: its code has more than {MAX_CODE_DIGITS} digits, which no catalog file "
                "holds; derive it from a type with fewer types above it"
            )

    def copy(self) -> "NumberAllocator":
        """A copy that can change while this one stays."""
        return NumberAllocator(LinePrimes.restore(self.codes.entries), self._restore_etags(self.etags.grants))

    def _restore_etags(self, grants: Sequence[Grant]) -> EtagSpace:
        return EtagSpace.restore(grants, self.etags.bits, self.etags.reserved)

    def blocks(self) -> dict[str, tuple[Block, ...]]:
        """Every type's blocks in the order of allocation."""
        found: dict[str, tuple[Block, ...]] = {}
        for grant in self.etags.grants:
            found[grant.name] = (*found.get(grant.name, ()), grant.block)
        return found

    def owners(self) -> dict[int, str]:
        """Return the type of every event tag that an event can have."""
        found: dict[int, str] = {}
        for name in dict.fromkeys(grant.name for grant in self.etags.grants):
            own = self.etags.own_etags(name)
            found |= dict.fromkeys(range(own.value, own.value + own.size), name)
        return found

    def filters(self, name: str, table: TypeTable) -> tuple[Block, ...]:
        """Return the fewest blocks that accept every event of a type; a kind's are those of the types that have it.

        Events of types without event tags are not on a bus.
        """
        if not table.types[name].kind:
            return self.etags.filters(name)
        tops = (d.name for d in table.types.values() if d.name in self.etags and self._is_topmost(name, d))
        return merge_blocks(block for top in tops for block in self.etags.filters(top))

    def _is_topmost(self, kind: str, declared: TypeRecord) -> bool:
        """Return whether a type conforms to a kind and the type it extends does not."""
        above = declared.line
        return self.codes.subsumes(kind, declared.name) and not (above and self.codes.subsumes(kind, above))

    def _offer_etags(self, types: Sequence[TypeRecord], table: TypeTable) -> None:
        """Give event tags to new types as far as the blocks of `Event` have room."""
        half = 1 << self.etags.bits - 1
        below_event = [declared for declared in types if declared.line is not None]
        rooms = _rooms(below_event, table, half // GENEROUS_SHARE)
        if len(below_event) < len(types):
            self.etags.add(ROOT, room=half)
        lines = {declared.name: str(declared.line) for declared in below_event}
        for name in sorted(rooms, key=lambda name: -rooms[name]):
            if lines[name] in self.etags:
                with suppress(EtagsExhausted):
                    self.etags.add(name, lines[name], rooms[name], table.own_etag_count(name), root_grows=False)


def _rooms_below(table: TypeTable) -> dict[str, int]:
    """Return the number of event tags that each type and all that are registered below it have, as a power of two."""
    rooms: dict[str, int] = {}
    for declared in reversed([each for each in table.types.values() if not each.kind]):
        room = rooms[declared.name] = rooms.get(declared.name, 0) + table.own_etag_count(declared.name)
        if declared.line is not None:
            rooms[declared.line] = rooms.get(declared.line, 0) + room
    return {name: power_of_two(room) for name, room in rooms.items()}


def _rooms(types: Sequence[TypeRecord], table: TypeTable, generous: int) -> dict[str, int]:
    """The number of event tags for each new type, with the largest spare factor that is within the generous share."""
    hierarchy = {declared.name: (str(declared.line),) for declared in types}
    children = children_of(hierarchy, {line for (line,) in hierarchy.values()})
    units = {name: table.own_etag_count(name) for name in hierarchy}
    families = len(table.vectors) - (ROOT in table.vectors)
    least = {name: _family_room(units[name], families) for name, (line,) in hierarchy.items() if line == ROOT}
    tops = [name for name, (line,) in hierarchy.items() if line not in hierarchy]
    for spare in (4, 2):
        sizes = _sizes(units, children, least, spare)
        if sum(sizes[name] for name in tops) <= generous:
            return sizes
    return _sizes(units, children, least, 1)


def _family_room(unit: int, families: int) -> int:
    return FAMILY_ROOM * unit if families * unit <= FEW_FAMILIES else unit


def _sizes(
    units: Mapping[str, int], children: Mapping[str, Sequence[str]], least: Mapping[str, int], spare: int
) -> dict[str, int]:
    """Block sizes for the types' own event tags and all below them, bottom up."""
    sizes: dict[str, int] = {}
    for name in reversed(list(units)):
        below = sum(sizes[child] for child in children[name])
        sizes[name] = max(least.get(name, 1), power_of_two(units[name] + below) * (spare if below else 1))
    return sizes


def presence_reader(bits: Mapping[str, int], base: int = 0, *, as_sent: bool = False) -> Callable[[Any], int]:
    """Return a compiled function that gives the presence bits of an event, or-ed to a base.

    `bits` has the bit of each attribute of the event's class. With `as_sent`, attributes whose values cannot be read
    here count as present, as they do for the sender of the event.

    >>> from types import SimpleNamespace
    >>> presence_reader({"time": 0, "lane": 5})(SimpleNamespace(time=None, lane=2))
    32
    """
    lines = []
    for name, bit in bits.items():
        lines.append(f"    if event.{name} is not None: tag |= {1 << bit}")
        if as_sent:
            lines.append(f"    elif unread_types and {name!r} in unread_values(event): tag |= {1 << bit}")
    source = "\n".join(["def read(event):", f"    tag = {base}", *lines, "    return tag"])
    scope: dict[str, Any] = {"unread_types": unread_types, "unread_values": unread_values}
    exec(compile(source, "<tag>", "exec"), scope)
    reader: Callable[[Any], int] = scope["read"]
    return reader
