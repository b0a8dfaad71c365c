"""A subscription as acceptance filters: the blocks of event tags of its type, with bits for tagged attributes.

A controller compares bits of the identifier. So it can test the type of an event, and which of its tagged attributes
are present; all else is a residual for the receiver. A predicate implies something about presence (a comparison is true
only if its attributes are present), which is used. Each block of event tags becomes one pair, the narrowest that
accepts all that can match: a filter may accept too much, never too little.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.filters import Subscription
from genus.model import name_of
from genus.targets._conformance import registered_tagged, registered_types
from genus.targets._presence import PresenceCompiler, required_presence, residual_of, without_values
from genus.targets.can._masks import Pair, condense


class CanFilter(msgspec.Struct, frozen=True):
    """The acceptance filters of one subscription; made by `compile`.

    `pairs` are the filters, and `residual` is what the receiver must still test of events that pass, None if nothing.
    `types` are the registered types that can match, with their subtypes unless the subscription is exact, and `tagged`
    are the tagged attributes that the filters require to be present (True) or absent (False).
    """

    subscription: Subscription
    pairs: tuple[Pair, ...]
    residual: Subscription | None
    types: tuple[str, ...]
    tagged: Mapping[str, bool]

    def accepts(self, identifier: int) -> bool:
        """Return whether a frame with this identifier passes; its priority and node are ignored."""
        return any(pair.accepts(identifier) for pair in self.pairs)

    def explain(self) -> str:
        """Return the filters, what they test, and what is left to the receiver, as text."""
        lines = [f"can: {self.subscription}", f"  type: {', '.join(self.types) or 'none that is registered'}"]
        lines[-1] += "" if self.subscription.exact or not self.types else ", and all subtypes"
        asked = [f"{name} {'present' if wanted else 'absent'}" for name, wanted in self.tagged.items()]
        lines += [f"  tagged: {', '.join(asked)}"] if asked else []
        lines += [f"  {pair}" for pair in self.pairs] or ["  no frame is accepted: nothing can match"]
        return "\n".join([*lines, f"  residual: {self.residual or 'nothing'}"])


def compile(subscription: Subscription, catalog: Catalog) -> CanFilter:
    """Compile a subscription to acceptance filters, by the event tags of a catalog as it is now.

    Compile again when types are registered or get event tags: the filters of a kind, and of a type with new subtypes,
    may then grow. Raises NotRegistered if a type of the subscription is not in the catalog or has no event tag yet.

    >>> from genus import Event, Maybe, Subscription, this
    >>> from genus.catalog import Catalog
    >>> class Loop(Event, tagged=("place", "category")):
    ...     lane: int
    ...     category: Maybe[str] = None
    >>> catalog = Catalog()
    >>> added = catalog.register(Loop)
    >>> made = compile(Subscription(Loop, has="place", where=this.lane > 1), catalog)
    >>> print(made.explain())
    can: Loop has place where lane > 1
      type: Loop, and all subtypes
      tagged: place present
      0x2042/0x3fc2  10000001----1-
      residual: Loop where lane > 1
    >>> made.accepts(catalog.etag_of(Loop(lane=2))), made.accepts(catalog.etag_of(Loop(lane=2, place="A8")))
    (False, True)
    """
    types, decided = registered_types(subscription, catalog)
    wanted = required_presence(subscription, CanCompiler())
    if wanted is None:
        return CanFilter(subscription, (), None, types, {})
    by_type = {name: registered_tagged(name, catalog, subscription) for name in types}
    named = {name_of(cls) for cls in subscription.types}
    on_bus = [name for name in types if name in named or catalog.has_etag(name)]
    pairs = [pair for name in on_bus for pair in _pairs(name, by_type[name], subscription.exact, catalog, wanted)]
    tagged = {name: here for name, here in wanted.items() if any(name in names for names in by_type.values())}
    everywhere = frozenset(tagged).intersection(*by_type.values())
    return CanFilter(subscription, condense(pairs), residual_of(subscription, everywhere, decided), types, tagged)


def _pairs(
    name: str, tagged: Sequence[str], exact: bool, catalog: Catalog, wanted: Mapping[str, bool]
) -> Iterator[Pair]:
    """Yield the pairs of one type, narrowed by its tagged attributes."""
    bits = {attribute: 1 << bit for bit, attribute in enumerate(reversed(tagged))}
    asked = {attribute: here for attribute, here in wanted.items() if attribute in bits}
    mask = sum(bits[attribute] for attribute in asked)
    value = sum(bits[attribute] for attribute, here in asked.items() if here)
    for block in (catalog.own_etags(name),) if exact else catalog.filters(name):
        yield Pair(block.value | value, block.mask | mask)


class CanCompiler(PresenceCompiler):
    """Translates a predicate to the presence of attributes that it requires."""

    target: ClassVar[str] = "can"
    unsupported: ClassVar[Mapping[type[x.Expression] | str, str]] = without_values("identifiers hold no values")
