"""Worst-case response times under fixed priorities, with frames that cannot be preempted.

After R. I. Davis, A. Burns, R. J. Bril, J. J. Lukkien, "Controller Area Network (CAN) schedulability analysis: Refuted,
revisited and revised", Real-Time Systems 35 (2007): the worst case is searched among all events of the busy period, not
only its first. Extended by events of several frames, between which events of higher priority are sent, and by the
interference of hard slots and errors. Response times count from the instant at which an event is queued; Davis et al.
add the jitter.

It assumes that of a node's frames the one with the smallest identifier competes for the bus.

The middleware's own frames (clock synchronisation, claims and reports) are messages of fixed priority, between soft
events and those without a deadline. Configuration and binding are not counted: they are used when nodes join, which has
no bound.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from genus.can._plan.interference import MAX_BUSY_NS, OVERLOAD, ErrorInterference, HardInterference, Message
from genus.can._plan.system import System
from genus.can._wire.frame import BROKER_NODE, CLASSIC_BYTES, Identifier, Priority, ProtocolEtag

NO_HARD = HardInterference((), 0)
NO_ERRORS = ErrorInterference(None, 0)


def response_time(
    message: Message,
    above: Sequence[Message],
    below: Sequence[Message],
    hard: HardInterference = NO_HARD,
    errors: ErrorInterference = NO_ERRORS,
) -> int | None:
    """Return the longest time from an event's queueing to the end of its last frame; None if it has no bound."""
    blocked = max((other.blocking for other in below), default=0)
    competition = _Competition(message, above, blocked, hard, errors)
    busy = competition.busy_period()
    if busy is None:
        return None
    worst, waited = 0, 0
    for earlier in range((busy - 1 + message.jitter) // message.period + 1):
        waited = competition.start_of_last_frame(earlier, waited)
        queued = max(0, earlier * message.period - message.jitter)
        worst = max(worst, waited + message.last - queued)
    return worst


class _Competition(msgspec.Struct, frozen=True, dict=True):
    """A message and everything that delays it, from the critical instant, when all of it arrives at once."""

    message: Message
    above: Sequence[Message]
    blocked: int
    hard: HardInterference
    errors: ErrorInterference

    @cached_property
    def repeated(self) -> int:
        """The longest frame that is repeated after an error."""
        return max(each.blocking for each in (self.message, *self.above))

    def interference(self, window: int) -> int:
        """Return the bus time of other traffic while an event waits for `window`."""
        more_urgent = sum(other.work(window) for other in self.above)
        errors = self.errors.within(window + self.message.last, self.repeated)
        return self.blocked + more_urgent + self.hard.within(window) + errors

    def busy_period(self) -> int | None:
        """Return how long the message and those of higher priority keep the bus busy; None if without bound."""
        rate = sum(each.length / each.period for each in (self.message, *self.above))
        if rate + self.hard.rate + self.errors.rate(self.repeated) >= OVERLOAD:
            return None
        busy = self.blocked + self.message.length
        while busy < (longer := self.interference(busy - 1) + self.message.work(busy - 1)):
            busy = longer
            if busy > MAX_BUSY_NS:
                return None
        return busy

    def start_of_last_frame(self, earlier: int, at_least: int) -> int:
        """Return the start of the last frame of an event that was queued after `earlier` events of its own."""
        own = (earlier + 1) * self.message.length - self.message.last
        waited = max(at_least, self.blocked + own)
        while waited < (longer := own + self.interference(waited)):
            waited = longer
        return waited


def foreign_messages(system: System) -> list[Message]:
    """Return the messages of other makers in a system, as far as it is known how often they come."""
    return [
        Message(frame.name, frame.rank, (frame.time_ns(system.bus),), frame.period_ns, frame.jitter_ns)
        for frame in system.foreign
        if frame.period_ns is not None
    ]


HEARTBEAT_NS = 800_000_000
"""The least time between two claims or heartbeats of the broker: a second, less 200 ms of random jitter."""

REPORT_NS = 1_000_000_000
"""The time between two reports of a channel."""


def middleware_messages(system: System) -> list[Message]:
    """Return the messages of the middleware in a system; none if its bus is without middleware."""
    if not system.bus.middleware:
        return []
    length = system.bus.timing.worst_case_ns(CLASSIC_BYTES)
    return [Message(name, rank, (length,), period) for name, rank, period in _streams(system)]


def _streams(system: System) -> Iterator[tuple[str, int, int]]:
    """Name, rank and period of each stream; streams of no certain node are counted as the broker's."""
    yield "sync", _rank(BROKER_NODE, ProtocolEtag.SYNC), system.bus.sync_period_ns
    yield "follow-up", _rank(BROKER_NODE, ProtocolEtag.FOLLOW_UP), system.bus.sync_period_ns
    yield "broker", _rank(BROKER_NODE, ProtocolEtag.BROKER), HEARTBEAT_NS
    for name, number in system.nodes.items():
        yield f"claim of {name}", _rank(number, ProtocolEtag.CLAIM), HEARTBEAT_NS
    for channel in system.channels:
        yield f"report of {channel.name}", _rank(channel.number, ProtocolEtag.REPORT), REPORT_NS


def _rank(number: int, etag: ProtocolEtag) -> int:
    return Identifier(Priority.SYSTEM, number, etag).pack()
