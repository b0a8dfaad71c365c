"""The messages of the configuration, binding and catalog protocols: packed into frames, and parsed from them.

`parse_message` gives None for a frame that is not exactly one of them, for example because of another length, priority
or sender. The first five event tags and the byte order of their messages are FAMOUSO's.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from genus.can._wire.frame import (
    BROKER_NODE,
    FIRST_NODE,
    LAST_NODE,
    NODE_SHIFT,
    UNCONFIGURED_NODE,
    Frame,
    Identifier,
    Priority,
    ProtocolEtag,
)

REPLY_PRIORITY = Priority.PROTOCOL - 1
"""The broker's replies have a higher priority than requests, so that a bus full of requests drains."""

STAGES = 16
FIRST_STAGE = STAGES - 1
NIBBLE_BITS = 4


class QosClass(IntEnum):
    """The QoS class of an event channel, in two bits."""

    NONE = 0
    SOFT = 1
    HARD = 2
    UNANNOUNCED = 3
    """The channel was not announced yet."""


class RefusalReason(IntEnum):
    """Why a subject has no event tag."""

    UNKNOWN_SUBJECT = 1
    KIND = 2
    """A kind has no event tag of its own: subscribe to the types that have the kind."""
    EXHAUSTED = 3
    """The catalog has no event tag left for it: use another bus, with a catalog of its own."""


class QuestionKind(IntEnum):
    """What a catalog question asks for."""

    VECTOR = 1
    """The vector of the subject with these 48 leading bits."""
    TYPE = 2
    """The type of an event tag."""
    CATALOG = 3
    """The whole catalog."""
    SIGNATURE = 4
    """To a publisher, whose number is that of the question: the signature of an event tag; to 0: all signatures."""
    LAYOUT = 5
    """To a publisher, whose number is that of the question: the layout of the events with an event tag."""
    CLASS = 6
    """The class of an event tag as a small device reads it: code, and bits for the attributes of its vector."""


class ObjectionReason(IntEnum):
    """How the events of a publisher contradict a catalog."""

    OTHER_TYPE = 1
    """The event tag is another type's."""
    OTHER_TAG = 2
    """The type has another event tag."""
    OTHER_LAYOUT = 3
    """The type has other attributes, or other tagged ones."""


class _Message(msgspec.Struct, frozen=True, gc=False):
    pass


class Nibble(_Message, frozen=True, gc=False):
    """RSI, from nodes without a number: one nibble of the uid, at a stage. It has no data.

    Stage and nibble are in the last bit of the priority and the node field: nodes with the same nibble send the same
    frame, the lowest nibble wins, and a later stage wins over an earlier one.

    >>> Nibble(15, 0xA).frame()
    Frame(0x1fbe8001, )
    """

    stage: int
    nibble: int

    def frame(self) -> Frame:
        return Frame(Priority.PROTOCOL - 1 << 21 | self.stage << 18 | self.nibble << NODE_SHIFT | ProtocolEtag.RSI)


class Prefix(_Message, frozen=True, gc=False):
    """SSI, from the broker: nodes whose uid has this prefix, down to the nibble of this stage, continue.

    >>> Prefix(14, 0xAB00_0000_0000_0000).frame()
    Frame(0x1f9fc000, ab0000000000000e)
    """

    stage: int
    prefix: int

    def frame(self) -> Frame:
        return _reply(BROKER_NODE, ProtocolEtag.SSI, (self.prefix | self.stage).to_bytes(8, "big"))

    def fits(self, uid: int) -> bool:
        return (uid ^ self.prefix) >> NIBBLE_BITS * self.stage == 0


class Restart(_Message, frozen=True, gc=False):
    """SSI of zeros, from the broker: start again with the first stage.

    >>> Restart().frame()
    Frame(0x1f9fc000, 0000000000000000)
    """

    def frame(self) -> Frame:
        return _reply(BROKER_NODE, ProtocolEtag.SSI, bytes(8))


class NumberGrant(_Message, frozen=True, gc=False):
    """SSI, from the broker: the number of the node with this uid, in the node field; 0 if none is free.

    >>> NumberGrant(0xABCD, 5).frame()
    Frame(0x1f814000, 000000000000abcd)
    """

    uid: int
    node: int

    def frame(self) -> Frame:
        return _reply(self.node, ProtocolEtag.SSI, self.uid.to_bytes(8, "big"))


class Claim(_Message, frozen=True, gc=False):
    """From a node: its uid under its number; the broker claims number 127.

    >>> Claim(5, 0xABCD).frame()
    Frame(0x1f614005, 000000000000abcd)
    """

    node: int
    uid: int

    def frame(self) -> Frame:
        return Frame(Identifier(Priority.SYSTEM, self.node, ProtocolEtag.CLAIM).pack(), self.uid.to_bytes(8, "big"))


class GetEtag(_Message, frozen=True, gc=False):
    """From a node: a request for the event tag of a subject.

    >>> GetEtag(5, 0x95623E3A87C20C39).frame()
    Frame(0x1fa14002, 95623e3a87c20c39)
    """

    node: int
    subject: int

    def frame(self) -> Frame:
        return _request(self.node, ProtocolEtag.GET_ETAG, self.subject.to_bytes(8, "big"))


class SupplyHalf(_Message, frozen=True, gc=False):
    """Half of the broker's reply: part 0 has the flags and the first half of the subject, part 1 the second half.

    >>> SupplyHalf(5, 1, 8208, 0, 0x87C20C39).frame()
    Frame(0x1f9fc004, 0501201087c20c39)
    """

    to: int
    part: int
    etag: int
    flags: int
    half: int

    def frame(self) -> Frame:
        head = bytes((self.to, self.flags << 1 | self.part))
        data = head + self.etag.to_bytes(2, "big") + self.half.to_bytes(4, "big")
        return _reply(BROKER_NODE, ProtocolEtag.SUPPLY_ETAG_FLAGS, data)


class Supply(_Message, frozen=True, gc=False):
    """The broker's reply to a binding request, in two frames; etag 0 is a refusal.

    `width` is the number of low bits of the event tag that are presence bits of tagged attributes.
    """

    subject: int
    etag: int
    qos_class: QosClass = QosClass.UNANNOUNCED
    segmented: bool = False
    width: int = 0
    deprecated: bool = False
    reason: RefusalReason | None = None

    def frames(self, to: int) -> tuple[Frame, Frame]:
        """Return the two frames of the reply to a node.

        >>> Supply(0x95623E3A87C20C39, 8208, QosClass.SOFT, width=2).frames(5)
        (Frame(0x1f9fc004, 0544201095623e3a), Frame(0x1f9fc004, 0501201087c20c39))
        """
        flags = self.reason or self.qos_class << 5 | self.segmented << 4 | self.width
        first = SupplyHalf(to, 0, self.etag, flags, self.subject >> 32)
        second = SupplyHalf(to, 1, self.etag, self.deprecated << 6, self.subject & 0xFFFF_FFFF)
        return first.frame(), second.frame()

    @classmethod
    def join(cls, first: SupplyHalf, second: SupplyHalf) -> "Supply | None":
        """Return the reply that two halves make; None if they do not belong together."""
        if (first.part, second.part) != (0, 1) or (first.to, first.etag) != (second.to, second.etag):
            return None
        subject, deprecated = first.half << 32 | second.half, bool(second.flags >> 6)
        if first.etag == 0:
            return cls(
                subject,
                0,
                reason=RefusalReason(first.flags) if first.flags in _REASONS else RefusalReason.UNKNOWN_SUBJECT,
            )
        segmented, width = bool(first.flags >> 4 & 1), first.flags & 15
        return cls(subject, first.etag, QosClass(first.flags >> 5), segmented, width, deprecated)


_REASONS = frozenset(RefusalReason)


class Announce(_Message, frozen=True, gc=False):
    """From a publisher: QoS class and contract of a channel; `span_us` is the period (hard) or deadline (soft).

    >>> Announce(5, 8208, QosClass.SOFT, False, 7, 20_000).frame()
    Frame(0x1fa14006, 2010400700004e20)
    """

    node: int
    etag: int
    qos_class: QosClass
    segmented: bool
    size: int
    """The most bytes of a payload; 255 means 255 or more."""
    span_us: int

    def frame(self) -> Frame:
        flags = self.qos_class << 6 | self.segmented << 5
        contract = bytes((flags, min(self.size, 0xFF))) + min(self.span_us, 0xFFFF_FFFF).to_bytes(4, "big")
        return _request(self.node, ProtocolEtag.ANNOUNCE, self.etag.to_bytes(2, "big") + contract)


class Heartbeat(_Message, frozen=True, gc=False):
    """From the broker: its epoch and the digest of its catalog; a roll call asks all nodes to claim their numbers.

    >>> Heartbeat(3, 0xCAFE_F00D, roll_call=True).frame()
    Frame(0x1f7fc00a, 01000003cafef00d)
    """

    epoch: int
    digest: int
    roll_call: bool = False

    def frame(self) -> Frame:
        data = bytes((self.roll_call,)) + (self.epoch & 0xFF_FFFF).to_bytes(3, "big") + self.digest.to_bytes(4, "big")
        return Frame(Identifier(Priority.SYSTEM, BROKER_NODE, ProtocolEtag.BROKER).pack(), data)


class Question(_Message, frozen=True, gc=False):
    """From a node: a catalog question; the argument is the head of a subject, an event tag, or 0.

    >>> Question(5, 7, QuestionKind.TYPE, 8208).frame()
    Frame(0x1fa1400b, 0207000000002010)
    """

    node: int
    number: int
    kind: QuestionKind
    argument: int

    def frame(self) -> Frame:
        return _request(
            self.node, ProtocolEtag.QUESTION, bytes((self.kind, self.number)) + self.argument.to_bytes(6, "big")
        )


class Signature(_Message, frozen=True, gc=False):
    """From a publisher: what its events with an event tag are, by 24 bits of the subject and of the layout's digest.

    It is sent before the first report of a channel, when a node joins, and when a node asks.

    >>> Signature(5, 8208, 0x95623E, 0xC0FFEE).frame()
    Frame(0x1f61400d, 201095623ec0ffee)
    """

    node: int
    etag: int
    subject: int
    """The 24 leading bits of the subject; see `signed_subject`."""
    digest: int

    def frame(self) -> Frame:
        data = self.etag.to_bytes(2, "big") + self.subject.to_bytes(3, "big") + self.digest.to_bytes(3, "big")
        return Frame(Identifier(Priority.SYSTEM, self.node, ProtocolEtag.SIGNATURE).pack(), data)


class Objection(_Message, frozen=True, gc=False):
    """From a node or the broker: its catalog contradicts what another node publishes with an event tag.

    >>> Objection(3, 5, 8208, ObjectionReason.OTHER_TYPE, 0x95623E3A).frame()
    Frame(0x1f60c00e, 0501201095623e3a)
    """

    node: int
    publisher: int
    etag: int
    reason: ObjectionReason
    subject: int
    """The 32 leading bits of the subject that the sender knows; 0 if it knows none."""

    def frame(self) -> Frame:
        head = bytes((self.publisher, self.reason)) + self.etag.to_bytes(2, "big")
        identifier = Identifier(Priority.SYSTEM, self.node, ProtocolEtag.OBJECTION).pack()
        return Frame(identifier, head + self.subject.to_bytes(4, "big"))


Message: TypeAlias = (
    Nibble
    | Prefix
    | Restart
    | NumberGrant
    | Claim
    | GetEtag
    | SupplyHalf
    | Announce
    | Heartbeat
    | Question
    | Signature
    | Objection
)


def subject_head(subject: int) -> int:
    """The 48 leading bits of a subject, which a question carries; the answer names the type, which gives the rest.

    >>> f"{subject_head(0x95623E3A87C20C39):x}"
    '95623e3a87c2'
    """
    return subject >> 16


def signed_subject(subject: int) -> int:
    """Return the 24 leading bits of a subject, which a signature carries.

    >>> f"{signed_subject(0x95623E3A87C20C39):x}"
    '95623e'
    """
    return subject >> 40


def catalog_digest(text: str) -> int:
    """Return the digest of a catalog in heartbeats: 32 bits of BLAKE2b over the catalog's text.

    >>> f"{catalog_digest(''):08x}"
    '1271cf25'
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big")


@lru_cache(maxsize=64)  # in a simulation all nodes parse the same frame
def parse_message(frame: Frame) -> Message | None:
    """Return the protocol message in a frame; None if it is none.

    >>> parse_message(Claim(5, 0xABCD).frame())
    Claim(node=5, uid=43981)
    >>> parse_message(Frame(Claim(5, 0xABCD).frame().id, b"short")) is None
    True
    """
    etag = frame.etag
    if etag >= len(_PARSERS) or frame.fd or not frame.extended:
        return None
    parser = _PARSERS[etag]
    return None if parser is None else parser(frame)


def _request(node: int, etag: ProtocolEtag, data: bytes) -> Frame:
    return Frame(Identifier(Priority.PROTOCOL, node, etag).pack(), data)


def _reply(node: int, etag: ProtocolEtag, data: bytes) -> Frame:
    return Frame(Identifier(REPLY_PRIORITY, node, etag).pack(), data)


def _parse_ssi(frame: Frame) -> Message | None:
    data, node = frame.data, frame.node
    if len(data) != 8 or frame.priority != REPLY_PRIORITY:
        return None
    word = int.from_bytes(data, "big")
    if node != BROKER_NODE:
        return NumberGrant(word, node) if word else None
    stage = word & 15
    below = (1 << NIBBLE_BITS * stage) - 1
    if stage == 0:
        return None if word else Restart()
    return Prefix(stage, word - stage) if (word - stage) & below == 0 else None


def _parse_rsi(frame: Frame) -> Message | None:
    if frame.data or frame.id >> 22 != Priority.PROTOCOL >> 1:
        return None
    return Nibble(frame.id >> 18 & 15, frame.id >> NODE_SHIFT & 15)


def _parse_get_etag(frame: Frame) -> Message | None:
    return GetEtag(frame.node, int.from_bytes(frame.data, "big")) if _is_request(frame) else None


def _parse_supply(frame: Frame) -> Message | None:
    data = frame.data
    if len(data) != 8 or frame.node != BROKER_NODE or frame.priority != REPLY_PRIORITY:
        return None
    etag, half = int.from_bytes(data[2:4], "big"), int.from_bytes(data[4:], "big")
    return None if etag >> 14 else SupplyHalf(data[0], data[1] & 1, etag, data[1] >> 1, half)


def _parse_claim(frame: Frame) -> Message | None:
    uid = int.from_bytes(frame.data, "big")
    known = frame.node != UNCONFIGURED_NODE and frame.priority == Priority.SYSTEM
    return Claim(frame.node, uid) if known and uid and len(frame.data) == 8 else None


def _parse_announce(frame: Frame) -> Message | None:
    if not _is_request(frame):
        return None
    data = frame.data
    etag, flags, span_us = int.from_bytes(data[:2], "big"), data[2], int.from_bytes(data[4:], "big")
    if etag >> 14 or flags >> 6 == QosClass.UNANNOUNCED:
        return None
    return Announce(frame.node, etag, QosClass(flags >> 6), bool(flags >> 5 & 1), data[3], span_us)


def _parse_heartbeat(frame: Frame) -> Message | None:
    data = frame.data
    if len(data) != 8 or frame.node != BROKER_NODE or frame.priority != Priority.SYSTEM:
        return None
    return Heartbeat(int.from_bytes(data[1:4], "big"), int.from_bytes(data[4:], "big"), bool(data[0] & 1))


def _parse_question(frame: Frame) -> Message | None:
    data = frame.data
    if len(data) != 8 or frame.priority != Priority.PROTOCOL or data[0] not in _KINDS:
        return None
    kind = QuestionKind(data[0])
    last = BROKER_NODE if kind in PUBLISHER_QUESTIONS else LAST_NODE
    if not FIRST_NODE <= frame.node <= last:
        return None
    return Question(frame.node, data[1], kind, int.from_bytes(data[2:], "big"))


def _parse_signature(frame: Frame) -> Message | None:
    data, etag = frame.data, int.from_bytes(frame.data[:2], "big")
    if len(data) != 8 or frame.priority != Priority.SYSTEM or not FIRST_NODE <= frame.node <= LAST_NODE or etag >> 14:
        return None
    return Signature(frame.node, etag, int.from_bytes(data[2:5], "big"), int.from_bytes(data[5:], "big"))


def _parse_objection(frame: Frame) -> Message | None:
    data, etag = frame.data, int.from_bytes(frame.data[2:4], "big")
    if len(data) != 8 or frame.priority != Priority.SYSTEM or frame.node == UNCONFIGURED_NODE or etag >> 14:
        return None
    if data[1] not in _OBJECTIONS:
        return None
    return Objection(frame.node, data[0], etag, ObjectionReason(data[1]), int.from_bytes(data[4:], "big"))


def _is_request(frame: Frame) -> bool:
    """Return whether a frame has the size and priority of a request, and comes from a node with a number."""
    return len(frame.data) == 8 and frame.priority == Priority.PROTOCOL and FIRST_NODE <= frame.node <= LAST_NODE


_KINDS = frozenset(QuestionKind)
_OBJECTIONS = frozenset(ObjectionReason)
PUBLISHER_QUESTIONS = frozenset({QuestionKind.SIGNATURE, QuestionKind.LAYOUT})
"""Questions to publishers; the broker asks them too, and does not answer them."""

_PARSERS: list[Callable[[Frame], Message | None] | None] = [None] * (max(ProtocolEtag) + 1)
_PARSERS[ProtocolEtag.SSI] = _parse_ssi
_PARSERS[ProtocolEtag.RSI] = _parse_rsi
_PARSERS[ProtocolEtag.GET_ETAG] = _parse_get_etag
_PARSERS[ProtocolEtag.SUPPLY_ETAG_FLAGS] = _parse_supply
_PARSERS[ProtocolEtag.CLAIM] = _parse_claim
_PARSERS[ProtocolEtag.ANNOUNCE] = _parse_announce
_PARSERS[ProtocolEtag.BROKER] = _parse_heartbeat
_PARSERS[ProtocolEtag.QUESTION] = _parse_question
_PARSERS[ProtocolEtag.SIGNATURE] = _parse_signature
_PARSERS[ProtocolEtag.OBJECTION] = _parse_objection
