"""A subscription as key patterns: the line of its type, with bits for tagged attributes.

A network of topics compares chunks of a key. So it can test the type of an event, and which of its tagged attributes
are present; all else is a residual for the receiver, as on CAN. A type with all below it is one pattern; a kind, and
`all_of` several types, get one for each of the highest types that conform. A pattern may accept too much, never too
little.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import msgspec

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.catalog.types import TypeEntry
from genus.filters import Subscription
from genus.model import Event, name_of
from genus.targets._conformance import declared_tagged, declared_types, registered_tagged, registered_types
from genus.targets._presence import PresenceCompiler, required_presence, residual_of, without_values
from genus.targets.topics._dialect import ZENOH, Dialect
from genus.targets.topics._keys import BITS, REALM, chunks_of, line_of


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
