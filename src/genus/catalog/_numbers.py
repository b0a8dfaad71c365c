"""The numbers of a catalog: codes, event tags, and functions that read the presence bits of an event.

Room for event tags is planned per registration: a type that comes with others below it gets a block that holds them
and, while that is cheap, some more. `Event` owns half of all event tags from the start, so that one filter accepts
every event.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genus.catalog._records import ROOT, TypeRecord, TypeTable
from genus.codes._etags import Block, EtagSpace, Grant, merge_blocks, power_of_two
from genus.codes._prime_schemes import LinePrimes
from genus.codes._topological import children_of
from genus.errors import HierarchyError

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
        """Allocate codes and event tags to new types, parents first; to all or, with a HierarchyError, to none."""
        codes, grants = len(self.codes.codes), len(self.etags.grants)
        try:
            for declared in types:
                self._allocate_code(declared, is_growth=len(types) <= codes)
            self._allocate_etags([declared for declared in types if not declared.kind], table)
        except HierarchyError:
            self.codes = LinePrimes.restore(self.codes.entries[:codes])
            self.etags = self._restore_etags(self.etags.grants[:grants])
            raise

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
        """The type of every event tag that an event can have."""
        found: dict[int, str] = {}
        for name in dict.fromkeys(grant.name for grant in self.etags.grants):
            own = self.etags.own_etags(name)
            found |= dict.fromkeys(range(own.value, own.value + own.size), name)
        return found

    def filters(self, name: str, table: TypeTable) -> tuple[Block, ...]:
        """The fewest blocks that accept every event of a type; a kind's are those of the types that have it."""
        if not table.types[name].kind:
            return self.etags.filters(name)
        tops = (d.name for d in table.types.values() if not d.kind and self._is_topmost(name, d))
        return merge_blocks(block for top in tops for block in self.etags.filters(top))

    def _is_topmost(self, kind: str, declared: TypeRecord) -> bool:
        """Whether a type conforms to a kind and the type it extends does not."""
        above = declared.line
        return self.codes.subsumes(kind, declared.name) and not (above and self.codes.subsumes(kind, above))

    def _allocate_etags(self, types: Sequence[TypeRecord], table: TypeTable) -> None:
        half = 1 << self.etags.bits - 1
        below_event = [declared for declared in types if declared.line is not None]
        rooms = _rooms(below_event, table, half // GENEROUS_SHARE)
        if len(below_event) < len(types):
            self.etags.add(ROOT, room=half)
        lines = {declared.name: declared.line for declared in types}
        for name in sorted(rooms, key=lambda name: -rooms[name]):
            self.etags.add(name, lines[name], rooms[name], table.own_etag_count(name))


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


def tag_reader(bits: Mapping[str, int], base: int = 0) -> Callable[[Any], int]:
    """A compiled function that gives the presence bits of an event, or-ed to a base.

    `bits` has the bit of each attribute of the event's class.

    >>> from types import SimpleNamespace
    >>> tag_reader({"time": 0, "lane": 5})(SimpleNamespace(time=None, lane=2))
    32
    """
    lines = [f"    if event.{name} is not None: tag |= {1 << bit}" for name, bit in bits.items()]
    source = "\n".join(["def read(event):", f"    tag = {base}", *lines, "    return tag"])
    scope: dict[str, Any] = {}
    exec(compile(source, "<tag>", "exec"), scope)
    reader: Callable[[Any], int] = scope["read"]
    return reader
