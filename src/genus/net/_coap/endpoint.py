"""`Endpoint`: aiocoap in a thread of its own, behind a strict test of datagrams, and protected by OSCORE (RFC 8613).

aiocoap splits large bodies and matches responses to requests. What is added here: a place is never shared with another
server, and all times are those of the address.
"""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from aiocoap import Context, Message, credentials, defaults, error
from aiocoap.message import UndecidedRemote
from aiocoap.numbers.codes import GET
from aiocoap.numbers.optionnumbers import OptionNumber
from aiocoap.pipe import Pipe, error_to_message
from aiocoap.tokenmanager import TokenManager

from genus._extras import install_command
from genus.errors import BusError, Reasons
from genus.net._addresses import CoapOptions, Place
from genus.net._coap.datagrams import OWN_OPTION, StrictManager, StrictUdp, Tuning

T = TypeVar("T")

CLOSE_S = 5.0
OSCORE_STEPS = 20
"""How many turns of the loop a message may take through OSCORE before it is sent."""


class EndedPipe(Pipe):  # type: ignore[misc]
    """A pipe for which it is no error if something comes after its end, as the end of OSCORE's tasks does."""

    def _add_event(self, event: Any) -> None:
        if self._event_callbacks is not False:
            super()._add_event(event)


class StrictContext(Context):  # type: ignore[misc]
    """A context whose requests may be replaced before they were begun: nothing is left of them."""

    def render_to_pipe(self, pipe: Any) -> None:
        """Answer a request in a task that ends with the interest in it."""
        inner = error_to_message(pipe, self.log)
        task = self.loop.create_task(self._drive(inner, pipe))
        inner.on_interest_end(task.cancel)

    async def _drive(self, inner: Any, pipe: Any) -> None:
        try:
            await self._render_to_pipe(pipe)
        except Exception as problem:
            inner.add_exception(problem)


class Endpoint:
    """State: a context of aiocoap, its loop and its thread. `log` gets what goes wrong here and in aiocoap."""

    def __init__(self, options: CoapOptions, log: logging.Logger) -> None:
        self.options, self.log = options, log
        self.counts = Reasons()
        self.tuning = Tuning(options)
        self.loop = asyncio.new_event_loop()
        self.context: Any = None
        self.manager: StrictManager | None = None
        self.thread = threading.Thread(target=self._run, name="genus-coap", daemon=True)
        self._is_closed = False

    def open(self, site: Any) -> None:
        """Start the thread, and bind the socket; `site` answers requests. BusError if that cannot be done."""
        self.thread.start()
        try:
            if self.options.secure:
                _refuse_dtls(self.options.shown)
            self.call(self._open(site)).result()
        except Exception as problem:
            self.close()
            if isinstance(problem, BusError):
                raise
            place = self.options.listen or "a socket"
            raise BusError(f"{self.options.shown}: cannot listen at {place}: {problem}") from problem

    async def _open(self, site: Any) -> None:
        context = StrictContext(loop=self.loop, serversite=site)
        context.log = self.log
        tokens = TokenManager(context)
        manager = StrictManager(tokens, self.tuning, self.counts)
        sock = _bound_socket(self.options.listen)
        try:
            manager.message_interface = await StrictUdp._create_transport_endpoint(sock, manager, self.log, self.loop)
        except BaseException:
            sock.close()
            raise
        tokens.token_interface = manager
        context.request_interfaces.append(tokens)
        self.context, self.manager = context, manager
        if self.options.credentials is not None:
            _protect(context, self.options.credentials)

    @property
    def port(self) -> int:
        assert self.manager is not None
        found: int = self.manager.message_interface._local_port()
        return found

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the thread of the endpoint."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the thread of the endpoint; nothing if that has ended."""
        try:
            self.loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            self.counts["calls after the end"] += 1

    def close(self) -> None:
        """End all tasks, the socket and the thread; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.call(self._close()).result(CLOSE_S)
        except TimeoutError:
            self.log.warning("%s took more than %g s to close", self.options.shown, CLOSE_S)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(CLOSE_S)

    async def _close(self) -> None:
        if self.context is not None:
            await self.context.shutdown()
        tasks = [task for task in asyncio.all_tasks(self.loop) if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    async def acknowledged(self, remote: Any) -> None:
        """Wait until a remote has acknowledged what was just sent to it, or is given up."""
        assert self.manager is not None
        address = getattr(remote, "underlying_address", None)
        for _ in range(OSCORE_STEPS if address is not None else 0):
            if self.manager.is_busy(address):
                break
            await asyncio.sleep(0)  # OSCORE sends in another task
        await self.manager.idle(remote if address is None else address)

    # -- requests ----------------------------------------------------------------------------------------------------

    def message(self, place: Place | None, **parts: Any) -> Any:
        """Return a request, to a place if one is given, with the times of the address."""
        message = Message(transport_tuning=self.tuning, **parts)
        if place is not None:
            message.remote = UndecidedRemote("coaps" if self.options.secure else "coap", str(place))
        return message

    def check_protected(self, place: Place) -> None:
        """BusError if the address has credentials, and none of them is for a place."""
        path = self.options.credentials
        try:
            if path is not None:
                self.context.client_credentials.credentials_from_request(self.message(place, code=GET))
        except credentials.CredentialsMissingError as problem:
            raise BusError(f"{path}: has no credentials for coap://{place}") from problem

    async def request(self, message: Any, timeout: float) -> Any:
        """Return the response to a request; a NetworkError of aiocoap, or TimeoutError."""
        return await asyncio.wait_for(self.context.request(message).response, timeout)

    async def stream(self, message: Any, receive: Callable[[Any], bool]) -> Callable[[], None]:
        """Call a function with each response to a request, as events of a pipe; returns a function that ends it."""
        pipe = EndedPipe(message, self.log)
        end = pipe.on_event(receive)
        try:
            interface = await self.context.find_remote_and_interface(message)
            interface.request(pipe)
        except error.Error as problem:
            pipe.add_exception(problem)
        return end  # type: ignore[no-any-return]


def _bound_socket(place: Place | None) -> socket.socket:
    """Return a socket for IPv6 and IPv4, bound to a place; OSError if another has it."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.setblocking(False)
        if place is not None:
            flags = socket.AI_V4MAPPED | socket.AI_ALL
            found = socket.getaddrinfo(place.host, place.port, socket.AF_INET6, socket.SOCK_DGRAM, 0, flags)
            sock.bind(found[0][4])
    except BaseException:
        sock.close()
        raise
    return sock


def own_option(message: Any) -> bytes | None:
    """Return the value of the option of Genus in a message; None if it has none."""
    found = message.opt.get_option(OWN_OPTION)
    return bytes(found[0].value) if found else None


def add_own_option(message: Any, value: bytes) -> None:
    message.opt.add_option(OptionNumber(OWN_OPTION).create_option(decode=value))


# -- keys --------------------------------------------------------------------------------------------------------------


def _protect(context: Any, path: Path) -> None:
    """Protect what a context sends and answers by the credentials of a file; BusError if that cannot be done.

    The file is that of aiocoap: a JSON object whose names are addresses of servers (`coap://HOST/*`) for clients, and
    names that begin with a colon for servers.
    """
    if missing := defaults.oscore_missing_modules():
        raise BusError(f"OSCORE needs {', '.join(missing)}: {install_command('oscore')}")
    from aiocoap.oscore_sitewrapper import OscoreSiteWrapper
    from aiocoap.transports.oscore import TransportOSCORE

    given = _read_credentials(path)
    try:
        context.client_credentials.load_from_dict({name: given[name] for name in given if not name.startswith(":")})
        context.server_credentials.load_from_dict({name: given[name] for name in given if name.startswith(":")})
    except Exception as problem:  # aiocoap raises errors of many kinds
        raise BusError(f"{path}: the credentials cannot be used: {problem}") from problem
    context.request_interfaces.insert(0, TransportOSCORE(context, context))
    if context.serversite is not None:
        context.serversite = OscoreSiteWrapper(context.serversite, context.server_credentials)


def _read_credentials(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise BusError(f"{path}: the credentials cannot be read: {problem}") from problem
    if not isinstance(found, dict):
        raise BusError(f"{path}: credentials are a JSON object")
    return found


def _refuse_dtls(address: str) -> NoReturn:
    missing = defaults.dtls_missing_modules()
    why = f"needs {', '.join(missing)}, which is not installed" if missing else "is not tested with Genus"
    raise BusError(
        f"{address}: DTLS {why}; protect coap:// by OSCORE (credentials=FILE), or put a DTLS proxy before it"
    )
