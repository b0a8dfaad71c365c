"""On a cluster the pipeline has the results of one machine, also if a worker dies or workers lack Genus."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import genus
from genus import Event
from genus.errors import LakeError
from genus.lake import DerivedTable, Inboxes, Lake
from genus.lake._jobs import job_errors, package_archive
from tests.lake import cluster, pipeline
from tests.lake.cluster_stream import BURSTS, MINUTES
from tests.lake.roads import ALL, Counter, Streetside, traffic, write_recording
from tests.lake.test_derived import rows
from tests.lake.test_inboxes import WANTED, delivered
from tests.lake.test_inboxes import expected as expected_inboxes
from tests.lake.test_stream import land, landed

ROOT = Path(__file__).parents[2]
FILES, EVENTS = 240, 50


class Stranger(Event):
    """A type that is not registered."""

    what: str


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings, one task each; some are damaged, and some have an event of an unregistered type."""
    folder = tmp_path_factory.mktemp("recordings")
    for number in range(FILES):
        events = traffic(EVENTS, first=number * EVENTS)
        if number % 10 == 0:
            events.insert(EVENTS // 3, Stranger(what="?"))
        path = write_recording(folder / f"{number:04}.genus", events)
        if number % 7 == 0:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 0xFF
            path.write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def expected(spark: SparkSession, recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of one machine."""
    result = json.loads(json.dumps(pipeline.run(spark, recordings, tmp_path_factory.mktemp("local"))))
    assert result["files"] == [FILES, 0, 0]
    assert result["events"][1] >= FILES // 10
    assert all(int(result[name][0]) > 0 for name in ("pairs", "windows", "inbox Gate", "dead"))
    return result


def start(module: str, folder: Path, *, group: bool = False, **given: Any) -> subprocess.Popen[bytes]:
    """Start a test program in a process that imports nothing from the current folder."""
    code = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module({module!r}, run_name='__main__')"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    with open(folder / "program.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", code, json.dumps({"folder": str(folder), **given})],
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=group,
            env=environment | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(cluster.HOME)},
        )


def result_of(program: subprocess.Popen[bytes], folder: Path) -> Any:
    """The results of a program after it ended."""
    try:
        program.wait(timeout=900)
    finally:
        program.kill()
    log = (folder / "program.log").read_text(errors="replace")
    assert program.returncode == 0, log[-4000:]
    return json.loads((folder / "result.json").read_text())


@pytest.mark.slow
def test_two_worker_processes_give_the_same_and_need_no_genus_of_their_own(
    recordings: Path, expected: Any, tmp_path: Path
) -> None:
    """Nothing depends on a shared process; Genus is shipped to workers whose Python lacks it."""
    python = cluster.python_without_genus(tmp_path / "python")
    master = "local-cluster[2,1,1024]"
    program = start(
        "tests.lake.pipeline", tmp_path, master=master, recordings=str(recordings), python=python, ship=True
    )
    assert result_of(program, tmp_path) == expected


@pytest.mark.slow
@pytest.mark.parametrize("step", ["ingest", "deliver"])
def test_a_worker_that_dies_changes_nothing(recordings: Path, expected: Any, tmp_path: Path, step: str) -> None:
    """One of two workers is killed during a job: nothing is lost or duplicated."""
    watched = {"ingest": ("lake/tables", 1), "deliver": ("inboxes/inboxes", 1)}
    place, enough = watched[step]
    with cluster.started(tmp_path / "cluster", "first", "second") as running:
        conf = {
            "spark.executor.memory": "600m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # begin when both workers are there
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
            "spark.cores.max": "2",
        }
        program = start("tests.lake.pipeline", tmp_path, master=running.url, recordings=str(recordings), conf=conf)
        running.wait(lambda: program.poll() is not None or _files_in(tmp_path / place) >= enough)
        running.kill("first")
        assert result_of(program, tmp_path) == expected
    assert "Lost executor" in (tmp_path / "program.log").read_text(errors="replace")


def _files_in(folder: Path) -> int:
    """The number of files so far, finished or not."""
    return sum(1 for path in folder.rglob("*.parquet"))


KILLS = int(os.environ.get("GENUS_KILLS", "12"))
BUSY = {
    "spark.executor.memory": "600m",
    "spark.cores.max": "2",
    "spark.task.maxFailures": "100",
    "spark.stage.maxConsecutiveAttempts": "100",
    "spark.executorEnv.PYTHONPATH": str(ROOT),  # workers import the function of a walk, which is not in the program
}


@pytest.mark.slow
def test_a_stream_whose_executors_and_drivers_are_killed_has_the_results_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two executors are killed with -9, then the driver, and so on; lake, inboxes and derived tables are exact."""
    random, landing, count, kills = Random(KILLS), tmp_path / "landing", 0, 0
    lake = Lake.create(spark, tmp_path / "lake", *ALL)

    def land_more() -> None:
        nonlocal count
        while count < len(lake.state().sources) + 8:
            land(landing, count)
            count += 1

    with cluster.started(tmp_path / "cluster", "first", "second") as running:
        while kills < KILLS:
            land_more()
            program = start("tests.lake.cluster_stream", tmp_path, master=running.url, conf=BUSY, group=True)
            version = lake.version
            running.wait(lambda version=version: lake.version > version)  # type: ignore[misc]
            for _ in range(2):
                land_more()
                time.sleep(random.uniform(0, 2))
                running.wait(lambda program=program: running.executors() or program.poll() is not None)  # type: ignore[misc]
                if executors := running.executors():  # it may have read all files and ended
                    os.kill(random.choice(executors), signal.SIGKILL)
                    kills += 1
            time.sleep(random.uniform(0, 3))
            assert program.poll() in (None, 0), (tmp_path / "program.log").read_text()[-4000:]
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
                kills += 1
    stream = lake.stream(landing).route(WANTED).to_inboxes(tmp_path / "inboxes")
    minutes = DerivedTable(lake, tmp_path / "minutes", MINUTES, Counter)
    walked = DerivedTable(lake, tmp_path / "bursts", BURSTS, Counter)
    stream.follow(minutes).follow(walked).run()
    minutes.finish()
    walked.finish()
    events = landed(range(count))
    assert sorted(lake.read(Streetside).toArrow().column("time").to_pylist()) == [event.time for event in events]
    assert delivered(Inboxes(spark, tmp_path / "inboxes")) == expected_inboxes(events)
    assert rows(minutes.read()) == rows(MINUTES.all(lake.read(Counter)))
    assert rows(walked.read()) == rows(BURSTS.all(lake.read(Counter)))
    assert [*lake.check(), *minutes.check(), *walked.check()] == []


@pytest.mark.slow
def test_workers_without_genus_say_so_until_it_is_shipped(tmp_path: Path) -> None:
    """Types declared in the program need not be shipped; the failed attempt commits nothing."""
    python = cluster.python_without_genus(tmp_path / "python")
    found = result_of(start("tests.lake.ship_program", tmp_path, python=python), tmp_path)
    advice = "their Python does not have genus; call genus.lake.ship(spark) first, or install it there"
    assert found["refused"] == f"the workers cannot run Genus: {advice}"
    assert found["version"] == 1
    assert found["before"][:2] == ["nowhere", "nowhere"]
    assert "genus.zip/genus" in found["after"][0]
    assert found["after"][1] == "nowhere"
    assert (found["events"], found["right"]) == (50, True)


# -- the archive -------------------------------------------------------------------------------------------------------


def test_the_archive_holds_the_package_as_it_is_installed() -> None:
    """It has every source file and no compiled ones; it is made once."""
    package = Path(genus.__file__).parent
    there = {str(path.relative_to(package.parent)) for path in package.rglob("*") if path.is_file()}
    with zipfile.ZipFile(package_archive()) as packed:
        assert set(packed.namelist()) == {name for name in there if "__pycache__" not in name}
        assert packed.read("genus/errors.py") == (package / "errors.py").read_bytes()
    assert package_archive() == package_archive()


@pytest.mark.slow
def test_the_archive_can_be_imported_from() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import genus.lake._ingest.job as job; print(job.__file__)"
    done = subprocess.run([sys.executable, "-c", code, package_archive()], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{package_archive()}/genus/lake/_ingest/job.py"


def test_a_failure_that_is_not_about_modules_is_left_alone(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as raised, job_errors():
        spark.sql("select nothing from nowhere")
    assert not isinstance(raised.value, LakeError)
