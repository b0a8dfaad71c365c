"""Who is there: which numbers are in use, by whom, and which can be given to a new node.

A claim beats what the tables remember, for a node that claims is there; between two that claim, the lower uid
keeps the number, as the nodes themselves decide. A number is free if no node was heard under it for a lease.
"""

from genus.can.protocol.tables import Tables
from genus.can.protocol.timing import LEASE
from genus.can.wire.identifier import FIRST_NODE, LAST_NODE, UNCONFIGURED_NODE


class Roster:
    """State: when each number was last heard, and who claimed it; the numbers themselves are in the tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._heard: dict[int, int] = {}
        self._claimed: dict[int, int] = {}

    def begin(self, now: int) -> None:
        """From now on silence counts: every number that is on record was, for all we know, used until now."""
        self._heard = dict.fromkeys({*self._heard, *self._tables.numbers.values()}, now)

    def heard_claim(self, uid: int, number: int, now: int) -> None:
        """A node says that it has a number."""
        if not FIRST_NODE <= number <= LAST_NODE:
            return
        owner = self._tables.owner_of(number)
        if owner is None or uid <= owner or not self._is_there(owner, number, now):
            self._tables.assign(uid, number)
            self._heard[number], self._claimed[number] = now, uid

    def heard_grant(self, uid: int, number: int, now: int) -> None:
        """Another broker gave a number to a node that has not claimed it yet."""
        if not FIRST_NODE <= number <= LAST_NODE:
            return
        owner = self._tables.owner_of(number)
        if owner is None or not self._is_there(owner, number, now):
            self._tables.assign(uid, number)
            self._heard[number] = now

    def grant(self, uid: int, now: int) -> int:
        """The number for a node: the one it had, else one that nobody has, else that of the longest silent; 0 if none.

        The tables are changed but not saved.
        """
        number = self._tables.number_of(uid) or self._unused(now) or self._longest_silent(now)
        if number != UNCONFIGURED_NODE:
            self._tables.assign(uid, number)
            self._heard[number] = now
        return number

    def _unused(self, now: int) -> int:
        numbers = range(FIRST_NODE, LAST_NODE + 1)
        unused = (n for n in numbers if self._tables.owner_of(n) is None and self._is_silent(n, now))
        return next(unused, UNCONFIGURED_NODE)

    def _longest_silent(self, now: int) -> int:
        silent = (number for number in self._tables.numbers.values() if self._is_silent(number, now))
        return min(silent, key=lambda number: self._heard.get(number, now), default=UNCONFIGURED_NODE)

    def _is_silent(self, number: int, now: int) -> bool:
        return number not in self._heard or now - self._heard[number] > LEASE

    def _is_there(self, uid: int, number: int, now: int) -> bool:
        return self._claimed.get(number) == uid and not self._is_silent(number, now)
