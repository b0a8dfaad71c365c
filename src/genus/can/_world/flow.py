"""What becomes of every event of a channel, from the program that publishes it to each program that gets it."""

from collections import Counter
from collections.abc import Callable
from itertools import count

from genus.can._node.troubles import DeadlineMissed, EventMissing, EventsLost, Expired, NotSent, Trouble
from genus.can._plan.calendar import Slot
from genus.can._plan.system import ChannelSpec
from genus.can._wire.segments import FIRST, LAST
from genus.can._world.stand_ins import StandIn, number_of
from genus.model import Event

REMEMBERED = 4096
"""How many of the latest events of a channel are remembered."""


class Flow:
    """State: the events of one channel on their way, and what was counted.

    Numbers of events that several nodes publish are `share` apart and begin with `place`, so that they tell who did.
    """

    def __init__(
        self, channel: ChannelSpec, stand_in: StandIn, slot: Slot | None, place: int = 0, share: int = 1
    ) -> None:
        self.channel = channel
        self.slot = slot
        self.cls = stand_in.cls
        self._stand_in = stand_in
        self._place, self._share = place, share
        self._round = (1 << 8 * stand_in.width) // share
        self._numbers = count()
        self._under_way: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._last: dict[str, int] = {}
        self._sending = 0
        self.due: dict[int, int] = {}
        """The deadline of each hard event, by the bus's clock."""
        self.published = self.sent = self.missed = self.expired = self.not_sent = self.refused = 0
        self.overran = self.sent_expired = self.duplicates = self.late = 0
        self.total_ns = self.worst_ns = self.worst_lateness_ns = 0
        self.delivered: Counter[str] = Counter()
        self.alarms: Counter[str] = Counter()
        self.told_lost: Counter[str] = Counter()

    @property
    def can_be_announced(self) -> bool:
        """A hard channel that found no room in the calendar cannot."""
        return self.channel.qos_class != "hard" or self.slot is not None

    @property
    def waiting(self) -> int:
        """How many events were published and neither sent nor given up."""
        return len(self._under_way)

    # At the publisher

    def next_event(self) -> tuple[int, Event]:
        """The event to publish next, and its number."""
        number = next(self._numbers) % self._round * self._share + self._place
        return number, self._stand_in.make(number)

    def was_published(self, number: int, now: int, due: int | None = None) -> None:
        """It was, at this instant of virtual time; a hard one for a slot with this deadline."""
        self.published += 1
        self._under_way[number] = now
        self._ended.pop(number, None)
        if due is not None:
            _remember(self.due, number, due)

    def take_back(self, number: int) -> None:
        """An event that was not taken is not under way."""
        self.published -= 1
        self._under_way.pop(number, None)

    def publisher_told(self, trouble: Trouble, now: int) -> None:
        """The publisher heard of something."""
        if isinstance(trouble, DeadlineMissed):
            self.missed += 1
        elif isinstance(trouble, Expired):
            self.expired += 1
            self._end(trouble.event, now)
        elif isinstance(trouble, NotSent):
            self.not_sent += 1
            self._end(trouble.event, now)

    def _end(self, event: Event, now: int) -> None:
        number = number_of(event)
        self._under_way.pop(number, None)
        _remember(self._ended, number, now)

    # On the bus

    def frame_went(self, data: bytes, start_ns: int, end_ns: int, bus_time: Callable[[int], int]) -> None:
        """A frame of the channel went through."""
        segmented = self.channel.segmented or self.channel.frames > 1
        if not segmented or data[-1] & FIRST:
            self._sending = self._stand_in.number_in(data)
        if segmented and not data[-1] & LAST:
            return
        number = self._sending
        published = self._under_way.pop(number, None)
        if published is None:
            self._went_after_its_end(number, start_ns)
        elif self.slot is None:
            self._responded(end_ns - published)
        else:
            self._responded(bus_time(end_ns) - (self.due[number] - self.slot.length_ns))

    def _responded(self, response_ns: int) -> None:
        self.sent += 1
        self.total_ns += response_ns
        self.worst_ns = max(self.worst_ns, response_ns)

    def _went_after_its_end(self, number: int, start_ns: int) -> None:
        """An event that was given up went through: its last frame was on the wire then, or should not have been."""
        if start_ns > self._ended.get(number, start_ns):
            self.sent_expired += 1
        else:
            self.overran += 1

    # At a subscriber

    def is_of(self, number: int) -> bool:
        """Whether an event with this number is the channel's."""
        return number % self._share == self._place

    def was_delivered(self, subscriber: str, number: int, bus_now: int) -> None:
        """A program got an event."""
        if self._last.get(subscriber) == number:
            self.duplicates += 1
            return
        self._last[subscriber] = number
        self.delivered[subscriber] += 1
        if self.slot is not None:
            self._check_instant(bus_now - self.due.get(number, 0))

    def _check_instant(self, lateness: int) -> None:
        """A hard event is delivered at its deadline; a clock that is off shows in half the gap at most."""
        assert self.slot is not None
        self.worst_lateness_ns = max(self.worst_lateness_ns, abs(lateness))
        self.late += abs(lateness) > self.slot.gap_ns // 2

    def subscriber_told(self, subscriber: str, trouble: EventMissing | EventsLost) -> None:
        """A subscriber heard that something did not come."""
        if isinstance(trouble, EventMissing):
            self.alarms[subscriber] += 1
        else:
            self.told_lost[subscriber] += trouble.count

    def alarm_is_mine(self, deadline_ns: int) -> bool:
        """Whether a deadline is one of the channel's slot."""
        return self.slot is not None and (deadline_ns - self.slot.deadline_ns) % self.slot.period_ns == 0


def _remember(known: dict[int, int], number: int, what: int) -> None:
    known.pop(number, None)
    known[number] = what
    if len(known) > REMEMBERED:
        del known[next(iter(known))]
