"""What the parts of a client need of the server that they belong to; `Peer` has it all."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from genus.model import Event
from genus.net._coap.address import Place
from genus.net._coap.agreed import Agreement
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.observation import Observation
from genus.net._envelope import Origin


class PeerCalls(msgspec.Struct, frozen=True):
    """What a peer calls in its thread: with events that came, with losses, and after changes.

    `lost` gets the name of a type, how many events of it did not arrive, from whom, and why; `unsent` the class of an
    event that was not sent, how many, and why.
    """

    receive: Callable[[Event, Origin], None]
    lost: Callable[[str, int, str, str], None]
    unsent: Callable[[type[Event], int, str], None]
    connected: Callable[[], None]
    wants_changed: Callable[[], None]


class ServerState(msgspec.Struct, frozen=True):
    """What a server says of itself: `/g`."""

    epoch: bytes
    digest: bytes
    observers: int
    session: bytes
    uid: bytes


class Upstream(Protocol):
    """A server, as the parts of a client see it."""

    endpoint: Endpoint
    place: Place
    uid: bytes
    calls: PeerCalls
    agreement: Agreement | None
    counts: Counter[str]
    is_connected: bool
    is_plain: bool
    state: ServerState | None
    epoch: bytes
    observations: dict[int, Observation]

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

    def message(self, code: Any, path: str, query: tuple[str, ...] = (), **parts: Any) -> Any:
        """A request to the server."""

    async def ensure(self, types: list[type]) -> None:
        """Let the server's catalog have some types; BusError if it refuses them."""

    async def discover(self, code: int) -> list[int]:
        """The codes of the resources below a code that the server lists."""

    async def register(self, observation: Observation) -> None:
        """Observe, with as many tests at the server as it takes."""

    async def observe_path(self, observation: Observation, path: str, query: tuple[str, ...]) -> Any:
        """Register an observation of a path; the first response."""

    def check_soon(self) -> None:
        """Ask the server at once whether it is there."""

    def lose_connection(self) -> None:
        """The server does not answer."""
