"""Packets of MQTT 5 as bytes and back.

PUBLISH with nothing but an envelope, and PUBACK, are most of the traffic: they are written and read here, at the places
that the standard gives (3.3 and 3.4). All other packets go through the mqtt5 codec. The codec panics at texts that are
not UTF-8, and writes about it to stderr, so texts are tested before it sees them (1.5.4 and 2.2.2).
"""

import struct
from typing import Final, TypeAlias

import mqtt5

from genus.net._envelope import ATTRIBUTES, attributes_in, join_attributes

PUBLISH: Final = 0x30
PUBLISH_QOS_1: Final = 0x32
PUBACK: Final = 0x40
DUPLICATE: Final = 0x08
CORRELATION_DATA: Final = 0x09
EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
USER_PROPERTY: Final = 0x26
KNOWN_TOPICS: Final = 4096
OVERHEAD: Final = 5 + 2 + 65_535 + 2 + 4 + 5 + 3
"""The most bytes of a PUBLISH that are neither payload nor correlation data."""

_BINARY, _PAIR, _TEXT, _NUMBER = -1, -2, -3, -4
_MALFORMED: Final = mqtt5.DisconnectReasonCode.MALFORMED_PACKET

_PROPERTIES: Final = (
    dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1)
    | dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2)
    | dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4)
    | dict.fromkeys((0x03, 0x08, 0x12, 0x15, 0x1A, 0x1C, 0x1F), _TEXT)
    | {0x09: _BINARY, 0x16: _BINARY, 0x0B: _NUMBER, 0x26: _PAIR}
)
"""What each property has: so many bytes, or a form of its own."""

REPEATED: Final = 1 << 16
"""Added to the packet id of a message that the server may have sent before."""

Message: TypeAlias = tuple[str, bytes, bytes, int]
"""An incoming PUBLISH: topic, envelope, payload, packet id (0: QoS 0), with `REPEATED` if it is marked as duplicate."""

Item: TypeAlias = Message | int | mqtt5.Packet
"""What a decoder gives: a message; a PUBACK as packet id | reason << 16; any other packet as the codec has it."""

Outgoing: TypeAlias = tuple[object, bytes, bytes | None, int | None]
"""A PUBLISH that waits: whose it is; its bytes before and after the packet id (QoS 0: all bytes, None); and when it
expires, in nanoseconds of the machine's clock."""


class Malformed(Exception):
    """A packet that breaks the rules of MQTT: why, and the reason code to close the connection with."""

    def __init__(self, why: str, code: mqtt5.DisconnectReasonCode = _MALFORMED) -> None:
        super().__init__(why)
        self.why = why
        self.code = code


def length_bytes(number: int) -> bytes:
    """Return a variable byte integer.

    >>> length_bytes(127), length_bytes(321)
    (b'\\x7f', b'\\xc1\\x02')
    """
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    made.append(number)
    return bytes(made)


_HEAD = struct.Struct(">BBH").unpack_from
_QOS_0 = struct.Struct(">BBH").unpack_from
_QOS_1 = struct.Struct(">HBBH").unpack_from
_LENGTHS = [length_bytes(number) for number in range(1024)]


class PublishForm:
    """The parts that all PUBLISH packets of a topic have in common.

    >>> head, tail = PublishForm("city/Loop", qos=1).parts(b"payload", b"envelope")
    >>> packet, _ = mqtt5.read(memoryview(head + bytes([0, 7]) + tail))
    >>> packet.topic, packet.packet_id, packet.correlation_data, packet.payload
    ('city/Loop', 7, b'envelope', b'payload')
    """

    def __init__(
        self, topic: str, *, qos: int = 0, retain: bool = False, expiry_s: int | None = None, content_type: str = ""
    ) -> None:
        name = topic.encode()
        self.qos = qos
        self._first = bytes([PUBLISH | qos << 1 | retain])
        self._topic = len(name).to_bytes(2, "big") + name
        self._fixed = len(self._topic) + 2 * qos
        self._expiry = b"" if expiry_s is None else bytes([EXPIRY]) + expiry_s.to_bytes(4, "big")
        self._content_type = bytes([CONTENT_TYPE]) + text_bytes(content_type) if content_type else b""
        self._properties: dict[int, bytes] = {}

    def parts(self, payload: bytes, envelope: bytes) -> tuple[bytes, bytes | None]:
        """Return the bytes before and after the packet id; at QoS 0, which has none, the whole packet and None.

        An envelope with the attributes of a CloudEvent becomes user properties.
        """
        if envelope[: len(ATTRIBUTES)] == ATTRIBUTES:
            properties, envelope = self._user_properties(envelope), b""
        else:
            properties = self._properties.get(len(envelope)) or self._begin(len(envelope))
        length = self._fixed + len(properties) + len(envelope) + len(payload)
        size = _LENGTHS[length] if length < 1024 else length_bytes(length)
        if self.qos:
            return b"".join((self._first, size, self._topic)), b"".join((properties, envelope, payload))
        return b"".join((self._first, size, self._topic, properties, envelope, payload)), None

    def _user_properties(self, envelope: bytes) -> bytes:
        attributes = attributes_in(envelope)
        given = self._expiry + bytes([CONTENT_TYPE]) + text_bytes(attributes.pop("datacontenttype", ""))
        user = [bytes([USER_PROPERTY]) + text_bytes(name) + text_bytes(text) for name, text in attributes.items()]
        given += b"".join(user)
        return length_bytes(len(given)) + given

    def _begin(self, envelope: int) -> bytes:
        """Return the properties up to the envelope, for its length."""
        given = self._expiry + self._content_type
        if envelope:
            given += bytes([CORRELATION_DATA]) + envelope.to_bytes(2, "big")
        made = length_bytes(len(given) + envelope) + given
        if len(self._properties) < 64:  # envelopes have few lengths; one that varies must not fill the memory
            self._properties[envelope] = made
        return made


def _two_byte_length(data: bytes, offset: int) -> tuple[int, int, int]:
    """Return where the topic of a PUBLISH with a length of two bytes begins, where it ends, and the size of the topic.

    For a longer one the end is behind all data, so that it is not taken as usual.
    """
    low, high = data[offset + 1], data[offset + 2]
    if high > 127 or offset + 5 > len(data):
        return offset, len(data) + 1, 0
    return offset + 5, offset + 3 + (low & 127 | high << 7), data[offset + 3] << 8 | data[offset + 4]


class Decoder:
    """State: bytes that arrived and are no whole packet yet, and topics that were met before.

    With `fast=False` every packet is given as the codec has it.
    """

    def __init__(self, largest: int, *, fast: bool = True) -> None:
        self.problem: Malformed | None = None
        self._largest = largest
        self._fast = fast
        self._chunks: list[bytes] = []
        self._missing = 0
        self._topics: dict[bytes, str] = {}

    def feed(self, data: bytes) -> list[Item]:
        """The packets that are whole now, in order. After a malformed one `problem` is set and nothing more is read.

        The parts of a large packet are joined once, when the last one is there.
        """
        items: list[Item] = []
        if self.problem is not None:
            return items
        if self._chunks:
            self._chunks.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return items
            data = b"".join(self._chunks)
        try:
            offset = self._read(data, items)
            self._chunks = [data[offset:]] if offset < len(data) else []
        except Malformed as problem:
            self.problem = problem
            self._chunks = []
        return items

    def _read(self, data: bytes, items: list[Item]) -> int:
        """Append all whole packets; returns where the first one that is not whole begins."""
        offset, self._missing = 0, 1
        while True:
            offset = begin = self._read_usual(data, offset, items)
            offset = self._read_one(data, offset, items)
            if offset == begin:
                return offset

    def _read_usual(self, data: bytes, offset: int, items: list[Item]) -> int:
        """Append packets of the two usual forms up to the first that is another one, or not whole, or suspicious."""
        total, topics = len(data), self._topics
        while self._fast and offset + 4 <= total:
            first, length, size = _HEAD(data, offset)  # the size of a topic, or a packet id
            begin = offset + 4
            end = begin - 2 + length
            if first == PUBACK and 2 <= length <= 3 and end <= total:
                items.append(size if length == 2 else size | data[begin] << 16)
                offset = end
                continue
            if length > 127:
                begin, end, size = _two_byte_length(data, offset)
            at = begin + size
            topic = topics.get(data[begin:at])
            if topic is None or end > total or at + 6 > end:
                break
            if first & 0xF6 == PUBLISH:
                packet_id = 0
                properties, kind, size = _QOS_0(data, at)
                at += properties + 1
            elif first & 0xF6 == PUBLISH_QOS_1:
                packet_id, properties, kind, size = _QOS_1(data, at)
                at += properties + 3
                if not packet_id:
                    break
                packet_id |= (first & DUPLICATE) << 13
            else:
                break
            if kind != CORRELATION_DATA or properties != size + 3 or properties > 127 or at > end:
                break
            items.append((topic, data[at - size : at], data[at:end], packet_id))
            offset = end
        return offset

    def _read_one(self, data: bytes, offset: int, items: list[Item]) -> int:
        """Append one packet of any form; returns where it ends, or `offset` if it is not whole."""
        if offset + 2 > len(data):
            return offset
        length, body = _number_at(data, offset + 1, offset + 5)
        if not body:
            return offset
        end = body + length
        if end - offset > self._largest:
            raise Malformed("packet too large", mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE)
        if end > len(data):
            self._missing = end - len(data)
            return offset
        view = memoryview(data)
        items.append(self._by_codec(view[offset:end], view[body:end]))
        return end

    def _by_codec(self, frame: memoryview, body: memoryview) -> Item:
        """Any packet, by the codec; a PUBLISH is given as a message."""
        _check_texts(frame[0], body)
        packet = _read_packet(frame)
        if not self._fast or type(packet) is not mqtt5.PublishPacket:
            return packet
        if packet.qos == mqtt5.QoS.EXACTLY_ONCE or packet.topic_alias is not None:
            raise Malformed("QoS 2 or a topic alias, not asked for", mqtt5.DisconnectReasonCode.PROTOCOL_ERROR)
        if packet.packet_id == 0:
            raise Malformed("packet id 0", mqtt5.DisconnectReasonCode.PROTOCOL_ERROR)
        name = packet.topic.encode()
        if len(self._topics) >= KNOWN_TOPICS:
            self._topics.clear()
        topic = self._topics[name] = _topic_text(name)
        if packet.subscription_ids:  # only shared subscriptions have one
            topic = f"$share/{packet.subscription_ids[0]}/{topic}"
        packet_id = (packet.packet_id or 0) | (REPEATED if packet.duplicate and packet.packet_id else 0)
        return topic, _envelope_of(packet), packet.payload, packet_id


def _envelope_of(packet: mqtt5.PublishPacket) -> bytes:
    """Return the correlation data, or the attributes of a CloudEvent in binary mode."""
    if packet.correlation_data or not any(name == "specversion" for name, _ in packet.user_properties):
        return packet.correlation_data or b""
    attributes = dict(packet.user_properties)
    if packet.content_type:
        attributes["datacontenttype"] = packet.content_type
    return join_attributes(attributes)


def text_bytes(text: str) -> bytes:
    """Return a text with its length.

    >>> text_bytes("Loop")
    b'\\x00\\x04Loop'
    """
    made = text.encode()
    return len(made).to_bytes(2, "big") + made


def _read_packet(frame: memoryview) -> mqtt5.Packet:
    """One whole packet, by the codec; Malformed if it is none."""
    try:
        packet, length = mqtt5.read(frame)
    except (ValueError, IndexError) as problem:
        raise Malformed(_in_short(problem)) from None
    except BaseException as problem:
        if type(problem).__name__ != "PanicException":  # pyo3's: no subclass of Exception, and not importable
            raise
        raise Malformed("codec panicked") from None
    if length != len(frame):
        raise Malformed("length does not fit")
    return packet


def _in_short(problem: Exception) -> str:
    """Reasons are counted by text, so it has no values from outside."""
    return "packet too short" if isinstance(problem, IndexError) else "invalid packet"


# -- texts -------------------------------------------------------------------------------------------------------------


def _check_texts(first: int, body: memoryview) -> None:
    """Malformed if a text of a packet that a server sends is not UTF-8, or its properties are not whole."""
    start = _properties_at(first >> 4, first, body)
    if start is not None:
        length, start = _number(body, start)
        _check_properties(body, start, start + length)


def _topic_text(name: bytes) -> str:
    """Return the topic of a PUBLISH; Malformed if it has wildcards or is empty."""
    topic = _text(name)
    if not topic or "+" in topic or "#" in topic:
        raise Malformed("invalid topic", mqtt5.DisconnectReasonCode.TOPIC_NAME_INVALID)
    return topic


def _properties_at(kind: int, first: int, body: memoryview) -> int | None:
    """Return where the properties of a packet begin; None if it has none, or is one that only clients send."""
    if kind == 3:  # PUBLISH
        topic = 2 + int.from_bytes(body[:2], "big")
        _text(body[2:topic])
        return topic + (2 if first & 6 else 0)
    if kind in (2, 9, 11):  # CONNACK, SUBACK, UNSUBACK
        return 2
    if 4 <= kind <= 7:  # PUBACK to PUBCOMP
        return 3 if len(body) > 3 else None
    if kind in (14, 15):  # DISCONNECT, AUTH
        return 1 if len(body) > 1 else None
    return None


def _check_properties(body: memoryview, at: int, end: int) -> None:
    if end > len(body):
        raise Malformed("properties are not whole")
    while at < end:
        form = _PROPERTIES.get(body[at])
        at += 1
        if form is None:
            raise Malformed("unknown property")
        if form > 0:
            at += form
        elif form == _NUMBER:
            _, at = _number(body, at)
        else:
            for _ in range(2 if form == _PAIR else 1):
                begin, at = at + 2, at + 2 + int.from_bytes(body[at : at + 2], "big")
                if form != _BINARY:
                    _text(body[begin:at])
    if at != end:
        raise Malformed("properties are not whole")


def _number_at(data: bytes | memoryview, at: int, most: int) -> tuple[int, int]:
    """Return a variable byte integer and where it ends; (0, 0) if it is not whole. It ends before `most`."""
    number = shift = 0
    for place in range(at, min(most, len(data))):
        number |= (data[place] & 127) << shift
        if data[place] < 128:
            return number, place + 1
        shift += 7
    if len(data) >= most:
        raise Malformed("length of more than four bytes")
    return 0, 0


def _number(body: memoryview, at: int) -> tuple[int, int]:
    number, end = _number_at(body, at, at + 4)
    if not end:
        raise Malformed("packet too short")
    return number, end


def _text(name: bytes | memoryview) -> str:
    try:
        text = str(name, "utf-8")
    except UnicodeDecodeError:
        raise Malformed("text is not UTF-8") from None
    if "\0" in text:
        raise Malformed("text has a null character")
    return text
