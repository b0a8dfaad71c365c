"""Scenarios: real nodes of a planned system on the simulated bus, from event types to what is counted."""

import json
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from genus.can import PreparedSystem, Scenario, World, simulate
from genus.can._plan.system import System
from genus.can._plan.system_file import load_system, parse_system
from genus.can._sim.faults import parse_fault
from genus.can._sim.trace import Trace
from genus.can._wire.payload import PayloadCodec
from genus.can._world.synthetic import PATTERNS, SHORTEST, Pattern, Rounds, releases, stand_in, with_types
from genus.can.types import Outcome, ScenarioRun
from genus.catalog import Catalog
from genus.cli._can_sim import sim
from genus.errors import BusError, PlanError
from genus.testing import run_command as genus
from tests.can.random_systems import random_system
from tests.examples import examples

ROOT = Path(__file__).parents[2]
CROSSING = ROOT / "examples" / "crossing.toml"
MS = 1_000_000

SMALL = """
[bus]
bitrate = 1_000_000
[[channel]]
name = "pulse"
node = "sensor"
class = "hard"
period = "5ms"
omissions = 1
size = 8
[[channel]]
name = "speed"
node = "sensor"
class = "soft"
period = "10ms"
deadline = "5ms"
expires = "10ms"
jitter = "1ms"
size = 4
subscribers = ["display"]
[[channel]]
name = "journal"
node = "display"
class = "none"
period = "50ms"
size = 40
subscribers = ["sensor"]
"""


@pytest.fixture(scope="module")
def small() -> PreparedSystem:
    return PreparedSystem.of(parse_system(SMALL))


@pytest.fixture(scope="module")
def crossing() -> PreparedSystem:
    return PreparedSystem.of(load_system(CROSSING))


def run(prepared: PreparedSystem, *faults: str, **options: object) -> Outcome:
    made = {"duration": 0.3, "faults": tuple(map(parse_fault, faults)), **options}
    return simulate(Scenario(prepared=prepared, **made))  # type: ignore[arg-type]


# -- event types -----------------------------------------------------------------------------------------------------


@given(size=st.integers(3, 600), open_ended=st.booleans(), number=st.integers(0, 255))
@examples(60)
def test_a_stand_in_is_exactly_as_long_as_asked_for(size: int, open_ended: bool, number: int) -> None:
    made = stand_in("Loop", size, open_ended)
    catalog = Catalog()
    catalog.register(made.cls)
    layout = PayloadCodec.of(made.cls, catalog.vector(made.cls))
    _, payload = layout.encode(made.make(number), 0)
    assert len(payload) == size
    assert layout.max_size_carrying() == (None if open_ended else size)
    assert int.from_bytes(payload[1 : 1 + made.width], "big") == number


@given(seed=st.integers(0, 500))
@examples(20)
def test_types_change_no_channel_but_its_name_tag_and_least_size(seed: int) -> None:
    """Among the channels of a node the order of identifiers, which is that of priorities, stays."""
    system = random_system(seed)
    typed = with_types(system).system
    for before, after in zip(system.channels, typed.channels, strict=True):
        assert after.size == max(SHORTEST, before.size)
        kept = {"event": before.event, "etag": before.etag, "size": before.size, "times": (), "sizes": ()}
        assert msgspec.structs.replace(after, **kept) == msgspec.structs.replace(before, times=(), sizes=())
    assert _order(typed) == _order(system)


def _order(system: System) -> list[str]:
    return [channel.name for channel in sorted(system.channels, key=lambda channel: channel.id)]


def test_names_that_no_type_may_have_are_spelled_otherwise() -> None:
    text = SMALL.replace('"pulse"', '"1st pulse"').replace('"speed"', '"1st-pulse"')
    typed = with_types(parse_system(text))
    assert [channel.event for channel in typed.system.channels] == ["_1st_pulse", "_1st_pulse_", "journal"]
    assert [channel.name for channel in typed.system.channels] == ["1st pulse", "1st-pulse", "journal"]


# -- releases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", PATTERNS)
def test_programs_publish_no_more_often_than_they_may(pattern: Pattern) -> None:
    """Any k events of a channel take at least k - 1 periods, less the jitter."""
    prepared = PreparedSystem.of(random_system(3))
    system = prepared.typed.system
    rounds = Rounds.of(system, prepared.plan.calendar, 0, 20_000 * MS, Random(1))
    for channel in (*system.soft, *system.none):
        instants = list(islice(releases(channel, pattern, 0, rounds, Random(2)), 60))
        assert instants == sorted(instants)
        for k in range(1, len(instants)):
            apart = min(b - a for a, b in zip(instants, instants[k:], strict=False))
            assert apart >= k * channel.period_ns - channel.jitter_ns


# -- outcomes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clocks", ["real", "perfect"])
def test_without_faults_every_event_is_delivered_once_in_time(small: PreparedSystem, clocks: str) -> None:
    outcome = run(small, clocks=clocks)
    assert outcome.broken == ()
    assert [sum(result.delivered.values()) for result in outcome.channels] == [59, 30, 6]
    for result in outcome.channels:
        assert result.published == result.sent == min(result.delivered.values())
        assert (result.lost, result.duplicates, result.waiting) == (0, 0, 0)
        assert 0 < result.mean_ns <= result.worst_ns <= (result.bound_ns or 0)


def test_who_has_no_subscriber_is_heard_by_an_observer(small: PreparedSystem) -> None:
    assert small.typed.system.channel("pulse").subscribers == ("observer",)
    assert run(small, clocks="perfect").channel("pulse").delivered == {"observer": 59}


def test_the_crossing_keeps_its_promises_with_real_clocks(crossing: PreparedSystem) -> None:
    outcome = run(crossing)
    assert outcome.admitted
    assert outcome.broken == ()
    assert outcome.problems == {}


def test_the_same_seed_comes_to_the_same_outcome_and_another_to_another(small: PreparedSystem) -> None:
    first, again, other = (run(small, "errors p=0.1", seed=seed) for seed in (1, 1, 2))
    assert msgspec.json.encode(first) == msgspec.json.encode(again)
    assert msgspec.json.encode(first) != msgspec.json.encode(other)


def test_nodes_of_a_broker_get_the_numbers_of_the_system_file(small: PreparedSystem) -> None:
    with ScenarioRun(Scenario(prepared=small, duration=0.2, broker=True)) as happens:
        for _ in happens.advance():
            pass
        numbers = {name: station.node.number for name, station in happens.world.stations.items()}
        assert numbers == small.typed.system.nodes
        assert happens.outcome().broken == ()


@pytest.mark.slow
def test_what_is_lost_is_told_to_each_subscriber(small: PreparedSystem) -> None:
    outcome = run(small, *(f"losses p=0.2 band={band}" for band in ("hard", "soft", "none")), duration=2.0)
    for result in outcome.channels:
        assert result.lost > 0
        assert result.unnoticed == 0
    assert any("alarms" in why for why in outcome.broken)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_is_told_of_a_loss_that_was_none(crossing: PreparedSystem, seed: int) -> None:
    """A report may have to wait until events that it does not count have gone before it."""
    outcome = run(crossing, "errors p=0.1", duration=1.0, seed=seed)
    assert all(result.lost == 0 for result in outcome.channels)
    assert "EventsLost" not in outcome.problems


def test_a_station_that_restarts_takes_part_again(small: PreparedSystem) -> None:
    sensor = small.typed.system.nodes["sensor"]
    outcome = run(small, f"crash node={sensor} at=600ms restart=700ms", duration=1.5)
    speed, pulse = outcome.channel("speed"), outcome.channel("pulse")
    assert 130 <= speed.published == speed.delivered["display"] < 150
    assert 20 <= pulse.alarms["observer"] < 100
    assert pulse.delivered["observer"] + pulse.alarms["observer"] == 299


def test_a_run_can_be_ended_early(small: PreparedSystem) -> None:
    with ScenarioRun(Scenario(prepared=small, duration=50)) as happens:
        for part in happens.advance():
            if part > 0.01:
                break
        outcome = happens.outcome()
    assert 0.4 < outcome.seconds < 1.1
    assert outcome.broken == ()
    with ScenarioRun(Scenario(prepared=small, duration=86_400)) as long:
        next(long.advance())
        assert long.outcome().seconds <= 1.1


def test_blocking_errors_need_clocks_that_are_known_beforehand(small: PreparedSystem) -> None:
    with pytest.raises(BusError, match="perfect clocks"):
        run(small, "blocking")
    assert run(small, "blocking", clocks="perfect").broken == ()


def test_a_system_that_is_not_admitted_can_be_simulated_too() -> None:
    too_much = SMALL.replace('period = "10ms"\ndeadline = "5ms"', 'period = "200us"\ndeadline = "150us"')
    prepared = PreparedSystem.of(parse_system(too_much))
    outcome = run(prepared, clocks="perfect", duration=0.1)
    assert not outcome.admitted
    assert outcome.channel("speed").missed > 0
    assert outcome.channel("speed").sent_expired == 0
    assert sum(outcome.channel("pulse").alarms.values()) == 0


def test_a_system_without_channels_or_without_a_number_for_an_observer_is_refused() -> None:
    with pytest.raises(PlanError, match="no channels"):
        PreparedSystem.of(parse_system("[bus]\nbitrate = 500_000"))
    channel = '[[channel]]\nname = "c{0}"\nnode = "n{0}"\nclass = "none"\nperiod = "1s"\nsize = 1\n'
    full = "[bus]\nbitrate = 500_000\n" + "".join(channel.format(number) for number in range(126))
    with pytest.raises(PlanError, match="no number is free"):
        PreparedSystem.of(parse_system(full))


def test_can_fd_one_event_of_several_nodes_and_forced_segments() -> None:
    text = """
        [bus]
        bitrate = 500_000
        data_bitrate = 2_000_000
        [[channel]]
        name = "block"
        node = "a"
        class = "hard"
        period = "10ms"
        size = 64
        subscribers = ["a", "b"]
        [[channel]]
        name = "short"
        event = "Note"
        node = "a"
        class = "none"
        period = "10ms"
        size = 0
        segmented = true
        subscribers = ["a", "b"]
        [[channel]]
        name = "long"
        event = "Note"
        node = "b"
        class = "none"
        period = "20ms"
        size = 300
        subscribers = ["a"]
    """
    outcome = run(PreparedSystem.of(parse_system(text)))
    assert outcome.broken == ()
    assert [result.delivered for result in outcome.channels] == [{"a": 29, "b": 29}, {"a": 30, "b": 30}, {"a": 15}]


# -- command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_the_command_shows_every_channel_and_writes_trace_and_picture(file: Path, tmp_path: Path) -> None:
    trace, png = tmp_path / "bus.trace", tmp_path / "bus.png"
    done = CliRunner().invoke(sim, [str(file), "--for", "0.1", "--trace", str(trace), "--png", str(png)])
    assert done.exit_code == 0, done.output
    assert all(name in done.output for name in ("pulse", "speed", "journal", "every promise was kept"))
    assert len(Trace.load_file(trace)) > 30
    assert png.stat().st_size > 1000


def test_a_picture_shows_the_stretch_that_is_asked_for(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times count from when programs begin to publish; without them the command chooses."""
    drawn: list[tuple[int, int]] = []

    def draw(world: World, path: Path, begin_ns: int, end_ns: int) -> None:
        drawn.append((begin_ns, end_ns))

    monkeypatch.setattr(World, "draw", draw)
    seconds = []
    picture = ("--picture-from", "30ms", "--picture-for", "5ms")
    for options in (picture, ("--picture-from", "0s", "--for", "100ms"), ("--for", "100ms")):
        done = CliRunner().invoke(sim, [str(file), "--png", str(tmp_path / "x.png"), "--json", *options])
        assert done.exit_code == 0, done.output
        outcome = json.loads(done.stdout)
        seconds.append(outcome["seconds"])
        drawn[-1] = drawn[-1][0] - outcome["began_ns"], drawn[-1][1] - outcome["began_ns"]
    assert seconds == [0.035, 0.1, 0.1]
    assert drawn[:2] == [(30_000_000, 35_000_000), (0, 20_000_000)]
    begin, end = drawn[2]
    assert end - begin == 20_000_000
    assert 0 <= begin <= 80_000_000


def test_a_picture_shows_what_went_wrong() -> None:
    """The stretch has the first alarm of a node that stopped, wherever in the run that was."""
    prepared = PreparedSystem.of(parse_system(SMALL))
    crash = parse_fault("crash node=sensor at=700ms", prepared.typed.system.nodes)
    with ScenarioRun(Scenario(prepared=prepared, duration=1, faults=(crash,), traced=True)) as run:
        for _ in run.advance():
            pass
        run.outcome()
        begin, end = run.stretch()
        assert begin <= run.world.observation.first_problems["EventMissing"] < end
        assert 700_000_000 < end < 740_000_000
        assert run.stretch(10**12) == (run.began_ns, run.ends_ns)


def test_the_command_gives_json_and_a_summary_of_many_runs(file: Path) -> None:
    one = CliRunner().invoke(sim, [str(file), "--for", "0.1", "--json"])
    assert json.loads(one.stdout)["seed"] == 1
    many = CliRunner().invoke(sim, [str(file), "--for", "0.1", "--runs", "3", "--clocks", "perfect", "--json"])
    assert json.loads(many.stdout)["runs"] == 3
    shown = CliRunner().invoke(sim, [str(file), "--for", "0.1", "--runs", "3", "--clocks", "perfect"])
    assert "3 runs" in shown.output


def test_a_broken_promise_is_a_failure_only_if_asked_for(file: Path) -> None:
    arguments = [str(file), "--for", "0.1", "--faults", "exactly count=2"]
    assert CliRunner().invoke(sim, arguments).exit_code == 0
    strict = CliRunner().invoke(sim, [*arguments, "--strict"])
    assert strict.exit_code == 1
    assert "pulse: 19 events not sent" in strict.output


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["--faults", "erors p=1"], 2, "did you mean errors?"),
        (["--faults", "errors p=2"], 2, "must be a probability"),
        (["--faults", "crash node=99 at=1s"], 1, "there is no host 99"),
        (["--faults", "blocking"], 2, "perfect clocks"),
        (["--clock-master", "nobody"], 2, "there is no node 'nobody' that could lead the clocks"),
        (["--runs", "2", "--png", "x.png"], 2, "single run"),
        (["--picture-from", "1s"], 2, "add --png"),
    ],
)
def test_what_cannot_be_simulated_is_one_clear_line(
    file: Path, arguments: list[str], status: int, problem: str
) -> None:
    done = genus("can", "sim", str(file), "--for", "100ms", *arguments)
    assert done.returncode == status
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_lists_the_faults() -> None:
    assert "babble node=" in CliRunner().invoke(sim, ["--help"]).output


def test_ctrl_c_shows_what_came_of_it_so_far(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ScenarioRun.advance

    def interrupted(self: ScenarioRun) -> Iterator[float]:
        for step, part in enumerate(whole(self)):
            if step == 3:
                signal.raise_signal(signal.SIGINT)
            yield part

    monkeypatch.setattr(ScenarioRun, "advance", interrupted)
    done = CliRunner().invoke(sim, [str(file), "--for", "100s", "--json"])
    assert done.exit_code == 130
    assert json.loads(done.stdout)["seconds"] == 2.0
