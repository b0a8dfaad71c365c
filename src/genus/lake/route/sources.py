"""Where subscriptions come from: Python, lines of text, a file of them, or a table."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame

from genus.catalog import Catalog
from genus.errors import GenusError, LakeError
from genus.filters import Subscription
from genus.lake.columns import SUBSCRIBER, SUBSCRIPTION

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
