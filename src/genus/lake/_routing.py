"""`Route`: very many subscriptions matched against a lake at once, in batch; `to_inboxes` keeps what came of it."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from genus.errors import GenusError
from genus.filters import AllOf, Subscription
from genus.lake._inboxes import Inboxes
from genus.lake._increments import Followed
from genus.lake._route import Routed, RoutePlan, plan_routes, read_subscriptions
from genus.lake._tables.columns import COMMON, SUBSCRIBER, SUBSCRIPTION
from genus.lake._tables.lake_catalog import Terms, family_of
from genus.lake._tables.ledger import State

if TYPE_CHECKING:
    from genus.lake._lake import Lake

Given: TypeAlias = Any
"""Subscriptions: a list of `Routed`, of (subscriber, subscription) or of subscriptions; a mapping from subscribers to
one or several; a text file; a table with columns subscriber and subscription; or a function that gives any of these."""


class Subscriptions:
    """Subscriptions as they are given, read again when asked: a file may have changed since."""

    def __init__(self, given: Given, lake: "Lake") -> None:
        self._given = os.path.abspath(given) if isinstance(given, str | os.PathLike) else given
        self.lake = lake
        self._known: tuple[object, list[Routed]] | None = None
        self.problem: str | None = None
        """Why the list that was read before is still used: the present one cannot be read."""

    def now(self) -> list[Routed]:
        """The subscriptions by now: the same list as before if nothing changed, or if what is there cannot be read."""
        sign = self._sign()
        if self._known is None or sign is None or self._known[0] != sign:
            try:
                self._known, self.problem = (sign, self._read()), None
            except (GenusError, OSError) as problem:
                if self._known is None:
                    raise
                self.problem = str(problem)
        return self._known[1]

    def _sign(self) -> object:
        """What tells that nothing changed; None if it cannot be told."""
        if isinstance(self._given, str | os.PathLike) and os.path.exists(self._given):
            status = os.stat(self._given)
            return status.st_mtime_ns, status.st_size, status.st_ino
        return None if callable(self._given) or isinstance(self._given, DataFrame) else "given"

    def _read(self) -> list[Routed]:
        given = self._given() if callable(self._given) else self._given
        if isinstance(given, str | os.PathLike | DataFrame):
            return read_subscriptions(given, self.lake.catalog)
        return listed(given, Terms(self.lake.catalog))


def listed(given: Any, known: Terms) -> list[Routed]:
    """Subscriptions that were given in Python; one without a subscriber is its own, by its text."""
    if isinstance(given, Mapping):
        several = {name: [what] if _is_one(what) else what for name, what in given.items()}
        return [Routed(name, known(what)) for name, found in several.items() for what in found]
    return [_routed(each, known) for each in ([given] if _is_one(given) else given)]


def _is_one(given: Any) -> bool:
    return isinstance(given, str | Subscription | AllOf | type | Routed)


def _routed(given: Any, known: Terms) -> Routed:
    match given:
        case Routed(subscriber, wanted):
            found = known(wanted)
            return given if found is wanted else Routed(subscriber, found)
        case (str(subscriber), what):
            return Routed(subscriber, known(what))
    subscription = known(given)
    return Routed(str(subscription), subscription)


class _Planned(NamedTuple):
    """What a plan was made of, and the plan."""

    shapes: int
    wanted: Sequence[Routed]
    texts: list[str]
    plan: RoutePlan


class Route:
    """Subscriptions and the events of a lake that match them; nothing is computed until it is asked for."""

    def __init__(self, lake: "Lake", subscriptions: Given) -> None:
        self.lake = lake
        self.subscriptions = Subscriptions(subscriptions, lake)
        self._planned: _Planned | None = None

    def plan(self, state: State | None = None) -> RoutePlan:
        """How they are matched by now; made again only when shapes or subscriptions are new."""
        shapes, wanted = (state or self.lake.state()).shapes, self.subscriptions.now()
        known = self._planned
        if known is not None and known.shapes == len(shapes) and known.wanted is wanted:
            return known.plan
        if known is not None:
            known.plan.release()
        plan = plan_routes(wanted, list(shapes.values()), self.lake.catalog)
        self._planned = _Planned(len(shapes), wanted, [str(routed.subscription) for routed in wanted], plan)
        return plan

    def texts(self) -> list[str]:
        """The subscriptions of the last plan, in its order: those that are given may have changed since."""
        return self._planned.texts if self._planned else []

    def frame(self) -> DataFrame:
        """Subscriber, subscription (its place in the list) and the columns that events of all families have."""
        return self._over_families(
            lambda plan, events, family: plan.matches(events, family).select(SUBSCRIBER, SUBSCRIPTION, *COMMON)
        )

    def events(self, what: type | str) -> DataFrame:
        """Subscriber, subscription and all columns of the events of one family, which any type of it names."""
        state, family = self.lake.state(), family_of(what, self.lake.catalog)
        return self.plan(state).matches(self.lake.events(family, state.table(family)), family)

    def count(self) -> int:
        """How many matches there are, without making them where types and attributes decide alone."""
        counted = self._over_families(RoutePlan.count).toArrow().column(0)
        return sum(number or 0 for number in counted.to_pylist())

    def counts(self) -> DataFrame:
        """How many events each subscription matches: subscription and matches, those with none left out."""
        every = self._over_families(RoutePlan.counts)
        return every.groupBy(SUBSCRIPTION).agg(F.sum("matches").alias("matches"))

    def _over_families(self, ask: Callable[[RoutePlan, DataFrame, str], DataFrame]) -> DataFrame:
        """The answers of all families, of one version of the lake."""
        state = self.lake.state()
        plan = self.plan(state)
        families = plan.families or ("Event",)
        answers = [ask(plan, self.lake.events(family, state.table(family)), family) for family in families]
        return reduce(DataFrame.unionByName, answers)

    def to_inboxes(self, path: str | os.PathLike[str]) -> Followed:
        """Deliver to inboxes what they have not got yet: all events the first time, and then what came in since."""
        return Inboxes.at(self.lake, path).deliver(self)

    def explain(self) -> str:
        """How the subscriptions are matched, in plain words."""
        return self.plan().explain()
