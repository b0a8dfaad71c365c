"""Worst-case response times under fixed priorities, without preemption within a frame.

After R. I. Davis, A. Burns, R. J. Bril, J. J. Lukkien, "Controller Area Network (CAN) schedulability analysis: Refuted,
revisited and revised", Real-Time Systems 35 (2007): the worst case is found among all events of the busy period, not at
its first event only. Extended to events of several frames, between which more urgent ones go first, and by what hard
slots and errors take. Response times count from the instant an event is queued; Davis et al. add the jitter.

It assumes that of a node's frames the one with the smallest identifier competes for the bus.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from genus.can._plan.interference import ENDLESS, LONGEST_BUSY_NS, BusErrors, HardTime
from genus.can._plan.system import System
from genus.can._wire.frame import BROKER_NODE, CLASSIC_BYTES, Identifier, Priority, ProtocolEtag

NO_HARD = HardTime((), 0)
NO_ERRORS = BusErrors(None, 0)


class Message(msgspec.Struct, frozen=True):
    """A stream of events: the smaller its `rank` the more urgent; `length` is the bus time of an event.

    An event of several frames says how long the longest and the last of them are; without that it has one frame.
    """

    name: str
    rank: int
    length: int
    period: int
    jitter: int = 0
    longest_frame: int = 0
    last_frame: int = 0

    @property
    def blocking(self) -> int:
        """How long it keeps a more urgent one from the bus."""
        return self.longest_frame or self.length

    @property
    def last(self) -> int:
        """The part that nothing can interrupt any more."""
        return self.last_frame or self.length

    def work(self, window: int) -> int:
        """The bus time of the events that can be queued in a window, both ends included."""
        return ((window + self.jitter) // self.period + 1) * self.length


def response_times(
    messages: Iterable[Message], hard: HardTime = NO_HARD, errors: BusErrors = NO_ERRORS
) -> dict[str, int | None]:
    """The response time of every message; None where there is no bound.

    >>> table = [("A", 2_500), ("B", 3_500), ("C", 3_500)]  # the example of Davis et al., in microseconds
    >>> response_times(Message(name, rank, 1_000, period) for rank, (name, period) in enumerate(table))
    {'A': 2000, 'B': 3000, 'C': 3500}
    """
    everything = sorted(messages, key=lambda message: message.rank)
    return {
        message.name: response_time(message, everything[:place], everything[place + 1 :], hard, errors)
        for place, message in enumerate(everything)
    }


def response_time(
    message: Message,
    above: Sequence[Message],
    below: Sequence[Message],
    hard: HardTime = NO_HARD,
    errors: BusErrors = NO_ERRORS,
) -> int | None:
    """The longest that an event takes from being queued to the end of its last frame; None if there is no bound."""
    blocked = max((other.blocking for other in below), default=0)
    contest = _Contest(message, above, blocked, hard, errors)
    busy = contest.busy_period()
    if busy is None:
        return None
    worst, waited = 0, 0
    for earlier in range((busy - 1 + message.jitter) // message.period + 1):
        waited = contest.start_of_last_frame(earlier, waited)
        queued = max(0, earlier * message.period - message.jitter)
        worst = max(worst, waited + message.last - queued)
    return worst


class _Contest(msgspec.Struct, frozen=True):
    """A message and all that keeps it from the bus, from the instant on at which all of it comes at once."""

    message: Message
    above: Sequence[Message]
    blocked: int
    hard: HardTime
    errors: BusErrors

    @property
    def repeated(self) -> int:
        """The longest frame that an error makes wait again."""
        return max(each.blocking for each in (self.message, *self.above))

    def taken(self, window: int) -> int:
        """The bus time that others take from an event that waits so long."""
        more_urgent = sum(other.work(window) for other in self.above)
        errors = self.errors.within(window + self.message.last, self.repeated)
        return self.blocked + more_urgent + self.hard.within(window) + errors

    def busy_period(self) -> int | None:
        """How long the message and those above keep the bus busy; None if for ever."""
        rate = sum(each.length / each.period for each in (self.message, *self.above))
        if rate + self.hard.rate + self.errors.rate(self.repeated) >= ENDLESS:
            return None
        busy = self.blocked + self.message.length
        while busy < (longer := self.taken(busy - 1) + self.message.work(busy - 1)):
            busy = longer
            if busy > LONGEST_BUSY_NS:
                return None
        return busy

    def start_of_last_frame(self, earlier: int, at_least: int) -> int:
        """When the last frame of an event starts before which so many of its own were queued."""
        own = (earlier + 1) * self.message.length - self.message.last
        waited = max(at_least, self.blocked + own)
        while waited < (longer := own + self.taken(waited)):
            waited = longer
        return waited


# The middleware's own traffic on a bus: clock synchronisation, claims and reports, as messages of fixed priority.
#
# It stands between soft events and those without a deadline. Configuration and binding are not counted: they come when
# nodes join, and no bound is known for how often that is.


HEARTBEAT_NS = 800_000_000
"""Claims and the broker's heartbeat come once a second, up to 200 ms earlier, so that senders do not stay in step."""

REPORT_NS = 1_000_000_000
"""How often a publisher tells of each channel how many events it sent."""


def own_messages(system: System) -> list[Message]:
    """The messages of the middleware in a system; none if it says that there is no such traffic."""
    if not system.bus.middleware:
        return []
    length = system.bus.timing.worst_case_ns(CLASSIC_BYTES)
    return [Message(name, rank, length, period) for name, rank, period in _streams(system)]


def _streams(system: System) -> Iterator[tuple[str, int, int]]:
    """Name, rank and period of each stream; what does not come from a certain node is the broker's."""
    yield "sync", _rank(BROKER_NODE, ProtocolEtag.SYNC), system.bus.sync_period_ns
    yield "follow-up", _rank(BROKER_NODE, ProtocolEtag.FOLLOW_UP), system.bus.sync_period_ns
    yield "broker", _rank(BROKER_NODE, ProtocolEtag.BROKER), HEARTBEAT_NS
    for name, number in system.nodes.items():
        yield f"claim of {name}", _rank(number, ProtocolEtag.CLAIM), HEARTBEAT_NS
    for channel in system.channels:
        yield f"report of {channel.name}", _rank(channel.number, ProtocolEtag.REPORT), REPORT_NS


def _rank(number: int, tag: ProtocolEtag) -> int:
    return Identifier(Priority.SYSTEM, number, tag).pack()
