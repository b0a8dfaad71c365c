"""A bus with drifting clocks, small and in true time: every frame ends at all nodes at one instant, within a bit."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from genus.can._protocol.clock_model import SLEW_LIMIT_NS, UNBOUNDED_PRECISION
from genus.can._protocol.time_service import ClockStepped, TimeNotice, TimeService
from genus.can._wire.frame import Frame, ProtocolEtag

MS = 1_000_000
SECOND = 1_000 * MS
BIT = 1_000
GRANULARITY = 100
PIECE = 100 * MS
"""A crystal keeps its rate for so long, then it may take another."""


class Crystal:
    """A clock whose rate stays within its tolerance and wanders by at most `wander_ppb` a second."""

    def __init__(self, random: Random, *, offset: int, drift_ppb: int = 100_000, wander_ppb: int = 5_000) -> None:
        rate = random.choice([-drift_ppb, drift_ppb, random.randint(-drift_ppb, drift_ppb)])
        trend = random.choice([-1, 0, 1, None])
        self._rates, self._local = [rate], [offset]
        for _ in range(400):
            self._local.append(self._local[-1] + PIECE + PIECE * rate // SECOND)
            step = wander_ppb // 10
            rate += step * trend if trend is not None else random.randint(-step, step)
            rate = max(-drift_ppb, min(drift_ppb, rate))
            self._rates.append(rate)

    def exact(self, true: int) -> int:
        """What it shows, to the nanosecond."""
        piece = true // PIECE
        return self._local[piece] + (true % PIECE) * (SECOND + self._rates[piece]) // SECOND

    def read(self, true: int) -> int:
        """What a program reads."""
        return self.exact(true) // GRANULARITY * GRANULARITY

    def when(self, local: int) -> int:
        """When a program can read this, or more."""
        wanted = -(-local // GRANULARITY) * GRANULARITY
        piece = max(0, bisect_right(self._local, wanted) - 1)
        true = piece * PIECE + (wanted - self._local[piece]) * SECOND // (SECOND + self._rates[piece])
        while self.read(max(0, true)) < wanted:
            true += 1
        return max(0, true)


@dataclass
class Station:
    """A node with its crystal, the frames it wants to send and what it was notices."""

    number: int
    crystal: Crystal
    masterable: bool = True
    wire: int = 0
    """Stations on one wire receive each other's frames."""
    alive: bool = True
    waiting: list[Frame] = field(default_factory=list)
    notices: list[TimeNotice] = field(default_factory=list)
    shown: int | None = None
    service: TimeService = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start as after power-on."""
        self.waiting.clear()
        self.shown = None
        self.service = TimeService(
            send=self.waiting.append,
            notify=self.notify,
            node=lambda: self.number,
            masterable=self.masterable,
            granularity_ns=GRANULARITY,
            bit_ns=BIT,
        )

    def notify(self, notice: TimeNotice) -> None:
        """Record a notice; `ClockStepped` says that time was set back."""
        self.notices.append(notice)
        if isinstance(notice, ClockStepped) and notice.by_ns < -SLEW_LIMIT_NS:
            self.shown = None

    def time(self, true: int) -> int:
        """Global time as the station sees it."""
        return self.service.global_time(self.crystal.read(true))

    def precision(self, true: int) -> int:
        """The bound that the station gives."""
        return self.service.precision(self.crystal.read(true))

    def wake_at(self, true: int) -> int | None:
        """When it wants to be woken, in true time."""
        at = self.service.wake_at if self.alive else None
        return None if at is None else max(true, self.crystal.when(at))


Fault = Callable[[Station, Frame], int]
"""How often a station gets a frame: 1, or 0 if it is lost; 2 if it took the frame when others did not."""


def losses(random: Random, share: float) -> Fault:
    """Lost and repeated frames; but no station misses three pairs of SYNC and FOLLOW_UP of another in a row."""
    missed: dict[tuple[int, int], list[int]] = {}

    def fault(station: Station, frame: Frame) -> int:
        row = missed.setdefault((station.number, frame.node), [])
        sequence = frame.data[0]
        if sequence in row[-1:]:
            return random.randint(0, 2)
        if len(row) < 2 and random.random() < share:
            row.append(sequence)
            return random.choice([0, 2])
        if frame.etag == ProtocolEtag.FOLLOW_UP:
            row.clear()
        return 1

    return fault


class Wires:
    """Stations in true time; `run` checks after every step that what they say of time holds."""

    def __init__(self, stations: list[Station], random: Random, fault: Fault = lambda station, frame: 1) -> None:
        self.stations = {station.number: station for station in stations}
        self.random = random
        self.fault = fault
        self.true = 0
        self.load = 0.3
        self.frames: list[tuple[int, Frame]] = []
        self.worst = 0.0
        self.checked = True
        for station in stations:
            station.service.listen(station.crystal.read(0))

    def __getitem__(self, number: int) -> Station:
        return self.stations[number]

    @property
    def alive(self) -> list[Station]:
        """Those that run."""
        return [station for station in self.stations.values() if station.alive]

    def run(self, length: int) -> None:
        """Let true time pass."""
        until = self.true + length
        while True:
            wakes = [(at, station) for station in self.alive if (at := station.wake_at(self.true)) is not None]
            sends = [station for station in self.alive if station.waiting and self._acknowledged(station)]
            at, station = min(wakes, key=lambda wake: wake[0], default=(until + 1, None))
            if sends and self.true < min(at, until):
                self._transmit(min(sends, key=lambda sender: sender.waiting[0].id))
            elif at <= until and station is not None:
                self._pass(at)
                station.service.wake(station.crystal.read(at))
            else:
                self._pass(max(until, self.true))
                return
            self.check()

    def _acknowledged(self, sender: Station) -> bool:
        return any(other.wire == sender.wire for other in self.alive if other is not sender)

    def _pass(self, true: int) -> None:
        """Let time pass, and look at the clocks on the way."""
        for part in sorted(self.random.random() for _ in range(2)):
            self.true += int((true - self.true) * part)
            self.check()
        self.true = true

    def _transmit(self, sender: Station) -> None:
        """One frame, after those of others; stations are woken late by at most its length."""
        frame = sender.waiting[0]
        others = 160 * BIT * int(self.random.random() < self.load) * self.random.randint(1, 8)
        self._pass(self.true + others + (80 + 10 * len(frame.data)) * BIT)
        times = {
            station.number: self.fault(station, frame)
            for station in self.alive
            if station.wire == sender.wire and station is not sender
        }
        if 2 in times.values():
            self._deliver(frame, [number for number, count in times.items() if count == 2])
            self._pass(self.true + (80 + 10 * len(frame.data) + 31) * BIT)
        self._deliver(frame, [number for number, count in times.items() if count])
        sender.waiting.remove(frame)
        sender.service.sent(frame, self._stamp(sender))
        self.true += BIT

    def _deliver(self, frame: Frame, numbers: list[int]) -> None:
        self.frames.append((self.true, frame))
        for number in numbers:
            self[number].service.receive(frame, self._stamp(self[number]))

    def _stamp(self, station: Station) -> int:
        return station.crystal.read(self.true + self.random.choice([0, BIT, self.random.randint(0, BIT)]))

    def check(self) -> None:
        """No clock goes back, and no two differ by more than they say."""
        views = [(station, station.time(self.true), station.precision(self.true)) for station in self.alive]
        for station, time, precision in views:
            if precision < UNBOUNDED_PRECISION:
                assert station.shown is None or time >= station.shown, f"{station.number} goes back at {self.true}"
                station.shown = time
        if self.checked:
            bounded = [(time, precision) for _, time, precision in views if precision < UNBOUNDED_PRECISION]
            for time, precision in bounded:
                for other, also in bounded:
                    self.worst = max(self.worst, abs(time - other) / (precision + also))
            assert self.worst <= 1, f"precision does not hold at {self.true}: {bounded}"
