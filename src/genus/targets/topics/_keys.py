"""The keys of events: realm / family / presence of each tagged attribute, 1 or 0 / the types below it, down to its own.

An event of a class is under the key of every class above it, so that one pattern is a type with all below it. The bits
come before the rest of the line, because some systems have wildcards for any number of chunks only at the end; their
number is fixed for a family. An event of `Event` itself has the key `realm/Event`. Names of types are identifiers, so
that none is a bit, and no family is called `Event`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import product, takewhile

import msgspec

from genus.catalog.internal import presence_reader
from genus.model import Event, attributes, name_of, parents, tagged_attributes, vector
from genus.model.internal import MAX_TAGGED
from genus.targets.topics._dialect import ZENOH, Dialect

REALM = "genus"
"""The realm of events that are not given another one."""

BITS = ("0", "1")
MAX_KEY = 4096
"""Longer texts are no keys of events: a line of fifty types with names of eighty letters fits."""


class EventKeys:
    """The keys of the events of one class, all made beforehand; `key(event)` is quick.

    `keys` has the key for each set of tagged attributes that may be present, by their presence bits, of which the first
    attribute has the highest. `line` has the names of the types from the family's root to the class.

    >>> from genus import Event, Maybe
    >>> class Edge(Event, tagged=("place",)): ...
    >>> class Loop(Edge):
    ...     lane: int
    >>> made = EventKeys(Loop, ZENOH, "city")
    >>> made.key(Loop(lane=1)), made.key(Loop(lane=1, place="A8"))
    ('city/Edge/0/Loop', 'city/Edge/1/Loop')
    """

    __slots__ = ("cls", "dialect", "key", "keys", "line", "realm")

    key: Callable[[Event], str]
    keys: tuple[str, ...]

    def __init__(self, cls: type[Event], dialect: Dialect = ZENOH, realm: str = REALM) -> None:
        self.cls, self.dialect, self.realm = cls, dialect, realm
        self.line = line_of(cls)
        tagged = tagged_attributes(cls)
        end = [dialect.end] if dialect.end else []
        every = product(BITS, repeat=len(tagged))
        self.keys = tuple(dialect.join([*chunks_of(self.line, bits, dialect, realm), *end]) for bits in every)
        self.key = _key_reader(cls, tagged, self.keys)

    def __repr__(self) -> str:
        return f"<EventKeys of {self.line[-1]}, such as {self.keys[-1]}>"


def key_of(event: Event, dialect: Dialect = ZENOH, realm: str = REALM) -> str:
    """Return the key of an event; `EventKeys` is quicker for many of one class.

    >>> from genus import Event
    >>> from genus.targets.topics import NATS
    >>> class Door(Event, name="house.Door"): ...
    >>> key_of(Door()), key_of(Door(), NATS, "home"), key_of(Event())
    ('genus/house~2EDoor', 'home.house~2EDoor._', 'genus/Event')
    """
    return _event_keys(type(event), dialect, realm).key(event)


class ParsedKey(msgspec.Struct, frozen=True):
    """What the key of an event says: the names of its types, the family's root first, and its presence bits."""

    line: tuple[str, ...]
    bits: tuple[bool, ...]

    @property
    def type(self) -> str:
        """The name of the event's type."""
        return self.line[-1]

    @property
    def family(self) -> str:
        """The name of the root of its family; `Event` for an event of `Event` itself."""
        return self.line[0]


def parse_key(key: str, dialect: Dialect = ZENOH, realm: str = REALM) -> ParsedKey | None:
    """Return what a key says, if it is the key of an event of a realm; None of any other text.

    Whether there are such types, and as many tagged attributes, is for the caller to test.

    >>> parse_key("city/Edge/1/0/Loop", realm="city")
    ParsedKey(line=('Edge', 'Loop'), bits=(True, False))
    >>> parse_key("genus/Edge/1"), parse_key("genus/Edge/1", realm="city"), parse_key("genus")
    (ParsedKey(line=('Edge',), bits=(True,)), None, None)
    """
    chunks = dialect.split(key) if len(key) <= MAX_KEY else []
    if len(chunks) < 2 or chunks[0] != dialect.escape(realm) or (dialect.end and chunks.pop() != dialect.end):
        return None
    bits = tuple(bit == BITS[1] for bit in takewhile(BITS.__contains__, chunks[2:]))
    line = [_read_name(chunk, dialect) for chunk in (*chunks[1:2], *chunks[2 + len(bits) :])]
    names = tuple(name for name in line if name is not None)
    if not names or len(names) < len(line) or len(bits) > MAX_TAGGED:
        return None
    return ParsedKey(names, bits) if names[0] != name_of(Event) or len(chunks) == 2 else None


def line_of(cls: type) -> tuple[str, ...]:
    """Return the names of the types from a family's root to a class; `Event` for that class alone."""
    names = [name_of(cls)]
    above = parents(cls)
    while above and above[0] is not Event:
        names.append(name_of(above[0]))
        above = parents(above[0])
    return tuple(reversed(names))


def chunks_of(line: Sequence[str], bits: Iterable[str], dialect: Dialect, realm: str) -> list[str]:
    """Return the chunks of a key or pattern down to a type."""
    family, *others = map(dialect.escape, line)
    return [dialect.escape(realm), family, *bits, *others]


def _key_reader(cls: type[Event], tagged: Sequence[str], keys: Sequence[str]) -> Callable[[Event], str]:
    """Return a function that gives the key of an event."""
    if not tagged:
        key = keys[0]
        return lambda event: key
    own = vector(cls).pair(attributes(cls))
    read = presence_reader({own[name].name: bit for bit, name in enumerate(reversed(tagged))}, as_sent=True)
    return lambda event: keys[read(event)]


@lru_cache(maxsize=1024)
def _event_keys(cls: type[Event], dialect: Dialect, realm: str) -> EventKeys:
    return EventKeys(cls, dialect, realm)


def _read_name(chunk: str, dialect: Dialect) -> str | None:
    """Return the name of a type; None if a chunk is none."""
    name = dialect.unescape(chunk)
    return name if name is not None and all(part.isidentifier() for part in name.split(".")) else None
