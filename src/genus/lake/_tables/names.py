"""Names of the folders and columns of a lake; `columns` has their types.

A module of its own, because questions that the ledger alone answers need no pyarrow.
"""

from collections.abc import Iterable

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
