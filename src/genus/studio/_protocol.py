"""HTTP of Studio's server: as uvicorn has it, with nothing logged of requests, and few connections that do nothing."""

from asyncio import Transport
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 600
"""More are closed at once: the files that a process may have open are the program's, too."""
FIRST_REQUEST_S = 10.0
"""How long a connection may take to its first request."""


class StudioProtocol(H11Protocol):
    """State: one connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.access_log = False  # addresses have the token; and the log is the program's

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(FIRST_REQUEST_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.scope is None and not self.transport.is_closing():
            self.transport.close()
