"""Identifiers of databases that a Genus node may send too, found when a bus is opened with both."""

from collections.abc import Iterable, Iterator

import msgspec

from genus.can._dbc import MessageLayout
from genus.can._wire.frame import Identifier, Priority
from genus.catalog import Catalog

RESERVED_ETAGS = 128


class LiveCollision(msgspec.Struct, frozen=True):
    """A message of a database whose identifier a Genus node may send."""

    message: str
    identifier: Identifier
    user: str
    is_certain: bool
    """Whether it is this node; otherwise a node that has this number."""

    def __str__(self) -> str:
        whose = "this node" if self.is_certain else f"a node with the number {self.identifier.node}"
        advice = "give this node another number" if self.is_certain else "let no node have that number"
        return (
            f"{self.message} has the identifier {self.identifier.pack():#010x}, which {whose} uses for {self.user}; "
            f"{advice}, or find such identifiers before with `genus can plan` and databases = [...]"
        )


def find_live_collisions(
    messages: Iterable[MessageLayout], number: int | None, catalog: Catalog | None
) -> Iterator[LiveCollision]:
    """The messages whose identifiers nodes of Genus may send, by the event tags that a catalog has given by now."""
    for message in messages:
        identifier = Identifier.unpack(message.frame_id)
        user = _user_of(identifier, catalog) if message.extended else None
        if user is not None:
            yield LiveCollision(message.type_name, identifier, user, identifier.node == number)


def _user_of(identifier: Identifier, catalog: Catalog | None) -> str | None:
    """What an identifier is for if a node sends it; None if none does."""
    if identifier.etag < RESERVED_ETAGS:
        return "the middleware" if identifier.priority in (Priority.SYSTEM, Priority.PROTOCOL) else None
    if identifier.priority in (Priority.SYSTEM, Priority.PROTOCOL) or catalog is None:
        return None
    return catalog.type_of(identifier.etag)
