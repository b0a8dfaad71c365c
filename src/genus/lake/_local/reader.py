"""`LakeReader`: a lake opened for small questions, without Spark."""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from genus.errors import LakeDamaged
from genus.filters import AllOf, AttributeNames, Predicate, Subscription, Term
from genus.lake._local.events import LocalEvents
from genus.lake._query.selection import ADDED, select_tables
from genus.lake._tables.file_systems import is_object_path
from genus.lake._tables.files import local_path
from genus.lake._tables.followers import FollowerSearch, FollowerStatus
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.names import RECORDED
from genus.lake._tables.state import LedgerState, TableStats, table_stats, type_counts
from genus.lake._tables.store import Store, StoreProblem

if TYPE_CHECKING:
    from genus.lake._mirror.mirror import MirrorResult

MOST_FILES = 2000
"""A table with more files on its first and last day has no bounds: reading their footers would take seconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Bounds = tuple[datetime, datetime]
"""The first and the last time of some events, in UTC."""


class LakeSummary(msgspec.Struct, frozen=True):
    """The present version of a lake, from `LakeReader.refresh`."""

    version: int
    commit: str
    """The id of the last commit."""
    at: datetime
    """The time of the last commit."""
    newest: Mapping[str, datetime]
    """The latest time of recording among the events of each recorder."""


class LakeReader(LakeFolder):
    """A lake opened for reading in this process: no Spark, no Java, a fraction of a second.

    An interactive tool beside the pipeline, for small questions about what is stored. Answers, columns and types are
    those of `Lake`; use that for large results and for everything that processes or writes events. Needs the extra
    `arrow`.

    Args:
        path: The folder of a lake.

    Raises:
        LakeError: There is no lake at the path, or it is neither a local one nor in s3://.
    """

    _declares_subtypes: ClassVar[bool] = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(Store(path))
        self._followers = FollowerSearch(self.store)

    @staticmethod
    def can_open(path: str | os.PathLike[str]) -> bool:
        """Whether a path is in the local file system or in s3://, so that a lake there can be read without Spark."""
        return local_path(path) is not None or is_object_path(os.fspath(path))

    def __repr__(self) -> str:
        return f"<LakeReader {self.path}>"

    @property
    def types(self) -> tuple[str, ...]:
        """The names of all types and kinds in the catalog."""
        return self.catalog.types

    def read(
        self,
        what: type | AllOf[Any] | Subscription | str,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        strict: bool = False,
        subtypes: bool = False,
        columns: Iterable[str] | None = None,
        version: int | None = None,
        as_of: datetime | None = None,
    ) -> LocalEvents:
        """The events that match a subscription; nothing is read until the result is asked for.

        Args:
            what: A type, `all_of` types, or a whole subscription, also as text.
            exact: As in `Subscription`, like the other arguments; only where `what` is a type.
            has: Attributes that must be present.
            lacks: Attributes that must be absent.
            where: A predicate.
            strict: Refuse a subscription that can never match; without it, such a one gives a `SubscriptionWarning`.
            subtypes: Return the attributes of all types whose events can match, as in `Lake.read`.
            columns: Only these columns, in this order.
            version: Read the lake as it was after this commit; by default as it is.
            as_of: Read the lake as it was at this time, after the last commit at or before it.

        Raises:
            NotRegistered: The catalog lacks the type.
            LakeError: The catalog lacks an attribute or the result a column, there is no such version, or its files
                were removed by `clean`.
            SubscriptionError: With `strict`, the subscription can never match.
        """
        asked = self.asked(what, exact=exact, has=has, lacks=lacks, where=where, strict=strict)
        state = self.state_of(version, as_of)
        tables = select_tables(asked, self.catalog, state, subtypes=subtypes)
        names = dict.fromkeys(name for table in tables.values() for name in table.columns)
        found = LocalEvents(self, state, asked, tables, [*names, *ADDED])
        return found if columns is None else found.select(columns)

    def refresh(self) -> LakeSummary:
        """The present version in short; LakeDamaged if the lake was removed or replaced since it was opened."""
        state = self.store.ledger.present()
        return LakeSummary(
            state.version, state.commit, _time(state.at_us), {name: _time(at) for name, at in state.newest.items()}
        )

    def stats(self) -> list[TableStats]:
        """Figures of each table, dead letters included; only the ledger is read."""
        return table_stats(self.state())

    def time_bounds(self) -> Mapping[str, Bounds]:
        """The first and the last time of the events of each table, by the footers of some of its files.

        Tables of which that is not known are left out: those of lakes that are not in a local folder, those with
        thousands of files on their first and last day, and those with files without statistics. `stats` has their days.
        """
        return _time_bounds(self.path, self.state())

    def type_counts(self) -> dict[str, int]:
        """The number of events of each type, by the ledger; parts of old lakes that did not count them are left out."""
        return type_counts(self.state())

    def followers(self, paths: Iterable[str | os.PathLike[str]] = ()) -> list[FollowerStatus]:
        """Inboxes, derived tables and functions of streams of this lake, and how far each has come.

        A lake does not know its followers: those in its folder and beside it are found, and those at given paths.

        Args:
            paths: Folders of followers elsewhere.
        """
        return self._followers.find(paths)

    def mirror(self, *, progress: Callable[[int, int], object] | None = None) -> "MirrorResult":
        """Complete the Delta tables of the lake, and compare them with the ledger, as `Lake.mirror`."""
        from genus.lake._mirror.mirror import Mirror  # it needs pyarrow, which counting does not

        return Mirror(self.store).complete(progress)

    def iceberg(self, *, progress: Callable[[int, int], object] | None = None) -> "MirrorResult":
        """Bring the Iceberg tables of the lake to the present version, as `Lake.iceberg`."""
        from genus.lake._mirror.iceberg import IcebergTables  # it needs pyarrow, which counting does not

        return IcebergTables(self.store).update(progress)

    def check(
        self, *, content: bool = True, progress: Callable[[int, int], object] | None = None
    ) -> list[StoreProblem]:
        """Compare the files with the ledger, as `Lake.check`."""
        self.catalog  # noqa: B018 - raises if it is damaged
        return list(self.store.check(content=content, progress=progress))


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _time_bounds(path: str, state: LedgerState) -> dict[str, Bounds]:
    found: dict[str, Bounds] = {}
    for table in state.tables if local_path(path) is not None else ():  # elsewhere, every footer would be a request
        parts = state.table(table)
        days = {part.day for part in parts if part.day is not None}
        outer = {min(days), max(days)} if days else set()
        files = [f"{path}/{part.folder}/{file.name}" for part in parts if part.day in outer for file in part.files]
        bounds = [_file_bounds(file) for file in files] if len(files) <= MOST_FILES else []
        known = [each for each in bounds if each is not None]
        if known and len(known) == len(bounds):
            found[table] = min(first for first, _ in known), max(last for _, last in known)
    return found


@lru_cache(1 << 14)
def _file_bounds(path: str) -> Bounds | None:
    """The bounds of a file, which never changes; None if they are not known."""
    try:
        from genus.lake._query import scan  # it needs pyarrow, without which the days have to do

        footer = scan.read_footer(scan.DataFile(path, None))
    except (LakeDamaged, ImportError):
        return None
    by_time = [footer.values(group, "time") for group in range(footer.metadata.num_row_groups)]
    # events without a time have the one at which they were recorded
    found = [times if times.may_be_present else footer.values(at, RECORDED) for at, times in enumerate(by_time)]
    if not found or any(times.may_be_absent or times.low is None or times.high is None for times in found):
        return None
    return _time(min(times.low for times in found)), _time(max(times.high for times in found))
