"""A node's view of global time: never going back, with a bound that holds while masters come and go.

After a change of master some nodes still go by the old one until they notice. So for a while a node's precision covers
both: what it knows of the new master's clock, and what it still knows of the old one's. Those who hear nobody have
given up before that while is over.
"""

from collections.abc import Sequence

import msgspec

from genus.can.protocol.reckoning import STEADY_NS, Assumptions, Line, Reckoning, Sample, reckon

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
