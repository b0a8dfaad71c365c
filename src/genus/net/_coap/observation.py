"""`Observation`: a subscription at a server, with as many tests as the server can do."""

import time
from collections.abc import Callable, Iterator
from typing import get_args

from genus.catalog import Catalog
from genus.filters import Subscription
from genus.model import Event
from genus.net._coap.agreed import Agreement
from genus.targets.coap import CoapFilter, QueryFilter, ServerTests, compile, read_query

DEFAULT_AGE_S = 60.0
"""For how long a value is valid if its message does not say it (RFC 7252, section 5.10.5)."""


class Observation:
    """State: a subscription at a server."""

    def __init__(self, number: int, subscription: Subscription, origin: bytes = b"", hops: int = 0) -> None:
        self.number, self.subscription = number, subscription
        self.origin, self.hops = origin, hops
        self.filter: CoapFilter | None = None
        self.is_live = False
        self.heard_at = time.monotonic()
        self.age_s = DEFAULT_AGE_S
        self.sequence: tuple[int, float] | None = None
        """The number of the last notification of a plain device, and when it came."""
        self.children: list[Observation] = []
        self._tests: ServerTests = "where"
        self._query: tuple[CoapFilter, QueryFilter | str] | None = None
        self._stops: list[Callable[[], object]] = []

    def levels(self) -> Iterator[ServerTests]:
        """What the server may be able to test, the most first."""
        known = get_args(ServerTests)
        yield from known[known.index(self._tests) :]

    def compile(self, catalog: Catalog, tests: ServerTests) -> CoapFilter:
        """Compile the subscription for what the server can test."""
        self._tests = tests
        self.filter = compile(self.subscription, catalog, tests)
        return self.filter

    def begin(self, stop: Callable[[], object]) -> None:
        """Note that it is registered, and how it ends."""
        self.is_live = True
        self.heard_at = time.monotonic()
        self._stops.append(stop)

    def stop(self) -> None:
        """End what was begun."""
        self.is_live = False
        while self._stops:
            self._stops.pop()()
        for child in self.children:
            child.stop()
        self.children.clear()

    @property
    def is_fresh(self) -> bool:
        """Whether the device was heard of within the time for which its last value is valid."""
        return self.is_live and time.monotonic() - self.heard_at < self.age_s

    def is_tested(self, code: int, tag: int, event: Event, agreement: Agreement) -> bool:
        """Whether a value passes what the device tests for this observation."""
        assert self.filter is not None
        if not self.filter.query:
            return True
        if self._query is None or self._query[0] is not self.filter:
            self._query = self.filter, read_query(self.code, self.filter.query, agreement.catalog)
        test = self._query[1]
        return isinstance(test, QueryFilter) and test.accepts(code, tag, event)

    @property
    def code(self) -> int:
        """The code that is observed; it must have been compiled."""
        assert self.filter is not None
        assert self.filter.code is not None
        return self.filter.code
