"""Inboxes have every match once, in few files, and each subscriber can read its own."""

import shutil
from collections import Counter as Tally
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from genus import Event, Subscription, this
from genus.errors import LakeError
from genus.lake import Inboxes, Lake, RouteEntry
from tests.lake.roads import ALL, Category, Counter, Gate, Radar, Roadside, traffic, write_recording

WANTED = [
    RouteEntry("police", Subscription(Counter, has="place", where=this.speed > 50)),
    RouteEntry("police", Subscription(Radar)),
    RouteEntry("city", Subscription(Roadside)),
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


def test_a_follower_left_too_far_behind_is_told(lake: Lake, tmp_path: Path) -> None:
    """Events that were cleaned before they were delivered are an error, not a gap."""
    lake.route(WANTED).to_inboxes(tmp_path / "inboxes")
    lake.ingest(write_recording(tmp_path / "second.genus", traffic(100, first=1000)))
    lake.compact()
    lake.clean(older_than_s=-5)
    with pytest.raises(LakeError, match="compacted and removed before it was processed"):
        lake.route(WANTED).to_inboxes(tmp_path / "inboxes")


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
    assert sum(part.files for part in parts) <= 4, "few files, whatever the number of subscribers"


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


def test_subscriptions_come_in_many_forms(lake: Lake, tmp_path: Path) -> None:
    """A list of pairs or texts, a mapping, a file, a table or a function give the same matches."""
    texts = {each.subscriber: str(each.subscription) for each in WANTED[1:]}
    file = tmp_path / "wanted.txt"
    file.write_text("# who: what\n" + "\n".join(f"{name}: {text}" for name, text in texts.items()))
    table = lake.spark.createDataFrame(list(texts.items()), "subscriber string, subscription string")
    for given in (WANTED[1:], list(texts.items()), texts, file, str(file), table, lambda: WANTED[1:]):
        found = [(each.subscriber, str(each.subscription)) for each in lake.route(given).subscriptions()]
        assert sorted(found) == sorted(texts.items())
    assert lake.route(file).count() == expected(traffic(200), WANTED[1:]).total()
    assert lake.route(["Radar"]).frame().select("subscriber").distinct().collect()[0][0] == "Radar"
    counts = {row["subscription"]: row["matches"] for row in lake.route(WANTED).counts().collect()}
    assert counts == {number: expected(traffic(200), [each]).total() for number, each in enumerate(WANTED)}
