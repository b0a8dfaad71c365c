"""Who subscribes to what, and what every subscription becomes where it runs."""

from collections.abc import Iterator, Mapping

from genus import Event, Subscription, this
from genus.catalog import Catalog, TypeEntry
from genus.targets import can, python
from genus_traffic.results import Compiled, TypeRow
from genus_traffic.types import TYPES, Category, Edge, Loop, Occupancy

VELOCITY = Subscription(Edge, has=("lane", "time"))
"""The velocity monitor wants both loops of every pair, whatever else they say."""
STATISTICS = Subscription(Loop, has=("time", "place", "category"))
"""The statistics collector wants one loop of every pair: the one that says where it is and what it saw."""
CONFIDENT = Subscription(Loop, has=("time", "place", "category", "confidence"))
"""What the collector asks for besides, once all sensors can say how sure they are."""
HEAVY = Subscription(Loop, where=this.category.isin([Category.TRUCK, Category.BUS]) & (this.confidence >= 0.9))
"""The keeper of a bridge wants heavy vehicles, and only what is nearly certain."""

SUBSCRIPTIONS: Mapping[str, Subscription] = {
    "VelocityMonitor": VELOCITY,
    "StatisticsCollector": STATISTICS,
    "StatisticsCollector, with confidence": CONFIDENT,
    "BridgeKeeper": HEAVY,
    "HeartbeatWatch": Subscription(Occupancy),
}


def type_rows(catalog: Catalog) -> tuple[TypeRow, ...]:
    """All types as the catalog knows them."""
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
    """The primes whose product a code is; those of a catalog are small."""
    divisor = 2
    while code > 1:
        while code % divisor == 0:
            yield divisor
            code //= divisor
        divisor += 1


def compiled(catalog: Catalog, name: str, spark: str, answers: Mapping[str, int]) -> Compiled:
    """What a subscription became; what Spark does with it and what it got are told by those who know."""
    subscription = SUBSCRIPTIONS[name]
    on_can = can.compile(subscription, catalog)
    return Compiled(
        subscriber=name,
        text=str(subscription),
        filters=tuple((pair.value, pair.mask) for pair in on_can.pairs),
        left_to_receiver=str(on_can.residual or ""),
        python="\n\n".join(python.compile(subscription).sources()),
        spark=spark,
        answers=dict(answers),
    )
