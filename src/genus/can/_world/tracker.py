"""What becomes of every event of a channel, from the program that publishes it to each node that gets it.

An event is recognised by its bytes on the bus (event tag and payload, without the sequence number): programs, frames
and deliveries are observed independently of each other, and compared. Equal events are told apart by their order.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import msgspec

from genus._spread import Spread
from genus.bus import Hard, Soft
from genus.bus.types import QoS
from genus.can._node.problems import (
    DeadlineMissed,
    DeliveryProblem,
    EventMissing,
    EventsLost,
    Expired,
    MaybeSent,
    NotSent,
)
from genus.can._plan.calendar import Slot
from genus.can._sim.trace import make_room
from genus.can._wire.payload import PayloadCodec
from genus.model import Event, nanoseconds

REMEMBERED = 4096
"""How many finished events of a channel are remembered."""
RECENT = 64
"""How many of the last sent events are looked at for those that are not delivered yet."""
SEQUENCE_MASK = 0x1F
"""The bits of the first byte of a payload that are not the sequence number."""

Key: TypeAlias = bytes
"""Event tag and payload of an event, as bytes, which are hashed once."""
ReceiversOf: TypeAlias = Callable[[Event], Iterable[str]]
"""The nodes with a subscription that matches an event."""


def key_of(etag: int, payload: bytes) -> Key:
    """What an event is recognised by: without sequence number, and without the zeros that fill up a CAN FD frame."""
    return (etag << 8 | payload[0] & SEQUENCE_MASK).to_bytes(3, "big") + payload[1:].rstrip(b"\0")


class Window(msgspec.Struct):
    """State: the time in which hard slots are expected to be used, in the bus's time."""

    begin_ns: int = 0
    end_ns: int = 1 << 63

    def holds(self, start_ns: int, deadline_ns: int) -> bool:
        return self.begin_ns <= start_ns and deadline_ns <= self.end_ns


class EventRecord(NamedTuple):
    """An event of a soft or other channel: when it was published, sent and due, in virtual nanoseconds."""

    channel: str
    published_ns: int
    sent_ns: int | None
    deadline_ns: int | None
    given_up_ns: int | None = None
    """When it was given up, as it had expired or could not be sent."""

    @property
    def ended_ns(self) -> int | None:
        """When it was sent or given up; None while it waits."""
        return self.given_up_ns if self.sent_ns is None else self.sent_ns


class _Flight(msgspec.Struct, eq=False, gc=False):
    event: Event
    key: Key
    node: str
    """The node that published it."""
    published_ns: int
    due_ns: int
    """The deadline of a hard event, in the bus's time."""
    sent_ns: int | None = None
    is_missed: bool = False
    """Whether its publisher was told that it missed its deadline."""
    receivers: tuple[str, ...] = ()
    """The nodes with a subscription that matches it, once it is sent."""
    delivered: tuple[str, ...] = ()


class ChannelTracker:
    """State: the events of one channel, and their counters.

    Every event that was published is `waiting`, or `sent`, `not_sent`, `expired`, `replaced`, `abandoned` or `unknown`.
    """

    def __init__(
        self,
        name: str,
        node: str,
        event: str,
        qos: QoS,
        layout: PayloadCodec,
        etag: int,
        slot: Slot | None,
        *,
        most: int | None,
    ) -> None:
        self.name = name
        self.node = node
        self.event = event
        self.qos = qos
        self.is_hard = isinstance(qos, Hard)
        self.slot = slot
        self.etag = etag
        self._layout = layout
        self._most = most
        """How many records are kept; None: all of them."""
        self._last_sent_ns: int | None = None
        self._deadline_ns = nanoseconds(qos.deadline) if isinstance(qos, Soft) else None
        self._under_way: dict[Key, list[_Flight]] = {}
        self._finished: dict[Key, list[tuple[_Flight, int]]] = {}
        self._order: deque[Key] = deque()
        self._recent: deque[_Flight] = deque(maxlen=RECENT)
        """The last events that were sent."""
        self._newest: dict[str, _Flight] = {}
        """Hard channels: the last event that each node published."""
        self.published = self.sent = self.not_sent = self.expired = self.replaced = self.abandoned = self.unknown = 0
        self.missed = self.refused = self.overran = self.sent_expired = self.duplicates = self.late = self.filtered = 0
        self.total_ns = self.worst_ns = self.worst_lateness_ns = 0
        self.intervals = Spread()
        """The time between two sent events, in nanoseconds."""
        self.wanted: Counter[str] = Counter()
        """Sent events that a subscription of a node matches, by node."""
        self.delivered: Counter[str] = Counter()
        self.alarms: Counter[str] = Counter()
        self.reported_lost: Counter[str] = Counter()
        self.records: list[EventRecord] = []

    @property
    def waiting(self) -> int:
        """How many events were published, and nothing became of them yet."""
        return sum(map(len, list(self._under_way.values())))

    def key(self, event: Event) -> Key:
        """Return what an event of this channel is recognised by on the bus."""
        bits, payload = self._layout.encode(event, 0)
        return key_of(self.etag | bits, payload)

    # -- at the publisher --------------------------------------------------------------------------------------------

    def event_published(
        self, node: str, event: Event, key: Key, now: int, bus_time: Callable[[int], int], *, replaces: bool
    ) -> None:
        """A program published an event; `replaces` the last one of its node, which waited for its slot."""
        self.published += 1
        due_ns = 0
        if self.slot is not None:
            due_ns = self.slot.next_start(bus_time(now)).deadline_ns
            if replaces:
                self.replaced += self._settle(self._newest[node], now)
        flight = _Flight(event, key, node, now, due_ns)
        if self.slot is not None:
            self._newest[node] = flight
        self._under_way.setdefault(key, []).append(flight)

    def publisher_informed(self, problem: DeliveryProblem, now: int) -> None:
        """A publisher got a problem; all publishers of a node get those of its events."""
        if not isinstance(problem, DeadlineMissed | Expired | MaybeSent | NotSent):
            return
        key = self.key(problem.event)
        known = (*self._under_way.get(key, ()), *(flight for flight, _ in self._finished.get(key, ())))
        flight = next((each for each in known if each.event is problem.event), None)
        if flight is None:
            return
        if isinstance(problem, DeadlineMissed):
            self.missed += not flight.is_missed
            flight.is_missed = True
        elif isinstance(problem, Expired):
            self.expired += self._settle(flight, now)
        elif isinstance(problem, MaybeSent):
            self.unknown += self._settle(flight, now)
        else:
            self.not_sent += self._settle(flight, now)

    def node_left(self, node: str, now: int) -> None:
        """A node crashed or was switched off, with the events that waited in it."""
        waiting = [flight for flights in self._under_way.values() for flight in flights if flight.node == node]
        self.abandoned += sum(self._settle(flight, now) for flight in waiting)

    def _settle(self, flight: _Flight, now: int) -> bool:
        """An event is not waited for any more; False if it was not, as it was given up or sent before."""
        flights = self._under_way.get(flight.key)
        if flights is None or flight not in flights:
            return False
        flights.remove(flight)
        if not flights:
            del self._under_way[flight.key]
        self._finished.setdefault(flight.key, []).append((flight, now))
        self._order.append(flight.key)
        if self._most != 0 and not self.is_hard:
            make_room(self.records, self._most)
            self.records.append(self._record_of(flight, now))
        if len(self._order) > REMEMBERED:
            oldest = self._order.popleft()
            del self._finished[oldest][0]
            if not self._finished[oldest]:
                del self._finished[oldest]
        return True

    # -- on the bus --------------------------------------------------------------------------------------------------

    def event_on_bus(
        self, key: Key, start_ns: int, end_ns: int, bus_time: Callable[[int], int], receivers_of: ReceiversOf
    ) -> None:
        """All frames of an event were sent, the last one in this time."""
        if key not in self._under_way:
            return self._sent_after_end(key, start_ns, receivers_of)
        flight = self._under_way[key][0]
        flight.sent_ns = end_ns
        if self._last_sent_ns is not None:
            self.intervals.add(end_ns - self._last_sent_ns)
        self._last_sent_ns = end_ns
        if self.slot is None:
            self._responded(end_ns - flight.published_ns)
        else:
            ended = bus_time(end_ns)
            start, flight.due_ns = self.slot.next_start(ended - self.slot.period_ns + 1)  # the last one before
            self._responded(ended - start)
        self.sent += 1
        flight.receivers = tuple(receivers_of(flight.event))
        self._recent.append(flight)  # before it is counted, so that another thread never takes it for lost
        for name in flight.receivers:
            self.wanted[name] += 1
        self._settle(flight, end_ns)

    def _responded(self, response_ns: int) -> None:
        self.total_ns += response_ns
        self.worst_ns = max(self.worst_ns, response_ns)

    def _sent_after_end(self, key: Key, start_ns: int, receivers_of: ReceiversOf) -> None:
        """An event that was given up was sent: its last frame was on the wire then, or should not have been sent."""
        for flight, ended_ns in reversed(self._finished.get(key, ())):  # of equal events the last one
            if flight.sent_ns is None:
                flight.sent_ns = start_ns
                if start_ns > ended_ns:
                    self.sent_expired += 1
                else:
                    self.overran += 1
                    self.wanted.update(receivers_of(flight.event))
                return

    def _record_of(self, flight: _Flight, ended_ns: int | None = None) -> EventRecord:
        deadline = None if self._deadline_ns is None else flight.published_ns + self._deadline_ns
        given_up = ended_ns if flight.sent_ns is None else None
        return EventRecord(self.name, flight.published_ns, flight.sent_ns, deadline, given_up)

    # -- at a subscriber ---------------------------------------------------------------------------------------------

    def event_delivered(self, subscriber: str, key: Key, bus_now: int) -> bool:
        """Note that a node got an event; return whether it is one of this channel that the node had not got yet.

        An event may be received before it counts as sent: if its last frame fails at the last bit and is repeated.
        """
        alike = (*(flight for flight, _ in self._finished.get(key, ())), *self._under_way.get(key, ()))
        flights = [flight for flight in alike if subscriber not in flight.delivered]
        if not flights:
            return False
        flight = flights[0]
        if self.slot is not None:  # of equal events the one that is due, not one that was given up long ago
            flight = min(flights, key=lambda each: abs(each.due_ns - bus_now))
            self._check_instant(bus_now - flight.due_ns)
        self.delivered[subscriber] += 1
        flight.delivered += (subscriber,)
        return True

    def _check_instant(self, lateness: int) -> None:
        """A hard event is delivered at its deadline; the error of a clock shows in half the gap at most."""
        assert self.slot is not None
        self.worst_lateness_ns = max(self.worst_lateness_ns, abs(lateness))
        self.late += abs(lateness) > self.slot.gap_ns // 2

    def knows(self, key: Key) -> bool:
        return key in self._finished

    def subscriber_informed(self, subscriber: str, problem: EventMissing | EventsLost) -> None:
        if isinstance(problem, EventMissing):
            self.alarms[subscriber] += 1
        else:
            self.reported_lost[subscriber] += problem.count

    def is_due_at(self, deadline_ns: int) -> bool:
        """Return whether a deadline is one of the channel's slot."""
        return self.slot is not None and (deadline_ns - self.slot.deadline_ns) % self.slot.period_ns == 0

    def coming(self, now: int) -> Counter[str]:
        """Sent events that are to be delivered, by node: at this instant, or at the end of their hard slot."""
        waits_ns = 0 if self.slot is None else self.slot.length_ns + self.slot.gap_ns
        found: Counter[str] = Counter()
        for flight in reversed(list(self._recent)):
            if flight.sent_ns is None or flight.sent_ns + waits_ns < now:
                break
            found.update(name for name in flight.receivers if name not in flight.delivered)
        return found

    def records_within(self, start_ns: int, end_ns: int) -> list[EventRecord]:
        """Return the events that were published before the end of a span, and not sent or given up before its start."""
        found = [record for record in self.unsent_records() if record.published_ns < end_ns]
        for record in reversed(list(self.records)):  # in the order in which they ended
            if record.ended_ns is not None and record.ended_ns <= start_ns:
                break
            if record.published_ns < end_ns:
                found.append(record)
        return found

    def unsent_records(self) -> list[EventRecord]:
        """Events of a soft or other channel that wait to be sent."""
        if self.is_hard:
            return []
        return [self._record_of(flight) for flights in list(self._under_way.values()) for flight in list(flights)]
