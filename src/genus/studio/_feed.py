"""`Feed`: gathers the rows of all sources, finds the cells that changed, and encodes each change once for all pages.

A page that keeps up gets the changes of each turn. One that does not has nothing queued for it: it gets a snapshot when
it is ready again. So a page costs the same however slow it is, and there is no backlog.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from genus.studio._figures import cut
from genus.studio._figures import encode as _encode
from genus.studio._health import Judge, Problems
from genus.studio._source import AskedSource, EventSource, Source, WaitingSource
from genus.studio._type_table import TypeTable
from genus.studio.types import TABLES, Row, SourceRow, Tables

TURN_S = 0.05
"""How often rows are gathered, at most."""
SLOW_S = 0.5
"""The same for tables in which a person does not follow single changes."""
BEAT_S = 1.0
ALIVE_S = 2.0
"""A page hears at least this often."""
MINUTE = 60
TURNS_KEPT = 4
"""A page that is no more turns behind than this gets the changes, and else a snapshot."""
BUSY_TURN_S, BUSY_LATE_S = 0.1, 0.003
"""How often rows are gathered while other threads of the program leave Studio waiting for this long: Python has one
thread run at a time, and each turn takes it from them."""
PAUSE, PAUSE_ALONE = 20, 9
"""A turn that takes long is followed by a pause of so many times as long: gathering takes 5 % of a core at most, and
10 % in a process that does nothing else."""
SLOW_TABLES = frozenset(TABLES) - {"sources", "channels", "types"}
JUDGED = frozenset({"sources", "channels", "subscriptions", "nodes", "gateways"})
"""Tables that problems are found in."""


class Turn(msgspec.Struct, frozen=True):
    """What one turn changed: for each table the changed cells, and the keys of rows that are gone, as JSON."""

    number: int
    at_ms: int
    cells: dict[str, bytes]
    gone: dict[str, bytes]
    is_beat: bool


class Feed:
    """State: the rows of all tables, and the changes of the last turn."""

    def __init__(
        self,
        sources: Sequence[Source],
        types: TypeTable,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.thread_time,
        pause: float = PAUSE,
    ) -> None:
        self.sources = sources
        self.turn = Turn(0, round(wall() * 1000), {}, {}, False)
        self.turns: deque[Turn] = deque(maxlen=TURNS_KEPT)
        self._clock, self._wall, self._cpu, self._pause = clock, wall, cpu, pause
        self._types, self._problems, self._failures = types, Problems(), types.failures
        self._health = Judge()
        self._rows: dict[str, dict[str, Row]] = {name: {} for name in TABLES}
        self._due: dict[str, float] = dict.fromkeys(TABLES, 0.0)
        self._viewed: dict[object, frozenset[str]] = {}
        self._snapshots: dict[str, tuple[int, bytes]] = {}
        self._minutes: dict[str, deque[float]] = {}
        """The rate of each source in the last 60 seconds."""
        self._with_events = {each.name for each in sources if isinstance(each, EventSource | AskedSource)}
        self._parts = {each.name: getattr(each, "part_of", None) for each in sources}
        self._beat_at = clock()
        self.is_followed: Callable[[], bool] = lambda: False
        """Whether somebody else than a page needs turns as quickly, such as alerts."""
        self._cost_s = self._late_s = 0.0

    # -- pages -------------------------------------------------------------------------------------------------------

    def join(self, viewer: object, tables: Collection[str]) -> None:
        """A page looks at some tables."""
        if not self._viewed:
            for source in self.sources:
                if isinstance(source, WaitingSource):
                    self._failures.ask(source, "looked_at", source.looked_at, None)
        for table in frozenset(tables) - self._viewed_tables():
            self._due[table] = 0.0
        self._viewed[viewer] = frozenset(tables)

    def leave(self, viewer: object) -> None:
        """A page looks no more."""
        self._viewed.pop(viewer, None)

    @property
    def viewers(self) -> int:
        """How many pages look."""
        return len(self._viewed)

    def is_viewed(self, table: str) -> bool:
        """Return whether a page looks at a table."""
        return any(table in tables for tables in self._viewed.values())

    def _viewed_tables(self) -> frozenset[str]:
        return frozenset[str]().union(*self._viewed.values())

    def rows(self, table: str) -> dict[str, Row]:
        """Return the present rows of a table, gathered now if no page looks at it."""
        if table not in self._viewed_tables():
            self._due[table] = 0.0
            self.gather([table])
        return self._rows[table]

    def snapshot(self, tables: Iterable[str]) -> bytes:
        """Return all rows of some tables as JSON: `{"channels": {key: row}, ...}`."""
        return b"{" + b",".join(b'"%s":%s' % (table.encode(), self._snapshot(table)) for table in tables) + b"}"

    def _snapshot(self, table: str) -> bytes:
        known = self._snapshots.get(table)
        if known is None or known[0] != self.turn.number:
            known = self._snapshots[table] = self.turn.number, _encode(self._rows[table])
        return known[1]

    # -- turns -------------------------------------------------------------------------------------------------------

    @property
    def pause_s(self) -> float:
        """How long to wait before the next turn."""
        turn_s = BUSY_TURN_S if self._late_s > BUSY_LATE_S and self._pause == PAUSE else TURN_S
        return max(turn_s if self._viewed or self.is_followed() else BEAT_S, self._pause * self._cost_s)

    def note_lateness(self, seconds: float) -> None:
        """A turn began so much later than it was due."""
        self._late_s += (seconds - self._late_s) / 8

    def advance(self) -> None:
        """Gather what pages look at and is due; once a second also what problems are found in."""
        began, spent = self._clock(), self._cpu()
        is_beat = began - self._beat_at >= BEAT_S
        wanted = set(self._viewed_tables())
        if is_beat:
            self._beat_at = max(self._beat_at + BEAT_S, began - BEAT_S)
            wanted |= JUDGED | {"problems", "type_changes"}
        self.gather(wanted, is_beat=is_beat)
        if is_beat:
            self._note_minutes()
        self._cost_s += (self._cpu() - spent - self._cost_s) / 8

    def gather(self, wanted: Collection[str], *, is_beat: bool = False) -> None:
        """Take the present rows of some tables that are due, and find what changed."""
        now = self._clock()
        due = {table for table in wanted if is_beat or self._due[table] <= now}
        for table in due:
            self._due[table] = now + (SLOW_S if table in SLOW_TABLES else 0.0)
        found = self._gathered(due, now)
        cells: dict[str, bytes] = {}
        gone: dict[str, bytes] = {}
        for table, rows in found.items():
            before, self._rows[table] = self._rows[table], rows
            if changed := dict(_changes(before, rows)):
                cells[table] = _encode(changed)
            if missing := before.keys() - rows.keys():
                gone[table] = _encode(sorted(missing))
        self.turn = Turn(self.turn.number + 1, round(self._wall() * 1000), cells, gone, is_beat)
        self.turns.append(self.turn)

    def _gathered(self, due: Collection[str], now: float) -> dict[str, dict[str, Row]]:
        """Return the present rows of tables: of each source, and what is made of them."""
        asked = frozenset(due) | (JUDGED if "problems" in due else frozenset())
        found: dict[str, dict[str, Row]] = {table: {} for table in asked}
        for source in self.sources:
            for table, rows in self._rows_of(source, asked).items():
                if table in found:
                    found[table].update(rows)
        if "types" in due or "type_changes" in due:
            self._types.update(self.sources, now, self._wall())
            found |= {"types": dict(self._types.rows), "type_changes": dict(self._types.changes)}
        if "sources" in found:
            found["sources"] = {name: self._completed(name, row) for name, row in found["sources"].items()}
        if "problems" in due:
            own = found.pop("problems", {})
            found["problems"] = {**own, **self._problems.find(found, now, self._wall())}
            self._health.note_problems(found["problems"])
        self._health.complete(found, now, self._wall())
        if "problems" in due:
            found["problems"] |= self._health.silences()
        return found

    def _completed(self, name: str, row: Row) -> Row:
        """Return the row of a source with what Studio knows better: the last minute, and whether there are events."""
        if not isinstance(row, SourceRow):
            return row
        minute, has_events = tuple(self._minutes.get(name, ())), row.has_events and name in self._with_events
        part_of = getattr(self._parts.get(name), "name", "")
        return msgspec.structs.replace(row, rates=minute, has_events=has_events, part_of=part_of)

    def _note_minutes(self) -> None:
        """Note the rates of all sources, once a second."""
        for name, row in self._rows["sources"].items():
            if isinstance(row, SourceRow):
                self._minutes.setdefault(name, deque(maxlen=MINUTE)).append(row.rate)

    def _rows_of(self, source: Source, asked: Collection[str]) -> Tables:
        """Return the rows of a source; one that raises is shown as failed, and asked again in the next turn."""
        found: Tables = self._failures.ask(source, "rows", lambda: source.rows(asked), {})
        if found or not (problem := self._failures.text(source)):
            return found
        before = self._rows["sources"].get(source.name)
        known = before if isinstance(before, SourceRow) else SourceRow(kind="bus", address=source.name)
        return {"sources": {source.name: msgspec.structs.replace(known, state="failed", note=cut(problem), rate=0.0)}}


def _changes(known: dict[str, Row], after: dict[str, Row]) -> Iterator[tuple[str, Any]]:
    """Yield the rows that are new, and of the others the cells that changed."""
    for key, row in after.items():
        old = known.get(key)
        if old is None:
            yield key, row
        elif old is not row and old != row:
            left_out = row.history
            pairs = zip(row.__struct_fields__, astuple(row), astuple(old), strict=True)
            cells = {
                name: value
                for name, value, before in pairs
                if value is not before and value != before and name not in left_out
            }
            if cells:
                yield key, cells
