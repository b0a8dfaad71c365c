"""Commits of a store: what a writer adds, removes and notes, the files that it names, and the shapes of their events.

A commit names every file of its parts with size, number of rows and checksum, so that readers take exactly these files
and a file that is missing, strange or changed is noticed. A shape is a distinct pair of a type and the attributes that
its events carry.

Also the names of the folders and columns of a lake, here because questions that the ledger alone answers need no
pyarrow; `part_writer` has the types of the columns.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Literal

import msgspec

from genus.errors import LakeError
from genus.model import Event, attributes
from genus.model.types import Vector

TABLES, DEAD = "tables", "dead"
"""Folders of a lake: event tables, one folder per family, and dead letters."""
DEAD_LETTERS = "dead letters"
"""Name of the dead-letter table in the ledger; a family name has no space."""

TYPE, CODE, TAG, SHAPE = "_type", "_code", "_tag", "_shape"
SOURCE, POSITION = "_source", "_position"
RECORDED, INGESTED = "_recorded", "_ingested"
COMMIT, DAY = "_commit", "_day"
BATCH = "_batch"
"""In rewritten files: the version of the lake that a row came with. It is for followers; tables do not show it."""

EVENT_ID = (SOURCE, POSITION)
"""The id of an event: the number of its source, and its position there."""

SUBSCRIBER, SUBSCRIPTION = ROUTED = ("subscriber", "subscription")
"""Columns that routing puts before those of an event; no attribute of a lake has these names."""

OWN_COLUMNS = (TYPE, CODE, TAG, SHAPE, SOURCE, POSITION, RECORDED, INGESTED)
"""Columns that Genus adds to the attributes in Parquet files; commit and day are in the paths of files."""

COMMON_COLUMNS = (*(attribute.name for attribute in attributes(Event)), *OWN_COLUMNS)
"""Columns that the tables of all families have."""


def check_column_names(vector: Vector) -> None:
    """Raise LakeError if a vector has names that cannot be columns: those of matches, or equal but for case."""
    if taken := [attribute.name for attribute in vector if attribute.name.lower() in ROUTED]:
        raise LakeError(f"{vector.scope} has an attribute {taken[0]!r}, a column name of delivered matches; rename it")
    present, first = ([each.name for each in vector], [each.first_name for each in vector])
    if twins := find_case_twins(present) or find_case_twins(first):
        raise LakeError(f"{vector.scope} has attributes that differ only in case, which Spark ignores: {twins}")


def find_case_twins(names: Iterable[str]) -> str:
    """Names that differ only in case, as text for a message; empty if there are none."""
    seen: dict[str, str] = {}
    pairs = ((seen.setdefault(name.lower(), name), name) for name in names)
    return ", ".join(f"{first} and {second}" for first, second in pairs if first != second)


def table_folder(table: str) -> str:
    """The folder of a table in a lake. Its name has ASCII letters only, because some readers mistake percent signs.

    >>> table_folder("Loop"), table_folder("Ünit"), table_folder(DEAD_LETTERS)
    ('tables/Loop', 'tables/xn--nit-ska', 'dead')
    """
    if table == DEAD_LETTERS:
        return DEAD
    return f"{TABLES}/{table if table.isascii() else 'xn--' + table.encode('punycode').decode()}"


def table_of(folder: str) -> str:
    """Return the table of a folder in a lake.

    >>> table_of("tables/xn--nit-ska/_commit=4f21/_day=2026-05-01"), table_of("dead/_commit=4f21")
    ('Ünit', 'dead letters')
    """
    first, _, rest = folder.partition("/")
    name = rest.partition("/")[0]
    if first == DEAD:
        return DEAD_LETTERS
    return name[4:].encode().decode("punycode") if name.startswith("xn--") else name


MAX_SHAPES = 50_000
"""A type with more shapes than this is listed once, without presence bits."""


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A type and the presence bits of some of its events; few shapes exist however many events there are.

    Subscriptions are matched against shapes. The code of a shape is divided by the code of the subscribed type, so
    types for which this process has no class match as well.
    """

    family: str
    type: str
    code: str
    """The type's prime product, in decimal digits."""
    presence: str | None
    """Presence bits over the family's vector, in hexadecimal digits; None if the type has too many shapes to list."""

    @property
    def id(self) -> int:
        """Unique number of the shape in a lake: that of the `_shape` column, another one if it has no bits."""
        return hash_of(f"{self.type}/{self.presence or ''}")

    @property
    def number(self) -> int:
        """The 64-bit number of the shape, as in the `_shape` column."""
        return shape_number(self.type, self.bits)

    @property
    def bits(self) -> int:
        return int(self.presence or "0", 16)


def shape_number(type: str, presence: int) -> int:
    """Return the number of a shape: 64 bits of a hash, so that all tasks compute the same number independently.

    >>> shape_number("Loop", 36)
    4502347039163846936
    """
    return hash_of(f"{type}/{presence:x}")


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def new_shapes(
    known: Mapping[int, Shape], counts: Mapping[str, int], found: Iterable[Shape], max_shapes: int = MAX_SHAPES
) -> tuple[Shape, ...]:
    """Return the shapes to add to the known ones, of which each type has `counts`.

    A type that would have more than `max_shapes` gets one shape without presence bits instead. LakeError if two shapes
    have the same number, which is expected once in a million lakes of a million shapes.
    """
    added: dict[int, Shape] = {}
    listed = dict(counts)
    for shape in found:
        each = shape
        if shape.id not in known and shape.id not in added:
            listed[shape.type] = listed.get(shape.type, 0) + 1
            if listed[shape.type] > max_shapes:
                each = Shape(shape.family, shape.type, shape.code, None)
        same = known.get(each.id) or added.setdefault(each.id, each)
        if (each.type, each.presence) != (same.type, same.presence):
            raise LakeError(f"two shapes have the same number, {each} and {same}; rename one of the types")
    return tuple(added.values())


# -- commits -----------------------------------------------------------------------------------------------------------


Kind = Literal["create", "ingest", "compact", "deliver", "derive", "delete", "expire", "keep", "rewind"]
DELETION = "deletion"
"""The note with the id of the last commit that deleted rows."""
ID_DIGITS, MAX_IDS = 4, 1 << 18
"""What folds keep of the ids of commits, to tell the history of a lake from that of a copy; and of how many."""
_FOLLOWING = ("create", "deliver", "derive", "rewind")
"""Kinds of commits in the stores of followers, whose rows have no numbers."""


def checksum(content: bytes | memoryview) -> str:
    """Return the checksum of a file's content: 128 bits of its SHA-256, in hexadecimal digits.

    >>> checksum(b"")
    'e3b0c44298fc1c149afbf4c8996fb924'
    """
    return hashlib.sha256(content).hexdigest()[:32]


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """Name in the folder of the part."""
    rows: int
    bytes: int
    checksum: str
    """Of its content; see `checksum`."""
    footer: str = ""
    """The checksum of its footer; empty if it is not known."""


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A folder of Parquet files of one table, and with which commits of a lake its rows came."""

    table: str
    folder: str
    """Path relative to the store."""
    files: tuple[StoredFile, ...]
    shapes: Mapping[int, int] | None = None
    """The number of rows of each shape, by the number of the shape; None if they were not counted."""
    first: int = 0
    last: int = 0
    """The versions that its first and last rows came with; if they differ, its files have that of each row (`_batch`).

    0 in stores that are no lakes.
    """
    unsure: int = 0
    """Rows with numbers up to this one may have come earlier: an older Genus rewrote them and did not keep numbers."""

    @property
    def day(self) -> date | None:
        """The day of its events, which its folder names; None if the parts of its table have no days."""
        _, found, day = self.folder.rpartition(f"{DAY}=")
        return date.fromisoformat(day) if found else None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class IngestedFile(msgspec.Struct, frozen=True):
    """A file that was ingested, identified by its content."""

    number: int
    """64 bits of a hash of the content."""
    path: str
    bytes: int
    rows: int
    dead: int
    """Number of dead letters."""
    commit: str = ""
    """Id of the commit that ingested it last."""
    modified_us: int = 0
    """When the file was changed last, so that it is known by path, size and time without reading it again."""


class SourceCounts(msgspec.Struct, frozen=True, array_like=True):
    """Figures of ingested files, or what is added to them."""

    sources: int = 0
    bytes: int = 0
    dead: int = 0
    """Dead letters."""

    def __add__(self, other: "SourceCounts") -> "SourceCounts":
        return SourceCounts(self.sources + other.sources, self.bytes + other.bytes, self.dead + other.dead)

    def __sub__(self, other: "SourceCounts") -> "SourceCounts":
        return SourceCounts(self.sources - other.sources, self.bytes - other.bytes, self.dead - other.dead)


NO_SOURCES = SourceCounts()


class SourceTableInfo(msgspec.Struct, frozen=True):
    """A file beside a fold with the sources of the folded commits."""

    name: str
    checksum: str
    counts: SourceCounts


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """A version of a lake, with the id of its last commit: after a restore, the same version is another commit."""

    version: int = 0
    commit: str = ""


START = Cursor()
"""The cursor of a follower that has processed nothing."""


class CommitDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changes that a writer wants to commit."""

    id: str
    """Unique name, part of the names of the writer's folders."""
    kind: Kind
    at_us: int
    added: tuple[Part, ...] = ()
    removed: tuple[str, ...] = ()
    """Folders that the added parts replace."""
    sources: tuple[IngestedFile, ...] = ()
    shapes: tuple[Shape, ...] = ()
    after: Cursor | None = None
    """In the store of a follower: what was processed of the lake before."""
    upto: Cursor | None = None
    """In the store of a follower: what is processed of the lake with this commit."""
    newest_us: int | None = None
    """The latest time of recording among the added events."""
    newest: Mapping[str, int] = {}
    """The latest time of recording among the added events of each recorder; see `recorder_of`."""
    catalog: str | None = None
    """The text of the lake's catalog, if it has changed since the commit before."""
    base: int | None = None
    """The version of the store that the draft was made for, if any other commit since contradicts it."""
    deletion: str | None = None
    """The last deletion that the writer knows, see `DELETION`; another one since contradicts the draft."""
    notes: Mapping[str, str] = {}
    query: str = ""
    """The id of the streaming query that made it, if one did."""
    batch: int | None = None
    """The number of the batch of that query."""


class Commit(CommitDraft, frozen=True, kw_only=True, omit_defaults=True):
    """A committed draft, or several folded into one."""

    version: int
    previous: str = ""
    """The checksum of the commit before, so that a changed ledger is noticed."""
    first: int | None = None
    """The version of the first of several folded commits."""
    lake: str = ""
    """The identity of the store: the id of its first commit."""
    ids: str = ""
    """Of folded commits, the first `ID_DIGITS` characters of the id of each of the last ones."""
    table: SourceTableInfo | None = None
    """In a fold with many sources: the file that has them."""
    counts: SourceCounts | None = None
    """What it adds to the figures of all sources; None if it has none, or if an older Genus made it."""

    @property
    def since(self) -> int:
        """The version that this commit, or the first of the folded ones, made."""
        return self.version if self.first is None else self.first

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.version, self.id)


class CommitConflict(Exception):
    """Another writer has committed the same sources, removed the same parts or processed the same versions."""


def fold(commits: Iterable[Commit]) -> Commit:
    """Consecutive commits as one that has the same effect; it has id and time of the last."""
    given = list(commits)
    added: dict[str, Part] = {}
    removed: dict[str, None] = {}
    sources: dict[int, IngestedFile] = {}
    upto, catalog = None, None
    unknown = any(each.counts is None and (each.sources or each.table) for each in given)
    for commit in given:
        for folder in commit.removed:
            if added.pop(folder, None) is None:
                removed[folder] = None
        added |= {part.folder: part for part in commit.added}
        for each in commit.sources:
            sources.pop(each.number, None)  # the order is that of the last ingests
            sources[each.number] = each
        upto = upto if commit.upto is None else commit.upto
        catalog = catalog if commit.catalog is None else commit.catalog
    return Commit(
        id=given[-1].id,
        kind=given[-1].kind,
        at_us=given[-1].at_us,
        added=tuple(added.values()),
        removed=tuple(removed),
        sources=tuple(sources.values()),
        shapes=tuple(dict.fromkeys(shape for commit in given for shape in commit.shapes)),
        upto=upto,
        newest_us=max((each.newest_us for each in given if each.newest_us is not None), default=None),
        newest=latest(each.newest for each in given),
        catalog=catalog,
        notes={name: text for commit in given for name, text in commit.notes.items()},
        version=given[-1].version,
        previous=given[0].previous,
        first=given[0].since,
        lake=given[0].lake,
        counts=None if unknown else sum((each.counts for each in given if each.counts), NO_SOURCES),
        ids="".join(map(_ids_of, given))[-ID_DIGITS * MAX_IDS :],
    )


def _ids_of(commit: Commit) -> str:
    """Return what a fold keeps of the ids of commits; blanks stand for ids that are not known."""
    known = commit.ids if commit.first is not None else commit.id[:ID_DIGITS].ljust(ID_DIGITS)
    return known.rjust(min(commit.version - commit.since + 1, MAX_IDS) * ID_DIGITS)


def completed(commit: Commit) -> Commit:
    """A commit that was read from its file, with what the file leaves out.

    Its sources get its id; those of folded commits and deletions have the ids of theirs. Its parts get the versions of
    their rows, if an older Genus has made it.
    """
    added, sources, version = commit.added, commit.sources, commit.version
    if commit.first is None and commit.kind != "delete":
        sources = tuple(msgspec.structs.replace(each, commit=commit.id) for each in sources)
    if commit.kind not in _FOLLOWING and not all(part.last for part in added):
        unsure = 0 if commit.kind == "ingest" and commit.first is None else version
        numbers = {"first": version, "last": version, "unsure": unsure}
        added = tuple(part if part.last else msgspec.structs.replace(part, **numbers) for part in added)
    return msgspec.structs.replace(commit, added=added, sources=sources)


def latest(times: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in times:
        for recorder, at_us in each.items():
            found[recorder] = max(at_us, found.get(recorder, at_us))
    return found


def recorder_of(path: str) -> str:
    """Return the recorder that wrote a file: its folder, with its name if the file is one of several that are numbered.

    >>> recorder_of("/landing/bridge-000000000017.genus"), recorder_of("/landing/north/monday.genus")
    ('/landing/bridge', '/landing/north')
    """
    folder, _, name = path.rpartition("/")
    series, dash, number = name.partition(".")[0].rpartition("-")
    return f"{folder}/{series}" if dash and series and number.isdigit() else folder


def sum_counts(counts: Iterable[Mapping[int, int] | None]) -> dict[int, int] | None:
    """Return the sums of several counts by shape; None if one of them is not known."""
    total: Counter[int] = Counter()
    for each in counts:
        if each is None:
            return None
        total.update(each)
    return dict(total)


def count_rows(parts: Iterable[Part]) -> int:
    return sum(part.rows for part in parts)


def count_files(parts: Iterable[Part]) -> int:
    return sum(len(part.files) for part in parts)


def count_bytes(parts: Iterable[Part]) -> int:
    return sum(part.bytes for part in parts)
