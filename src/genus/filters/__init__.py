"""Subscriptions: predicates as expression trees, `Subscription`, its text form, covering and merging."""

from typing import TYPE_CHECKING

from genus._lazy import lazy
from genus.filters._expression import (
    DURATION_UNITS,
    And,
    Arithmetic,
    AttributeRef,
    Coalesce,
    Compare,
    Conditional,
    Expression,
    Function,
    Literal,
    Negation,
    Not,
    OneOf,
    Or,
    Predicate,
    Present,
    Step,
    TextTest,
    Value,
)
from genus.filters._subscription import AllOf, AttributeNames, Subscription, all_of, parse_again
from genus.filters._term import Term, coalesce, this, when
from genus.filters._type_names import TypesByName

if TYPE_CHECKING:
    from genus.filters._completion import Completion, CompletionItem, complete
    from genus.filters._covering import conjuncts
    from genus.filters._merging import MergedSubscription, merge
    from genus.filters._python_source import python_source
    from genus.filters._subscription_file import read_publishers, read_subscriptions
    from genus.filters._unmet import Unmet
    from genus.filters._wiring import BindingCounts, Wiring, count_bindings

__all__ = [
    "DURATION_UNITS",
    "AllOf",
    "And",
    "Arithmetic",
    "AttributeNames",
    "AttributeRef",
    "BindingCounts",
    "Coalesce",
    "Compare",
    "Completion",
    "CompletionItem",
    "Conditional",
    "Expression",
    "Function",
    "Literal",
    "MergedSubscription",
    "Negation",
    "Not",
    "OneOf",
    "Or",
    "Predicate",
    "Present",
    "Step",
    "Subscription",
    "Term",
    "TextTest",
    "TypesByName",
    "Unmet",
    "Value",
    "Wiring",
    "all_of",
    "coalesce",
    "complete",
    "conjuncts",
    "count_bindings",
    "merge",
    "parse_again",
    "python_source",
    "read_publishers",
    "read_subscriptions",
    "this",
    "when",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
