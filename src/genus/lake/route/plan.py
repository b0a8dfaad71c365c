"""The plan of a route: subscriptions, taken apart and matched with shapes, ready to be looked up by events."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from genus.catalog import Catalog
from genus.errors import LakeError, NotRegistered
from genus.lake.columns import SUBSCRIBER, SUBSCRIPTION
from genus.lake.route.explain import counted, described
from genus.lake.route.lookup import MATCHES, Lookup, union_of
from genus.lake.route.parts import Anatomy, take_apart
from genus.lake.route.passes import Pass, passes_for
from genus.lake.route.sources import Routed
from genus.lake.route.templates import Residuals
from genus.lake.route.units import accepted, units_of
from genus.lake.shapes import Shape


def plan_routes(subscriptions: Sequence[Routed], shapes: Iterable[Shape], catalog: Catalog) -> "RoutePlan":
    """Plan how events of some shapes find their subscriptions; a subscription's number is its position.

    Runs on the driver and needs no session. NotRegistered names a type that the catalog does not know.
    """
    _check_types(subscriptions, catalog)
    anatomy = take_apart([routed.subscription for routed in subscriptions])
    families: dict[str, list[Shape]] = {}
    for shape in shapes:
        families.setdefault(shape.family, []).append(shape)
    passes = {
        family: tuple(
            found
            for units in units_of(listed, catalog.vector(family))
            for found in passes_for(anatomy, units, accepted(anatomy.profiles, units, catalog))
        )
        for family, listed in sorted(families.items())
    }
    subscribers = tuple(routed.subscriber for routed in subscriptions)
    return RoutePlan(subscribers, anatomy, {family: found for family, found in passes.items() if found})


def _check_types(subscriptions: Sequence[Routed], catalog: Catalog) -> None:
    for cls in {cls for routed in subscriptions for cls in routed.subscription.types}:
        try:
            catalog.code(cls)
        except NotRegistered as problem:
            asking = next(routed for routed in subscriptions if cls in routed.subscription.types)
            raise NotRegistered(f"{asking.subscriber}: {asking.subscription}: {problem}") from None


class RoutePlan:
    """Which events match which subscriptions, for the families of a lake; made by `plan_routes`.

    >>> from genus import Event, Subscription, this
    >>> class Buoy(Event):
    ...     height: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Buoy)
    >>> shape = Shape("Buoy", "Buoy", str(catalog.code(Buoy)), "20")
    >>> high = [Routed("ann", Subscription(Buoy, where=this.height > limit)) for limit in range(20)]
    >>> print(plan_routes(high, [shape], catalog).explain())
    20 subscriptions of 1 subscriber
    Buoy: 1 pass over its events
      20 subscriptions found also by the range of height: 1 shape, 3 lists of subscriptions to look up
        reads _shape, height; sends 1 kB to every worker
    """

    def __init__(self, subscribers: tuple[str, ...], anatomy: Anatomy, passes: dict[str, tuple[Pass, ...]]) -> None:
        self.subscribers = subscribers
        """Whose each subscription is, by its number."""
        self._anatomy, self._passes = anatomy, passes
        self._sessions: dict[int, _Frames] = {}

    def __len__(self) -> int:
        return len(self.subscribers)

    @property
    def families(self) -> tuple[str, ...]:
        """The families in which any subscription can match."""
        return tuple(self._passes)

    def matches(self, events: DataFrame, family: str) -> DataFrame:
        """The events of a family, once for each subscription that they match.

        The columns are `subscriber`, `subscription` (its number) and then those of the events.
        """
        if taken := {SUBSCRIBER, SUBSCRIPTION} & {name.lower() for name in events.columns}:
            raise LakeError(f"{family} has a column {' and '.join(sorted(taken))} of its own; rename it before routing")
        frames = self._frames(events.sparkSession)
        found = [lookup.matches(events) for lookup in frames.lookups(family)]
        listed = union_of(found) if found else events.where(F.lit(False)).withColumn(SUBSCRIPTION, _no_number())
        columns = [frames.subscriber(F.col(SUBSCRIPTION)).alias(SUBSCRIBER), F.col(SUBSCRIPTION)]
        return listed.select(*columns, *map(F.col, events.columns))

    def count(self, events: DataFrame, family: str) -> DataFrame:
        """How many matches the events of a family have, as one row with the column `matches`."""
        found = [lookup.count(events) for lookup in self._frames(events.sparkSession).lookups(family)]
        if not found:
            return events.sparkSession.createDataFrame([(0,)], f"{MATCHES} bigint")
        return union_of(found).agg(F.sum(MATCHES).alias(MATCHES))

    def counts(self, events: DataFrame, family: str) -> DataFrame:
        """How many events of a family each subscription matches: `subscription`, `matches`. No match, no row."""
        found = [lookup.counts(events) for lookup in self._frames(events.sparkSession).lookups(family)]
        if not found:
            return events.sparkSession.createDataFrame([], f"{SUBSCRIPTION} int, {MATCHES} bigint")
        return found[0] if len(found) == 1 else union_of(found).groupBy(SUBSCRIPTION).agg(F.sum(MATCHES).alias(MATCHES))

    def explain(self) -> str:
        """The plan in plain words: how subscriptions are found in each family, and what that reads and broadcasts."""
        void = sum(profile < 0 for profile in self._anatomy.profile_of)
        asked, by = counted(len(self), "subscription"), counted(len(set(self.subscribers)), "subscriber")
        lines = [f"{asked} of {by}"]
        lines += [f"  {void:,} contradict themselves and match nothing"] if void else []
        for family, passes in self._passes.items():
            lines += [f"{family}: {counted(len(passes), 'pass', 'passes')} over its events"]
            lines += [f"  {line}" for each in passes for line in described(each, self._anatomy.templates)]
        return "\n".join(lines)

    def release(self) -> None:
        """Give back the memory that tables take in sessions; they are made again if they are needed again."""
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
    """State: the tables of a plan as frames of one session, each made when it is first needed."""

    def __init__(self, session: SparkSession, plan: RoutePlan) -> None:
        self._session, self._plan = session, plan
        self._lookups: dict[str, list[Lookup]] = {}
        self._residuals = Residuals(plan._anatomy.templates)
        self._subscribers: DataFrame | None = None

    def lookups(self, family: str) -> list[Lookup]:
        """The passes of a family, ready to run."""
        if family not in self._lookups:
            passes, templates = self._plan._passes.get(family, ()), self._plan._anatomy.templates
            frame = self._session.createDataFrame
            self._lookups[family] = [Lookup(each, templates, self._residuals, frame) for each in passes]
        return self._lookups[family]

    def release(self) -> None:
        """Let go of tables that are kept in memory."""
        for lookups in self._lookups.values():
            for lookup in lookups:
                lookup.release()

    def subscriber(self, subscription: Column) -> Column:
        """Whose a subscription is: one list for all, which costs nothing where it is not asked for."""
        if self._subscribers is None:
            names = pa.array([list(self._plan.subscribers)], pa.list_(pa.string()))
            self._subscribers = self._session.createDataFrame(pa.table({SUBSCRIBER: names}))
        return F.get(self._subscribers.scalar(), subscription)
