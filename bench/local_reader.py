"""Small questions about a lake of 10,000,000 events without Spark, against DuckDB on the same files.

The events are of 1,110 types, a tree of three levels with ten children each, on ten days, and carry two values and any
of four attributes: 17,760 shapes. The lake is written with the writer of an ingest, one commit a day. Both contestants
read the same Parquet files, take turns, and must give the same answer; DuckDB is given the list of files, the names of
the types and two threads. A time is the least of several rounds, with the lake and the connection open. The last rows
are whole processes.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pyarrow as pa

from bench.timing import markdown
from genus import Event
from genus.lake import LakeReader
from genus.lake._ingest.format import Columns, Types
from genus.lake._ingest.writer import Origin, TableWriter
from genus.lake._tables.commits import POSITION, RECORDED, Part, new_shapes
from genus.lake._tables.lake_catalog import CatalogFile, matching_types
from genus.lake._tables.part_writer import INSTANT
from genus.lake._tables.store import Store
from genus.model import name_of
from genus.model._event import EventMeta

CARRIED = ("p", "q", "r", "s")
FIRST_DAY = datetime(2026, 5, 1, tzinfo=UTC)
DAYS = 10
ROUNDS = 5

QUESTIONS = {
    "count, one type": ("G777", "count"),
    "count, 111 types": ("G5", "count"),
    "count with a predicate, one type": ("G777 where value > 0.9", "count"),
    "count with a predicate, 111 types": ("G5 where value > 0.9 and number < 500", "count"),
    "count with a predicate, 111 types, one day": (
        "G5 where value > 0.9 and time >= @2026-05-04T00:00:00Z and time < @2026-05-05T00:00:00Z",
        "count",
    ),
    "count with a predicate, all types": ("Gauge where value > 0.9", "count"),
    "rows, one type": ("G777", "rows"),
    "rows with a predicate, one type": ("G777 where value > 0.9", "rows"),
    "rows with a predicate, 111 types": ("G5 where value > 0.9 and number < 500", "rows"),
}


# -- the lake ----------------------------------------------------------------------------------------------------------


def declare_types() -> list[type[Event]]:
    """A root with all attributes, and below it 10, 100 and 1,000 types."""
    fields = {"value": float | None, "number": int | None, **dict.fromkeys(CARRIED, bool | None)}
    made: Any = EventMeta("Gauge", (Event,), {"__annotations__": fields} | dict.fromkeys(fields))
    levels: list[list[Any]] = [[made]]
    for _ in range(3):
        parents = [parent for parent in levels[-1] for _ in range(10)]
        first = sum(map(len, levels))
        levels.append([EventMeta(f"G{first + at}", (parent,), {}) for at, parent in enumerate(parents)])
    return [cls for level in levels for cls in level]


def make_lake(path: Path, events: int) -> None:
    """Create a lake and write its events, one commit a day."""
    types = declare_types()
    store = Store(path)
    file = CatalogFile(store.files, store.path)
    file.register(types)
    store.commit(msgspec.structs.replace(store.begin("create"), catalog=file.text))
    known = Types(file.catalog)
    for day in range(DAYS):
        _add_day(store, known, [name_of(cls) for cls in types[1:]], day, events // DAYS)


def _add_day(store: Store, known: Types, names: list[str], day: int, rows: int) -> None:
    rng, draft = np.random.default_rng(day), store.begin("ingest")
    writer = TableWriter(Origin(store.path, draft.id, day, "memory", day, draft.at_us))
    counts = np.bincount(rng.integers(0, len(names), rows), minlength=len(names)).tolist()
    first = 0
    for name, count in zip(names, counts, strict=True):
        if count:
            plan = known.expected(name)
            writer.add(Columns(name, _random_columns(rng, day, first, count)), plan)
            first += count
    report, state = writer.finish(), store.state()
    parts = tuple(Part(each.table, each.folder, (each.file,), each.shapes) for each in report.files)
    shapes = new_shapes(state.shapes, state.shape_counts, report.shapes)
    store.commit(msgspec.structs.replace(draft, added=parts, shapes=shapes, newest_us=report.newest_us))


def _random_columns(rng: np.random.Generator, day: int, first: int, count: int) -> pa.RecordBatch:
    start = int((FIRST_DAY + timedelta(days=day)).timestamp()) * 1_000_000
    times = pa.array(start + np.sort(rng.integers(0, 86_400_000_000, count)), pa.int64()).cast(INSTANT)
    columns = {"time": times, "value": pa.array(rng.random(count)), "number": pa.array(rng.integers(0, 1000, count))}
    for name in CARRIED:
        columns[name] = pa.array(np.ones(count, bool), mask=rng.random(count) < 0.5)
    columns |= {POSITION: pa.array(np.arange(first, first + count)), RECORDED: times}
    return pa.RecordBatch.from_pydict(columns)


# -- contestants -------------------------------------------------------------------------------------------------------


class Arena:
    """A lake and a connection of DuckDB."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lake = LakeReader(path)
        self.duck = duckdb.connect()
        self.duck.execute("set threads to 2; set timezone = 'UTC'")

    def genus(self, text: str, what: str) -> int:
        """Ask the lake."""
        found = self.lake.read(text)
        return found.count() if what == "count" else int(found.to_arrow().num_rows)

    def question(self, text: str, what: str) -> str:
        """The same question for DuckDB."""
        lake = self.lake
        asked = lake.subscription(text)
        (names,) = matching_types(asked, lake.catalog).values()
        files = lake.store.file_paths(lake.state().parts.values())
        where = str(asked.where).replace("@", "timestamptz '").replace("Z", "Z'") if asked.where is not None else "true"
        listed = ", ".join(f"'{name}'" for name in names)
        columns = "count(*)" if what == "count" else ", ".join(lake.read(text).columns[:-1])
        return f"select {columns} from read_parquet({files}) where _type in ({listed}) and ({where})"

    def ask_duckdb(self, question: str, what: str) -> int:
        """Ask DuckDB."""
        found = self.duck.sql(question)
        if what == "count":
            (row,) = found.fetchall()
            return int(row[0])
        return int(found.to_arrow_table().num_rows)


def least(contestants: dict[str, Callable[[], int]], rounds: int) -> tuple[dict[str, float], int]:
    """The least seconds of each contestant, which take turns, and the answer, which must be the same."""
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    answers = set()
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            answers.add(run())
            spent[name].append(time.perf_counter() - start)
    assert len(answers) == 1, answers
    return {name: min(each) for name, each in spent.items()}, answers.pop()


def processes(arena: Arena, text: str) -> dict[str, Callable[[], int]]:
    """The same count by a command and by a program with DuckDB, process start included."""
    command = [sys.executable, "-m", "genus", "lake", "read", str(arena.path), text, "--count"]
    program = f"import duckdb; print(duckdb.sql({arena.question(text, 'count')!r}).fetchall()[0][0])"
    return {"genus": lambda: _printed(command), "duckdb": lambda: _printed([sys.executable, "-c", program])}


def _printed(command: list[str]) -> int:
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def run(path: Path, rounds: int = ROUNDS) -> list[list[str]]:
    """The rows of the table: question, answer, seconds and their ratio."""
    arena = Arena(path)
    rows = []
    for title, (text, what) in QUESTIONS.items():
        question = arena.question(text, what)
        times, answer = least(
            {
                "genus": lambda text=text, what=what: arena.genus(text, what),  # type: ignore[misc]
                "duckdb": lambda question=question, what=what: arena.ask_duckdb(question, what),  # type: ignore[misc]
            },
            rounds,
        )
        rows.append(_row(title, answer, times))
    for title, text in {"one type": "G777", "one type and a predicate": "G777 where value > 0.9"}.items():
        times, answer = least(processes(arena, text), rounds)
        rows.append(_row(f"a new process: count, {title}", answer, times))
    return rows


def _row(title: str, answer: int, times: dict[str, float]) -> list[str]:
    genus, duck = times["genus"], times["duckdb"]
    return [title, f"{answer:,}", f"{genus:.3f} s", f"{duck:.3f} s", f"{genus / duck:.2f}"]


def table(events: int = 10_000_000, path: Path | None = None) -> str:
    """Make the lake, unless it is there, and measure."""
    with tempfile.TemporaryDirectory() as folder:
        lake = path or Path(folder) / "lake"
        if not lake.exists():
            make_lake(lake, events)
        return markdown(["question", "answer", "genus", "DuckDB", "times"], run(lake))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--lake", type=Path, help="A lake that is made there, and used again by the next run.")
    given = parser.parse_args()
    print(table(given.events, given.lake))
