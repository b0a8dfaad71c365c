"""The application from end to end, on a small city: everything agrees, and the report and the figures are there."""

import multiprocessing
from collections.abc import Iterator

import msgspec
import pytest
from pyspark.sql import SparkSession

from genus_traffic import pipeline
from genus_traffic.report.checks import checks
from genus_traffic.results import Results, Steps
from genus_traffic.road.city import default_city
from genus_traffic.road.scene import Scene
from genus_traffic.road.truth import read_truth
from genus_traffic.run import run
from genus_traffic.run_folder import RunFolder, prepare
from genus_traffic.segment.processes import run_segments, simulate_site

SCENE = default_city(2, "2 min", seed=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return prepare(tmp_path_factory.mktemp("city") / "demo")


@pytest.fixture(scope="module")
def results(folder: RunFolder, spark: SparkSession) -> Iterator[Results]:
    """A run in two micro-batches: the second one continues with what the first one left open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "BATCHES", 2)
        yield run(SCENE, folder, spark, Steps())


def test_every_check_holds(results: Results) -> None:
    """Speeds, counts, refit, stream and batch, subscriptions everywhere, deadlines, dead letters."""
    assert [check for check in checks(results) if not check.holds] == []


def test_figures_are_those_of_the_run(results: Results, folder: RunFolder) -> None:
    assert results.accuracy.complete > 50
    answers = {compiled.subscriber: compiled.answers["Spark"] for compiled in results.subscriptions}
    edges_and_beats = answers["VelocityMonitor"] + answers["HeartbeatWatch"]
    assert results.event_count == edges_and_beats + _settings(results)
    assert {site.name for site in results.sites} == set(SCENE.names) == {minute.site for minute in results.traffic}
    assert msgspec.json.decode(folder.results.read_bytes(), type=Results) == results


def _settings(results: Results) -> int:
    """Events that are neither edges nor heartbeats."""
    return sum(row.published for row in results.channels if row.channel.startswith("Setting"))


def test_the_truth_is_kept_beside_the_report(results: Results, folder: RunFolder) -> None:
    assert len(read_truth(folder.truth)) == results.accuracy.complete + results.accuracy.one_sided
    assert folder.report.read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.slow
def test_a_run_that_is_interrupted_ends_its_processes() -> None:
    """What `progress` raises, as Ctrl-C does, comes out, and no process is left."""

    def interrupted(done: float) -> None:
        assert done < 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_segments(default_city(2, "4 min", seed=1), interrupted)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_processes_give_what_one_alone_gives() -> None:
    """A site's run depends on its scene alone, not on the number of processes or the sites beside it."""
    scene = default_city(2, "30s", seed=4)
    together = run_segments(scene)
    alone = [simulate_site(_only(scene, name), scene.site(name), lambda _: None) for name in scene.names]
    assert [each.outcome.events for each in together] == [each.outcome.events for each in alone]


def _only(scene: Scene, name: str) -> Scene:
    refit_us = scene.refit_us(name)
    only = scene.only([name])
    assert refit_us is not None
    assert only.refit is not None
    begins = (refit_us - scene.start_us) / (scene.end_us - scene.start_us)
    return msgspec.structs.replace(only, refit=msgspec.structs.replace(only.refit, begins=begins))
