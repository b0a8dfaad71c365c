"""Catalog questions: a node asks, and the broker answers with a segmented transfer that begins with node and question.

All answers have one sender and one event tag, so there is one at a time, and every node can receive it: the whole
catalog is sent once to all nodes that wait for it. There is a pause between two frames, because an answer may be long
and is not urgent. Nodes repeat questions whose answers they did not receive completely.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from genus.can._protocol.broker_tables import AnnouncedChannel
from genus.can._protocol.messages import (
    QosClass,
    Question,
    QuestionKind,
    RefusalReason,
    Supply,
    catalog_digest,
    subject_head,
)
from genus.can._protocol.notices import (
    ANSWER_ATTEMPTS,
    ANSWER_INTERVAL,
    ANSWER_RETRY,
    ANSWER_TIMEOUT,
    CatalogReceived,
    NameReceived,
    Notice,
    RequestUnanswered,
    VectorReceived,
)
from genus.can._wire.frame import (
    BROKER_NODE,
    CLASSIC_BYTES,
    UNCONFIGURED_NODE,
    Frame,
    Identifier,
    Priority,
    ProtocolEtag,
    subject_uid,
)
from genus.can._wire.payload import PayloadCodec
from genus.can._wire.segments import Reassembler, split_payload
from genus.catalog import Catalog
from genus.codes import code_size, encode_code
from genus.errors import BusError, CatalogDamaged
from genus.model.internal import parse_type
from genus.model.types import Attribute, Vector

ANSWER_ID = Identifier(Priority.NONE, BROKER_NODE, ProtocolEtag.ANSWER).pack()
HEADER_SIZE = 3
"""The bytes before an answer: the node's number, the question's number, its kind."""
ALL_NODES = UNCONFIGURED_NODE
"""The node number in an answer for all nodes, which is the whole catalog."""
MAX_WAITING, MAX_PER_NODE = 64, 4
"""The most questions that wait at a broker, in total and of one node; nodes repeat those that are dropped."""
MAX_ANSWER = 1 << 20
MAX_CODE_BYTES = 255
"""The most bytes of a code on the wire."""
MAX_CATALOG = 16 << 20
"""The most bytes of a decompressed catalog; protects against decompression bombs."""

Presence = Literal["required", "optional", "absent"]
Row = tuple[str, str | dict[str, Any], Presence, str | None]
"""An attribute in an answer: its name, the description of its type, whether events of the type have it, its unit."""


# -- the broker's side -------------------------------------------------------------------------------------------------


class CatalogIndex:
    """A catalog by subject and event tag, with the broker's replies; `capacity` is the most data bytes of a frame."""

    def __init__(self, catalog: Catalog, capacity: int = CLASSIC_BYTES) -> None:
        text = catalog.text()
        self.digest = catalog_digest(text)
        self._catalog = catalog
        self._entries = catalog.entries
        self._capacity = capacity
        self._compressed = zlib.compress(text.encode(), 9)
        self._names = {subject_uid(name): name for name in catalog.types}
        self._heads = {subject_head(subject): name for subject, name in self._names.items()}

    def type_without_etag(self, subject: int) -> str | None:
        """Return the name of a subject that is a type and has no event tag yet, else None."""
        name = self._names.get(subject)
        return name if name is not None and not self._entries[name].kind and not self._catalog.has_etag(name) else None

    def supply(self, subject: int, channels: Mapping[str, AnnouncedChannel]) -> Supply:
        name = self._names.get(subject)
        if name is None or self._entries[name].kind:
            return Supply(subject, 0, reason=RefusalReason.UNKNOWN_SUBJECT if name is None else RefusalReason.KIND)
        if not self._catalog.has_etag(name):
            return Supply(subject, 0, reason=RefusalReason.EXHAUSTED)
        announced = channels.get(name) or AnnouncedChannel(QosClass.UNANNOUNCED, self._needs_segments(name))
        return Supply(
            subject,
            self._catalog.etag(name),
            announced.qos_class,
            announced.segmented,
            len(self._catalog.tagged_attributes(name)),
            self._entries[name].deprecated is not None,
        )

    def type_of(self, etag: int) -> str | None:
        """Return the name of the type of an event tag, whatever its presence bits are."""
        return self._catalog.type_of(etag)

    def answer(self, question: Question) -> bytes:
        match question.kind:
            case QuestionKind.VECTOR:
                return self._describe_vector(question.argument)
            case QuestionKind.TYPE:
                return (self.type_of(question.argument) or "").encode()
            case QuestionKind.CATALOG:
                return self._compressed
            case QuestionKind.CLASS:
                return self._describe_class(question.argument)
            case QuestionKind.SIGNATURE | QuestionKind.LAYOUT:
                raise AssertionError("publishers answer this, not the broker")

    def _describe_vector(self, head: int) -> bytes:
        """JSON of type, family, rows and names of tagged attributes; nothing if the subject is unknown."""
        name = self._heads.get(head)
        if name is None:
            return b""
        declared, vector = declared_attributes(self._catalog, name), self._catalog.vector(name)
        presences: dict[bool | None, Presence] = {None: "absent", True: "required", False: "optional"}
        rows: list[Row] = [
            (each.name, each.type.describe(), presences[declared.get(each.name)], each.unit) for each in vector
        ]
        return msgspec.json.encode((name, vector.scope, rows, self._catalog.tagged_attributes(name)))

    def _describe_class(self, etag: int) -> bytes:
        """Own event tag, code on the wire, how many attributes the vector has, bits of those that every event of the
        class carries, and of those that it may carry; nothing if the event tag is unknown."""
        name = self.type_of(etag)
        if name is None or code_size(self._catalog.code(name)) > MAX_CODE_BYTES:
            return b""
        declared, vector = declared_attributes(self._catalog, name), self._catalog.vector(name)
        head = self._catalog.etag(name).to_bytes(2, "big") + encode_code(self._catalog.code(name))
        bits = (
            pack_bits(bool(declared.get(each.name)) for each in vector),
            pack_bits(each.name in declared for each in vector),
        )
        return head + len(vector).to_bytes(2, "big") + b"".join(bits)

    def _needs_segments(self, name: str) -> bool:
        """Return whether an event with all attributes of its own can be longer than a frame."""
        codec = PayloadCodec.of(
            self._catalog.declare(name), self._catalog.vector(name), self._catalog.tagged_attributes(name)
        )
        size = codec.max_size_carrying()
        return size is None or size > self._capacity


def pack_bits(flags: Iterable[bool]) -> bytes:
    """Flags as bits, the first in the highest bit of the first byte.

    >>> pack_bits([True, False, True, False, False, False, False, False, True]).hex()
    'a080'
    """
    text = "".join("1" if flag else "0" for flag in flags)
    size = (len(text) + 7) // 8
    return int(text.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big")


def declared_attributes(catalog: Catalog, name: str) -> dict[str, bool]:
    """Return the attributes of a type, and whether each is required; a kind has those of `Event`."""
    entry = catalog.entries[name]
    inherited = {} if entry.kind or not entry.parents else declared_attributes(catalog, entry.parents[0])
    return inherited | dict(entry.attributes)


class CatalogServer:
    """State: the questions that wait at a broker or a publisher, and the progress of the current answer.

    `send` queues a frame, `answer` gives the answer to a question, `identifier` that of the frames.
    """

    def __init__(
        self,
        send: Callable[[Frame], None],
        answer: Callable[[Question], bytes],
        identifier: Callable[[], int] = lambda: ANSWER_ID,
    ) -> None:
        self._send, self._answer, self._identifier = send, answer, identifier
        self._waiting: dict[Question, None] = {}
        self._pieces: Sequence[bytes] = ()
        self._position = 0
        self._transfer = 0
        self._frame: Frame | None = None
        self.wake_at: int | None = None
        """When the next frame is due."""

    def ask(self, question: Question) -> bool:
        """Queue a question, unless it waits already; False if there are too many."""
        if question.kind in (QuestionKind.CATALOG, QuestionKind.LAYOUT):  # one answer for all who ask
            argument = question.argument if question.kind is QuestionKind.LAYOUT else 0
            question = Question(ALL_NODES, 0, question.kind, argument)
        if question not in self._waiting:
            of_this_node = sum(other.node == question.node for other in self._waiting)
            if of_this_node >= MAX_PER_NODE or len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting[question] = None
        if self._frame is None and self.wake_at is None:
            self._send_next()
        return True

    def sent(self, frame: Frame, now: int) -> None:
        """A frame was sent; if it belongs to an answer, the next one follows after a pause."""
        if frame == self._frame:
            self._frame = None
            self.wake_at = now + ANSWER_INTERVAL

    def wake(self, now: int) -> None:
        """Continue the answer, or begin the next one, if it is due."""
        if self.wake_at is not None and now >= self.wake_at:
            self.wake_at = None
            self._send_next()

    def clear(self) -> None:
        """Drop all questions and the current answer."""
        self._waiting.clear()
        self._pieces, self._position, self._frame, self.wake_at = (), 0, None, None

    def _send_next(self) -> None:
        if self._position == len(self._pieces):
            self._begin_next()
        if self._position < len(self._pieces):
            self._frame = Frame(self._identifier(), self._pieces[self._position])
            self._position += 1
            self._send(self._frame)

    def _begin_next(self) -> None:
        self._pieces, self._position = (), 0
        if self._waiting:
            question = next(iter(self._waiting))
            del self._waiting[question]
            header = bytes((question.node, question.number, question.kind))
            self._transfer = self._transfer + 1 & 31
            self._pieces = split_payload(header + self._answer(question), self._transfer)


# -- the node's side ---------------------------------------------------------------------------------------------------


class _Pending:
    """State: a question that was not answered yet."""

    def __init__(self, kind: QuestionKind, of: int) -> None:
        self.kind, self.of = kind, of
        self.frame: Frame | None = None
        self.attempts = 0
        self.retry_at: int | None = None
        self.timeout_at = 0


class CatalogClient:
    """State: the catalog questions of a node.

    `send` queues a frame by its identifier, `withdraw` removes one that is still queued, `notify` gets notices. Nothing
    is sent until the node has a number: see `join`.
    """

    def __init__(
        self,
        *,
        send: Callable[[Frame], None],
        withdraw: Callable[[Frame], None],
        notify: Callable[[Notice], None],
    ) -> None:
        self._send, self._withdraw, self._notify = send, withdraw, notify
        self._node: int | None = None
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._reassembler = Reassembler(ANSWER_RETRY, max_bytes=MAX_ANSWER)

    def join(self, node: int, now: int) -> None:
        """The node has this number: send all questions under it."""
        self.leave()
        self._node = node
        for number, pending in self._pending.items():
            self._ask(number, pending, now)

    def leave(self) -> None:
        """The node has no number: send nothing, but keep the questions."""
        self._node = None
        for pending in self._pending.values():
            self._withdraw_frame(pending)
            pending.attempts, pending.retry_at = 0, None

    def ask_vector(self, subject: int, now: int) -> None:
        """Ask for the vector of a subject; the answer is a `VectorReceived`."""
        self._add(QuestionKind.VECTOR, subject, now)

    def ask_type(self, etag: int, now: int) -> None:
        """Ask for the type of an event tag; the answer is a `NameReceived`."""
        self._add(QuestionKind.TYPE, etag, now)

    def ask_catalog(self, now: int) -> None:
        self._add(QuestionKind.CATALOG, 0, now)

    def receive(self, frame: Frame, now: int) -> None:
        if frame.id != ANSWER_ID or frame.fd or not self._pending:
            return
        for pending in self._pending.values():
            if pending.retry_at is not None:
                pending.retry_at = min(now + ANSWER_RETRY, pending.timeout_at)
        payload = self._reassembler.receive(frame, now)
        if payload is None or len(payload) < HEADER_SIZE:
            return
        to, number, kind = payload[:HEADER_SIZE]
        if to == self._node:
            self._on_answer(number, kind, payload[HEADER_SIZE:])
        elif to == ALL_NODES and kind == QuestionKind.CATALOG:
            waiting = [number for number, pending in self._pending.items() if pending.kind is QuestionKind.CATALOG]
            self._on_answer(waiting[0] if waiting else number, kind, payload[HEADER_SIZE:])

    @property
    def wake_at(self) -> int | None:
        if not self._pending:
            return None
        return min((p.retry_at for p in self._pending.values() if p.retry_at is not None), default=None)

    def wake(self, now: int) -> None:
        for number, pending in list(self._pending.items()):
            if pending.retry_at is None or pending.retry_at > now:
                continue
            if pending.attempts < ANSWER_ATTEMPTS:
                self._ask(number, pending, now)
            else:
                self._withdraw_frame(self._pending.pop(number))
                self._notify(RequestUnanswered(_NAMES[pending.kind], pending.of))

    def _add(self, kind: QuestionKind, of: int, now: int) -> None:
        if any((pending.kind, pending.of) == (kind, of) for pending in self._pending.values()):
            return
        if len(self._pending) >= 1 << 8:
            raise BusError("256 catalog questions wait for an answer; ask more after some are answered")
        while self._number in self._pending:
            self._number = self._number + 1 & 0xFF
        pending = self._pending[self._number] = _Pending(kind, of)
        if self._node is not None:
            self._ask(self._number, pending, now)
        self._number = self._number + 1 & 0xFF

    def _ask(self, number: int, pending: _Pending, now: int) -> None:
        assert self._node is not None
        self._withdraw_frame(pending)
        argument = subject_head(pending.of) if pending.kind is QuestionKind.VECTOR else pending.of
        pending.frame = Question(self._node, number, pending.kind, argument).frame()
        pending.attempts += 1
        pending.retry_at, pending.timeout_at = now + ANSWER_RETRY, now + ANSWER_TIMEOUT
        self._send(pending.frame)

    def _withdraw_frame(self, pending: _Pending) -> None:
        if pending.frame is not None:
            self._withdraw(pending.frame)
            pending.frame = None

    def _on_answer(self, number: int, kind: int, body: bytes) -> None:
        """Process an answer for this node; if it cannot be read, the question is repeated later."""
        pending = self._pending.get(number)
        if pending is None or pending.kind != kind:
            return
        notice = _READERS[pending.kind](pending.of, body)
        if notice is not None:
            self._withdraw_frame(self._pending.pop(number))
            self._notify(notice)


_NAMES: dict[QuestionKind, Literal["vector", "type", "catalog"]] = {
    QuestionKind.VECTOR: "vector",
    QuestionKind.TYPE: "type",
    QuestionKind.CATALOG: "catalog",
}

_Description = tuple[str, str, tuple[Row, ...], tuple[str, ...]]


def _read_vector(subject: int, body: bytes) -> Notice | None:
    if not body:
        return VectorReceived(subject)
    try:
        name, family, rows, tagged = msgspec.json.decode(body, type=_Description)
        attributes = tuple(Attribute(n, parse_type(type_), p != "required", unit) for n, type_, p, unit in rows)
    except (msgspec.MsgspecError, ValueError):
        return None
    if subject_uid(name) != subject:
        return None
    carried = tuple(name for name, _, presence, _ in rows if presence != "absent")
    return VectorReceived(subject, name, Vector(family, attributes), carried, tagged)


def _read_type(etag: int, body: bytes) -> Notice | None:
    try:
        return NameReceived(etag, body.decode() or None)
    except UnicodeDecodeError:
        return None


def _read_catalog(_: int, body: bytes) -> Notice | None:
    try:
        text = zlib.decompressobj().decompress(body, MAX_CATALOG)
        return CatalogReceived(Catalog.parse(text.decode()))
    except (zlib.error, UnicodeDecodeError, CatalogDamaged):
        return None


_READERS: dict[QuestionKind, Callable[[int, bytes], Notice | None]] = {
    QuestionKind.VECTOR: _read_vector,
    QuestionKind.TYPE: _read_type,
    QuestionKind.CATALOG: _read_catalog,
}
