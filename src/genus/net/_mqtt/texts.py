"""Texts in MQTT packets: where they stand, and whether they are UTF-8 (1.5.4 and 2.2.2 of the standard)."""

from typing import Final

import mqtt5

CONNACK, PUBLISH, PUBACK, PUBCOMP, SUBACK, UNSUBACK, DISCONNECT, AUTH = 2, 3, 4, 7, 9, 11, 14, 15
BINARY, PAIR, TEXT, NUMBER = -1, -2, -3, -4
MALFORMED: Final = mqtt5.DisconnectReasonCode.MALFORMED_PACKET

PROPERTIES: Final = (
    dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1)
    | dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2)
    | dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4)
    | dict.fromkeys((0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F), TEXT)
    | {0x09: BINARY, 0x16: BINARY, 0x0B: NUMBER, 0x26: PAIR}
)
"""What each property has: so many bytes, or a form of its own."""


class Malformed(Exception):
    """A packet that breaks the rules of MQTT: why, and the reason code to close the connection with."""

    def __init__(self, why: str, code: mqtt5.DisconnectReasonCode = MALFORMED) -> None:
        super().__init__(why)
        self.why = why
        self.code = code


def check_texts(first: int, body: bytes) -> None:
    """Malformed if a text of a packet that a server sends is not UTF-8, or its properties are not whole."""
    start = _properties_at(first >> 4, first, body)
    if start is not None:
        length, start = _number(body, start)
        _check_properties(body, start, start + length)


def topic_text(name: bytes) -> str:
    """The topic of a PUBLISH; Malformed if it has wildcards or is empty."""
    topic = _text(name)
    if not topic or "+" in topic or "#" in topic:
        raise Malformed("invalid topic", mqtt5.DisconnectReasonCode.TOPIC_NAME_INVALID)
    return topic


def _properties_at(kind: int, first: int, body: bytes) -> int | None:
    """Where the properties of a packet begin; None if it has none, or is one that only clients send."""
    if kind == PUBLISH:
        topic = 2 + int.from_bytes(body[:2], "big")
        _text(body[2:topic])
        return topic + (2 if first & 6 else 0)
    if kind in (CONNACK, SUBACK, UNSUBACK):
        return 2
    if PUBACK <= kind <= PUBCOMP:
        return 3 if len(body) > 3 else None
    if kind in (DISCONNECT, AUTH):
        return 1 if len(body) > 1 else None
    return None


def _check_properties(body: bytes, at: int, end: int) -> None:
    if end > len(body):
        raise Malformed("properties are not whole")
    while at < end:
        form = PROPERTIES.get(body[at])
        at += 1
        if form is None:
            raise Malformed("unknown property")
        if form > 0:
            at += form
        elif form == NUMBER:
            _, at = _number(body, at)
        else:
            for _ in range(2 if form == PAIR else 1):
                begin, at = at + 2, at + 2 + int.from_bytes(body[at : at + 2], "big")
                if form != BINARY:
                    _text(body[begin:at])
    if at != end:
        raise Malformed("properties are not whole")


def number_at(data: bytes, at: int, most: int) -> tuple[int, int]:
    """A variable byte integer and where it ends; (0, 0) if it is not whole. It ends before `most`."""
    number = shift = 0
    for place in range(at, min(most, len(data))):
        number |= (data[place] & 127) << shift
        if data[place] < 128:
            return number, place + 1
        shift += 7
    if len(data) >= most:
        raise Malformed("length of more than four bytes")
    return 0, 0


def _number(body: bytes, at: int) -> tuple[int, int]:
    number, end = number_at(body, at, at + 4)
    if not end:
        raise Malformed("packet too short")
    return number, end


def _text(name: bytes) -> str:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise Malformed("text is not UTF-8") from None
    if "\0" in text:
        raise Malformed("text has a null character")
    return text
