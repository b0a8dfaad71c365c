"""Signatures: publishers say what their events are, and every reader, and the broker, compares it with its catalog.

Catalogs only grow, so two of one system may differ: a vector has more attributes at its end, an enumeration more
values, an attribute another name. Readers of both understand each other. Everything else is a conflict: bytes that one
node writes as one thing would be read as another by the other.

A publisher signs a channel before its first event: the event tag, and digests of the type's name and layout. Equal
digests need nothing more. If only the layouts differ, the reader asks the publisher for its layout, once for all nodes,
and compares that. A reader decodes no event whose signature it does not agree with, and objects; so both sides know.
Nodes that were made before there were signatures do not answer questions for them; after some questions without an
answer their events are decoded as they always were.
"""

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import msgspec

from genus.can._protocol.catalog_queries import HEADER_SIZE, declared_attributes
from genus.can._protocol.messages import (
    Objection,
    ObjectionReason,
    Question,
    QuestionKind,
    Signature,
    signed_subject,
)
from genus.can._protocol.notices import (
    OBJECTION_INTERVAL,
    SIGNATURE_ATTEMPTS,
    SIGNATURE_RETRY,
)
from genus.can._wire.frame import BROKER_NODE, ETAG_MASK, Frame, subject_uid
from genus.can._wire.segments import Reassembler
from genus.catalog import Catalog

MAX_LAYOUT = 1 << 16
"""The most bytes of a decompressed layout."""


class LayoutRow(msgspec.Struct, frozen=True, array_like=True):
    """An attribute in the vector of a type: all its names, its type as a catalog has it, and its unit.

    `required` says that every event of the type has it, so that it needs no presence bit.
    """

    names: tuple[str, ...]
    type: str | dict[str, Any]
    required: bool
    unit: str | None = None


class Layout(msgspec.Struct, frozen=True):
    """How the events of a type are on the wire: event tag, vector, and which attributes have bits in the event tag."""

    name: str
    etag: int
    tagged: tuple[int, ...]
    """Positions in the vector."""
    rows: tuple[LayoutRow, ...]

    @classmethod
    def of(cls, catalog: Catalog, name: str) -> "Layout":
        required, vector = declared_attributes(catalog, name), catalog.vector(name)
        rows = (
            LayoutRow(each.names or (each.name,), each.type.describe(), bool(required.get(each.name)), each.unit)
            for each in vector
        )
        positions = {each.name: position for position, each in enumerate(vector)}
        tagged = tuple(positions[each] for each in catalog.tagged_attributes(name))
        return cls(name, catalog.etag(name), tagged, tuple(rows))

    def sign(self, node: int) -> Signature:
        return Signature(node, self.etag, signed_subject(subject_uid(self.name)), _digest(msgspec.json.encode(self)))

    def pack(self) -> bytes:
        return zlib.compress(msgspec.json.encode(self), 9)

    @classmethod
    def parse(cls, data: bytes) -> "Layout | None":
        """Parse a layout that was received; None if it is none.

        >>> Layout.parse(Layout("Loop", 8208, (), (LayoutRow(("lane",), "uint8", True),)).pack()).name
        'Loop'
        >>> Layout.parse(b"nothing") is None
        True
        """
        try:
            found = msgspec.json.decode(zlib.decompressobj().decompress(data, MAX_LAYOUT), type=cls)
        except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found if 0 <= found.etag <= ETAG_MASK and all(row.names for row in found.rows) else None


@lru_cache(maxsize=1024)  # in a simulation all nodes have the same layouts
def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=3).digest(), "big")


def describe_conflict(own: Layout, other: Layout) -> str | None:
    """Return how another layout contradicts one's own; None if each can read what the other writes.

    >>> lane, speed = LayoutRow(("lane",), "uint8", True), LayoutRow(("speed",), "float32", False)
    >>> own = Layout("Loop", 8208, (), (lane,))
    >>> describe_conflict(own, Layout("Loop", 8208, (), (lane, speed)))  # it has grown
    >>> describe_conflict(own, Layout("Loop", 8208, (), (speed, lane)))
    'attribute 0 is speed: float32 there, and lane: uint8 (required) here'
    """
    if own.name != other.name:
        return f"event tag {own.etag} is {other.name} there, and {own.name} here"
    if own.etag != other.etag:
        return f"{own.name} has event tag {other.etag} there, and {own.etag} here"
    if own.tagged != other.tagged:
        return f"{own.name} has other tagged attributes there"
    for position, (here, there) in enumerate(zip_longest(own.rows, other.rows)):
        if not _is_same(here, there):
            return f"attribute {position} is {_show(there)} there, and {_show(here)} here"
    return None


def _is_same(one: LayoutRow | None, other: LayoutRow | None) -> bool:
    """Return whether an attribute is the same in two vectors, of which one may have grown."""
    if one is None or other is None:
        return not (one or other or _NOTHING).required
    same = one.required == other.required and one.unit == other.unit
    return same and _begins_alike(one.names, other.names) and _is_same_type(one.type, other.type)


def _is_same_type(one: str | dict[str, Any], other: str | dict[str, Any]) -> bool:
    if one == other:
        return True
    values = [each.get("enum") if isinstance(each, dict) else None for each in (one, other)]
    return isinstance(values[0], list) and isinstance(values[1], list) and _begins_alike(values[0], values[1])


def _begins_alike(one: Sequence[object], other: Sequence[object]) -> bool:
    shared = min(len(one), len(other))
    return list(one[:shared]) == list(other[:shared])


_NOTHING = LayoutRow((), "", False)


def _show(row: LayoutRow | None) -> str:
    if row is None:
        return "missing"
    kind = (
        row.type
        if isinstance(row.type, str)
        else "|".join(str(value) for values in row.type.values() for value in values)
    )
    return f"{row.names[-1]}: {kind}{f' in {row.unit}' if row.unit else ''}{' (required)' if row.required else ''}"


def conflict_between(own: Catalog, other: Catalog, name: str) -> str | None:
    """How another catalog contradicts one's own about a type; None if it does not, or one of them lacks the type."""
    if any(name not in each or not each.has_etag(name) for each in (own, other)):
        return None
    return describe_conflict(Layout.of(own, name), Layout.of(other, name))


MAX_PUBLISHERS = 1 << 16
"""Publishers of channels whose signatures are remembered: more than a bus can have."""
MAX_LAYOUTS = 1 << 10
LAYOUT_TIMEOUT = 1_000_000_000
SAME_CATALOG = "use the same catalog file on all nodes, or one that grew from it"

Key = tuple[int, int]
"""The number of a publisher, and an event tag."""


class Conflict(msgspec.Struct, frozen=True):
    """The events of a publisher contradict a catalog."""

    node: int
    etag: int
    names: tuple[str, ...]
    """The types of the catalog that it is about."""
    reason: ObjectionReason
    text: str
    """What differs: `there` is the publisher, `here` the catalog."""

    def objection(self, node: int) -> Objection:
        """Return the message by which a node objects."""
        subject = subject_uid(self.names[0]) >> 32 if self.names else 0
        return Objection(node, self.node, self.etag, self.reason, subject)


class _Asked:
    """State: how often a publisher was asked, and when last."""

    __slots__ = ("at", "attempts")

    def __init__(self) -> None:
        self.attempts, self.at = 0, -SIGNATURE_RETRY


class SignatureWatch:
    """State: what the publishers of a bus said their events are, and what of it contradicts the catalog.

    `send` queues a frame, `node` gives the own number, `catalog` the catalog, `is_relevant` whether a type of it is
    published or read here, `on_conflict` gets conflicts, each again whenever the publisher repeats its signature.
    """

    def __init__(
        self,
        *,
        send: Callable[[Frame], None],
        node: Callable[[], int | None],
        catalog: Callable[[], Catalog | None],
        is_relevant: Callable[[str], bool],
        on_conflict: Callable[[Conflict], None],
    ) -> None:
        self._send, self._node, self._catalog = send, node, catalog
        self._is_relevant, self._on_conflict = is_relevant, on_conflict
        self._signatures: dict[Key, Signature] = {}
        self._verdicts: dict[Key, Conflict | None] = {}
        """Of those that were compared; None if there is no conflict."""
        self._layouts: dict[Signature, Layout] = {}
        """By signature, with 0 for the node: what was received."""
        self._asked: dict[Key, _Asked] = {}
        self._objected: dict[Key, int] = {}
        self._reassembler = Reassembler(LAYOUT_TIMEOUT, max_bytes=1 << 14)
        self._names: tuple[int, dict[int, str]] = (0, {})

    @property
    def conflicts(self) -> list[Conflict]:
        return [verdict for verdict in self._verdicts.values() if verdict is not None]

    def receive(self, signature: Signature, now: int) -> None:
        """A publisher signed a channel."""
        key = (signature.node, signature.etag)
        if key not in self._signatures and len(self._signatures) >= MAX_PUBLISHERS:
            return
        if self._signatures.get(key) != signature:
            self._signatures[key] = signature
            self._forget(key)
        if self._compare(key, now) is False:
            self._on_conflict(self._known_conflict(key))

    def receive_layout(self, frame: Frame, now: int) -> None:
        """A publisher answered a question for a layout, maybe another node's."""
        if frame.node == BROKER_NODE or not self._signatures:
            return
        payload = self._reassembler.receive(frame, now)
        if payload is None or len(payload) < HEADER_SIZE or payload[2] != QuestionKind.LAYOUT:
            return
        layout = Layout.parse(payload[HEADER_SIZE:])
        if layout is None or len(self._layouts) >= MAX_LAYOUTS:
            return
        self._layouts[layout.sign(0)] = layout
        for key, signature in list(self._signatures.items()):
            if key not in self._verdicts and _anonymous(signature) in self._layouts:
                self._compare_and_tell(key, now)

    def agrees(self, node: int, etag: int, now: int) -> bool | None:
        """Whether a publisher's events are what the catalog says; None while that is not known, and is being asked."""
        key = (node, etag)
        found = self._compare(key, now)
        if found is None and key not in self._signatures and self._ask(key, QuestionKind.SIGNATURE, now):
            self._verdicts[key] = None  # it is older than signatures
            return True
        if found is False and now - self._objected.get(key, -OBJECTION_INTERVAL) >= OBJECTION_INTERVAL:
            self._on_conflict(self._known_conflict(key))
        return found

    def object(self, conflict: Conflict, now: int) -> None:
        node = self._node()
        self._objected[conflict.node, conflict.etag] = now
        if node is not None:
            self._send(conflict.objection(node).frame())

    def review(self, now: int) -> None:
        """Compare what was not relevant before: there is a new subscription or channel."""
        for key in list(self._signatures):
            if key not in self._verdicts:
                self._compare_and_tell(key, now)

    def use(self, now: int) -> None:
        """Compare everything again: the catalog is another one, or has grown."""
        self._names = (0, {})
        for key in self._signatures:
            self._verdicts.pop(key, None)
        self.review(now)

    def name_of(self, subject: int, bits: int) -> str | None:
        """Return the type of the catalog whose subject begins with these bits."""
        catalog = self._catalog()
        known = () if catalog is None else catalog.types
        return next((name for name in known if subject_uid(name) >> 64 - bits == subject), None)

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _forget(self, key: Key) -> None:
        for known in (self._verdicts, self._asked, self._objected):
            known.pop(key, None)

    def _known_conflict(self, key: Key) -> Conflict:
        found = self._verdicts[key]
        assert found is not None
        return found

    def _compare_and_tell(self, key: Key, now: int) -> None:
        if self._compare(key, now) is False:
            self._on_conflict(self._known_conflict(key))

    def _compare(self, key: Key, now: int) -> bool | None:
        """Return whether a signature agrees with the catalog; None if it is not known yet."""
        if key not in self._verdicts:
            signature, catalog = self._signatures.get(key), self._catalog()
            if signature is None or catalog is None or not self._judge(key, signature, catalog, now):
                return None
        return self._verdicts[key] is None

    def _judge(self, key: Key, signature: Signature, catalog: Catalog, now: int) -> bool:
        """Compare a signature with the catalog; False if the layout is needed, which is then asked for."""
        here, known = catalog.type_of(signature.etag), self._name_by_subject(signature.subject, catalog)
        names = tuple(dict.fromkeys(name for name in (here, known) if name is not None))
        if not any(self._is_relevant(name) for name in names):
            return False
        own = None if here is None else Layout.of(catalog, here)
        if own is not None and own.sign(signature.node) == signature:
            self._verdicts[key] = None
            return True
        if own is not None and (own.etag, own.sign(0).subject) != (signature.etag, signature.subject):
            self._verdicts[key] = _other_type(signature, own, names, known)
            return True
        if own is None and known is not None and not catalog.has_etag(known):
            return False  # it has got its event tag elsewhere; the catalog will have it too
        layout = self._layouts.get(_anonymous(signature))
        if layout is None:
            self._ask(key, QuestionKind.LAYOUT, now)
            return False
        self._verdicts[key] = _compare_layouts(signature, layout, catalog)
        return True

    def _name_by_subject(self, subject: int, catalog: Catalog) -> str | None:
        """Return the type of the catalog with these leading bits of its subject."""
        size, names = self._names
        if size != len(catalog.types):
            names = {signed_subject(subject_uid(name)): name for name in catalog.types}
            self._names = (len(catalog.types), names)
        return names.get(subject)

    def _ask(self, key: Key, kind: QuestionKind, now: int) -> bool:
        """Ask a publisher, at most once per interval; returns whether it was asked in vain often enough."""
        asked = self._asked.get(key)
        if asked is None:
            if len(self._asked) >= MAX_PUBLISHERS:
                return False
            asked = self._asked[key] = _Asked()
        if now - asked.at < SIGNATURE_RETRY:
            return False
        if asked.attempts >= SIGNATURE_ATTEMPTS and kind is QuestionKind.SIGNATURE:
            return True
        asked.attempts, asked.at = asked.attempts + 1, now
        node = self._node()
        if node is not None:
            self._send(Question(node, key[0], kind, key[1]).frame())
        return False


def _anonymous(signature: Signature) -> Signature:
    return msgspec.structs.replace(signature, node=0)


def _other_type(signature: Signature, own: Layout, names: tuple[str, ...], known: str | None) -> Conflict:
    there = f"{known} there" if known is not None and known != own.name else "another type there"
    text = f"event tag {signature.etag} is {there}, and {own.name} here"
    return Conflict(signature.node, signature.etag, names, ObjectionReason.OTHER_TYPE, text)


def _compare_layouts(signature: Signature, layout: Layout, catalog: Catalog) -> Conflict | None:
    """Return the conflict of a layout with the catalog's of the same name."""
    if layout.name not in catalog or not catalog.has_etag(layout.name):
        return None
    own = Layout.of(catalog, layout.name)
    text = describe_conflict(own, layout)
    if text is None:
        return None
    reason = ObjectionReason.OTHER_TAG if own.etag != layout.etag else ObjectionReason.OTHER_LAYOUT
    return Conflict(signature.node, signature.etag, (layout.name,), reason, text)
