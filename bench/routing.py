"""Routing on Spark: which of very many subscriptions match 10,000,000 events, against what one would write otherwise.

The events are of 1,110 types, a tree of three levels with ten children each, and carry any of four attributes: 17,760
shapes. Subscriptions ask for a random type and two or three attributes, present or absent; others for a type and an
equality (one of 1,000 values) or a range (of 0.25 % of the values). All contestants read the same Parquet files, take
turns, and must give the same answer. The naive join and the Python UDF grow with events times subscriptions: they are
measured with few and extrapolated, which is said. DuckDB runs in this process, on two threads, with the plans that were
the fastest of several.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from bench.timing import goal, markdown
from genus import Event, Subscription, this
from genus.catalog import Catalog
from genus.lake._query.route_job import RouteJob
from genus.lake._query.route_plan import RoutePlan, plan_routes
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._tables.commits import Part, Shape, StoredFile
from genus.lake._tables.file_systems import LocalFileSystem
from genus.lake._tables.store import Store
from genus.model import name_of
from genus.model._event import EventMeta

FILE_ROWS = 1_000_000
CARRIED = ("p", "q", "r", "s")
VALUES = 1000
WIDTH = 0.0025
FIRST_DAY_US = 1_777_593_600_000_000
ROUNDS = 3


# -- types, events, subscriptions --------------------------------------------------------------------------------------


def declare_types() -> list[type[Event]]:
    """A root with all attributes, and below it 10, 100 and 1,000 types."""
    carried = dict.fromkeys(CARRIED, bool | None)
    fields = {"value": float | None, "number": int | None, **carried}
    made: Any = EventMeta("Measured", (Event,), {"__annotations__": fields} | dict.fromkeys(fields))
    levels: list[list[Any]] = [[made]]
    for _ in range(3):
        parents = [parent for parent in levels[-1] for _ in range(10)]
        first = sum(map(len, levels))
        levels.append([EventMeta(f"M{first + at}", (parent,), {}) for at, parent in enumerate(parents)])
    return [cls for level in levels for cls in level]


class World:
    """The types, their shapes, and events in files; everything from one seed."""

    def __init__(self, folder: Path, events: int) -> None:
        self.types = declare_types()
        self.catalog = Catalog()
        self.catalog.register(*self.types)
        vector = self.catalog.vector(self.types[0])
        self.always = vector.presence_of(["value", "number"])
        self.bits = [vector.presence_of([name]) for name in CARRIED]
        self.tags = [self.always | sum(bit for at, bit in enumerate(self.bits) if mask >> at & 1) for mask in range(16)]
        family = name_of(self.types[0])
        self.family = family
        made = [
            Shape(family, name_of(cls), str(self.catalog.code(cls)), f"{tag:x}")
            for cls in self.types[1:]
            for tag in self.tags
        ]
        self.shapes = {shape.id: shape for shape in made}
        self.folder = folder
        self.rows_per_shape: dict[Path, dict[int, int]] = {}
        self.files = [self._write(folder / str(at) / "events.parquet", at) for at in range(events // FILE_ROWS)]

    def parts(self, files: int, *, counted: bool = False) -> list[Part]:
        """The first files, each in a folder of its own; `counted` with the rows per shape, as a commit has them."""
        return [
            Part(
                self.family,
                path.parent.name,
                (StoredFile(path.name, FILE_ROWS, path.stat().st_size, ""),),
                self.rows_per_shape[path] if counted else None,
            )
            for path in self.files[:files]
        ]

    def _write(self, path: Path, seed: int) -> Path:
        path.parent.mkdir()
        rng = np.random.default_rng(seed)
        which = rng.integers(0, len(self.shapes), FILE_ROWS)
        numbers = np.array(list(self.shapes))
        rows = np.bincount(which, minlength=len(numbers)).tolist()
        self.rows_per_shape[path] = dict(zip(self.shapes, rows, strict=True))
        codes = np.array([int(shape.code) for shape in self.shapes.values()])
        tags = np.array([shape.bits for shape in self.shapes.values()])
        columns = {
            "_shape": numbers[which],
            "code": codes[which],
            "tag": tags[which],
            "type": (which // 16).astype(np.int32),
            "value": rng.random(FILE_ROWS),
            "number": rng.integers(0, VALUES, FILE_ROWS),
        }
        pq.write_table(pa.table(columns), path, row_group_size=FILE_ROWS // 4, compression="zstd")
        return path

    def by_attributes(self, count: int) -> list[RouteEntry]:
        """Subscriptions to a type and two or three attributes that are there or not."""
        rng = np.random.default_rng(count)
        types = rng.integers(1, len(self.types), count).tolist()
        asked = rng.permuted(np.tile(np.arange(4), (count, 1)), axis=1)[:, :3].tolist()
        three, has = (rng.random(count) < 0.6).tolist(), (rng.random((count, 3)) < 0.5).tolist()
        made = []
        for number in range(count):
            tests = list(zip(asked[number], has[number], strict=True))[: 3 if three[number] else 2]
            present, absent = ([CARRIED[at] for at, wanted in tests if wanted is side] for side in (True, False))
            made.append(RouteEntry(f"s{number}", Subscription(self.types[types[number]], has=present, lacks=absent)))
        return made

    def by_value(self, count: int) -> list[RouteEntry]:
        """Subscriptions to a type and a number."""
        rng = np.random.default_rng(count)
        types, values = rng.integers(1, len(self.types), count).tolist(), rng.integers(0, VALUES, count).tolist()
        rows = zip(types, values, strict=True)
        return [RouteEntry("s", Subscription(self.types[at], where=this.number == value)) for at, value in rows]

    def by_range(self, count: int) -> list[RouteEntry]:
        """Subscriptions to a type and a narrow range of values."""
        rng = np.random.default_rng(count)
        rows = zip(rng.integers(1, len(self.types), count).tolist(), rng.random(count).tolist(), strict=True)
        return [
            RouteEntry("s", Subscription(self.types[at], where=this.value.between(low, low + WIDTH)))
            for at, low in rows
        ]


# -- contestants -------------------------------------------------------------------------------------------------------

Answer = tuple[int, int]
"""How many matches, and the sum of their subscriptions' numbers; a sum of -1 was not asked for."""


class Arena:
    """A session, a DuckDB connection and the files of a world."""

    def __init__(self, spark: SparkSession, world: World) -> None:
        self.spark, self.world = spark, world
        self._schema = spark.read.parquet(str(world.files[0])).schema
        self._lake: Any = SimpleNamespace(
            spark=spark,
            path=str(world.folder),
            catalog=world.catalog,
            store=Store(world.folder, LocalFileSystem()),
            events=lambda family, parts: self.events(len(parts)),
        )
        self._jobs: dict[int, RouteJob] = {}
        self.duck = duckdb.connect()
        self.duck.execute("set threads = 2")

    def events(self, files: int) -> DataFrame:
        """A fresh frame, so that nothing of an earlier run is used again."""
        return self.spark.read.schema(self._schema).parquet(*map(str, self.world.files[:files]))

    def duck_events(self, files: int) -> str:
        """The same files as a table expression of DuckDB."""
        return f"read_parquet([{', '.join(repr(str(path)) for path in self.world.files[:files])}])"

    def scan(self, column: str, files: int) -> Answer:
        """The least that any of them must do."""
        return int(self.events(files).agg(F.max(column)).collect()[0][0] is None), -1

    def job(self, plan: RoutePlan) -> RouteJob:
        """The job of a plan, which sends its tables once."""
        if id(plan) not in self._jobs:
            self._jobs = {id(plan): RouteJob(self._lake, plan)}
        return self._jobs[id(plan)]

    def count(self, plan: RoutePlan, files: int) -> Answer:
        """Genus, counting as on a lake, whose commits have the rows per shape."""
        return self.job(plan).count(self.world.family, self.world.parts(files, counted=True)), -1

    def count_events(self, plan: RoutePlan, files: int) -> Answer:
        """Genus, counting by reading the events."""
        return self.job(plan).count(self.world.family, self.world.parts(files)), -1

    def explode(self, plan: RoutePlan, files: int) -> Answer:
        """Genus, every match a row."""
        rows = self.job(plan).matches(self.world.family, self.world.parts(files, counted=True), ())
        return _answer(rows.agg(F.count(F.lit(1)), F.sum("subscription")).collect()[0])

    def duck_count(self, plan: RoutePlan, files: int) -> Answer:
        """DuckDB, counting with the same tables."""
        own = plan.family(self.world.family)
        assert own is not None
        self.duck.register("sizes", pa.table({"u": own.numbers, "n": own.lists[0].totals}))
        rows = self.duck.sql(f"select sum(n) from {self.duck_events(files)} join sizes on _shape = u").fetchall()
        return int(rows[0][0]), -1

    def duck_explode(self, plan: RoutePlan, files: int) -> Answer:
        """DuckDB with a table of (shape, subscription): faster here than lists that are unnested."""
        own = plan.family(self.world.family)
        assert own is not None
        which, s = own.match(pa.table({"_shape": own.numbers}))
        self.duck.register("matching", pa.table({"u": own.numbers[which], "s": s}))
        self.duck.execute("create or replace temp table flat as select * from matching")
        query = f"select count(*), sum(s) from {self.duck_events(files)} join flat on _shape = u"
        return _answer(self.duck.sql(query).fetchall()[0])

    def duck_values(self, asked: Sequence[RouteEntry], files: int) -> Callable[[], Answer]:
        """DuckDB, hash join on type and number; its table is made beforehand."""
        rows = [(cls, entry.subscription.where.right.value) for entry in asked for cls in entry.subscription.types]  # type: ignore[union-attr]
        type_, which = self._below([cls for cls, _ in rows])
        flat = pa.table({"t": type_, "v": np.array([value for _, value in rows])[which], "s": which})
        self.duck.register("keyed", flat)
        query = f"select count(*), sum(s) from {self.duck_events(files)} e join keyed on e.type = t and e.number = v"
        return lambda: _answer(self.duck.sql(query).fetchall()[0])

    def duck_ranges(self, asked: Sequence[RouteEntry], files: int, bins: int = 400) -> Callable[[], Answer]:
        """DuckDB, hash join on type and bin, then the bounds; its table is made beforehand."""
        bounds = [[part.right.value for part in entry.subscription.where.operands] for entry in asked]  # type: ignore[union-attr]
        low, high = np.array(bounds).T
        type_, which = self._below([entry.subscription.type for entry in asked])
        first, last = (low * bins).astype(np.int64), (high * bins).astype(np.int64)
        times = (last - first + 1)[which]
        row = np.repeat(np.arange(len(which)), times)
        at = np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
        sub = which[row]
        flat = pa.table({"t": type_[row], "b": first[sub] + at, "s": sub, "low": low[sub], "high": high[sub]})
        self.duck.register("keyed", flat)
        on = f"e.type = t and cast(floor(e.value * {bins}) as bigint) = b and e.value between low and high"
        query = f"select count(*), sum(s) from {self.duck_events(files)} e join keyed on {on}"
        return lambda: _answer(self.duck.sql(query).fetchall()[0])

    def _below(self, types: Sequence[type]) -> tuple[Any, Any]:
        """For types that are asked for: every type below, as events have it, and which of them asked."""
        numbers = {cls: number for number, cls in enumerate(self.world.types)}
        below: dict[int, list[int]] = {number: [] for number in numbers.values()}
        for number in range(1, len(numbers)):
            above = number
            while above > 0:
                below[above].append(number - 1)
                above = (above - 1) // 10
        lists = [below[numbers[cls]] for cls in types]
        which = np.repeat(np.arange(len(types)), list(map(len, lists)))
        return np.array([number for each in lists for number in each], np.int32), which

    def naive(self, asked: Sequence[RouteEntry], files: int) -> Answer:
        """A join of events and subscriptions by division and mask."""
        vector, catalog = self.world.catalog.vector(self.world.types[0]), self.world.catalog
        rows = [
            (catalog.code(one.type), vector.presence_of([*one.has, *one.lacks]), vector.presence_of(one.has))
            for one in (entry.subscription for entry in asked)
        ]
        table = self.spark.createDataFrame(rows, "t bigint, mask bigint, want bigint")
        fits = (F.col("code") % F.col("t") == 0) & (F.col("tag").bitwiseAND(F.col("mask")) == F.col("want"))
        return self.events(files).join(F.broadcast(table), fits).count(), -1

    def udf(self, asked: Sequence[RouteEntry], files: int) -> Answer:
        """A Python function of code and tag that knows the answers it gave before."""
        vector, catalog = self.world.catalog.vector(self.world.types[0]), self.world.catalog
        rows = [
            (catalog.code(one.type), vector.presence_of([*one.has, *one.lacks]), vector.presence_of(one.has))
            for one in (entry.subscription for entry in asked)
        ]
        known: dict[tuple[int, int], int] = {}

        def matching(code: int, tag: int) -> int:
            if (code, tag) not in known:
                known[code, tag] = sum(code % t == 0 and tag & mask == interest for t, mask, interest in rows)
            return known[code, tag]

        found = F.udf(matching, "bigint", useArrow=False)("code", "tag")
        return self.events(files).agg(F.sum(found)).collect()[0][0], -1


def _answer(row: Any) -> Answer:
    return int(row[0]), int(row[1] or 0)


def contest(runs: dict[str, Callable[[], Answer]], rounds: int = ROUNDS) -> tuple[dict[str, float], Answer]:
    """The least seconds of each, taking turns; they must give one answer, but for scans."""
    best = dict.fromkeys(runs, float("inf"))
    answers: dict[str, Answer] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.perf_counter()
            answers[name] = run()
            best[name] = min(best[name], time.perf_counter() - started)
    given = [answer for name, answer in answers.items() if "scan" not in name]
    assert len({count for count, _ in given}) <= 1, answers
    assert len({total for _, total in given if total >= 0}) <= 1, answers
    return best, max(given, default=(0, -1))


# -- tables ------------------------------------------------------------------------------------------------------------


def attribute_table(arena: Arena, sizes: Sequence[int]) -> str:
    """Type and attributes alone: counting and writing out, against scan, naive join, UDF and DuckDB."""
    files = len(arena.world.files)
    head = ["type + attributes", "scan", "count", "count by events", "DuckDB count", "rows out", "explode",
            "DuckDB explode", "naive join", "Python UDF", "plan s", "driver MB"]  # fmt: skip
    rows = []
    for size in sizes:
        asked = arena.world.by_attributes(size)
        plan, seconds, memory = planned(asked, arena.world)
        out = files if size <= 100_000 else 1
        counting, _ = contest(
            {
                "scan": lambda: arena.scan("_shape", files),
                "count": lambda plan=plan: arena.count(plan, files),  # type: ignore[misc]
                "events": lambda plan=plan: arena.count_events(plan, files),  # type: ignore[misc]
                "duck": lambda plan=plan: arena.duck_count(plan, files),  # type: ignore[misc]
            }
        )
        exploding, (matches, _) = contest(
            {
                "explode": lambda plan=plan, out=out: arena.explode(plan, out),  # type: ignore[misc]
                "duck": lambda plan=plan, out=out: arena.duck_explode(plan, out),  # type: ignore[misc]
            }
        )
        others = brute_force(arena, asked, plan) if size <= 1000 else {"naive": "–", "udf": "–"}
        note = "" if out == files else f" ({out}M events)"
        cells = [counting["scan"], counting["count"], counting["events"], counting["duck"]]
        rows.append(
            [f"{size:,}", *(f"{cell:.2f}" for cell in cells), f"{matches / 1e6:,.0f}M{note}",
             f"{exploding['explode']:.2f}", f"{exploding['duck']:.2f}", others["naive"], others["udf"],
             f"{seconds:.1f}", f"{memory:.0f}"]
        )  # fmt: skip
    return markdown(head, rows)


def brute_force(arena: Arena, asked: Sequence[RouteEntry], plan: RoutePlan) -> dict[str, str]:
    """What grows with events times subscriptions, on a million events, extrapolated to all."""
    runs: dict[str, Callable[[], Answer]] = {
        "naive": lambda: arena.naive(asked, 1),
        "udf": lambda: arena.udf(asked, 1),
        "count": lambda: arena.count_events(plan, 1),
    }
    best, _ = contest(runs, rounds=1)
    times = len(arena.world.files)
    mark = "" if times == 1 else " (×" + str(times) + ")"
    return {name: f"{best[name] * times:.0f}{mark}" for name in ("naive", "udf")}


def planned(asked: Sequence[RouteEntry], world: World) -> tuple[RoutePlan, float, float]:
    """A plan, the seconds it took and the memory of this process with it."""
    started = time.perf_counter()
    plan = plan_routes(asked, world.shapes, world.catalog)
    return plan, time.perf_counter() - started, resident_mb()


def resident_mb() -> float:
    """The memory this process has now, on Linux; 0 elsewhere."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 1e6
    except OSError:
        return 0.0


def predicate_table(arena: Arena, sizes: Sequence[int]) -> str:
    """One equality or one range each, every match a row, against DuckDB."""
    files = len(arena.world.files)
    rows = []
    for size in sizes:
        for kind, make, duck in (
            ("equality", arena.world.by_value, arena.duck_values),
            ("range", arena.world.by_range, arena.duck_ranges),
        ):
            asked = make(size)
            plan = plan_routes(asked, arena.world.shapes, arena.world.catalog)
            best, (matches, _) = contest(
                {
                    "genus": lambda plan=plan: arena.explode(plan, files),  # type: ignore[misc]
                    "duck": duck(asked, files),
                }
            )
            ours, ratio = f"{best['genus']:.2f}", best["genus"] / best["duck"]
            times = f"{ratio:.2f}×"
            if size == max(sizes) and kind == "equality":
                ours = goal(ours, best["genus"], at_most=1.2, unit=" s")
            if size == max(sizes) and kind == "range":
                times = goal(times, ratio, at_most=1.6, unit="×")
            rows.append([f"{size:,} × {kind}", ours, f"{best['duck']:.2f}", times, f"{matches / 1e6:,.1f}M"])
    return markdown(["type and one predicate each", "genus", "DuckDB", "genus / DuckDB", "rows out"], rows)


# -- running -----------------------------------------------------------------------------------------------------------


@contextmanager
def arena_of(events: int) -> Iterator[Arena]:
    """A world in a temporary folder, and a session of two cores; both are gone afterwards."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), events)
        builder = SparkSession.builder.master("local[2]").appName("genus routing")
        options: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": folder,
        }
        spark = builder.config(map=options).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield Arena(spark, world)
        finally:
            spark.stop()


def tables(quick: bool = False) -> dict[str, str]:
    """Both tables; a quick run has a million events and fewer subscriptions."""
    with arena_of(FILE_ROWS if quick else 10 * FILE_ROWS) as arena:
        sizes = (10, 1000, 10_000) if quick else (10, 1000, 100_000, 1_000_000)
        return {"routing": attribute_table(arena, sizes), "predicates": predicate_table(arena, sizes[1:3])}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="a million events, up to 10,000 subscriptions")
    print(*tables(options.parse_args().quick).values(), sep="\n\n")
