"""Layouts: how the events of a type are on the wire by one catalog, and whether two catalogs contradict each other.

Catalogs only grow, so two of one system may differ: a vector has more attributes at its end, an enumeration more
values, an attribute another name. Readers of both understand each other. Everything else is a conflict: bytes that one
node writes as one thing would be read as another by the other.
"""

import zlib
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import msgspec

from genus.can._protocol.catalog_queries import declared_attributes
from genus.can._protocol.messages import Signature, signed_subject
from genus.can._wire.frame import ETAG_MASK, subject_uid
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
        """Return the layout of a type that has an event tag."""
        required, vector = declared_attributes(catalog, name), catalog.vector(name)
        rows = (
            LayoutRow(each.names or (each.name,), each.type.describe(), bool(required.get(each.name)), each.unit)
            for each in vector
        )
        positions = {each.name: position for position, each in enumerate(vector)}
        tagged = tuple(positions[each] for each in catalog.tagged_attributes(name))
        return cls(name, catalog.etag(name), tagged, tuple(rows))

    def sign(self, node: int) -> Signature:
        """Return the signature of a node that publishes such events."""
        return Signature(node, self.etag, signed_subject(subject_uid(self.name)), _digest(msgspec.json.encode(self)))

    def pack(self) -> bytes:
        """The layout as it is sent."""
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
