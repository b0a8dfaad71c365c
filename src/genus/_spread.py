"""`Spread`: mean, standard deviation and maximum of a series, without keeping it."""

from math import sqrt


class Spread:
    """State: mean, standard deviation and maximum of a series, by Welford's method (1962).

    >>> spread = Spread()
    >>> for value in (1.0, 2.0, 3.0):
    ...     spread.add(value)
    >>> spread.mean, round(spread.deviation, 3), spread.most
    (2.0, 0.816, 3.0)
    """

    __slots__ = ("_squares", "count", "mean", "most")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.most = 0.0
        self._squares = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self._squares += delta * (value - self.mean)
        self.most = max(self.most, value) if self.count > 1 else value

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return sqrt(self._squares / self.count) if self.count else 0.0
