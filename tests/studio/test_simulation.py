"""Simulations on the page: paced to real time, paused, slow and quick, and always ended cleanly."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Soft, Subscription, UInt16, open_bus
from genus.bus import Bus
from genus.can import World
from genus.errors import BusError, GenusError
from genus.studio import parse_simulation
from genus.studio._simulation import (
    CHUNK_NS,
    ENTRY_POINTS,
    MEASURED_S,
    STEP_S,
    Pace,
    ScenarioOptions,
    SimulatedWorldSource,
    Simulation,
    find_system,
    open_simulation,
)
from genus.studio.types import (
    ChannelRow,
    EventSource,
    PlayedSource,
    SimulatedSystem,
    Source,
    SourceRow,
    SubscriptionRow,
    TimedSource,
    TimelineSource,
)
from tests.waiting import wait_for

SECOND = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SYSTEM = """
[bus]
bitrate = 500_000
[[channel]]
event = "Tide"
node = "gauge"
class = "soft"
period = "10ms"
deadline = "5ms"
size = 8
subscribers = ["logger"]
"""


class Clock:
    """State: real time, as a test lets it pass."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Idle:
    """State: a system without worlds, in which an advance takes as much real time as a test says."""

    worlds: Mapping[str, World] = {}
    buses: Mapping[str, Bus] = {}
    types: Collection[type] = ()
    begin_ns = 5 * SECOND

    def __init__(self, clock: Clock, cost: float = 0.0, end_ns: int | None = None) -> None:
        self.now_ns = self.begin_ns
        self.end_ns = end_ns
        self.steps: list[int] = []
        self.is_closed = False
        self.problem: Exception | None = None
        self._clock, self._cost = clock, cost

    def start(self) -> Iterator[str]:
        yield "waking up"

    def advance(self, until_ns: int) -> None:
        if self.problem is not None:
            raise self.problem
        assert until_ns > self.now_ns
        self.steps.append(until_ns - self.now_ns)
        self._clock.now_s += (until_ns - self.now_ns) / 1e9 * self._cost
        self.now_ns = until_ns

    def close(self) -> None:
        self.is_closed = True


def run_for(simulation: Simulation, clock: Clock, seconds: float) -> None:
    """Let real time pass as the thread of a simulation does."""
    end_s = clock.now_s + seconds
    while clock.now_s < end_s:
        wait_s = simulation.turn()
        clock.now_s = end_s if wait_s is None else clock.now_s + max(wait_s, 1e-6)


def started(
    cost: float = 0.0, end_ns: int | None = None, make: Callable[[], SimulatedSystem] | None = None
) -> tuple[Simulation, Idle, Clock]:
    clock = Clock()
    system = Idle(clock, cost, end_ns)
    simulation = Simulation(system, make=make, clock=clock)
    simulation.start()
    return simulation, system, clock


# -- pacing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speed", [0.01, 0.5, 1, 3, 100])
def test_virtual_time_passes_as_fast_as_asked(speed: float) -> None:
    simulation, system, clock = started()
    simulation.set_speed(speed)
    run_for(simulation, clock, 2.0)
    assert system.now_ns - system.begin_ns == pytest.approx(2 * speed * SECOND, rel=0.03)
    assert max(system.steps) <= CHUNK_NS
    assert simulation.fields()["note"] == ""


def test_time_is_moved_on_in_small_steps() -> None:
    simulation, system, clock = started()
    run_for(simulation, clock, 1.0)
    assert len(system.steps) == pytest.approx(1 / STEP_S, rel=0.1)


def test_while_it_is_paused_no_virtual_time_passes_and_none_is_made_up_for() -> None:
    simulation, system, clock = started()
    run_for(simulation, clock, 1.0)
    simulation.pause()
    paused_ns = system.now_ns
    run_for(simulation, clock, 60.0)
    assert (simulation.state, system.now_ns) == ("paused", paused_ns)
    simulation.play()
    run_for(simulation, clock, 1.0)
    assert system.now_ns - paused_ns == pytest.approx(SECOND, rel=0.05)


def test_another_speed_holds_from_now_on() -> None:
    simulation, system, clock = started()
    run_for(simulation, clock, 1.0)
    at_ns = system.now_ns
    simulation.set_speed(10)
    run_for(simulation, clock, 1.0)
    assert system.now_ns - at_ns == pytest.approx(10 * SECOND, rel=0.05)


def test_a_machine_that_is_too_slow_says_which_speed_it_reaches() -> None:
    """And does not try to catch up: what it is behind by is forgotten."""
    simulation, system, clock = started(cost=0.2)
    simulation.set_speed(20)
    run_for(simulation, clock, 3 * MEASURED_S)
    reached = (system.now_ns - system.begin_ns) / 1e9 / (3 * MEASURED_S)
    assert 4 < reached < 5
    assert simulation.fields()["note"].startswith("this machine reaches 4.")
    assert max(system.steps) <= CHUNK_NS
    simulation.set_speed(1)
    at_ns = system.now_ns
    run_for(simulation, clock, 2 * MEASURED_S)
    assert system.now_ns - at_ns == pytest.approx(2 * MEASURED_S * SECOND, rel=0.05)
    assert simulation.fields()["note"] == ""


@given(turns=st.lists(st.tuples(st.floats(0, 2), st.sampled_from(["", "pause", "play", "fast", "slow"])), max_size=30))
def test_time_never_goes_back_or_leaps(turns: list[tuple[float, str]]) -> None:
    simulation, system, clock = started()
    actions: dict[str, Callable[[], None]] = {
        "": lambda: None,
        "pause": simulation.pause,
        "play": simulation.play,
        "fast": lambda: simulation.set_speed(100),
        "slow": lambda: simulation.set_speed(0.01),
    }
    for seconds, action in turns:
        before = system.now_ns
        actions[action]()
        simulation.turn()
        assert before <= system.now_ns <= before + CHUNK_NS
        clock.now_s += seconds


def test_the_pace_counts_from_where_it_was_restarted() -> None:
    pace = Pace()
    pace.speed = 2.0
    pace.restart(10.0, 7)
    assert pace.due_ns(11.5) == 7 + 3 * SECOND


@pytest.mark.parametrize("speed", [0, 0.009, 101, -1, float("nan")])
def test_a_speed_that_makes_no_sense_is_refused(speed: float) -> None:
    simulation, _, _ = started()
    with pytest.raises(BusError, match=r"it is 0.01 to 100"):
        simulation.set_speed(speed)
    assert simulation.speed == 1


def test_a_simulation_cannot_go_back() -> None:
    simulation, _, _ = started()
    with pytest.raises(BusError, match="only goes forward"):
        simulation.seek(0.0)


def test_when_its_time_is_over_it_has_ended() -> None:
    simulation, system, clock = started(end_ns=7 * SECOND + 1)
    run_for(simulation, clock, 5.0)
    assert (simulation.state, system.now_ns) == ("ended", 7 * SECOND + 1)
    with pytest.raises(BusError, match="has ended; open it again"):
        simulation.play()
    simulation.pause()
    assert simulation.fields()["state"] == "ended"


def test_one_that_has_ended_is_made_again_by_play() -> None:
    again = Idle(Clock(), end_ns=7 * SECOND)
    simulation, system, clock = started(end_ns=6 * SECOND, make=lambda: again)
    run_for(simulation, clock, 5.0)
    assert simulation.state == "ended"
    simulation.play()
    assert (simulation.state, simulation.note) == ("playing", "starting again")
    run_for(simulation, clock, 1.0)
    assert (simulation.state, simulation.note, system.is_closed) == ("playing", "", True)
    assert again.now_ns - again.begin_ns == pytest.approx(SECOND, rel=0.05)
    assert simulation.fields()["end_ms"] == 7000
    run_for(simulation, clock, 5.0)
    assert simulation.state == "ended"
    assert not again.is_closed


def test_one_that_was_paused_is_not_made_again() -> None:
    simulation, system, clock = started(make=lambda: pytest.fail("it has not ended"))
    run_for(simulation, clock, 1.0)
    simulation.pause()
    simulation.play()
    run_for(simulation, clock, 1.0)
    assert system.now_ns - system.begin_ns == pytest.approx(2 * SECOND, rel=0.05)


# -- in its thread -----------------------------------------------------------------------------------------------------


def test_an_error_of_the_simulation_is_told_and_ends_it() -> None:
    system = Idle(Clock())
    system.problem = GenusError("the bridge is down")
    simulation = Simulation(system)
    simulation.open()
    wait_for(lambda: system.is_closed)
    assert (simulation.state, simulation.note) == ("failed", "the bridge is down")
    simulation.close()


def test_one_that_failed_is_made_again_by_play() -> None:
    """Also if it could not be made at first."""
    system, again = Idle(Clock()), Idle(Clock())
    system.problem = GenusError("the bridge is down")
    made: list[SimulatedSystem | GenusError] = [again, GenusError("there is no steel")]

    def make() -> SimulatedSystem:
        found = made.pop()
        if isinstance(found, GenusError):
            raise found
        return found

    simulation = Simulation(system, make=make)
    simulation.open()
    wait_for(lambda: simulation.note == "the bridge is down")
    simulation.play()
    wait_for(lambda: simulation.note == "there is no steel")
    assert simulation.state == "failed"
    simulation.play()
    wait_for(lambda: len(again.steps) > 3)
    assert (simulation.state, simulation.note) == ("playing", "")
    simulation.close()
    assert again.is_closed


def test_one_that_has_other_worlds_when_it_is_made_again_is_refused() -> None:
    with World("another") as world:
        other = Idle(Clock())
        other.worlds = {"another": world}
        simulation, _, clock = started(end_ns=6 * SECOND, make=lambda: other)
        run_for(simulation, clock, 5.0)
        simulation.play()
        with pytest.raises(BusError, match="has other worlds now; open it again"):
            simulation.turn()
        assert other.is_closed


def test_closing_ends_the_thread_and_the_system() -> None:
    system = Idle(Clock())
    simulation = Simulation(system)
    simulation.open()
    wait_for(lambda: len(system.steps) > 3)
    simulation.close()
    assert system.is_closed
    steps = len(system.steps)
    simulation.close()
    assert len(system.steps) == steps
    assert all(thread.name != "genus-studio simulation" for thread in threading.enumerate())


def test_a_paused_simulation_is_closed_at_once() -> None:
    system = Idle(Clock())
    simulation = Simulation(system)
    simulation.open()
    wait_for(lambda: simulation.note == "")
    simulation.pause()
    simulation.close()
    assert system.is_closed


# -- system files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def system_file(tmp_path: Path) -> Path:
    path = tmp_path / "harbour.toml"
    path.write_text(SYSTEM)
    return path


def test_a_system_file_runs(system_file: Path) -> None:
    (source,) = open_simulation(f"{system_file}?duration=100s&seed=3&faults=errors p=0.1")
    seen: list[Event] = []
    try:
        assert isinstance(source, PlayedSource)
        assert isinstance(source, EventSource)
        assert isinstance(source, TimelineSource)
        source.tap(lambda _, event, __: seen.append(event))
        source.set_speed(20)
        wait_for(lambda: sum(source.counts().values()) > 50)
        source.pause()
        row = source.rows(["sources"])["sources"]["harbour"]
        assert isinstance(row, SourceRow)
        assert (row.state, row.speed, row.kind) == ("paused", 20.0, "world")
        assert row.begin_ms is not None
        assert row.end_ms == row.begin_ms + 100_000
        assert row.address == f"sim:{system_file}?duration=100s&seed=3&faults=errors p=0.1"
        (tide,) = source.types()
        assert all(isinstance(event, tide) for event in seen)
    finally:
        source.close()


def test_nothing_is_lost_or_made_up_when_it_is_sampled_while_it_runs(system_file: Path) -> None:
    """The events of a tap are numbered without a gap, and what is shown at the end is what the world counted."""
    seen: list[Event] = []
    simulation = Simulation(find_system(str(system_file)))
    (source,) = simulation.sources
    assert isinstance(source, SimulatedWorldSource)
    source.tap(lambda _, event, __: seen.append(event))
    source.set_speed(20)
    simulation.open()

    def has_enough() -> bool:
        source.rows(["sources", "channels", "nodes", "subscriptions"])
        source.timeline(None, 20_000)
        return source.counts()["Tide"] > 300

    try:
        wait_for(has_enough)
    finally:
        source.close()
    (result,) = source.world.outcome().channels
    assert len(seen) == result.published == source.counts()["Tide"]
    assert len({str(event) for event in seen}) == len(seen)
    assert result.lost == 0


def test_a_system_file_that_has_ended_is_played_again(system_file: Path) -> None:
    """The sources stay, with those who tap them, and so do the types: subscriptions of a page go on."""
    (source,) = open_simulation(f"{system_file}?duration=200ms")
    assert isinstance(source, SimulatedWorldSource)
    seen: list[Event] = []
    try:
        end = source.tap(lambda _, event, __: seen.append(event))
        wait_for(lambda: source.simulation.state == "ended")
        first, types, world = [str(event) for event in seen], list(source.types()), source.world
        assert len(first) > 10
        assert source.counts()["Tide"] == len(first)
        seen.clear()
        source.play()
        wait_for(lambda: source.simulation.state == "ended")
        assert [str(event) for event in seen] == first
        assert list(source.types()) == types
        assert {type(event) for event in seen} == set(types)
        assert (source.counts()["Tide"], world.is_closed) == (len(first), True)
        end()
        source.play()
        wait_for(lambda: source.simulation.state == "ended")
        assert len(seen) == len(first), "a tap that was ended hears nothing"
    finally:
        source.close()


def test_a_world_of_a_bus_that_is_closed_by_the_simulation_can_be_made_again(system_file: Path) -> None:
    for _ in range(2):
        (source,) = open_simulation(str(system_file))
        source.close()
        source.close()


# -- addresses ---------------------------------------------------------------------------------------------------------


def test_what_can_be_simulated_is_listed_for_what_cannot() -> None:
    with pytest.raises(BusError, match=r"(?s)sim:nowhere: nothing that can be simulated .*system file: .*traffic: "):
        find_system("nowhere")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("duration=long", "duration is 'long'; write seconds as a number"),
        ("duration=5m", "duration is '5m', and 'm' is no unit of time"),
        ("sed=1", "did you mean 'seed'"),
        ("seed", "write options as name=value"),
        ("pattern=random", "Invalid enum value 'random'"),
        ("faults=rain", "rain"),
    ],
)
def test_wrong_options_are_refused(system_file: Path, query: str, says: str) -> None:
    with pytest.raises(GenusError, match=says):
        find_system(f"{system_file}?{query}")


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[[[")
    with pytest.raises(BusError, match=r"broken.toml cannot be read"):
        find_system(str(tmp_path / "broken.toml"))


def test_options_may_be_given_several_times() -> None:
    name, options = parse_simulation("a/b.toml?faults=errors p=0.1&faults=duplicates p=0.2", ScenarioOptions)
    assert name == "a/b.toml"
    assert options == ScenarioOptions(faults=("errors p=0.1", "duplicates p=0.2"))


class Rain(Event):
    drops: UInt16


class Weather:
    """State: a system of another package: a world that rains, and a bus that hears of it."""

    types: Collection[type] = (Rain,)
    end_ns = None

    def __init__(self, late: timedelta = timedelta(milliseconds=30)) -> None:
        self.late = late
        self.world = World("weather", catalog=[Rain])
        self.bus = open_bus("local:")
        self.worlds: Mapping[str, World] = {"sky": self.world}
        self.buses: Mapping[str, Bus] = {"ground": self.bus}
        self.begin_ns = self.world.start_ns

    @property
    def now_ns(self) -> int:
        return self.world.time_ns

    def start(self) -> Iterator[str]:
        yield "gathering clouds"
        cloud = open_bus("sim:weather?name=cloud")
        rain = cloud.channel(Rain, Soft(deadline="5ms"))
        rain.announce()
        cloud.every("10ms", lambda: rain.publish(Rain(drops=1)))

    def advance(self, until_ns: int) -> None:
        self.world.run_ns(until_ns - self.now_ns)
        self.bus.publish(Rain(drops=2, time=EPOCH + timedelta(microseconds=self.now_ns // 1000) - self.late))

    def close(self) -> None:
        self.world.close()
        self.bus.close()


def make_weather(text: str) -> SimulatedSystem | None:
    """`weather`: rain."""
    return Weather() if text == "weather" else None


def add_weather(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    entry = EntryPoint("weather", value, ENTRY_POINTS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == ENTRY_POINTS else [])


def test_packages_add_simulations_with_worlds_and_buses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources of one simulation stop and go together, and all have its time."""
    add_weather(monkeypatch, f"{__name__}:make_weather")
    sky, ground = open_simulation("weather")
    times: list[int] = []
    try:
        assert (sky.name, ground.name) == ("sky", "ground")
        assert isinstance(ground, PlayedSource)
        assert isinstance(ground, EventSource)
        ground.tap(lambda at, _, __: times.append(at))
        wait_for(lambda: sky.counts().get("Rain", 0) > 5 and len(times) > 5)
        ground.pause()
        rows = [source.rows(["sources"])["sources"][source.name] for source in (sky, ground)]
        assert [row.state for row in rows if isinstance(row, SourceRow)] == ["paused", "paused"]
        assert [row.kind for row in rows if isinstance(row, SourceRow)] == ["world", "bus"]
        assert len({row.player for row in rows if isinstance(row, SourceRow)}) == 1
        assert times == sorted(times)
        begin_ns = sky.world.start_ns  # type: ignore[attr-defined]
        assert all(begin_ns < at < begin_ns + 60 * SECOND for at in times)
    finally:
        ground.close()


class Looked:
    """A simulation of the weather without a thread, and the rows of its sources, which are looked at as it runs."""

    def __init__(self, system: Weather, make: Callable[[], SimulatedSystem] | None = None) -> None:
        self.clock = Clock()
        self.simulation = Simulation(system, make=make, clock=self.clock)
        self.sky, self.ground = self.simulation.sources
        self.simulation.start()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            run_for(self.simulation, self.clock, 0.05)
            self.row(self.sky)
            self.row(self.ground)

    def row(self, source: Source) -> SourceRow:
        row = source.rows(["sources", "channels", "subscriptions"])["sources"][source.name]
        assert isinstance(row, SourceRow)
        return row

    def channel(self, source: Source) -> ChannelRow:
        (row,) = source.rows(["channels"])["channels"].values()
        assert isinstance(row, ChannelRow)
        return row

    def rates(self) -> set[float | None]:
        """All that is shown as a rate."""
        found: set[float | None] = set()
        for source in (self.sky, self.ground):
            tables = source.rows(["sources", "channels", "subscriptions"])
            found |= {row.rate for rows in tables.values() for row in rows.values()}  # type: ignore[attr-defined]
            assert isinstance(source, TimedSource)
            found |= set(source.rates_of(source.counts()).values())
        return found


@pytest.fixture
def looked() -> Iterator[Looked]:
    made = Looked(Weather())
    yield made
    made.simulation.close()


def test_a_bus_is_measured_in_the_time_of_the_simulation(looked: Looked) -> None:
    """Its own clock is that of the system, which has nothing to do with the times of the events."""
    assert isinstance(looked.ground, EventSource)
    end = looked.ground.tap(lambda at, event, who: None)
    looked.run(1.0)
    channel = looked.channel(looked.ground)
    assert (channel.latency_ms, channel.worst_latency_ms) == (30.0, 30.0)
    assert channel.jitter_ms is not None
    assert channel.jitter_ms < 5
    end()
    looked.run(1.0)
    looked.ground.tap(lambda at, event, who: None)
    looked.run(1.0)
    assert looked.channel(looked.ground).jitter_ms < 5, "no interval is as long as the time without a tap"  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1, 20, 100])
def test_all_rates_are_of_the_time_of_the_simulation(looked: Looked, speed: float) -> None:
    """It rains a hundred times a second; the ground hears once a step, which is of 20 ms or at most 50 ms."""
    looked.simulation.system.buses["ground"].subscribe(Subscription(Rain), lambda event: None)
    looked.simulation.set_speed(speed)
    looked.run(3.0)
    steps = 50 if speed == 1 else 20
    assert looked.row(looked.sky).rate == pytest.approx(100, rel=0.1)
    assert looked.row(looked.ground).rate == pytest.approx(steps, rel=0.15)
    assert looked.channel(looked.ground).rate == pytest.approx(steps, rel=0.15)
    assert looked.channel(looked.ground).rates[-1] == pytest.approx(steps, rel=0.15)
    (subscription,) = looked.ground.rows(["subscriptions"])["subscriptions"].values()
    assert isinstance(subscription, SubscriptionRow)
    assert subscription.rate == pytest.approx(steps, rel=0.15)


def test_while_it_does_not_run_there_are_no_rates_and_histories_stay(looked: Looked) -> None:
    looked.run(3.0)
    histories = [looked.channel(source).rates for source in (looked.sky, looked.ground)]
    assert all(histories)
    assert 0.0 not in {looked.row(source).rate for source in (looked.sky, looked.ground)}
    looked.simulation.pause()
    assert looked.rates() == {0.0}
    assert [looked.channel(source).rates for source in (looked.sky, looked.ground)] == histories
    looked.simulation.play()
    looked.run(0.5)
    assert looked.row(looked.sky).rate > 0
    looked.simulation.state = "ended"
    assert looked.rates() == {0.0}


def test_played_again_all_sources_follow_the_new_system() -> None:
    class Shower(Weather):
        @property
        def end_ns(self) -> int:  # type: ignore[override]
            return self.begin_ns + SECOND

    looked = Looked(Shower(), lambda: Shower(late=timedelta(milliseconds=70)))
    heard: list[tuple[int, Event]] = []
    assert isinstance(looked.ground, EventSource)
    looked.ground.tap(lambda at, event, who: heard.append((at, event)))
    looked.run(2.0)
    assert looked.row(looked.ground).state == "ended"
    count, begin_ms = len(heard), looked.row(looked.ground).begin_ms
    assert begin_ms is not None
    heard.clear()
    looked.simulation.play()
    looked.run(0.5)
    rows = [looked.row(source) for source in (looked.sky, looked.ground)]
    assert [row.state for row in rows] == ["playing", "playing"]
    assert [row.time_ms for row in rows] == pytest.approx([begin_ms + 500] * 2, abs=150)
    assert 0 < len(heard) < count
    assert looked.row(looked.ground).events == len(heard)
    assert looked.channel(looked.ground).latency_ms == 70.0, "what was measured before is of another run"
    assert looked.row(looked.sky).rate == pytest.approx(100, rel=0.3)
    looked.simulation.close()


def test_a_package_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch, system_file: Path) -> None:
    """System files run all the same."""
    add_weather(monkeypatch, "genus_weather_that_is_missing:make")
    with pytest.raises(BusError, match="the simulations of genus_weather_that_is_missing:make cannot be loaded"):
        find_system("weather")
    find_system(str(system_file)).close()


def test_options_are_plain_structs() -> None:
    class Speed(msgspec.Struct):
        kmh: float = 50.0

    assert parse_simulation("road", Speed) == ("road", Speed())
