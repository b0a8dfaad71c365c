"""What a subscription asks: expression trees, `Subscription`, its text form, covering and merging."""

from genus.filters._expression import Predicate, Term, this
from genus.filters._merging import Bindings, Merged, bindings, merge
from genus.filters._subscription import AllOf, Subscription, all_of

__all__ = [
    "AllOf",
    "Bindings",
    "Merged",
    "Predicate",
    "Subscription",
    "Term",
    "all_of",
    "bindings",
    "merge",
    "this",
]
