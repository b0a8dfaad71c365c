"""Acceptance filters for the identifiers of a database's messages, few enough for a controller.

A message has one identifier, or with J1939 all that have its parameter group. Pairs that differ in one bit are joined,
which accepts nothing more; then, while there are too many, the two whose join accepts the least unwanted traffic. That
is estimated from the messages of the databases that nobody subscribed to, by their cycle times.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

from genus.can._dbc import MessageLayout
from genus.can._j1939.identifier import TRANSFER_CONTROL, TRANSFER_DATA
from genus.can._wire.frame import CLASSIC_BYTES, ID_MASK, STANDARD_ID_MASK
from genus.errors import BusError
from genus.targets.can import Pair

MAX_FILTERS = 128
"""Filters that are set where the number is not limited: interfaces that test them one by one get slow with more."""
FEW = 24
"""With more pairs than this, only neighbours are joined."""

PGN_MASK, PGN_MASK_WITH_DESTINATION = 0x3FFFF00, 0x3FF0000
"""The bits of a J1939 identifier that hold the parameter group: of one for all, and of one for a destination."""


TRANSPORT = tuple(Pair(pgn << 8, PGN_MASK_WITH_DESTINATION) for pgn in (TRANSFER_CONTROL, TRANSFER_DATA))
"""The frames of the J1939 transport protocol, in which long messages come."""


class Filters(NamedTuple):
    """Acceptance filters for identifiers of 29 and of 11 bits."""

    extended: tuple[Pair, ...] = ()
    standard: tuple[Pair, ...] = ()

    def accepts(self, identifier: int, extended: bool) -> bool:
        """Return whether a frame passes."""
        return any(pair.accepts(identifier) for pair in (self.extended if extended else self.standard))


NOTHING = Filters((Pair(ID_MASK, ID_MASK),))
"""Accepts one identifier that nobody uses: for interfaces, no filters mean all frames."""


class Traffic(NamedTuple):
    """Frames that may be on the bus."""

    identifier: int
    extended: bool
    rate: float
    """Frames a second; 1 if it is not known."""


def pair_of(message: MessageLayout) -> Pair:
    """Return the filter of a message.

    >>> pair_of(MessageLayout("EEC1", "EEC1", 0x0CF00421, True, 8, (), j1939=True))
    Pair(value=15729664, mask=67108608)
    """
    if not message.extended:
        return Pair(message.frame_id & STANDARD_ID_MASK, STANDARD_ID_MASK)
    mask = ID_MASK
    if message.j1939:
        mask = PGN_MASK if message.frame_id >> 16 & 0xFF >= 240 else PGN_MASK_WITH_DESTINATION
    return Pair(message.frame_id & mask, mask)


def traffic_of(messages: Iterable[MessageLayout]) -> list[Traffic]:
    """Return the frames of messages, with the rates of their cycle times."""
    return [
        Traffic(each.frame_id, each.extended, 1000 / each.cycle_time_ms if each.cycle_time_ms else 1.0)
        for each in messages
    ]


def filters_of(messages: Iterable[MessageLayout]) -> Filters:
    """Filters that accept the frames of these messages and no others.

    >>> messages = [MessageLayout("A", "A", id, False, 8, ()) for id in (0x100, 0x101, 0x200)]
    >>> filters_of(messages).standard
    (Pair(value=256, mask=2046), Pair(value=512, mask=2047))
    """
    pairs: tuple[set[Pair], set[Pair]] = (set(), set())
    for message in messages:
        pairs[message.extended].add(pair_of(message))
        if message.j1939 and message.length > CLASSIC_BYTES and not message.fast:
            pairs[True].update(TRANSPORT)
    return Filters(_join_adjacent(pairs[True]), _join_adjacent(pairs[False]))


def fit_filters(needed: Filters, banks: int | None, unwanted: Sequence[Traffic] = ()) -> Filters:
    """Filters that accept what is needed, at most as many as a controller has, and as little else as possible.

    BusError if it has one filter and identifiers of 11 and of 29 bits are needed.
    """
    most = MAX_FILTERS if banks is None else banks
    if most < bool(needed.extended) + bool(needed.standard):
        raise BusError(
            "identifiers of 11 and of 29 bits are to be received, but one filter is left for them; give more banks, of "
            "which a node needs one for the echoes of its own frames"
        )
    pairs = {True: list(_join_adjacent(needed.extended)), False: list(_join_adjacent(needed.standard))}
    others = {kind: [each for each in unwanted if each.extended is kind] for kind in pairs}
    while len(pairs[True]) + len(pairs[False]) > most:
        steps = [(*_best_join(pairs[kind], others[kind]), kind) for kind in pairs if len(pairs[kind]) > 1]
        _, _, joined, kind = min(steps)
        pairs[kind] = sorted([joined, *(pair for pair in pairs[kind] if not joined.covers(pair))])
    return Filters(tuple(pairs[True]), tuple(pairs[False]))


def _best_join(pairs: Sequence[Pair], unwanted: Sequence[Traffic]) -> tuple[float, int, Pair]:
    """Return the join with the least unwanted traffic; of those, the narrowest."""
    candidates = combinations(pairs, 2) if len(pairs) <= FEW else pairwise(pairs)
    joins = {one.join(other) for one, other in candidates}
    return min((_cost(joined, unwanted), -joined.mask.bit_count(), joined) for joined in joins)


def _cost(joined: Pair, unwanted: Sequence[Traffic]) -> float:
    return sum(each.rate for each in unwanted if joined.accepts(each.identifier))


def _join_adjacent(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Fewer pairs that accept exactly the same: those that differ in one bit are joined, bit by bit."""
    left = set(pairs)
    for bit in (1 << number for number in range(29)):
        for pair in sorted(left):
            other = Pair(pair.value | bit, pair.mask)
            if pair.mask & bit and not pair.value & bit and other in left:
                left -= {pair, other}
                left.add(pair.join(other))
    return tuple(sorted(pair for pair in left if not any(one is not pair and one.covers(pair) for one in left)))
