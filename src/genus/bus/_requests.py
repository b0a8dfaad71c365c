"""Requests and replies: an event that is answered by another one, which names it by a number.

Requests and replies are events whose types have an integer attribute `request`, of whatever family. The numbers of a
bus begin with 20 bits of its own, so that one subscription to a type of replies, made with the first request for it,
serves all of them; the other 12 bits count. Who sends a reply does not know the requester, and who requests does not
know who answers.
"""

import secrets
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from genus.bus._link import Link, Timer, WaitFor
from genus.bus._listener import Listener, RoundRobin
from genus.bus._router import Interested
from genus.errors import BusError, NoReceiver, RequestRefused, RequestTimeout
from genus.filters import Subscription, this
from genus.model import Event, Maybe, Span, UInt32, attributes, is_event_type, is_type, name_of, seconds
from genus.model.internal import type_text
from genus.model.types import IntType

GRACE_S = 1.0
"""How long others may take to become known, where the link does not know it better."""
MAX_NAMED = 3
"""Subscriptions that an error names."""
SEQUENCE = 1 << 12
"""Numbers of one bus, and so the largest number of requests that wait at a time."""
PARTICIPANTS = 1 << 20
WIDE_ENOUGH = (IntType(), IntType(32, signed=False))


class Reply(Event, name="genus.Reply"):
    """A base of replies for types that a catalog already has below `genus.Reply`.

    Derive new types of replies from `Event`, or from a type of your own, with `request: UInt32 = 0`: below `Reply` all
    of them are one family, in which an attribute name has one type.
    """

    request: UInt32 = 0


class Declined(Reply, name="genus.Declined"):
    """The reply to a request that was refused; `Collection.request` raises it as `RequestRefused`."""

    reason: Maybe[str] = None


Step: TypeAlias = tuple[Callable[[], bool], float]
"""A condition, and the seconds to wait for it."""


class RequestBus(Protocol):
    """What requests and replies need of their bus."""

    wait_for: WaitFor | None

    def publish(self, event: Event) -> None:
        """Publish an event."""

    def subscribe(self, subscription: Subscription[Any], handler: Callable[[Any], object]) -> object:
        """Call a handler with what a subscription matches."""

    @property
    def link(self) -> Link | None:
        """The connection to other processes, if there is one."""

    @property
    def _interested(self) -> Interested:
        """Who is interested in events."""

    def _is_own_request(self, number: int) -> bool:
        """Return whether a request was made on this bus."""

    def time_ns(self) -> int:
        """Return the time on this bus."""

    def call_at(self, time: int, function: Callable[[], object]) -> Timer:
        """Call a function at a time of the bus."""


def check_numbered(cls: type, what: str = "request", declaration: str = "Maybe[UInt32] = None") -> None:
    """Raise BusError if events of a type cannot be requests, or replies, as they have no place for the number."""
    declared = {attribute.name: attribute.type for attribute in attributes(cls)}
    if declared.get("request") not in WIDE_ENOUGH:
        found = "has none" if "request" not in declared else f"has {type_text(declared['request'])}"
        raise BusError(
            f"{name_of(cls)} cannot be a {what}: it needs an attribute for the number of a request, and {found}; "
            f"declare `request: {declaration}` in {name_of(cls)}"
        )


def check_reply_type(cls: object, request: type) -> None:
    """Raise BusError if events of a type cannot be replies to a request, or would be taken for one."""
    if not is_type(cls) or not is_event_type(cls):  # type: ignore[arg-type]
        raise BusError(f"{cls!r} cannot be a reply; give the event type of the reply")
    assert isinstance(cls, type)
    check_numbered(cls, "reply", "UInt32 = 0")
    if issubclass(request, cls) or issubclass(cls, request):
        raise BusError(
            f"{name_of(cls)} cannot be a reply to {name_of(request)}: one is a subtype of the other, so that the reply "
            "would be a request as well; give the reply a type of its own"
        )


# -- requesting --------------------------------------------------------------------------------------------------------


class Exchange:
    """State: a request that waits for its reply."""

    def __init__(self, event: Event, number: int, wanted: type[Event]) -> None:
        self.event = replace(event, request=number)
        self.number = number
        self.reply: Event | None = None
        self.is_closed = False
        """Whether the bus was closed meanwhile."""
        self._wanted = (wanted, Declined)
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._wake_loop: Callable[[], object] | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.reply is not None or self.is_closed

    def accept(self, reply: Event) -> bool:
        """Take the first reply of a type that is wanted."""
        with self._lock:
            if self.reply is not None or not isinstance(reply, self._wanted):
                return False
            self.reply = reply
        self.wake()
        return True

    def close(self) -> None:
        """Wait no more."""
        self.is_closed = True
        self.wake()

    def wake(self) -> None:
        """Test the condition again that is waited for."""
        self._woken.set()
        with self._lock:
            if self._wake_loop is not None:
                with suppress(RuntimeError):  # the loop was closed in the midst of it
                    self._wake_loop()

    def wait(self, condition: Callable[[], bool], seconds: float, wait_for: WaitFor | None) -> bool:
        """Block until a condition holds; returns whether it does. No lock is held while it is tested."""
        if wait_for is not None:
            return wait_for(condition, seconds)
        until = time.monotonic() + seconds
        while not condition():
            if not self._woken.wait(max(0, until - time.monotonic())):
                return condition()
            self._woken.clear()
        return True

    async def wait_async(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Return the same without blocking the event loop."""
        import asyncio

        async with self._waking_loop() as woken:
            try:
                async with asyncio.timeout(seconds):
                    while not condition():
                        await woken.wait()
                        woken.clear()
            except TimeoutError:
                return condition()
        return True

    @asynccontextmanager
    async def _waking_loop(self) -> "AsyncIterator[Any]":
        import asyncio

        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._wake_loop = lambda: loop.call_soon_threadsafe(woken.set)
        try:
            yield woken
        finally:
            with self._lock:
                self._wake_loop = None


class Requester:
    """State: the requests of a bus that wait for replies."""

    def __init__(self, bus: RequestBus) -> None:
        self.first = _participant_number(bus.link) * SEQUENCE
        self._prepared: set[tuple[type, type]] = set()
        """The types of requests and replies that were checked, and their replies subscribed to."""
        self._replies: dict[type[Event], object] = {}
        """The types of replies that are subscribed to, in the order of the first requests for them."""
        self.counts: Counter[str] = Counter()
        self._bus = bus
        self._now = time.monotonic if bus.wait_for is None else lambda: bus.time_ns() / 1e9
        self._waiting: dict[int, Exchange] = {}
        self._lock, self._subscribing = threading.Lock(), threading.Lock()
        self._last = bus.time_ns() // 1_000_000 % SEQUENCE
        """The last number; not the same after a restart, as a late reply may still be under way."""
        self._is_closed = False

    def _subscribe(self, wanted: type[Event]) -> None:
        """Subscribe to a type of replies with the first request for it, and to refusals."""
        mine = (this.request >= self.first) & (this.request <= self.first + SEQUENCE - 1)
        for cls in (Declined, wanted):
            with self._subscribing:
                if cls not in self._replies:
                    self._replies[cls] = self._bus.subscribe(Subscription(cls, where=mine), partial(self.handle, cls))

    def handle(self, subscribed: type[Event], reply: Event) -> None:
        """Give a reply to the request that it names; late, second and other replies are counted.

        Of subscriptions to a type and its subtypes, which all get the reply, the first passes it on.
        """
        if next((cls for cls in list(self._replies) if isinstance(reply, cls)), subscribed) is not subscribed:
            return
        exchange = self._waiting.get(reply.request)  # type: ignore[attr-defined]
        if exchange is None or not exchange.accept(reply):
            self._count("replies ignored")

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def has_made(self, number: int) -> bool:
        """Return whether a request with this number is one of this bus."""
        return self.first <= number < self.first + SEQUENCE

    def close(self) -> None:
        """Let the requests that wait fail."""
        with self._lock:
            self._is_closed = True
            waiting = list(self._waiting.values())
        for exchange in waiting:
            exchange.close()

    def request(self, event: Event, reply: type[Event], publish: Callable[[Any], object], timeout: Span) -> Event:
        """Publish a request and block until its reply; see `Collection.request`."""
        _refuse_event_loop()
        with self._exchange(event, reply) as exchange:
            steps = self._steps(exchange, publish, seconds(timeout, "timeout"))
            try:
                step = next(steps)
                while True:
                    step = steps.send(exchange.wait(*step, self._bus.wait_for))
            except StopIteration as end:
                return _result(exchange, end.value)

    async def request_async(
        self, event: Event, reply: type[Event], publish: Callable[[Any], object], timeout: Span
    ) -> Event:
        """Do the same without blocking the event loop; see `Collection.request_async`."""
        with self._exchange(event, reply) as exchange:
            steps = self._steps(exchange, publish, seconds(timeout, "timeout"))
            try:
                step = next(steps)
                while True:
                    step = steps.send(await exchange.wait_async(*step))
            except StopIteration as end:
                return _result(exchange, end.value)

    @contextmanager
    def _exchange(self, event: Event, wanted: type[Event]) -> Iterator[Exchange]:
        if not isinstance(wanted, type) or (type(event), wanted) not in self._prepared:
            check_numbered(type(event))
            check_reply_type(wanted, type(event))
            self._subscribe(wanted)
            self._prepared.add((type(event), wanted))
        with self._lock:
            exchange = Exchange(event, self._new_number(), wanted)
            self._waiting[exchange.number] = exchange
            exchange.is_closed = self._is_closed
            self.counts["requests"] += 1
        try:
            yield exchange
        except (NoReceiver, RequestTimeout, RequestRefused) as problem:
            self._count(_OUTCOMES[type(problem)])
            raise
        finally:
            del self._waiting[exchange.number]

    def _new_number(self) -> int:
        if len(self._waiting) >= SEQUENCE - 1:
            raise BusError(f"{len(self._waiting)} requests of this bus wait for replies; no more can be made")
        while True:
            self._last = self._last % (SEQUENCE - 1) + 1  # never 0: so much a reply has that nobody filled in
            if self.first + self._last not in self._waiting:
                return self.first + self._last

    def _steps(
        self, exchange: Exchange, publish: Callable[[Any], object], timeout_s: float
    ) -> Generator[Step, bool, Event | None]:
        """Yield what a request does, without the waiting: yields what to wait for, and gets whether it came true."""
        until = self._now() + timeout_s
        if not self._has_receiver(exchange):
            delay_s = self._bus._interested.delay_s
            yield from self._find_receiver(exchange, min(timeout_s, GRACE_S if delay_s is None else delay_s))
        if not exchange.is_closed:
            publish(exchange.event)
        if not (yield lambda: exchange.is_over, max(0, until - self._now())):
            raise RequestTimeout(f"no reply to {exchange.event!r} within {timeout_s:g} s")
        return exchange.reply

    def _has_receiver(self, exchange: Exchange) -> bool:
        """Return whether a server here, or others, get the request, or the medium cannot know."""
        interested = self._bus._interested
        if exchange.is_closed or interested.there(exchange.event) is not False:
            return True
        return any(is_server(listener) for listener in interested.here(exchange.event))

    def _find_receiver(self, exchange: Exchange, seconds: float) -> Generator[Step, bool, None]:
        """Wait until a receiver is known; who subscribed here without being a server may also reply."""
        interested = self._bus._interested
        if not interested.is_alone:
            end = interested.on_change(exchange.wake)
            try:
                yield lambda: self._has_receiver(exchange), seconds
            finally:
                end()
        if not (self._has_receiver(exchange) or interested.here(exchange.event)):
            raise NoReceiver(f"nobody subscribed to {exchange.event!r}; {self._advise(type(exchange.event))}")

    def _advise(self, cls: type[Event]) -> str:
        asked = self._bus._interested.asked_of(cls, is_server)
        if not asked:
            return f"a program answers it by bus.collection({name_of(cls)}).serve(...)"
        more = f" and {len(asked) - MAX_NAMED} more" if len(asked) > MAX_NAMED else ""
        return f"it does not match what others ask for: {', '.join(asked[:MAX_NAMED])}{more}"


def _participant_number(link: Link | None) -> int:
    """20 bits of the uid that a participant has, or random ones."""
    uid = None if link is None else link.participant
    return secrets.randbelow(PARTICIPANTS) if uid is None else zlib.crc32(uid.to_bytes(8, "big")) % PARTICIPANTS


_OUTCOMES: dict[type, str] = {NoReceiver: "no receiver", RequestTimeout: "timed out", RequestRefused: "refused"}


def _result(exchange: Exchange, reply: Event | None) -> Event:
    if reply is None:
        raise BusError(f"the bus was closed before a reply to {exchange.event!r} came")
    if isinstance(reply, Declined):
        problem = RequestRefused(f"{name_of(type(exchange.event))} was refused: {reply.reason or 'no reason given'}")
        problem.reason = reply.reason
        raise problem
    return reply


def _refuse_event_loop() -> None:
    """Raise BusError in an event loop, which would wait for itself."""
    if (asyncio := sys.modules.get("asyncio")) is None:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BusError("request would block the event loop that runs here; write `await collection.request_async(...)`")


# -- replying ----------------------------------------------------------------------------------------------------------


class Server:
    """Calls a handler with requests, and publishes what it returns as replies."""

    def __init__(self, bus: RequestBus, handler: Callable[[Any], Any]) -> None:
        self._bus, self._handler = bus, handler
        self._checked: set[tuple[type, type]] = set()

    def handle(self, event: Event) -> None:
        """Answer a request; errors of the handler are raised after the requester was told."""
        with self._refusing(event):
            self._send(event, self._handler(event))

    async def handle_async(self, event: Event) -> None:
        """The same for a coroutine function."""
        with self._refusing(event):
            self._send(event, await self._handler(event))

    @contextmanager
    def _refusing(self, event: Event) -> Iterator[None]:
        try:
            yield
        except RequestRefused as refusal:
            self._send(event, Declined(reason=str(refusal)))
        except Exception:
            self._send(event, Declined(reason="failed"))
            raise

    def _send(self, event: Event, reply: object) -> None:
        number = getattr(event, "request", None)
        if reply is None or not number:
            return
        if not isinstance(reply, Event):
            raise BusError(f"the handler of {name_of(type(event))} returned {reply!r}, which is not an event")
        if (type(event), type(reply)) not in self._checked:
            check_reply_type(type(reply), type(event))
            self._checked.add((type(event), type(reply)))
        named = replace(reply, request=number)
        if self._bus._is_own_request(number) or self._bus._interested.there(named) is not False:
            self._bus.publish(named)
        else:
            PostponedReply(self._bus, named).start()


def is_server(listener: Listener[Any]) -> bool:
    """Return whether a listener replies to requests; so may a group of consumers."""
    return isinstance(getattr(listener.handler, "__self__", None), Server | RoundRobin)


class PostponedReply:
    """State: a reply whose requester is not known yet: it is published when it is, or after a while.

    A thread of the bus publishes it, as the one that tells what is wanted receives for all.
    """

    def __init__(self, bus: RequestBus, reply: Event) -> None:
        self._bus, self._reply = bus, reply
        self._lock = threading.Lock()
        self._is_sent = False
        self._end: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Wait for the requester."""
        self._bus.call_at(self._bus.time_ns() + round(GRACE_S * 1e9), self._publish)
        end = self._bus._interested.on_change(self._test)
        with self._lock:
            is_waiting = not self._is_sent
            if is_waiting:
                self._end = end
        if is_waiting:
            self._test()
        else:
            end()

    def _test(self) -> None:
        if not self._is_sent and self._bus._interested.there(self._reply) is not False:
            self._bus.call_at(self._bus.time_ns(), self._publish)

    def _publish(self) -> None:
        with self._lock:
            is_first, self._is_sent = not self._is_sent, True
        if is_first:
            self._end()
            self._bus.publish(self._reply)
