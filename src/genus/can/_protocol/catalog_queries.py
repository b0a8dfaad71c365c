"""Catalog questions online: a node asks, the broker answers with a segmented transfer that begins with who asked what.

All answers come from one sender under one tag, so there is one at a time, and every node can follow it: the whole
catalog goes to everybody who waits for it. A frame follows the one before after a pause: an answer may be long,
and nothing is urgent about it. Nodes ask again for what they did not get whole.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from genus.can._protocol.broker_tables import Announced
from genus.can._protocol.messages import Asked, QosClass, Question, Reason, Supply, digest_of, subject_head
from genus.can._protocol.notices import (
    ANSWER_ATTEMPTS,
    ANSWER_PACE,
    ANSWER_PATIENCE,
    ANSWER_RETRY,
    CatalogReceived,
    Described,
    Named,
    Notice,
    Unanswered,
)
from genus.can._wire.frame import BROKER_NODE, UNCONFIGURED_NODE, Frame, Identifier, Priority, ProtocolTag, subject_uid
from genus.can._wire.payload import Layout
from genus.can._wire.segments import Reassembler, split
from genus.catalog import Catalog
from genus.errors import BusError, CatalogDamaged
from genus.model import Attribute, Vector, parse_type

# A catalog as a broker needs it: by subject and by event tag, with the replies and answers made from it.


Row = tuple[str, str | dict[str, object], str, str | None]
"""An attribute in an answer: its name, its type's description, how the type carries it, and its unit."""


def width_of(catalog: Catalog, name: str) -> int:
    """How many low bits of a type's event tag say which tagged attributes an event carries."""
    return len(catalog.tagged_attributes(name))


class Directory:
    """What a broker says about the types of a catalog; `capacity` is how many bytes a frame of the bus carries."""

    def __init__(self, catalog: Catalog, capacity: int = 8) -> None:
        text = catalog.text()
        self.digest = digest_of(text)
        self._catalog = catalog
        self._entries = catalog.entries
        self._capacity = capacity
        self._packed = zlib.compress(text.encode(), 9)
        self._names = {subject_uid(name): name for name in catalog.types}
        self._heads = {subject_head(subject): name for subject, name in self._names.items()}

    def supply(self, subject: int, channels: Mapping[str, Announced]) -> Supply:
        """The reply to a binding request."""
        name = self._names.get(subject)
        if name is None or self._entries[name].kind:
            return Supply(subject, 0, reason=Reason.UNKNOWN_SUBJECT if name is None else Reason.KIND)
        announced = channels.get(name) or Announced(QosClass.UNANNOUNCED, self._is_long(name))
        return Supply(
            subject,
            self._catalog.etag(name),
            announced.qos_class,
            announced.segmented,
            width_of(self._catalog, name),
            self._entries[name].deprecated is not None,
        )

    def type_of(self, etag: int) -> str | None:
        """The type of an event tag, whatever the bits for its tagged attributes are."""
        return self._catalog.type_of(etag)

    def describe(self, head: int) -> bytes:
        """The answer to a question for a vector: JSON of type, family, rows and tagged names."""
        name = self._heads.get(head)
        if name is None:
            return b""
        carried, vector = self._carried(name), self._catalog.vector(name)
        words = {None: "absent", True: "required", False: "optional"}
        rows: list[Row] = [
            (each.name, each.type.describe(), words[carried.get(each.name)], each.unit) for each in vector
        ]
        return msgspec.json.encode((name, vector.scope, rows, self._catalog.tagged_attributes(name)))

    def name(self, etag: int) -> bytes:
        """The answer to a question for a type: its name."""
        return (self.type_of(etag) or "").encode()

    def everything(self) -> bytes:
        """The answer to a question for the catalog: its text, compressed."""
        return self._packed

    def _carried(self, name: str) -> dict[str, bool]:
        """The attributes of a type, each with whether it is required; a kind has what every event may carry."""
        entry = self._entries[name]
        above = {} if entry.kind or not entry.parents else self._carried(entry.parents[0])
        return above | dict(entry.attributes)

    def _is_long(self, name: str) -> bool:
        """Whether an event with all attributes of its own may need more than one frame."""
        layout = Layout.of(
            self._catalog.declare(name), self._catalog.vector(name), self._catalog.tagged_attributes(name)
        )
        largest = layout.largest_carrying()
        return largest is None or largest > self._capacity


ANSWER_ID = Identifier(Priority.NONE, BROKER_NODE, ProtocolTag.ANSWER).pack()
CAPACITY = 8
MOST_WAITING, MOST_PER_NODE = 64, 4
"""Questions a broker keeps, in all and of one node; who asked repeats what is dropped."""
LARGEST_ANSWER = 1 << 20
LARGEST_CATALOG = 16 << 20
"""More text than this is no catalog, whatever a few compressed bytes claim to be."""
HEAD = 3
"""Bytes before the answer: the asker's number, the question's number, its kind."""
EVERYBODY = UNCONFIGURED_NODE
"""The number to which the catalog is sent."""


# -- the broker's side -------------------------------------------------------------------------------------------------


class Answers:
    """State: the questions that wait, and how far the present answer is. `post` sends a frame."""

    def __init__(self, post: Callable[[Frame], None], directory: Callable[[], Directory]) -> None:
        self._post, self._directory = post, directory
        self._waiting: dict[Question, None] = {}
        self._pieces: Sequence[bytes] = ()
        self._position = 0
        self._transfer = 0
        self._frame: Frame | None = None
        self.wake_at: int | None = None
        """When the next frame may follow."""

    def ask(self, question: Question) -> bool:
        """Answer in turn; a question that waits already is the same one. False if there are too many."""
        if question.kind is Asked.CATALOG:
            question = Question(EVERYBODY, 0, Asked.CATALOG, 0)
        if question not in self._waiting:
            of_this_node = sum(other.node == question.node for other in self._waiting)
            if of_this_node >= MOST_PER_NODE or len(self._waiting) >= MOST_WAITING:
                return False
            self._waiting[question] = None
        if self._frame is None and self.wake_at is None:
            self._go_on()
        return True

    def sent(self, frame: Frame, now: int) -> None:
        """A frame went through; if it was ours, the next follows after a pause."""
        if frame == self._frame:
            self._frame = None
            self.wake_at = now + ANSWER_PACE

    def wake(self, now: int) -> None:
        """Go on with the answer, or with the next."""
        if self.wake_at is not None and now >= self.wake_at:
            self.wake_at = None
            self._go_on()

    def clear(self) -> None:
        """Answer nobody; what was begun is not finished."""
        self._waiting.clear()
        self._pieces, self._position, self._frame, self.wake_at = (), 0, None, None

    def _go_on(self) -> None:
        if self._position == len(self._pieces):
            self._begin_next()
        if self._position < len(self._pieces):
            self._frame = Frame(ANSWER_ID, self._pieces[self._position])
            self._position += 1
            self._post(self._frame)

    def _begin_next(self) -> None:
        self._pieces, self._position = (), 0
        if self._waiting:
            question = next(iter(self._waiting))
            del self._waiting[question]
            head = bytes((question.node, question.number, question.kind))
            self._transfer = self._transfer + 1 & 31
            self._pieces = split(head + _answer(question, self._directory()), self._transfer, CAPACITY)


def _answer(question: Question, directory: Directory) -> bytes:
    match question.kind:
        case Asked.VECTOR:
            return directory.describe(question.argument)
        case Asked.TYPE:
            return directory.name(question.argument)
        case Asked.CATALOG:
            return directory.everything()


# -- the node's side ---------------------------------------------------------------------------------------------------


class _Pending:
    """State: a question without an answer."""

    def __init__(self, kind: Asked, of: int) -> None:
        self.kind, self.of = kind, of
        self.frame: Frame | None = None
        self.attempts = 0
        self.retry_at: int | None = None
        self.latest = 0


class Questions:
    """State: what a node asked about the catalog.

    `send` queues a frame by its identifier, `withdraw` takes one back that is still queued, `tell` gets notices.
    Nothing is sent until the node has a number: see `join`.
    """

    def __init__(
        self,
        *,
        send: Callable[[Frame], None],
        withdraw: Callable[[Frame], None],
        tell: Callable[[Notice], None],
    ) -> None:
        self._send, self._withdraw, self._tell = send, withdraw, tell
        self._node: int | None = None
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._reassembler = Reassembler(ANSWER_RETRY, longest=LARGEST_ANSWER)

    def join(self, node: int, now: int) -> None:
        """The node has this number: ask, or ask again, under it."""
        self.leave()
        self._node = node
        for number, pending in self._pending.items():
            self._ask(number, pending, now)

    def leave(self) -> None:
        """The node has no number: ask nothing, but keep the questions."""
        self._node = None
        for pending in self._pending.values():
            self._take_back(pending)
            pending.attempts, pending.retry_at = 0, None

    def ask_vector(self, subject: int, now: int) -> None:
        """Which vector does a subject have? `Described` tells."""
        self._add(Asked.VECTOR, subject, now)

    def ask_type(self, etag: int, now: int) -> None:
        """Which type has an event tag? `Named` tells."""
        self._add(Asked.TYPE, etag, now)

    def ask_catalog(self, now: int) -> None:
        """What does the broker's catalog hold? `CatalogReceived` tells."""
        self._add(Asked.CATALOG, 0, now)

    def receive(self, frame: Frame, now: int) -> None:
        """A frame was heard."""
        if frame.id != ANSWER_ID or frame.fd or not self._pending:
            return
        for pending in self._pending.values():
            if pending.retry_at is not None:
                pending.retry_at = min(now + ANSWER_RETRY, pending.latest)
        payload = self._reassembler.receive(frame, now)
        if payload is None or len(payload) < HEAD:
            return
        to, number, kind = payload[:HEAD]
        if to == self._node:
            self._answered(number, kind, payload[HEAD:])
        elif to == EVERYBODY and kind == Asked.CATALOG:
            waiting = [number for number, pending in self._pending.items() if pending.kind is Asked.CATALOG]
            self._answered(waiting[0] if waiting else number, kind, payload[HEAD:])

    @property
    def wake_at(self) -> int | None:
        """When the next question is to be repeated."""
        if not self._pending:
            return None
        return min((p.retry_at for p in self._pending.values() if p.retry_at is not None), default=None)

    def wake(self, now: int) -> None:
        """Repeat what is due, or give it up."""
        for number, pending in list(self._pending.items()):
            if pending.retry_at is None or pending.retry_at > now:
                continue
            if pending.attempts < ANSWER_ATTEMPTS:
                self._ask(number, pending, now)
            else:
                self._take_back(self._pending.pop(number))
                self._tell(Unanswered(_WORDS[pending.kind], pending.of))

    def _add(self, kind: Asked, of: int, now: int) -> None:
        if any((pending.kind, pending.of) == (kind, of) for pending in self._pending.values()):
            return
        if len(self._pending) >= 1 << 8:
            raise BusError("256 catalog questions wait for an answer; wait for some before asking more")
        while self._number in self._pending:
            self._number = self._number + 1 & 0xFF
        pending = self._pending[self._number] = _Pending(kind, of)
        if self._node is not None:
            self._ask(self._number, pending, now)
        self._number = self._number + 1 & 0xFF

    def _ask(self, number: int, pending: _Pending, now: int) -> None:
        assert self._node is not None
        self._take_back(pending)
        argument = subject_head(pending.of) if pending.kind is Asked.VECTOR else pending.of
        pending.frame = Question(self._node, number, pending.kind, argument).frame()
        pending.attempts += 1
        pending.retry_at, pending.latest = now + ANSWER_RETRY, now + ANSWER_PATIENCE
        self._send(pending.frame)

    def _take_back(self, pending: _Pending) -> None:
        if pending.frame is not None:
            self._withdraw(pending.frame)
            pending.frame = None

    def _answered(self, number: int, kind: int, body: bytes) -> None:
        """An answer for this node; one that cannot be read is as good as none, and the question is repeated."""
        pending = self._pending.get(number)
        if pending is None or pending.kind != kind:
            return
        notice = _READERS[pending.kind](pending.of, body)
        if notice is not None:
            self._take_back(self._pending.pop(number))
            self._tell(notice)


_WORDS: dict[Asked, Literal["vector", "type", "catalog"]] = {
    Asked.VECTOR: "vector",
    Asked.TYPE: "type",
    Asked.CATALOG: "catalog",
}

_Row = tuple[str, str | dict[str, Any], Literal["required", "optional", "absent"], str | None]
_Description = tuple[str, str, tuple[_Row, ...], tuple[str, ...]]


def _read_vector(subject: int, body: bytes) -> Notice | None:
    if not body:
        return Described(subject)
    try:
        name, family, rows, tagged = msgspec.json.decode(body, type=_Description)
        attributes = tuple(Attribute(n, parse_type(what), word != "required", unit) for n, what, word, unit in rows)
    except (msgspec.MsgspecError, ValueError):
        return None
    if subject_uid(name) != subject:
        return None
    return Described(
        subject, name, Vector(family, attributes), tuple(row[0] for row in rows if row[2] != "absent"), tagged
    )


def _read_type(etag: int, body: bytes) -> Notice | None:
    try:
        return Named(etag, body.decode() or None)
    except UnicodeDecodeError:
        return None


def _read_catalog(_: int, body: bytes) -> Notice | None:
    try:
        text = zlib.decompressobj().decompress(body, LARGEST_CATALOG)
        return CatalogReceived(Catalog.parse(text.decode()))
    except (zlib.error, UnicodeDecodeError, CatalogDamaged):
        return None


_READERS: dict[Asked, Callable[[int, bytes], Notice | None]] = {
    Asked.VECTOR: _read_vector,
    Asked.TYPE: _read_type,
    Asked.CATALOG: _read_catalog,
}
