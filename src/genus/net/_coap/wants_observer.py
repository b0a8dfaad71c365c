"""`WantsObserver`: a client that a server tells when what others want has changed."""

import asyncio
from collections.abc import Callable

from genus.net._coap.answers import Answer
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.wire import CBOR

MOST_WANTS_OBSERVERS = 1000
"""The largest number of clients that follow what others want."""


class WantsObserver:
    """State: one client; it is told again only when it has acknowledged the last, however much changes meanwhile."""

    def __init__(self, send: Callable[[Answer], None], remote: object, endpoint: Endpoint) -> None:
        self._send, self._remote, self._endpoint = send, remote, endpoint
        self._sequence = 0
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._tell_all())
        self.tell()

    def changed(self) -> None:
        """What others want has changed."""
        self._changed.set()

    def tell(self) -> None:
        """Send a notification."""
        self._sequence = (self._sequence + 1) % (1 << 24)
        self._send(Answer(format=CBOR, observe=self._sequence, tuning=self._endpoint.tuning))

    def stop(self) -> None:
        """Tell no more."""
        self._task.cancel()

    async def _tell_all(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self.tell()
            await self._endpoint.acknowledged(self._remote)
