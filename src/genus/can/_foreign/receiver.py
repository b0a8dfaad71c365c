"""Frames of a database as events, for those who subscribed, acceptance filters for them, and identifiers used twice."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeAlias

import msgspec

from genus.bus.internal import Rejected
from genus.can._dbc import MessageLayout
from genus.can._foreign.databases import Databases
from genus.can._j1939.identifier import TRANSFER_CONTROL, TRANSFER_DATA
from genus.can._wire.frame import (
    BROKER_NODE,
    CLASSIC_BYTES,
    ETAG_MASK,
    ID_MASK,
    NODE_MASK,
    NODE_SHIFT,
    PRIORITY_SHIFT,
    RESERVED_ETAGS,
    STANDARD_ID_MASK,
    UNCONFIGURED_NODE,
    Frame,
    Identifier,
    Priority,
)
from genus.catalog import Catalog
from genus.errors import BusError, Reasons
from genus.filters import Subscription
from genus.model import Event
from genus.targets.can import Pair

# -- acceptance filters ------------------------------------------------------------------------------------------------

MAX_FILTERS = 128
"""Filters that are set where the number is not limited: interfaces that test them one by one get slow with more."""
FEW = 24
"""With more pairs than this, only neighbours are joined."""

PGN_MASK, PGN_MASK_WITH_DESTINATION = 0x3FFFF00, 0x3FF0000
"""The bits of a J1939 identifier that hold the parameter group: of one for all, and of one for a destination."""


TRANSPORT = tuple(Pair(pgn << 8, PGN_MASK_WITH_DESTINATION) for pgn in (TRANSFER_CONTROL, TRANSFER_DATA))
"""The frames of the J1939 transport protocol, in which long messages come."""


class Filters(NamedTuple):
    extended: tuple[Pair, ...] = ()
    standard: tuple[Pair, ...] = ()

    def accepts(self, identifier: int, extended: bool) -> bool:
        return any(pair.accepts(identifier) for pair in (self.extended if extended else self.standard))


NOTHING = Filters((Pair(ID_MASK, ID_MASK),))
"""Accepts one identifier that nobody uses: for interfaces, no filters mean all frames."""


class Traffic(NamedTuple):
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
    mask = message.id_mask
    if message.j1939:
        mask = PGN_MASK if message.frame_id >> 16 & 0xFF >= 240 else PGN_MASK_WITH_DESTINATION
    return Pair(message.frame_id & mask, mask)


def traffic_of(messages: Iterable[MessageLayout]) -> list[Traffic]:
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


# -- events ------------------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Decoder: TypeAlias = Callable[[bytes, datetime | None], Event | Rejected]
"""A function from the data and the time of a frame to its event."""

MAX_DECODERS = 65_536
"""Identifiers whose decoder is remembered."""

NOT_WANTED = "message that nobody subscribed to"
"""Why a frame of a database is dropped: the filters accept more than is wanted, or were just changed."""


class ForeignInterest:
    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription


class ForeignReceiver:
    """State: the subscriptions to types of databases, and counters of the frames.

    `call` queues the call of a function; `on_event` is called so with every event that somebody subscribed to.
    """

    def __init__(
        self, databases: Databases, call: Callable[..., None], on_event: Callable[[Event], object] | None
    ) -> None:
        self.databases = databases
        self.received: Counter[str] = Counter()
        """Events by type."""
        self.dropped = Reasons()
        """Frames by the reason why they are no events."""
        self.parts = 0
        """Frames that are parts of messages which are longer than a frame."""
        self.on_received: Callable[[Event], object] | None = None
        """Is called too with every event, at once."""
        self._call, self._on_event = call, on_event
        self._interests: dict[ForeignInterest, None] = {}
        self._wanted: set[str] = set()
        self._decoders: dict[int, Decoder] = {}
        """The decoder of each identifier that is a message which somebody wants; those of 11 bits are inverted."""

    def add(self, subscription: Subscription) -> ForeignInterest:
        self.databases.use_classes(subscription)
        interest = ForeignInterest(subscription)
        self._interests[interest] = None
        self._find_wanted()
        return interest

    def remove(self, interest: ForeignInterest) -> None:
        self._interests.pop(interest, None)
        self._find_wanted()

    def _find_wanted(self) -> None:
        self._decoders.clear()
        asked = [interest.subscription for interest in self._interests]
        self._wanted = {each.type_name for one in asked for each in self.databases.accepted_by(one)}

    def wanted_messages(self) -> Iterator[MessageLayout]:
        return (message for message in self.databases.messages if message.type_name in self._wanted)

    @property
    def unwanted(self) -> list[Traffic]:
        return traffic_of(each for each in self.databases.messages if each.type_name not in self._wanted)

    def knows(self, frame: Frame) -> bool:
        return self.databases.knows(frame)

    def receive(self, frame: Frame, now: int) -> None:
        """Make an event of a frame that ended at a time, in nanoseconds since 1970, or count why there is none."""
        decode = self._decoders.get(frame.id if frame.extended else ~frame.id)
        if decode is None:
            if self.databases.is_part(frame):
                self.parts += 1
                whole = self.databases.receive_part(frame, now // 1000)
                if whole is None:
                    return
                frame = whole
            decode = self._find_decoder(frame)
            if decode is None:
                return
        event = decode(frame.data, _EPOCH + timedelta(microseconds=now // 1000))
        if isinstance(event, Rejected):
            self.dropped[event.reason] += 1
            return
        self.received[event.__class__.__name__] += 1
        if self.on_received is not None:
            self.on_received(event)
        if self._on_event is not None:
            self._call(self._on_event, event)

    def _find_decoder(self, frame: Frame) -> Decoder | None:
        message = self.databases.message_of(frame)
        if message is None:
            rejected = self.databases.decode(frame, _EPOCH)
            assert isinstance(rejected, Rejected), "a frame of no message is no event"
            self.dropped[rejected.reason] += 1
            return None
        if message.type_name not in self._wanted:
            self.dropped[NOT_WANTED] += 1
            return None
        if len(self._decoders) >= MAX_DECODERS:
            self._decoders.clear()  # a J1939 message has many identifiers
        found = self.databases.decoder_of(frame)
        assert found is not None, "a message has a decoder"
        self._decoders[frame.id if frame.extended else ~frame.id] = found
        return found

    def loop_back(self, event: Any) -> None:
        if self._on_event is not None:
            self._call(self._on_event, event)


# -- identifiers that a Genus node may send too ------------------------------------------------------------------------

_MIDDLEWARE = (Priority.SYSTEM, Priority.PROTOCOL)
_CHANNELS = (*range(Priority.HARD, Priority.SOFT_LAST + 1), Priority.NONE, Priority.BULK)
"""The priorities of the middleware's frames, and of events."""


class LiveCollision(msgspec.Struct, frozen=True):
    """A message of a database whose identifier a Genus node may send."""

    message: str
    identifier: Identifier
    """One of those that both may have."""
    user: str
    is_certain: bool
    """Whether it is this node; otherwise a node that has this number."""
    more_numbers: tuple[int, ...] = ()
    """Other numbers of nodes whose frames look like those of J1939 messages."""

    def __str__(self) -> str:
        numbers = [self.identifier.node, *self.more_numbers]
        whose = "this node" if self.is_certain else f"a node with the number {numbers[0]}"
        advice = "give this node another number" if self.is_certain else "let no node have that number"
        if self.more_numbers:
            advice = f"let no node have the numbers {', '.join(map(str, numbers))}, which J1939 messages look like"
        return (
            f"{self.message} has the identifier {self.identifier.pack():#010x}, which {whose} uses for {self.user}; "
            f"{advice}, or find such identifiers before with `genus can plan` and databases = [...]"
        )


def find_live_collisions(
    messages: Iterable[MessageLayout], number: int | None, catalog: Catalog | None
) -> Iterator[LiveCollision]:
    """Yield the messages whose identifiers nodes of Genus may send, those of J1939 with other nodes as one.

    A message with one identifier is compared with the event tags that a catalog has given by now; one with many, of
    J1939, with all that there may be.
    """
    others: dict[int, LiveCollision] = {}
    for message in messages:
        for pair in filters_of([message]).extended:
            for node in _matching(pair, range(UNCONFIGURED_NODE, BROKER_NODE + 1), NODE_SHIFT):
                used = _first_use(pair, node, catalog)
                if used is None:
                    continue
                found = LiveCollision(message.type_name, *used, node == number)
                if found.is_certain or not message.j1939:
                    yield found
                else:
                    others.setdefault(node, found)
    if others:
        first, *more = sorted(others)
        yield msgspec.structs.replace(others[first], more_numbers=tuple(more))


def _first_use(pair: Pair, node: int, catalog: Catalog | None) -> tuple[Identifier, str] | None:
    """Return the first identifier that a pair accepts and a node may send, and what for; None if there is none."""
    priority = next(_matching(pair, _MIDDLEWARE, PRIORITY_SHIFT), None)
    etag = next(_matching(pair, range(RESERVED_ETAGS), 0), None)
    if priority is not None and etag is not None:
        return Identifier(priority, node, etag), "the middleware"
    if node == UNCONFIGURED_NODE:
        return None
    priority = next(_matching(pair, _CHANNELS, PRIORITY_SHIFT), None)
    etag = next(_matching(pair, range(RESERVED_ETAGS, ETAG_MASK + 1), 0), None)
    if priority is None or etag is None:
        return None
    is_one = pair.mask & ETAG_MASK == ETAG_MASK
    user = "its channels" if not is_one else None if catalog is None else catalog.type_of(etag)
    return None if user is None else (Identifier(priority, node, etag), user)


def _matching(pair: Pair, values: Iterable[int], shift: int) -> Iterator[int]:
    field = {PRIORITY_SHIFT: ID_MASK >> PRIORITY_SHIFT, NODE_SHIFT: NODE_MASK >> NODE_SHIFT, 0: ETAG_MASK}[shift]
    mask = pair.mask >> shift & field
    return (value for value in values if (pair.value >> shift ^ value) & mask == 0)
