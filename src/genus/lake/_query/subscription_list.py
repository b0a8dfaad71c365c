"""Lists of subscriptions for routing: from Python objects, lines of text, a file, a table or a function."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from genus.catalog import Catalog
from genus.errors import GenusError, LakeError, SubscriptionError
from genus.filters import Subscription, read_subscriptions
from genus.filters.types import AllOf
from genus.lake._jobs import job_description
from genus.lake._tables.commits import SUBSCRIBER, SUBSCRIPTION
from genus.lake._tables.lake_catalog import SubscriptionResolver
from genus.lake._tables.lake_tables import LakeTables

SubscriptionSource: TypeAlias = Any
"""Subscriptions as `Lake.route` takes them: a list of `RouteEntry`, of (subscriber, subscription) or of subscriptions;
a mapping from subscribers to one or several subscriptions; a text file; a table with columns subscriber and
subscription; or a function that returns any of these."""

MAX_NAMED = 3
"""How many entries that are set aside a message names."""
Given = TypeVar("Given")
SINCE = "since"
_SINCE = re.compile(r"(.*\S)\s+since\s+(\S+)")
"""A subscriber and a day in a line of a file."""


class RouteEntry(msgspec.Struct, frozen=True):
    """A subscription and the name of its subscriber.

    >>> from genus import Event, Subscription
    >>> class Tide(Event):
    ...     level: float
    >>> RouteEntry("harbour", Subscription(Tide, where="level > 3")).subscription
    Subscription('Tide where level > 3.0')
    """

    subscriber: str
    subscription: Subscription
    since: datetime | None = None
    """Where matches are delivered to inboxes that have had deliveries before: the time, with a time zone, from which on
    events that are in the lake already are delivered too. None: new events only."""

    def __post_init__(self) -> None:
        if self.since is not None and self.since.tzinfo is None:
            raise LakeError(f"since={self.since} has no time zone; give an aware datetime, such as datetime.now(UTC)")


class EntryList(NamedTuple):
    """Subscriptions that were read, and the problems of those that were set aside."""

    entries: list[RouteEntry]
    refused: list[str]

    @property
    def problem(self) -> str | None:
        """Which entries are not used, and why: the first few, and the number of the others."""
        if not self.refused:
            return None
        several = len(self.refused) > MAX_NAMED
        more = f"; and {len(self.refused) - MAX_NAMED} more" if several else ""
        of = f"{len(self.refused)} of {len(self.refused) + len(self.entries)} subscriptions"
        return f"{of} not used: {'; '.join(self.refused[:MAX_NAMED])}{more}"


class SubscriptionList:
    """A list of subscriptions that is read again when its source, or the catalog, may have changed.

    An entry of a file, a table or a function's result that is not valid is set aside, and the others are used; it is
    tried again when the list is read again. Entries that are given as Python objects must all be valid.
    """

    def __init__(self, source: SubscriptionSource, lake: LakeTables) -> None:
        self._source = os.path.abspath(source) if isinstance(source, str | os.PathLike) else source
        self._lake = lake
        self._revision_read: object = None
        self._found: EntryList | None = None
        """The last list that could be read."""
        self.problem: str | None = None
        """Which entries of the present list are not used, or why the previous list is used instead of it."""

    def read(self) -> list[RouteEntry]:
        """The present list; the same object as before if nothing changed, or if the source cannot be read any more.

        LakeError if it cannot be read, or if all its entries are invalid, and there is no previous list.
        """
        catalog, before = self._lake.catalog, self._found
        revision = self._revision(catalog)
        if before is None or revision is None or self._revision_read != revision:
            try:
                self._found = self._read(catalog)
            except (GenusError, OSError) as problem:
                if before is None:
                    raise
                self.problem = str(problem)
                return before.entries
            self._revision_read = revision
            if before is not None and before.entries == self._found.entries:  # so that no plan is made again
                self._found = EntryList(before.entries, self._found.refused)
        assert self._found is not None
        self.problem = self._found.problem
        return self._found.entries

    def _revision(self, catalog: Catalog) -> object:
        """A value that is equal while source and catalog are unchanged; None if changes cannot be detected."""
        if isinstance(self._source, str | os.PathLike) and os.path.exists(self._source):
            status = os.stat(self._source)
            return catalog, status.st_mtime_ns, status.st_size, status.st_ino
        return None if callable(self._source) or isinstance(self._source, DataFrame) else (catalog, "given")

    def _read(self, catalog: Catalog) -> EntryList:
        given = self._source() if callable(self._source) else self._source
        if isinstance(given, str | os.PathLike | DataFrame):
            return read_entries(given, catalog)
        resolver = SubscriptionResolver(catalog)
        if callable(self._source):
            named = ((_name_of(number, each), each) for number, each in enumerate(_each(given), 1))
            return _read_each(named, partial(_entry, resolver))
        return EntryList([_entry(resolver, each) for each in _each(given)], [])


def _each(given: Any) -> Iterable[Any]:
    if isinstance(given, Mapping):
        several = {name: [what] if _is_single(what) else what for name, what in given.items()}
        return ((name, what) for name, found in several.items() for what in found)
    listed: Iterable[Any] = [given] if _is_single(given) else given
    return listed


def _is_single(given: Any) -> bool:
    return isinstance(given, str | Subscription | AllOf | type | RouteEntry)


def _entry(resolver: SubscriptionResolver, given: Any) -> RouteEntry:
    """Return an entry; without a subscriber, the text of the subscription is used."""
    match given:
        case RouteEntry(subscriber, wanted):
            found = resolver.resolve(wanted)
            return given if found is wanted else RouteEntry(subscriber, found, given.since)
        case (str(subscriber), what):
            return RouteEntry(subscriber, resolver.resolve(what))
    subscription = resolver.resolve(given)
    return RouteEntry(str(subscription), subscription)


def _name_of(number: int, each: Any) -> str:
    """Return what an entry that a function returned is called in messages."""
    subscriber = each.subscriber if isinstance(each, RouteEntry) else each[0] if isinstance(each, tuple) else None
    return f"entry {number}" if subscriber is None else f"entry {number} ({subscriber})"


def _read_each(
    named: Iterable[tuple[str, Given]], read: Callable[[Given], RouteEntry], refused: Iterable[str] = ()
) -> EntryList:
    """Read entries one by one, each with what it is called in messages; LakeError if there are some and all invalid."""
    found = EntryList([], list(refused))
    for where, each in named:
        try:
            found.entries.append(read(each))
        except GenusError as problem:
            found.refused.append(f"{where}: {_first_line(problem)}")
    if found.refused and not found.entries:
        raise LakeError(f"no subscription is valid: {found.problem}")
    return found


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0]


# -- text and tables ---------------------------------------------------------------------------------------------------


def read_entries(source: str | os.PathLike[str] | DataFrame, catalog: Catalog) -> EntryList:
    """Read subscriptions from a text file or a table; types and attributes are those of the catalog.

    A table has the columns `subscriber` and `subscription`, and may have `since`: a timestamp, or a date or text, which
    is UTC if it has no offset. For files see `genus.filters.read_subscriptions`; the subscriber of a line may be
    followed by a day, `ann since 2026-05-01: Loop`, for `RouteEntry.since`. Lines and rows that are not valid are set
    aside. LakeError if all are, or if the source cannot be read.
    """
    parse = _cached_parser(catalog)
    if isinstance(source, DataFrame):
        rows = enumerate(_collect(source), 1)
        return _read_each(((f"row {number} ({row[0]})", row) for number, row in rows), partial(_read_row, parse))
    refused: list[str] = []
    try:
        lines = read_subscriptions(source, parse, lambda problem: refused.append(_first_line(problem)))
    except SubscriptionError as problem:
        raise LakeError(str(problem)) from problem
    return _read_each(((subscriber, (subscriber, found)) for subscriber, found in lines), _read_line, refused)


def _read_line(line: tuple[str, Subscription]) -> RouteEntry:
    """An entry for a line that may read `ann since 2026-05-01: Loop`."""
    subscriber, subscription = line
    found = _SINCE.fullmatch(subscriber)
    if found is None:
        return RouteEntry(subscriber, subscription)
    try:
        day = date.fromisoformat(found[2])
    except ValueError:
        raise SubscriptionError(f"since {found[2]!r} is not a day; write it like 2026-05-01") from None
    return RouteEntry(found[1], subscription, datetime(day.year, day.month, day.day, tzinfo=UTC))


def _cached_parser(catalog: Catalog) -> Callable[[str], Subscription]:
    """Return a parser that parses equal texts once; SubscriptionError for any text that is not valid."""
    resolver = SubscriptionResolver(catalog)

    @cache
    def parse(text: str) -> Subscription:
        try:
            return resolver.resolve(text)
        except SubscriptionError:
            raise
        except GenusError as problem:
            raise SubscriptionError(str(problem)) from problem

    return parse


def _collect(table: DataFrame) -> list[Row]:
    """Return the rows of a table; times are microseconds since 1970, or, if they may have no time zone, text."""
    if missing := [name for name in (SUBSCRIBER, SUBSCRIPTION) if name not in table.columns]:
        raise LakeError(f"a table of subscriptions needs the column {' and '.join(missing)}; it has {table.columns}")
    since = F.col(SINCE) if SINCE in table.columns else F.lit(None)
    is_instant = SINCE in table.columns and table.schema[SINCE].dataType == TimestampType()
    with job_description(table.sparkSession, "read a table of subscriptions"):
        text = F.unix_micros(since) if is_instant else since.cast("string")
        return table.select(SUBSCRIBER, SUBSCRIPTION, text).collect()


def _read_row(parse: Callable[[str], Subscription], row: Row) -> RouteEntry:
    subscriber, text, since = row
    if subscriber is None or text is None:
        raise SubscriptionError("subscriber and subscription must not be NULL")
    return RouteEntry(str(subscriber), parse(str(text)), _parse_since(since))


def _parse_since(since: int | str | None) -> datetime | None:
    """Return a time given as microseconds since 1970 or as text, which is UTC if it has no offset."""
    if since is None:
        return None
    if isinstance(since, int):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=since)
    try:
        time = datetime.fromisoformat(since.strip())
    except ValueError as problem:
        raise SubscriptionError(f"since {since!r} is not a time; write it like 2026-05-01T06:00:00Z") from problem
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
