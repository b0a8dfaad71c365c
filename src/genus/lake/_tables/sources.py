"""The files that a lake has ingested, in bounded memory: the newest as objects, older ones in tables on disk.

A fold with many sources has them in a file of its own beside it, a table of integers and texts sorted by number, which
is mapped into memory and searched there. The fold names the table with its checksum, and has its sums, so that a lake
is opened and counted without reading it.

A source is known for at least `KEPT_DAYS` after its ingest. When folds are merged, older ones are forgotten, unless
they have dead letters; a file that is older and lies in a landing folder still would be ingested again.
"""

import mmap
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cached_property
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, TypeVar

from genus.errors import LakeDamaged
from genus.lake._tables.commits import NO_SOURCES, IngestedFile, SourceCounts, SourceTableInfo, checksum, hash_of
from genus.lake._tables.file_systems import FileSystem, LocalFileSystem
from genus.lake._tables.files import file_error

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

K = TypeVar("K")
V = TypeVar("V")

RECENT = 1024
"""Changes that are kept apart from the large dictionary; a change copies at most this many entries."""


class GrowingMap(Mapping[K, V]):
    """An immutable mapping: a large dictionary that its copies share, and a small one with recent changes.

    >>> one = GrowingMap({"a": 1, "b": 2})
    >>> two = one.changed({"c": 3}, ["a"])
    >>> dict(one), dict(two), len(two)
    ({'a': 1, 'b': 2}, {'b': 2, 'c': 3}, 2)
    """

    __slots__ = ("_base", "_count", "_recent")

    def __init__(self, base: dict[K, V] | None = None) -> None:
        self._base: dict[K, V] = {} if base is None else base
        self._recent: dict[K, V | None] = {}
        """None stands for a key that was removed; no value is None."""
        self._count = len(self._base)

    def changed(self, added: Mapping[K, V], removed: Iterable[K] = ()) -> "GrowingMap[K, V]":
        gone = dict.fromkeys(key for key in removed if key in self)
        if not added and not gone:
            return self
        recent: dict[K, Any] = {**self._recent, **gone, **added}
        if len(recent) > RECENT:
            merged = {**self._base, **recent}  # a copy, because iterating takes longer
            for key in [key for key, value in recent.items() if value is None]:
                del merged[key]
            return GrowingMap(merged)
        made = GrowingMap(self._base)
        made._recent = recent
        known = sum(key in self and key not in gone for key in added) if self._count else 0
        made._count = self._count - len(gone) + len(added) - known
        return made

    def __getitem__(self, key: K) -> V:
        found = self._recent.get(key)
        if found is not None:
            return found
        if key in self._recent:  # it was removed
            raise KeyError(key)
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        return self._recent[key] is not None if key in self._recent else key in self._base

    def __iter__(self) -> Iterator[K]:
        if not self._recent:
            return iter(self._base)
        new = [key for key, value in self._recent.items() if value is not None]
        return chain((key for key in self._base if key not in self._recent), new)

    def items(self) -> ItemsView[K, V]:
        """Return the entries; those of the large dictionary itself if there are no others, which is faster."""
        return super().items() if self._recent else self._base.items()

    def values(self) -> ValuesView[V]:
        return super().values() if self._recent else self._base.values()

    def __len__(self) -> int:
        return self._count


# -- sources -----------------------------------------------------------------------------------------------------------


KEPT_DAYS = 400
"""Sources of earlier commits are forgotten."""
TABLE_FROM = 1_000
"""A fold with at least so many sources has them in a table."""
MAX_SAME_SIZE = 1_000

NUMBER, SIZE, ROWS, DEAD, MODIFIED, AT, END, BY_SIZE, HASH, BY_PATH = range(10)
"""The columns of a table, each of 64-bit integers, all but the last three sorted by number.

`END` is where the text of a source ends: the id of its commit, a space and the path. `BY_SIZE` and `BY_PATH` are the
sources by size and by the hash of their path, those of one path as they were ingested; `HASH` is that hash.
"""
_VALUES = 6
"""The columns that are not found by sorting."""


class RecentSources:
    """Sources in memory."""

    def __init__(
        self, sources: GrowingMap[int, IngestedFile] | None = None, paths: GrowingMap[str, int] | None = None
    ) -> None:
        self._sources: GrowingMap[int, IngestedFile] = sources or GrowingMap()
        self._paths: GrowingMap[str, int] = paths or GrowingMap()

    def changed(self, new: Mapping[int, IngestedFile]) -> "RecentSources":
        paths = {each.path: number for number, each in new.items()}
        return RecentSources(self._sources.changed(new), self._paths.changed(paths))

    def get(self, number: int) -> IngestedFile | None:
        return self._sources.get(number)

    def of_path(self, path: str) -> IngestedFile | None:
        number = self._paths.get(path)
        return None if number is None else self._sources[number]

    def same_size(self, size: int) -> Sequence[int]:
        return self._by_size.get(size, ())

    @cached_property
    def _by_size(self) -> Mapping[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, each in self._sources.items():
            found.setdefault(each.bytes, []).append(number)
        return found

    def with_dead(self) -> Iterator[IngestedFile]:
        return (each for each in self._sources.values() if each.dead)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


class SourceTable:
    """Sources in a file; LakeDamaged if it is not the one that a fold names, as soon as it is searched.

    A local file is mapped at once, because it may be removed; others are copied to the local disk when searched first.
    """

    def __init__(self, files: FileSystem, path: str, info: SourceTableInfo) -> None:
        self._files, self._path, self.info = files, path, info
        self._mapped = _map(path) if isinstance(files, LocalFileSystem) else None

    @cached_property
    def content(self) -> memoryview:
        found = memoryview(self._mapped or _copy(self._files, self._path))
        if checksum(found) != self.info.checksum:
            raise LakeDamaged(f"{self._path}: the content was changed, its checksum differs; restore it from a backup")
        return found

    @cached_property
    def _columns(self) -> list[memoryview]:
        size = 8 * len(self)
        return [self.content[at * size : (at + 1) * size].cast("q") for at in range(BY_PATH + 1)]

    @cached_property
    def texts(self) -> memoryview:
        return self.content[8 * len(self) * (BY_PATH + 1) :]

    def _source(self, row: int) -> IngestedFile:
        columns = self._columns
        begin, end = columns[END][row - 1] if row else 0, columns[END][row]
        commit, _, path = str(self.texts[begin:end], "utf-8").partition(" ")
        number, size, rows, dead, modified = (columns[at][row] for at in (NUMBER, SIZE, ROWS, DEAD, MODIFIED))
        return IngestedFile(number, path, size, rows, dead, commit, modified)

    def get(self, number: int) -> IngestedFile | None:
        numbers = self._columns[NUMBER]
        row = bisect_left(numbers, number)
        return self._source(row) if row < len(numbers) and numbers[row] == number else None

    def of_path(self, path: str) -> IngestedFile | None:
        hashes, rows, wanted = self._columns[HASH], self._columns[BY_PATH], hash_of(path)
        for at in range(bisect_right(hashes, wanted) - 1, -1, -1):
            if hashes[at] != wanted:
                break
            if (found := self._source(rows[at])).path == path:
                return found
        return None

    def same_size(self, size: int) -> Sequence[int]:
        """Return the numbers of the sources with a size; of very many, some."""
        rows, sizes = self._columns[BY_SIZE], self._columns[SIZE]
        first = bisect_left(rows, size, key=sizes.__getitem__)
        last = bisect_right(rows, size, first, key=sizes.__getitem__)
        return [self._columns[NUMBER][row] for row in rows[first : min(last, first + MAX_SAME_SIZE + 1)]]

    def with_dead(self) -> Iterator[IngestedFile]:
        dead = enumerate(self._columns[DEAD]) if self.info.counts.dead else ()
        return (self._source(row) for row, count in dead if count)

    def __iter__(self) -> Iterator[int]:
        return iter(self._columns[NUMBER])

    def __len__(self) -> int:
        return self.info.counts.sources


def _missing(path: str) -> LakeDamaged:
    return LakeDamaged(f"{path} is missing; if a later fold has replaced it, open the lake again, else restore it")


def _map(path: str) -> mmap.mmap:
    try:
        with open(path, "rb") as opened:
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as problem:
        raise _missing(path) from problem
    except (OSError, ValueError) as problem:
        raise LakeDamaged(f"{path} cannot be read ({problem}); restore it from a backup") from problem


def _copy(files: FileSystem, path: str) -> mmap.mmap:
    """A file of another file system in a local one that has no name."""
    content = files.read(path)
    if not content:
        raise _missing(path)
    try:
        with tempfile.TemporaryFile() as made:
            made.write(content)
            made.flush()
            return mmap.mmap(made.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as problem:
        raise file_error("copy", path, problem) from problem


class Sources(Mapping[int, IngestedFile]):
    """The ingested files of a lake by number; immutable, a slightly larger copy costs little.

    Lookups by number, path and size are fast; iterating reads all tables.
    """

    __slots__ = ("counts", "layers")

    def __init__(
        self,
        layers: tuple[RecentSources | SourceTable, ...] = (RecentSources(),),
        counts: SourceCounts = NO_SOURCES,
    ) -> None:
        self.layers = layers
        """The oldest first, the last one in memory; a source of a later layer replaces that of an earlier one."""
        self.counts = counts
        """The number of sources, their size, and the number of their dead letters."""

    def changed(
        self, new: Mapping[int, IngestedFile], counts: SourceCounts | None = None, table: SourceTable | None = None
    ) -> "Sources":
        """Return a copy with more sources, in memory or in a table; `counts` says what they add, if it is known."""
        if not new and table is None:
            return self
        added = self.count(new.values()) if counts is None else counts
        recent = self.layers[-1]
        assert isinstance(recent, RecentSources)
        if table is None:
            layers = *self.layers[:-1], recent.changed(new)
        else:
            layers = *(self.layers if len(recent) else self.layers[:-1]), table, RecentSources()
        return Sources(layers, self.counts + added)

    def count(self, new: Iterable[IngestedFile]) -> SourceCounts:
        """Return what sources add to the counts; those that are known are replaced."""
        last = {each.number: each for each in new}
        pairs = [(each, self.get(number) if self.counts.sources else None) for number, each in last.items()]
        return SourceCounts(
            sum(known is None for _, known in pairs),
            sum(each.bytes - (known.bytes if known else 0) for each, known in pairs),
            sum(each.dead - (known.dead if known else 0) for each, known in pairs),
        )

    def get(self, number: int, default: Any = None) -> Any:
        for layer in reversed(self.layers):
            if (found := layer.get(number)) is not None:
                return found
        return default

    def __getitem__(self, number: int) -> IngestedFile:
        if (found := self.get(number)) is None:
            raise KeyError(number)
        return found  # type: ignore[no-any-return]

    def of_path(self, path: str) -> IngestedFile | None:
        """Return the file that was ingested last from a path."""
        return next((found for layer in reversed(self.layers) if (found := layer.of_path(path))), None)

    def same_size(self, size: int) -> tuple[int, ...] | None:
        """Return the numbers of the sources with a size; None if there are more than `MAX_SAME_SIZE`."""
        found = {number for layer in self.layers for number in layer.same_size(size)}
        return tuple(found) if len(found) <= MAX_SAME_SIZE else None

    def with_dead(self) -> Iterator[IngestedFile]:
        for at, layer in enumerate(self.layers):
            later = self.layers[at + 1 :]
            yield from (each for each in layer.with_dead() if all(one.get(each.number) is None for one in later))

    @property
    def in_memory(self) -> int:
        return sum(len(layer) for layer in self.layers if isinstance(layer, RecentSources))

    def __iter__(self) -> Iterator[int]:
        return iter({number: None for layer in self.layers for number in layer})

    def __len__(self) -> int:
        return self.counts.sources


# -- making tables -----------------------------------------------------------------------------------------------------


def make_table(
    given: Iterable[tuple[Sequence[IngestedFile] | SourceTable, int]], now_us: int
) -> tuple[bytes, SourceCounts, SourceCounts]:
    """Return the content of a table of sources, which are given with the times of their commits, as they were ingested.

    Returns also what is in it, and what was forgotten. Of several sources with the same number, it has the last one.
    """
    import numpy as np

    columns, hashes, texts = zip(*starmap(_columns_of, given), strict=True)
    values, hashed = np.concatenate(columns, axis=1), np.concatenate(hashes)
    order = np.argsort(values[NUMBER], kind="stable")
    numbers = values[NUMBER, order]
    order = order[np.append(numbers[1:] != numbers[:-1], True)]
    kept = (values[AT, order] >= now_us - KEPT_DAYS * 86_400_000_000) | (values[DEAD, order] > 0)
    forgotten, order = values[:, order[~kept]], order[kept]
    listed = [text for each in texts for text in each]
    chosen = [listed[row] for row in order.tolist()]
    values, hashed = values[:, order], hashed[order]
    by_path = np.lexsort((order, hashed))
    ends = np.cumsum([len(text) for text in chosen], dtype=np.int64)
    by_size = np.argsort(values[SIZE], kind="stable")
    table = np.vstack([values, ends, by_size, hashed[by_path], by_path]).astype("<i8")
    return table.tobytes() + b"".join(chosen), _counts(values), _counts(forgotten)


def _counts(values: "npt.NDArray[np.int64]") -> SourceCounts:
    return SourceCounts(values.shape[1], int(values[SIZE].sum()), int(values[DEAD].sum()))


def _columns_of(
    given: Sequence[IngestedFile] | SourceTable, at_us: int
) -> "tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[bytes]]":
    """Return the values, the hashes of paths and the texts of sources, those of one path as they were ingested."""
    import numpy as np

    if not isinstance(given, SourceTable):
        rows = [(e.number, e.bytes, e.rows, e.dead, e.modified_us, at_us) for e in given]
        texts = [f"{each.commit} {each.path}".encode() for each in given]
        hashes = np.array([hash_of(each.path) for each in given], np.int64)
        return np.array(rows, np.int64).reshape(-1, _VALUES).T, hashes, texts
    found = np.frombuffer(given.content, "<i8", len(given) * (BY_PATH + 1)).reshape(-1, len(given))
    order, ends, text = found[BY_PATH], found[END].tolist(), given.texts
    begins = [0, *ends]
    return found[:_VALUES, order], found[HASH], [bytes(text[begins[row] : ends[row]]) for row in order.tolist()]
