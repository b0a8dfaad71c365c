"""Clocks that are not quite right: offset, drift, wander, and steps as a fault. All in whole nanoseconds.

A clock's reading is a straight line of virtual time, or several: wander bends it at regular instants by a random walk
that depends on the seed alone, and tests bend or break it where they like. The past of a clock is not kept.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from random import Random

from genus.errors import BusError

BILLION = 1_000_000_000
DRIFT_PPM, WANDER_PPM, WANDER_LIMIT_PPM = 95.0, 2.0, 5.0
"""Crystals drift by up to so much, each by its own lot; every second the drift changes a little, within a limit."""
LARGEST_OFFSET_NS = 1_000_000_000
"""They count from power-on, which is not the same instant everywhere."""


class Clock:
    """State: what one station takes for the time.

    `drift_ppm` is how many microseconds it gains per second. With `wander_ppm`, the drift takes a random step of that
    standard deviation every `wander_every_ns`, and never goes further than `wander_limit_ppm` from `drift_ppm`.

    >>> clock = Clock(offset_ns=500, drift_ppm=100)
    >>> clock.local(0), clock.local(1_000_000), clock.global_of(1_000_600)
    (500, 1000600, 1000000)
    >>> clock.step(-200, at_ns=1_000_000)
    >>> clock.local(1_000_000)
    1000400
    """

    def __init__(
        self,
        offset_ns: int = 0,
        drift_ppm: float = 0.0,
        *,
        wander_ppm: float = 0.0,
        wander_every_ns: int = 1_000_000_000,
        wander_limit_ppm: float = 50.0,
        seed: int | str = 0,
    ) -> None:
        if wander_every_ns < 1:
            raise BusError(f"a clock cannot wander every {wander_every_ns} ns")
        self._drift = _ppb(drift_ppm)
        self._wander = round(wander_ppm * 1000)
        self._every = wander_every_ns
        self._limit = round(wander_limit_ppm * 1000)
        self._random = Random(f"clock/{seed}")
        self._walk = 0
        self._starts, self._readings, self._rates = [0], [offset_ns], [self._drift]
        self._line = 0, offset_ns, self._drift
        """Start, reading there and rate of the present line, in parts per billion; the only one without wander."""
        self.on_change: list[Callable[[], object]] = []
        """Called when the clock was changed, so that who waits for a reading looks again."""

    @property
    def drift_ppm(self) -> float:
        """How much it gains, without its wander."""
        return self._drift / 1000

    def local(self, time_ns: int) -> int:
        """The clock's reading at a virtual time."""
        start, reading, rate = self._line_at(time_ns) if self._wander else self._line
        passed = time_ns - start
        return reading + passed + passed * rate // BILLION

    def global_of(self, reading: int) -> int:
        """The first virtual time at which the clock shows a reading, or more; never before its last change."""
        while self._wander and self._readings[-1] < reading:
            self._bend()
        line = max(0, bisect_left(self._readings, reading) - 1)
        wanted = reading - self._readings[line]
        found = self._starts[line] + -(-wanted * BILLION // (BILLION + self._rates[line]))
        if line + 1 < len(self._starts):
            found = min(found, self._starts[line + 1])
        return max(found, self._starts[0])

    def step(self, by_ns: int, *, at_ns: int) -> None:
        """Set the clock forward, or back."""
        self._break(at_ns, self.local(at_ns) + by_ns)

    def set_drift(self, drift_ppm: float, *, at_ns: int) -> None:
        """Let the clock run faster or slower from a time on."""
        reading = self.local(at_ns)
        self._drift = _ppb(drift_ppm)
        self._break(at_ns, reading)

    def _break(self, at_ns: int, reading: int) -> None:
        """Begin a new line; nothing before it is asked for any more."""
        self._line = at_ns, reading, self._drift + self._walk
        self._starts, self._readings, self._rates = ([part] for part in self._line)
        for changed in self.on_change:
            changed()

    def _line_at(self, time_ns: int) -> tuple[int, int, int]:
        while time_ns >= self._starts[-1] + self._every:
            self._bend()
        line = max(0, bisect_right(self._starts, time_ns) - 1)
        return self._starts[line], self._readings[line], self._rates[line]

    def _bend(self) -> None:
        start = self._starts[-1] + self._every
        passed = self._every
        self._readings.append(self._readings[-1] + passed + passed * self._rates[-1] // BILLION)
        self._starts.append(start)
        wandered = self._walk + round(self._random.gauss(0, self._wander))
        self._walk = min(max(wandered, -self._limit), self._limit)
        self._rates.append(self._drift + self._walk)


def crystal(random: Random, seed: int | str, start_ns: int = 0) -> Clock:
    """The clock of a station with a quartz crystal, as the time service assumes them: off, drifting and wandering.

    >>> clock = crystal(Random(1), seed=1)
    >>> 0 <= clock.local(0) < 1_000_000_000, abs(clock.drift_ppm) <= 95
    (True, True)
    """
    return Clock(
        start_ns + random.randrange(LARGEST_OFFSET_NS),
        random.uniform(-DRIFT_PPM, DRIFT_PPM),
        wander_ppm=WANDER_PPM,
        wander_limit_ppm=WANDER_LIMIT_PPM,
        seed=seed,
    )


def _ppb(drift_ppm: float) -> int:
    if not -500_000 <= drift_ppm <= 500_000:
        raise BusError(f"a drift of {drift_ppm} ppm is no clock's")
    return round(drift_ppm * 1000)
