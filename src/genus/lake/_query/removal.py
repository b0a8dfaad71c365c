"""Removing events from stored tables: deletions by a subscription and expiry by age, each in one commit.

The raw text of dead letters is no event, so they are found by a text that they contain.

Parts are told apart by what the ledger knows of them, their day and the rows of each shape: those without such events
are not opened, and those with nothing else are dropped. The rows to remove in the others are counted in one Spark job.
Only parts that have some are rewritten, those of a day and family together, with the versions that their rows came
with, so that followers go on as if nothing had happened.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._jobs import folder_name, job_description
from genus.lake._query.selection import SelectedTable, count_parts, day_test
from genus.lake._tables.commits import (
    COMMIT,
    DAY,
    DEAD,
    DEAD_LETTERS,
    DELETION,
    RECORDED,
    SHAPE,
    SOURCE,
    SUBSCRIBER,
    CommitConflict,
    IngestedFile,
    Part,
    Shape,
    count_rows,
    table_folder,
)
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.lake_tables import (
    LakeTables,
    SparkStore,
    in_order,
    spark_schema,
    with_contents_of,
    with_first_names,
    with_present_names,
)
from genus.lake._tables.part_writer import DEAD_SCHEMA
from genus.lake._tables.state import LedgerState, find_versions
from genus.lake._tables.store import commit_of, draft_of
from genus.model import Span, duration, micros_of_time
from genus.model.internal import hidden_names
from genus.model.types import Vector
from genus.targets import spark as target

ProgressHandler: TypeAlias = Callable[[int, int], object]


class RemovalResult(msgspec.Struct, frozen=True):
    """Result of `Lake.delete`, `Lake.expire` and of the same methods of `Inboxes`."""

    rows: int
    """Events, or delivered matches, that were removed; with `dry_run`, that would be."""
    dropped: int
    """Folders that were removed as a whole."""
    rewritten: int
    """Folders of which some rows are left, in folders that replace them."""
    folders: int
    """All folders that there were."""
    version: int
    """Version afterwards."""
    seconds: float


class RemovalRule(NamedTuple):
    """Events to remove: those of some types that match a subscription and happened before a time."""

    subscription: Subscription
    types: Mapping[str, Sequence[str]]
    """The names of the types, by family."""
    before: datetime | None = None

    def condition(self, family: str, vector: Vector) -> Column:
        """A column that is true for rows of a family's table that are removed, and false or NULL for others."""
        hidden = hidden_names(vector, self.subscription.vector)
        matches = target.compile(self.subscription).condition(self.types[family], hidden)
        if self.before is None:
            return matches
        before = F.timestamp_micros(F.lit(micros_of_time(self.before)))
        return matches & (F.coalesce(F.col("time"), F.col(RECORDED)) < before)

    def parts(self, catalog: Catalog, state: LedgerState) -> Iterator[tuple[Part, bool]]:
        """Yield the parts that can have such events, by the ledger, and whether all their rows are such events."""
        can_match = day_test(self.subscription)
        for family, types in self.types.items():
            if parts := [part for part in state.table(family) if can_match(part.day)]:
                table = SelectedTable(catalog.vector(family), tuple(types), {}, parts)
                for part, rows in count_parts(self.subscription, table, state):
                    first = None if part.day is None else datetime.combine(part.day, datetime.min.time(), UTC)
                    if self.before is None or first is None or first < self.before:
                        yield part, rows == part.rows and self._is_old(first)

    def _is_old(self, day: datetime | None) -> bool:
        """Return whether all events of a day happened before the time of the rule."""
        return self.before is None or (day is not None and self.before - day >= timedelta(days=1))


def time_before(age: Span, now: datetime | None) -> datetime:
    now = now or datetime.now(UTC)
    if now.tzinfo is None:
        raise LakeError(f"now={now} has no time zone; give one, such as UTC")
    try:
        return now - duration(age, "older_than", zero=False)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def policy_rules(
    policy: Mapping[str, timedelta], catalog: Catalog, shapes: Iterable[Shape], now: datetime | None
) -> list[RemovalRule]:
    """Return what a policy removes; each type is kept as long as the entry of the nearest of its supertypes says.

    Of entries that are equally near, the shortest one counts.
    """
    known = list(shapes)
    wanted = {name: Subscription(catalog.declare(name)) for name in policy}
    entries_of: dict[tuple[str, str], list[str]] = {}
    for name, subscription in wanted.items():
        for family, types in matching_types(subscription, catalog, known).items():
            for each in types:
                entries_of.setdefault((family, each), []).append(name)
    types_of: dict[str, dict[str, list[str]]] = {}
    for (family, each), names in entries_of.items():
        entry = min(_nearest(names, catalog), key=policy.__getitem__)
        types_of.setdefault(entry, {}).setdefault(family, []).append(each)
    return [RemovalRule(wanted[name], types, time_before(policy[name], now)) for name, types in types_of.items()]


def _nearest(names: list[str], catalog: Catalog) -> list[str]:
    codes = {name: catalog.code(name) for name in names}
    return [name for name in names if not any(codes[other] % codes[name] == 0 for other in names if other != name)]


class EventTables(NamedTuple):
    store: SparkStore
    folder: Callable[[str], str]
    """The folder of a family's table."""
    by_day: bool
    """Whether the parts of tables are folders of days, as in a lake."""
    catalog: Callable[[], Catalog]
    frame: Callable[[str, Vector, Sequence[Part]], DataFrame]
    """The rows of some parts of a family, with the columns of files."""


def tables_of(lake: LakeTables) -> EventTables:
    return EventTables(lake.store, table_folder, True, lambda: lake.catalog, lake._rows_to_rewrite)


def remove_events(
    tables: EventTables,
    rules: Sequence[RemovalRule],
    kind: Literal["delete", "expire"],
    *,
    dry_run: bool = False,
    progress: ProgressHandler | None = None,
) -> RemovalResult:
    """Remove the events of any of the rules in one commit, and nothing else.

    If another writer has replaced one of the parts meanwhile, it is tried again. Events that come in meanwhile stay.
    LakeError, and nothing is changed, if the rows that are left are not as many as there should be.
    """
    began = time.monotonic()
    while True:
        attempt = _Attempt(tables, rules, kind)
        try:
            version = attempt.state.version if dry_run else attempt.commit(progress or (lambda done, total: None))
        except CommitConflict:
            continue
        return attempt.result(version, time.monotonic() - began)


class _Attempt:
    def __init__(self, tables: EventTables, rules: Sequence[RemovalRule], kind: Literal["delete", "expire"]) -> None:
        self._tables, self._store, self._rules = tables, tables.store, rules
        self.state = self._store.state()
        self._catalog = tables.catalog()  # read after the state, so that it has every column of the parts
        self._draft = self._store.begin(kind)
        found = [each for rule in rules for each in rule.parts(self._catalog, self.state)]
        whole = {part.folder: part.shapes or {} for part, is_whole in found if is_whole}
        partly = {part.folder: part for part, _ in found if part.folder not in whole}
        self._counts = {**self._count(list(partly.values())), **whole}
        """The rows to remove of each folder that has some, by shape."""
        self._parts = [part for part in self.state.parts.values() if self._gone(part)]

    def result(self, version: int, seconds: float) -> RemovalResult:
        dropped, rows = len(self._parts) - len(self._rewritten), sum(map(self._gone, self._parts))
        return RemovalResult(rows, dropped, len(self._rewritten), len(self.state.parts), version, seconds)

    def _gone(self, part: Part) -> int:
        return sum(self._counts.get(part.folder, {}).values())

    @property
    def _rewritten(self) -> list[Part]:
        return [part for part in self._parts if self._gone(part) < part.rows]

    # -- finding rows ------------------------------------------------------------------------------------------------

    def _count(self, parts: Sequence[Part]) -> dict[str, Mapping[int, int]]:
        frames = [self._count_of(family, found) for family, found in by_table(parts).items()]
        with job_description(self._store.spark, f"count what is removed from {folder_name(self._store.path)}"):
            rows = reduce(DataFrame.unionAll, frames).toArrow().to_pylist() if frames else []
        counts: dict[str, dict[int, int]] = {}
        for row in rows:
            counts.setdefault(row["folder"], {})[row[SHAPE]] = row["rows"]
        return dict(counts)

    def _count_of(self, family: str, parts: Sequence[Part]) -> DataFrame:
        day = [F.lit(f"/{DAY}="), F.col(DAY).cast("string")] if self._tables.by_day else []
        folder = F.concat(F.lit(f"{self._tables.folder(family)}/{COMMIT}="), F.col(COMMIT), *day)
        found = self._frame(family, parts).where(self._condition(family))
        return found.groupBy(folder.alias("folder"), SHAPE).agg(F.count(F.lit(1)).alias("rows"))

    def _frame(self, family: str, parts: Sequence[Part]) -> DataFrame:
        vector = self._catalog.vector(family)
        return with_present_names(self._tables.frame(family, vector, parts), vector)

    def _condition(self, family: str) -> Column:
        vector = self._catalog.vector(family)
        return reduce(or_, [rule.condition(family, vector) for rule in self._rules if family in rule.types])

    # -- writing what is left ----------------------------------------------------------------------------------------

    def commit(self, progress: ProgressHandler) -> int:
        if not self._parts:
            return self.state.version
        with self._store.discarding():
            draft = msgspec.structs.replace(
                self._draft,
                added=tuple(self._rewrite(progress)),
                removed=tuple(part.folder for part in self._parts),
                deletion=self.state.notes.get(DELETION, ""),
                notes={DELETION: self._draft.id},
            )
            return self._store.commit(draft).version

    def _rewrite(self, progress: ProgressHandler) -> Iterator[Part]:
        done = 0
        for family, parts in by_table(self._rewritten).items():
            known = find_versions(self._store.ledger.history(), parts) if self._tables.by_day else parts
            for part in self._write(family, known):
                yield self._checked(part, [each for each in known if each.day == part.day])
            done += len(parts)
            progress(done, len(self._rewritten))

    def _write(self, family: str, parts: Sequence[Part]) -> tuple[Part, ...]:
        removed = F.coalesce(self._condition(family), F.lit(False))
        rows = self._frame(family, parts).where(~removed)
        left = with_first_names(rows, self._catalog.vector(family)).drop(COMMIT)
        by_day = self._tables.by_day
        ordered = in_order(left, parts) if by_day else left.sortWithinPartitions(SUBSCRIBER, "time")
        days = DAY if by_day else None
        return self._store.write(ordered, self._draft, self._tables.folder(family), days=days)

    def _checked(self, part: Part, replaced: Sequence[Part]) -> Part:
        """A part with what is known of the rows that are left of others; LakeError if it has others."""
        left = count_rows(replaced) - sum(map(self._gone, replaced))
        if part.rows != left:
            raise LakeError(
                f"{self._store.path}/{part.folder}: {part.rows} rows instead of {left} are left; nothing was changed"
            )
        whole = with_contents_of(part, replaced)
        if whole.shapes is None:
            return whole
        shapes = dict(whole.shapes)
        for each in replaced:
            for shape, rows in self._counts[each.folder].items():
                shapes[shape] -= rows
        return msgspec.structs.replace(whole, shapes={shape: rows for shape, rows in shapes.items() if rows})


def by_table(parts: Iterable[Part]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.table, []).append(part)
    return found


# -- dead letters ------------------------------------------------------------------------------------------------------


def delete_dead_letters(store: SparkStore, text: str, *, dry_run: bool = False) -> int:
    """Delete the dead letters whose raw text or reason contains a text, in one commit; returns their number.

    If another writer has deleted some meanwhile, it is tried again.
    """
    if not text:
        raise LakeError("every dead letter contains an empty text; give the text to look for")
    has_text = F.col("raw").contains(text) | F.col("reason").contains(text)
    with job_description(store.spark, f"delete dead letters of {folder_name(store.path)}"):
        while True:
            state = store.state()
            found = _count_letters(_letters(store, state.table(DEAD_LETTERS)).where(has_text))
            try:
                if found and not dry_run:
                    _delete_letters(store, state, found, has_text)
            except CommitConflict:
                continue
            return sum(found.values())


def _letters(store: SparkStore, parts: Iterable[Part]) -> DataFrame:
    return store.frame(parts, spark_schema(DEAD_SCHEMA, COMMIT), DEAD)


def _count_letters(letters: DataFrame) -> dict[tuple[str, int], int]:
    return {(row[0], row[1]): row[2] for row in letters.groupBy(COMMIT, SOURCE).count().collect()}


def _delete_letters(
    store: SparkStore, state: LedgerState, found: Mapping[tuple[str, int], int], has_text: Column
) -> None:
    """Write what is left and commit; what was written is removed if that fails."""
    draft, commits = store.begin("delete"), {commit for commit, _ in found}
    parts = [part for part in state.table(DEAD_LETTERS) if commit_of(part.folder) in commits]
    # folders still name the commit that the dead letters came from; see `LakeTables.dead_letters`
    folders = [f"{COMMIT}={draft_of(part.folder)}-{draft.id}" for part in parts]
    with store.discarding():
        try:
            added = [
                msgspec.structs.replace(written, table=DEAD_LETTERS)
                for part, folder in zip(parts, folders, strict=True)
                for written in store.write(
                    _letters(store, [part]).where(~has_text).drop(COMMIT), draft, DEAD, folder=folder
                )
            ]
            draft = msgspec.structs.replace(
                draft,
                added=tuple(added),
                removed=tuple(part.folder for part in parts),
                sources=tuple(_recounted(state, found)),
                deletion=state.notes.get(DELETION, ""),
                notes={DELETION: draft.id},
            )
            store.commit(draft)
        except BaseException:
            for folder in folders:  # they have the names of other drafts
                store.files.delete(f"{store.path}/{DEAD}/{folder}")
            raise


def _recounted(state: LedgerState, found: Mapping[tuple[str, int], int]) -> list[IngestedFile]:
    """Return the sources that have fewer dead letters now; a source that was ingested again since has others."""
    known = ((state.sources.get(source), commit, count) for (commit, source), count in found.items())
    return [
        msgspec.structs.replace(source, dead=source.dead - count)
        for source, commit, count in known
        if source is not None and source.commit == commit.partition("-")[0]
    ]
