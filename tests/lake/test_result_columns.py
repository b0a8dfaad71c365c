"""Which columns a subscription gives: those of its type, and of subtypes if asked; also where nothing conforms."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from genus import Event, Kind, Maybe, Subscription, Unit, all_of, this
from genus.bus import RecordingWriter
from genus.errors import LakeError
from genus.lake import DerivedTable, Lake, Windows
from genus.lake._query.selection import ADDED
from genus.model._types import micros_of_time

START = datetime(2026, 5, 1, tzinfo=UTC)


class Probing(Kind): ...


class Submerged(Kind): ...


class Probe(Event, Probing):
    channel: int


class SaltProbe(Probe):
    salt: Maybe[float] = None


class OxygenProbe(Probe, Submerged):
    oxygen: Maybe[float] = None
    depth: Maybe[Annotated[float, Unit("m")]] = None


class Sounder(Event, Probing):
    depth: Annotated[float, Unit("ft")]
    salt: Maybe[float] = None


EVENTS = [
    SaltProbe(time=START, channel=1, salt=3.5),
    OxygenProbe(time=START, channel=2, oxygen=8.0, depth=4.0),
    Probe(time=START, channel=3),
    Sounder(time=START, depth=12.0, salt=1.5),
]
COMMON = ["time", "source", "place", "deadline", "expires"]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("probes")
    with RecordingWriter(folder / "a.genus") as writer:
        for event in EVENTS:
            writer.write(event, micros_of_time(START))
    made = Lake.create(spark, folder / "lake", Probing, Submerged, *{type(event) for event in EVENTS})
    made.ingest(folder / "a.genus")
    return made


def attributes(frame: DataFrame) -> list[str]:
    """The columns before those that Genus adds, which are the last."""
    assert tuple(frame.columns[-len(ADDED) :]) == ADDED
    return frame.columns[: -len(ADDED)]


def test_a_type_gives_its_own_attributes(lake: Lake) -> None:
    """So a frame keeps its columns when a subtype is registered; a kind gives what every event has."""
    assert attributes(lake.read(Probe)) == [*COMMON, "channel"]
    assert attributes(lake.read(Probing)) == COMMON


def test_subtypes_give_theirs_on_request(lake: Lake) -> None:
    """In the order of the family's vector, NULL where a type does not have one, and of matching types only."""
    frame = lake.read(Probe, subtypes=True)
    vector = [attribute.name for attribute in lake.catalog.vector(Probe)]
    assert attributes(frame) == vector
    rows = {row["channel"]: (row["salt"], row["oxygen"]) for row in frame.collect()}
    assert rows == {1: (3.5, None), 2: (None, 8.0), 3: (None, None)}
    assert set(vector) - set(attributes(lake.read(Probe, exact=True, subtypes=True))) == {"salt", "oxygen", "depth"}
    assert "salt" not in attributes(lake.read(all_of(Probe, Submerged), subtypes=True))


def test_families_share_the_columns_that_mean_the_same(lake: Lake) -> None:
    """`salt` is one column; `depth` has another unit in each family, so it is two."""
    frame = lake.read(Probing, subtypes=True)
    assert sorted(attributes(frame)[len(COMMON) :]) == ["Probe_depth", "Sounder_depth", "channel", "oxygen", "salt"]
    rows = {row["_type"]: (row["salt"], row["Probe_depth"], row["Sounder_depth"]) for row in frame.collect()}
    assert rows == {
        "SaltProbe": (3.5, None, None),
        "OxygenProbe": (None, 4.0, None),
        "Probe": (None, None, None),
        "Sounder": (1.5, None, 12.0),
    }


def test_views_have_the_columns_of_subtypes_on_request(lake: Lake) -> None:
    lake.views("plain_")
    lake.views("whole_", subtypes=True)
    assert "oxygen" not in lake.spark.table("plain_Probe").columns
    found = lake.spark.sql("SELECT channel FROM whole_Probe WHERE oxygen > 7").collect()
    assert [row["channel"] for row in found] == [2]


def test_a_column_that_two_attributes_would_have_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The name that tells two families apart may be an attribute of a third."""

    class Buoyed(Kind): ...

    class CanBuoy(Event, Buoyed):
        size: int

    class NunBuoy(Event, Buoyed):
        size: float
        CanBuoy_size: Maybe[int] = None

    made = Lake.create(spark, tmp_path / "lake", CanBuoy, NunBuoy)
    with pytest.raises(LakeError, match="two attributes would have the column CanBuoy_size"):
        made.read(Buoyed, subtypes=True)


# -- where no type conforms --------------------------------------------------------------------------------------------

NOTHING: list[Any] = [
    all_of(Sounder, Submerged),
    Subscription(all_of(Sounder, Submerged), where=this.depth > 3),
    "Sounder & Submerged has salt",
]


@pytest.mark.slow
@pytest.mark.parametrize("what", NOTHING)
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_subscription_that_no_type_conforms_to_has_no_events(lake: Lake, what: Any) -> None:
    """Reading, explaining and routing give nothing, with the columns of the event type that is named."""
    for subtypes in (False, True):
        frame = lake.read(what, subtypes=subtypes)
        assert attributes(frame) == [*COMMON, "depth", "salt"]
        assert frame.count() == 0
    plan = lake.explain(what)
    assert (plan.tables, plan.files) == ((), 0)
    route = lake.route([what])
    assert (route.count(), route.frame().count(), route.counts().count()) == (0, 0, 0)
    assert route.explain()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_followers_wait_for_a_type_that_conforms(lake: Lake, tmp_path: Path) -> None:
    """A function gets an empty frame, inboxes and a derived table nothing."""
    (tmp_path / "landing").mkdir()
    sizes: list[int] = []
    counting = Windows(every=timedelta(minutes=1), values={"depth": ("mean",)}, lateness=timedelta(seconds=1))
    derived = DerivedTable(lake, tmp_path / "derived", counting, Subscription(all_of(Sounder, Submerged)))
    assert derived.update().rows == 0
    assert derived.finish().rows == 0
    assert derived.read().count() == 0
    stream = lake.stream(tmp_path / "landing").for_each(
        NOTHING[1], lambda frame, _: sizes.append(frame.count()), "size"
    )
    stream.route({"ann": NOTHING[2]}).to_inboxes(tmp_path / "inboxes")
    assert stream.run().delivered == 0
    assert sizes == [0]


def test_a_kind_without_types_has_no_events(spark: SparkSession, tmp_path: Path) -> None:
    """Its view has the columns that every event has."""
    made = Lake.create(spark, tmp_path / "lake", Submerged)
    assert attributes(made.read(Submerged)) == COMMON
    made.views("none_")
    assert spark.table("none_Submerged").count() == 0
