"""Inboxes have every match once, in few files, and each subscriber can read its own."""

import shutil
from collections import Counter as Tally
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from genus import Event, Maybe, Subscription, this
from genus.catalog import Catalog
from genus.errors import LakeError
from genus.lake import Inboxes, Lake, LakeReader, RouteEntry, read_results
from genus.lake._query.route_plan import plan_routes
from genus.lake._stream import delivery
from genus.lake._tables.commits import Shape, count_files
from genus.lake._tables.part_writer import event_schema, file_schema
from genus.lake._tables.store import Store
from tests.lake.roads import ALL, MORNING, Category, Counter, Gate, Radar, Streetside, traffic, write_recording

WANTED = [
    RouteEntry("police", Subscription(Counter, has="place", where=this.speed > 50)),
    RouteEntry("police", Subscription(Radar)),
    RouteEntry("city", Subscription(Streetside)),
    RouteEntry("toll", Subscription(Counter, where=this.category == Category.TRUCK)),
    RouteEntry("porter", Subscription(Gate, where=this.open)),
]


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lake with 200 events, to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    made = Lake.create(spark, folder / "lake", *ALL)
    made.ingest(write_recording(folder / "first.genus", traffic(200)))
    return folder / "lake"


@pytest.fixture
def lake(spark: SparkSession, filled: Path, tmp_path: Path) -> Lake:
    return Lake(spark, shutil.copytree(filled, tmp_path / "lake"))


def expected(events: Iterable[Event], wanted: Iterable[RouteEntry] = WANTED) -> Tally[tuple[str, str, object]]:
    """Every match by subscriber, subscription and the event's time."""
    listed = list(events)
    return Tally(
        (each.subscriber, str(each.subscription), event.time)
        for each in wanted
        for event in listed
        if each.subscription.matches(event)
    )


def delivered(inboxes: Inboxes) -> Tally[tuple[str, str, object]]:
    rows = inboxes.read().select("subscriber", "subscription", "time").toArrow().to_pylist()
    return Tally((row["subscriber"], row["subscription"], row["time"]) for row in rows)


def test_every_match_is_in_its_inbox_once(lake: Lake, tmp_path: Path) -> None:
    """A delivery has the matches of `Subscription.matches`; a second one adds nothing; new events come once."""
    route = lake.route(WANTED)
    first = route.to_inboxes(tmp_path / "inboxes")
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    assert delivered(inboxes) == expected(traffic(200))
    assert first.rows == expected(traffic(200)).total() == route.count()
    assert route.to_inboxes(tmp_path / "inboxes").rows == 0
    lake.ingest(write_recording(tmp_path / "second.genus", traffic(100, first=1000)))
    route.to_inboxes(tmp_path / "inboxes")
    assert delivered(inboxes) == expected([*traffic(200), *traffic(100, first=1000)])


@pytest.mark.slow
def test_compacting_the_lake_delivers_nothing_again(lake: Lake, tmp_path: Path) -> None:
    """A compaction is a version without new events; events in replaced files are still delivered."""
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    lake.ingest(write_recording(tmp_path / "second.genus", traffic(100, first=1000)))
    lake.compact()
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    everything = expected([*traffic(200), *traffic(100, first=1000)])
    assert delivered(inboxes) == everything
    assert inboxes.compact() > 0
    assert delivered(inboxes) == everything
    assert not inboxes.check()


@pytest.mark.slow
def test_a_follower_that_is_behind_goes_on_after_cleaning(lake: Lake, tmp_path: Path) -> None:
    """Events that were compacted with others before they were delivered are told apart by their versions."""
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    lake.ingest(write_recording(tmp_path / "second.genus", traffic(100, first=1000)))
    lake.compact()
    lake.clean(older_than=0)
    assert lake.route(WANTED).to_inboxes(tmp_path / "inboxes").events == 100
    assert delivered(Inboxes(lake.spark, tmp_path / "inboxes")) == expected([*traffic(200), *traffic(100, first=1000)])


@pytest.mark.slow
def test_a_subscriber_reads_its_own(lake: Lake, tmp_path: Path) -> None:
    """By name, of one family with all columns; the filter by subscriber is pushed down."""
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    rows = inboxes.read("toll", family="Counter").collect()
    assert {row["category"] for row in rows} == {"truck"}
    assert inboxes.read("nobody").count() == 0
    tally = {row["subscriber"]: row["events"] for row in inboxes.subscribers().collect()}
    assert tally == Tally(name for name, _, _ in expected(traffic(200)).elements())
    parts = inboxes._store.state().parts.values()
    assert count_files(parts) <= 4, "few files, whatever the number of subscribers"


@pytest.mark.slow
def test_new_subscriptions_get_what_comes_from_then_on(lake: Lake, tmp_path: Path) -> None:
    """A changed list takes effect with the next delivery; nothing is delivered twice."""
    lake.route(WANTED[:2]).to_inboxes(tmp_path / "inboxes")
    later = traffic(50, first=1000)
    lake.ingest(write_recording(tmp_path / "second.genus", later))
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    found = delivered(Inboxes(lake.spark, tmp_path / "inboxes"))
    assert found == expected(traffic(200), WANTED[:2]) + expected(later)


def test_inboxes_belong_to_one_lake(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Another lake's deliveries, and folders that hold something else, are refused."""
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    other = Lake.create(spark, tmp_path / "other", *ALL)
    with pytest.raises(LakeError, match="choose another folder"):
        other.route(WANTED).to_inboxes(tmp_path / "inboxes")
    with pytest.raises(LakeError, match="choose another folder"):
        lake.route(WANTED).to_inboxes(lake.path)
    with pytest.raises(LakeError, match="has no inboxes"):
        Inboxes(spark, tmp_path / "nothing")


@pytest.mark.slow
def test_subscriptions_come_in_many_forms(lake: Lake, tmp_path: Path) -> None:
    """A list of pairs or texts, a mapping, a file, a table or a function give the same matches."""
    texts = {each.subscriber: str(each.subscription) for each in WANTED[1:]}
    file = tmp_path / "wanted.txt"
    file.write_text("# who: what\n" + "\n".join(f"{name}: {text}" for name, text in texts.items()))
    table = lake.spark.createDataFrame(list(texts.items()), "subscriber string, subscription string")
    for form in (WANTED[1:], list(texts.items()), texts, file, str(file), table, lambda: WANTED[1:]):
        found = [(each.subscriber, str(each.subscription)) for each in lake.route(form).subscriptions()]
        assert sorted(found) == sorted(texts.items())
    assert lake.route(file).count() == expected(traffic(200), WANTED[1:]).total()
    assert lake.route(["Radar"]).frame().select("subscriber").distinct().collect()[0][0] == "Radar"
    counts = {row["subscription"]: row["matches"] for row in lake.route(WANTED).counts().collect()}
    assert counts == {number: expected(traffic(200), [each]).total() for number, each in enumerate(WANTED)}


# -- backfill ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_new_subscription_gets_earlier_events_if_it_asks_for_them(lake: Lake, tmp_path: Path) -> None:
    """From its time on, each match once: not those that it has got, and none again; others get new events only."""
    events = traffic(200)
    middle = events[90].time
    assert middle is not None
    city, police = RouteEntry("city", Subscription(Streetside)), RouteEntry("police", Subscription(Counter))
    lake.route([city]).to_inboxes(tmp_path / "inboxes")
    asking = RouteEntry("toll", Subscription(Radar), since=middle)
    first = lake.route([city, police, asking]).to_inboxes(tmp_path / "inboxes")
    inboxes = Inboxes(lake.spark, tmp_path / "inboxes")
    later = [event for event in events if event.time is not None and event.time >= middle]
    assert delivered(inboxes) == expected(events, [city]) + expected(later, [asking])
    assert first.rows == expected(later, [asking]).total()
    again = lake.route([city, police, asking])
    assert again.to_inboxes(tmp_path / "inboxes").rows == 0
    lake.ingest(write_recording(tmp_path / "more.genus", traffic(20, first=500)))
    again.to_inboxes(tmp_path / "inboxes")
    more = expected(traffic(20, first=500), [city, police, asking])
    assert delivered(inboxes) == expected(events, [city]) + expected(later, [asking]) + more
    whole = RouteEntry("police", Subscription(Counter), since=events[0].time)
    lake.route([city, whole]).to_inboxes(tmp_path / "inboxes")
    assert delivered(inboxes) == expected(events, [city, police]) + expected(later, [asking]) + more


@pytest.mark.slow
def test_a_backfill_that_fails_is_done_again_once(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before the failure is in no commit."""
    listed = tmp_path / "wanted.txt"
    listed.write_text("city: Streetside\n")
    route = lake.route(listed)
    route.to_inboxes(tmp_path / "inboxes")
    listed.write_text("city: Streetside\ntoll since 2026-05-01: Radar\n")
    with monkeypatch.context() as patched:
        patched.setattr(Store, "commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            route.to_inboxes(tmp_path / "inboxes")
    for _ in range(2):
        route.to_inboxes(tmp_path / "inboxes")
    wanted = [RouteEntry("city", Subscription(Streetside)), RouteEntry("toll", Subscription(Radar))]
    assert delivered(Inboxes(lake.spark, tmp_path / "inboxes")) == expected(traffic(200), wanted)


def test_a_time_of_a_backfill_has_a_time_zone(lake: Lake, tmp_path: Path) -> None:
    """A day in a file is one of UTC; a day that does not exist is told."""
    with pytest.raises(LakeError, match="time zone"):
        RouteEntry("toll", Subscription(Radar), since=datetime(2026, 5, 1))
    listed = tmp_path / "wanted.txt"
    listed.write_text("ann since 2026-05-01: Radar\nben since 2026-02-30: Radar\n")
    route = lake.route(listed)
    (entry,) = route.subscriptions()
    assert (entry.subscriber, entry.since) == ("ann", datetime(2026, 5, 1, tzinfo=UTC))
    assert "ben since 2026-02-30: since '2026-02-30' is not a day" in (route.problem or "")


@pytest.mark.slow
def test_a_time_with_an_offset_is_a_time_of_utc(spark: SparkSession, tmp_path: Path) -> None:
    """The day after midnight in the east is the day before in UTC, and the days of a lake are those of UTC."""
    lake, night = Lake.create(spark, tmp_path / "lake", *ALL), datetime(2026, 4, 30, 23, tzinfo=UTC)
    events = traffic(20, start=night)
    lake.ingest(write_recording(tmp_path / "first.genus", events))
    city = RouteEntry("city", Subscription(Streetside))
    lake.route([city]).to_inboxes(tmp_path / "inboxes")
    east = datetime(2026, 5, 1, 0, 30, tzinfo=timezone(timedelta(hours=2)))
    asking = RouteEntry("toll", Subscription(Counter), since=east)
    lake.route([city, asking]).to_inboxes(tmp_path / "inboxes")
    assert delivered(Inboxes(spark, tmp_path / "inboxes")) == expected(events, [city, asking])


@pytest.mark.slow
def test_what_is_listed_twice_is_delivered_once(lake: Lake, tmp_path: Path) -> None:
    """Also if the entries ask for events since different times; the earliest counts."""
    events, radar = traffic(200), Subscription(Radar)
    once = RouteEntry("city", Subscription(Streetside))
    first, later = RouteEntry("toll", radar, since=events[0].time), RouteEntry("toll", radar, since=events[90].time)
    lake.route([once, once]).to_inboxes(tmp_path / "inboxes")
    inboxes, route = Inboxes(lake.spark, tmp_path / "inboxes"), lake.route([once, once, later, first])
    assert delivered(inboxes) == expected(events, [once])
    route.to_inboxes(tmp_path / "inboxes")
    assert delivered(inboxes) == expected(events, [once, first])
    lake.ingest(write_recording(tmp_path / "more.genus", traffic(20, first=500)))
    route.to_inboxes(tmp_path / "inboxes")
    assert delivered(inboxes) == expected([*events, *traffic(20, first=500)], [once, first])


@pytest.mark.slow
def test_a_time_in_a_table_without_an_offset_is_one_of_utc(lake: Lake) -> None:
    """Whatever the time zone of the session; one that is no time is told."""
    rows = [("ann", "2026-05-01"), ("ben", "2026-05-01T02:00:00+02:00"), ("cid", None), ("dan", "May")]
    spark, midnight = lake.spark, datetime(2026, 5, 1, tzinfo=UTC)
    table = spark.createDataFrame(rows, "subscriber string, since string").selectExpr("*", "'Radar' as subscription")
    days = table.where("subscriber = 'ann'").selectExpr("subscriber", "subscription", "date(since) as since")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        route = lake.route(table)
        assert [entry.since for entry in route.subscriptions()] == [midnight, midnight, None]
        assert "row 4 (dan): since 'May' is not a time" in (route.problem or "")
        assert [entry.since for entry in lake.route(days).subscriptions()] == [midnight]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@pytest.mark.slow
def test_a_backfill_of_a_family_without_events_has_no_rows(lake: Lake, tmp_path: Path) -> None:
    """Also without adaptive execution, where the number of partitions is given."""
    lake.route({"city": "Counter"}).to_inboxes(tmp_path / "inboxes")
    lake.delete(Gate)
    asking = RouteEntry("porter", Subscription(Gate), since=datetime(2026, 1, 1, tzinfo=UTC))
    lake.spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        assert lake.route([asking]).to_inboxes(tmp_path / "inboxes").rows == 0
    finally:
        lake.spark.conf.set("spark.sql.adaptive.enabled", "true")


@pytest.mark.slow
def test_a_backfill_that_a_rewind_took_back_is_done_again(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """The inboxes forget, with the deliveries, that they have backfilled a subscription."""
    events = traffic(200)
    city = RouteEntry("city", Subscription(Streetside))
    toll = RouteEntry("toll", Subscription(Radar), since=events[0].time)
    lake.route([city]).to_inboxes(tmp_path / "inboxes")
    shutil.copytree(tmp_path / "lake", tmp_path / "backup")
    lake.ingest(write_recording(tmp_path / "lost.genus", traffic(20, first=500)))
    lake.route([city, toll]).to_inboxes(tmp_path / "inboxes")
    shutil.rmtree(tmp_path / "lake")
    restored = Lake(spark, shutil.copytree(tmp_path / "backup", tmp_path / "lake"))
    inboxes = Inboxes(spark, tmp_path / "inboxes")
    inboxes.rewind(restored)
    restored.route([city, toll]).to_inboxes(tmp_path / "inboxes")
    assert delivered(inboxes) == expected(events, [city, toll])


# -- stores of other kinds ---------------------------------------------------------------------------------------------


def test_a_folder_is_opened_as_what_it_is(lake: Lake, tmp_path: Path) -> None:
    """Inboxes are not a lake, and a lake is neither inboxes nor a derived table; the message says what to use."""
    inboxes = tmp_path / "inboxes"
    lake.route(WANTED).to_inboxes(inboxes)
    for open_lake in (Lake, Lake.create, Lake.restore_catalog, read_results, lambda _, path: LakeReader(path)):
        with pytest.raises(LakeError, match="is the inboxes of a lake; open it with Inboxes"):
            open_lake(lake.spark, inboxes)
    with pytest.raises(LakeError, match="is a lake; open it with Lake"):
        Inboxes(lake.spark, lake.path)
    with pytest.raises(LakeError, match="is a lake; open it with Lake"):
        lake.route(WANTED).to_inboxes(lake.path)


def test_inboxes_have_the_catalog_in_their_ledger(lake: Lake, tmp_path: Path) -> None:
    """There is no file of it that could be lost or replaced."""
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    assert Store(tmp_path / "inboxes").state().catalog == lake.catalog.text()
    assert not (tmp_path / "inboxes" / "catalog.json").exists()
    with pytest.raises(LakeError, match="older_than is required"):
        Inboxes(lake.spark, tmp_path / "inboxes").expire(Radar)


# -- deliveries --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=2)
@given(cuts=st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_increments_cut_anywhere_are_one_delivery(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    """And what each subscription reads from the lake, and the rows of the route, by Spark's join and by the kernel."""
    folder, wanted = tmp_path_factory.mktemp("cut"), [*WANTED, RouteEntry("toll", Subscription(Gate, lacks="place"))]
    lake, events = Lake.create(spark, folder / "lake", *ALL), traffic(60)
    bounds = [0, *sorted(cuts), len(events)]
    for number, (first, last) in enumerate(pairwise(bounds)):
        lake.ingest(write_recording(folder / f"{number}.genus", events[first:last]))
        lake.route(wanted).to_inboxes(folder / "increments")
    lake.route(wanted).to_inboxes(folder / "whole")
    increments, whole = (delivered(Inboxes(spark, folder / name)) for name in ("increments", "whole"))
    reads = [lake.read(each.subscription).select(F.lit(n).alias("n"), "time") for n, each in enumerate(wanted)]
    read = Tally(
        (wanted[row["n"]].subscriber, str(wanted[row["n"]].subscription), row["time"])
        for row in reduce(DataFrame.unionAll, reads).toArrow().to_pylist()
    )
    assert increments == whole == read == expected(events, wanted)
    rows = lake.route(wanted).frame(["time"]).toArrow().to_pylist()
    texts = [str(each.subscription) for each in wanted]
    assert Tally((row["subscriber"], texts[row["subscription"]], row["time"]) for row in rows) == read


ENTRIES = [RouteEntry(f"s{number % 3}", Subscription(Counter, where=this.lane >= number % 4)) for number in range(9)]
LANES = Catalog()
LANES.register(*ALL)


@pytest.mark.parametrize("most", [1, 7, 1000])
@pytest.mark.parametrize("rows", [1, 17])
def test_files_of_a_task_are_in_order_and_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, rows: int
) -> None:
    """However many matches a file has, and events are matched at once; what is listed twice is delivered once."""
    monkeypatch.setattr(delivery, "MATCHES_PER_FILE", most)
    vector = LANES.vector(Counter)
    shape = Shape("Counter", "Counter", str(LANES.code(Counter)), f"{vector.presence_of(['lane', 'time']):x}")
    plan = plan_routes(ENTRIES, {shape.id: shape}, LANES)
    rows_of: dict[str, list[Any]] = {
        "lane": [n % 5 for n in range(40)],
        "time": [MORNING + timedelta(seconds=n * 7 % 40) for n in range(40)],
    }
    rest = {"_type": "", "_code": "", "_tag": "", "_shape": shape.id, "_source": 0, "_position": 0}
    rest |= {"_recorded": MORNING, "_ingested": MORNING}
    schema = event_schema(vector)
    table = pa.table(
        [pa.array(rows_of.get(to.name, [rest.get(to.name)] * 40), to.type) for to in schema], schema=schema
    )
    names = schema.names
    batches = [table.slice(at, rows).select for at in range(0, 40, rows)]
    addresses = delivery.Addresses(plan.subscribers, [str(entry.subscription) for entry in ENTRIES])
    own = plan.family("Counter")
    assert own is not None
    for name in ("first", "again"):
        target = delivery._Target(str(tmp_path / name), names, file_schema(vector))
        sent: Any = SimpleNamespace(load=lambda: addresses)
        list(delivery._deliver({"Counter": target}, sent, False, 3, own, iter(batches)))
    files = sorted(tmp_path.glob("first/*.parquet"))
    found: Tally[tuple[str, str, object]] = Tally()
    for file in files:
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
        stored = pq.read_table(file, columns=["subscriber", "subscription", "time"]).to_pylist()
        assert stored == sorted(stored, key=lambda row: (row["subscriber"], row["time"]))
        found.update(tuple(row.values()) for row in stored)
    assert len(files) > 1 or most == 1000
    events = [Counter(lane=lane, time=time) for lane, time in zip(rows_of["lane"], rows_of["time"], strict=True)]
    assert found == Tally(set(expected(events, ENTRIES)))


def test_a_delivery_reads_files_with_fewer_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Events that were ingested before a type was registered and after it are delivered together."""

    class Sonar(Counter):
        depth: Maybe[float] = None

    lake = Lake.create(spark, tmp_path / "lake", *ALL)
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(20)))
    lake.register(Sonar)
    sonar = Sonar(lane=1, depth=2.5, time=traffic(1)[0].time)
    lake.ingest(write_recording(tmp_path / "b.genus", [sonar]))
    lake.route({"all": Subscription(Counter)}).to_inboxes(tmp_path / "inboxes")
    found = Inboxes(spark, tmp_path / "inboxes").read(family="Counter").select("depth").toArrow().column(0)
    assert sorted(found.to_pylist(), key=str) == [2.5, *[None] * (len(found) - 1)]
    assert len(found) == 1 + sum(isinstance(event, Counter) for event in traffic(20))
