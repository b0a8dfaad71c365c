"""`Route`: the matches of very many subscriptions in a lake, as DataFrames, counts or deliveries to inboxes."""

import os
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from genus.errors import LakeError
from genus.lake._jobs import folder_name, job_description
from genus.lake._query.route_job import MATCHES, RouteJob
from genus.lake._query.route_plan import RoutePlan, plan_routes
from genus.lake._query.subscription_list import RouteEntry, SubscriptionList, SubscriptionSource
from genus.lake._stream.inboxes import Inboxes
from genus.lake._stream.increments import UpdateResult
from genus.lake._tables.commits import Part
from genus.lake._tables.lake_catalog import family_name
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.names import COMMON_COLUMNS, SUBSCRIPTION
from genus.lake._tables.state import LedgerState


class _CachedPlan(NamedTuple):
    """A plan and what it was made of."""

    shapes: int
    entries: Sequence[RouteEntry]
    plan: RoutePlan
    job: RouteJob


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

        Those of a file, a table or a function that are not valid are left out, and `problem` names them. LakeError if
        the list cannot be read or none is valid; if there was a valid one before, that is returned instead.
        """
        return self._list.read()

    @property
    def problem(self) -> str | None:
        """Which subscriptions are not used, and why; or why the previous list is used. None if all are used."""
        return self._list.problem

    def plan(self, state: LedgerState | None = None) -> RoutePlan:
        """The present plan; made again when the lake has new shapes or the subscriptions have changed."""
        shapes, entries = (state or self.lake.state()).shapes, self.subscriptions()
        known = self._cached
        if known is not None and known.shapes == len(shapes) and known.entries is entries:
            return known.plan
        plan = plan_routes(entries, shapes, self.lake.catalog)
        self._cached = _CachedPlan(len(shapes), entries, plan, RouteJob(self.lake, plan))
        return plan

    def texts(self) -> list[str]:
        """The subscriptions of the last plan as text, by number."""
        return [str(entry.subscription) for entry in self._cached.entries] if self._cached else []

    @property
    def job(self) -> RouteJob:
        """The job of the last plan."""
        assert self._cached is not None, "plan is called first"
        return self._cached.job

    def frame(self, columns: Sequence[str] | None = None) -> DataFrame:
        """All matches: subscriber, number of the subscription, and the columns that all families have.

        Args:
            columns: Only these of the columns that all families have; fewer are faster.
        """
        names = list(COMMON_COLUMNS if columns is None else columns)
        if unknown := [name for name in names if name not in COMMON_COLUMNS]:
            raise LakeError(f"not every family has a column {unknown[0]!r}; `events` gives the matches of one family")
        return self._over_families(lambda job, family, parts: job.matches(family, parts, names))

    def events(self, what: type | str, columns: Sequence[str] | None = None) -> DataFrame:
        """The matches in one family: subscriber, number of the subscription, and columns of the events.

        Args:
            what: Any type of the family, as a class or by name.
            columns: The columns of events to return; all by default, fewer are faster.
        """
        state, family = self.lake.state(), family_name(what, self.lake.catalog)
        return self._job(state).matches(family, state.table(family), columns)

    def count(self) -> int:
        """The number of matches; matches that type and attributes decide are counted without computing them."""
        state = self.lake.state()
        plan, job = self.plan(state), self._job(state)
        with job_description(self.lake.spark, f"count the matches of a route in {folder_name(self.lake.path)}"):
            return sum(job.count(family, state.table(family)) for family in plan.families)

    def counts(self) -> DataFrame:
        """The number of matches of each subscription: `subscription`, `matches`; those without matches have no row."""
        every = self._over_families(RouteJob.counts)
        return every.groupBy(SUBSCRIPTION).agg(F.sum(MATCHES).alias(MATCHES))

    def _job(self, state: LedgerState) -> RouteJob:
        self.plan(state)
        return self.job

    def _over_families(self, query: Callable[[RouteJob, str, Sequence[Part]], DataFrame]) -> DataFrame:
        """The union of a query over all families, for one version of the lake."""
        state = self.lake.state()
        plan, job = self.plan(state), self._job(state)
        answers = [query(job, family, state.table(family)) for family in plan.families or ("Event",)]
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
