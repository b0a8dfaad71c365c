"""Figures of the tables of a lake, from the ledger alone."""

from collections import Counter
from datetime import date

import msgspec

from genus.lake._tables.commits import count_bytes, count_files, count_rows
from genus.lake._tables.names import DEAD_LETTERS
from genus.lake._tables.state import LedgerState


class TableStats(msgspec.Struct, frozen=True):
    """Figures of one table, from `Lake.stats`."""

    table: str
    """Name of the family, or `dead letters`."""
    rows: int
    files: int
    bytes: int
    days: int
    types: int
    shapes: int
    type_names: tuple[str, ...] = ()
    first_day: date | None = None
    """The first day of which there are events."""
    last_day: date | None = None


def table_stats(state: LedgerState) -> list[TableStats]:
    """Figures of each table, dead letters included."""
    return [_stats(name, state) for name in state.tables if name != DEAD_LETTERS or _count_dead(state)]


def _count_dead(state: LedgerState) -> int:
    """The dead letters, without those that were ingested successfully since."""
    return sum(source.dead for source in state.sources.values())


def _stats(table: str, state: LedgerState) -> TableStats:
    parts = state.table(table)
    shapes = [shape for shape in state.shapes.values() if shape.family == table]
    days, types = {part.day for part in parts if part.day is not None}, {shape.type for shape in shapes}
    return TableStats(
        table,
        _count_dead(state) if table == DEAD_LETTERS else count_rows(parts),
        count_files(parts),
        count_bytes(parts),
        len(days),
        len(types),
        len(shapes),
        tuple(sorted(types)),
        min(days, default=None),
        max(days, default=None),
    )


def type_counts(state: LedgerState) -> dict[str, int]:
    """The number of events of each type; parts whose shapes were not counted are left out."""
    found: Counter[int] = Counter()
    for part in state.parts.values():
        if part.shapes is not None:
            found.update(part.shapes)
    counts: Counter[str] = Counter()
    for number, rows in found.items():
        if number in state.shapes:
            counts[state.shapes[number].type] += rows
    return dict(counts)
