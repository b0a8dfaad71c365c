"""Bus guardians for the stations of a scenario: what each may send follows from the plan alone."""

from genus.can._plan import Plan
from genus.can._plan.system import ChannelSpec
from genus.can._sim.controller import BusGuardian
from genus.can._sim.scheduler import NEVER
from genus.can._wire.frame import PRIORITY_SHIFT, Frame, Priority
from genus.can._world.station import Station

OWN_FRAMES_PER_SECOND = 100
"""What the middleware of a node sends at most: as master two frames every 20 ms of synchronisation."""
HEADROOM = 2
"""A station may send this many times what its channels need: retransmissions, and reports."""


class BusTimeGuardian(BusGuardian):
    """State: a bus guardian whose windows are by the time of the bus, as its station knows it."""

    def __init__(
        self, station: Station, cycle_ns: int, windows: list[tuple[int, int]], interval_ns: int, burst: int
    ) -> None:
        super().__init__(cycle_ns=cycle_ns, windows=windows, interval_ns=interval_ns, burst=burst)
        self._station = station

    def earliest_start(self, frame: Frame, now: int) -> int:
        """Return the first instant at which a frame may start."""
        if frame.id >> PRIORITY_SHIFT != Priority.HARD:
            return super().earliest_start(frame, now)
        start = super().earliest_start(frame, self._station.bus_time(now))
        return start if start >= NEVER else max(now, self._station.virtual_time(start))


def guardian_of(plan: Plan, station: Station) -> BusGuardian:
    """The bus guardian of a station: its own slots for hard frames, and a budget of twice what its channels take."""
    own = [channel for channel in plan.system.channels if channel.node == station.name]
    others = [channel for channel in own if channel.qos_class != "hard"]
    per_second = OWN_FRAMES_PER_SECOND + sum(channel.frames * 1_000_000_000 / channel.period_ns for channel in others)
    return BusTimeGuardian(
        station,
        plan.calendar.cycle_ns or 1,
        _windows(plan, station.name),
        round(1_000_000_000 / (HEADROOM * per_second)),
        _burst(own),
    )


def _windows(plan: Plan, node: str) -> list[tuple[int, int]]:
    """From the start of a slot to the last instant at which its last attempt may start."""
    return [
        (start - slot.gap_ns // 2 if start else 0, start + slot.length_ns - slot.gap_ns // 2 - slot.used_ns)
        for start, slot in plan.calendar.starts_in_cycle()
        if slot.node == node
    ]


def _burst(channels: list[ChannelSpec]) -> int:
    """Return all events at once, and all signatures, announcements and reports."""
    return 8 + HEADROOM * sum(channel.frames + 3 for channel in channels)
