"""The keys of events, and a subscription as patterns of keys: the line of its type, with bits for tagged attributes.

A key is: realm / family / presence of each tagged attribute, 1 or 0 / the types below it, down to its own.

An event of a class is under the key of every class above it, so that one pattern is a type with all below it. The bits
come before the rest of the line, because some systems have wildcards for any number of chunks only at the end; their
number is fixed for a family. An event of `Event` itself has the key `realm/Event`. Names of types are identifiers, so
that none is a bit, and no family is called `Event`.

A network of topics compares chunks of a key. So it can test the type of an event, and which of its tagged attributes
are present; all else is a residual for the receiver, as on CAN. A type with all below it is one pattern; a kind, and
`all_of` several types, get one for each of the highest types that conform. A pattern may accept too much, never too
little.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product, takewhile
from typing import ClassVar, NamedTuple

import msgspec

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.catalog.internal import presence_reader
from genus.catalog.types import TypeEntry
from genus.filters import Subscription
from genus.model import Event, attributes, name_of, parents, tagged_attributes, vector
from genus.model.internal import MAX_TAGGED
from genus.targets._presence import (
    PresenceCompiler,
    declared_tagged,
    declared_types,
    registered_tagged,
    registered_types,
    required_presence,
    residual_of,
    without_values,
)
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
    name = dialect.unescape(chunk)
    return name if name is not None and all(part.isidentifier() for part in name.split(".")) else None


class TopicFilter(msgspec.Struct, frozen=True):
    """The key patterns of one subscription; made by `compile`.

    `patterns` are to be subscribed to in the network, and `residual` is what the receiver must still test of events
    that arrive, None if nothing. `types` are those that can match, with their subtypes unless the subscription is
    exact, and `tagged` are the tagged attributes that the patterns require to be present (True) or absent (False).
    """

    subscription: Subscription
    dialect: Dialect
    patterns: tuple[str, ...]
    residual: Subscription | None
    types: tuple[str, ...]
    tagged: Mapping[str, bool]

    def accepts(self, key: str) -> bool:
        """Return whether an event with this key passes; False for keys of another realm."""
        return any(self.dialect.matches(pattern, key) for pattern in self.patterns)

    def explain(self) -> str:
        """Return the patterns, what they test, and what is left to the receiver, as text."""
        lines = [f"topics: {self.subscription}", f"  type: {', '.join(self.types) or 'none that is known'}"]
        lines[-1] += "" if self.subscription.exact or not self.types else ", and all subtypes"
        asked = [f"{name} {'present' if wanted else 'absent'}" for name, wanted in self.tagged.items()]
        lines += [f"  tagged: {', '.join(asked)}"] if asked else []
        lines += [f"  {self.dialect.name}: {pattern}" for pattern in self.patterns]
        lines += [] if self.patterns else ["  no key is accepted: nothing can match"]
        return "\n".join([*lines, f"  residual: {self.residual or 'nothing'}"])


def compile(
    subscription: Subscription, dialect: Dialect = ZENOH, realm: str = REALM, catalog: Catalog | None = None
) -> TopicFilter:
    """Compile a subscription to patterns of a dialect that match the keys of a realm's events.

    The types of a kind, and of `all_of` several types, are those of the catalog as it is now, or without one those
    declared so far: compile again when types are added. Raises NotRegistered if a type of the subscription is not in
    the catalog.

    >>> from genus import Event, Maybe, Subscription, this
    >>> class Edge(Event, tagged=("place",)): ...
    >>> class Loop(Edge):
    ...     lane: int
    >>> made = compile(Subscription(Loop, has="place", where=this.lane > 1), realm="city")
    >>> print(made.explain())
    topics: Loop has place where lane > 1
      type: Loop, and all subtypes
      tagged: place present
      zenoh: city/Edge/1/Loop/**
      residual: Loop where lane > 1
    >>> from genus.targets.topics import key_of
    >>> made.accepts(key_of(Loop(lane=2), realm="city")), made.accepts(key_of(Loop(lane=2, place="A8"), realm="city"))
    (False, True)
    """
    lines, decided = _declared(subscription) if catalog is None else _registered(subscription, catalog)
    types = tuple(line.names[-1] for line in lines)
    wanted = required_presence(subscription, TopicsCompiler())
    if wanted is None:
        return TopicFilter(subscription, dialect, (), None, types, {})
    patterns = dict.fromkeys(_pattern(line, subscription.exact, wanted, dialect, realm) for line in lines)
    tagged = {name: here for name, here in wanted.items() if any(name in line.tagged for line in lines)}
    everywhere = frozenset(tagged).intersection(*(line.tagged for line in lines))
    residual = residual_of(subscription, everywhere, decided)
    return TopicFilter(subscription, dialect, tuple(patterns), residual, types, tagged)


class _Line(NamedTuple):
    """A type: the names from its family's root down to it, and the tagged attributes as the subscription names them."""

    names: tuple[str, ...]
    tagged: tuple[str, ...]


def _pattern(line: _Line, exact: bool, wanted: Mapping[str, bool], dialect: Dialect, realm: str) -> str:
    """Return the pattern of one type, narrowed by its tagged attributes."""
    bits = [BITS[wanted[name]] if name in wanted else dialect.one for name in line.tagged]
    chunks = chunks_of(line.names, bits, dialect, realm)
    if not exact:
        return dialect.join([*(chunks[:1] if line.names == (name_of(Event),) else chunks), dialect.rest])
    return dialect.join([*chunks, dialect.end] if dialect.end else chunks)


def _declared(subscription: Subscription) -> tuple[list[_Line], bool]:
    """The types declared so far whose events can match, none below another; and that all their events match by type."""
    lines = [_Line(line_of(cls), declared_tagged(cls, subscription)) for cls in declared_types(subscription)]
    return lines if subscription.exact else _highest(lines), True


def _highest(lines: list[_Line]) -> list[_Line]:
    """The lines without those below others: of a class that was defined again, the former one may be there, too."""
    found = dict.fromkeys(lines)
    return [
        line for line in found if not any(_Line(line.names[:n], line.tagged) in found for n in range(len(line.names)))
    ]


def _registered(subscription: Subscription, catalog: Catalog) -> tuple[list[_Line], bool]:
    """Return the same for the types of a catalog; one that has no class here may be decided by the receiver only."""
    types, decided = registered_types(subscription, catalog)
    above = {} if types == (name_of(subscription.type),) else catalog.entries
    lines = [_registered_line(name, above) if above else line_of(subscription.type) for name in types]
    tagged = [registered_tagged(name, catalog, subscription) for name in types]
    return [_Line(*each) for each in zip(lines, tagged, strict=True)], decided


def _registered_line(name: str, entries: Mapping[str, TypeEntry]) -> tuple[str, ...]:
    """Return the names from the root of a family to a registered type."""
    names = [name]
    while (above := entries[names[-1]].parents[:1]) and above != (name_of(Event),):
        names += above
    return tuple(reversed(names))


class TopicsCompiler(PresenceCompiler):
    """Translates a predicate to the presence of attributes that it requires."""

    target: ClassVar[str] = "topics"
    unsupported: ClassVar[Mapping[type[x.Expression] | str, str]] = without_values("keys hold no values")
