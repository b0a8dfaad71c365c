"""The Spark target answers as `Subscription.matches` does, and leaves to the files what they can decide.

That every operator means the same at every edge value is in tests/test_truth_table.py.
"""

import itertools
import math
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pyspark.sql.functions as F
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession

import genus.filters._expression as x
from genus import Event, Maybe, Subscription, this
from genus.errors import SubscriptionError
from genus.filters._evaluate import COMPARE, evaluate, round_to_float32
from genus.filters.types import Predicate, Term
from genus.lake._tables.commits import POSITION, TYPE
from genus.lake._tables.lake_tables import spark_schema
from genus.lake._tables.part_writer import attribute_schema
from genus.model import Float32, Int8, UInt8, UInt32, vector
from genus.model._types import INT64_MAX, INT64_MIN
from genus.model.types import FloatType, OpaqueType
from genus.targets import spark
from genus.targets.spark._compiler import SparkCompiler, StoredTest, stored_constant, stored_test
from genus.testing import compiled_expressions, spark_session
from genus.testing._generator import pool
from tests.generators import Generator, Sampler, edge_events, edge_subscriptions

from ..lake.stored import answers, by_family, stored_frame, truths

ROOT = Path(__file__).parents[2]
INF, NAN = math.inf, math.nan
DAY = datetime(2024, 5, 1, tzinfo=UTC)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Gauge(Event):
    """A family with a column of every stored type that files keep statistics of."""

    tiny: Maybe[Int8] = None
    octet: Maybe[UInt8] = None
    word: Maybe[UInt32] = None
    number: Maybe[int] = None
    single: Maybe[Float32] = None
    real: Maybe[float] = None
    text: Maybe[str] = None
    blob: Maybe[bytes] = None
    flag: Maybe[bool] = None
    span: Maybe[timedelta] = None
    colour: Maybe[Colour] = None


class Meter(Gauge): ...


def gauge(n: int) -> Gauge:
    """The n-th of a series in which every ordered attribute grows."""
    return Gauge(
        time=DAY + timedelta(hours=n), tiny=n, octet=n, word=n, number=n, single=n, real=n, text=f"t{n}",
        blob=bytes([n]), flag=n > 4, span=timedelta(seconds=n), colour=Colour.RED if n < 5 else Colour.BLUE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with compiled_expressions(made := spark_session()):
        yield made


@pytest.fixture(scope="module")
def gauges(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Ten gauges in ten row groups; the last also has a twin without any value."""
    return stored_frame(session, [*map(gauge, range(10)), Meter()], tmp_path_factory.mktemp("gauges"), 1)


def plan(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return text


def pushed(frame: DataFrame) -> str:
    """The filters handed to the Parquet reader."""
    found = re.search(r"PushedFilters: \[(.*?)\], ReadSchema", plan(frame))
    assert found is not None, plan(frame)
    return found[1]


def scanned(frame: DataFrame) -> int:
    """How many rows the reader gave out, after it passed over row groups."""
    planned = frame._jdf.queryExecution().executedPlan()
    planned.executeCollect()
    rows: int = planned.collectLeaves().head().metrics().apply("numOutputRows").value()
    return rows


# -- what reaches the files --------------------------------------------------------------------------------------------

REACHING: list[tuple[Predicate, str, int]] = [
    (this.tiny > 7, "GreaterThan(tiny,7)", 2),
    (this.octet <= 1, "LessThanOrEqual(octet,1)", 2),
    (this.word == 3, "EqualTo(word,3)", 1),
    (this.number < 2, "LessThan(number,2)", 2),
    (this.number.isin([2, 5]), "In(number, [2,5])", 2),
    (this.single > 7.1, "GreaterThan(single,7.1)", 2),
    (this.single >= 8, "GreaterThanOrEqual(single,8.0)", 2),
    (this.real > 7.5, "GreaterThan(real,7.5)", 2),
    (~(this.real > 1), "LessThanOrEqual(real,1.0)", 2),
    (this.real == 0, "GreaterThanOrEqual(real,-0.0), LessThanOrEqual(real,0.0)", 1),
    (this.real.isin([3.0, 4.0]), "In(real, [3.0,4.0])", 2),
    (this.text == "t4", "EqualTo(text,t4)", 1),
    (this.text.startswith("t4"), "StringStartsWith(text,t4)", 1),
    (this.blob >= b"\x08", "GreaterThanOrEqual(blob,", 2),
    (this.flag == True, "EqualTo(flag,true)", 5),  # noqa: E712
    (this.time < DAY + timedelta(hours=3), "LessThan(time,2024-05-01 03:00:00.0)", 3),
    (this.colour == Colour.BLUE, "EqualTo(colour,blue)", 5),
    (this.number.is_absent(), "IsNull(number)", 1),
    ((this.number < 1) | (this.real > 8), "Or(LessThan(number,1),And(GreaterThan(real,8.0)", 2),
    (~((this.number >= 1) & (this.real <= 8)), "Or(LessThan(number,1),And(GreaterThan(real,8.0)", 2),
]


@pytest.mark.parametrize(("where", "filters", "rows"), REACHING, ids=[str(where) for where, *_ in REACHING])
def test_a_comparison_with_a_constant_is_decided_on_files(
    gauges: DataFrame, where: Predicate, filters: str, rows: int
) -> None:
    """It stands on the bare column, with a constant of its type, and row groups without a match are not read."""
    made = spark.compile(Subscription(Gauge, where=where))
    assert ", on files" in made.explain()
    assert "on the rows left" not in made.explain()
    found = made.filter(gauges)
    assert filters in pushed(found)
    assert scanned(found) == rows


@pytest.mark.parametrize(
    "where",
    [
        this.number > this.tiny,
        this.number * 2 > 5,
        this.number > 1.5,
        this.single.isin([0.1, 0.5]),
        this.tiny < 1000,
        -this.real < 3,
    ],
    ids=str,
)
def test_what_is_computed_is_tested_on_the_rows_left(gauges: DataFrame, where: Predicate) -> None:
    """Arithmetic, two attributes, and constants that the column's type does not hold."""
    made = spark.compile(Subscription(Gauge, where=(this.octet > 0) & where))
    part = made.subscription.where
    assert isinstance(part, x.And)
    assert f"octet > 0, on files; {part.operands[1]}, on the rows left" in made.explain()
    assert "GreaterThan(octet,0)" in pushed(made.filter(gauges))


def test_type_and_presence_are_decided_on_files(gauges: DataFrame) -> None:
    """Types are few to a file, and absent attributes are counted there."""
    found = spark.compile(Subscription(Gauge, has="number", lacks="source")).filter(gauges)
    assert "In(_type, [Gauge,Meter]), IsNotNull(number), IsNull(source)" in pushed(found)
    assert scanned(spark.compile(Subscription(Meter)).filter(gauges)) == 1


def test_only_the_columns_that_are_asked_for_are_read(gauges: DataFrame) -> None:
    found = spark.compile(Subscription(Gauge, where=this.number > 1)).filter(gauges).select("time")
    assert "ReadSchema: struct<time:timestamp,number:bigint,_type:string>" in plan(found)


def test_days_and_commits_are_still_pruned_beside_a_subscription(session: SparkSession, tmp_path: Path) -> None:
    """A condition on columns in paths, put before or after, chooses folders."""
    for day in (1, 2):
        folder = tmp_path / f"_day=2024-05-0{day}"
        folder.mkdir()
        stored_frame(session, [gauge(day)], folder)
    frame = session.read.parquet(str(tmp_path)).where("_day = DATE'2024-05-02'")
    found = spark.compile(Subscription(Gauge, where=this.number > 0)).filter(frame)
    assert "2024-05-02" in plan(found).split("PartitionFilters: [")[1].split("PushedFilters")[0]
    assert [row.number for row in found.collect()] == [2]


# -- files never hide a match ------------------------------------------------------------------------------------------


def filtered(frame: DataFrame, subscriptions: Sequence[Subscription]) -> Iterator[set[int]]:
    """The positions of the rows that each filter leaves, read from the files by each filter for itself."""
    for start in range(0, len(subscriptions), 40):
        part = subscriptions[start : start + 40]
        frames = [spark.compile(one).filter(frame).select(F.lit(n).alias("n"), POSITION) for n, one in enumerate(part)]
        rows = together(frames).collect()
        yield from ({row[POSITION] for row in rows if row.n == n} for n in range(len(part)))


def together(frames: list[DataFrame]) -> DataFrame:
    """A union in the form of a balanced tree, for a long chain takes Spark long to plan."""
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return together(frames[:middle]).union(together(frames[middle:]))


def assert_filters_find(session: SparkSession, events: list[Event], asked: list[Subscription], folder: Path) -> None:
    frame = stored_frame(session, events, folder, rows_per_group=1)
    for one, found in zip(asked, filtered(frame, asked), strict=True):
        assert found == {n for n, event in enumerate(events) if one.matches(event)}, str(one)


@pytest.mark.slow
def test_files_tell_the_zeros_apart_but_subscriptions_do_not(session: SparkSession, tmp_path: Path) -> None:
    """The dictionary of a row group with -0.0 alone does not hold 0.0, and is still read for `== 0.0`; NaN is not."""
    events: list[Event] = [Gauge(real=value, single=value) for value in (0.0, -0.0, 1.0, -1.0, INF, NAN)]
    events.append(Gauge())
    tests: list[Callable[[Term], Predicate]] = [
        lambda term: term == 0.0,
        lambda term: term == -0.0,
        lambda term: term >= 0.0,
        lambda term: term <= -0.0,
        lambda term: term.isin([0.0, 1.0]),
        lambda term: term.isin([-0.0, *range(20)]),
    ]
    wheres = [*(test(this.real) for test in tests), *(~test(this.real) for test in tests), tests[0](this.single)]
    asked = [Subscription(Gauge, where=where) for where in wheres]
    assert_filters_find(session, events, asked, tmp_path)


def test_files_are_not_asked_about_days_that_another_calendar_does_not_have(
    session: SparkSession, tmp_path: Path
) -> None:
    """Spark's own filters lose matches near October 1582; times before 1900 are compared row by row instead."""
    bound, inside = datetime(1582, 10, 10, tzinfo=UTC), datetime(1582, 10, 12, tzinfo=UTC)
    asked = [Subscription(Gauge, where=this.time > bound), Subscription(Gauge, where=this.time.isin([inside]))]
    assert all("on the rows left" in spark.compile(one).explain() for one in asked)
    assert_filters_find(session, [Gauge(time=inside), Gauge(time=bound), Gauge(time=DAY)], asked, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["time", "tiny", "octet", "number", "real", "single", "text", "blob", "span"])
def test_no_file_that_is_passed_over_holds_a_match(session: SparkSession, tmp_path: Path, name: str) -> None:
    """Each edge value in a row group of its own, and each filter reads for itself."""
    assert_filters_find(session, edge_events(name), list(edge_subscriptions(name)), tmp_path)


FLOATS = st.floats(allow_nan=False)


@given(st.floats(allow_nan=False, width=32), FLOATS)
def test_a_bound_moved_to_32_bits_means_the_same(value: float, constant: float) -> None:
    """For every number of 32 bits, however the constant lies between two of them."""
    beside = [math.nextafter(value, math.inf), math.nextafter(value, -math.inf)]
    for each, op, wanted in itertools.product([constant, value, *beside], COMPARE, [True, False]):
        _check_moved_bound(value, each, op, wanted)


def _check_moved_bound(value: float, constant: float, op: str, wanted: bool) -> None:
    test = stored_test(x.Compare(op, x.AttributeRef("single", FloatType(32)), x.Literal(constant, FloatType())), wanted)
    if test is None:
        assert round_to_float32(constant) != constant
        assert op in ("==", "!=")
    else:
        assert all(round_to_float32(one) == one for one in test.constants)
        assert _holds(test, value) is (COMPARE[op](value, constant) is wanted)


@given(
    FLOATS | st.sampled_from([0.0, -0.0]),
    FLOATS | st.sampled_from([0.0, -0.0]),
    st.sampled_from(["<", "<=", ">", ">="]),
)
def test_what_holds_also_holds_in_the_order_of_files(value: float, constant: float, op: str) -> None:
    """Files order numbers by their bits, so -0.0 before 0.0; a match must not be lost by that."""
    test = stored_test(x.Compare(op, x.AttributeRef("real", FloatType()), x.Literal(constant, FloatType())))
    assert test is not None
    if COMPARE[op](value, constant):
        assert COMPARE[test.op](_rank(value), _rank(test.constants[0]))


def _holds(test: StoredTest, value: float) -> bool:
    return value in test.constants if test.op == "in" else COMPARE[test.op](value, test.constants[0])


def _rank(number: float) -> int:
    """The place of a number in the total order of doubles."""
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if bits >= 0 else -(bits & (2**63 - 1)) - 1


# -- the same meaning in every session and through every door ----------------------------------------------------------


@pytest.mark.slow
def test_the_sessions_settings_do_not_matter(session: SparkSession) -> None:
    """Neither its time zone, also before there were any and where daylight saving skips hours, nor its ANSI mode."""
    switches = [datetime(2024, 3, 10, 7, tzinfo=UTC), datetime(2024, 11, 3, 5, 30, tzinfo=UTC)]
    events = [*edge_events("time"), *(Sampler(time=switch, span=timedelta(hours=1)) for switch in switches)]
    events += [Sampler(number=INT64_MAX), Sampler(number=INT64_MIN)]
    asked = [*edge_subscriptions("time"), *edge_subscriptions("span")]
    asked += [Subscription(Sampler, where=this.time + timedelta(days=1) > switch) for switch in switches]
    wheres = (this.number + 1 < 0, this.number - 1 > 0, -this.number < 0, this.number * 2 != 0, this.number / 0 > 0)
    asked += [Subscription(Sampler, where=made) for where in wheres for made in (where, ~where)]
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert answers(session, asked, events) == [[one.matches(event) for event in events] for one in asked]
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")
        session.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_constants_may_be_columns_of_parameters(session: SparkSession, tmp_path: Path, seed: int) -> None:
    """A compiler with other columns for attributes and constants gives the same answers."""
    generator = Generator(seed)
    asked, events = generator.subscriptions(60), generator.events(40)
    for family, positions in by_family(events):
        here = [events[position] for position in positions]
        wheres = [one.where for one in asked if one.where is not None and vector(one.type).scope == family]
        constants: list[Column] = []

        def parameter(literal: x.Literal, constants: list[Column] = constants) -> Column:
            constants.append(SparkCompiler().visit(literal).alias(f"k{len(constants)}"))
            return F.col(f"given.k{len(constants) - 1}")

        compiler = SparkCompiler(lambda name: F.col(f"event.{name}"), parameter)
        conditions = [compiler.visit(where) for where in wheres]
        if not constants:
            continue
        frame = stored_frame(session, here, tmp_path)
        frame = frame.select(POSITION, F.struct("*").alias("event"), F.struct(*constants).alias("given"))
        for where, found in zip(wheres, truths(frame, conditions), strict=True):
            assert found == [evaluate(where, event) is True for event in here], str(where)


def test_a_lake_says_which_types_match(gauges: DataFrame) -> None:
    """Names of types that this process never declared, or none at all."""
    made = spark.compile(Subscription(Gauge, where=this.number > 7))
    assert made.filter(gauges).count() == 2
    assert made.filter(gauges, types=["Gauge", "Unheard"]).count() == 2
    assert made.filter(gauges, types=["Meter"]).count() == 0
    assert made.filter(gauges, types=[]).count() == 0


def test_a_frame_without_a_column_that_is_asked_for_is_refused(gauges: DataFrame) -> None:
    made = spark.compile(Subscription(Gauge, has="place", where=this.number > 7))
    with pytest.raises(SubscriptionError, match="the frame has no column number; filter before"):
        made.filter(gauges.drop("number"))
    with pytest.raises(SubscriptionError, match="the frame has no column _type"):
        made.filter(gauges.drop(TYPE))


def test_constants_have_the_types_that_a_lake_stores(session: SparkSession) -> None:
    """Each attribute type's constant is of its column's type, so that no cast hides the column from the files."""
    held = [one for one in vector(Sampler) if not isinstance(one.type, OpaqueType)]
    made = [stored_constant(_plain(pool(one.type)[0]), one.type).alias(one.name) for one in held]
    found = session.range(1).select(*made).schema
    stored = spark_schema(attribute_schema(vector(Sampler)))
    assert {field.name: field.dataType for field in found} == {one.name: stored[one.name].dataType for one in held}


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def test_a_condition_is_false_or_null_where_it_is_not_true(gauges: DataFrame) -> None:
    """The other question has its own column: `wanted` asks where a predicate is false, and unknown is neither."""
    where = Subscription(Gauge, where=this.number > 7).where
    assert where is not None
    is_true, is_false = (SparkCompiler().visit(where, wanted) for wanted in (True, False))
    assert [gauges.where(one).count() for one in (is_true, is_false, SparkCompiler().visit(where))] == [2, 8, 2]


# -- explain -----------------------------------------------------------------------------------------------------------


def test_explain_separates_files_from_rows() -> None:
    fast = Subscription(
        Gauge, has="place", lacks="source", where=((this.real > 1) | (this.tiny == 2)) & (this.real > this.number)
    )
    assert spark.compile(fast).explain().splitlines() == [
        "spark: Gauge has place lacks source where (real > 1.0 or tiny == 2) and real > number",
        "  type: _type in (Gauge, Meter), on files",
        "  attributes: place is not null and source is null, on files",
        "  contents: (real > 1.0 or tiny == 2), on files; real > number, on the rows left",
        "  reads: _type, source, place, tiny, number, real",
    ]
    assert "contents: any" in spark.compile(Subscription(Gauge)).explain()


def test_explain_starts_no_session() -> None:
    """Where there is no Java, a subscription can still be explained."""
    command = [sys.executable, "-m", "genus", "explain", "-t", "examples/traffic.py", "--target", "spark"]
    without_java = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    done = subprocess.run(
        [*command, "Loop where speed > 30"], capture_output=True, text=True, check=False, cwd=ROOT, env=without_java
    )
    assert done.returncode == 0, done.stderr
    assert "contents: speed > 30.0, on files" in done.stdout
