"""`Route`: the matches of very many subscriptions in a lake, as DataFrames, counts or deliveries to inboxes."""

import os
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from genus.lake._query.route_plan import RoutePlan, plan_routes
from genus.lake._query.subscription_list import RouteEntry, SubscriptionList, SubscriptionSource
from genus.lake._stream.inboxes import Inboxes
from genus.lake._stream.increments import UpdateResult
from genus.lake._tables.columns import COMMON_COLUMNS, SUBSCRIBER, SUBSCRIPTION
from genus.lake._tables.lake_catalog import family_name
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.ledger import LedgerState


class _CachedPlan(NamedTuple):
    """A plan and what it was made of."""

    shapes: int
    entries: Sequence[RouteEntry]
    texts: list[str]
    plan: RoutePlan


class Route:
    """Many subscriptions and the events of a lake that match them; made by `Lake.route`.

    Nothing is computed until a method is called. A file or function that gives the subscriptions is read again at every
    call.
    """

    def __init__(self, lake: LakeTables, subscriptions: SubscriptionSource) -> None:
        self.lake = lake
        self._list = SubscriptionList(subscriptions, lake)
        self._cached: _CachedPlan | None = None

    def subscriptions(self) -> list[RouteEntry]:
        """The present subscriptions; the position in this list is a subscription's number.

        LakeError if they cannot be read; if they could be read before, the previous list is returned instead.
        """
        return self._list.read()

    @property
    def problem(self) -> str | None:
        """Why the previous list of subscriptions is used: the present one cannot be read. None if it can."""
        return self._list.problem

    def plan(self, state: LedgerState | None = None) -> RoutePlan:
        """The present plan; made again when the lake has new shapes or the subscriptions have changed."""
        shapes, entries = (state or self.lake.state()).shapes, self.subscriptions()
        known = self._cached
        if known is not None and known.shapes == len(shapes) and known.entries is entries:
            return known.plan
        if known is not None:
            known.plan.release()
        plan = plan_routes(entries, list(shapes.values()), self.lake.catalog)
        self._cached = _CachedPlan(len(shapes), entries, [str(entry.subscription) for entry in entries], plan)
        return plan

    def texts(self) -> list[str]:
        """The subscriptions of the last plan as text, by number."""
        return self._cached.texts if self._cached else []

    def frame(self) -> DataFrame:
        """All matches: subscriber, number of the subscription, and the columns that all families have."""
        return self._over_families(
            lambda plan, events, family: plan.matches(events, family).select(SUBSCRIBER, SUBSCRIPTION, *COMMON_COLUMNS)
        )

    def events(self, what: type | str) -> DataFrame:
        """The matches in one family: subscriber, number of the subscription, and all columns of the events.

        Args:
            what: Any type of the family, as a class or by name.
        """
        state, family = self.lake.state(), family_name(what, self.lake.catalog)
        return self.plan(state).matches(self.lake.events(family, state.table(family)), family)

    def count(self) -> int:
        """The number of matches; matches that type and attributes decide are counted without computing them."""
        counts = self._over_families(RoutePlan.count).toArrow().column(0)
        return sum(number or 0 for number in counts.to_pylist())

    def counts(self) -> DataFrame:
        """The number of matches of each subscription: `subscription`, `matches`; those without matches have no row."""
        every = self._over_families(RoutePlan.counts)
        return every.groupBy(SUBSCRIPTION).agg(F.sum("matches").alias("matches"))

    def _over_families(self, query: Callable[[RoutePlan, DataFrame, str], DataFrame]) -> DataFrame:
        """The union of a query over all families, for one version of the lake."""
        state = self.lake.state()
        plan = self.plan(state)
        families = plan.families or ("Event",)
        answers = [query(plan, self.lake.events(family, state.table(family)), family) for family in families]
        return reduce(DataFrame.unionByName, answers)

    def to_inboxes(self, path: str | os.PathLike[str]) -> UpdateResult:
        """Deliver matches to the inboxes at a path: of all events the first time, later of new events only.

        The inboxes are created if there are none. A delivery is one commit, so every match is delivered once.
        LakeError if the inboxes belong to another lake.
        """
        return Inboxes.at(self.lake, path).deliver(self)

    def explain(self) -> str:
        """Text that says how the subscriptions are matched; no events are read."""
        return self.plan().explain()
