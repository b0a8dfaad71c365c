"""`NewestValues`: the newest event of each type of a server: what a GET gives."""

import time
from collections.abc import Sequence

from aiocoap.numbers import codes

from genus.net._coap.agreed import Agreement
from genus.net._coap.answers import Refusal
from genus.net._coap.sessions import Outgoing
from genus.net._coap.wire import join_pairs
from genus.targets.coap import QueryFilter, read_query

MOST_AGE_S = 0xFFFF_FFFF
"""The largest Max-Age that there is."""


def age_until(expires_at: float, now: float) -> int:
    """The Max-Age of a value that expires at a time.

    >>> age_until(62.5, 2.0), age_until(1.0, 2.0), age_until(1e12, 2.0)
    (60, 0, 4294967295)
    """
    return min(max(0, int(expires_at - now)), MOST_AGE_S)


class NewestValues:
    """State: the newest event of each type, by code."""

    def __init__(self, agreement: Agreement) -> None:
        self.announced: dict[int, None] = {}
        """Codes that have resources, though no value yet."""
        self._agreement = agreement
        self._newest: dict[int, Outgoing] = {}

    def put(self, outgoing: Outgoing) -> None:
        """Make an event the newest of its type."""
        self._newest[outgoing.code] = outgoing

    def is_present(self, code: int) -> bool:
        """Whether there is a resource of a code."""
        return code in self._newest or code in self.announced

    def ask(self, code: int, query: Sequence[str]) -> QueryFilter | Refusal:
        """The test of a path and a query, or why it is refused."""
        if not self._agreement.is_known(code):
            return codes.NOT_FOUND, "the code is that of no type in the catalog"
        asked = read_query(code, query, self._agreement.catalog)
        if isinstance(asked, str):
            return codes.BAD_REQUEST, asked
        vector = self._agreement.catalog.vector(asked.asked)
        if (asked.has | asked.lacks) >> len(vector):
            return codes.BAD_REQUEST, f"presence bits outside the {len(vector)} attributes of {vector.scope}"
        return asked

    def read(self, asked: QueryFilter) -> tuple[bytes, int | None]:
        """The values that pass a test as a body, and for how long they are valid."""
        now = time.time()
        for code in [
            code for code, one in self._newest.items() if one.expires_at is not None and one.expires_at <= now
        ]:
            del self._newest[code]
        below = [one for code, one in self._newest.items() if code % asked.code == 0]
        found = [one for one in below if asked.accepts(one.code, one.tag, one.event)]
        expiries = [one.expires_at for one in found if one.expires_at is not None]
        return self.body(asked, found), age_until(min(expiries), now) if expiries else None

    def body(self, asked: QueryFilter, events: Sequence[Outgoing]) -> bytes:
        """The map of one event if the resource is that of its type alone, else pairs."""
        if (
            len(events) == 1
            and events[0].code == asked.code
            and self._agreement.codes_below(asked.code) == [asked.code]
        ):
            return events[0].attributes
        return join_pairs([(one.code, one.attributes) for one in events])
