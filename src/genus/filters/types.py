"""What calls of `genus.filters` return, and the nodes of predicates, for annotations and programs that read trees."""

from typing import TYPE_CHECKING

from genus._lazy import lazy
from genus.filters._expression import (
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
from genus.filters._subscription import AllOf, AttributeNames
from genus.filters._term import Term

if TYPE_CHECKING:
    from genus.filters._completion import Completion, CompletionItem
    from genus.filters._covering import Mismatch
    from genus.filters._subscription_lists import MergedSubscription

__all__ = [
    "AllOf",
    "And",
    "Arithmetic",
    "AttributeNames",
    "AttributeRef",
    "Coalesce",
    "Compare",
    "Completion",
    "CompletionItem",
    "Conditional",
    "Expression",
    "Function",
    "Literal",
    "MergedSubscription",
    "Mismatch",
    "Negation",
    "Not",
    "OneOf",
    "Or",
    "Predicate",
    "Present",
    "Step",
    "Term",
    "TextTest",
    "Value",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
