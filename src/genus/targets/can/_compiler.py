"""A subscription as acceptance filters: the blocks of event tags of its type, and bits for what must be present.

A controller compares bits of the identifier. So of a subscription it can test the type, and which of the tagged
attributes are present or absent; all else is a residual for the receiver. A predicate still says something about
presence (a comparison is true only of what is there), and that is used. Each block of tags becomes one pair, the
narrowest that holds all that can match: too much may pass, never too little.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, TypeAlias

import msgspec

import genus.filters._expression as x
from genus.catalog import Catalog
from genus.filters._covering import conjuncts
from genus.filters._subscription import AllOf, Subscription
from genus.model import Event, is_event_type, name_of, pure_kind, subtypes
from genus.targets._compiler import Compiler
from genus.targets.can._masks import Pair, condensed

Presence: TypeAlias = Mapping[str, bool] | None
"""Attributes that are certainly present (True) or absent (False); None if that cannot be."""

VALUES = "identifiers hold no values"


class CanFilter(msgspec.Struct, frozen=True):
    """The acceptance filters of one subscription; made by `compile`.

    `residual` is what the receiver must still test of events that passed; None if there is nothing left to test.
    `types` are the registered types that can match, with all below them unless the subscription is exact, and
    `tagged` what the filters ask of attributes.
    """

    subscription: Subscription
    pairs: tuple[Pair, ...]
    residual: Subscription | None
    types: tuple[str, ...]
    tagged: Mapping[str, bool]

    def accepts(self, identifier: int) -> bool:
        """Whether a frame with this identifier passes; priority and node are not looked at."""
        return any(pair.accepts(identifier) for pair in self.pairs)

    def explain(self) -> str:
        """The pairs, what they ask, and what is left to the receiver."""
        lines = [f"can: {self.subscription}", f"  type: {', '.join(self.types) or 'none that is registered'}"]
        lines[-1] += "" if self.subscription.exact or not self.types else ", and all below"
        asked = [f"{name} {'present' if wanted else 'absent'}" for name, wanted in self.tagged.items()]
        lines += [f"  tagged: {', '.join(asked)}"] if asked else []
        lines += [f"  {pair}" for pair in self.pairs] or ["  no frame is accepted: nothing can match"]
        return "\n".join([*lines, f"  residual: {self.residual or 'nothing'}"])


def compile(subscription: Subscription, catalog: Catalog) -> CanFilter:
    """The acceptance filters of one subscription, by the event tags of a catalog as it is now.

    Its types must be registered. Where types are registered later, below a type of the subscription, the filters of
    that type may grow, and those of a kind will: compile again.

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
      type: Loop, and all below
      tagged: place present
      0x2042/0x3fc2  10000001----1-
      residual: Loop where lane > 1
    >>> made.accepts(catalog.etag_of(Loop(lane=2))), made.accepts(catalog.etag_of(Loop(lane=2, place="A8")))
    (False, True)
    """
    types, decided = _types(subscription, catalog)
    wanted = presence(subscription)
    if wanted is None:
        return CanFilter(subscription, (), None, types, {})
    tagged = {name: frozenset(catalog.tagged_attributes(name)) for name in types}
    pairs = [pair for name in types for pair in _pairs(name, subscription.exact, catalog, wanted)]
    told = {name: here for name, here in wanted.items() if any(name in names for names in tagged.values())}
    everywhere = frozenset(told).intersection(*tagged.values())
    return CanFilter(subscription, condensed(pairs), _residual(subscription, everywhere, decided), types, told)


def _pairs(name: str, exact: bool, catalog: Catalog, wanted: Mapping[str, bool]) -> Iterator[Pair]:
    """The pairs of one type, narrowed by what its event tags tell of attributes."""
    bits = {attribute: 1 << place for place, attribute in enumerate(reversed(catalog.tagged_attributes(name)))}
    asked = {attribute: here for attribute, here in wanted.items() if attribute in bits}
    mask = sum(bits[attribute] for attribute in asked)
    value = sum(bits[attribute] for attribute, here in asked.items() if here)
    for block in (catalog.own_etags(name),) if exact else catalog.filters(name):
        yield Pair(block.value | value, block.mask | mask)


# -- types -------------------------------------------------------------------------------------------------------------


def _types(subscription: Subscription, catalog: Catalog) -> tuple[tuple[str, ...], bool]:
    """The registered types whose events can match, none below another; and whether all of their events are meant."""
    wanted = [catalog.code(cls) for cls in subscription.types]
    if subscription.exact:
        kind = subscription.type if not is_event_type(subscription.type) else pure_kind(subscription.type)
        return ((name_of(subscription.type),), True) if kind is None else _pure_types(subscription, kind, catalog)
    if len(wanted) == 1 and is_event_type(subscription.type):
        return (name_of(subscription.type),), True
    entries = catalog.entries
    found = {name: e for name, e in entries.items() if not e.kind and all(e.code % code == 0 for code in wanted)}
    return tuple(name for name, entry in found.items() if not found.keys() & entry.parents[:1]), True


def _pure_types(subscription: Subscription, kind: type, catalog: Catalog) -> tuple[tuple[str, ...], bool]:
    """Those that add nothing to a kind. No catalog can tell: of types unknown here, all that may be such are taken."""
    shaped = [name for name, entry in catalog.entries.items() if entry.parents == (name_of(Event), name_of(kind))]
    known = {name_of(cls) for cls in subtypes(kind) if is_event_type(cls)}
    accepted = {name_of(cls) for cls in subscription.classes()}
    found = tuple(name for name in shaped if name in accepted or name not in known)
    return found, accepted.issuperset(found)


# -- attributes --------------------------------------------------------------------------------------------------------


def presence(subscription: Subscription) -> Presence:
    """What a subscription says about attributes being present, in all its parts."""
    where = {} if subscription.where is None else CanCompiler().visit(subscription.where, True)
    return _both([dict.fromkeys(subscription.has, True), dict.fromkeys(subscription.lacks, False), where])


def _both(said: Iterable[Presence]) -> Presence:
    """What holds if all of these do."""
    found: dict[str, bool] = {}
    for one in said:
        if one is None or any(found.get(name, here) is not here for name, here in one.items()):
            return None
        found |= one
    return found


def _either(said: Iterable[Presence]) -> Presence:
    """What holds if one of these does, whichever it is."""
    possible = [one for one in said if one is not None]
    if not possible:
        return None
    first, *others = possible
    return {name: here for name, here in first.items() if all(one.get(name) is here for one in others)}


class CanCompiler(Compiler):
    """Makes of a predicate what its truth, or its falsehood, says about attributes being present."""

    target: ClassVar[str] = "can"
    operators: ClassVar[Mapping[str, str]] = {}
    unsupported: ClassVar[Mapping[type[x.Expression] | str, str]] = {
        **dict.fromkeys((x.AttributeRef, x.Literal, x.Arithmetic, x.Negation, x.ToFloat, x.Micros), VALUES),
        **dict.fromkeys((*x.ARITHMETIC, *x.COMPARISONS, *x.TEXT_TESTS), VALUES),
        **dict.fromkeys((x.Compare, x.OneOf, x.TextTest), f"{VALUES}, but presence is tested"),
        x.Present: "unless the attribute is tagged",
        x.Or: "but what its parts share is tested",
    }

    def visit_And(self, node: x.And, wanted: bool) -> Presence:
        """All hold, or one does not."""
        return (_both if wanted else _either)(self.visit(part, wanted) for part in node.operands)

    def visit_Or(self, node: x.Or, wanted: bool) -> Presence:
        """One holds, or none does."""
        return (_either if wanted else _both)(self.visit(part, wanted) for part in node.operands)

    def visit_Not(self, node: x.Not, wanted: bool) -> Presence:
        """The other question."""
        found: Presence = self.visit(node.operand, not wanted)
        return found

    def visit_Present(self, node: x.Present, wanted: bool) -> Presence:
        """What it says."""
        return {node.attribute.name: wanted}

    def visit_Compare(self, node: x.Compare, wanted: bool) -> Presence:
        """True or false only where nothing is absent."""
        return {each.name: True for each in node.walk() if isinstance(each, x.AttributeRef)}

    visit_OneOf = visit_TextTest = visit_Compare


def _residual(subscription: Subscription, told: frozenset[str], decided: bool) -> Subscription | None:
    """What is left to test once event tags have told of some attributes; nothing if that was all."""
    has, lacks = ([name for name in names if name not in told] for names in (subscription.has, subscription.lacks))
    parts = tuple(part for part in conjuncts(subscription.where) if _named(part) not in told)
    if decided and not (has or lacks or parts):
        return None
    where = None if not parts else parts[0] if len(parts) == 1 else x.And(parts)
    return Subscription(AllOf(subscription.types), exact=subscription.exact, has=has, lacks=lacks, where=where)


def _named(part: x.Predicate) -> str | None:
    """The attribute whose presence or absence is all that a predicate asks."""
    match part:
        case x.Present(attribute) | x.Not(x.Present(attribute)):
            return attribute.name
    return None
