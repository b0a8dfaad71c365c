"""What a standby gateway keeps: events that it heard on one side, until they are seen to have crossed to the other.

If the active gateway dies, these are what may not have crossed. Events of a CAN bus have no number: every gateway
counts them itself. A standby takes the numbers of the active one from what it sees cross, so that an event which both
forward is recognised as the same.
"""

from collections import OrderedDict, deque

from msgspec.structs import replace

from genus.model import Event, name_of
from genus.net._envelope import NUMBERS, Origin
from genus.net._gateway.window import line_of
from genus.net._relay import Arrival

MOST_HELD = 10_000
HELD_S = 30.0
"""How long an event is kept that was not seen to cross; a dead gateway is found out earlier on any network."""
MOST_EARLY = 64

Key = tuple[bytes, str, int]


def key_of(arrival: Arrival) -> Key:
    """What identifies an event: the uid of its origin, its line, and its number."""
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
        self.unconfirmed = 0
        """Events that were not seen to cross in time, or that found no room."""

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, side: int, arrival: Arrival, targets: set[int], now: float) -> None:
        """Keep an event; it may push out the oldest."""
        self._held[key_of(arrival)] = HeldEvent(side, arrival, targets, now)
        if len(self._held) > MOST_HELD:
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

    def heard_copy(self, event: Event, side: int) -> None:
        """An event without origin was sent on a side by the active gateway: the oldest equal one has crossed."""
        for held in self._held.values():
            if side in held.targets and held.arrival.event == event:
                self.heard_again(held.arrival, side)
                return

    # -- numbers of events that gateways count -----------------------------------------------------------------------

    def align(self, crossed: Arrival, side: int) -> int | None:
        """The difference between the number of an event that crossed and the number that it has here.

        None if it was not heard here yet; it is then kept for `find_early`.
        """
        uid, name = crossed.origin.uid, name_of(type(crossed.event))
        known = self._held.get(key_of(crossed))
        same = [known] if known is not None and known.arrival.event == crossed.event else []
        equal = (one for one in self._held.values() if one.arrival.event == crossed.event)
        for held in same or equal:
            if held.arrival.origin.uid == uid:
                offset = (crossed.origin.number - held.arrival.origin.number) % NUMBERS
                self._renumber(uid, name, offset)
                self.heard_again(crossed, side)
                return offset
        self._early.setdefault((uid, name), deque(maxlen=MOST_EARLY)).append(crossed)
        return None

    def _renumber(self, uid: bytes, name: str, offset: int) -> None:
        """Give the events of an origin and type, that are kept, the numbers of the active gateway; the order stays."""
        if offset:
            held = list(self._held.values())
            self._held.clear()
            for each in held:
                if each.arrival.origin.uid == uid and name_of(type(each.arrival.event)) == name:
                    each.arrival = renumbered(each.arrival, offset)
                self._held[key_of(each.arrival)] = each

    def find_early(self, arrival: Arrival) -> int | None:
        """The difference of numbers of an event that was seen to cross before it was heard; None if it was not."""
        waiting = self._early.get((arrival.origin.uid, name_of(type(arrival.event))))
        for crossed in list(waiting or ()):
            if crossed.event == arrival.event and waiting is not None:
                while waiting.popleft() is not crossed:
                    pass
                return (crossed.origin.number - arrival.origin.number) % NUMBERS
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
        return found


def renumbered(arrival: Arrival, offset: int) -> Arrival:
    """The same event with another number."""
    origin = arrival.origin
    return replace(arrival, origin=Origin(origin.uid, (origin.number + offset) % NUMBERS, origin.hops))
