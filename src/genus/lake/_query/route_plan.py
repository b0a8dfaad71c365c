"""The plan of a route: many subscriptions, decomposed and matched with shapes, as lookups for events."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from genus.catalog import Catalog
from genus.errors import LakeError, NotRegistered
from genus.lake._query.decompose import DecomposedSubscriptions, decompose
from genus.lake._query.lookup import MATCHES, Lookup, union_all
from genus.lake._query.lookup_plan import LookupPlan, describe_plan, format_count, plan_lookups
from genus.lake._query.shape_match import list_shapes, match_shapes
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._query.templates import ResidualCompiler
from genus.lake._tables.columns import SUBSCRIBER, SUBSCRIPTION, Shape


def plan_routes(subscriptions: Sequence[RouteEntry], shapes: Iterable[Shape], catalog: Catalog) -> "RoutePlan":
    """Plan the lookups for events of some shapes; the number of a subscription is its position in the list.

    Runs on the driver without a session. NotRegistered if the catalog lacks a subscribed type.
    """
    _check_types(subscriptions, catalog)
    decomposed = decompose([entry.subscription for entry in subscriptions])
    families: dict[str, list[Shape]] = {}
    for shape in shapes:
        families.setdefault(shape.family, []).append(shape)
    plans = {
        family: tuple(
            found
            for each in list_shapes(listed, catalog.vector(family))
            for found in plan_lookups(decomposed, each, match_shapes(decomposed.profiles, each, catalog))
        )
        for family, listed in sorted(families.items())
    }
    subscribers = tuple(entry.subscriber for entry in subscriptions)
    return RoutePlan(subscribers, decomposed, {family: found for family, found in plans.items() if found})


def _check_types(subscriptions: Sequence[RouteEntry], catalog: Catalog) -> None:
    for cls in {cls for entry in subscriptions for cls in entry.subscription.types}:
        try:
            catalog.code(cls)
        except NotRegistered as problem:
            asking = next(entry for entry in subscriptions if cls in entry.subscription.types)
            raise NotRegistered(f"{asking.subscriber}: {asking.subscription}: {problem}") from None


class RoutePlan:
    """Finds the subscriptions that events match, for the families of a lake; made by `plan_routes`.

    >>> from genus import Event, Subscription, this
    >>> class Buoy(Event):
    ...     height: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Buoy)
    >>> shape = Shape("Buoy", "Buoy", str(catalog.code(Buoy)), "20")
    >>> high = [RouteEntry("ann", Subscription(Buoy, where=this.height > limit)) for limit in range(20)]
    >>> print(plan_routes(high, [shape], catalog).explain())
    20 subscriptions of 1 subscriber
    Buoy: 1 pass over its events
      20 subscriptions found also by the range of height: 1 shape, 3 lists of subscriptions to look up
        reads _shape, height; sends 1 kB to every worker
    """

    def __init__(
        self,
        subscribers: tuple[str, ...],
        decomposed: DecomposedSubscriptions,
        plans: dict[str, tuple[LookupPlan, ...]],
    ) -> None:
        self.subscribers = subscribers
        """The subscriber of each subscription, by number."""
        self._decomposed, self._plans = decomposed, plans
        self._sessions: dict[int, _Frames] = {}

    def __len__(self) -> int:
        return len(self.subscribers)

    @property
    def families(self) -> tuple[str, ...]:
        """The families with a shape that any subscription accepts."""
        return tuple(self._plans)

    def matches(self, events: DataFrame, family: str) -> DataFrame:
        """The events of a family, once for each subscription that they match.

        The columns are `subscriber`, `subscription` (its number) and then those of the events.
        """
        if taken := {SUBSCRIBER, SUBSCRIPTION} & {name.lower() for name in events.columns}:
            raise LakeError(f"{family} has a column {' and '.join(sorted(taken))} of its own; rename it before routing")
        frames = self._frames(events.sparkSession)
        found = [lookup.matches(events) for lookup in frames.lookups(family)]
        listed = union_all(found) if found else events.where(F.lit(False)).withColumn(SUBSCRIPTION, _no_number())
        columns = [frames.subscriber(F.col(SUBSCRIPTION)).alias(SUBSCRIBER), F.col(SUBSCRIPTION)]
        return listed.select(*columns, *map(F.col, events.columns))

    def count(self, events: DataFrame, family: str) -> DataFrame:
        """The number of matches of a family's events, as one row with the column `matches`."""
        found = [lookup.count(events) for lookup in self._frames(events.sparkSession).lookups(family)]
        if not found:
            return events.sparkSession.createDataFrame([(0,)], f"{MATCHES} bigint")
        return union_all(found).agg(F.sum(MATCHES).alias(MATCHES))

    def counts(self, events: DataFrame, family: str) -> DataFrame:
        """The number of matches of each subscription: `subscription`, `matches`; those without matches have no row."""
        found = [lookup.counts(events) for lookup in self._frames(events.sparkSession).lookups(family)]
        if not found:
            return events.sparkSession.createDataFrame([], f"{SUBSCRIPTION} int, {MATCHES} bigint")
        return (
            found[0] if len(found) == 1 else union_all(found).groupBy(SUBSCRIPTION).agg(F.sum(MATCHES).alias(MATCHES))
        )

    def explain(self) -> str:
        """Text that says how subscriptions are found in each family, and what is read and broadcast."""
        void = sum(profile < 0 for profile in self._decomposed.profile_of)
        asked, by = format_count(len(self), "subscription"), format_count(len(set(self.subscribers)), "subscriber")
        lines = [f"{asked} of {by}"]
        lines += [f"  {void:,} contradict themselves and match nothing"] if void else []
        for family, plans in self._plans.items():
            lines += [f"{family}: {format_count(len(plans), 'pass', 'passes')} over its events"]
            lines += [f"  {line}" for each in plans for line in describe_plan(each, self._decomposed.templates)]
        return "\n".join(lines)

    def release(self) -> None:
        """Release the memory of cached tables; they are made again when needed."""
        for frames in self._sessions.values():
            frames.release()
        self._sessions = {}

    def _frames(self, session: SparkSession) -> "_Frames":
        if id(session) not in self._sessions:
            self._sessions = {id(session): _Frames(session, self)}
        return self._sessions[id(session)]


def _no_number() -> Column:
    return F.lit(None).cast("int")


class _Frames:
    """The tables of a plan as frames of one session, each made when it is first needed."""

    def __init__(self, session: SparkSession, plan: RoutePlan) -> None:
        self._session, self._plan = session, plan
        self._lookups: dict[str, list[Lookup]] = {}
        self._residuals = ResidualCompiler(plan._decomposed.templates)
        self._subscribers: DataFrame | None = None

    def lookups(self, family: str) -> list[Lookup]:
        """The lookups of a family."""
        if family not in self._lookups:
            plans, templates = self._plan._plans.get(family, ()), self._plan._decomposed.templates
            frame = self._session.createDataFrame
            self._lookups[family] = [Lookup(each, templates, self._residuals, frame) for each in plans]
        return self._lookups[family]

    def release(self) -> None:
        """Release the memory of cached tables."""
        for lookups in self._lookups.values():
            for lookup in lookups:
                lookup.release()

    def subscriber(self, subscription: Column) -> Column:
        """The subscriber of a subscription, from one broadcast list; Spark drops it if the column is not used."""
        if self._subscribers is None:
            names = pa.array([list(self._plan.subscribers)], pa.list_(pa.string()))
            self._subscribers = self._session.createDataFrame(pa.table({SUBSCRIBER: names}))
        return F.get(self._subscribers.scalar(), subscription)
