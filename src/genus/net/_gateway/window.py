"""Windows: which events of an origin and type were seen, by number; each of the last 1,024 is recognised."""

from collections import OrderedDict

from genus.net._envelope import NUMBERS, Origin

WIDTH = 1024
MOST_WINDOWS = 65_536
"""Origins and types that are remembered; of more, those that were silent the longest are forgotten."""
_MASK = (1 << WIDTH) - 1


class SeenEvents:
    """State: the events that were seen, per origin and type.

    Numbers may come in any order. One that is older than the window is taken for new: the clock of an origin that
    counts from its start time may have been set back, and a loop is ended by hops anyway.

    >>> seen = SeenEvents()
    >>> [seen.add(Origin(b"a", number), "Loop") for number in (7, 9, 8, 9)]
    [True, True, True, False]
    """

    def __init__(self) -> None:
        self._windows: OrderedDict[tuple[bytes, str], tuple[int, int]] = OrderedDict()

    def add(self, origin: Origin, type_name: str) -> bool:
        """Note an event; returns whether it was not seen before."""
        key = (origin.uid, type_name)
        known = self._windows.get(key)
        if known is None:
            self._windows[key] = origin.number, 1
            if len(self._windows) > MOST_WINDOWS:
                self._windows.popitem(last=False)
            return True
        self._windows.move_to_end(key)
        newest, bits = known
        ahead = (origin.number - newest) % NUMBERS
        if ahead and ahead < NUMBERS // 2:
            self._windows[key] = origin.number, (bits << ahead & _MASK | 1) if ahead < WIDTH else 1
            return True
        return self._add_older(key, newest, bits, (newest - origin.number) % NUMBERS)

    def _add_older(self, key: tuple[bytes, str], newest: int, bits: int, behind: int) -> bool:
        if behind >= WIDTH:
            self._windows[key] = (newest - behind) % NUMBERS, 1
            return True
        if bits >> behind & 1:
            return False
        self._windows[key] = newest, bits | 1 << behind
        return True
