"""The CAN target: subscriptions become acceptance filters, (value, mask) pairs that a controller tests by itself.

`compile` makes the filters of one subscription, `bank` fits those of a whole node into the few that a controller has,
and `SharedFilters` keeps them for consumers that come and go.
"""

from genus.targets.can._banks import Bank, SharedFilters, bank
from genus.targets.can._compiler import CanCompiler, CanFilter, compile
from genus.targets.can._masks import Pair, Traffic

__all__ = ["Bank", "CanCompiler", "CanFilter", "Pair", "SharedFilters", "Traffic", "bank", "compile"]
