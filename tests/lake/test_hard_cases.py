"""Cases that once failed: unusual names, files and lists that change, types with new attributes."""

from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from genus import Event, Maybe, Subscription, this
from genus.bus import RecordingWriter
from genus.errors import LakeDamaged, LakeError, NotRegistered
from genus.lake import Inboxes, Lake
from genus.lake._tables.commits import Shape, new_shapes
from tests.lake.roads import ALL, MORNING, Counter, Gate, Radar, Streetside, traffic, write_recording


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake.create(spark, tmp_path / "lake", *ALL)


@pytest.mark.slow
def test_attributes_and_families_may_have_any_name_but_two(spark: SparkSession, tmp_path: Path) -> None:
    """A family called dead and attributes called text, count or path are stored, read, routed and delivered."""

    class Letter(Event, name="dead"):
        text: str
        count: int
        path: Maybe[str] = None

    class Taken(Event):
        subscriber: str

    lake = Lake.create(spark, tmp_path / "lake", Letter)
    lake.ingest(write_recording(tmp_path / "a.genus", [Letter(text="x", count=n, time=MORNING) for n in range(3)]))
    (tmp_path / "bad.genus").write_bytes(b"nothing")
    lake.ingest(tmp_path / "bad.genus")
    lake.route({"ann": Subscription(Letter, where=this.count > 0)}).to_inboxes(tmp_path / "inboxes")
    rows = Inboxes(spark, tmp_path / "inboxes").read("ann").collect()
    assert sorted(row["count"] for row in rows) == [1, 2]
    assert {row["text"] for row in rows} == {"x"}
    assert (lake.read(Letter).count(), lake.dead_letters().count()) == (3, 1)
    with pytest.raises(LakeError, match="'subscriber'"):
        lake.register(Taken)


def test_a_file_that_has_grown_is_refused(lake: Lake, tmp_path: Path) -> None:
    """Its first events would be in the lake twice; a file of the same name with other content is another file."""
    file = write_recording(tmp_path / "a.genus", traffic(5))
    lake.ingest(file)
    with RecordingWriter(file, append=True) as writer:
        writer.write(Gate(open=True, time=MORNING), 1)
    with pytest.raises(LakeError, match="has grown"):
        lake.ingest(file)
    file.unlink()
    write_recording(file, traffic(7, first=100))
    assert lake.ingest(file).events == 7


@pytest.mark.slow
def test_a_file_read_with_the_wrong_format_is_read_whole_when_tried_again(lake: Lake, tmp_path: Path) -> None:
    """Without events nothing can be there twice; with some, only the dead letters are tried again."""
    file = tmp_path / "gates.jsonl"
    lines = ['{"type": "Gate", "time": "2026-05-01T06:00:00Z", "open": true}'] * 3
    file.write_text("\n".join([*lines, '{"type": "Gate", "open": "perhaps"}']))
    assert lake.ingest(file, format="recording").dead == 1
    again = lake.ingest(file, retry=True)
    assert (again.events, again.dead) == (3, 1)
    assert lake.ingest(file, retry=True).events == 0
    assert lake.ingest(file, retry=True).events == 0
    assert lake.read(Gate).count() == 3


@pytest.mark.slow
def test_dead_letters_are_tried_again_by_content_not_by_path(lake: Lake, tmp_path: Path) -> None:
    """The path at which a content was ingested first may have another one since, with dead letters of its own."""
    first, second = (
        f'{{"type": "Gate", "open": {open}}}\n{{"type": "Gate", "open": 7}}\n' for open in ("true", "false")
    )
    (tmp_path / "a.jsonl").write_text(first)
    lake.ingest(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_text(second)
    lake.ingest(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text(first)
    again = lake.ingest(tmp_path / "b.jsonl", retry=True)
    assert (again.events, again.dead) == (0, 1)
    assert lake.dead_letters().select("_source").distinct().count() == lake.dead_letters().count() == 2


def test_strangers_in_a_folder_are_passed_over(lake: Lake, tmp_path: Path) -> None:
    """In a folder, files of unknown endings are skipped; given by name, they are an error."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "README.txt").write_text("notes")
    write_recording(tmp_path / "in" / "a.genus", traffic(5))
    assert lake.ingest(tmp_path / "in").events == 5
    with pytest.raises(LakeError, match="'txt'"):
        lake.ingest(tmp_path / "in" / "README.txt")


def test_an_enumeration_that_grew_means_the_same_to_read_and_route(spark: SparkSession, tmp_path: Path) -> None:
    """A subscription made with the old class is bound to the lake's types."""

    def lamp(*colours: str) -> Any:
        shade: Any = Enum("Shade", {each.upper(): each for each in colours})  # type: ignore[misc]

        class Lamp(Event):
            colour: shade

        return Lamp, shade

    old, _ = lamp("red", "green")
    young, colours = lamp("red", "green", "blue")
    lake = Lake.create(spark, tmp_path / "lake", old)
    lake.register(young)
    lake.ingest(write_recording(tmp_path / "a.genus", [young(colour=each, time=MORNING) for each in colours]))
    wanted = Subscription(old, where=this.colour != "red")
    assert lake.read(wanted).count() == 2
    assert lake.route([wanted] * 20).count() == 40


def test_a_subscription_list_that_changes_at_any_moment_keeps_names_and_texts_together(
    lake: Lake, tmp_path: Path
) -> None:
    """A function returns another list each time; one delivery uses one list."""
    lists = iter([[("ann", "Counter"), ("bob", "Radar")], [("bob", "Radar")], [("bob", "Gate")], []])
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(20)))
    lake.route(lambda: next(lists)).to_inboxes(tmp_path / "inboxes")
    rows = Inboxes(lake.spark, tmp_path / "inboxes").read().collect()
    found = {(row["subscriber"], row["subscription"]) for row in rows}
    assert found == {("ann", "Counter"), ("bob", "Radar")}


@pytest.mark.slow
def test_a_subscriptions_file_that_breaks_on_the_way_leaves_the_last_good_list(lake: Lake, tmp_path: Path) -> None:
    """The stream continues with the previous list and reports the problem."""
    (tmp_path / "landing").mkdir()
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("ann: Gate\n")
    stream = lake.stream(tmp_path / "landing").route(wanted).to_inboxes(tmp_path / "inboxes")
    for number, text in enumerate(("ann: Gate\n", "ann: Gate where\n")):
        wanted.write_text(text)
        write_recording(tmp_path / "landing" / f"{number}.genus", traffic(10, first=100 * number))
        progress = stream.run()
    assert progress is not None
    assert "wanted.txt" in str(progress.problem)
    assert Inboxes(lake.spark, tmp_path / "inboxes").read("ann").count() == 4


def test_odd_paths_land_too(lake: Lake, tmp_path: Path) -> None:
    """Spaces, percent and hash signs in names of folders and files."""
    landing = tmp_path / "a b#c%41"
    landing.mkdir()
    write_recording(landing / "x #1%.genus", traffic(10))
    progress = lake.stream(landing).run()
    assert progress is not None
    assert progress.events == 10


def test_two_followers_at_one_place_are_refused(lake: Lake, tmp_path: Path) -> None:
    """They would share the processed version, and one would get no events."""
    (tmp_path / "landing").mkdir()

    def first(frame: DataFrame, version: int) -> None: ...

    stream = lake.stream(tmp_path / "landing").route(["Gate"]).to_inboxes(tmp_path / "inboxes").for_each(Gate, first)
    with pytest.raises(LakeError, match="follower of this stream already"):
        stream.route(["Radar"]).to_inboxes(tmp_path / "inboxes")
    with pytest.raises(LakeError, match="follower of this stream already"):
        stream.for_each(Radar, first)
    stream.for_each(Radar, first, name="again")
    with pytest.raises(LakeError, match="by name="):
        stream.for_each(Radar, lambda frame, version: None)
    with pytest.raises(TypeError):
        lake.stream(tmp_path / "landing", nonsense=1)  # type: ignore[call-arg]


def test_names_lead_to_tables_or_to_an_error(lake: Lake, tmp_path: Path) -> None:
    """Any type of a family names its table; kinds and unknown types are refused."""
    lake.ingest(write_recording(tmp_path / "a.genus", traffic(20)))
    assert lake.table("Radar").count() == lake.table(Counter).count() == 16
    assert lake.route({"ann": Counter, "bob": [Gate, "Radar"]}).events(Radar).count() == 20
    assert lake.route(Subscription(Gate)).count() == 4
    with pytest.raises(NotRegistered):
        lake.table("Nobody")
    with pytest.raises(LakeError, match="is a kind"):
        lake.route(["Gate"]).events(Streetside)


@pytest.mark.slow
def test_very_old_times_are_asked_for_too(lake: Lake, tmp_path: Path) -> None:
    """Days of years before 1000 are handled."""
    old = datetime(712, 3, 1, tzinfo=UTC)
    lake.ingest(write_recording(tmp_path / "a.genus", [Gate(open=True, time=old)]))
    assert lake.read(Gate, where=this.time < datetime(800, 1, 1, tzinfo=UTC)).count() == 1
    assert lake.read(Gate, where=this.time > datetime(800, 1, 1, tzinfo=UTC)).count() == 0


def test_a_file_that_cannot_be_read_is_named_in_one_line(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file vanishes between being found and being read; nothing is committed."""
    from genus.lake._ingest import job

    file = write_recording(tmp_path / "a.genus", traffic(5))
    pack = job._pack

    def vanishing(*given: Any) -> Any:
        file.unlink()
        return pack(*given)

    monkeypatch.setattr(job, "_pack", vanishing)
    with pytest.raises(LakeError, match=r"^cannot read .*a\.genus: No such file"):
        lake.ingest(file)
    assert lake.read(Event).count() == 0


def test_a_damaged_catalog_is_named(lake: Lake) -> None:
    """Reading and check name its path."""
    Path(lake.catalog_path).write_text('{"genus')
    for ask in (lake.check, lambda: lake.read("Gate")):
        with pytest.raises(LakeDamaged, match=r"catalog\.json"):
            ask()


def test_shapes_without_a_tag_stand_for_all_and_clash_with_none() -> None:
    """A type with too many shapes is listed once without presence bits; that is no collision with presence bits 0."""
    many = [Shape("F", "F", "2", f"{tag:x}") for tag in range(10)]
    kept = new_shapes({shape.id: shape for shape in many[:3]}, {"F": 3}, many, max_shapes=5)
    assert [shape.presence for shape in kept] == ["3", "4", None]
    assert new_shapes({many[0].id: many[0]}, {"F": 1}, [Shape("F", "F", "2", None)], max_shapes=5)
