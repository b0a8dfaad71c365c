"""The subscriptions of the application, what each is compiled to, and that all targets count the same matches."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from genus import Event, Subscription, read_recording, replay, this
from genus.catalog import Catalog
from genus.catalog.types import TypeEntry
from genus.targets import SubscriptionIndex, arrow, can, python
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


# -- the same on every target ------------------------------------------------------------------------------------------


def matches_by_target(events: Sequence[Event], landing: Path) -> dict[str, dict[str, int]]:
    """How many events each subscription matches, by target and then by subscriber.

    Args:
        events: What arrived at the city's centre.
        landing: The folder with the recordings of the same events.
    """
    return {
        "python": _count_in_python(events),
        "arrow": _count_in_arrow(events),
        "index": _count_in_index(events),
        "replay": _count_in_recordings(landing),
    }


def by_subscriber(targets: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The same counts by subscriber and then by target, without targets on which a subscription did not run."""
    return {
        name: {target: counts[name] for target, counts in targets.items() if name in counts} for name in SUBSCRIPTIONS
    }


def _count_in_python(events: Iterable[Event]) -> dict[str, int]:
    compiled = {name: python.compile(subscription) for name, subscription in SUBSCRIPTIONS.items()}
    counts = Counter(name for event in events for name, matches in compiled.items() if matches(event))
    return {name: counts[name] for name in SUBSCRIPTIONS}


def _count_in_arrow(events: Iterable[Event]) -> dict[str, int]:
    families: dict[type, list[Event]] = {}
    for event in events:
        families.setdefault(_family(type(event)), []).append(event)
    batches = [arrow.to_batch(members, family) for family, members in families.items()]
    compiled = {name: arrow.compile(subscription) for name, subscription in SUBSCRIPTIONS.items()}
    return {name: sum(each.filter(batch).num_rows for batch in batches) for name, each in compiled.items()}


def _family(cls: type) -> type:
    """The direct subtype of `Event` that a class descends from."""
    return next(base for base in cls.__mro__ if Event in base.__bases__)


def _count_in_index(events: Iterable[Event]) -> dict[str, int]:
    index = SubscriptionIndex()
    names = {index.add(subscription): name for name, subscription in SUBSCRIPTIONS.items()}
    counts = Counter(names[int(handle)] for event in events for handle in index.match(event))
    return {name: counts[name] for name in SUBSCRIPTIONS}


def _count_in_recordings(landing: Path) -> dict[str, int]:
    files = sorted(landing.glob("*.genus"))
    return {
        name: sum(replay(read_recording(file, TYPES), lambda _: None, subscription) for file in files)
        for name, subscription in SUBSCRIPTIONS.items()
    }
