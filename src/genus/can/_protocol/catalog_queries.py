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
    Notice,
    RequestUnanswered,
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
from genus.errors import CatalogDamaged

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


class CatalogClient:
    """State: the question of a node for the whole catalog; it asks no other ones.

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
        self._is_waiting = False
        self._number = -1
        self._frame: Frame | None = None
        self._attempts = self._timeout_at = 0
        self.wake_at: int | None = None
        """When the question is due."""
        self._reassembler = Reassembler(ANSWER_RETRY, max_bytes=MAX_ANSWER)

    def join(self, node: int, now: int) -> None:
        """The node has this number: send the question under it."""
        self.leave()
        self._node = node
        if self._is_waiting:
            self._ask(now)

    def leave(self) -> None:
        """The node has no number: send nothing, but keep the question."""
        self._node = None
        self._stop()

    def ask_catalog(self, now: int) -> None:
        """Ask for the whole catalog, unless that is under way; the answer is a `CatalogReceived`."""
        if not self._is_waiting:
            self._is_waiting, self._number = True, self._number + 1 & 0xFF
            if self._node is not None:
                self._ask(now)

    def receive(self, frame: Frame, now: int) -> None:
        """Process a frame of another node; an answer that cannot be read is as good as none."""
        if frame.id != ANSWER_ID or frame.fd or not self._is_waiting:
            return
        if self.wake_at is not None:
            self.wake_at = min(now + ANSWER_RETRY, self._timeout_at)
        payload = self._reassembler.receive(frame, now)
        if payload is None or len(payload) < HEADER_SIZE:
            return
        to, _, kind = payload[:HEADER_SIZE]
        if to in (self._node, ALL_NODES) and kind == QuestionKind.CATALOG:
            catalog = _read_catalog(payload[HEADER_SIZE:])
            if catalog is not None:
                self._finish(CatalogReceived(catalog))

    def wake(self, now: int) -> None:
        """Repeat the question if it is due, or give it up."""
        if self.wake_at is None or self.wake_at > now:
            return
        if self._attempts < ANSWER_ATTEMPTS:
            self._ask(now)
        else:
            self._finish(RequestUnanswered("catalog"))

    def _ask(self, now: int) -> None:
        assert self._node is not None
        self._withdraw_frame()
        self._frame = Question(self._node, self._number, QuestionKind.CATALOG, 0).frame()
        self._attempts += 1
        self.wake_at, self._timeout_at = now + ANSWER_RETRY, now + ANSWER_TIMEOUT
        self._send(self._frame)

    def _finish(self, notice: Notice) -> None:
        self._is_waiting = False
        self._stop()
        self._notify(notice)

    def _stop(self) -> None:
        self._withdraw_frame()
        self._attempts, self.wake_at = 0, None

    def _withdraw_frame(self) -> None:
        if self._frame is not None:
            self._withdraw(self._frame)
            self._frame = None


def _read_catalog(body: bytes) -> Catalog | None:
    try:
        return Catalog.parse(zlib.decompressobj().decompress(body, MAX_CATALOG).decode())
    except (zlib.error, UnicodeDecodeError, CatalogDamaged):
        return None
