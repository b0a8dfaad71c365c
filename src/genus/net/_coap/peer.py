"""`Peer`: the client's side of a server of others: its beat, its observations, and what is sent to it.

A server of Genus is asked regularly whether it is the same, has the same catalog and knows this client's observations
(`/g`): after a restart on either side, or an outage, observations are made anew. All notifications of a server go
through one queue, so that they are handled in the order in which they came.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aiocoap import error
from aiocoap.numbers import codes

from genus.codes import encode_path_segment
from genus.errors import BusError, GenusError
from genus.filters import Subscription
from genus.net._addresses import Place
from genus.net._coap.endpoint import Endpoint, own_option
from genus.net._coap.inbox import Inbox
from genus.net._coap.observing import PlainDevice, ReceivedEvents
from genus.net._coap.shared_catalog import SharedCatalog
from genus.net._coap.upstream import NO_ANSWER, Observation, Outbox, ServerState, Upstream, read_state
from genus.net._coap.values import EPOCH_BYTES, ObservationMark, read_cbor, read_notified, write_cbor, write_mark
from genus.net._envelope import Interest
from genus.net._link.messages import control_key, encode_text, is_uid
from genus.net._link.presence import RemoteInterest

READY_S = 5.0
"""How long a program waits for a server."""
STRANGERS = (codes.NOT_FOUND, codes.BAD_REQUEST, codes.METHOD_NOT_ALLOWED, codes.BAD_OPTION)
"""What plain devices answer to a question that only servers of Genus know."""
TESTED_HERE = {"where": "`where` is", "masks": "attributes are"}
"""What a server that refuses a query leaves to this side."""
MAX_QUEUED = 1000
"""Notifications that wait; a server of Genus sends one at a time, and of others the numbers show what is missing."""


class ObservedInterest:
    """State: what others want of a server, once it was asked for, as it tells its clients (`/w`)."""

    def __init__(self, upstream: Upstream) -> None:
        self.interests = RemoteInterest("", upstream.uid.hex())
        self.is_needed = False
        self._upstream = upstream
        self._end: Callable[[], None] | None = None
        self._keys: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.Lock()

    async def check(self, is_new: bool) -> None:
        """Follow the interest at a server that is new, or was away, and read those whose types are known by now."""
        if self.is_needed and (is_new or self._end is None):
            await self._observe()
        if self.interests.types_changed():
            self._upstream.inbox.interest_changed()

    def stop(self) -> None:
        """Follow them no more."""
        if self._end is not None:
            self._end()

    async def follow(self) -> None:
        """Know what others want, from now on."""
        self.is_needed = True
        if self._upstream.is_connected and not self._upstream.is_plain and self._end is None:
            try:
                await self._observe()
            except NO_ANSWER:
                self._upstream.is_due.set()

    async def _observe(self) -> None:
        self.stop()
        message = self._upstream.message(codes.GET, "w", own=write_cbor([self._upstream.uid]), observe=0)

        def changed(event: Any) -> bool:
            if event.message is not None and event.message.code.is_successful():
                task = asyncio.get_running_loop().create_task(self._read())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return not event.is_last
            self._end = None
            self._upstream.is_due.set()
            return False

        self._end = await self._upstream.endpoint.stream(message, changed)
        await self._read()

    async def _read(self) -> None:
        try:
            async with self._reading:  # one at a time: blocks of two answers must not be mixed
                response = await self._upstream.request(codes.GET, "w", own=write_cbor([self._upstream.uid]))
        except NO_ANSWER:
            return
        found = read_cbor(response.payload) if response.code.is_successful() else []
        before, self._keys = self._keys, set(map(_token_of, found)) if isinstance(found, list) else set()
        for key in before - self._keys:
            self.interests.token(key, False)
        for key in self._keys - before:
            self.interests.token(key, True)
        self._upstream.inbox.interest_changed()


def _token_of(row: Any) -> str:
    """Return the token by which other networks show an interest; one that cannot be read is counted as there."""
    match row:
        case [str(speaker), str(origin), str(text), int(hops)]:
            return control_key("", "want", speaker, origin, encode_text(text), str(hops))
    return control_key("", "want")


class Peer(Upstream):
    """State: a server of others, and all that is done with it."""

    def __init__(
        self, endpoint: Endpoint, place: Place, uid: bytes, shared: SharedCatalog | None, inbox: Inbox
    ) -> None:
        super().__init__(endpoint, place, uid, shared, inbox)
        self.received = ReceivedEvents(self)
        self.outbox = Outbox(self)
        self.interest = ObservedInterest(self)
        self.device = PlainDevice(self, self._observe_path)
        self._numbers = 0
        self._queue: asyncio.Queue[tuple[Observation, Any, bool]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._checking = asyncio.Lock()

    async def start(self) -> None:
        """Connect, and begin the regular work; BusError if the server cannot be reached and is needed at once."""
        self.endpoint.check_protected(self.place)
        await self.check()
        if not self.has_catalog:
            why = "it has no catalog; give catalog=FILE" if self.is_plain else "it does not answer"
            raise BusError(f"{self.shown} cannot be used: {why}")
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each) for each in (self._beat(), self._handle_all(), self.outbox.run())]

    async def stop(self, patience_s: float) -> None:
        """Send what waits, for a short time, and say goodbye."""
        if self._tasks:
            self._tasks[0].cancel()
        await self.outbox.flush(patience_s)
        for observation in self.observations.values():
            observation.stop()
        self.interest.stop()
        if self.is_connected and not self.is_plain:
            await self._say_goodbye(self.message(codes.PUT, "g", own=write_cbor([self.uid])), patience_s)
        for task in self._tasks:
            task.cancel()

    async def _say_goodbye(self, message: Any, timeout: float) -> None:
        try:
            await self.endpoint.request(message, timeout)
        except NO_ANSWER:
            self.counts["goodbyes that did not arrive"] += 1

    # -- is the server there, and the same? --------------------------------------------------------------------------

    async def _beat(self) -> None:
        beat_s = self.endpoint.options.beat_s
        while True:
            try:
                await asyncio.wait_for(self.is_due.wait(), beat_s)
                await asyncio.sleep(min(0.05, beat_s))
            except TimeoutError:
                pass
            self.is_due.clear()
            try:
                await self.check()
            except GenusError as problem:
                self.refusals.add(str(problem).splitlines()[0])
            except Exception:
                self.endpoint.log.exception("the regular work for %s failed", self.shown)

    async def check(self) -> None:
        """Ask the server whether it is the same, and do what has to be done if it is not."""
        async with self._checking:
            try:
                await self._check()
            except NO_ANSWER as problem:
                self.counts["beats without an answer"] += 1
                self.set_connected(False)
                self.endpoint.log.debug("%s does not answer: %s", self.shown, problem)
            except BusError:
                self.set_connected(False)
                raise
            else:
                self.set_connected(True)
                self.outbox.wake()

    async def _check(self) -> None:
        if self.is_plain and self.is_connected and self.device.is_fresh:
            return  # a small device is not asked more than it must be
        response = await self.request(codes.GET, "g", own=write_cbor([self.uid]))
        state = read_state(response)
        if state is None and not response.code.is_successful() and response.code not in STRANGERS:
            hint = "; give credentials=FILE" if response.code == codes.UNAUTHORIZED else ""
            raise BusError(f"{self.shown} answers {response.code}{hint}")
        self.is_plain = state is None
        if state is not None:
            await self._follow(state)
        elif self.has_catalog:
            await self.device.check(self.register)

    async def _follow(self, state: ServerState) -> None:
        """Do what the state of the server asks for; until all is done, a new server stays new."""
        is_new = self.state is None or self.state.epoch != state.epoch
        if not self.has_catalog or self.shared.digest != state.digest:
            await self.read_types(is_new)
        self.epoch = state.epoch[:EPOCH_BYTES]
        live = sum(one.is_live for one in self.observations.values())
        is_forgotten = is_new or state.observers < live
        for observation in list(self.observations.values()):
            if is_forgotten or not observation.is_live:
                try:
                    await self.register(observation)
                except BusError as problem:  # the others are still wanted
                    self.refusals.add(str(problem).splitlines()[0])
        await self.interest.check(is_new)
        self.counts["restarts of the server"] += is_new and self.state is not None
        self.state = state

    # -- observations ------------------------------------------------------------------------------------------------

    async def observe(self, subscription: Subscription, interest: Interest | None = None) -> Observation:
        """Receive what a subscription matches, from now on if the server is there."""
        self._numbers += 1
        is_relayed = interest is not None and is_uid(interest.origin)  # the origin may be no participant of Genus
        origin, hops = (
            bytes.fromhex(interest.origin) if interest and is_relayed else b"",
            interest.hops if interest else 0,
        )
        observation = Observation(self._numbers, subscription, origin, hops)
        if self.shared.is_fixed:
            self.shared.register(subscription.types)  # which refuses those that are not in the file
        self.observations[observation.number] = observation
        if not self.is_connected:
            self.is_due.set()
            return observation
        try:
            async with self._checking:
                if not observation.is_live:
                    await self.register(observation)
        except NO_ANSWER:
            self.is_due.set()
        except BaseException:
            self.observations.pop(observation.number, None)
            raise
        return observation

    async def end(self, observation: Observation) -> None:
        """Receive no more of it."""
        self.observations.pop(observation.number, None)
        observation.stop()
        made = observation.filter
        if not self.is_plain and self.is_connected and made is not None and made.path is not None:
            own = write_mark(self._mark(observation))
            await self._say_goodbye(self.message(codes.GET, made.path, made.query, own, observe=1), READY_S)

    def _mark(self, observation: Observation) -> ObservationMark:
        session, last = self.received.session, self.received.last
        origin, hops = observation.origin, observation.hops
        return ObservationMark(self.uid, observation.number, self.epoch, session, last, origin, hops)

    async def register(self, observation: Observation) -> None:
        """Observe, with as many tests at the server as it takes; BusError if it refuses."""
        observation.stop()
        await self.ensure([*observation.subscription.types])
        self.shared.use_subscription(observation.subscription)
        for made in observation.compilations(self.shared.catalog):
            if made.path is None:
                return
            response = await self.device.observe(observation, made.path, made.query)
            if response.code != codes.BAD_REQUEST or not made.query:
                break
            self.counts[f"observations whose {TESTED_HERE[made.tests]} tested here"] += 1
        if response.code.is_successful():
            return
        if response.code == codes.PRECONDITION_FAILED:
            raise error.NetworkError("another server than before")
        if self.is_plain and response.code == codes.NOT_FOUND:
            await self.device.observe_below(observation)
            return
        why = response.payload.decode(errors="replace")
        raise BusError(f"{self.shown} refuses {observation.subscription}: {why or response.code}")

    async def _observe_path(self, observation: Observation, path: str, query: tuple[str, ...]) -> Any:
        """Register an observation; the first response."""
        own = None if self.is_plain else write_mark(self._mark(observation))
        first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        message = self.message(codes.GET, path, query, own, observe=0)
        observation.begin(await self.endpoint.stream(message, lambda event: self._event(observation, first, event)))
        try:
            return await asyncio.wait_for(first, self.endpoint.tuning.MAX_TRANSMIT_WAIT)
        except BaseException:
            observation.stop()
            raise

    def _event(self, observation: Observation, first: "asyncio.Future[Any]", event: Any) -> bool:
        """Return a response to an observation, or its end."""
        message = event.message
        if message is None or not message.code.is_successful():
            observation.is_live = False
            if not first.done():
                first.set_result(message) if message is not None else first.set_exception(_problem(event))
            else:
                self.is_due.set()
            return False
        is_first = not first.done()
        if is_first:
            first.set_result(message)
        if self._queue.qsize() < MAX_QUEUED:
            self._queue.put_nowait((observation, message, is_first))
        else:
            self.rejections.add("more notifications than can be handled")
        return not event.is_last

    async def _handle_all(self) -> None:
        while True:
            observation, message, is_first = await self._queue.get()
            try:
                await self._handle(observation, message, is_first)
            except NO_ANSWER:
                self.rejections.add("a notification whose blocks could not be fetched")
            except GenusError as problem:
                self.rejections.add(str(problem).splitlines()[0])
            except Exception:
                self.rejections.add("a notification that could not be handled")
                self.endpoint.log.exception("a notification of %s could not be handled", self.shown)

    async def _handle(self, observation: Observation, message: Any, is_first: bool) -> None:
        own = own_option(message)
        if own is None:
            self.device.take(observation, message, await self._whole(observation, message), is_first)
            return
        notified = read_notified(own)
        if notified is None:
            self.rejections.add("an option of Genus that is damaged")
            return
        if is_first or not notified.origins:
            self.received.begin(notified)
        if self.received.is_new(notified):
            body = await self._whole(observation, message)
            if self.received.has_unknown(observation, body):
                await self.read_types()
            self.received.take(observation, notified, body)

    async def _whole(self, observation: Observation, message: Any) -> bytes:
        """Return the body of a notification, of which further blocks are fetched."""
        body: bytes = message.payload
        block = message.opt.block2
        while block is not None and block.more:
            assert observation.filter is not None
            request = self.message(codes.GET, encode_path_segment(observation.code), observation.filter.query)
            request.opt.block2 = (len(body) // block.size, False, block.size_exponent)
            asked = self.endpoint.context.request(request, handle_blockwise=False).response
            response = await asyncio.wait_for(asked, self.endpoint.tuning.MAX_TRANSMIT_WAIT)
            block = response.opt.block2
            is_next = block is not None and block.start == len(body) and response.payload
            is_too_large = len(body) > self.endpoint.options.largest * 2
            if not is_next or is_too_large or _differ(response.opt.etag, message.opt.etag):
                raise error.UnexpectedBlock2()
            body += response.payload
        return body


def _differ(one: bytes | None, other: bytes | None) -> bool:
    """Return whether two blocks are of different bodies, as far as their tags say so."""
    return one is not None and other is not None and one != other


def _problem(event: Any) -> Exception:
    problem = event.exception() if isinstance(event.exception, type) else event.exception
    return problem if isinstance(problem, error.Error | OSError) else error.NetworkError(str(problem))
