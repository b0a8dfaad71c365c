"""Subscriptions: `Subscription`, its predicates, its text form, covering and merging."""

from typing import TYPE_CHECKING

from genus._lazy import lazy
from genus.filters._subscription import Subscription, all_of, parse_again
from genus.filters._term import coalesce, this, when
from genus.filters._type_names import TypesByName

if TYPE_CHECKING:
    from genus.filters._completion import complete
    from genus.filters._python_source import python_source
    from genus.filters._subscription_lists import merge, read_subscriptions

__all__ = [
    "Subscription",
    "TypesByName",
    "all_of",
    "coalesce",
    "complete",
    "merge",
    "parse_again",
    "python_source",
    "read_subscriptions",
    "this",
    "when",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
