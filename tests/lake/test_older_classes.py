"""A subscription to a lake means what the lake's catalog says, whatever classes this process has imported."""

import json
from datetime import UTC, datetime
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from genus import Catalog, Event, Kind, Maybe, Subscription, all_of, this
from genus.errors import LakeError, SubscriptionError
from genus.lake import Lake, register_data_source
from genus.lake._tables.lake_catalog import SubscriptionResolver
from genus.model import attributes
from genus.model._signature import GENERATED, is_generated

START = datetime(2026, 5, 1, tzinfo=UTC)


class OldSky(Enum):
    CLEAR = "clear"


class NewSky(Enum):
    CLEAR = "clear"
    FOG = "fog"


class Coastal(Kind): ...


class Tidal(Event, Coastal):
    """As this process imported it: older than the catalog."""

    level: float
    sky: Maybe[OldSky] = None

    @property
    def is_high(self) -> Any:
        return self.level > 3


def later_types() -> tuple[type[Any], type[Any]]:
    """As another program registered them; this process does not find them, as if it had not imported them."""

    class Tidal(Event, Coastal):
        __module__ = GENERATED
        level: float
        sky: Maybe[NewSky] = None
        wind: Maybe[float] = None

    class TidalGate(Tidal):
        __module__ = GENERATED
        width: Maybe[float] = None

    return Tidal, TidalGate


ROWS: list[dict[str, Any]] = [
    {"type": "Tidal", "level": 1.0, "wind": 2.0, "sky": "fog"},
    {"type": "Tidal", "level": 4.0, "wind": 5.0},
    {"type": "Tidal", "level": 5.0},
    {"type": "TidalGate", "level": 6.0, "wind": 6.0, "width": 9.0},
]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("tides")
    made = Lake.create(spark, folder / "lake", *later_types())
    (folder / "rows.jsonl").write_text("".join(json.dumps(row | {"time": START.isoformat()}) + "\n" for row in ROWS))
    assert made.ingest(folder / "rows.jsonl").dead == 0
    return Lake(spark, made.path)


def levels(frame: Any) -> list[float]:
    return sorted(row["level"] for row in frame.select("level").collect())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ("Tidal where wind > 1", [1.0, 4.0, 6.0]),
        ("exact Tidal where wind > 1", [1.0, 4.0]),
        ("Tidal where sky == 'fog'", [1.0]),
        ("Tidal where width > 1", [6.0]),
        ("Tidal & Coastal has wind", [1.0, 4.0, 6.0]),
        ("Tidal where is_high", [4.0, 5.0, 6.0]),
        (Tidal, [1.0, 4.0, 5.0, 6.0]),
        (Subscription(Tidal, exact=True), [1.0, 4.0, 5.0]),
        (Subscription(Tidal, where=this.level < 5), [1.0, 4.0]),
        (all_of(Tidal, Coastal), [1.0, 4.0, 5.0, 6.0]),
    ],
)
def test_reading_and_routing_have_what_the_catalog_has(lake: Lake, what: Any, wanted: list[float]) -> None:
    """New attributes and values are known, and columns come, though the imported class lacks them."""
    frame = lake.read(what)
    assert levels(frame) == wanted
    assert [name for name in frame.columns if not name.startswith("_")][5:] == ["level", "sky", "wind"]
    assert levels(lake.route([("ann", what)]).events("Tidal")) == wanted


def test_a_file_of_subscriptions_has_what_the_catalog_has(lake: Lake, tmp_path: Path) -> None:
    """Lines with new attributes are used; one that even the catalog does not have is set aside alone."""
    (tmp_path / "list.txt").write_text(
        "ann: Tidal where wind > 5\nbob: Tidal where rain > 5\ncid: Tidal where is_high\n"
    )
    route = lake.route(tmp_path / "list.txt")
    assert route.count() == 1 + 3
    assert "1 of 3 subscriptions not used" in str(route.problem)
    assert "line 2: " in str(route.problem)
    done = route.to_inboxes(tmp_path / "inboxes")
    assert (done.rows, done.problem) == (4, route.problem)


def test_followers_have_what_the_catalog_has(lake: Lake, tmp_path: Path) -> None:
    """A function gets the columns of the catalog."""
    seen: list[Any] = []
    (tmp_path / "landing").mkdir()
    stream = lake.stream(tmp_path / "landing")
    stream.for_each("Tidal where wind > 1", lambda frame, _: seen.extend(frame.select("wind").collect()), "text")
    stream.for_each(Tidal, lambda frame, _: seen.extend(frame.select("wind").collect()), "class")
    stream.run()
    assert sorted(row["wind"] or 0.0 for row in seen) == [0.0, 2.0, 2.0, 5.0, 5.0, 6.0, 6.0]


def test_views_have_what_the_catalog_has(lake: Lake) -> None:
    lake.views("tides_")
    assert lake.spark.sql("SELECT * FROM tides_Tidal WHERE wind > 1").count() == 3


@pytest.mark.slow
def test_files_in_no_lake_are_read_as_the_catalog_says(lake: Lake) -> None:
    """Also those of subtypes, which no process has imported."""
    register_data_source(lake.spark)
    reader = lake.spark.read.format("genus").option("catalog", lake.path).option("subscription", "Tidal where wind > 1")
    assert levels(reader.load(str(Path(lake.path).parent / "rows.jsonl"))) == [1.0, 4.0, 6.0]


def test_errors_are_about_the_catalog(lake: Lake) -> None:
    """An attribute that nobody has, and a property together with an attribute that its class does not have."""
    for text in ("Tidal where rain > 3", "Tidal where is_high and wind > 3"):
        with pytest.raises(SubscriptionError, match="has no attribute"):
            lake.read(text)


def test_texts_elsewhere_mean_the_imported_class(lake: Lake) -> None:
    """What a lake generates from its catalog is no second class of that name for the bus."""
    lake.read("Tidal where wind > 1")
    assert Subscription.parse("Tidal").type is Tidal
    with pytest.raises(SubscriptionError):
        Subscription.parse("Tidal where wind > 1")


def test_a_class_that_is_newer_than_the_catalog_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Only what the catalog lacks is refused."""

    class Tidemark(Event):
        height: float

    made = Lake.create(spark, tmp_path / "lake", Tidemark)

    def newer() -> Any:
        class Tidemark(Event):
            height: float
            colour: Maybe[str] = None

        return Tidemark

    with pytest.raises((LakeError, LookupError), match="colour"):
        made.read(newer(), where=this.colour == "red")
    assert made.read("Tidemark where height > 1").count() == 0


NAMES = ("one", "two", "three", "four")
numbers = count()


def make(name: str, names: list[str], module: str) -> type[Any]:
    optional: Any = Maybe
    space: dict[str, Any] = {"__module__": module, "__annotations__": dict.fromkeys(names, optional[int])}
    metaclass: Any = type(Event)
    made: type[Any] = metaclass(name, (Event,), space | dict.fromkeys(names))
    return made


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)), st.booleans())
def test_the_catalog_decides_for_any_two_versions(old: set[str], added: set[str], as_text: bool) -> None:
    """The resolved type has the attributes of the catalog, and is the imported class if that has them all."""
    name = f"Version{next(numbers)}"
    imported = make(name, sorted(old), __name__)
    catalog = Catalog()
    catalog.register(make(name, sorted(old | added), GENERATED))
    resolver = SubscriptionResolver(Catalog.parse(catalog.text()))
    found = resolver.resolve(name if as_text else imported).type
    assert [attribute.name for attribute in attributes(found)][5:] == sorted(old | added)
    assert is_generated(found) == bool(added - old)
    for each in old | added:
        assert resolver.resolve(f"{name} where {each} > 3").has == ()
