"""`Upstream`: a server of others, as its client sees it: requests, its state, its catalog, and observations of it.

`Outbox` has the events on their way to it, in the order in which they were published.

It runs in the thread of the endpoint.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from math import gcd
from typing import Any, get_args

import msgspec
from aiocoap import error
from aiocoap.numbers import codes

from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.errors import BusError, GenusError, NotRegistered, Reasons
from genus.filters import Subscription
from genus.model import Event, check, name_of
from genus.net._addresses import Place
from genus.net._coap.endpoint import Endpoint, add_own_option
from genus.net._coap.inbox import BATCH, BATCH_BYTES, PAIR_BYTES, Inbox
from genus.net._coap.shared_catalog import SharedCatalog, read_document, write_document
from genus.net._coap.values import CBOR, Outgoing, Put, join_pairs, read_cbor, write_put
from genus.net._envelope import Origin
from genus.records.internal import Rejections
from genus.targets.coap import CoapFilter, QueryFilter, ServerTests, compile, read_query
from genus.targets.internal import has_path

DEFAULT_AGE_S = 60.0
"""For how long a value is valid if its message does not say it (RFC 7252, section 5.10.5)."""
READS = 10
"""How often a catalog is read that grows meanwhile."""
NO_ANSWER = (error.Error, OSError, TimeoutError)
"""What is raised if a server does not answer, or cannot be reached."""
OTHER_SERVER = (codes.SERVICE_UNAVAILABLE, codes.PRECONDITION_FAILED)
"""Answers that say that the server ends, or has started anew: then another one takes the events."""


class ServerState(msgspec.Struct, frozen=True):
    """What a server says of itself: `/g`."""

    epoch: bytes
    digest: bytes
    observers: int
    session: bytes
    uid: bytes


def read_state(response: Any) -> ServerState | None:
    """Return what a server of Genus says of itself; None if it is none."""
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
        """Yield the subscription compiled for what the server may be able to test, the most first."""
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
        """Return whether a value passes what the device tests for this observation."""
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
        self.counts = Reasons()
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
        return self._shared is not None

    def lose_connection(self) -> None:
        """The server does not answer: ask whether it is there."""
        self.set_connected(False)
        self.is_due.set()

    def set_connected(self, is_connected: bool) -> None:
        if is_connected != self.is_connected:
            self.is_connected = is_connected
            self.inbox.connected_changed()

    # -- requests ----------------------------------------------------------------------------------------------------

    def message(self, code: Any, path: str, query: tuple[str, ...] = (), own: bytes | None = None, **parts: Any) -> Any:
        message = self.endpoint.message(self.place, code=code, **parts)
        message.opt.uri_path = tuple(path.split("/"))
        message.opt.uri_query = query
        if own is not None:
            add_own_option(message, own)
        return message

    async def request(self, code: Any, path: str, query: tuple[str, ...] = (), **parts: Any) -> Any:
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


class Outbox:
    """State: events that wait. They are sent one request at a time; those that wait together go together.

    It is no `Mailbox`: one event loop fills and empties it, and what was not answered is put back.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.types: dict[type[Event], None] = {}
        """The types that the server has accepted."""
        self._upstream = upstream
        self._queue: deque[Outgoing] = deque()
        self._wake = asyncio.Event()
        self._capacity = upstream.endpoint.options.capacity
        self._singly = 0
        self._in_flight: list[Outgoing] = []

    def __len__(self) -> int:
        return len(self._queue) + len(self._in_flight)

    def prepare(self, event: Event, origin: Origin) -> Outgoing:
        """An event as it is sent; EventError if it cannot be. In any thread.

        If its type is not in the catalog, as the server is away or has started anew, it is written when it is sent.
        """
        try:
            return self._upstream.shared.encode(event, origin)
        except NotRegistered:
            check(event)
            return Outgoing(event, 0, 0, b"", origin)

    def put(self, waiting: Outgoing) -> None:
        """Add an event; if there are too many, the oldest is lost."""
        self._queue.append(waiting)
        if len(self._queue) > self._capacity:
            self._lose(self._queue.popleft(), "too many events wait for the server")
        self._wake.set()

    def wake(self) -> None:
        """Try again: the server is there."""
        self._wake.set()

    async def run(self) -> None:
        """Send what waits, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue and await self._send():
                pass

    async def flush(self, patience_s: float) -> None:
        """Wait until all is sent, for a short time; what is left is lost."""
        until = time.monotonic() + patience_s
        while len(self) and self._upstream.is_connected and time.monotonic() < until:
            await asyncio.sleep(0.005)
        for waiting in (*self._in_flight, *self._queue):
            self._lose(waiting, "the bus was closed")

    async def _send(self) -> bool:
        """Send the oldest events; False if the server does not answer."""
        some = self._in_flight = self._next()
        if not some:
            return True
        self._singly = max(0, self._singly - len(some))
        try:
            response = await self._request(some)
        except NO_ANSWER:
            self._upstream.counts["requests without an answer"] += 1
            return self._put_back(some)
        except GenusError as problem:
            self._refused(some, str(problem))
            return True
        except Exception:
            self._upstream.endpoint.log.exception("an event could not be sent to %s", self._upstream.shown)
            self._refused(some, "an error of this program, which is in the log")
            return True
        finally:
            self._in_flight = []
        if response.code in OTHER_SERVER:
            return self._put_back(some)
        if response.code.is_successful():
            self._upstream.counts["sent"] += len(some)
        else:
            why = response.payload.decode(errors="replace")[:200]
            self._refused(some, f"the server refused it: {why or response.code}")
        return True

    def _put_back(self, some: list[Outgoing]) -> bool:
        self._queue.extendleft(reversed(some))
        self._upstream.lose_connection()
        return False

    def _next(self) -> list[Outgoing]:
        most = 1 if self._upstream.is_plain or self._singly else BATCH
        some: list[Outgoing] = []
        size = 0
        while self._queue and len(some) < most:
            size += len(self._queue[0].attributes) + PAIR_BYTES
            if some and size > BATCH_BYTES:
                break
            some.append(self._queue.popleft())
        return some

    async def _request(self, some: list[Outgoing]) -> Any:
        await self._upstream.ensure([type(each.event) for each in some])
        fresh = [self._current(each) for each in some]
        put = Put(self._upstream.uid, self._upstream.epoch, tuple(each.origin for each in fresh))
        own = None if self._upstream.is_plain else write_put(put)
        if len(fresh) == 1 and has_path(fresh[0].code):
            path, body, method = encode_path_segment(fresh[0].code), fresh[0].attributes, codes.PUT
        else:
            above = gcd(*(each.code for each in fresh))
            path = encode_path_segment(above if has_path(above) else self._upstream.shared.catalog.code(Event))
            body, method = join_pairs([(each.code, each.attributes) for each in fresh]), codes.POST
        return await self._upstream.request(method, path, payload=body, content_format=CBOR, own=own)

    def _current(self, waiting: Outgoing) -> Outgoing:
        """The event as the present catalog has it: the server may have another one since."""
        writer = self._upstream.shared.writer(type(waiting.event))
        return waiting if writer is waiting.written_by else self.prepare(waiting.event, waiting.origin)

    def _refused(self, some: list[Outgoing], reason: str) -> None:
        """Lose the event that is refused; if there are several, they are sent one by one to find it."""
        if len(some) == 1:
            self._lose(some[0], reason)
            return
        self._singly = len(some)
        self._queue.extendleft(reversed(some))

    def _lose(self, waiting: Outgoing, reason: str) -> None:
        self._upstream.counts["not sent"] += 1
        self._upstream.inbox.unsent(type(waiting.event), 1, "", reason)
