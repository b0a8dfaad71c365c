"""The presence of attributes that a subscription requires, for targets that test presence but no values.

A predicate implies something about presence: a comparison is true only if its attributes are present. What such a
target does not test is a residual for the receiver.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeAlias

import genus.filters.internal as x
from genus.filters import Subscription
from genus.filters.internal import conjuncts, needed_attributes, rebuild
from genus.filters.types import AllOf
from genus.targets._compiler import Compiler

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
