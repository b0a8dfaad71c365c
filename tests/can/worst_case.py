"""A search for the worst case of a planned system: release times that make a soft event late, in the model of the bus.

It begins with windows as the analysis has them: a long frame just on the wire, a hard slot that starts, all rivals of
an event queued at once, or so that they must start within a level of it, and as densely as allowed. From there it moves
releases at random, and keeps what makes any event later.
"""

import random
from collections.abc import Mapping

import msgspec

from genus.can._plan.calendar import Calendar
from genus.can._plan.interference import foreign_messages, middleware_messages
from genus.can._plan.system import ChannelSpec, System
from tests.can.bus_model import Outcome, run, streams

MOVES = 12
"""How often the releases of one window are moved."""
BEGIN = 100_000_000
"""Windows begin after this time, so that events can be released before."""


class WorstCase(msgspec.Struct, frozen=True):
    """The worst that was found: the response times of all channels, and the largest share of a soft deadline."""

    responses: Mapping[str, int]
    share: float

    @property
    def is_missed(self) -> bool:
        """Whether a soft event was late."""
        return self.share > 1


def find_worst_case(system: System, calendar: Calendar, seed: int, runs: int) -> WorstCase:
    """Search in a number of runs, or until a deadline is missed."""
    rng = random.Random(f"worst case {seed}")
    worst = Outcome()
    share = 0.0
    while runs > 0 and share <= 1:
        target = rng.choice(system.soft)
        releases, until = _window(system, calendar, target, rng)
        best = -1.0
        for move in range(min(runs, MOVES)):
            tried = _moved(releases, rng) if move else releases
            found = run(system, calendar, _dense(system, tried, until), until)
            for name, response in found.worst.items():
                worst.worst[name] = max(response, worst.worst.get(name, 0))
            late = max(found.worst.get(each.name, 0) / _deadline(each) for each in system.soft)
            if late >= best:
                best, releases = late, tried
            runs -= 1
            share = max(share, late)
            if share > 1:
                break
    return WorstCase(worst.worst, share)


def _deadline(channel: ChannelSpec) -> int:
    assert channel.deadline_ns is not None
    return channel.deadline_ns


def _window(system: System, calendar: Calendar, target: ChannelSpec, rng: random.Random) -> tuple[dict[str, int], int]:
    """The first release of each stream, for a window in which one event is analysed; and when to end."""
    cycle = calendar.cycle_ns or 1
    offset = rng.choice([start for start, _ in calendar.starts_in_cycle()] or [0])
    begin = BEGIN + (offset - BEGIN) % cycle
    queued = rng.choice((0, rng.randrange(_deadline(target)), rng.randrange(4 * _deadline(target))))
    due = queued + target.deadline_ns - target.last_ns if target.deadline_ns else 0
    level = system.bus.level_ns
    first = {}
    for channel in system.soft:
        urgency = _deadline(channel) - channel.event_ns
        first[channel.name] = begin if urgency <= due + level else begin + due + level - urgency - 1
    first[target.name] = begin + queued % target.period_ns
    for message in foreign_messages(system):
        first[message.name] = begin
    lower = [(each.frame_ns, each.name) for each in system.none]
    lower += [(each.length, each.name) for each in middleware_messages(system)]
    if lower:
        first[max(lower)[1]] = begin - 1
    return first, begin + queued + 2 * _deadline(target)


def _moved(releases: Mapping[str, int], rng: random.Random) -> dict[str, int]:
    moved = dict(releases)
    for name in rng.sample(list(moved), min(len(moved), rng.choice((1, 1, 2, 4)))):
        moved[name] += rng.choice((-1, 1)) * int(10 ** rng.uniform(3, 6.5))
    return moved


def _dense(system: System, first: Mapping[str, int], until: int) -> dict[str, list[int]]:
    """All releases of each stream: the first late by the whole jitter, the others not, and so as dense as allowed."""
    found = {}
    known = streams(system)
    for name, at in first.items():
        period, jitter = known[name]
        found[name] = [max(0, at), *(max(0, at, due) for due in range(at + period - jitter, until, period))]
    return found
