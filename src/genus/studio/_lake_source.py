"""A lake as a source: its tables, its last commits, who follows it, and its events when they are asked for.

A thread looks at the ledger once a second, and reads what is new; without a new commit, that is one small file. Spark
is not needed. A lake that cannot be read is tried again until it can be.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from genus.catalog import Catalog
from genus.errors import GenusError, LakeError
from genus.filters import Subscription, all_of, this
from genus.studio._figures import Rates, counted, float32, number_of, three_digits
from genus.studio._history import Piece
from genus.studio._plot import Floats, PlotSeries
from genus.studio.types import LakeCommitRow, LakeFollowerRow, LakeTableRow, Row, SourceRow, Tables

if TYPE_CHECKING:
    from genus.lake import LakeReader
    from genus.lake.types import (
        FollowerStatus,
        HistoryEntry,
        LakeSummary,
        LocalEvents,
        TableStats,
    )

LOOK_S = 1.0
DAY_MS = 86_400_000.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_COMMITS = 100
MAX_RECORDERS = 50
DEAD_LETTERS = "dead letters"
_ALL = ""
_KINDS: Mapping[str, Any] = {"inboxes": "inbox", "derived": "derived", "function": "stream"}


class LakeSource:
    """State: a lake, and what was read of it last.

    Args:
        path: The folder of the lake.
        name: Its name on the page.
        followers: Folders of inboxes and derived tables that are neither in the lake's folder nor beside it.
        clock: Replaces `time.monotonic`.
        threaded: Whether a thread looks at the lake; else `look` does.

    Raises:
        LakeError: There is no folder at the path, or it is in a file system that needs Spark.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        followers: Sequence[str | os.PathLike[str]] = (),
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
    ) -> None:
        from genus.lake import LakeReader

        self.name = name
        self._path, self._elsewhere, self._clock = os.fspath(path), tuple(followers), clock
        if not LakeReader.can_open(self._path):
            raise LakeError(f"{self._path} is neither a local folder nor in s3://; without Spark, it cannot be read")
        if "://" not in self._path and not Path(self._path).is_dir():
            raise LakeError(f"{self._path} is no folder; `genus lake init LAKE -t TYPES` creates a lake")
        self._reader: LakeReader | None = None
        self._lock = threading.Lock()
        """Guards the reader: who looks, and who asks."""
        self._problem = "is being read"
        self._named = ""
        """The name in the rows; Studio may have given it another one since then."""
        self._summary: LakeSummary | None = None
        self._tables: Mapping[str, LakeTableRow] = {}
        self._commits: Mapping[str, LakeCommitRow] = {}
        self._followers: Mapping[str, LakeFollowerRow] = {}
        self._types: tuple[type, ...] = ()
        self._catalog: Catalog | None = None
        self._counts: Mapping[str, int] = {}
        self._rates = Rates()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name=f"genus-studio {name}", daemon=True)
            self._thread.start()

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        """Return the present rows of tables; nothing is read here."""
        events = sum(row.events for row in self._tables.values() if row.table != DEAD_LETTERS)
        if self._summary is not None:
            self._rates.note(_ALL, events, self._clock())
        found: dict[str, Mapping[str, Row]] = {
            "sources": {self.name: self._source_row(events)},
        }
        if self._named == self.name:
            found |= {
                "lake_tables": self._tables,
                "lake_commits": self._commits,
                "lake_followers": self._followers,
            }
        return {table: rows for table, rows in found.items() if table in wanted}

    def types(self) -> Collection[type]:
        """Return the types of the lake's catalog: classes of this program where they fit, else generated ones."""
        return self._types

    def counts(self) -> Mapping[str, int]:
        return self._counts

    def ask(self, subscription: Subscription, most: int) -> Sequence[Mapping[str, Any]]:
        """The first events that match, each as its values by name, with `type`; those that are absent are left out.

        LakeError if the lake cannot be read.
        """
        return _first(self._present_reader().read(subscription, subtypes=True), most)

    def events_between(
        self, subscription: Subscription, start_ms: float, end_ms: float, most: int
    ) -> tuple[Sequence[Mapping[str, Any]], int]:
        is_then = (this.time >= _moment(start_ms)) & (this.time <= _moment(end_ms))
        where = is_then if subscription.where is None else subscription.where & is_then
        first, *others = subscription.types
        found = self._present_reader().read(
            all_of(first, *others) if others else first,
            exact=subscription.exact,
            has=subscription.has,
            lacks=subscription.lacks,
            where=where,
            subtypes=True,
        )
        return _first(found, most), found.count()

    def stored_range(self, start_ms: float | None, end_ms: float | None) -> tuple[float, float]:
        """Return the whole days of a range of time; without one, the last day that has events."""
        last_ms = max((row.last_ms for row in self._tables.values() if row.last_ms is not None), default=0.0)
        start, end = last_ms if start_ms is None else start_ms, last_ms if end_ms is None else end_ms
        return DAY_MS * (start // DAY_MS), DAY_MS * (end // DAY_MS + 1)

    def read_points(
        self, series: Sequence[PlotSeries], span_ms: tuple[float, float] | None
    ) -> Iterator[tuple[float, Piece]]:
        """Yield the points of some series in a span of time; an event without a time has the one of its recording."""
        assert span_ms is not None
        start, end = map(_moment, span_ms)
        for number, each in enumerate(one for one in series if one.types):
            by = {"none": None, "type": "_type", "publisher": "source"}.get(each.by, each.by)
            names = [each.attribute, *([by] if by is not None and by != each.attribute else [])]
            reader = self._present_reader()
            is_then = (this.time >= start) & (this.time < end)
            cls = each.types[0]
            timed = reader.read(cls, where=is_then, columns=["time", *(name for name in names if name != "time")])
            untimed = reader.read(cls, lacks="time", columns=["_recorded", *names])
            for found in (timed, untimed) if untimed.count() else (timed,):
                for batch in found.batches():
                    times = batch.column(0).cast("int64").to_numpy() / 1000
                    is_in = (times >= span_ms[0]) & (times < span_ms[1])
                    groups = None if by is None else list(compress(batch.column(by).to_pylist(), is_in))
                    values = _floats(batch.column(each.attribute))[is_in]
                    yield number / len(series), Piece(each.text, times[is_in], values, groups)

    def _present_reader(self) -> "LakeReader":
        from genus.lake import LakeReader

        with self._lock:
            return self._reader or LakeReader(self._path)

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    # -- looking -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self.look()
            except Exception as problem:  # what is not known to go wrong: it is shown, and tried again
                if self._problem != str(problem):
                    logging.getLogger("genus.studio").exception("%s cannot be read", self._path)
                self._reader, self._problem = None, str(problem)
            self._closed.wait(LOOK_S)

    def look(self) -> None:
        """Read what is new in the lake; a lake that cannot be read is opened anew by the next call."""
        from genus.lake import LakeReader

        try:
            with self._lock:
                reader = self._reader = self._reader or LakeReader(self._path)
            self._look(reader)
            self._problem = ""
        except (GenusError, OSError, ValueError, ImportError) as problem:
            with self._lock:
                self._reader = None
            self._problem = str(problem)

    def _look(self, reader: "LakeReader") -> None:
        name = self.name
        now, before = reader.refresh(), self._summary if name == self._named else None
        if before is None or (now.version, now.commit) != (before.version, before.commit):
            bounds = reader.time_bounds()
            self._tables = {
                f"{self.name}|{each.table}": self._table_row(each, bounds.get(each.table)) for each in reader.stats()
            }
            self._counts = reader.type_counts()
            self._commits = self._last_commits(reader, now, before)
            self._summary = now
        self._declare_types(reader)
        followers = [*map(self._follower_row, reader.followers(self._elsewhere)), *self._recorder_rows(now)]
        self._followers = {f"{self.name}|{row.kind}|{row.name}": row for row in followers}
        self._named = name

    def _last_commits(
        self, reader: "LakeReader", now: "LakeSummary", before: "LakeSummary | None"
    ) -> dict[str, LakeCommitRow]:
        """Return the last commits; only those that are new are read, unless the lake was replaced."""
        is_same = before is not None and before.version < now.version and bool(self._commits)
        new = min(LAST_COMMITS, now.version - before.version) if before is not None and is_same else LAST_COMMITS
        read = [self._commit_row(each) for each in reader.history(new)]
        known = list(self._commits.values()) if is_same else []
        return {f"{self.name}|{row.version}": row for row in [*read, *known][:LAST_COMMITS]}

    def _declare_types(self, reader: "LakeReader") -> None:
        """Declare the types of the catalog again if it has changed."""
        catalog = reader.catalog
        if catalog is self._catalog:  # it is another object if the file has changed
            return
        found: list[type] = []
        for name in catalog.types:
            try:
                found.append(catalog.declare(name))
            except GenusError:  # classes of this program contradict it
                found.append(catalog.declare(name, generated=True))
        self._types, self._catalog = tuple(found), catalog

    # -- rows --------------------------------------------------------------------------------------------------------

    def _source_row(self, events: int) -> SourceRow:
        summary, dead = self._summary, self._tables.get(f"{self.name}|{DEAD_LETTERS}")
        letters = 0 if dead is None else dead.events
        is_new = summary is None and self._problem == "is being read"
        notes = [self._problem, counted(letters, "dead letter") if letters else ""]
        return SourceRow(
            kind="lake",
            address=self._path,
            state="failed" if self._problem and not is_new else "live",
            note="; ".join(filter(None, notes)),
            time_ms=None if summary is None else summary.at.timestamp() * 1000,
            events=events,
            rate=three_digits(self._rates.rate(_ALL)),
            lost=letters,
        )

    def _table_row(self, stats: "TableStats", bounds: tuple[datetime, datetime] | None) -> LakeTableRow:
        """Return the row of a table; where the times of its events are not known, those of whole days."""
        return LakeTableRow(
            source=self.name,
            table=stats.table,
            events=stats.rows,
            files=stats.files,
            bytes=stats.bytes,
            first_ms=_day_ms(stats.first_day) if bounds is None else bounds[0].timestamp() * 1000,
            last_ms=_day_ms(stats.last_day, after=1) if bounds is None else bounds[1].timestamp() * 1000,
            types=stats.type_names,
        )

    def _commit_row(self, entry: "HistoryEntry") -> LakeCommitRow:
        return LakeCommitRow(
            source=self.name,
            version=entry.version,
            at_ms=entry.at.timestamp() * 1000,
            what=entry.kind,
            events=entry.rows_added,
            note="; ".join(_changes(entry)),
        )

    def _follower_row(self, follower: "FollowerStatus") -> LakeFollowerRow:
        return LakeFollowerRow(
            source=self.name,
            name=_shorter(follower.path, self._path),
            kind=_KINDS[follower.kind],
            version=follower.version,
            behind=follower.behind,
            events=follower.rows,
            note=follower.problem or follower.about,
        )

    def _recorder_rows(self, now: "LakeSummary") -> Iterator[LakeFollowerRow]:
        """Yield what was ingested: the newest event of each recorder, the latest first."""
        newest = sorted(now.newest.items(), key=lambda item: item[1], reverse=True)[:MAX_RECORDERS]
        for recorder, at in newest:
            yield LakeFollowerRow(
                source=self.name,
                name=_shorter(recorder, self._path),
                kind="stream",
                note=f"ingested up to events recorded at {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
            )


def _first(events: "LocalEvents", most: int) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for batch in events.batches():
        narrow = [field.name for field in batch.schema if str(field.type) == "float"]
        found += [_values(row, narrow) for row in batch.slice(0, most - len(found)).to_pylist()]
        if len(found) >= most:
            break
    return found


def _moment(ms: float) -> datetime:
    """Return a time, or the first or last one that there is."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return (datetime.max if ms > 0 else datetime.min).replace(tzinfo=UTC)


def _values(row: Mapping[str, Any], narrow: Collection[str]) -> Mapping[str, Any]:
    """Return the attributes of an event that are present, and its type; `narrow` are floats of 32 bits."""
    present = {name: value for name, value in row.items() if value is not None and not name.startswith("_")}
    short = {name: float32(present[name]) for name in narrow if name in present}
    return {**present, **short, "type": row["_type"]}


def _floats(column: Any) -> Floats:
    """Return a column of an Arrow batch as numbers, NaN for those that are absent or none."""
    try:
        found: Floats = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    except (NotImplementedError, ValueError):  # durations, choices
        numbers = map(number_of, column.to_pylist())
        return np.array([math.nan if number is None else number for number in numbers], float)
    return found


def _changes(entry: "HistoryEntry") -> Iterator[str]:
    if entry.sources:
        yield f"{counted(entry.sources, 'file')} ingested"
    for each in entry.tables:
        removed = "" if not each.rows_removed else f", {each.rows_removed:,} fewer"
        yield f"{each.table}: {counted(each.rows_added, 'row')}{removed}"


def _day_ms(day: date | None, *, after: int = 0) -> float | None:
    """Return the beginning of a day, or of one after it, in milliseconds."""
    if day is None:
        return None
    try:
        day += timedelta(days=after)
    except OverflowError:  # the last day there is
        return None
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000


def _shorter(path: str, lake: str) -> str:
    """Return a path without that of the lake, or of the folder that it is in."""
    here = os.path.abspath(lake)
    for above in (here, os.path.dirname(here)):
        if path.startswith(f"{above}/"):
            return path[len(above) + 1 :]
    return path
