"""Mapping files: a mistake in one is an error that names file, table and key, before anything is read."""

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from genus import Event, Kind, Maybe
from genus.errors import LakeError
from genus.lake._ingest.csv_files import Csv
from genus.lake._ingest.json_lines import JsonLines
from genus.lake._ingest.tabular import ParquetFiles
from genus.records import Mapping, read_mapping
from genus.records._mapping import MappedField, format_path, parse_path
from genus.records._values import ValueFormat
from tests.lake.foreign_files import format_for, types_for


class Laneside(Kind): ...


class Loop(Event, Laneside):
    lane: int
    speed: Maybe[float] = None
    gap: Maybe[timedelta] = None
    blob: Maybe[bytes] = None


class Lamp(Event):
    watts: float


TYPES = types_for(Loop, Lamp)


def test_an_empty_mapping_is_none() -> None:
    """By default `type` names the type and fields are named like attributes."""
    assert read_mapping("") == Mapping()
    assert Mapping().naming.fields == (("type",),)


def test_a_mapping_is_read_from_a_file_or_a_text(tmp_path: Path) -> None:
    """It is frozen, equal by value, and survives pickling, as it is sent to tasks."""
    text = 'zone = "UTC"\nabsent = ["NA"]\n[attributes]\n"a.b" = { to = "time", format = "ms" }\n'
    (tmp_path / "mapping.toml").write_text(text)
    from_file = read_mapping(tmp_path / "mapping.toml")
    assert from_file.fields == read_mapping(text).fields
    assert from_file.fields == (MappedField(("a", "b"), "time", ValueFormat("ms", "UTC", None, ("NA",))),)
    assert pickle.loads(pickle.dumps(from_file)) == from_file


@pytest.mark.parametrize("text", ["a", "a.b", r"a\.b.c", "Wind Speed", "fields.Wind Speed"])
def test_a_path_is_written_as_it_is_read(text: str) -> None:
    assert format_path(parse_path(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = ", "is not TOML"),
        ("speed = 1", "speed is not a known key; known are zone, absent, ignore"),
        ("ignore = 3", "ignore is 3; a list or text is needed"),
        ('ignore = "all"', "ignore is 'all'; write a list of fields, or \"rest\""),
        ("ignore = [3]", "ignore has 3, which is not a path to a field"),
        ("absent = [true]", "absent has True; write text or numbers"),
        ('zone = "Berlin"', "zone is 'Berlin', which is not a time zone"),
        ('[type]\nis = "A"\nfield = "b"', "[type] has is and field; give one of them"),
        ("[type]\nis = true", "[type] is is True; text is needed"),
        ('[type]\nkind = "A"', "[type] kind is not a known key; known are is, field, name, strip"),
        ("[types]\na = 1", "[types] 'a' is 1; write the name of an event type"),
        ("[attributes]\na = 1", "[attributes] 'a' is 1; write the name of an attribute"),
        ('[attributes]\na.b = "c"', "[attributes] 'a' has no `to`; a path with dots is written in quotes"),
        ('[attributes]\na = { to = "b", unit = "m" }', "[attributes] 'a' unit is not a known key; known are to"),
        ('[attributes]\na = { to = "b", scale = true }', "[attributes] 'a' scale is True; a number is needed"),
        ('[attributes]\na = { to = "b", format = "epoch" }', "[attributes] 'a' has the format 'epoch'; write iso,"),
        ('[attributes]\na = { to = "b", format = "%Q" }', "[attributes] 'a' has the format '%Q'"),
        ('[attributes]\na = { to = "b", format = "%H:%M" }', "without a time zone; add zone ="),
        ("of = 1", "of is 1; a table is needed"),
        ("[of]\nLoop = 1", "[of.Loop] is 1; write a table"),
        ('[recorded]\nformat = "ms"', "recorded names no field"),
        ('[csv]\ndelimiter = ";;"', "[csv] delimiter is ';;'; one ASCII character is needed"),
        ('[csv]\ncolumns = ["a", "a"]', "[csv] columns is ['a', 'a']; write the name of each column, each once"),
        ("[csv]\nnewlines = 1", "[csv] newlines is 1; true or false is needed"),
    ],
)
def test_a_mistake_names_file_table_and_key(tmp_path: Path, text: str, problem: str) -> None:
    """The error is raised when the mapping is read, not when a record is."""
    path = tmp_path / "mapping.toml"
    path.write_text(text)
    with pytest.raises(LakeError) as caught:
        read_mapping(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)


def test_a_mapping_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"nowhere.toml: cannot be read: No such file"):
        read_mapping(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[type]\nis = "Tram"', "'Tram' is not an event type of the catalog, which has Event, Lamp, Loop"),
        ('[type]\nis = "Laneside"', "'Laneside' is not an event type"),
        ('[types]\na = "Tram"', "'Tram' is not an event type"),
        ('[of.Tram]\na = "lane"', "'Tram' is not an event type"),
        (
            '[type]\nis = "Loop"\n[attributes]\na = "watts"',
            "[attributes] a: Loop has no attribute 'watts'; its attributes are lane, speed, ",
        ),
        ('[attributes]\na = "volts"', "[attributes] a: Event has no attribute 'volts'"),
        ('[of.Lamp]\n"b.c" = "lane"', "[of.Lamp] b.c: Lamp has no attribute 'lane'"),
        ("[constants]\nvolts = 1", "[constants] volts: "),
        ('[constants]\nlane = "x"', "[constants] lane is 'x', but must be int64"),
        ('[attributes]\na = { to = "place", scale = 2 }', "[attributes] a: scale is for numbers"),
        ('[attributes]\na = { to = "lane", format = "ms" }', "format 'ms' is not for an attribute that is int64"),
        ('[attributes]\na = { to = "time", format = "hex" }', "format 'hex' is not for"),
        ('[attributes]\na = { to = "blob", format = "iso" }', "format 'iso' is not for"),
        ('[attributes]\na = { to = "gap", format = "text" }', "format 'text' is not for"),
    ],
)
def test_a_mapping_is_checked_against_the_catalog(text: str, problem: str) -> None:
    """Unknown types and attributes are refused with the known ones in the message; options must fit the attribute."""
    with pytest.raises(LakeError) as caught:
        read_mapping(text).check(TYPES)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '[type]\nis = "Loop"\n[attributes]\na = { to = "speed", scale = 0.1 }\nb = { to = "gap", format = "ms" }',
        '[types]\nl = "Loop"\nm = "Lamp"\n[attributes]\nw = "watts"\nv = "lane"',
        "[constants]\nlane = 1\ntime = 2026-11-15T00:00:00Z",
    ],
)
def test_a_good_mapping_passes(text: str) -> None:
    """An attribute that is mapped for all records need exist in some of the types only."""
    read_mapping(text).check(TYPES)


def test_the_ending_of_a_file_says_its_format() -> None:
    """Text may be compressed; Parquet compresses itself."""
    endings: dict[str, type] = {
        "json": JsonLines,
        "jsonl": JsonLines,
        "ndjson.gz": JsonLines,
        "CSV": Csv,
        "tsv.gz": Csv,
        "parquet": ParquetFiles,
    }
    assert {ending: type(format_for(f"/a.b/c.{ending}")) for ending in endings} == endings
    assert format_for("/data/x.tsv").delimiter == "\t"  # type: ignore[attr-defined]
    for path in ("/a/b.txt", "/a/b", "/a/b.parquet.gz"):
        with pytest.raises(LakeError, match=f"^{path}: "):
            format_for(path)
