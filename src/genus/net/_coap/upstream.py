"""`Upstream`: a server of others, as its client sees it: requests, its state, its catalog, and observations of it.

It runs in the thread of the endpoint.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, get_args

import msgspec
from aiocoap import error
from aiocoap.numbers import codes

from genus.catalog import Catalog
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._coap.address import Place
from genus.net._coap.endpoint import Endpoint, add_own_option
from genus.net._coap.inbox import Inbox
from genus.net._coap.shared_catalog import SharedCatalog, read_document, write_document
from genus.net._coap.wire import CBOR, read_cbor
from genus.records._rejected import Rejections
from genus.targets.coap import CoapFilter, QueryFilter, ServerTests, compile, read_query

DEFAULT_AGE_S = 60.0
"""For how long a value is valid if its message does not say it (RFC 7252, section 5.10.5)."""
READS = 10
"""How often a catalog is read that grows meanwhile."""
NO_ANSWER = (error.Error, OSError, TimeoutError)
"""What is raised if a server does not answer, or cannot be reached."""


class ServerState(msgspec.Struct, frozen=True):
    """What a server says of itself: `/g`."""

    epoch: bytes
    digest: bytes
    observers: int
    session: bytes
    uid: bytes


def read_state(response: Any) -> ServerState | None:
    """What a server of Genus says of itself; None if it is none."""
    if response.code.is_successful() and response.opt.content_format == CBOR:
        match read_cbor(response.payload):
            case {0: 1, 1: bytes(epoch), 2: bytes(digest), 3: int(observers), 4: bytes(session), 5: bytes(uid)}:
                return ServerState(epoch, digest, observers, session, uid)
    return None


class Observation:
    """State: a subscription at a server, with as many tests as the server can do."""

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

    @property
    def code(self) -> int:
        """The code that is observed; it must have been compiled."""
        assert self.filter is not None
        assert self.filter.code is not None
        return self.filter.code

    def compilations(self, catalog: Catalog) -> Iterator[CoapFilter]:
        """The subscription compiled for what the server may be able to test, the most first."""
        known = get_args(ServerTests)
        for tests in known[known.index(self._tests) :]:
            self._tests = tests
            self.filter = compile(self.subscription, catalog, tests)
            yield self.filter

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

    def is_tested(self, code: int, tag: int, event: Event, catalog: Catalog) -> bool:
        """Whether a value passes what the device tests for this observation."""
        assert self.filter is not None
        if not self.filter.query:
            return True
        if self._query is None or self._query[0] is not self.filter:
            self._query = self.filter, read_query(self.code, self.filter.query, catalog)
        test = self._query[1]
        return isinstance(test, QueryFilter) and test.accepts(code, tag, event)


class Upstream:
    """State: a server of others."""

    def __init__(
        self, endpoint: Endpoint, place: Place, uid: bytes, shared: SharedCatalog | None, inbox: Inbox
    ) -> None:
        self.endpoint, self.place, self.uid, self.inbox = endpoint, place, uid, inbox
        self.shown = f"coap://{place}"
        self.counts: Counter[str] = Counter()
        self.rejections, self.refusals = Rejections(), Rejections()
        self.is_connected = False
        self.is_plain = False
        """Whether the server is a plain device, which knows nothing of Genus."""
        self.state: ServerState | None = None
        self.epoch = b""
        """What requests say of the server that they mean."""
        self.observations: dict[int, Observation] = {}
        self.is_due = asyncio.Event()
        """Set if the server is to be asked at once whether it is there, as something is wrong."""
        self._shared = shared
        self._reading = asyncio.Lock()

    @property
    def shared(self) -> SharedCatalog:
        """The catalog of the server, or the file of the address; it is there once the bus is open."""
        assert self._shared is not None
        return self._shared

    @property
    def has_catalog(self) -> bool:
        """Whether the catalog is known."""
        return self._shared is not None

    def lose_connection(self) -> None:
        """The server does not answer: ask whether it is there."""
        self.set_connected(False)
        self.is_due.set()

    def set_connected(self, is_connected: bool) -> None:
        """Note whether the server answers."""
        if is_connected != self.is_connected:
            self.is_connected = is_connected
            self.inbox.connected_changed()

    # -- requests ----------------------------------------------------------------------------------------------------

    def message(self, code: Any, path: str, query: tuple[str, ...] = (), own: bytes | None = None, **parts: Any) -> Any:
        """A request to the server."""
        message = self.endpoint.message(self.place, code=code, **parts)
        message.opt.uri_path = tuple(path.split("/"))
        message.opt.uri_query = query
        if own is not None:
            add_own_option(message, own)
        return message

    async def request(self, code: Any, path: str, query: tuple[str, ...] = (), **parts: Any) -> Any:
        """The response to a request."""
        waits = self.endpoint.tuning.MAX_TRANSMIT_WAIT
        return await self.endpoint.request(self.message(code, path, query, **parts), waits)

    # -- the catalog -------------------------------------------------------------------------------------------------

    async def read_types(self, is_new: bool = False) -> None:
        """Use the catalog of the server, unless it is older than the one that is known.

        BusError if it contradicts this side's file.
        """
        async with self._reading:  # one at a time: blocks of two answers must not be mixed
            for _ in range(READS):
                try:
                    response = await self.request(codes.GET, "types")
                    break
                except error.ResourceChanged:
                    self.counts["catalogs that grew while they were read"] += 1
            else:
                raise error.ResourceChanged
        if not response.code.is_successful():
            raise BusError(f"{self.shown}: its catalog cannot be read: {response.code}")
        catalog = read_document(response.payload)
        if self._shared is None:
            self._shared = SharedCatalog(catalog)
            return
        own = self._shared
        is_older = own.catalog.extends(catalog)
        if own.is_fixed and not is_older and not catalog.extends(own.catalog):
            first = next((one for one in own.catalog.diff(catalog) if one.status in ("conflict", "missing")), "")
            raise BusError(f"{self.shown} has another catalog than the address: {first}")
        if not is_older or (is_new and not own.is_fixed):
            own.replace(catalog)

    async def ensure(self, types: list[type]) -> None:
        """Let the server's catalog have some types; BusError if it refuses them."""
        if missing := self.shared.missing(types):
            if self.shared.is_fixed:
                self.shared.register(missing)  # which refuses it
            mine = Catalog()
            mine.register(*missing)
            response = await self.request(codes.POST, "types", payload=write_document(mine))
            if not response.code.is_successful():
                why = response.payload.decode(errors="replace")
                raise BusError(f"{self.shown} refuses {', '.join(map(name_of, missing))}: {why}")
            await self.read_types()
        self.shared.use_classes(cls for cls in types if issubclass(cls, Event))
