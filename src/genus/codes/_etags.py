"""Event tags laid out as prefixes, so that one acceptance filter accepts a type and everything below it.

Codes need division; the filter of a CAN controller can only mask. So a type also owns aligned blocks of a power of two
of event tags, each one (value, mask) pair. Its first block begins with its own event tag, or with an aligned `unit` of
own event tags whose low bits say which tagged attributes are present; the rest is room for its children's blocks. When
the room is used up the type gets another block, about as large as all it has if there is room, inside its parent, which
may have to grow first in the same way; a root grows beside all others. So a type with n types below it has about log n
blocks while there is room, and they contain all below it. Blocks are split as in a buddy allocator (Knowlton, "A fast
storage allocator", 1965) and never freed: event tags are append-only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

from genus.codes._hierarchy import children_of, order_breadth_first
from genus.errors import EtagsExhausted, HierarchyError

ROOT_SHARE = 16
"""A root added without `room` gets one part in this many of the largest free block."""

GROWTH_SHARE = 4
"""A type that grows gets at most one part in this many of the largest free block above it, unless it needs more."""

FIRST_GROWTH = 8
"""The least event tags a type gets when it first needs more: enough for most types that have children."""


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """The event tags that equal `value` in the bits of `mask`: an aligned power of two of them."""

    value: int
    mask: int

    @property
    def size(self) -> int:
        """The number of event tags in the block."""
        return self.mask & -self.mask

    def accepts(self, tag: int) -> bool:
        """Return whether an event tag is in the block: the test of an acceptance filter.

        >>> Block(0b1000, 0b1100).accepts(0b1011)
        True
        """
        return tag & self.mask == self.value

    def contains(self, other: "Block") -> bool:
        """Return whether another block lies within this one."""
        return self.size >= other.size and self.accepts(other.value)

    def halves(self) -> tuple["Block", "Block"]:
        """Return the lower and the upper half.

        >>> Block(0b1000, 0b1100).halves()
        (Block(value=8, mask=14), Block(value=10, mask=14))
        """
        half = self.size // 2
        mask = self.mask | half
        return Block(self.value, mask), Block(self.value + half, mask)


class Grant(NamedTuple):
    """One line of an append-only record of event tags: a type's first block, or a further one.

    The first `unit` event tags of its first block, a power of two of them, are the type's own. `EtagSpace.grants` gives
    the lines and `EtagSpace.restore` reads them.
    """

    name: str
    parent: str | None
    block: Block
    unit: int = 1


@dataclass(slots=True)
class _Owner:
    """State: a type's blocks, and their free part as the largest aligned blocks."""

    name: str
    parent: str | None
    free: list[Block]
    blocks: list[Block] = field(default_factory=list)
    unit: int = 1
    total: int = 0
    _largest_free: int | None = None

    def __post_init__(self) -> None:
        self.total = sum(block.size for block in self.blocks)

    @property
    def largest_free(self) -> int:
        """The size of the largest free block; found again only after a change, since most types ask without one."""
        if self._largest_free is None:
            self._largest_free = max((block.size for block in self.free), default=0)
        return self._largest_free

    def fit(self, size: int) -> Block | None:
        """Return a block of a size, cut from the lowest of the smallest free blocks that hold it."""
        whole = min((b for b in self.free if b.size >= size), key=lambda b: (b.size, b.value), default=None)
        return None if whole is None else Block(whole.value, whole.mask + whole.size - size)

    def take(self, block: Block) -> bool:
        """Remove a block from the free ones; False if it is not free."""
        whole = next((b for b in self.free if b.contains(block)), None)
        if whole is None:
            return False
        self.free.remove(whole)
        self.free.extend(_split_around(whole, block))
        self._largest_free = None
        return True

    def grow(self, block: Block) -> None:
        """Add a further block, all of it free."""
        self.blocks.append(block)
        self.free.append(block)
        self.total += block.size
        self._largest_free = None


class EtagSpace:
    """The event tags of one bus, allocated to a forest of types.

    There are `1 << bits` event tags; those below `reserved` belong to the protocol.

    >>> space = EtagSpace()
    >>> space.add("Event", room=8192), space.add("Loop", "Event", room=16)
    (Block(value=8192, mask=8192), Block(value=8208, mask=16368))
    >>> space.etag("Loop"), space.filters("Loop")
    (8208, (Block(value=8208, mask=16368),))
    """

    def __init__(self, bits: int = 14, reserved: int = 128) -> None:
        if not 0 < reserved < 1 << bits:
            raise ValueError(f"reserved must be in 1..{(1 << bits) - 1}, not {reserved}")
        self.bits = bits
        self.reserved = reserved
        self._top = _Owner("", None, list(_aligned_blocks(reserved, bits)))
        self._owners: dict[str, _Owner] = {}
        self._grants: list[Grant] = []

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Every block in the order of allocation, as `restore` takes them."""
        return tuple(self._grants)

    def add(
        self, name: str, parent: str | None = None, room: int | None = None, unit: int = 1, *, root_grows: bool = True
    ) -> Block:
        """Add a type and return its first block, with room for that many event tags if there still is, else for fewer.

        Without `room` a root gets a sixteenth of the largest free block, others their own event tags until they have
        children. A type has `unit` event tags of its own, a power of two, and never gets less. With `root_grows=False`
        only the blocks that its root has already are used. Raises EtagsExhausted if there is no room left, and
        HierarchyError if the name is taken or the parent is unknown.

        >>> space = EtagSpace()
        >>> space.add("Loop", unit=4, room=16), space.own_etags("Loop"), space.add("Radar", "Loop", unit=4)
        (Block(value=128, mask=16368), Block(value=128, mask=16380), Block(value=132, mask=16380))
        """
        self._check_new(name, parent, unit)
        line = [self._owner(each) for each in self._line(parent, root_grows=root_grows)]
        largest = max(owner.largest_free for owner in line)
        if largest < unit:
            raise EtagsExhausted(self._describe_lack(name, parent, unit))
        wanted = (max(1, largest // ROOT_SHARE) if parent is None else 1) if room is None else room
        block = self._obtain(line, min(max(power_of_two(wanted), unit), largest))
        self._grant(Grant(name, parent, block, unit))
        return block

    def largest_free(self, name: str | None = None) -> int:
        """Return the size of the largest free block inside a type's blocks; without a name, outside all blocks.

        >>> space = EtagSpace()
        >>> block = space.add("Loop", room=16)
        >>> space.largest_free("Loop"), space.largest_free()
        (8, 8192)
        """
        return self._owner(name).largest_free

    def add_all(self, hierarchy: Mapping[str, Sequence[str]]) -> None:
        """Add whole trees (type -> parents), each block sized for the types below, with room to grow if that fits."""
        order = order_breadth_first(hierarchy, self._owners)
        several = next((name for name in order if len(hierarchy[name]) > 1), None)
        if several is not None:
            raise HierarchyError(f"cannot add {several!r}: an event tag lies in one block, so a type has one parent")
        sizes = self._choose_sizes(hierarchy, order)
        for name in sorted(order, key=lambda name: -sizes[name]):
            self.add(name, next(iter(hierarchy[name]), None), sizes[name])

    def __contains__(self, name: str) -> bool:
        return name in self._owners

    def etag(self, name: str) -> int:
        """Return a type's own event tag; the first if it has several."""
        return self._known(name).blocks[0].value

    def own_etags(self, name: str) -> Block:
        """Return the block of a type's own event tags, without those of types below it."""
        owner = self._known(name)
        return Block(owner.blocks[0].value, (1 << self.bits) - owner.unit)

    def filters(self, name: str) -> tuple[Block, ...]:
        """Return the fewest blocks of exactly a type's event tags, those of types below it and its free room."""
        return merge_blocks(self._known(name).blocks)

    @classmethod
    def restore(cls, grants: Iterable[Grant], bits: int = 14, reserved: int = 128) -> Self:
        """Return a space with the stored blocks, which continues as the one that allocated them would have.

        Raises HierarchyError, with the type's name, for a block that cannot follow those before it.
        """
        space = cls(bits, reserved)
        for grant in grants:
            space._check_stored(grant)
            space._grant(grant)
        return space

    def _describe_lack(self, name: str, parent: str | None, unit: int) -> str:
        """Why a type gets no event tags: how many there are, who has them, and what is free elsewhere."""
        tags = "event tag" if unit == 1 else f"{unit} adjacent event tags"
        own, total = sum(owner.unit for owner in self._owners.values()), (1 << self.bits) - self.reserved
        return (
            f"event tags exhausted: {len(self._owners)} types leave no {tags} of {self.bits} bits for {name!r} below "
            f"{parent or 'nothing'!r}; of {total} event tags {own} are those of types and the rest is room for "
            "subtypes of other types; use another bus with a catalog of its own, or tag fewer attributes there"
        )

    def _obtain(self, line: Sequence[_Owner], size: int) -> Block:
        """A block of a size inside the first type of a line, which grows if it must; one of the line has it free."""
        growing = self._plan_growth(line, size)
        owner, wanted = growing.pop()
        block = owner.fit(min(wanted, owner.largest_free))
        for owner, wanted in reversed(growing):
            assert block is not None
            self._grant(Grant(owner.name, owner.parent, block, owner.unit))
            block = owner.fit(min(wanted, block.size))
        assert block is not None
        return block

    def _plan_growth(self, line: Sequence[_Owner], size: int) -> list[tuple[_Owner, int]]:
        """The types from one upwards that have too little free, and the first that has enough, each with the size.

        A type that grows wants as much again as it has. A quarter of that is enough where the type above it has it: if
        that had to grow for more, every level of a chain would double, and a few chains would take all event tags.
        """
        largest_above = list(accumulate((owner.largest_free for owner in reversed(line)), max))[::-1]
        plan, least = [(line[0], size)], size
        for (owner, above), largest in zip(pairwise(line), largest_above[1:], strict=True):
            if owner.largest_free >= least:
                break
            share = largest if owner.parent is None else largest // GROWTH_SHARE
            wanted = max(size, min(max(FIRST_GROWTH, power_of_two(owner.total)), share))
            least = max(size, min(wanted // GROWTH_SHARE, largest))
            plan.append((above, wanted))
        return plan

    def _grant(self, grant: Grant) -> None:
        name, parent, block, unit = grant
        if not self._owner(parent).take(block):
            raise HierarchyError(f"stored block {block} of {name!r} is not free in {parent or 'the space'!r}")
        if name in self._owners:
            self._owners[name].grow(block)
        else:
            own_etags = Block(block.value, (1 << self.bits) - unit)
            self._owners[name] = _Owner(name, parent, list(_split_around(block, own_etags)), [block], unit)
        self._grants.append(grant)

    def _choose_sizes(self, hierarchy: Mapping[str, Sequence[str]], order: Sequence[str]) -> dict[str, int]:
        children = children_of(hierarchy, self._owners)
        for spare in (4, 2):
            sizes = _sizes(order, children, spare)
            if sum(sizes[name] for name in order if not hierarchy[name]) <= self._top.largest_free:
                return sizes
        return _sizes(order, children, 1)

    def _line(self, name: str | None, *, root_grows: bool = True) -> Iterator[str | None]:
        """Yield a type and those above it; None at the end, unless the root may not grow."""
        while name is not None:
            yield name
            name = self._owners[name].parent
        if root_grows:
            yield None

    def _owner(self, name: str | None) -> _Owner:
        return self._top if name is None else self._known(name)

    def _known(self, name: str) -> _Owner:
        try:
            return self._owners[name]
        except KeyError:
            raise HierarchyError(f"unknown type {name!r}") from None

    def _check_new(self, name: str, parent: str | None, unit: int) -> None:
        if not name or name in self._owners:
            raise HierarchyError(
                f"cannot add {name!r}: " + ("it has an event tag already" if name else "a type needs a name")
            )
        if parent is not None and parent not in self._owners:
            raise HierarchyError(f"cannot add {name!r}: its parent {parent!r} is unknown; add the parent first")
        if unit < 1 or unit & (unit - 1):
            raise HierarchyError(f"cannot add {name!r}: its own event tags must be a power of two, not {unit}")

    def _check_stored(self, grant: Grant) -> None:
        name, parent, block, unit = grant
        first = self._owners.get(name)
        if block.size == 0 or block.mask != (1 << self.bits) - block.size or block.value & ~block.mask:
            raise HierarchyError(f"stored block {block} of {name!r} is not an aligned block of {self.bits} bits")
        if first is None:
            self._check_new(name, parent, unit)
        elif (first.parent, first.unit) != (parent, unit):
            what = f"parent than the first: {parent!r}" if first.parent != parent else f"unit than the first: {unit}"
            raise HierarchyError(f"stored block {block} of {name!r} names another {what}")
        if first is None and block.size < unit:
            raise HierarchyError(f"stored block {block} of {name!r} is smaller than its {unit} own event tags")


def _sizes(order: Sequence[str], children: Mapping[str, Sequence[str]], spare: int) -> dict[str, int]:
    """Block sizes that hold all below, bottom up; types with children get `spare` times that."""
    sizes: dict[str, int] = {}
    for name in reversed(order):
        below = sum(sizes[child] for child in children[name])
        sizes[name] = power_of_two(1 + below) * (spare if below else 1)
    return sizes


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is not less."""
    if size < 1:
        raise ValueError(f"room must be at least 1, not {size}")
    return 1 << (size - 1).bit_length()


def _aligned_blocks(start: int, bits: int) -> Iterator[Block]:
    """Yield the largest aligned blocks that together hold all event tags from one on."""
    while start < 1 << bits:
        size = start & -start
        yield Block(start, (1 << bits) - size)
        start += size


def _split_around(whole: Block, block: Block) -> Iterator[Block]:
    """Yield the largest aligned blocks that remain of a block when another inside it is taken."""
    while whole != block:
        lower, upper = whole.halves()
        whole, rest = (lower, upper) if lower.contains(block) else (upper, lower)
        yield rest


def merge_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Disjoint blocks, with halves of a block merged as often as possible."""
    found: list[Block] = []
    for block in sorted(blocks):
        while found and found[-1].mask == block.mask and found[-1].value ^ block.value == block.size:
            block = Block(found.pop().value, block.mask & ~block.size)
        found.append(block)
    return tuple(found)
