"""A catalog as a broker needs it: by subject and by event tag, with the replies and answers made from it."""

import zlib
from collections.abc import Mapping

import msgspec

from genus.can.protocol.messages import QosClass, Reason, Supply, digest_of, subject_head
from genus.can.protocol.tables import Announced
from genus.can.wire.payload import Layout
from genus.can.wire.subject import subject_uid
from genus.catalog import Catalog

Row = tuple[str, str | dict[str, object], str, str | None]
"""An attribute in an answer: its name, its type's description, how the type carries it, and its unit."""


def width_of(catalog: Catalog, name: str) -> int:
    """How many low bits of a type's event tag say which tagged attributes an event carries."""
    return len(catalog.tagged(name))


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
        return msgspec.json.encode((name, vector.scope, rows, self._catalog.tagged(name)))

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
        layout = Layout.of(self._catalog.declare(name), self._catalog.vector(name), self._catalog.tagged(name))
        largest = layout.largest_carrying()
        return largest is None or largest > self._capacity
