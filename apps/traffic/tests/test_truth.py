"""Truth files: what is written is read again, and what is none is said so in one line."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus_traffic.road.city import default_city
from genus_traffic.road.generator import generate
from genus_traffic.road.scene import SceneError
from genus_traffic.road.truth import SCHEMA, Passage, read_truth, write_truth
from genus_traffic.types import Category

from .examples import examples

INSTANTS = st.none() | st.integers(0, 2**62)
PASSAGES = st.builds(
    Passage,
    site=st.text(max_size=8),
    lane=st.integers(0, 7),
    vehicle=st.text(max_size=8),
    category=st.sampled_from(Category),
    length_m=st.floats(1, 30),
    upper_on_us=INSTANTS,
    upper_off_us=INSTANTS,
    lower_on_us=INSTANTS,
    lower_off_us=INSTANTS,
    speed=st.none() | st.floats(0, 90),
    traps=st.lists(st.sampled_from(["standing", "two between", "missed"])).map(tuple),
)


@examples(40)
@given(st.lists(PASSAGES, max_size=5))
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, passages: list[Passage]) -> None:
    path = tmp_path_factory.mktemp("truth") / "truth.parquet"
    assert write_truth(passages, path) == path
    assert read_truth(path) == passages


def test_the_truth_of_a_site_survives_its_file(tmp_path: Path) -> None:
    city = default_city(1, "2 min")
    passages = generate(city.sites[0], city).passages
    assert tuple(read_truth(write_truth(passages, tmp_path / "truth.parquet"))) == passages


def refused(path: Path) -> str:
    """What is said of a file, after its name."""
    with pytest.raises(SceneError) as caught:
        read_truth(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    return said.removeprefix(f"{path}: ")


def test_a_file_without_truth_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "truth.parquet"
    assert refused(path) == "No such file or directory"
    assert refused(tmp_path) == "Is a directory"
    path.write_text("lane,speed\n1,2\n")
    assert refused(path).startswith("is not Parquet, or is damaged: ")
    path.write_bytes(b"")
    assert refused(path).startswith("is not Parquet, or is damaged: ")
    write_truth([], path)
    path.write_bytes(path.read_bytes()[:-7])
    assert refused(path).startswith("is not Parquet, or is damaged: ")


def test_a_file_with_other_columns_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "truth.parquet"
    row = {"site": "a", "lane": 0, "vehicle": "a/0-1", "category": "car", "length_m": 4.5, "speed": None, "traps": []}
    row |= {"upper_on_us": 1, "upper_off_us": 2, "lower_on_us": 3, "lower_off_us": 4}
    pq.write_table(pa.Table.from_pylist([{name: row[name] for name in row if name != "speed"}]), path)
    assert refused(path) == "holds no truth: there is no column speed"
    pq.write_table(pa.Table.from_pylist([row | {"category": "tram"}], SCHEMA), path)
    assert refused(path).startswith("holds no truth: Invalid enum value 'tram'")
    pq.write_table(pa.Table.from_pylist([row | {"lane": "left"}]), path)
    assert refused(path).startswith("holds no truth: ")
    pq.write_table(pa.Table.from_pylist([row | {"site": None}]), path)
    assert refused(path).startswith("holds no truth: ")


def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SceneError, match=r"^\S+truth\.parquet: cannot write the truth: No such file or directory$"):
        write_truth([], tmp_path / "nowhere" / "truth.parquet")
    if Path("/dev/full").exists():
        with pytest.raises(SceneError, match=r"^/dev/full: cannot write the truth: No space left on device$"):
            write_truth([], "/dev/full")
