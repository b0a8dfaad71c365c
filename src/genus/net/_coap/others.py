"""`OtherWants`: what others want of a server, as it tells its clients: for gateways, and `wanted_by`."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiocoap import error
from aiocoap.numbers import codes

from genus.errors import GenusError
from genus.filters._subscription import parse_again
from genus.net._coap.endpoint import add_own_option
from genus.net._coap.upstream import Upstream
from genus.net._coap.wire import Unreadable, read_cbor, write_cbor
from genus.net._relay import Want

MOST_WANTS = 20_000


class OtherWants:
    """State: what others want of a server, once it was asked for."""

    def __init__(self, peer: Upstream) -> None:
        self.known: list[Want] = []
        self.is_needed = False
        self._peer = peer
        self._end: Callable[[], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.Lock()

    async def check(self, is_new: bool) -> None:
        """Follow the wants at a server that is new, or was away."""
        if self.is_needed and (is_new or self._end is None):
            await self._observe()

    def stop(self) -> None:
        """Follow them no more."""
        if self._end is not None:
            self._end()

    async def follow(self) -> None:
        """Know what others want, from now on."""
        self.is_needed = True
        if self._peer.is_connected and not self._peer.is_plain and self._end is None:
            try:
                await self._observe()
            except (error.Error, OSError, TimeoutError):
                self._peer.check_soon()

    async def _observe(self) -> None:
        if self._end is not None:
            self._end()
        message = self._peer.message(codes.GET, "w")
        message.opt.observe = 0
        add_own_option(message, write_cbor([self._peer.uid]))

        def changed(event: Any) -> bool:
            if event.message is not None and event.message.code.is_successful():
                task = asyncio.get_running_loop().create_task(self._read())
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return not event.is_last
            self._end = None
            self._peer.check_soon()
            return False

        self._end = await self._peer.endpoint.stream(message, changed)
        await self._read()

    async def _read(self) -> None:
        try:
            async with self._reading:  # one at a time: blocks of two answers must not be mixed
                response = await self._peer.request(codes.GET, "w", own=write_cbor([self._peer.uid]))
        except (error.Error, OSError, TimeoutError):
            return
        found = read_cbor(response.payload) if response.code.is_successful() else Unreadable("")
        self.known = (
            [want for row in found[:MOST_WANTS] if (want := self._want(row))] if isinstance(found, list) else []
        )
        self._peer.calls.wants_changed()

    def _want(self, row: Any) -> Want | None:
        match row:
            case [str(speaker), str(origin), str(text), int(hops)]:
                try:
                    return Want(speaker, origin, parse_again(text), hops)
                except (GenusError, RecursionError):
                    self._peer.counts["rejected: a want of types that are unknown here"] += 1
        return None
