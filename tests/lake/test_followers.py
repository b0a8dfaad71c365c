"""What a lake's ledger tells without Spark: its version, its events by type, and how far its followers have come."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from genus import Event
from genus.errors import LakeDamaged
from genus.lake import LakeReader
from genus.lake._tables.store import Store
from genus.lake.types import FollowerStatus
from tests.lake.stored import add_events, create_lake

DAY = datetime(2026, 5, 1, tzinfo=UTC)


class Barge(Event):
    load: int


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = create_lake(tmp_path / "river", Barge)
    add_events(made, [Barge(load=load, time=DAY) for load in range(3)], DAY)
    return made


def follow(lake: Store, path: Path, holds: str, **notes: str) -> None:
    follower = Store(path)
    follower.claim(lake, holds, **notes)
    draft = follower.begin("deliver")
    follower.commit(msgspec.structs.replace(draft, after=follower.state().cursor, upto=lake.state().now))


def test_a_follower_is_known_with_its_version_and_what_it_does(store: Store, tmp_path: Path) -> None:
    reader = LakeReader(store.path)
    assert reader.followers() == []
    follow(store, tmp_path / "minutes", "derived", analysis="Windows", subscription="Barge")
    (found,) = reader.followers()
    assert isinstance(found, FollowerStatus)
    assert (found.path, found.kind, found.version, found.behind) == (str(tmp_path / "minutes"), "derived", 2, 0)
    assert (found.about, found.problem, found.rows) == ("Windows of Barge", "", 0)
    add_events(store, [Barge(load=4, time=DAY)], DAY)
    (found,) = reader.followers()
    assert (found.version, found.behind) == (2, 1)
    shutil.rmtree(tmp_path / "minutes")
    assert reader.followers() == []


def test_a_damaged_follower_of_a_stream_is_told(store: Store) -> None:
    path = Path(store.path) / "_streams" / "landing" / "keep"
    follow(store, path, "function", subscription="Barge")
    for commit in (path / "_log").glob("*.json"):
        commit.write_text("damaged")
    (found,) = LakeReader(store.path).followers()
    assert "restore it from a backup" in found.problem


def test_the_present_version_in_short(store: Store, tmp_path: Path) -> None:
    reader = LakeReader(store.path)
    assert (reader.refresh().version, reader.type_counts()) == (2, {"Barge": 3})
    add_events(store, [Barge(load=4, time=DAY)], DAY)
    assert (reader.refresh().version, reader.type_counts()) == (3, {"Barge": 4})
    (table,) = reader.stats()
    assert (table.type_names, table.first_day, table.last_day) == (("Barge",), DAY.date(), DAY.date())
    shutil.rmtree(store.path)
    with pytest.raises(LakeDamaged, match="removed or replaced"):
        reader.refresh()
