"""`LakeReader`: a lake opened for small questions, without Spark."""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from genus.catalog import Catalog, TypeEntry
from genus.errors import LakeError
from genus.filters import AllOf, AttributeNames, Predicate, Subscription, Term
from genus.lake._local.events import FoundPart, FoundTable, LocalEvents
from genus.lake._local.part_counts import PartCounts
from genus.lake._local.time_bounds import TimeBounds
from genus.lake._query.result_columns import ADDED, attribute_columns, family_of, subtype_columns
from genus.lake._tables.commits import Part
from genus.lake._tables.files import local_path
from genus.lake._tables.followers import FollowerSearch, FollowerStatus
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.lake_folder import LakeFolder
from genus.lake._tables.objects import is_object_path
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import Store, StoreProblem
from genus.lake._tables.table_stats import TableStats, table_stats, type_counts
from genus.model import Attribute
from genus.model._vector import hidden_names

if TYPE_CHECKING:
    from genus.lake._mirror.mirror import MirrorResult

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    """A lake in a local folder, opened for reading in this process: no Spark, no Java, a fraction of a second.

    Answers, columns and types are those of `Lake`. It suits questions about few types or days; for large results and
    for everything that writes events, use `Lake`. Needs the extra `arrow`.

    Args:
        path: The folder of a lake.

    Raises:
        LakeError: There is no lake at the path, or it is neither a local one nor in s3://.
    """

    _declares_subtypes: ClassVar[bool] = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(Store(path))
        self._followers = FollowerSearch(self.store)
        self._time_bounds = TimeBounds(self.store.path)

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
        found = find_events(self, asked, self.state_of(version, as_of), subtypes=subtypes)
        return found if columns is None else found.select(columns)

    def refresh(self) -> LakeSummary:
        """The present version in short; LakeDamaged if the lake was removed or replaced since it was opened."""
        state = self.store.ledger.present()
        return LakeSummary(state.version, state.commit, _time(state.at_us), _times(state.newest))

    def stats(self) -> list[TableStats]:
        """Figures of each table, dead letters included; only the ledger is read."""
        return table_stats(self.state())

    def time_bounds(self) -> Mapping[str, tuple[datetime, datetime]]:
        """The first and the last time of the events of each table, by the footers of some of its files.

        Tables of which that is not known are left out: those of lakes that are not in a local folder, those with
        thousands of files on their first and last day, and those with files without statistics. `stats` has their days.
        """
        return self._time_bounds.find(self.state())

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


def _times(micros: Mapping[str, int]) -> dict[str, datetime]:
    return {name: _time(each) for name, each in micros.items()}


def find_events(
    lake: LakeFolder,
    subscription: Subscription,
    state: LedgerState,
    *,
    subtypes: bool = False,
    parts: Iterable[Part] | None = None,
) -> LocalEvents:
    """The events of a state of a lake that match; `parts` are those that are read, by default all."""
    catalog = lake.catalog
    entries = catalog.entries
    unregistered = [shape for name in state.shape_counts if name not in entries for _, shape in state.shapes_of[name]]
    families = matching_types(subscription, catalog, unregistered)
    named = subtype_columns(families, catalog) if subtypes else {}
    own = {name: name for name in attribute_columns(subscription)}
    found = None if parts is None else list(parts)
    tables = {
        family: _find_table(subscription, catalog, family, tuple(types), named.get(family, own), state, found)
        for family, types in families.items()
    }
    if not tables:
        family = family_of(subscription, catalog)
        tables = {family: _find_table(subscription, catalog, family, (), own, state, found)}
    columns = dict.fromkeys(name for table in tables.values() for name in table.columns)
    return LocalEvents(lake, state, subscription, tables, [*columns, *ADDED])


def _find_table(
    subscription: Subscription,
    catalog: Catalog,
    family: str,
    types: tuple[str, ...],
    columns: dict[str, str],
    state: LedgerState,
    parts: list[Part] | None,
) -> FoundTable:
    """The parts of a family that can have matches; `columns` has the names of the columns of its attributes."""
    vector = catalog.vector(family)
    counts = PartCounts(subscription, vector, frozenset(types), state)
    read = state.table(family) if parts is None else [part for part in parts if part.table == family]
    found = [FoundPart(part, counts.count(part)) for part in read] if types else []
    hidden = hidden_names(vector, subscription.vector)
    attributes = {
        column: _attribute((subscription.vector if column in hidden else vector).get(name), name, family)
        for name, column in columns.items()
    }
    others = _other_types(family, frozenset(types), catalog.entries, state)
    return FoundTable(vector, types, others, attributes, [each for each in found if each.rows != 0])


def _other_types(family: str, types: frozenset[str], entries: Mapping[str, TypeEntry], state: LedgerState) -> list[str]:
    """The other types that a family may have events of, by the shapes in the ledger."""
    others = [name for name in state.shape_counts if name not in types]
    return [name for name in others if name not in entries or (entries[name].family or name) == family]


def _attribute(found: Attribute | None, name: str, family: str) -> Attribute:
    if found is None:
        raise LakeError(f"the lake's catalog has no attribute {name!r} of {family}; register its type")
    return found
