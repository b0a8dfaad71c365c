"""The numbers a catalog gives: codes, event tags, and the function that reads an event's tag.

Room for event tags is planned per registration: a type that comes with others below it gets a block that holds them
and, while that is cheap, some more. `Event` owns half of all tags from the start, so that one filter means any event.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genus.catalog._records import ROOT, Declared, Ledger
from genus.codes._etags import Block, EtagSpace, Grant, merged, power_of_two
from genus.codes._schemes import LinePrimes
from genus.codes._topological import children_of
from genus.errors import HierarchyError

FAMILY_ROOM = 16
"""Types a family gets tags for at least, as long as there are few families."""

FEW_FAMILIES = 128
"""So many families are few; one whose types have several tags each counts that often."""

GENEROUS_SHARE = 16
"""One registration may take this part of Event's tags with room to grow; beyond it gets what it needs."""


class Numbers:
    """State: the codes and event tags given so far."""

    def __init__(self, codes: LinePrimes | None = None, tags: EtagSpace | None = None) -> None:
        self.codes = codes or LinePrimes()
        self.tags = tags or EtagSpace()

    def give(self, types: Sequence[Declared], ledger: Ledger) -> None:
        """Number new types, parents first; all or, with a HierarchyError, none."""
        codes, grants = len(self.codes.codes), len(self.tags.grants)
        try:
            for declared in types:
                self.codes.add(declared.name, declared.parents, kind=declared.kind)
            self._give_tags([declared for declared in types if not declared.kind], ledger)
        except HierarchyError:
            self.codes = LinePrimes.restore(self.codes.entries[:codes])
            self.tags = self._tags_of(self.tags.grants[:grants])
            raise

    def copy(self) -> "Numbers":
        """One that can change while this stays."""
        return Numbers(LinePrimes.restore(self.codes.entries), self._tags_of(self.tags.grants))

    def _tags_of(self, grants: Sequence[Grant]) -> EtagSpace:
        return EtagSpace.restore(grants, self.tags.bits, self.tags.reserved)

    def blocks(self) -> dict[str, tuple[Block, ...]]:
        """Every type's blocks in the order they were given."""
        found: dict[str, tuple[Block, ...]] = {}
        for grant in self.tags.grants:
            found[grant.name] = (*found.get(grant.name, ()), grant.block)
        return found

    def owners(self) -> dict[int, str]:
        """The type of every event tag that an event can have."""
        found: dict[int, str] = {}
        for name in dict.fromkeys(grant.name for grant in self.tags.grants):
            own = self.tags.own_tags(name)
            found |= dict.fromkeys(range(own.value, own.value + own.size), name)
        return found

    def filters(self, name: str, ledger: Ledger) -> tuple[Block, ...]:
        """The fewest blocks that accept every event of a type; a kind's are those of the types that take it on."""
        if not ledger.types[name].kind:
            return self.tags.filters(name)
        tops = (d.name for d in ledger.types.values() if not d.kind and self._is_topmost(name, d))
        return merged(block for top in tops for block in self.tags.filters(top))

    def _is_topmost(self, kind: str, declared: Declared) -> bool:
        """Whether a type conforms to a kind and the type it extends does not."""
        above = declared.line
        return self.codes.subsumes(kind, declared.name) and not (above and self.codes.subsumes(kind, above))

    def _give_tags(self, types: Sequence[Declared], ledger: Ledger) -> None:
        half = 1 << self.tags.bits - 1
        below_event = [declared for declared in types if declared.line is not None]
        rooms = _rooms(below_event, ledger, half // GENEROUS_SHARE)
        if len(below_event) < len(types):
            self.tags.add(ROOT, room=half)
        lines = {declared.name: declared.line for declared in types}
        for name in sorted(rooms, key=lambda name: -rooms[name]):
            self.tags.add(name, lines[name], rooms[name], ledger.unit(name))


def _rooms(types: Sequence[Declared], ledger: Ledger, generous: int) -> dict[str, int]:
    """How many tags each new type should have; the largest factor to grow by that is not too generous."""
    hierarchy = {declared.name: (str(declared.line),) for declared in types}
    children = children_of(hierarchy, {line for (line,) in hierarchy.values()})
    units = {name: ledger.unit(name) for name in hierarchy}
    families = len(ledger.families())
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
    """Block sizes for the types' own tags and all below them, bottom up."""
    sizes: dict[str, int] = {}
    for name in reversed(list(units)):
        below = sum(sizes[child] for child in children[name])
        sizes[name] = max(least.get(name, 1), power_of_two(units[name] + below) * (spare if below else 1))
    return sizes


def tag_reader(bits: Mapping[str, int], base: int = 0) -> Callable[[Any], int]:
    """A function that gives the bits of the attributes an event carries, added to a base; compiled for its class.

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
