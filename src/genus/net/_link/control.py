"""Control keys: what the participants of a network tell each other besides events.

They begin with `@genus`, which no pattern of events matches. Tokens (`here`, `want`, `gate`) are present while their
speaker lives; the others are packets.

| key | says |
|---|---|
| `@genus/REALM/here/UID/ABOUT` | a participant, and what it says about itself |
| `@genus/REALM/want/SPEAKER/ORIGIN/TEXT/HOPS` | a subscription |
| `@genus/REALM/gate/UID/TEXT`, `gate` | a gateway, and that it works |
| `@genus/REALM/beat` | the newest numbers of a sender's keys |
| `@genus/REALM/lost/UID`, `late/UID` | to a sender: packets that did not arrive, or arrived late |
| `@genus/REALM/ping`, `pong/UID` | a question for the time, and the answer |
| `@genus/REALM/types/DIGEST/TYPE` | kept: a type, with all above it |
| `@genus/REALM/new/FAMILY/.../TYPE` | copies of the first events of a class, for those who asked for one of its kinds |
| `@genus/REALM/group/UID/TEXT/MEMBER` | a token: one of those who share a subscription |
| `@genus/REALM/queue/UID/MEMBER/FAMILY/.../TYPE` | events for one of a group |
| `@genus/REALM/last/FAMILY/.../TYPE/=KEY` | events of which the newest is kept |
"""

import base64
import binascii
from typing import Any

import msgspec

from genus.net._transport import QUEUE as QUEUE
from genus.net._transport import ROOT as ROOT
from genus.net._transport import Sending, Transport

LAST, NEW = "last", "new"
_SELDOM = Sending(waits=False)
MAX_TEXT = 2000
"""The longest subscription, in characters of its text, that is shown to others as it is."""


def control_key(realm: str, *chunks: str) -> str:
    """Return the control key of a realm with these chunks."""
    return "/".join((ROOT, realm, *chunks))


def send_once(transport: Transport, key: str, payload: bytes, sending: Sending = _SELDOM) -> None:
    """Send one packet under a key that is seldom used."""
    sender = transport.sender(key, sending)
    sender.put(payload, b"")
    sender.close()


def encode_text(text: str) -> str:
    """Return a text as one chunk of a key.

    >>> encode_text("Loop where lane > 1"), decode_text("TG9vcA")
    ('TG9vcCB3aGVyZSBsYW5lID4gMQ', 'Loop')
    """
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=") or "_"


def decode_text(chunk: str) -> str | None:
    """Return the text of a chunk; None if it is none, or longer than a text may be."""
    if len(chunk) > 2 * MAX_TEXT:
        return None
    if chunk == "_":
        return ""
    try:
        return base64.b64decode(chunk + "=" * (-len(chunk) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def is_uid(chunk: str) -> bool:
    """Return whether a chunk is the uid of a participant, in hexadecimal digits."""
    return len(chunk) == 16 and all(digit in "0123456789abcdef" for digit in chunk)


class Beat(msgspec.Struct, frozen=True, array_like=True):
    """The keys under which a sender sent packets: the number at the beat before, and the newest.

    `began_us` is when it sent the first packet of each: who had subscribed before must have got all.
    """

    sender: bytes
    numbers: dict[str, tuple[int, int]]
    began_us: dict[str, int] = {}


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Packets of a key that a receiver did not get, or that came after their deadline or expiry."""

    receiver: str
    key: str
    count: int
    worst_us: int = 0
    expired: int = 0


class Ping(msgspec.Struct, frozen=True, array_like=True):
    """A question for the time: who asks, and when by its clock, in microseconds since 1970."""

    asker: str
    asked_us: int


class Pong(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a question for the time."""

    answerer: str
    asked_us: int
    answered_us: int


_DECODERS: dict[type, Any] = {each: msgspec.msgpack.Decoder(each) for each in (Beat, Loss, Ping, Pong)}
encode_message = msgspec.msgpack.Encoder().encode


def decode_message(type_: type[Any], payload: bytes) -> Any | None:
    """Return the message of a type in a payload; None if it is none."""
    try:
        return _DECODERS[type_].decode(payload)
    except Exception:  # msgspec's errors, UnicodeDecodeError, RecursionError
        return None
