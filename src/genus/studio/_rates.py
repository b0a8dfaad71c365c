"""Rates: how many events a second each channel has, from counters that only grow, and the last minute of it."""

from collections import deque
from collections.abc import Iterator

SECONDS = 60
"""How many seconds a history has."""
KEEP_S = 300.0
"""After this time without a note, a key is forgotten."""
_WINDOW_S = 1.0
_STEP_S = 0.2


class Rates:
    """The rate of counters, by key: over the last second, and for each of the last 60 seconds.

    Time is an argument, in seconds of a clock of the caller's; a recording's rates can so be of its own time. If time
    or a counter goes back, the counter's rate starts anew and its history continues. A key that is not noted for five
    minutes is forgotten.

        >>> rates = Rates()
        >>> for second in range(4):
        ...     rates.note("Loop", 10 * second, float(second))
        >>> rates.rate("Loop"), rates.history("Loop")
        (10.0, (10.0, 10.0, 10.0))
        >>> rates.rate("never noted"), rates.history("never noted")
        (0.0, ())
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._swept_s: float | None = None

    def note(self, key: str, count: int, now_s: float) -> None:
        """Tell the value of a counter, the total so far, at a time."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(count, now_s)
        else:
            series.note(count, now_s)
        self._sweep(now_s)

    def rate(self, key: str) -> float:
        """Counts a second, over the last second before the last note; 0 for an unknown key."""
        series = self._series.get(key)
        return 0.0 if series is None else series.rate()

    def history(self, key: str) -> tuple[float, ...]:
        """Counts in each of the last 60 whole seconds, the oldest first; fewer if it was noted for a shorter time."""
        series = self._series.get(key)
        return () if series is None else tuple(series.history)

    def restart(self) -> None:
        """Begin anew after a leap of time: the counters go on, what they gained meanwhile is in no rate."""
        for series in self._series.values():
            series.is_new = True

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def _sweep(self, now_s: float) -> None:
        if self._swept_s is not None and 0.0 <= now_s - self._swept_s < KEEP_S / 10:
            return
        self._swept_s = now_s
        old = [key for key, series in self._series.items() if now_s - series.last_s > KEEP_S]
        for key in old:
            del self._series[key]


class _Series:
    """The notes of one key."""

    __slots__ = ("base", "base_s", "history", "is_new", "last", "last_s", "second", "window")

    def __init__(self, count: int, now_s: float) -> None:
        self.history: deque[float] = deque(maxlen=SECONDS)
        self._start(count, now_s)

    def _start(self, count: int, now_s: float) -> None:
        self.window = deque([(now_s, count)])
        self.base, self.base_s, self.second = count, now_s, now_s // 1.0
        self.last, self.last_s, self.is_new = count, now_s, False

    def note(self, count: int, now_s: float) -> None:
        if self.is_new or count < self.last or now_s < self.last_s:
            self._start(count, now_s)
            return
        self.last, self.last_s = count, now_s
        window = self.window
        if now_s - window[-1][0] >= _STEP_S:
            window.append((now_s, count))
        while len(window) > 1 and window[1][0] <= now_s - _WINDOW_S:
            window.popleft()
        second = now_s // 1.0
        if second > self.second:
            self._end_seconds(second, count, now_s)

    def _end_seconds(self, second: float, count: int, now_s: float) -> None:
        """The seconds since the last end get an equal share each, of what was counted since then."""
        mean = float(f"{(count - self.base) / (now_s - self.base_s):.4g}")  # shorter in a message to a page
        self.history.extend([mean] * int(min(second - self.second, SECONDS)))
        self.base, self.base_s, self.second = count, now_s, second

    def rate(self) -> float:
        began_s, began = self.window[0]
        # At least half a second: a first event at once after the first note would be a rate of thousands.
        span_s = max(self.last_s - began_s, _WINDOW_S / 2)
        return (self.last - began) / span_s
