"""Which events were seen, by the numbers that their origins gave them, for those who look for copies only."""

from collections import OrderedDict
from functools import lru_cache

from genus.model import name_of, tagged_attributes
from genus.net._envelope import NUMBERS
from genus.net._link.numbers import NEARBY, Numbers, Verdict
from genus.net._relay import Arrival

MAX_WINDOWS = 65_536
"""Origins and lines that are remembered; of more, those that were silent the longest are forgotten."""


@lru_cache(4096)
def _naming(cls: type) -> tuple[str, tuple[str, ...]]:
    return name_of(cls), tuple(tagged_attributes(cls))


def line_of(arrival: Arrival) -> str:
    """What the numbers of an origin count: the events of a type, of one presence of its tagged attributes, and kept
    under one value; as the keys of networks do."""
    event = arrival.event
    name, tagged = _naming(type(event))
    if tagged:
        name = f"{name}/{''.join('0' if getattr(event, each) is None else '1' for each in tagged)}"
    return name if arrival.kept is None else f"{name}={arrival.kept}"


class OriginNumbers(Numbers):
    """State: the numbers of the events of one origin that were seen.

    >>> seen = OriginNumbers(1)
    >>> [seen.is_new(number) for number in (1, 3, 1, 2, 3, 2**30, 4)]
    [False, True, False, True, False, True, True]
    """

    __slots__ = ("newest",)

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.newest = first
        """The newest number; one that is far from all others is not taken for it."""

    def is_new(self, number: int) -> bool:
        """Return whether a number was not seen before; it is from now on."""
        is_new = self.arrive(number) is Verdict.NEW
        if is_new and 0 < (number - self.newest) % NUMBERS <= NEARBY:
            self.newest = number
        return is_new


class SeenEvents:
    """State: the events that were seen, per origin and line."""

    def __init__(self) -> None:
        self._windows: OrderedDict[tuple[bytes, str], OriginNumbers] = OrderedDict()

    def add(self, arrival: Arrival, line: str) -> bool:
        """Note an event; returns whether it was not seen before."""
        key = (arrival.origin.uid, line)
        numbers = self._windows.get(key)
        if numbers is not None:
            self._windows.move_to_end(key)
            return numbers.is_new(arrival.origin.number)
        self._windows[key] = OriginNumbers(arrival.origin.number)
        if len(self._windows) > MAX_WINDOWS:
            self._windows.popitem(last=False)
        return True

    def is_newest(self, arrival: Arrival, line: str) -> bool:
        """Return whether nothing newer of the origin and line than this event was seen."""
        numbers = self._windows.get((arrival.origin.uid, line))
        return numbers is None or numbers.newest == arrival.origin.number
