"""The subscriptions of the application, and what each is compiled to."""

from collections.abc import Iterator, Mapping

from genus import Event, Subscription, this
from genus.catalog import Catalog
from genus.catalog.types import TypeEntry
from genus.targets import can, python
from genus_traffic.results import CompiledSubscription, TypeRow
from genus_traffic.types import TYPES, Category, Edge, Loop, Occupancy

VELOCITY = Subscription(Edge, has=("lane", "time"))
"""The velocity monitor: both loops of every pair, whatever else their events carry."""
STATISTICS = Subscription(Loop, has=("time", "place", "category"))
"""The statistics collector: the upper loop of every pair, whose events carry place and category."""
CONFIDENT = Subscription(Loop, has=("time", "place", "category", "confidence"))
"""The collector's second subscription, made once all sensors report a confidence."""
HEAVY = Subscription(Loop, where=this.category.isin([Category.TRUCK, Category.BUS]) & (this.confidence >= 0.9))
"""A bridge keeper: heavy vehicles, detected with high confidence."""

SUBSCRIPTIONS: Mapping[str, Subscription] = {
    "VelocityMonitor": VELOCITY,
    "StatisticsCollector": STATISTICS,
    "StatisticsCollector, with confidence": CONFIDENT,
    "BridgeKeeper": HEAVY,
    "HeartbeatWatch": Subscription(Occupancy),
}


def type_rows(catalog: Catalog) -> tuple[TypeRow, ...]:
    """All types of the catalog, for the report."""
    says = {cls.__name__: (cls.__doc__ or "").partition("\n")[0] for cls in (Event, *TYPES)}
    return tuple(_type_row(catalog, entry, says.get(entry.name, "")) for entry in catalog.entries.values())


def _type_row(catalog: Catalog, entry: TypeEntry, says: str) -> TypeRow:
    vector = () if entry.kind else catalog.vector(entry.name)
    return TypeRow(
        name=entry.name,
        says=says,
        parents=entry.parents,
        is_kind=entry.kind,
        code=entry.code,
        factors=tuple(_factors(entry.code)),
        etag=None if entry.kind else catalog.etag(entry.name),
        etag_blocks=tuple((block.value, block.mask) for block in entry.blocks),
        attributes=tuple(entry.attributes),
        bits={attribute.name: bit for bit, attribute in enumerate(vector)},
    )


def _factors(code: int) -> Iterator[int]:
    """The prime factors of a code, by trial division: those of a catalog are small."""
    divisor = 2
    while code > 1:
        while code % divisor == 0:
            yield divisor
            code //= divisor
        divisor += 1


def compile_for_targets(catalog: Catalog, name: str, spark: str, matches: Mapping[str, int]) -> CompiledSubscription:
    """Compile a subscription, and show it for the report.

    Args:
        catalog: The city's catalog.
        name: The name of the subscriber.
        spark: The explanation of the subscription as a Spark column.
        matches: How many events it matched, by target.
    """
    subscription = SUBSCRIPTIONS[name]
    on_can = can.compile(subscription, catalog)
    return CompiledSubscription(
        subscriber=name,
        text=str(subscription),
        filters=tuple((pair.value, pair.mask) for pair in on_can.pairs),
        left_to_receiver=str(on_can.residual or ""),
        python="\n\n".join(python.compile(subscription).sources()),
        spark=spark,
        answers=dict(matches),
    )
