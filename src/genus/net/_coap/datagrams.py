"""The strict test of datagrams, before anything else reads them: RFC 7252, section 3 and appendix B.

It finds what makes a message malformed, which is counted and rejected, and options whose length or number is not
allowed. Those are for the server to answer: an elective one is ignored, a critical one is 4.02 (Bad Option).
Behind it is aiocoap's message layer, which retransmits. Here it recognises repeated requests, counts what it cannot
use, and tells senders when all that they sent to a receiver was acknowledged.
"""

import asyncio
import socket
from collections import Counter
from typing import Any, NamedTuple

import msgspec
from aiocoap import Message
from aiocoap.message import Direction
from aiocoap.messagemanager import MessageManager
from aiocoap.numbers.codes import EMPTY, GET
from aiocoap.numbers.constants import TransportTuning
from aiocoap.numbers.types import ACK, CON, NON, RST
from aiocoap.transports.udp6 import MessageInterfaceUDP6, UDP6EndpointAddress

from genus.net._addresses import CoapOptions

MAX_RECENT = 65_536
"""The largest number of requests that are remembered: as many message numbers as there are. Of more, the oldest are
forgotten."""

VERSION = 1
MAX_TOKEN = 8
CONFIRMABLE = 0
PAYLOAD_MARKER = 0xFF
_RESERVED_CLASSES = frozenset((1, 6, 7))

# fmt: off
KNOWN_CRITICAL = {
    3: (1, 255), 7: (0, 2), 9: (0, 255), 11: (0, 255), 15: (0, 255), 17: (0, 2), 23: (0, 3), 27: (0, 3),
}
# fmt: on
"""Critical options that a server here understands, and the least and the most bytes of their values; 9 is that of
OSCORE, which is tested before."""
REPEATABLE = frozenset((11, 15))
TEXTS = frozenset((3, 8, 11, 15, 20, 35, 39))
OWN_OPTION = 65_052
"""The option of Genus: elective, safe to forward, and no part of cache keys; from the range for experiments."""


class Malformed(NamedTuple):
    """Why a datagram is no message, and its number if its sender waits for an acknowledgement."""

    reason: str
    number: int | None = None


class WellFormed(NamedTuple):
    """A message: its code, and the first critical option that a server must refuse, None if there is none."""

    code: int
    bad_option: int | None


def check_datagram(data: bytes) -> WellFormed | Malformed:
    """Return whether a datagram is a message.

    >>> check_datagram(bytes.fromhex("40010001b34241"))
    Malformed(reason='an option is cut off', number=1)
    >>> check_datagram(bytes.fromhex("40010001b24241"))
    WellFormed(code=1, bad_option=None)
    """
    if len(data) < 4:
        return Malformed("shorter than a header")
    if data[0] >> 6 != VERSION:
        return Malformed("another version of CoAP")
    number = int.from_bytes(data[2:4], "big") if data[0] >> 4 & 3 == CONFIRMABLE else None
    length, code = data[0] & 0x0F, data[1]
    if length > MAX_TOKEN:
        return Malformed(f"a token of more than {MAX_TOKEN} bytes", number)
    if code == 0:
        return WellFormed(0, None) if len(data) == 4 else Malformed("an empty message with content", number)
    if code >> 5 in _RESERVED_CLASSES:
        return Malformed("a code of a reserved class", number)
    if len(data) < 4 + length:
        return Malformed("a token that is cut off", number)
    options = _read_options(data, 4 + length)
    return Malformed(options, number) if isinstance(options, str) else WellFormed(code, _first_bad(options))


def _read_options(data: bytes, at: int) -> list[tuple[int, bytes]] | str:
    """Return the options from an offset on, by number; or what is wrong."""
    found: list[tuple[int, bytes]] = []
    number = 0
    while at < len(data):
        first = data[at]
        at += 1
        if first == PAYLOAD_MARKER:
            return found if at < len(data) else "a payload marker without a payload"
        fields = []
        for nibble in (first >> 4, first & 0x0F):
            read = _extended(nibble, data, at)
            if read is None:
                return "an option with a reserved or missing length"
            value, at = read
            fields.append(value)
        number += fields[0]
        value_of, at = data[at : at + fields[1]], at + fields[1]
        if at > len(data):
            return "an option is cut off"
        if number > 0xFFFF:
            return "an option number over 65535"
        if number in TEXTS and not _is_text(value_of):
            return "an option that is no text"
        found.append((number, value_of))
    return found


def _extended(nibble: int, data: bytes, at: int) -> tuple[int, int] | None:
    """Return the value of a nibble with its extension, and the offset after it; None if it is reserved or cut off."""
    if nibble < 13:
        return nibble, at
    size = {13: 1, 14: 2}.get(nibble, 0)
    if not size or at + size > len(data):
        return None
    return int.from_bytes(data[at : at + size], "big") + (13 if size == 1 else 269), at + size


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _first_bad(options: list[tuple[int, bytes]]) -> int | None:
    """Return the first critical option that is unknown, doubled or of a wrong length."""
    seen: set[int] = set()
    for number, value in options:
        least, most = KNOWN_CRITICAL.get(number, (1, 0))
        if number % 2 and (not least <= len(value) <= most or number in seen - REPEATABLE):
            return number
        seen.add(number)
    return None


# -- the message layer -------------------------------------------------------------------------------------------------


class Tuning(TransportTuning):  # type: ignore[misc]
    """The times of retransmission, from an address."""

    reliability = True

    def __init__(self, options: CoapOptions) -> None:
        self.ACK_TIMEOUT = options.ack_timeout_s
        self.MAX_RETRANSMIT = options.retransmits


class Recent(msgspec.Struct, gc=False):
    """State: a request that may be repeated: the hash of its bytes, until when, and the response once there is one."""

    hash: int
    until: float
    response: bytes = b""


class RecentRequests:
    """State: the requests that were received lately, by sender and message number (RFC 7252, section 4.5).

    A copy has the bytes of the first. A request with other bytes and the same number is a new one, of a client that
    uses its numbers again earlier than it may: one of 65,536 after 247 s, so at more than 265 requests a second.
    """

    def __init__(self, tuning: TransportTuning) -> None:
        theirs = TransportTuning()  # senders may have the times of the RFC: 247 s, and 145 s if not confirmable
        self._con_s = max(each.EXCHANGE_LIFETIME for each in (tuning, theirs))
        self._non_s = max(each.MAX_TRANSMIT_SPAN + each.MAX_LATENCY for each in (tuning, theirs))
        self._requests: dict[str, Recent] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def find(self, key: str, hash: int, now: float) -> Recent | None:
        """Return the request that one repeats; None if it is a new one. The key has its sender and message number."""
        found = self._requests.get(key)
        return found if found is not None and found.hash == hash and now < found.until else None

    def add(self, key: str, hash: int, is_confirmable: bool, now: float) -> None:
        self._requests.pop(key, None)
        self._requests[key] = Recent(hash, now + (self._con_s if is_confirmable else self._non_s))
        while len(self) > MAX_RECENT or next(iter(self._requests.values())).until <= now:
            del self._requests[next(iter(self._requests))]

    def answer(self, key: str, response: Any) -> None:
        found = self._requests.get(key)
        if found is not None:
            found.response = response.encode()


def _key(message: Any) -> str:
    """Return the other side and the number of a message; a text takes the least memory."""
    host, port, _, scope = message.remote.sockaddr
    return f"{host} {port} {scope} {message.mid}"


class StrictManager(MessageManager):  # type: ignore[misc]
    """The message layer, which counts what it cannot use and tells when a receiver has acknowledged all."""

    def __init__(self, token_manager: Any, tuning: Tuning, counts: Counter[str]) -> None:
        super().__init__(token_manager)
        self.tuning, self.counts = tuning, counts
        self.recent, self.now = RecentRequests(tuning), self.loop.time
        self._progress = asyncio.Event()

    def dispatch_message(self, message: Any) -> None:
        message.transport_tuning = self.tuning
        if not _fits(message):
            self.counts["rejected: a code that messages of its type do not have"] += 1
            return
        try:
            super().dispatch_message(message)
        except asyncio.InvalidStateError:  # the response to a request that is given up in this moment
            self.counts["responses to no request"] += 1
        except Exception:
            self.counts["rejected: a message that could not be handled"] += 1
            self.log.exception("a message could not be handled: %r", message)

    def _deduplicate_message(self, message: Any) -> bool:
        """Return whether a request was received before; then it gets the same response, if there is one."""
        if message.code == GET and message.opt.observe is None:
            return False  # it changes nothing, so a copy is answered again, and nothing has to be remembered
        request = _key(message), message.hash
        found = self.recent.find(*request, self.now())
        if found is None:
            self.recent.add(*request, message.mtype is CON, self.now())
            return False
        self.counts["repeated requests"] += 1
        if message.mtype is CON and found.response:
            response = Message.decode(found.response, message.remote.as_response_address())
            response.direction = Direction.OUTGOING
            self._send_via_transport(response)
        return True

    def _store_response_for_duplicates(self, message: Any) -> None:
        if message.mtype in (ACK, RST):  # others have a message number of this side
            self.recent.answer(_key(message), message)

    def _process_request(self, request: Any) -> None:
        """Answer a request; if its token is that of one that waits for its answer, that one is given up."""
        waiting = self._piggyback_opportunities.pop((request.remote, request.token), None)
        if waiting is not None:
            waiting[1].cancel()
            self.counts["requests with a token that is in use"] += 1
        super()._process_request(request)

    def _process_ping(self, message: Any) -> None:
        self.counts["pings"] += 1
        super()._process_ping(message)

    def _process_response(self, response: Any) -> Any:
        is_expected = super()._process_response(response)
        if not is_expected:
            self.counts["responses to no request"] += 1
        return is_expected

    def _remove_exchange(self, message: Any) -> None:
        try:
            super()._remove_exchange(message)
        except Exception:  # aiocoap's own, if what is reset was given up before; what waits behind it must go on
            self.counts["resets of requests that were given up"] += 1
            if message.remote in self._backlogs:
                self._continue_backlog(message.remote)
        finally:
            self._progress.set()

    def _retransmit(self, message: Any, timeout: float, retransmission_counter: int) -> None:
        self.counts["retransmissions"] += 1
        try:
            super()._retransmit(message, timeout, retransmission_counter)
        finally:
            self._progress.set()

    def dispatch_error(self, error: Any, remote: Any) -> None:
        """Take an error of the network, as that nobody listens at a remote."""
        try:
            super().dispatch_error(error, remote)
        finally:
            self._progress.set()

    def is_busy(self, remote: Any) -> bool:
        """Return whether a message to a remote waits for its acknowledgement."""
        return bool(self._active_exchanges) and remote in self._backlogs

    async def idle(self, remote: Any) -> None:
        """Wait until a remote has acknowledged all, or is given up."""
        while self.is_busy(remote):
            self._progress.clear()
            await self._progress.wait()


def _fits(message: Any) -> bool:
    """Return whether the code of a message is one that its type may have (RFC 7252, table 1)."""
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
        self._problem = exc

    def datagram_msg_received(self, data: bytes, ancdata: Any, flags: int, address: Any) -> None:
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
        message.bad_option, message.hash = found.bad_option, hash(data)
        self._ctx.dispatch_message(message)

    def _reject(self, found: Malformed, remote: Any) -> None:
        self._ctx.counts[f"rejected: {found.reason}"] += 1
        if found.number is not None:
            reset = Message(code=EMPTY, _mtype=RST, _mid=found.number)
            reset.remote = remote.as_response_address()
            self.send(reset)
