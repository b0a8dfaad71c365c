"""`Outbox`: the events on their way to a server, in the order in which they were published."""

import asyncio
import time
from collections import deque
from math import gcd
from typing import Any

from aiocoap.numbers import codes

from genus.codes import encode_path_segment
from genus.errors import NotRegistered
from genus.model import Event, check
from genus.net._coap.sessions import BATCH, BATCH_BYTES, PAIR_BYTES
from genus.net._coap.upstream import NO_ANSWER, Upstream
from genus.net._coap.values import Outgoing
from genus.net._coap.wire import CBOR, Put, join_pairs, write_put
from genus.net._envelope import Origin
from genus.targets.coap._compiler import has_path

OTHER_SERVER = (codes.SERVICE_UNAVAILABLE, codes.PRECONDITION_FAILED)
"""Answers that say that the server ends, or has started anew: then another one takes the events."""


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
        except Exception as problem:
            self._refused(some, f"it could not be sent: {problem}")
            return True
        finally:
            self._in_flight = []
        if response.code in OTHER_SERVER:
            return self._put_back(some)
        if response.code.is_successful():
            self._upstream.counts["sent"] += len(some)
        else:
            why = response.payload.decode(errors="replace")[:200]
            self._refused(some, f"the server refuses it: {response.code} {why}")
        return True

    def _put_back(self, some: list[Outgoing]) -> bool:
        self._queue.extendleft(reversed(some))
        self._upstream.lose_connection()
        return False

    def _next(self) -> list[Outgoing]:
        """The events that go together."""
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
