"""`Outbox`: the events on their way to a server, in the order in which they were published."""

import asyncio
import time
from collections import deque
from math import gcd
from typing import Any

import msgspec
from aiocoap import error
from aiocoap.numbers import codes

from genus.codes import encode_path_segment
from genus.errors import NotRegistered
from genus.model import Event, check
from genus.net._coap.agreed import Agreement
from genus.net._coap.sessions import BATCH, BATCH_BYTES, PAIR_BYTES
from genus.net._coap.upstream import Upstream
from genus.net._coap.wire import CBOR, Put, join_pairs, write_put
from genus.net._envelope import Origin
from genus.targets.coap._compiler import has_path

OTHER_SERVER = (codes.SERVICE_UNAVAILABLE, codes.PRECONDITION_FAILED)
"""Answers that say that the server ends, or has started anew: then another one takes the events."""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """An event that waits to be sent, and its code and attributes as a catalog has them."""

    event: Event
    origin: Origin
    code: int
    attributes: bytes
    written_by: Any


class Outbox:
    """State: events that wait. They are sent one request at a time; those that wait together go together."""

    def __init__(self, peer: Upstream) -> None:
        self.types: dict[type[Event], None] = {}
        """The types that the server has accepted."""
        self._peer = peer
        self._queue: deque[Waiting] = deque()
        self._wake = asyncio.Event()
        self._capacity = peer.endpoint.options.capacity
        self._singly = 0
        self._in_flight: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._queue) + len(self._in_flight)

    def prepare(self, event: Event, origin: Origin) -> Waiting:
        """An event as it is sent; EventError if it cannot be. In any thread.

        If its type is not in the catalog, as the server is away or has started anew, it is written when it is sent.
        """
        try:
            writer = self._agreement().writer(type(event))
        except NotRegistered:
            check(event)
            return Waiting(event, origin, 0, b"", None)
        return Waiting(event, origin, writer.code, writer.write(event)[1], writer)

    def _agreement(self) -> Agreement:
        assert self._peer.agreement is not None
        return self._peer.agreement

    def put(self, waiting: Waiting) -> None:
        """Add an event; if there are too many, the oldest is lost."""
        self._queue.append(waiting)
        if len(self._queue) > self._capacity:
            self._lose(self._queue.popleft(), "too many wait for the server")
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
        while len(self) and self._peer.is_connected and time.monotonic() < until:
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
        except (error.Error, OSError, TimeoutError):
            self._peer.counts["requests without an answer"] += 1
            self._queue.extendleft(reversed(some))
            self._peer.lose_connection()
            return False
        except Exception as problem:
            self._refused(some, f"it could not be sent: {problem}")
            return True
        finally:
            self._in_flight = []
        if response.code in OTHER_SERVER:
            self._queue.extendleft(reversed(some))
            self._peer.lose_connection()
            return False
        self._answered(some, response)
        return True

    def _next(self) -> list[Waiting]:
        """The events that go together."""
        most = 1 if self._peer.is_plain or self._singly else BATCH
        some: list[Waiting] = []
        size = 0
        while self._queue and len(some) < most:
            size += len(self._queue[0].attributes) + PAIR_BYTES
            if some and size > BATCH_BYTES:
                break
            some.append(self._queue.popleft())
        return some

    async def _request(self, some: list[Waiting]) -> Any:
        await self._peer.ensure([type(each.event) for each in some])
        fresh = [self._current(each) for each in some]
        put = Put(self._peer.uid, self._peer.epoch, tuple(each.origin for each in fresh))
        own = None if self._peer.is_plain else write_put(put)
        if len(fresh) == 1 and has_path(fresh[0].code):
            path, body, method = encode_path_segment(fresh[0].code), fresh[0].attributes, codes.PUT
        else:
            above = gcd(*(each.code for each in fresh))
            path = encode_path_segment(above if has_path(above) else self._agreement().catalog.code(Event))
            body, method = join_pairs([(each.code, each.attributes) for each in fresh]), codes.POST
        return await self._peer.request(method, path, payload=body, format=CBOR, own=own)

    def _current(self, waiting: Waiting) -> Waiting:
        """The event as the present catalog has it: the server may have another one since."""
        writer = self._agreement().writer(type(waiting.event))
        return waiting if writer is waiting.written_by else self.prepare(waiting.event, waiting.origin)

    def _answered(self, some: list[Waiting], response: Any) -> None:
        if response.code.is_successful():
            self._peer.counts["sent"] += len(some)
        else:
            why = response.payload.decode(errors="replace")[:200]
            self._refused(some, f"the server refuses it: {response.code} {why}")

    def _refused(self, some: list[Waiting], reason: str) -> None:
        """Lose the event that is refused; if there are several, they are sent one by one to find it."""
        if len(some) == 1:
            self._lose(some[0], reason)
            return
        self._singly = len(some)
        self._queue.extendleft(reversed(some))

    def _lose(self, waiting: Waiting, reason: str) -> None:
        self._peer.counts["not sent"] += 1
        self._peer.calls.unsent(type(waiting.event), 1, reason)
