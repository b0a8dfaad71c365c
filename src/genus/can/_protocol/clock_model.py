"""A node's model of global time: never going back, with a bound on its error that also holds while masters change.

Two clocks are related by a line. A sample, both clocks read at one instant, fixes a point of it; two samples far enough
apart give its slope. The rest is error propagation: the error of a reading, how fast two clocks can diverge, and how
stable their rates are. All numbers are integers, in nanoseconds and parts per billion, and rounded to the safe side.

After a change of master some nodes still use the old one's time until they notice. So for a while a node's precision
covers both: what it knows of the new master's clock, and what it still knows of the old one's. Nodes that receive
neither have lost synchronisation before that time is over.
"""

from collections.abc import Sequence

import msgspec

from genus.errors import BusError

SYNC_PERIOD_NS = 20_000_000
"""How often clocks are synchronised unless the plan says otherwise; the same for all nodes of a bus."""
PPB = 1_000_000_000
STABLE_NS = 1_000_000_000
"""For this time a measured rate is valid up to `wander_ppm`."""
UNBOUNDED_PRECISION = 1 << 62
"""The precision of a clock of which nothing is known."""
SLEW_LIMIT_NS = 1_000_000_000
"""A time that is ahead by more is set back at once instead of slowed down; a worse precision counts as unbounded."""
_ROUNDING_NS = 2
_HALF_SPEED = -500_000_000
"""The rate of a time that is ahead, until it is right."""


def known_precision(precision_ns: int) -> int | None:
    """Return a precision; None if it is no bound.

    >>> known_precision(1500), known_precision(UNBOUNDED_PRECISION)
    (1500, None)
    """
    return None if precision_ns >= UNBOUNDED_PRECISION else precision_ns


class ClockAssumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is assumed of the clocks on a bus; all bounds hold if it is true. BusError if a value makes no sense.

    * The rate of a clock is wrong by at most `drift_ppm`.
    * Within a second, the relative rate of two clocks changes by at most `wander_ppm`, half of it each.
    * A reading of a clock is wrong by less than `granularity_ns`, in the same direction at all nodes.
    * A frame ends at all nodes within `bit_ns`.
    """

    drift_ppm: int = 100
    wander_ppm: int = 10
    granularity_ns: int = 100
    bit_ns: int = 1_000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise BusError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.divergence_ppb >= PPB // 10:
            raise BusError(
                f"drift_ppm is {self.drift_ppm} and wander_ppm {self.wander_ppm}; "
                "2 * drift_ppm + wander_ppm must be below 100000"
            )

    @property
    def sample_ns(self) -> int:
        """The largest error of a sample: both readings, and the two ends of the frame."""
        return self.granularity_ns + self.bit_ns + _ROUNDING_NS

    @property
    def divergence_ppb(self) -> int:
        """The largest relative rate of two clocks; a master that eases to its own rate may overshoot by its wander."""
        return (2 * self.drift_ppm + self.wander_ppm) * 1_000

    @property
    def instability_ppb(self) -> int:
        """The largest change of a relative rate since it was measured, including the easing of a master."""
        return self.wander_ppm * 1_500

    def easing_ppb(self, elapsed_ns: int) -> int:
        """By how much a master's rate may return to its own in this time: as fast as its clock may wander."""
        return self.wander_ppm * 500 * elapsed_ns // PPB


class ClockLine(msgspec.Struct, frozen=True, gc=False):
    """Global time as a function of local time: through a point, faster than the local clock by `rate_ppb`.

    >>> line = ClockLine(1_000, 5_000, rate_ppb=100_000)
    >>> line.at(2_001_000), line.when(2_005_200)
    (2005200, 2001000)
    """

    local: int
    global_: int
    rate_ppb: int = 0

    def at(self, local: int) -> int:
        return self.global_ + (local - self.local) * (PPB + self.rate_ppb) // PPB

    def when(self, global_: int) -> int:
        """Return the first local reading at which it is this global time."""
        return self.local - (self.global_ - global_) * PPB // (PPB + self.rate_ppb)

    def ease(self, local: int, by_ppb: int) -> "ClockLine":
        """Return the line that continues from a local reading with a rate nearer to that of the local clock."""
        nearer = max(0, abs(self.rate_ppb) - by_ppb)
        return ClockLine(local, self.at(local), nearer if self.rate_ppb > 0 else -nearer)


class ClockSample(msgspec.Struct, frozen=True, gc=False):
    """The readings of two clocks at one instant."""

    local: int
    global_: int


class ClockEstimate(msgspec.Struct, frozen=True, gc=False):
    """A line, and how fast its error grows: at one rate while the measured rate is valid, at another afterwards.

    Without further arguments it is the estimate of the clock that defines global time.
    """

    line: ClockLine
    error_ns: int = 0
    growth_ppb: int = 0
    stable_until: int = 0
    later_ppb: int = 0
    rate_error_ppb: int = 0

    def bound(self, now: int) -> int:
        """Return the largest difference between global time and the line, at a local reading."""
        age = abs(now - self.line.local)
        stable = min(age, max(0, self.stable_until - self.line.local))
        return self.error_ns - -(stable * self.growth_ppb + (age - stable) * self.later_ppb) // PPB

    def line_of_master(self, now: int) -> ClockLine:
        """Return the line of a node that defines global time from now on.

        Its rate is moved towards that of its own clock by the possible error of the rate. So it is between the rates
        of two real clocks, and global time stays as accurate as these, however often masters change.
        """
        return self.line.ease(now, self.rate_error_ppb if now <= self.stable_until else self.later_ppb)


def estimate_clock(samples: Sequence[ClockSample], assumptions: ClockAssumptions, guess_ppb: int = 0) -> ClockEstimate:
    """Return the line through the newest of the samples of one clock, with the rate since the oldest.

    With one sample the rate is `guess_ppb`, as far as the assumptions allow it.

    >>> assumptions = ClockAssumptions(granularity_ns=0, bit_ns=998)
    >>> estimate_clock([ClockSample(0, 7_000)], assumptions).line
    ClockLine(local=0, global_=7000, rate_ppb=0)
    >>> found = estimate_clock([ClockSample(0, 7_000), ClockSample(500_000_000, 500_032_000)], assumptions)
    >>> found.line.rate_ppb, found.growth_ppb  # 50 ppm, known to 4 ppm now and 15 ppm more later
    (50000, 19001)
    """
    first, last = samples[0], samples[-1]
    low, high = _rates(first, last, assumptions)
    rate = (low + high) // 2 if len(samples) > 1 else max(low, min(high, guess_ppb))
    error = max(high - rate, rate - low) + 1
    later = assumptions.divergence_ppb + abs(rate)
    return ClockEstimate(
        ClockLine(last.local, last.global_, rate),
        assumptions.sample_ns,
        min(error + assumptions.instability_ppb, later),
        first.local + STABLE_NS,
        later,
        error + assumptions.easing_ppb(STABLE_NS),
    )


def expected_precision(assumptions: ClockAssumptions, period_ns: int) -> int:
    """Return the precision of a node that receives every SYNC, just before the next: the worst it has without faults.

    >>> expected_precision(ClockAssumptions(), 20_000_000), expected_precision(ClockAssumptions(), 500_000_000)
    (1594, 106202)
    """
    measured_ns = (STABLE_NS // 2 - 1) // period_ns * period_ns
    samples = [ClockSample(at, at) for at in sorted({0, measured_ns})]
    return estimate_clock(samples, assumptions).bound(measured_ns + period_ns) + assumptions.granularity_ns


def _rates(first: ClockSample, last: ClockSample, assumptions: ClockAssumptions) -> tuple[int, int]:
    """The smallest and largest rate that fit two samples and the assumptions; if none does, only the assumptions."""
    limit = assumptions.divergence_ppb
    span = last.local - first.local
    if span <= 0:
        return -limit, limit
    gained = (last.global_ - first.global_ - span) * PPB
    slack = 2 * assumptions.sample_ns * PPB
    low, high = max(-limit, (gained - slack) // span), min(limit, -(-(gained + slack) // span))
    return (low, high) if low <= high else (-limit, limit)


class _FormerEstimate(msgspec.Struct, frozen=True):
    """The estimate before a change of master, which other nodes may use until a local reading."""

    estimate: ClockEstimate
    until: int


class GlobalClock:
    """Global time as one node knows it; all arguments named `now` and `local` are readings of its own clock.

    A node that had no good sample for `hold_over_ns` knows nothing any more. For `handover_ns` after a change of master
    other nodes may still use the former time: longer than the hold-over, by the time in which two masters decide who
    stays.
    """

    def __init__(self, assumptions: ClockAssumptions, hold_over_ns: int, handover_ns: int) -> None:
        self.assumptions = assumptions
        self.hold_over_ns = hold_over_ns
        self.handover_ns = handover_ns
        self.unknown_until: int | None = None
        """Until then other nodes may use a time of which nothing is known here."""
        self._estimate: ClockEstimate | None = None
        self._refreshed_at = 0
        self._samples: list[ClockSample] = []
        self._formers: list[_FormerEstimate] = []
        self._ahead: ClockLine | None = None
        self._asked: int | None = None
        """The last argument of `when`, until the estimate changes: a node asks for the start of its next slot often."""
        self._answer = 0

    @property
    def started(self) -> bool:
        return self._estimate is not None

    def estimate(self, local: int) -> int:
        """Return the best estimate of global time, which a new sample may set back."""
        return local if self._estimate is None else self._estimate.line.at(local)

    def at(self, local: int) -> int:
        """Global time as nodes use it, which does not go back."""
        estimate = self.estimate(local)
        return estimate if self._ahead is None else max(estimate, self._ahead.at(local))

    def when(self, global_: int) -> int:
        """Return the first local reading at which `at` gives this time or a later one."""
        if global_ != self._asked:
            self._asked, self._answer = global_, self._when(global_)
        return self._answer

    def _when(self, global_: int) -> int:
        if self._estimate is None:
            return global_
        found = self._estimate.line.when(global_)
        return found if self._ahead is None else min(found, self._ahead.when(global_))

    def is_held(self, now: int) -> bool:
        """Return whether the last good sample is recent enough."""
        return self._estimate is not None and now - self._refreshed_at <= self.hold_over_ns

    def precision(self, now: int) -> int:
        """Return a bound on the error of `at`, including the error of the reading."""
        if not self.is_held(now) or (self.unknown_until is not None and now < self.unknown_until):
            return UNBOUNDED_PRECISION
        bound = self._error(now) + self.assumptions.granularity_ns
        if self._ahead is not None:
            bound += self.at(now) - self.estimate(now)
        return bound if bound <= SLEW_LIMIT_NS else UNBOUNDED_PRECISION

    @property
    def lapses_at(self) -> int:
        """When there is no bound any more unless a good sample is received."""
        return self._refreshed_at + self.hold_over_ns + 1

    def expire(self, now: int) -> None:
        """Forget the former times that no node uses any more."""
        if self._formers:
            self._formers = [former for former in self._formers if now < former.until]
        if self.unknown_until is not None and now >= self.unknown_until:
            self.unknown_until = None

    def deviation(self, sample: ClockSample, *, changed: bool) -> int:
        """The difference of a sample from the estimate if it is larger than all known errors allow; else 0.

        The time of another master may be as wrong as this node's own: if it `changed`, twice the error is allowed.
        """
        if self._estimate is None:
            return 0
        off = sample.global_ - self.estimate(sample.local)
        allowed = 2 * self._error(sample.local) if changed else self._estimate.bound(sample.local)
        return off if abs(off) > allowed + self.assumptions.sample_ns else 0

    def mark_unknown(self, until: int) -> None:
        """Other nodes may use another time until then."""
        self.unknown_until = max(until, self.unknown_until or until)

    def adopt(self, samples: Sequence[ClockSample], now: int, *, anew: bool) -> None:
        """Use these samples of a master, the last of which is new; `anew` if they do not continue the current ones.

        The first sample of a new master gives no rate. Half of the former rate is a good guess, and a safe one.
        """
        shown = self.at(now) if self._estimate else None
        guess_ppb = self._estimate.line.rate_ppb // 2 if self._estimate else 0
        if anew:
            self._hand_over(now, samples[0].local)
        self._samples += samples
        newest = self._samples[-1]
        while newest.local - self._samples[0].local > STABLE_NS // 2:
            del self._samples[0]
        self._estimate = estimate_clock(self._samples, self.assumptions, guess_ppb)
        self._refreshed_at = newest.local
        self._ahead = None if shown is None else self._slow_down(shown, now)
        self._asked = None

    def lead(self, now: int) -> None:
        """Define global time from now on, continuing what was known of it."""
        line = self._estimate.line_of_master(now) if self._estimate else ClockLine(now, now)
        self._hand_over(now, now)
        self._estimate = ClockEstimate(line)
        self._asked = None

    def refresh(self, local: int, now: int) -> None:
        """A master has sent the time of a reading; from now on its rate is nearer to that of its own clock."""
        if self._estimate is not None:
            easing = self.assumptions.easing_ppb(max(0, local - self._refreshed_at))
            self._estimate = ClockEstimate(self._estimate.line.ease(now, easing))
            self._refreshed_at = local
            self._asked = None

    def _error(self, now: int) -> int:
        """The largest difference of the estimate from the master's time, and from those other nodes may still use."""
        if not self._formers and self._estimate is not None:
            return self._estimate.bound(now)
        estimates = [former.estimate for former in self._formers if now < former.until]
        if self._estimate is not None:
            estimates.append(self._estimate)
        best = self.estimate(now)
        return max(estimate.bound(now) + abs(best - estimate.line.at(now)) for estimate in estimates)

    def _hand_over(self, now: int, since: int) -> None:
        """From now on another time is used, of which something is known `since` then."""
        if self._estimate is not None and self.is_held(now):
            self._formers.append(_FormerEstimate(self._estimate, now + self.handover_ns))
        else:
            self.mark_unknown(since + self.handover_ns)
        self._samples.clear()

    def _slow_down(self, shown: int, now: int) -> ClockLine | None:
        ahead = shown - self.estimate(now)
        return ClockLine(now, shown, _HALF_SPEED) if 0 < ahead <= SLEW_LIMIT_NS else None
