"""An independent model of a CAN bus to check response-time bounds, without controllers, protocols or queues of nodes.

All frames have their maximum length, every hard frame fails exactly as often as its slot allows. Soft events compete by
quantised priorities, those queued during a frame with the priority they had when they were queued.
"""

import heapq
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from genus.can._plan.calendar import Calendar
from genus.can._plan.interference import foreign_messages, middleware_messages
from genus.can._plan.system import ChannelSpec, System

SOFT_LEVELS = 250


@dataclass
class Job:
    """An event that is released and not completely sent."""

    name: str
    released: int
    frames: list[int]
    channel: ChannelSpec | None = None
    identifier: float = 0
    fresh_at: int = 0
    failures: int = 0

    def key(self, now: int, arbitrated: int, level: int) -> tuple[float, ...]:
        """The key in arbitration; the smallest wins."""
        if self.channel is None or self.channel.qos_class != "soft":
            return (self.identifier,)
        assert self.channel.deadline_ns is not None
        ranked_at = now if self.released <= arbitrated else self.released
        slack = self.released + self.channel.deadline_ns - ranked_at - sum(self.frames)
        priority = 1 + min(max(slack // level, 0), SOFT_LEVELS - 1)
        return (priority << 21 | self.channel.number << 14 | self.channel.etag,)


@dataclass
class Outcome:
    """The longest response time of each channel, and how many events were sent."""

    worst: dict[str, int] = field(default_factory=dict)
    sent: int = 0

    def record(self, job: Job, now: int) -> None:
        self.sent += 1
        self.worst[job.name] = max(self.worst.get(job.name, 0), now - job.released)


def run(
    system: System,
    calendar: Calendar,
    releases: Mapping[str, Sequence[int]],
    until: int,
    *,
    shifts: random.Random | None = None,
) -> Outcome:
    """Simulate events that are released at given times, with all hard slots in use."""
    arrivals = list(heapq.merge(*_jobs(system, calendar, releases, until, shifts), key=lambda job: job.released))
    arrivals.reverse()
    waiting: dict[str, list[Job]] = {}
    outcome, now, arbitrated, level = Outcome(), 0, -1, system.bus.level_ns
    while arrivals or waiting:
        if not waiting:
            now = max(now, arrivals[-1].released)
        while arrivals and arrivals[-1].released <= now:
            job = arrivals.pop()
            waiting.setdefault(job.name, []).append(job)
        job = min((queue[0] for queue in waiting.values()), key=lambda each: each.key(now, arbitrated, level))
        arbitrated = now
        now += job.frames[0]
        if job.failures < (job.channel.omissions if job.channel else 0):
            job.failures += 1
            now += system.bus.error_ns
            continue
        job.failures = 0
        del job.frames[0]
        if not job.frames:
            outcome.record(job, now)
            del waiting[job.name][0]
            if not waiting[job.name]:
                del waiting[job.name]
    return outcome


def _jobs(
    system: System,
    calendar: Calendar,
    releases: Mapping[str, Sequence[int]],
    until: int,
    shifts: random.Random | None,
) -> Iterator[list[Job]]:
    eps = system.bus.precision_ns
    for channel in system.channels:
        times: Sequence[int] = releases.get(channel.name, ())
        if channel.qos_class == "hard":
            slot = next((slot for slot in calendar.slots if slot.channel == channel.name), None)
            if slot is None:
                continue  # it is not admitted, so nothing is sent
            shift = shifts.randint(-eps, eps) if shifts else 0
            times = [max(0, start + shift) for start in range(slot.offset_ns, until, slot.period_ns)]
        yield [Job(channel.name, time, list(channel.times), channel, channel.id) for time in times]
    for message in (*middleware_messages(system), *foreign_messages(system)):
        times = releases.get(message.name, ())
        yield [Job(message.name, time, [message.length], None, message.rank) for time in times]


def streams(system: System) -> dict[str, tuple[int, int]]:
    """Period and jitter of all channels and messages without slots."""
    found = {c.name: (c.period_ns, c.jitter_ns) for c in system.channels if c.qos_class != "hard"}
    others = (*middleware_messages(system), *foreign_messages(system))
    return found | {message.name: (message.period, message.jitter) for message in others}


def simultaneous_releases(system: System, until: int, first: int) -> dict[str, list[int]]:
    """All channels release at once and as densely as allowed: the first event late by the whole jitter, then early."""
    found = {}
    for name, (period, jitter) in streams(system).items():
        nominal = range(first - jitter, until, period)
        found[name] = sorted(max(first, time) for time in nominal)
    return found


def random_releases(system: System, until: int, rng: random.Random) -> dict[str, list[int]]:
    """Random phases and random jitter, otherwise as densely as allowed."""
    found = {}
    for name, (period, jitter) in streams(system).items():
        phase = rng.randrange(period)
        found[name] = sorted(time + rng.randint(0, jitter) for time in range(phase, until, period))
    return found
