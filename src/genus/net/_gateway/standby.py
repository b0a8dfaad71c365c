"""Doubled gateways: which one is active, and what a standby keeps so that nothing is lost when that one dies.

The active gateway is the one with the lowest uid among those that are seen on all networks: their tokens are there, and
they say now and then that they work, under a key that access lists give to gateways only. A token alone, which anybody
can show, silences nobody. Uids begin with the time at which a gateway was started, so that one that is new stands by.

A standby keeps the events that it heard on one side until they are seen to have crossed to the other: if the active
gateway dies, these are what may not have crossed.

Events are recognised by the numbers that their origins gave them. Those of a CAN bus have none: every gateway counts
them itself. A standby takes the numbers of the active one from what it sees cross, so that an event which both forward
is recognised as the same.
"""

from collections import OrderedDict, deque
from collections.abc import Collection
from math import inf

from msgspec.structs import replace

from genus.model import Event, name_of
from genus.net._envelope import NUMBERS, Arrival, Origin
from genus.net._link.numbers import line_of

MAX_HELD = 10_000
HELD_S = 30.0
"""How long an event is kept that was not seen to cross; a dead gateway is found out earlier on any network."""
MAX_EARLY = 64
EARLY_S = 1.0
"""How much earlier than it is heard an event may be seen to cross."""

PREFIX_BYTES = 4
"""Bytes of a uid that name the bus of events which gateways count. The next two are of the gateway, the last two of the
node: a gateway that was started again counts anew, and its events are no copies of those before."""

Key = tuple[bytes, str, int]


def node_of(uid: bytes) -> bytes:
    """Return the bus and the node in the uid of events which gateways count, whoever counted them."""
    return uid[:PREFIX_BYTES] + uid[-2:]


def key_of(arrival: Arrival) -> Key:
    """Return what identifies an event: the uid of its origin, its line, and its number."""
    return arrival.origin.uid, line_of(arrival), arrival.origin.number


class HeldEvent:
    """State: an event that was heard, and the sides to which it has not been seen to cross."""

    __slots__ = ("arrival", "at", "side", "targets")

    def __init__(self, side: int, arrival: Arrival, targets: set[int], at: float) -> None:
        self.side, self.arrival, self.targets, self.at = side, arrival, targets, at


class StandbyBuffer:
    """State: the events that a standby would have to forward."""

    def __init__(self) -> None:
        self._held: OrderedDict[Key, HeldEvent] = OrderedDict()
        self._early: dict[tuple[bytes, str], deque[Arrival]] = {}
        self._copies: deque[tuple[float, int, Event]] = deque(maxlen=MAX_EARLY)
        """Events that the active gateway sent on a side before they were heard here."""
        self.unconfirmed = 0
        """Events that were not seen to cross in time, or that found no room."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, side: int, arrival: Arrival, targets: set[int], now: float) -> None:
        """Keep an event, unless it was seen to cross already; it may push out the oldest."""
        targets = {target for target in targets if not self._take_copy(arrival.event, target, now)}
        if not targets:
            return
        self._held[key_of(arrival)] = HeldEvent(side, arrival, targets, now)
        if len(self._held) > MAX_HELD:
            self._held.popitem(last=False)
            self.unconfirmed += 1

    def heard_again(self, arrival: Arrival, side: int) -> None:
        """An event was heard on another side too: it need not be forwarded there."""
        key = key_of(arrival)
        held = self._held.get(key)
        if held is not None:
            held.targets.discard(side)
            if not held.targets:
                del self._held[key]

    def heard_copy(self, event: Event, side: int, now: float) -> None:
        """An event without origin was sent on a side by the active gateway: the oldest equal one has crossed."""
        for held in self._held.values():
            if side in held.targets and held.arrival.event == event:
                self.heard_again(held.arrival, side)
                return
        self._copies.append((now, side, event))

    def _take_copy(self, event: Event, side: int, now: float) -> bool:
        """Return whether an event was seen to cross shortly before."""
        for copy in self._copies:
            if copy[1] == side and copy[2] == event and now - copy[0] < EARLY_S:
                self._copies.remove(copy)
                return True
        return False

    # -- numbers of events that gateways count -----------------------------------------------------------------------

    def align(self, crossed: Arrival, side: int) -> int | None:
        """Return the difference between the number of an event that crossed and the number that it has here.

        None if it was not heard here yet; it is then kept for `find_early`.
        """
        node, name = node_of(crossed.origin.uid), name_of(type(crossed.event))
        known = self._held.get(key_of(crossed))
        same = [known] if known is not None and known.arrival.event == crossed.event else []
        equal = (one for one in self._held.values() if one.arrival.event == crossed.event)
        for held in same or equal:
            before = held.arrival.origin
            if node_of(before.uid) == node:
                offset = (crossed.origin.number - before.number) % NUMBERS
                if offset or before.uid != crossed.origin.uid:
                    self._renumber(node, name, crossed.origin.uid, offset)
                self.heard_again(crossed, side)
                return offset
        self._early.setdefault((node, name), deque(maxlen=MAX_EARLY)).append(crossed)
        return None

    def _renumber(self, node: bytes, name: str, uid: bytes, offset: int) -> None:
        """Give the events of a node and type, that are kept, the numbers of the active gateway; the order stays."""
        held = list(self._held.values())
        self._held.clear()
        for each in held:
            if node_of(each.arrival.origin.uid) == node and name_of(type(each.arrival.event)) == name:
                each.arrival = renumbered(each.arrival, uid, offset)
            self._held[key_of(each.arrival)] = each

    def find_early(self, arrival: Arrival) -> tuple[bytes, int] | None:
        """Return the uid of an event that was seen to cross before it was heard, and the difference of numbers."""
        waiting = self._early.get((node_of(arrival.origin.uid), name_of(type(arrival.event))))
        for crossed in list(waiting or ()):
            if crossed.event == arrival.event and waiting is not None:
                while waiting.popleft() is not crossed:
                    pass
                return crossed.origin.uid, (crossed.origin.number - arrival.origin.number) % NUMBERS
        return None

    # -- time --------------------------------------------------------------------------------------------------------

    def drop_old(self, now: float) -> None:
        """Forget what was not seen to cross for a long time."""
        while self._held and (first := next(iter(self._held.values()))).at + HELD_S <= now:
            del self._held[key_of(first.arrival)]
            self.unconfirmed += 1

    def take(self) -> list[HeldEvent]:
        """All that is kept, the oldest first; then nothing is."""
        found = list(self._held.values())
        self._held.clear()
        self._early.clear()
        self._copies.clear()
        return found


def renumbered(arrival: Arrival, uid: bytes, offset: int) -> Arrival:
    origin = arrival.origin
    return replace(arrival, origin=Origin(uid, (origin.number + offset) % NUMBERS, origin.hops))


TAKEOVER_S = 0.05
"""How long after the active gateway is gone the next one waits for what was still on its way."""
SETTLE_S = 1.0
"""How long a new gateway that has a name waits for the tokens of others, before it may be the active one."""
SILENT_S = 3.0
"""How long a gateway may say nothing before it is taken for gone, whatever token there is."""
ASLEEP_S = 1.0
"""Who was not asked for this long has slept, and could not hear the others."""


class Election:
    """State: the gateways of the same name, on which sides their tokens are, and when they were last heard there."""

    def __init__(self, uid: str, sides: Collection[int], heard_on: Collection[int], settled_at: float | None) -> None:
        self._uid = uid
        self._settled_at = settled_at
        """When the tokens of others must have come; None: there is no election."""
        self._sides, self._heard_on = set(sides), set(heard_on)
        self._down: set[int] = set()
        self._seen: dict[str, dict[int, float]] = {}
        """By uid and side: when another gateway was heard, since its token is there."""
        self._asked_at = settled_at or 0.0
        self._has_rival = False
        self._won_at = settled_at if settled_at is not None else 0.0
        """When the election is won at the earliest."""

    def token(self, side: int, uid: str, is_present: bool) -> None:
        """The token of another gateway appeared on a side, or is gone."""
        seen = self._seen.setdefault(uid, {})
        if is_present:
            seen.setdefault(side, -inf if side in self._heard_on else inf)
        else:
            seen.pop(side, None)
        if not seen:
            del self._seen[uid]

    def hear(self, side: int, uid: str, now: float) -> None:
        """Another gateway says on a side that it works; without a token that counts for nothing."""
        if side in self._seen.get(uid, ()):
            self._seen[uid][side] = now

    def connected(self, side: int, is_connected: bool) -> None:
        """A side was connected, or is not any more."""
        (self._down.discard if is_connected else self._down.add)(side)

    def is_won(self, now: float) -> bool:
        """Return whether no gateway with a lower uid works between all sides that this one is connected to."""
        if self._settled_at is None:
            return True
        if now - self._asked_at > ASLEEP_S:
            self._forgive(now - self._asked_at)
        self._asked_at = max(now, self._asked_at)
        had_rival = self._has_rival
        self._has_rival = any(uid < self._uid and self._works(seen, now) for uid, seen in self._seen.items())
        if had_rival and not self._has_rival:
            self._won_at = max(self._won_at, now + TAKEOVER_S)
        return not self._has_rival and now >= self._won_at and not self._may_have_rival(now, self._settled_at)

    def _works(self, seen: dict[int, float], now: float) -> bool:
        return all(now - seen.get(side, -inf) < SILENT_S for side in self._sides - self._down)

    def _may_have_rival(self, now: float, settled_at: float) -> bool:
        """Return whether this gateway is new, and there is a token of one that it has not heard yet: it may be slow."""
        is_new = now < settled_at - SETTLE_S + SILENT_S
        return is_new and any(
            uid < self._uid and self._sides - self._down <= {*seen} for uid, seen in self._seen.items()
        )

    def _forgive(self, slept_s: float) -> None:
        """Take the others for silent by so much less: what they said meanwhile was not heard yet."""
        self._seen = {uid: {side: at + slept_s for side, at in seen.items()} for uid, seen in self._seen.items()}

    def wake_at(self, now: float) -> float | None:
        """When the election is won without further news."""
        is_open = self._settled_at is not None and not self._has_rival and now < self._won_at
        return self._won_at if is_open else None
