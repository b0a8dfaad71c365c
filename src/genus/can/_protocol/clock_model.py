"""A node's view of global time: never going back, with a bound that holds while masters come and go.

After a change of master some nodes still go by the old one until they notice. So for a while a node's precision covers
both: what it knows of the new master's clock, and what it still knows of the old one's. Those who hear nobody have
given up before that while is over.
"""

from collections.abc import Sequence

import msgspec

from genus.errors import BusError

# Reckoning: what one clock tells of another, and a bound on how far off that may be.
#
# Two clocks are related by a line. A sample, both clocks read at one instant, anchors it; two samples far enough apart
# give its slope. Everything else is bookkeeping of errors: what a reading may be off by, how fast two clocks can part,
# and how steady their rates are. All are integers, in nanoseconds and parts per billion, and rounded to the safe side.


PPB = 1_000_000_000
STEADY_NS = 1_000_000_000
"""For this long a measured rate says something of the present one; `wander_ppm` says how much."""
_ROUNDING_NS = 2


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken for granted of the clocks on a bus. If it holds, so does every bound.

    * No clock's rate is off by more than `drift_ppm`.
    * Within a second, the rates of two clocks against each other change by at most `wander_ppm`, half of it each.
    * A clock's reading is off by less than `granularity_ns`, to the same side at all nodes.
    * A frame ends at all nodes within `bit_ns`.
    """

    drift_ppm: int = 100
    wander_ppm: int = 10
    granularity_ns: int = 100
    bit_ns: int = 1_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise BusError(f"{name} is {getattr(self, name)}, but nothing is better than perfect")
        if self.apart_ppb >= PPB // 10:
            raise BusError(f"drift_ppm is {self.drift_ppm} and wander_ppm {self.wander_ppm}: that is no clock")

    @property
    def sample_ns(self) -> int:
        """How far off a sample may be: both readings, and the two ends of the frame."""
        return self.granularity_ns + self.bit_ns + _ROUNDING_NS

    @property
    def apart_ppb(self) -> int:
        """How fast two clocks may part; a master on its way to its own rate may overshoot by its wander."""
        return (2 * self.drift_ppm + self.wander_ppm) * 1_000

    @property
    def unsteady_ppb(self) -> int:
        """How much a relative rate may have changed since it was measured, a master's easing included."""
        return self.wander_ppm * 1_500

    def easing_ppb(self, elapsed_ns: int) -> int:
        """By how much a master's rate may return to its own in this time: as fast as its clock may wander."""
        return self.wander_ppm * 500 * elapsed_ns // PPB


class Line(msgspec.Struct, frozen=True):
    """Global time as a function of local time: through a point, faster than the local clock by `rate_ppb`.

    >>> line = Line(1_000, 5_000, rate_ppb=100_000)
    >>> line.at(2_001_000), line.when(2_005_200)
    (2005200, 2001000)
    """

    local: int
    global_: int
    rate_ppb: int = 0

    def at(self, local: int) -> int:
        """Global time at a local reading."""
        return self.global_ + (local - self.local) * (PPB + self.rate_ppb) // PPB

    def when(self, global_: int) -> int:
        """The first local reading at which it is this global time."""
        return self.local - (self.global_ - global_) * PPB // (PPB + self.rate_ppb)

    def slowed(self, local: int, by_ppb: int) -> "Line":
        """The line that goes on from a local reading with a rate nearer to the clock's own."""
        nearer = max(0, abs(self.rate_ppb) - by_ppb)
        return Line(local, self.at(local), nearer if self.rate_ppb > 0 else -nearer)


class Sample(msgspec.Struct, frozen=True):
    """Two clocks at one instant."""

    local: int
    global_: int


class Reckoning(msgspec.Struct, frozen=True):
    """A line, and how fast it may become wrong: at one rate while clocks are steady, at another afterwards.

    Without further arguments it is that of a clock which defines global time.
    """

    line: Line
    error_ns: int = 0
    growth_ppb: int = 0
    steady_until: int = 0
    later_ppb: int = 0
    rate_error_ppb: int = 0

    def bound(self, now: int) -> int:
        """How far global time may be from the line, at a local reading."""
        age = abs(now - self.line.local)
        steady = min(age, max(0, self.steady_until - self.line.local))
        return self.error_ns - -(steady * self.growth_ppb + (age - steady) * self.later_ppb) // PPB

    def continued(self, now: int) -> Line:
        """The line of one who defines global time from now on.

        Its rate is brought towards the clock's own by all it may be too far off. So it lies between the rates of two
        real clocks, and global time stays as true as these, however often masters change.
        """
        return self.line.slowed(now, self.rate_error_ppb if now <= self.steady_until else self.later_ppb)


def reckon(samples: Sequence[Sample], assumptions: Assumptions, guess_ppb: int = 0) -> Reckoning:
    """The line through the newest of the samples of one clock, with the rate that the oldest tells.

    One sample alone tells no rate; then it is guessed.

    >>> assumptions = Assumptions(granularity_ns=0, bit_ns=998)
    >>> reckon([Sample(0, 7_000)], assumptions).line
    Line(local=0, global_=7000, rate_ppb=0)
    >>> found = reckon([Sample(0, 7_000), Sample(500_000_000, 500_032_000)], assumptions)
    >>> found.line.rate_ppb, found.growth_ppb  # 50 ppm, known to 4 ppm now and 15 ppm more later
    (50000, 19001)
    """
    first, last = samples[0], samples[-1]
    low, high = _rates(first, last, assumptions)
    rate = (low + high) // 2 if len(samples) > 1 else max(low, min(high, guess_ppb))
    error = max(high - rate, rate - low) + 1
    later = assumptions.apart_ppb + abs(rate)
    return Reckoning(
        Line(last.local, last.global_, rate),
        assumptions.sample_ns,
        min(error + assumptions.unsteady_ppb, later),
        first.local + STEADY_NS,
        later,
        error + assumptions.easing_ppb(STEADY_NS),
    )


def _rates(first: Sample, last: Sample, assumptions: Assumptions) -> tuple[int, int]:
    """The least and the greatest rate that fit two samples and the assumptions; if none does, what is assumed."""
    limit = assumptions.apart_ppb
    span = last.local - first.local
    if span <= 0:
        return -limit, limit
    gained = (last.global_ - first.global_ - span) * PPB
    slack = 2 * assumptions.sample_ns * PPB
    low, high = max(-limit, (gained - slack) // span), min(limit, -(-(gained + slack) // span))
    return (low, high) if low <= high else (-limit, limit)


UNBOUNDED = 1 << 62
"""The precision of a clock of which nothing is known."""
SLEW_LIMIT_NS = 1_000_000_000
"""A time that is ahead by more is set back at once: nobody waits for years. A precision that is worse is none."""
_HALF_SPEED = -500_000_000
"""How a time that is ahead is held back."""


class _Former(msgspec.Struct, frozen=True):
    """What is known of the time before a change, by which some may go until then."""

    reckoning: Reckoning
    until: int


class GlobalClock:
    """Global time as one node knows it; all arguments named `now` and `local` are readings of its own clock.

    A node that had no good sample for `hold_over_ns` knows nothing any more. `handover_ns` is how long a change counts
    as new: longer, by the time that two masters need to see who stays.
    """

    def __init__(self, assumptions: Assumptions, hold_over_ns: int, handover_ns: int) -> None:
        self.assumptions = assumptions
        self.hold_over_ns = hold_over_ns
        self.handover_ns = handover_ns
        self.unknown_until: int | None = None
        """Until then there may be others who go by a time of which nothing is known here."""
        self._reckoning: Reckoning | None = None
        self._refreshed_at = 0
        self._samples: list[Sample] = []
        self._formers: list[_Former] = []
        self._ahead: Line | None = None

    @property
    def started(self) -> bool:
        """Whether global time was ever known."""
        return self._reckoning is not None

    def estimate(self, local: int) -> int:
        """Global time as best known, which a new sample may set back."""
        return local if self._reckoning is None else self._reckoning.line.at(local)

    def at(self, local: int) -> int:
        """Global time as shown, which does not go back."""
        estimate = self.estimate(local)
        return estimate if self._ahead is None else max(estimate, self._ahead.at(local))

    def when(self, global_: int) -> int:
        """The first local reading at which `at` gives this time or a later one."""
        if self._reckoning is None:
            return global_
        found = self._reckoning.line.when(global_)
        return found if self._ahead is None else min(found, self._ahead.when(global_))

    def holds(self, now: int) -> bool:
        """Whether the last good sample is recent enough."""
        return self._reckoning is not None and now - self._refreshed_at <= self.hold_over_ns

    def precision(self, now: int) -> int:
        """A bound on the error of `at`, a reading's own error included."""
        if not self.holds(now) or (self.unknown_until is not None and now < self.unknown_until):
            return UNBOUNDED
        bound = self._error(now) + self.at(now) - self.estimate(now) + self.assumptions.granularity_ns
        return bound if bound <= SLEW_LIMIT_NS else UNBOUNDED

    @property
    def lapses_at(self) -> int:
        """When there is no bound any more unless a good sample comes."""
        return self._refreshed_at + self.hold_over_ns + 1

    def expire(self, now: int) -> None:
        """Forget the times by which nobody goes any more."""
        self._formers = [former for former in self._formers if now < former.until]
        if self.unknown_until is not None and now >= self.unknown_until:
            self.unknown_until = None

    def contradiction(self, sample: Sample, *, changed: bool) -> int:
        """By how much a sample is off, if it cannot be true by all that is known; else 0.

        The time of another master may be as wrong as this node's own: when it `changed`, twice the error is allowed.
        """
        if self._reckoning is None:
            return 0
        off = sample.global_ - self.estimate(sample.local)
        allowed = 2 * self._error(sample.local) if changed else self._reckoning.bound(sample.local)
        return off if abs(off) > allowed + self.assumptions.sample_ns else 0

    def doubt(self, until: int) -> None:
        """Somebody may go by another time until then."""
        self.unknown_until = max(until, self.unknown_until or until)

    def adopt(self, samples: Sequence[Sample], now: int, *, anew: bool) -> None:
        """Go by these samples of a master, the last of which is new; `anew` if they do not continue what was known.

        The first sample of a new master tells no rate. Half of the one known before is a good guess, and a safe one.
        """
        shown = self.at(now) if self._reckoning else None
        guess_ppb = self._reckoning.line.rate_ppb // 2 if self._reckoning else 0
        if anew:
            self._hand_over(now, samples[0].local)
        self._samples += samples
        newest = self._samples[-1]
        self._samples = [kept for kept in self._samples if newest.local - kept.local <= STEADY_NS // 2]
        self._reckoning = reckon(self._samples, self.assumptions, guess_ppb)
        self._refreshed_at = newest.local
        self._ahead = None if shown is None else self._held_back(shown, now)

    def lead(self, now: int) -> None:
        """Define global time from now on, going on with what was known of it."""
        line = self._reckoning.continued(now) if self._reckoning else Line(now, now)
        self._hand_over(now, now)
        self._reckoning = Reckoning(line)

    def refresh(self, local: int, now: int) -> None:
        """All were told the time of this reading; from now on, go a little more by the own clock's rate."""
        if self._reckoning is not None:
            easing = self.assumptions.easing_ppb(max(0, local - self._refreshed_at))
            self._reckoning = Reckoning(self._reckoning.line.slowed(now, easing))
            self._refreshed_at = local

    def _error(self, now: int) -> int:
        """How far the estimate may be from the master's time, and from those by which others may still go."""
        if not self._formers and self._reckoning is not None:
            return self._reckoning.bound(now)
        reckonings = [former.reckoning for former in self._formers if now < former.until]
        if self._reckoning is not None:
            reckonings.append(self._reckoning)
        estimate = self.estimate(now)
        return max(reckoning.bound(now) + abs(estimate - reckoning.line.at(now)) for reckoning in reckonings)

    def _hand_over(self, now: int, since: int) -> None:
        """From now on another time counts, of which something is known `since` then."""
        if self._reckoning is not None and self.holds(now):
            self._formers.append(_Former(self._reckoning, now + self.handover_ns))
        else:
            self.doubt(since + self.handover_ns)
        self._samples.clear()

    def _held_back(self, shown: int, now: int) -> Line | None:
        ahead = shown - self.estimate(now)
        return Line(now, shown, _HALF_SPEED) if 0 < ahead <= SLEW_LIMIT_NS else None
