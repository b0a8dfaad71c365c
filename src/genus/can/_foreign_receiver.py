"""Frames of databases as events: for those who subscribed, with acceptance filters, and identifiers used twice.

`Databases` has the databases of a bus as one: which classes their messages have, and which message a frame belongs to.
A program gets its classes from `load_dbc`, from a module that `genus can types --python` wrote, or from the bus. All of
them have the same names, so classes that exist when the bus is opened are used, and others when somebody subscribes to
them: a frame becomes an event of the class that the program knows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from genus.bus.internal import Rejected
from genus.can._dbc import Dbc, MessageLayout
from genus.can._dbc.j1939 import INCOMPLETE
from genus.can._dbc.message_types import UNKNOWN_ID
from genus.can._j1939 import TRANSFER_CONTROL, TRANSFER_DATA
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
from genus.errors import BusError, DbcError, EventError, Reasons
from genus.filters import Subscription
from genus.model import Event, is_event_type, name_of, parents, subtypes
from genus.targets.can import Pair


class Databases:
    """State: the databases of a bus, and the class of each of their messages."""

    def __init__(self, databases: Iterable[Dbc]) -> None:
        self._databases = list(databases)
        self._named: dict[str, type] = {}
        """Classes that somebody subscribed to by name; another one of the same name is refused."""
        self._long = [long for database in self._databases if (long := database.long_messages()) is not None]
        """The messages in progress that are longer than a frame."""
        self.types: Mapping[str, type] = {}
        """The kinds and event types of all databases, by name."""
        self._check_names()
        self._set_types()

    def _set_types(self) -> None:
        self.types = {name_of(cls): cls for database in self._databases for cls in database.all_types}

    def _check_names(self) -> None:
        seen: dict[str, Path] = {}
        for database in self._databases:
            for cls in database.all_types:
                if (other := seen.setdefault(name_of(cls), database.path)) != database.path:
                    raise DbcError(
                        f"{other} and {database.path} both have a type {name_of(cls)}; a bus can have one of them: "
                        "rename the message, or the file if it is its kind"
                    )

    @property
    def messages(self) -> Iterator[MessageLayout]:
        return (message for database in self._databases for message in database.all_messages)

    @property
    def problems(self) -> Iterator[str]:
        return (f"{database.path}: {problem}" for database in self._databases for problem in database.problems)

    def __str__(self) -> str:
        return " and ".join(str(database.path) for database in self._databases)

    # -- classes -----------------------------------------------------------------------------------------------------

    def use_classes(self, subscription: Subscription) -> None:
        """Use the classes of a subscription for the types of their names.

        BusError if two classes of one name are subscribed to, DbcError if one differs from its message.
        """
        for cls in subscription.types:
            if cls is not Event and self.owns(cls):
                self._use(cls)

    def owns(self, cls: type) -> bool:
        return name_of(cls) in self.types

    def _use(self, cls: type) -> None:
        if self.types[name_of(cls)] is not cls:
            family = {name_of(each): each for each in (*_family(cls), cls) if self.owns(each)}
            if not is_event_type(cls) and not self._is_complete(cls, family):
                raise BusError(f"{name_of(cls)} in {cls.__module__} lacks types of its database; use bus.types")
            for name, each in family.items():
                if (other := self._named.get(name, each)) is not each:
                    raise BusError(
                        f"two classes are named {name}, in {other.__module__} and in {each.__module__}; "
                        "subscribe to those of one module on a bus"
                    )
            self._databases = [
                database.using(family.values()) if _has(database, cls) else database for database in self._databases
            ]
            self._set_types()
        self._named[name_of(cls)] = cls

    def _is_complete(self, kind: type, family: Mapping[str, type]) -> bool:
        """Return whether classes below a kind stand for all types of the database that has its name."""
        database = next(each for each in self._databases if _has(each, kind))
        return all(name_of(cls) in family for cls in database.all_types)

    def layout_of(self, cls: type) -> MessageLayout | None:
        found = (database.layout_of(cls) for database in self._databases)
        return next((layout for layout in found if layout is not None), None)

    def accepted_by(self, subscription: Subscription) -> Iterator[MessageLayout]:
        for database in self._databases:
            for message in database.all_messages:
                if subscription.accepts(database.types[message.type_name]):
                    yield message

    # -- frames ------------------------------------------------------------------------------------------------------

    def knows(self, frame: Frame) -> bool:
        return self.is_part(frame) or any(each.knows(frame.id, frame.extended) for each in self._databases)

    def is_part(self, frame: Frame) -> bool:
        return bool(self._long) and frame.extended and any(each.is_part(frame.id) for each in self._long)

    def receive_part(self, frame: Frame, now_us: int) -> Frame | None:
        """Take a part of a long message; returns the message as one frame if that completes it."""
        for long in self._long:
            long.expire(now_us)
            found = long.receive(None, frame.id, frame.data, now_us)
            if found is not None:
                return Frame(found.frame_id, found.data)
        return None

    @property
    def incomplete(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for long in self._long:
            counts.update({f"{INCOMPLETE}{reason}": times for reason, times in long.counts.items()})
        return counts

    def message_of(self, frame: Frame) -> MessageLayout | None:
        for database in self._databases:
            message = database.message_of(frame.id, frame.extended)
            if message is not None:
                return message
        return None

    def decoder_of(self, frame: Frame) -> Callable[[bytes, datetime | None], Event | Rejected] | None:
        found = (database.decoder_of(frame.id, frame.extended) for database in self._databases)
        return next((decode for decode in found if decode is not None), None)

    def decode(self, frame: Frame, time: datetime) -> Event | Rejected:
        for database in self._databases:
            found = database.decode(frame.id, frame.data, frame.extended, time=time)
            if not isinstance(found, Rejected) or found.reason != UNKNOWN_ID:
                return found
        return Rejected(UNKNOWN_ID)

    def encode(self, event: Event) -> Frame:
        for database in self._databases:
            if database.layout_of(type(event)) is not None:
                return database.encode(event)
        raise EventError(f"{type(event).__name__} is no type of {self}")


def _has(database: Dbc, cls: type) -> bool:
    return any(name_of(each) == name_of(cls) for each in database.all_types)


def _family(cls: type) -> Iterator[type]:
    """Yield the kinds of a class, and what was declared below these: one module has the classes of all messages."""
    kinds = [cls] if not is_event_type(cls) else [each for each in parents(cls) if not is_event_type(each)]
    for kind in kinds:
        yield from subtypes(kind)


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
