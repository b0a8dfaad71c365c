"""The strict test of datagrams, before anything else reads them: RFC 7252, section 3 and appendix B.

It finds what makes a message malformed, which is counted and rejected, and options whose length or number is not
allowed. Those are for the server to answer: an elective one is ignored, a critical one is 4.02 (Bad Option).
"""

from typing import NamedTuple

VERSION = 1
MOST_TOKEN = 8
CONFIRMABLE = 0
PAYLOAD_MARKER = 0xFF
_RESERVED_CLASSES = frozenset((1, 6, 7))

_ANY = 65_804
LENGTHS = {
    1: (0, 8),
    3: (1, 255),
    4: (1, 8),
    5: (0, 0),
    6: (0, 3),
    7: (0, 2),
    8: (0, 255),
    9: (0, 255),
    11: (0, 255),
    12: (0, 2),
    14: (0, 4),
    15: (0, 255),
    16: (1, 1),
    17: (0, 2),
    20: (0, 255),
    23: (0, 3),
    27: (0, 3),
    28: (0, 4),
    35: (1, 1034),
    39: (1, 255),
    60: (0, 4),
    252: (1, 40),
    258: (0, 1),
    292: (0, 8),
}
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
