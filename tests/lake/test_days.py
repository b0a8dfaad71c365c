"""Days that cannot match are not read, for predicates on time of any form, and nothing that matches is lost."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from genus import Event, Maybe, Subscription, this
from genus.bus import RecordingWriter
from genus.errors import SubscriptionWarning
from genus.filters.types import Predicate
from genus.lake import Lake
from genus.lake._query.selection import day_test
from genus.model._types import micros_of_time

pytestmark = pytest.mark.filterwarnings(f"ignore::{SubscriptionWarning.__module__}.{SubscriptionWarning.__name__}")

RECORDED = datetime(2026, 5, 3, 9, tzinfo=UTC)
DAYS = [datetime(*ymd, tzinfo=UTC) for ymd in [(1, 1, 1), (1582, 10, 10), (1969, 12, 31), (2026, 5, 3), (9999, 12, 31)]]
STEPS = [timedelta(0), timedelta(microseconds=1), timedelta(hours=12), timedelta(days=1, microseconds=-1)]
TIMES = sorted(day + step for day in DAYS for step in STEPS)


class Dated(Event):
    number: int
    until: Maybe[datetime] = None


times = st.sampled_from(TIMES)
tests = st.one_of(
    st.builds(lambda time: this.time < time, times),
    st.builds(lambda time: this.time >= time, times),
    st.builds(lambda time: this.time == time, times),
    st.builds(lambda time: this.time != time, times),
    st.builds(lambda low, high: this.time.between(low, high), times, times),
    st.builds(this.time.isin, st.lists(times, min_size=1, max_size=4)),
    st.sampled_from([this.time.is_present(), this.number > 6, this.until > this.time, this.until >= TIMES[6]]),
)
predicates = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds(lambda one: ~one, inner),
        st.builds(lambda one, other: one & other, inner, inner),
        st.builds(lambda one, other: one | other, inner, inner),
    ),
    max_leaves=6,
)
EVENTS = [
    *(Dated(number=number, time=time, until=TIMES[-number]) for number, time in enumerate(TIMES)),
    Dated(number=3),
    Dated(number=8, until=TIMES[9]),
]


def day_of(event: Event) -> date:
    """The day of the path that an event is stored under."""
    return (event.time or RECORDED).date()


@pytest.mark.slow
@given(predicates, st.sampled_from([(), "time"]), st.booleans())
@settings(max_examples=300)
def test_a_day_with_a_matching_event_is_never_skipped(where: Predicate, named: tuple[()] | str, lacks: bool) -> None:
    """By the reference, for every predicate and event, also for events without a time."""
    asked = Subscription(Dated, where=where, has=() if lacks else named, lacks=named if lacks else ())
    assert all(map(day_test(asked), (day_of(event) for event in EVENTS if asked.matches(event))))


WEEKS = [date(2026, 5, 1) + timedelta(days=number) for number in range(-9, 20)]
"""Days around the first of May."""


@pytest.mark.parametrize(
    ("where", "days"),
    [
        ("time >= @2026-05-01T06:00:00Z and time < @2026-05-02T00:00:00Z", [0]),
        ("@2026-05-02T06:00:00Z >= time and @2026-05-01T00:00:00Z <= time", [0, 1]),
        ("time in (@2026-05-01T06:00:00Z, @2026-05-09T06:00:00Z)", [0, 8]),
        ("not time < @2026-05-01T06:00:00Z and not time > @2026-05-04T00:00:00Z", [0, 1, 2, 3]),
        ("not (time < @2026-05-01T06:00:00Z or time >= @2026-05-04T00:00:00Z)", [0, 1, 2]),
        ("time == @2026-05-01T06:00:00Z or time == @2026-05-03T06:00:00Z and number > 3", [0, 2]),
        ("time < @2026-05-01T06:00:00Z and time > @2026-05-03T06:00:00Z", []),
        ("time is absent and time > @2026-05-03T06:00:00Z", []),
        ("time > @2026-05-03T06:00:00Z or time is absent", None),
        ("time > @2026-05-03T06:00:00Z or number > 3", None),
        ("number > 3", None),
    ],
)
def test_predicates_on_time_skip_days(where: str, days: list[int] | None) -> None:
    """Constants on either side, lists, negations, conjunctions and alternatives; none if other events can match."""
    found = [day for day in WEEKS if day_test(Subscription(Dated, where=where))(day)]
    assert found == (WEEKS if days is None else [date(2026, 5, 1 + number) for number in days])


def test_attributes_that_are_asked_for_decide_about_events_without_a_time() -> None:
    """With `lacks`, only events without a time match, whose day is that of their recording."""
    late = this.number > 3
    assert all(map(day_test(Subscription(Dated, lacks="time", where=late)), WEEKS))
    assert all(map(day_test(Subscription(Dated, has="time", where=(this.time >= TIMES[-1]) | late)), WEEKS))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Events from year 1 to year 9999, and some without a time."""
    folder = tmp_path_factory.mktemp("days")
    with RecordingWriter(folder / "days.genus") as writer:
        for event in EVENTS:
            writer.write(event, micros_of_time(RECORDED))
    made = Lake.create(spark, folder / "lake", Dated)
    assert made.ingest(folder / "days.genus").dead == 0
    return made


@pytest.mark.slow
@given(predicates)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_agrees_with_the_reference(lake: Lake, where: Predicate) -> None:
    """Whatever days are skipped, the events are those that match one by one."""
    asked = Subscription(Dated, where=where)
    found = lake.read(asked).select("number", "time").toArrow().to_pylist()
    wanted = [{"number": event.number, "time": event.time} for event in EVENTS if asked.matches(event)]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_the_plan_counts_the_days_that_are_read(lake: Lake) -> None:
    """Days in several intervals are read, and no others."""
    (scan,) = lake.explain(Subscription(Dated, where=this.time.isin([TIMES[0], TIMES[-1]]))).tables
    assert (scan.days, scan.days_read) == (len(DAYS), 2)
