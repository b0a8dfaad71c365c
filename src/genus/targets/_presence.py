"""For targets that test types and presence but no values: the types that can match, and the presence they require.

The types are the highest of each line, by a catalog or by declared classes. A predicate implies something about
presence: a comparison is true only if its attributes are present. What such a target does not test is a residual for
the receiver.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeAlias

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.filters import Subscription
from genus.filters.internal import conjuncts, needed_attributes, rebuild
from genus.filters.types import AllOf
from genus.model import Event, is_event_type, name_of, parents, pure_kind, subtypes, tagged_attributes, vector
from genus.model.internal import hidden_names
from genus.model.types import Vector
from genus.targets._compiler import Compiler


def registered_types(subscription: Subscription, catalog: Catalog) -> tuple[tuple[str, ...], bool]:
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
    """Return the types that add nothing to a kind; a type without a class here counts if it may be one."""
    shaped = [name for name, entry in catalog.entries.items() if entry.parents == (name_of(Event), name_of(kind))]
    known = {name_of(cls) for cls in subtypes(kind) if is_event_type(cls)}
    accepted = {name_of(cls) for cls in subscription.classes()}
    found = tuple(name for name in shaped if name in accepted or name not in known)
    return found, accepted.issuperset(found)


def registered_tagged(name: str, catalog: Catalog, subscription: Subscription) -> tuple[str, ...]:
    """The tagged attributes of a type by the names that the subscription has for them, which may be other ones."""
    family = catalog.vector(name)
    return _as_asked(catalog.tagged_attributes(name), family, subscription)


def declared_types(subscription: Subscription) -> tuple[type, ...]:
    """Return the event types declared so far whose events can match; unless it is exact, none below another."""
    asked = subscription.type
    if is_event_type(asked) and len(subscription.types) == 1 and not (subscription.exact and pure_kind(asked)):
        return (asked,)
    found = dict.fromkeys(subscription.classes())
    return tuple(cls for cls in found if subscription.exact or parents(cls)[0] not in found)


def declared_tagged(cls: type, subscription: Subscription) -> tuple[str, ...]:
    """Return the tagged attributes of a class by the names that the subscription has for them."""
    return _as_asked(tagged_attributes(cls), vector(cls), subscription)


def _as_asked(tagged: tuple[str, ...], family: Vector, subscription: Subscription) -> tuple[str, ...]:
    """Tagged attributes by the names of a subscription; one that it takes for absent has no name that it uses."""
    if not tagged:
        return ()
    own, hidden = family.pair(subscription.vector), hidden_names(family, subscription.vector)
    names = {
        **{name: each.name for name, each in own.items()},
        **{name: f"{name} of {family.scope}" for name in hidden},
    }
    return tuple(names.get(each, each) for each in tagged)


Presence: TypeAlias = Mapping[str, bool] | None
"""Attributes that must be present (True) or absent (False); None if that is impossible."""


def required_presence(subscription: Subscription, compiler: Compiler) -> Presence:
    """Return the attributes that must be present or absent for a subscription to match."""
    where = {} if subscription.where is None else compiler.visit(subscription.where, True)
    return _all_of([dict.fromkeys(subscription.has, True), dict.fromkeys(subscription.lacks, False), where])


def residual_of(subscription: Subscription, tested: frozenset[str], decided: bool) -> Subscription | None:
    """Return what is left to test when the presence of some attributes is tested; None if nothing.

    `decided` says that the type is tested, too.
    """
    has, lacks = ([name for name in names if name not in tested] for names in (subscription.has, subscription.lacks))
    whole = conjuncts(subscription.where)
    parts = tuple(part for part in whole if _presence_of(part) not in tested)
    if decided and not (has or lacks or parts):
        return None
    if len(has) + len(lacks) + len(parts) == len(subscription.has) + len(subscription.lacks) + len(whole):
        return subscription
    where = None if not parts else parts[0] if len(parts) == 1 else x.And(parts)
    return rebuild(AllOf(subscription.types), exact=subscription.exact, has=has, lacks=lacks, where=where)


def without_values(reason: str) -> Mapping[type[x.Expression] | str, str]:
    """Return what a compiler of presence leaves to the receiver, with the reason that values cannot be tested."""
    return {
        **dict.fromkeys((x.AttributeRef, x.Literal, x.Arithmetic, x.Negation, x.Function), reason),
        **dict.fromkeys((x.Conditional, x.Coalesce, x.ToFloat, x.Micros), reason),
        **dict.fromkeys((*x.ARITHMETIC, *x.FUNCTIONS, *x.COMPARISONS, *x.TEXT_TESTS), reason),
        **dict.fromkeys((x.Compare, x.OneOf, x.TextTest), f"{reason}, but presence is tested"),
        x.Present: "unless the attribute is tagged",
        x.Or: "but the common part of its operands is tested",
    }


class PresenceCompiler(Compiler, abstract=True):
    """A compiler that translates a predicate to the presence that it requires to be true, or to be false."""

    operators: ClassVar[Mapping[str, str]] = {}

    def visit_And(self, node: x.And, wanted: bool) -> Presence:
        """All are true; for false, one is false."""
        return (_all_of if wanted else _any_of)(self.visit(part, wanted) for part in node.operands)

    def visit_Or(self, node: x.Or, wanted: bool) -> Presence:
        """One is true; for false, all are false."""
        return (_any_of if wanted else _all_of)(self.visit(part, wanted) for part in node.operands)

    def visit_Not(self, node: x.Not, wanted: bool) -> Presence:
        """Return the operand with the opposite result."""
        found: Presence = self.visit(node.operand, not wanted)
        return found

    def visit_Present(self, node: x.Present, wanted: bool) -> Presence:
        """Return the attribute itself."""
        return {node.attribute.name: wanted}

    def visit_Compare(self, node: x.Compare, wanted: bool) -> Presence:
        """It is true or false only if the attributes that it needs are present."""
        return dict.fromkeys(needed_attributes(node), True)

    visit_OneOf = visit_TextTest = visit_Compare


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


def _presence_of(part: x.Predicate) -> str | None:
    """Return the attribute whose presence or absence is all that a predicate tests."""
    match part:
        case x.Present(attribute) | x.Not(x.Present(attribute)):
            return attribute.name
    return None
