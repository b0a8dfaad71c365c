"""The plan of a route: subscriptions, taken apart and matched with shapes, ready to be looked up by events."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec
import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from genus.catalog import Catalog
from genus.errors import GenusError, LakeError, NotRegistered
from genus.filters import Subscription
from genus.lake._route.decompose import Anatomy, take_apart
from genus.lake._route.lookup import MATCHES, Lookup, union_of
from genus.lake._route.lookup_plan import Pass, counted, described, passes_for
from genus.lake._route.shape_match import accepted, units_of
from genus.lake._route.templates import Residuals
from genus.lake._tables.columns import SUBSCRIBER, SUBSCRIPTION, Shape

# Where subscriptions come from: Python, lines of text, a file of them, or a table.


"""The columns of a table of subscriptions, and those that routing puts before the event's own."""

_WORDS = re.compile(r"[^\W\d][\w.]*")


class Routed(msgspec.Struct, frozen=True):
    """A subscription, and whose it is."""

    subscriber: str
    subscription: Subscription


Given = str | os.PathLike[str] | Iterable[str] | DataFrame


def read_subscriptions(source: Given, catalog: Catalog) -> list[Routed]:
    """The subscriptions of a text file, of lines or of a table; types are those of the catalog, imported or not.

    A line reads `subscriber: Loop has place where speed > 30`. Empty lines and those that begin with # say nothing. A
    table has the columns `subscriber` and `subscription`. LakeError names the line or row that cannot be read.

    >>> from genus import Event
    >>> class Tide(Event):
    ...     level: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Tide)
    >>> [str(one.subscription) for one in read_subscriptions(["# the harbour's", "ann: Tide where level > 3"], catalog)]
    ['Tide where level > 3.0']
    """
    read = _reader(catalog)
    if isinstance(source, DataFrame):
        return [_made(subscriber, text, where, read) for subscriber, text, where in _rows(source)]
    named, lines = _lines(source)
    return [_made(*_cut(line, f"{named} {number}"), f"{named} {number}", read) for number, line in _said(lines)]


def _reader(catalog: Catalog) -> Callable[[str], Subscription]:
    """Reads a text once, however many subscribers say the same; only the types it names are looked at."""
    types = {name: catalog.declare(name) for name in catalog.types}

    @cache
    def read(text: str) -> Subscription:
        named = [types[word] for word in _WORDS.findall(text) if word in types]
        return Subscription.parse(text, named or types.values())

    return read


def _lines(source: str | os.PathLike[str] | Iterable[str]) -> tuple[str, list[str]]:
    """What the lines are called in messages, and the lines."""
    if not isinstance(source, str | os.PathLike):
        return "line", list(source)
    try:
        return f"{os.fspath(source)}, line", Path(source).read_text("utf-8").splitlines()
    except OSError as problem:
        raise LakeError(f"cannot read {os.fspath(source)}: {problem.strerror or problem}") from problem
    except UnicodeDecodeError as problem:
        raise LakeError(f"{os.fspath(source)} is no text: {problem}") from problem


def _said(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    stripped = ((number, line.strip()) for number, line in enumerate(lines, 1))
    return ((number, line) for number, line in stripped if line and not line.startswith("#"))


def _cut(line: str, where: str) -> tuple[str, str]:
    subscriber, colon, text = line.partition(":")
    if not colon or not subscriber.strip():
        raise LakeError(f"{where}: {line!r} names no subscriber; write `subscriber: subscription`")
    return subscriber.strip(), text.strip()


def _rows(table: DataFrame) -> Iterator[tuple[str, str, str]]:
    if missing := [name for name in (SUBSCRIBER, SUBSCRIPTION) if name not in table.columns]:
        raise LakeError(f"a table of subscriptions needs the column {' and '.join(missing)}; it has {table.columns}")
    for number, (subscriber, text) in enumerate(table.select(SUBSCRIBER, SUBSCRIPTION).collect(), 1):
        if subscriber is None or text is None:
            raise LakeError(f"row {number}: subscriber and subscription must not be NULL")
        yield str(subscriber), str(text), f"row {number} ({subscriber})"


def _made(subscriber: str, text: str, where: str, read: Callable[[str], Subscription]) -> Routed:
    try:
        return Routed(subscriber, read(text))
    except GenusError as problem:
        raise LakeError(f"{where}: {problem}") from problem


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
