"""The CAN target: subscriptions become acceptance filters, (value, mask) pairs that a controller tests by itself.

`compile` makes the filters of one subscription, `fit_bank` fits those of a whole node into the few that a controller
has, and `SharedFilters` keeps them for subscriptions that are added and removed.
"""

from genus.targets.can._banks import FilterBank, SharedFilters, fit_bank
from genus.targets.can._compiler import CanFilter, Pair, Traffic, compile

__all__ = ["CanFilter", "FilterBank", "Pair", "SharedFilters", "Traffic", "compile", "fit_bank"]
