"""Targets: where a subscription is compiled to run; see docs/subscriptions.md.

Each module of this package is a target and has the same shape: `compile(subscription, ...)` returns a filter, and its
`explain()` says as text what the subscription became. Two targets are for many subscriptions at once:
`dispatch.compile(cls, entries)` and `index.compile(subscriptions)`. Modules are imported when they are first used, for
some need an extra: `arrow` (pyarrow), `index` (numpy) and `spark` (pyspark).
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.targets import arrow, c, can, coap, dispatch, index, python, spark, topics
    from genus.targets._compiler import support_matrix
    from genus.targets.arrow import ArrowFilter
    from genus.targets.c import CFilter
    from genus.targets.can import CanFilter
    from genus.targets.coap import CoapFilter
    from genus.targets.dispatch import ClassDispatcher
    from genus.targets.index import SubscriptionIndex
    from genus.targets.python import PythonFilter
    from genus.targets.spark import SparkFilter
    from genus.targets.topics import TopicFilter

__all__ = [
    "ArrowFilter",
    "CFilter",
    "CanFilter",
    "ClassDispatcher",
    "CoapFilter",
    "PythonFilter",
    "SparkFilter",
    "SubscriptionIndex",
    "TopicFilter",
    "arrow",
    "c",
    "can",
    "coap",
    "dispatch",
    "index",
    "python",
    "spark",
    "support_matrix",
    "topics",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
