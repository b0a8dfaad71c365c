"""The first and last time of the events of each table, by the footers of the files of its first and last day.

The ledger knows the days of parts. A part never changes, so the footer of each of its files is read once.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from genus.errors import LakeDamaged
from genus.lake._tables.commits import Part
from genus.lake._tables.files import local_path
from genus.lake._tables.names import RECORDED
from genus.lake._tables.state import LedgerState

MOST_FILES = 2000
"""A table with more files on its first and last day is left out: reading their footers would take seconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bounds(NamedTuple):
    """The first and the last time of some events, in UTC."""

    first: datetime
    last: datetime


class TimeBounds:
    """State: the bounds of the parts of a lake that were looked at; None where they are not known."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, Bounds | None] = {}

    def find(self, state: LedgerState) -> dict[str, Bounds]:
        """The bounds of each table of which they are known: those of local lakes, if all files have statistics."""
        if local_path(self._path) is None:  # every footer would be a request
            return {}
        before, self._known = self._known, {}
        found: dict[str, Bounds] = {}
        for table in state.tables:
            parts = _outer_parts(state.table(table))
            if not 0 < sum(len(part.files) for part in parts) <= MOST_FILES:
                continue
            for part in parts:
                self._known[part.folder] = before[part.folder] if part.folder in before else self._read(part)
            bounds = _joined([self._known[part.folder] for part in parts])
            if bounds is not None:
                found[table] = bounds
        return found

    def _read(self, part: Part) -> Bounds | None:
        try:
            return _joined(
                [each for file in part.files for each in _file_bounds(f"{self._path}/{part.folder}/{file.name}")]
            )
        except (LakeDamaged, ImportError):  # without pyarrow, the days have to do
            return None


def _outer_parts(parts: list[Part]) -> list[Part]:
    """The parts of the first and the last day."""
    days = {part.day for part in parts if part.day is not None}
    outer = {min(days), max(days)} if days else set()
    return [part for part in parts if part.day in outer]


def _file_bounds(path: str) -> Iterator[Bounds | None]:
    """The bounds of each row group of a file. Events without a time have the one at which they were recorded."""
    from genus.lake._local.scan import DataFile, read_footer  # it needs pyarrow

    footer = read_footer(DataFile(path, None))
    for group in range(footer.metadata.num_row_groups):
        times = footer.values(group, "time")
        if not times.may_be_present:
            times = footer.values(group, RECORDED)
        is_known = not times.may_be_absent and times.low is not None and times.high is not None
        yield Bounds(_time(times.low), _time(times.high)) if is_known else None


def _joined(found: list[Bounds | None]) -> Bounds | None:
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    return Bounds(min(each.first for each in known), max(each.last for each in known))


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
