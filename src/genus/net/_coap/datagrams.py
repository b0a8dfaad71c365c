"""The strict test of datagrams, before anything else reads them: RFC 7252, section 3 and appendix B.

It finds what makes a message malformed, which is counted and rejected, and options whose length or number is not
allowed. Those are for the server to answer: an elective one is ignored, a critical one is 4.02 (Bad Option).
Behind it is aiocoap's message layer, which retransmits and recognises repeated requests. Here it counts what it cannot
use, and tells senders when all that they sent to a receiver was acknowledged.
"""

import asyncio
import logging
import socket
from collections import Counter
from typing import Any, NamedTuple

from aiocoap import Message
from aiocoap.messagemanager import MessageManager
from aiocoap.numbers.codes import EMPTY
from aiocoap.numbers.constants import TransportTuning
from aiocoap.numbers.types import CON, NON, RST
from aiocoap.transports.udp6 import MessageInterfaceUDP6, UDP6EndpointAddress

from genus.net._coap.address import CoapOptions

log = logging.getLogger("genus.coap")
LATENCY_S = 5.0
"""The longest time that a datagram is on its way. Repeated requests are recognised for twice as long and more; RFC 7252
proposes 100 s, in which a busy client has used all message numbers."""

VERSION = 1
MOST_TOKEN = 8
CONFIRMABLE = 0
PAYLOAD_MARKER = 0xFF
_RESERVED_CLASSES = frozenset((1, 6, 7))

_ANY = 65_804
# fmt: off
LENGTHS = {
    1: (0, 8), 3: (1, 255), 4: (1, 8), 5: (0, 0), 6: (0, 3), 7: (0, 2), 8: (0, 255), 9: (0, 255), 11: (0, 255),
    12: (0, 2), 14: (0, 4), 15: (0, 255), 16: (1, 1), 17: (0, 2), 20: (0, 255), 23: (0, 3), 27: (0, 3), 28: (0, 4),
    35: (1, 1034), 39: (1, 255), 60: (0, 4), 252: (1, 40), 258: (0, 1), 292: (0, 8),
}
# fmt: on
"""By number of an option: the shortest and the longest value."""
REPEATABLE = frozenset((1, 4, 8, 11, 15, 20, 292))
TEXTS = frozenset((3, 8, 11, 15, 20, 35, 39))
KNOWN_CRITICAL = frozenset((3, 7, 9, 11, 15, 17, 23, 27))
"""Critical options that a server here understands; 9 is that of OSCORE, which is tested before."""
OWN_OPTION = 65_052
"""The option of Genus: elective, safe to forward, and no part of cache keys; from the range for experiments."""


class Header(NamedTuple):
    """What is known of a datagram that is no message: enough to reject it."""

    is_confirmable: bool
    message_id: int


class Malformed(NamedTuple):
    """Why a datagram is no message, and its header if that can be read."""

    reason: str
    header: Header | None = None


class WellFormed(NamedTuple):
    """A message: its code, and the first critical option that a server must refuse, None if there is none."""

    code: int
    bad_option: int | None


def check_datagram(data: bytes) -> WellFormed | Malformed:
    """Whether a datagram is a message.

    >>> check_datagram(bytes.fromhex("40010001b34241"))
    Malformed(reason='an option is cut off', header=Header(is_confirmable=True, message_id=1))
    >>> check_datagram(bytes.fromhex("40010001b24241"))
    WellFormed(code=1, bad_option=None)
    """
    if len(data) < 4:
        return Malformed("shorter than a header")
    if data[0] >> 6 != VERSION:
        return Malformed("another version of CoAP")
    header = Header(data[0] >> 4 & 3 == CONFIRMABLE, int.from_bytes(data[2:4], "big"))
    length, code = data[0] & 0x0F, data[1]
    if length > MOST_TOKEN:
        return Malformed(f"a token of more than {MOST_TOKEN} bytes", header)
    if code == 0:
        return WellFormed(0, None) if len(data) == 4 else Malformed("an empty message with content", header)
    if code >> 5 in _RESERVED_CLASSES:
        return Malformed("a code of a reserved class", header)
    if len(data) < 4 + length:
        return Malformed("a token that is cut off", header)
    options = _read_options(data, 4 + length)
    return Malformed(options, header) if isinstance(options, str) else WellFormed(code, _first_bad(options))


def _read_options(data: bytes, at: int) -> list[tuple[int, bytes]] | str:
    """The options from an offset on, by number; or what is wrong."""
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
    """The value of a nibble with its extension, and the offset after it; None if it is reserved or cut off."""
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
    """The first critical option that is unknown, doubled or of a wrong length."""
    seen: set[int] = set()
    for number, value in options:
        least, most = LENGTHS.get(number, (0, _ANY))
        is_wrong = not least <= len(value) <= most or (number in seen and number not in REPEATABLE)
        seen.add(number)
        if number % 2 and (is_wrong or number not in KNOWN_CRITICAL):
            return number
    return None


# -- the message layer -------------------------------------------------------------------------------------------------


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
