"""A subscription as acceptance filters: the blocks of event tags of its type, with bits for tagged attributes.

A controller compares bits of the identifier. So it can test the type of an event, and which of its tagged attributes
are present; all else is a residual for the receiver. A predicate implies something about presence (a comparison is true
only if its attributes are present), which is used. Each block of event tags becomes one pair, the narrowest that
accepts all that can match: a filter may accept too much, never too little.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, TypeAlias

import msgspec

import genus.filters._expression as x
from genus.catalog import Catalog
from genus.filters._covering import conjuncts
from genus.filters._subscription import AllOf, Subscription, rebuild
from genus.model import Event, is_event_type, name_of, pure_kind, subtypes
from genus.targets._compiler import Compiler
from genus.targets.can._masks import Pair, condense

Presence: TypeAlias = Mapping[str, bool] | None
"""Attributes that must be present (True) or absent (False); None if that is impossible."""

VALUES = "identifiers hold no values"


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
        """Whether a frame with this identifier passes; its priority and node are ignored."""
        return any(pair.accepts(identifier) for pair in self.pairs)

    def explain(self) -> str:
        """The filters, what they test, and what is left to the receiver, as text."""
        lines = [f"can: {self.subscription}", f"  type: {', '.join(self.types) or 'none that is registered'}"]
        lines[-1] += "" if self.subscription.exact or not self.types else ", and all subtypes"
        asked = [f"{name} {'present' if wanted else 'absent'}" for name, wanted in self.tagged.items()]
        lines += [f"  tagged: {', '.join(asked)}"] if asked else []
        lines += [f"  {pair}" for pair in self.pairs] or ["  no frame is accepted: nothing can match"]
        return "\n".join([*lines, f"  residual: {self.residual or 'nothing'}"])


def compile(subscription: Subscription, catalog: Catalog) -> CanFilter:
    """Compile a subscription to acceptance filters, by the event tags of a catalog as it is now.

    Compile again when types are registered: the filters of a kind, and of a type with new subtypes, may then grow.
    Raises NotRegistered if a type of the subscription is not in the catalog.

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
    types, decided = _types(subscription, catalog)
    wanted = required_presence(subscription)
    if wanted is None:
        return CanFilter(subscription, (), None, types, {})
    by_type = {name: _tagged_names(name, catalog, subscription) for name in types}
    pairs = [pair for name in types for pair in _pairs(name, by_type[name], subscription.exact, catalog, wanted)]
    tagged = {name: here for name, here in wanted.items() if any(name in names for names in by_type.values())}
    everywhere = frozenset(tagged).intersection(*by_type.values())
    return CanFilter(subscription, condense(pairs), _residual(subscription, everywhere, decided), types, tagged)


def _tagged_names(name: str, catalog: Catalog, subscription: Subscription) -> tuple[str, ...]:
    """The tagged attributes of a type by the names that the subscription has for them, which may be other ones."""
    own = catalog.vector(name).pair(subscription.vector)
    return tuple(own[each].name if each in own else each for each in catalog.tagged_attributes(name))


def _pairs(
    name: str, tagged: Sequence[str], exact: bool, catalog: Catalog, wanted: Mapping[str, bool]
) -> Iterator[Pair]:
    """The pairs of one type, narrowed by its tagged attributes."""
    bits = {attribute: 1 << bit for bit, attribute in enumerate(reversed(tagged))}
    asked = {attribute: here for attribute, here in wanted.items() if attribute in bits}
    mask = sum(bits[attribute] for attribute in asked)
    value = sum(bits[attribute] for attribute, here in asked.items() if here)
    for block in (catalog.own_etags(name),) if exact else catalog.filters(name):
        yield Pair(block.value | value, block.mask | mask)


# -- types -------------------------------------------------------------------------------------------------------------


def _types(subscription: Subscription, catalog: Catalog) -> tuple[tuple[str, ...], bool]:
    """The registered types whose events can match, none below another; and whether all their events match by type."""
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
    """The types that add nothing to a kind; a type without a class here counts if it may be one."""
    shaped = [name for name, entry in catalog.entries.items() if entry.parents == (name_of(Event), name_of(kind))]
    known = {name_of(cls) for cls in subtypes(kind) if is_event_type(cls)}
    accepted = {name_of(cls) for cls in subscription.classes()}
    found = tuple(name for name in shaped if name in accepted or name not in known)
    return found, accepted.issuperset(found)


# -- attributes --------------------------------------------------------------------------------------------------------


def required_presence(subscription: Subscription) -> Presence:
    """The attributes that must be present or absent for a subscription to match."""
    where = {} if subscription.where is None else CanCompiler().visit(subscription.where, True)
    return _all_of([dict.fromkeys(subscription.has, True), dict.fromkeys(subscription.lacks, False), where])


def _all_of(parts: Iterable[Presence]) -> Presence:
    """The presence required if all parts must be true."""
    found: dict[str, bool] = {}
    for one in parts:
        if one is None or any(found.get(name, here) is not here for name, here in one.items()):
            return None
        found |= one
    return found


def _any_of(parts: Iterable[Presence]) -> Presence:
    """The presence required if any one part must be true."""
    possible = [one for one in parts if one is not None]
    if not possible:
        return None
    first, *others = possible
    return {name: here for name, here in first.items() if all(one.get(name) is here for one in others)}


class CanCompiler(Compiler):
    """Translates a predicate to the presence of attributes that it requires to be true, or to be false."""

    target: ClassVar[str] = "can"
    operators: ClassVar[Mapping[str, str]] = {}
    unsupported: ClassVar[Mapping[type[x.Expression] | str, str]] = {
        **dict.fromkeys((x.AttributeRef, x.Literal, x.Arithmetic, x.Negation, x.Function, x.ToFloat, x.Micros), VALUES),
        **dict.fromkeys((*x.ARITHMETIC, *x.FUNCTIONS, *x.COMPARISONS, *x.TEXT_TESTS), VALUES),
        **dict.fromkeys((x.Compare, x.OneOf, x.TextTest), f"{VALUES}, but presence is tested"),
        x.Present: "unless the attribute is tagged",
        x.Or: "but the common part of its operands is tested",
    }

    def visit_And(self, node: x.And, wanted: bool) -> Presence:
        """All are true; for false, one is false."""
        return (_all_of if wanted else _any_of)(self.visit(part, wanted) for part in node.operands)

    def visit_Or(self, node: x.Or, wanted: bool) -> Presence:
        """One is true; for false, all are false."""
        return (_any_of if wanted else _all_of)(self.visit(part, wanted) for part in node.operands)

    def visit_Not(self, node: x.Not, wanted: bool) -> Presence:
        """The operand with the opposite result."""
        found: Presence = self.visit(node.operand, not wanted)
        return found

    def visit_Present(self, node: x.Present, wanted: bool) -> Presence:
        """The attribute itself."""
        return {node.attribute.name: wanted}

    def visit_Compare(self, node: x.Compare, wanted: bool) -> Presence:
        """It is true or false only if all its attributes are present."""
        return {each.name: True for each in node.walk() if isinstance(each, x.AttributeRef)}

    visit_OneOf = visit_TextTest = visit_Compare


def _residual(subscription: Subscription, tested: frozenset[str], decided: bool) -> Subscription | None:
    """What is left to test when the presence of some attributes is tested; None if nothing."""
    has, lacks = ([name for name in names if name not in tested] for names in (subscription.has, subscription.lacks))
    parts = tuple(part for part in conjuncts(subscription.where) if _presence_of(part) not in tested)
    if decided and not (has or lacks or parts):
        return None
    where = None if not parts else parts[0] if len(parts) == 1 else x.And(parts)
    return rebuild(AllOf(subscription.types), exact=subscription.exact, has=has, lacks=lacks, where=where)


def _presence_of(part: x.Predicate) -> str | None:
    """The attribute whose presence or absence is all that a predicate tests."""
    match part:
        case x.Present(attribute) | x.Not(x.Present(attribute)):
            return attribute.name
    return None
