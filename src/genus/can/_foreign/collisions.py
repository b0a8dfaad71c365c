"""Identifiers of databases that a Genus node may send too, found when a bus is opened with both.

A message of J1939 has many identifiers: of any priority and source, and the frames of long messages have those of the
transport protocol. What a database claims never gets to the node, so a node whose frames look like that is not heard.
"""

from collections.abc import Iterable, Iterator

import msgspec

from genus.can._dbc import MessageLayout
from genus.can._foreign.filters import filters_of
from genus.can._wire.frame import (
    BROKER_NODE,
    ETAG_MASK,
    ID_MASK,
    NODE_MASK,
    NODE_SHIFT,
    PRIORITY_SHIFT,
    RESERVED_ETAGS,
    UNCONFIGURED_NODE,
    Identifier,
    Priority,
)
from genus.catalog import Catalog
from genus.targets.can import Pair

_MIDDLEWARE = (Priority.SYSTEM, Priority.PROTOCOL)
_CHANNELS = (*range(Priority.HARD, Priority.SOFT_LAST + 1), Priority.NONE, Priority.BULK)
"""The priorities of the middleware's frames, and of events."""


class LiveCollision(msgspec.Struct, frozen=True):
    """A message of a database whose identifier a Genus node may send."""

    message: str
    identifier: Identifier
    """One of those that both may have."""
    user: str
    is_certain: bool
    """Whether it is this node; otherwise a node that has this number."""
    more_numbers: tuple[int, ...] = ()
    """Other numbers of nodes whose frames look like those of J1939 messages."""

    def __str__(self) -> str:
        numbers = [self.identifier.node, *self.more_numbers]
        whose = "this node" if self.is_certain else f"a node with the number {numbers[0]}"
        advice = "give this node another number" if self.is_certain else "let no node have that number"
        if self.more_numbers:
            advice = f"let no node have the numbers {', '.join(map(str, numbers))}, which J1939 messages look like"
        return (
            f"{self.message} has the identifier {self.identifier.pack():#010x}, which {whose} uses for {self.user}; "
            f"{advice}, or find such identifiers before with `genus can plan` and databases = [...]"
        )


def find_live_collisions(
    messages: Iterable[MessageLayout], number: int | None, catalog: Catalog | None
) -> Iterator[LiveCollision]:
    """Yield the messages whose identifiers nodes of Genus may send, those of J1939 with other nodes as one.

    A message with one identifier is compared with the event tags that a catalog has given by now; one with many, of
    J1939, with all that there may be.
    """
    others: dict[int, LiveCollision] = {}
    for message in messages:
        for pair in filters_of([message]).extended:
            for node in _matching(pair, range(UNCONFIGURED_NODE, BROKER_NODE + 1), NODE_SHIFT):
                used = _first_use(pair, node, catalog)
                if used is None:
                    continue
                found = LiveCollision(message.type_name, *used, node == number)
                if found.is_certain or not message.j1939:
                    yield found
                else:
                    others.setdefault(node, found)
    if others:
        first, *more = sorted(others)
        yield msgspec.structs.replace(others[first], more_numbers=tuple(more))


def _first_use(pair: Pair, node: int, catalog: Catalog | None) -> tuple[Identifier, str] | None:
    """Return the first identifier that a pair accepts and a node may send, and what for; None if there is none."""
    priority = next(_matching(pair, _MIDDLEWARE, PRIORITY_SHIFT), None)
    etag = next(_matching(pair, range(RESERVED_ETAGS), 0), None)
    if priority is not None and etag is not None:
        return Identifier(priority, node, etag), "the middleware"
    if node == UNCONFIGURED_NODE:
        return None
    priority = next(_matching(pair, _CHANNELS, PRIORITY_SHIFT), None)
    etag = next(_matching(pair, range(RESERVED_ETAGS, ETAG_MASK + 1), 0), None)
    if priority is None or etag is None:
        return None
    is_one = pair.mask & ETAG_MASK == ETAG_MASK
    user = "its channels" if not is_one else None if catalog is None else catalog.type_of(etag)
    return None if user is None else (Identifier(priority, node, etag), user)


def _matching(pair: Pair, values: Iterable[int], shift: int) -> Iterator[int]:
    """Return the values of a part of identifiers that a pair accepts."""
    field = {PRIORITY_SHIFT: ID_MASK >> PRIORITY_SHIFT, NODE_SHIFT: NODE_MASK >> NODE_SHIFT, 0: ETAG_MASK}[shift]
    mask = pair.mask >> shift & field
    return (value for value in values if (pair.value >> shift ^ value) & mask == 0)
