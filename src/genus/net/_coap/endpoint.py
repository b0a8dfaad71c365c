"""`Endpoint`: aiocoap in a thread of its own, behind a strict test of datagrams.

aiocoap does retransmission, recognises repeated requests and splits large bodies. What is added here: damaged datagrams
are counted and rejected before it sees them, a place is never shared with another server, senders learn when all that
they sent to a receiver was acknowledged, and all times are those of the address.
"""

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from aiocoap import Context, Message, error
from aiocoap.message import UndecidedRemote
from aiocoap.messagemanager import MessageManager
from aiocoap.numbers.codes import EMPTY, GET
from aiocoap.numbers.constants import TransportTuning
from aiocoap.numbers.optionnumbers import OptionNumber
from aiocoap.numbers.types import CON, NON, RST
from aiocoap.pipe import Pipe, error_to_message
from aiocoap.tokenmanager import TokenManager
from aiocoap.transports.udp6 import MessageInterfaceUDP6, UDP6EndpointAddress

from genus.errors import BusError
from genus.net._coap.address import CoapOptions, Place
from genus.net._coap.credentials import check_protected, protect, refuse_dtls
from genus.net._coap.datagrams import OWN_OPTION, Malformed, check_datagram

T = TypeVar("T")
log = logging.getLogger("genus.coap")

LATENCY_S = 5.0
"""The longest time that a datagram is on its way. Repeated requests are recognised for twice as long and more; RFC 7252
proposes 100 s, in which a busy client has used all message numbers."""
CLOSE_S = 5.0
OSCORE_STEPS = 20
"""How many turns of the loop a message may take through OSCORE before it is sent."""


class Tuning(TransportTuning):  # type: ignore[misc]
    """The times of retransmission, from an address."""

    MAX_LATENCY = LATENCY_S
    reliability = True

    def __init__(self, options: CoapOptions) -> None:
        self.ACK_TIMEOUT = options.ack_timeout_s
        self.MAX_RETRANSMIT = options.retransmits


class StrictManager(MessageManager):  # type: ignore[misc]
    """The message layer, which counts what it cannot use and tells when a receiver has acknowledged all."""

    def __init__(self, token_manager: Any, tuning: Tuning, counts: Counter[str]) -> None:
        super().__init__(token_manager)
        self.tuning, self.counts = tuning, counts
        self._progress = asyncio.Event()

    def dispatch_message(self, message: Any) -> None:
        """Take a message that was received."""
        message.transport_tuning = self.tuning
        if not _fits(message):
            self.counts["rejected: a code that does not fit its type"] += 1
            return
        try:
            super().dispatch_message(message)
        except Exception:
            self.counts["rejected: a message that could not be handled"] += 1
            log.exception("a message could not be handled: %r", message)

    def _deduplicate_message(self, message: Any) -> Any:
        is_repeated = super()._deduplicate_message(message)
        if is_repeated:
            self.counts["repeated requests"] += 1
        return is_repeated

    def _process_ping(self, message: Any) -> None:
        self.counts["pings"] += 1
        super()._process_ping(message)

    def _process_response(self, response: Any) -> Any:
        is_expected = super()._process_response(response)
        if not is_expected:
            self.counts["responses to no request"] += 1
        return is_expected

    def _remove_exchange(self, message: Any) -> None:
        super()._remove_exchange(message)
        self._progress.set()

    def _retransmit(self, message: Any, timeout: float, retransmission_counter: int) -> None:
        self.counts["retransmissions"] += 1
        super()._retransmit(message, timeout, retransmission_counter)
        self._progress.set()

    def dispatch_error(self, error: Any, remote: Any) -> None:
        """Take an error of the network, as that nobody listens at a remote."""
        super().dispatch_error(error, remote)
        self._progress.set()

    def is_busy(self, remote: Any) -> bool:
        """Whether a message to a remote waits for its acknowledgement."""
        return bool(self._active_exchanges) and remote in self._backlogs

    async def idle(self, remote: Any) -> None:
        """Wait until a remote has acknowledged all, or is given up."""
        while self.is_busy(remote):
            self._progress.clear()
            await self._progress.wait()


def _fits(message: Any) -> bool:
    """Whether the code of a message is one that its type may have (RFC 7252, table 1)."""
    if message.code.is_request():
        return bool(message.mtype in (CON, NON))
    if message.code == EMPTY:
        return bool(message.mtype != NON)
    return bool(message.code.is_response()) and message.mtype != RST


class StrictUdp(MessageInterfaceUDP6):  # type: ignore[misc]
    """The socket: what is no message is counted, and rejected if its sender waits for an acknowledgement."""

    _problem: OSError | None = None

    def connection_made(self, transport: Any) -> None:
        """The socket is there; larger datagrams than it reads by default are not to be cut off."""
        super().connection_made(transport)
        transport.max_size = 65_536

    def send(self, message: Any) -> None:
        """Send a message; an error that another receiver has caused is none of this one.

        A socket reports the error of one datagram when the next is sent, to whomever. So that is tried again; who
        caused the error is in the socket's queue of errors.
        """
        for _ in range(2):
            self._problem = None
            super().send(message)
            if self._problem is None:
                return
        self._ctx.counts["datagrams that could not be sent"] += 1
        if not isinstance(self._problem, BlockingIOError):
            self.loop.call_soon(self._ctx.dispatch_error, self._problem, message.remote)

    def error_received(self, exc: OSError) -> None:
        """Note an error of the socket."""
        self._problem = exc

    def datagram_msg_received(self, data: bytes, ancdata: Any, flags: int, address: Any) -> None:
        """Take a datagram."""
        found = check_datagram(data)
        packet_info = next((value for level, kind, value in ancdata if kind == socket.IPV6_PKTINFO), None)
        remote = UDP6EndpointAddress(address, self, pktinfo=packet_info)
        if isinstance(found, Malformed):
            self._reject(found, remote)
            return
        try:
            message = Message.decode(data, remote)
        except Exception:  # what the test has overlooked
            self._reject(Malformed("a message that cannot be decoded"), remote)
            return
        message.bad_option = found.bad_option
        self._ctx.dispatch_message(message)

    def _reject(self, found: Malformed, remote: Any) -> None:
        self._ctx.counts[f"rejected: {found.reason}"] += 1
        if found.header is not None and found.header.is_confirmable:
            reset = Message(code=EMPTY, _mtype=RST, _mid=found.header.message_id)
            reset.remote = remote.as_response_address()
            self.send(reset)


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
    """State: a context of aiocoap, its loop and its thread."""

    def __init__(self, options: CoapOptions) -> None:
        self.options = options
        self.counts: Counter[str] = Counter()
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
                refuse_dtls(self.options.shown)
            self.call(self._open(site)).result()
        except Exception as problem:
            self.close()
            if isinstance(problem, BusError):
                raise
            place = self.options.listen or "a socket"
            raise BusError(f"{self.options.shown}: cannot listen at {place}: {problem}") from problem

    async def _open(self, site: Any) -> None:
        context = StrictContext(loop=self.loop, serversite=site, loggername="genus.coap")
        tokens = TokenManager(context)
        manager = StrictManager(tokens, self.tuning, self.counts)
        sock = _bound_socket(self.options.listen)
        try:
            manager.message_interface = await StrictUdp._create_transport_endpoint(sock, manager, log, self.loop)
        except BaseException:
            sock.close()
            raise
        tokens.token_interface = manager
        context.request_interfaces.append(tokens)
        self.context, self.manager = context, manager
        if self.options.credentials is not None:
            protect(context, self.options.credentials)

    @property
    def port(self) -> int:
        """The port of the socket."""
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
            log.warning("%s took more than %g s to close", self.options.shown, CLOSE_S)
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
        """A request, to a place if one is given, with the times of the address."""
        message = Message(transport_tuning=self.tuning, **parts)
        if place is not None:
            message.remote = UndecidedRemote("coaps" if self.options.secure else "coap", str(place))
        return message

    def check_protected(self, place: Place) -> None:
        """BusError if the address has credentials, and none of them is for a place."""
        if self.options.credentials is not None:
            check_protected(self.context, self.message(place, code=GET), self.options.credentials)

    async def request(self, message: Any, timeout: float) -> Any:
        """The response to a request; a NetworkError of aiocoap, or TimeoutError."""
        return await asyncio.wait_for(self.context.request(message).response, timeout)

    async def stream(self, message: Any, receive: Callable[[Any], bool]) -> Callable[[], None]:
        """Call a function with each response to a request, as events of a pipe; returns a function that ends it."""
        pipe = EndedPipe(message, log)
        end = pipe.on_event(receive)
        try:
            interface = await self.context.find_remote_and_interface(message)
            interface.request(pipe)
        except error.Error as problem:
            pipe.add_exception(problem)
        return end  # type: ignore[no-any-return]


def _bound_socket(place: Place | None) -> socket.socket:
    """A socket for IPv6 and IPv4, bound to a place; OSError if another has it."""
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
    """The value of the option of Genus in a message; None if it has none."""
    found = message.opt.get_option(OWN_OPTION)
    return bytes(found[0].value) if found else None


def add_own_option(message: Any, value: bytes) -> None:
    """Add the option of Genus to a message."""
    message.opt.add_option(OptionNumber(OWN_OPTION).create_option(decode=value))
