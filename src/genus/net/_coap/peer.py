"""`Peer`: a server of others, as this client sees it. It runs in the thread of the endpoint.

A server of Genus is asked regularly whether it is the same, has the same catalog and knows this client's observations
(`/g`): after a restart on either side, or an outage, observations are made anew. All notifications of a server go
through one queue, so that they are handled in the order in which they came.
"""

import asyncio
import logging
import re
from collections import Counter
from typing import Any

from aiocoap import error
from aiocoap.numbers import codes

from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.errors import BusError, GenusError
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.net._coap.address import Place
from genus.net._coap.agreed import Agreement
from genus.net._coap.endpoint import Endpoint, add_own_option, own_option
from genus.net._coap.observation import Observation
from genus.net._coap.observing import PlainDevice, ReceivedEvents, link_paths
from genus.net._coap.others import OtherWants
from genus.net._coap.outbox import Outbox
from genus.net._coap.upstream import PeerCalls, ServerState
from genus.net._coap.wire import (
    CBOR,
    EPOCH_BYTES,
    Notified,
    ObservationMark,
    read_cbor,
    read_notified,
    write_cbor,
    write_mark,
)
from genus.net._relay import Want

log = logging.getLogger("genus.coap")
READY_S = 5.0
"""How long a program waits for a server."""
STRANGERS = (codes.NOT_FOUND, codes.BAD_REQUEST, codes.METHOD_NOT_ALLOWED, codes.BAD_OPTION)
"""What plain devices answer to a question that only servers of Genus know."""
UID = re.compile(r"[0-9a-f]{16}")
MOST_QUEUED = 1000
"""Notifications that wait; a server of Genus sends one at a time, and of others the numbers show what is missing."""
READS = 10
"""How often a catalog is read that grows meanwhile."""
_CONTROL = "g"


class Peer:
    """State: a server of others."""

    def __init__(
        self, endpoint: Endpoint, place: Place, uid: bytes, agreement: Agreement | None, calls: PeerCalls
    ) -> None:
        self.endpoint, self.place, self.uid, self.calls = endpoint, place, uid, calls
        self.agreement = agreement
        self.counts: Counter[str] = Counter()
        self.is_connected = False
        self.is_plain = False
        """Whether the server is a plain device, which knows nothing of Genus."""
        self.state: ServerState | None = None
        self.epoch = b""
        """What requests say of the server that they mean."""
        self.observations: dict[int, Observation] = {}
        self.received = ReceivedEvents(self)
        self.outbox = Outbox(self)
        self.others = OtherWants(self)
        self.device = PlainDevice(self, self.received)
        self._shown = str(place)
        self._numbers = 0
        self._queue: asyncio.Queue[tuple[Observation, Any, bool]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._beating: asyncio.Task[None] | None = None
        self._checking, self._reading = asyncio.Lock(), asyncio.Lock()
        self._soon = asyncio.Event()

    @property
    def is_fixed(self) -> bool:
        """Whether the catalog is a file of this side."""
        return self.agreement is not None and self.agreement.is_fixed

    async def start(self) -> None:
        """Connect, and begin the regular work; BusError if the server cannot be reached and is needed at once."""
        loop = asyncio.get_running_loop()
        self.endpoint.check_protected(self.place)
        await self.check()
        if self.agreement is None:
            why = "it has no catalog; give catalog=FILE" if self.is_plain else "it does not answer"
            raise BusError(f"coap://{self._shown} cannot be used: {why}")
        self._beating = loop.create_task(self._beat())
        self._tasks += [loop.create_task(self._handle_all()), loop.create_task(self.outbox.run())]

    async def stop(self, patience_s: float) -> None:
        """Send what waits, for a short time, and say goodbye."""
        if self._beating is not None:
            self._beating.cancel()
        await self.outbox.flush(patience_s)
        for observation in self.observations.values():
            observation.stop()
        self.others.stop()
        if self.is_connected and not self.is_plain:
            try:
                await self.request(codes.PUT, _CONTROL, timeout=patience_s, own=write_cbor([self.uid]))
            except (error.Error, OSError, TimeoutError):
                self.counts["goodbyes that did not arrive"] += 1
        for task in self._tasks:
            task.cancel()

    # -- requests ----------------------------------------------------------------------------------------------------

    async def request(
        self,
        code: Any,
        path: str,
        query: tuple[str, ...] = (),
        *,
        payload: bytes = b"",
        format: int | None = None,
        own: bytes | None = None,
        timeout: float | None = None,
    ) -> Any:
        """The response to a request."""
        message = self.message(code, path, query, payload=payload)
        message.opt.content_format = format
        if own is not None:
            add_own_option(message, own)
        return await self.endpoint.request(message, timeout or self.endpoint.tuning.MAX_TRANSMIT_WAIT)

    def message(self, code: Any, path: str, query: tuple[str, ...] = (), **parts: Any) -> Any:
        """A request to the server."""
        message = self.endpoint.message(self.place, code=code, **parts)
        message.opt.uri_path = tuple(path.split("/"))
        message.opt.uri_query = query
        return message

    # -- is the server there, and the same? --------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._soon.wait(), self.endpoint.options.beat_s)
                await asyncio.sleep(min(0.05, self.endpoint.options.beat_s))
            except TimeoutError:
                pass
            self._soon.clear()
            try:
                await self.check()
            except (BusError, GenusError) as problem:
                self.counts[f"refused: {str(problem).splitlines()[0][:200]}"] += 1
            except Exception:
                log.exception("the regular work for coap://%s failed", self._shown)

    def check_soon(self) -> None:
        """Ask the server at once, as something is wrong."""
        self._soon.set()

    async def check(self) -> None:
        """Ask the server whether it is the same, and do what has to be done if it is not."""
        async with self._checking:
            try:
                await self._check()
            except (error.Error, OSError, TimeoutError) as problem:
                self.counts["beats without an answer"] += 1
                self._set_connected(False)
                log.debug("coap://%s does not answer: %s", self._shown, problem)
            except BusError:
                self._set_connected(False)
                raise
            else:
                self._set_connected(True)

    async def _check(self) -> None:
        if self.is_plain and self.is_connected and self.device.is_fresh:
            return  # a small device is not asked more than it must be
        response = await self.request(codes.GET, _CONTROL, own=write_cbor([self.uid]))
        state = _read_state(response)
        if state is None and not response.code.is_successful() and response.code not in STRANGERS:
            raise BusError(f"coap://{self._shown} answers {response.code}{_hint(response.code)}")
        self.is_plain = state is None
        if state is not None:
            await self._follow(state)
        elif self.agreement is not None:
            await self.device.check()

    def _set_connected(self, is_connected: bool) -> None:
        if is_connected != self.is_connected:
            self.is_connected = is_connected
            self.calls.connected()
        if is_connected:
            self.outbox.wake()

    def lose_connection(self) -> None:
        """The server does not answer: ask whether it is there."""
        self._set_connected(False)
        self.check_soon()

    async def _follow(self, state: ServerState) -> None:
        """Do what the state of the server asks for; until all is done, a new server stays new."""
        is_new = self.state is None or self.state.epoch != state.epoch
        if self.agreement is None or self.agreement.digest != state.digest:
            await self._read_catalog(is_new)
        self.epoch = state.epoch[:EPOCH_BYTES]
        live = sum(one.is_live for one in self.observations.values())
        is_forgotten = is_new or state.observers < live
        for observation in list(self.observations.values()):
            if is_forgotten or not observation.is_live:
                await self._register_again(observation)
        await self.others.check(is_new)
        self.counts["restarts of the server"] += is_new and self.state is not None
        self.state = state

    async def _register_again(self, observation: Observation) -> None:
        try:
            await self.register(observation)
        except BusError as problem:  # the others are still wanted
            self.counts[f"refused: {str(problem).splitlines()[0][:200]}"] += 1

    async def _read_catalog(self, is_new: bool) -> None:
        """Use the catalog of the server; BusError if it contradicts this side's file."""
        async with self._reading:  # one at a time: blocks of two answers must not be mixed
            for _ in range(READS):
                try:
                    response = await self.request(codes.GET, "c")
                    break
                except error.ResourceChanged:
                    self.counts["catalogs that grew while they were read"] += 1
            else:
                raise error.ResourceChanged
        if not response.code.is_successful():
            raise BusError(f"coap://{self._shown}: its catalog cannot be read: {response.code}")
        self._use(Catalog.parse(response.payload.decode(errors="replace")), is_new)

    def _use(self, catalog: Catalog, is_new: bool) -> None:
        """Use a catalog of the server, unless it is older than the one that is known."""
        own = self.agreement
        if own is None:
            self.agreement = Agreement(catalog)
            return
        is_older = own.catalog.extends(catalog)
        if own.is_fixed and not is_older and not catalog.extends(own.catalog):
            first = next((one for one in own.catalog.diff(catalog) if one.status in ("conflict", "missing")), "")
            raise BusError(f"coap://{self._shown} has another catalog than the address: {first}")
        if not is_older or (is_new and not own.is_fixed):
            own.replace(catalog)

    async def ensure(self, types: list[type]) -> None:
        """Let the server's catalog have some types; BusError if it refuses them."""
        assert self.agreement is not None
        if self.agreement.missing(types):
            await self._add_types(types)
        self.agreement.use_classes(cls for cls in types if issubclass(cls, Event))

    async def _add_types(self, types: list[type]) -> None:
        assert self.agreement is not None
        missing = self.agreement.missing(types)
        if not missing:
            return
        if self.is_fixed:
            self.agreement.register(missing)  # which refuses it
        mine = Catalog()
        mine.register(*missing)
        response = await self.request(codes.POST, "c", payload=mine.text().encode())
        if not response.code.is_successful():
            why = response.payload.decode(errors="replace")
            raise BusError(f"coap://{self._shown} refuses {', '.join(map(name_of, missing))}: {why}")
        await self._read_catalog(False)

    # -- observations ------------------------------------------------------------------------------------------------

    async def observe(self, subscription: Subscription, want: Want | None = None) -> Observation:
        """Receive what a subscription matches, from now on if the server is there."""
        self._numbers += 1
        origin, hops = (_uid(want.origin), want.hops) if want is not None else (b"", 0)
        observation = Observation(self._numbers, subscription, origin, hops)
        if self.is_fixed and self.agreement is not None:
            self.agreement.register(subscription.types)  # which refuses those that are not in the file
        self.observations[observation.number] = observation
        if not self.is_connected:
            self.check_soon()
            return observation
        try:
            async with self._checking:
                if not observation.is_live:
                    await self.register(observation)
        except (error.Error, OSError, TimeoutError):
            self.check_soon()
        except BaseException:
            self.observations.pop(observation.number, None)
            raise
        return observation

    async def end(self, observation: Observation) -> None:
        """Receive no more of it."""
        self.observations.pop(observation.number, None)
        observation.stop()
        if self.is_plain or not self.is_connected or observation.filter is None or observation.filter.path is None:
            return
        message = self.message(codes.GET, observation.filter.path, observation.filter.query)
        message.opt.observe = 1
        add_own_option(message, write_mark(self.mark(observation)))
        try:
            await self.endpoint.request(message, READY_S)
        except (error.Error, OSError, TimeoutError):
            self.counts["goodbyes that did not arrive"] += 1

    def mark(self, observation: Observation) -> ObservationMark:
        """What the server is told of an observation."""
        session, last = self.received.session, self.received.last
        origin, hops = observation.origin, observation.hops
        return ObservationMark(self.uid, observation.number, self.epoch, session, last, origin, hops)

    async def register(self, observation: Observation) -> None:
        """Observe, with as many tests at the server as it takes; BusError if it refuses."""
        observation.stop()
        await self.ensure([*observation.subscription.types])
        assert self.agreement is not None
        self.agreement.use_classes(observation.subscription.classes())
        for tests in observation.levels():
            made = observation.compile(self.agreement.catalog, tests)
            if made.path is None:
                return
            response = await self.observe_path(observation, made.path, made.query)
            if response.code != codes.BAD_REQUEST or not made.query:
                break
            self.counts[f"observations whose server tests less than {tests}"] += 1
        if response.code.is_successful():
            return
        if response.code == codes.PRECONDITION_FAILED:
            raise error.NetworkError("another server than before")
        if self.is_plain and response.code == codes.NOT_FOUND:
            await self.device.discover(observation)
            return
        observation.stop()
        why = response.payload.decode(errors="replace")
        raise BusError(f"coap://{self._shown} refuses {observation.subscription}: {response.code} {why}")

    async def observe_path(self, observation: Observation, path: str, query: tuple[str, ...]) -> Any:
        """Register an observation; the first response."""
        message = self.message(codes.GET, path, query)
        message.opt.observe = 0
        if not self.is_plain:
            add_own_option(message, write_mark(self.mark(observation)))
        first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        stop = await self.endpoint.stream(message, lambda event: self._event(observation, first, event))
        observation.begin(stop)
        try:
            response = await asyncio.wait_for(first, self.endpoint.tuning.MAX_TRANSMIT_WAIT)
        except BaseException:
            observation.stop()
            raise
        if response.opt.observe is None or not response.code.is_successful():
            observation.stop()
            if response.code.is_successful():
                self.device.poll(observation, path, query)
        return response

    def _event(self, observation: Observation, first: "asyncio.Future[Any]", event: Any) -> bool:
        """A response to an observation, or its end."""
        message = event.message
        if message is None or not message.code.is_successful():
            observation.is_live = False
            if not first.done():
                first.set_result(message) if message is not None else first.set_exception(_problem(event))
            else:
                self.check_soon()
            return False
        is_first = not first.done()
        if is_first:
            first.set_result(message)
        if self._queue.qsize() < MOST_QUEUED:
            self._queue.put_nowait((observation, message, is_first))
        else:
            self.counts["rejected: more notifications than can be handled"] += 1
        return not event.is_last

    async def _handle_all(self) -> None:
        """Handle notifications in the order in which they came."""
        while True:
            observation, message, is_first = await self._queue.get()
            try:
                await self._handle(observation, message, is_first)
            except (error.Error, OSError, TimeoutError):
                self.counts["rejected: a notification whose blocks could not be fetched"] += 1
            except Exception:
                self.counts["rejected: a notification that could not be handled"] += 1
                log.exception("a notification of coap://%s could not be handled", self._shown)

    async def _handle(self, observation: Observation, message: Any, is_first: bool) -> None:
        own = own_option(message)
        if own is None:
            self.device.take(observation, message, await self._whole(observation, message), is_first)
            return
        notified: Notified | None = read_notified(own)
        if notified is None:
            self.counts["rejected: an option of Genus that is damaged"] += 1
            return
        if is_first or not notified.origins:
            self.received.begin(notified)
        if self.received.is_new(notified):
            body = await self._whole(observation, message)
            if self.received.has_unknown(observation, body):
                await self._read_catalog(False)
            self.received.take(observation, notified, body)

    async def _whole(self, observation: Observation, message: Any) -> bytes:
        """The body of a notification, of which further blocks are fetched."""
        body: bytes = message.payload
        block = message.opt.block2
        while block is not None and block.more:
            assert observation.filter is not None
            request = self.message(codes.GET, encode_path_segment(observation.code), observation.filter.query)
            request.opt.block2 = (len(body) // block.size, False, block.size_exponent)
            waits = self.endpoint.tuning.MAX_TRANSMIT_WAIT
            response = await asyncio.wait_for(
                self.endpoint.context.request(request, handle_blockwise=False).response, waits
            )
            block = response.opt.block2
            is_next = block is not None and block.start == len(body) and response.payload
            if (
                not is_next
                or len(body) > self.endpoint.options.largest * 2
                or _differ(response.opt.etag, message.opt.etag)
            ):
                raise error.UnexpectedBlock2()
            body += response.payload
        return body

    # -- discovery -----------------------------------------------------------------------------------------------------

    async def discover(self, code: int) -> list[int]:
        """The codes of the resources below a code that the server lists."""
        for query in (
            (f"is={encode_path_segment(code)}",),
            (),
        ):  # servers that know no codes find no link that has `is`
            response = await self.request(codes.GET, ".well-known/core", query)
            found = link_paths(response.payload) if response.code.is_successful() else []
            if below := [each for each in found if each % code == 0]:
                return below
        return []


def _differ(one: bytes | None, other: bytes | None) -> bool:
    """Whether two blocks are of different bodies, as far as their tags say so."""
    return one is not None and other is not None and one != other


def _uid(text: str) -> bytes:
    """The uid of a participant; none if it is no participant of Genus."""
    return bytes.fromhex(text) if UID.fullmatch(text) else b""


def _hint(code: Any) -> str:
    return "; give credentials=FILE" if code == codes.UNAUTHORIZED else ""


def _problem(event: Any) -> Exception:
    problem = event.exception
    if isinstance(problem, type):
        problem = problem()
    return problem if isinstance(problem, error.Error | OSError) else error.NetworkError(str(problem))


def _read_state(response: Any) -> ServerState | None:
    """What a server of Genus says of itself; None if it is none."""
    if not response.code.is_successful() or response.opt.content_format != CBOR:
        return None
    match read_cbor(response.payload):
        case {0: 1, 1: bytes(epoch), 2: bytes(digest), 3: int(observers), 4: bytes(session), 5: bytes(uid)}:
            return ServerState(epoch, digest, observers, session, uid)
    return None
