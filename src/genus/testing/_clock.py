"""A clock that tests move by hand: no test has to sleep, and every run sees the same times."""

from genus.model import Span, nanoseconds


class VirtualClock:
    """A clock that stands still until it is told to advance; use it wherever Genus takes one.

    Called, it gives integer nanoseconds, as `time.time_ns` does; `seconds` and `sleep` stand in for `time.monotonic`
    and `time.sleep`.

    >>> clock = VirtualClock()
    >>> clock.advance("1.5ms")
    1500000
    >>> clock.sleep(2)
    >>> clock(), clock.seconds()
    (2001500000, 2.0015)
    """

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def __call__(self) -> int:
        """The time in nanoseconds."""
        return self._now_ns

    def seconds(self) -> float:
        """Return the time in seconds."""
        return self._now_ns / 1e9

    def advance(self, by: Span) -> int:
        """Let a span of time pass; returns the new time in nanoseconds. SpanError if it is negative."""
        self._now_ns += nanoseconds(by, "by")
        return self._now_ns

    def advance_to(self, now_ns: int) -> int:
        """Let time pass until it is this time; does nothing if it is already later. Returns the time."""
        self._now_ns = max(now_ns, self._now_ns)
        return self._now_ns

    def sleep(self, seconds: Span) -> None:
        """Advance by a span at once, instead of waiting for it."""
        self.advance(seconds)

    def __repr__(self) -> str:
        return f"VirtualClock({self._now_ns})"
