"""Lists of subscriptions for routing: from Python objects, lines of text, a file, a table or a function."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec
from pyspark.sql import DataFrame

from genus.catalog import Catalog
from genus.errors import GenusError, LakeError, SubscriptionError
from genus.filters import AllOf, Subscription, read_subscriptions
from genus.lake._tables.columns import SUBSCRIBER, SUBSCRIPTION
from genus.lake._tables.lake_catalog import SubscriptionResolver
from genus.lake._tables.lake_tables import LakeTables

SubscriptionSource: TypeAlias = Any
"""Subscriptions as `Lake.route` takes them: a list of `RouteEntry`, of (subscriber, subscription) or of subscriptions;
a mapping from subscribers to one or several subscriptions; a text file; a table with columns subscriber and
subscription; or a function that returns any of these."""

_WORDS = re.compile(r"[^\W\d][\w.]*")


class RouteEntry(msgspec.Struct, frozen=True):
    """A subscription and the name of its subscriber.

    >>> from genus import Event, Subscription
    >>> class Tide(Event):
    ...     level: float
    >>> RouteEntry("harbour", Subscription(Tide, where="level > 3"))
    RouteEntry(subscriber='harbour', subscription=Subscription('Tide where level > 3.0'))
    """

    subscriber: str
    subscription: Subscription


class SubscriptionList:
    """A list of subscriptions that is read again when its source may have changed."""

    def __init__(self, source: SubscriptionSource, lake: LakeTables) -> None:
        self._source = os.path.abspath(source) if isinstance(source, str | os.PathLike) else source
        self._lake = lake
        self._known: tuple[object, list[RouteEntry]] | None = None
        self.problem: str | None = None
        """Why the previous list is still used: the present one cannot be read."""

    def read(self) -> list[RouteEntry]:
        """The present list; the same object as before if nothing changed, or if the source cannot be read any more."""
        revision = self._revision()
        if self._known is None or revision is None or self._known[0] != revision:
            try:
                self._known, self.problem = (revision, self._read()), None
            except (GenusError, OSError) as problem:
                if self._known is None:
                    raise
                self.problem = str(problem)
        else:
            self.problem = None  # the file is the one that was read, even if it was another one in between
        return self._known[1]

    def _revision(self) -> object:
        """A value that is equal while the source is unchanged; None if changes cannot be detected."""
        if isinstance(self._source, str | os.PathLike) and os.path.exists(self._source):
            status = os.stat(self._source)
            return status.st_mtime_ns, status.st_size, status.st_ino
        return None if callable(self._source) or isinstance(self._source, DataFrame) else "given"

    def _read(self) -> list[RouteEntry]:
        given = self._source() if callable(self._source) else self._source
        if isinstance(given, str | os.PathLike | DataFrame):
            return read_entries(given, self._lake.catalog)
        return list_entries(given, SubscriptionResolver(self._lake.catalog))


def list_entries(given: Any, resolver: SubscriptionResolver) -> list[RouteEntry]:
    """Entries for subscriptions given in Python; without a subscriber, the text of the subscription is used."""
    if isinstance(given, Mapping):
        several = {name: [what] if _is_single(what) else what for name, what in given.items()}
        return [RouteEntry(name, resolver.resolve(what)) for name, found in several.items() for what in found]
    return [_entry(each, resolver) for each in ([given] if _is_single(given) else given)]


def _is_single(given: Any) -> bool:
    return isinstance(given, str | Subscription | AllOf | type | RouteEntry)


def _entry(given: Any, resolver: SubscriptionResolver) -> RouteEntry:
    match given:
        case RouteEntry(subscriber, wanted):
            found = resolver.resolve(wanted)
            return given if found is wanted else RouteEntry(subscriber, found)
        case (str(subscriber), what):
            return RouteEntry(subscriber, resolver.resolve(what))
    subscription = resolver.resolve(given)
    return RouteEntry(str(subscription), subscription)


# -- text and tables ---------------------------------------------------------------------------------------------------


def read_entries(source: str | os.PathLike[str] | DataFrame, catalog: Catalog) -> list[RouteEntry]:
    """Read subscriptions from a text file or a table; types are looked up in the catalog.

    A table has the columns `subscriber` and `subscription`; for files see `genus.filters.read_subscriptions`. LakeError
    names the line or row that cannot be read.
    """
    parse = _cached_parser(catalog)
    if isinstance(source, DataFrame):
        return [_parse_entry(subscriber, text, where, parse) for subscriber, text, where in _rows(source)]
    try:
        return [RouteEntry(subscriber, found) for subscriber, found in read_subscriptions(source, parse)]
    except SubscriptionError as problem:
        raise LakeError(str(problem)) from problem


def _cached_parser(catalog: Catalog) -> Callable[[str], Subscription]:
    """A parser that parses equal texts once, and looks only at the types that a text names."""
    types = {name: catalog.declare(name) for name in catalog.types}

    @cache
    def parse(text: str) -> Subscription:
        named = [types[word] for word in _WORDS.findall(text) if word in types]
        return Subscription.parse(text, named or types.values())

    return parse


def _rows(table: DataFrame) -> Iterator[tuple[str, str, str]]:
    if missing := [name for name in (SUBSCRIBER, SUBSCRIPTION) if name not in table.columns]:
        raise LakeError(f"a table of subscriptions needs the column {' and '.join(missing)}; it has {table.columns}")
    for number, (subscriber, text) in enumerate(table.select(SUBSCRIBER, SUBSCRIPTION).collect(), 1):
        if subscriber is None or text is None:
            raise LakeError(f"row {number}: subscriber and subscription must not be NULL")
        yield str(subscriber), str(text), f"row {number} ({subscriber})"


def _parse_entry(subscriber: str, text: str, where: str, parse: Callable[[str], Subscription]) -> RouteEntry:
    try:
        return RouteEntry(subscriber, parse(text))
    except GenusError as problem:
        raise LakeError(f"{where}: {problem}") from problem
