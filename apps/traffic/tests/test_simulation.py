"""A city that runs while somebody looks: the same city as the demo's, made as time passes."""

import re
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Subscription
from genus.errors import BusError, GenusError
from genus.studio import open_source
from genus.studio.types import ChannelRow, EventSource, SimulatedSystem
from genus_traffic.commands import _print_results
from genus_traffic.live_city import CENTRE, CitySystem, make_city
from genus_traffic.road.city import default_city
from genus_traffic.road.generator import detections_in_time, generate
from genus_traffic.road.scene import Scene
from genus_traffic.road.scene_file import load_scene
from genus_traffic.run_folder import MARKER, OUTPUTS, RunFolder
from genus_traffic.segment.processes import segment_of
from genus_traffic.segment.segment import SegmentRun
from genus_traffic.subscribers import CONFIDENT, SUBSCRIPTIONS
from genus_traffic.types import Roadside

from .examples import examples
from .made_results import made_results

CITY_FILE = Path(__file__).parent.parent / "city.toml"
SECOND = 1_000_000_000


def run(city: CitySystem, seconds: float, step_ns: int = 50_000_000) -> None:
    """Let time pass from where the city is, in steps as Studio does."""
    end_ns = city.now_ns + round(seconds * SECOND)
    while city.now_ns < end_ns:
        city.advance(min(end_ns, city.now_ns + step_ns))


def start(city: CitySystem) -> None:
    for _ in city.start():
        pass


# -- traffic -----------------------------------------------------------------------------------------------------------


@examples(15)
@given(seed=st.integers(0, 1000), site=st.integers(0, 2), duration=st.sampled_from([30, "1 min", "4 min"]))
def test_traffic_that_is_made_in_time_is_that_which_is_made_at_once(seed: int, site: int, duration: str | int) -> None:
    """All kinds of sites, with queues at signals and waves of congestion, whose vehicles stay for long."""
    scene = default_city(sites=3, duration=duration, seed=seed)
    chosen = scene.sites[site]
    assert tuple(detections_in_time(chosen, scene)) == generate(chosen, scene).detections


def test_the_first_traffic_of_a_day_is_there_as_soon_as_that_of_a_minute() -> None:
    """The road of a day has 432,000 steps, which take a minute; the first detection needs some hundred."""
    day, minute = default_city(sites=1, duration="1 day"), default_city(sites=1, duration="1 min")
    first = next(detections_in_time(day.sites[0], day))
    assert first == next(detections_in_time(minute.sites[0], minute))


# -- the city ----------------------------------------------------------------------------------------------------------


def test_a_city_is_a_system_that_studio_runs() -> None:
    city = make_city("traffic?sites=2&duration=60s&seed=5")
    assert city is not None
    system: SimulatedSystem = city
    assert list(system.worlds) == ["harbour-crossing", "a8-km12"]
    assert list(system.buses) == [CENTRE]
    assert system.end_ns == system.begin_ns + 60 * SECOND
    assert city.scene == default_city(sites=2, duration="1 min", seed=5)
    notes = list(system.start())
    assert notes == ["switching on harbour-crossing", "switching on a8-km12"]
    assert system.now_ns == system.begin_ns
    system.close()
    system.close()


@pytest.mark.slow
def test_its_segments_are_those_of_the_demo() -> None:
    """Every channel of every site has the same outcome, in spite of the steps and of traffic that is made in time."""
    scene = default_city(sites=2, duration="30s", seed=3)
    city = CitySystem(scene)
    start(city)
    run(city, 30)
    run(city, 0.2)
    for site in scene.sites:
        with SegmentRun(segment_of(scene, site, generate(site, scene).detections)) as demo:
            for _ in demo.advance():
                pass
            assert city.worlds[site.name].outcome() == demo.world.outcome()
            assert city.segments[site.name].refit is not None
            assert demo.refit is not None
    city.close()


def test_what_the_gateways_forward_arrives_at_the_centre_once() -> None:
    city = CitySystem(default_city(sites=2, duration="1 min", seed=2))
    start(city)
    run(city, 20)
    run(city, 10)  # stragglers take some seconds
    published = sum(result.published for world in city.worlds.values() for result in world.channels())
    arrived = sum(city.centre.bus.traffic().published.values())
    assert 0 < published - arrived < published * 0.1  # those of the last moments are on their way
    lost = sum(result.lost for world in city.worlds.values() for result in world.channels())
    assert lost == 0
    sources = set()
    city.centre.bus.subscribe(Subscription(Roadside), lambda event: sources.add(event.source))
    run(city, 5)
    assert sources == set(city.worlds)
    city.close()


def test_an_event_arrives_at_the_centre_at_its_time_within_a_step() -> None:
    """Whatever the length of the steps: Studio measures by this time how long events took."""
    arrivals: list[list[tuple[int, str]]] = []
    for step_ns in (20_000_000, 50_000_000):
        city = CitySystem(default_city(sites=1, duration="1 min", seed=2))
        start(city)
        found: list[tuple[int, str]] = []
        city.centre.bus.subscribe(
            Subscription(Roadside),
            lambda event, c=city, f=found: f.append((c.now_ns, str(event))),  # type: ignore[misc]
        )
        run(city, 5, step_ns)
        assert city.now_ns == city.begin_ns + 5 * SECOND
        arrivals.append(found)
        city.close()
    assert len(arrivals[0]) > 15
    assert arrivals[0] == arrivals[1]
    times = [at_ns for at_ns, _ in arrivals[0]]
    assert times == sorted(times)


def test_on_the_page_the_centre_is_in_the_time_of_the_city() -> None:
    sources = {source.name: source for source in open_source("sim:traffic?sites=1&duration=60s&seed=2")}
    centre, pause = sources[CENTRE], threading.Event()
    try:
        assert isinstance(centre, EventSource)
        centre.tap(lambda at_ns, event, who: None)
        for _ in range(3000):
            if pause.wait(0.01) or sum(centre.counts().values()) >= 20:
                break
        rows = [row for row in centre.rows(["channels"])["channels"].values() if isinstance(row, ChannelRow)]
    finally:
        centre.close()
    took = [row.worst_latency_ms for row in rows if row.worst_latency_ms is not None]
    assert took
    assert 0 < min(took) <= max(took) < 30_000
    assert all(row.jitter_ms is None or row.jitter_ms < 30_000 for row in rows)


def test_the_programs_of_the_centre_are_subscribed_and_count() -> None:
    city = CitySystem(default_city(sites=1, duration="1 min", seed=2))
    start(city)
    run(city, 10)
    texts = {str(listener.subscription): listener.counters.delivered for listener in city.centre.bus.listeners()}
    assert set(texts) == {str(each) for each in SUBSCRIPTIONS.values()} - {str(CONFIDENT)}
    assert texts["Occupancy"] > 30
    city.close()


def test_after_the_refit_of_the_last_site_the_collector_asks_for_confidence() -> None:
    city = CitySystem(default_city(sites=2, duration="30s", seed=1))
    start(city)
    run(city, 20)
    asked = {str(listener.subscription) for listener in city.centre.bus.listeners()}
    assert str(CONFIDENT) not in asked
    run(city, 9.5)
    asked = {str(listener.subscription) for listener in city.centre.bus.listeners()}
    assert str(CONFIDENT) in asked
    published = {result.event: result.published for world in city.worlds.values() for result in world.channels()}
    assert published["ConfidentLoop"] > 0
    conditions = {state.name: state.condition for state in city.worlds["harbour-crossing"].nodes()}
    assert (conditions["upper"], conditions["upper2"]) == ("closed", "up")
    city.close()


# -- what it is opened by ----------------------------------------------------------------------------------------------


def scene_of(text: str) -> Scene:
    city = make_city(text)
    assert city is not None
    city.close()
    return city.scene


def test_the_default_city_is_that_of_the_demo() -> None:
    assert scene_of("traffic") == default_city()


def test_a_city_file_is_simulated() -> None:
    assert scene_of(str(CITY_FILE)) == load_scene(CITY_FILE)
    changed = scene_of(f"{CITY_FILE}?duration=6min&seed=11&site=mill-street")
    assert (changed.minutes, changed.seed, changed.names) == (6.0, 11, ("mill-street",))


@pytest.mark.slow
@pytest.mark.parametrize("scene", [default_city(3, "2.5 min", 9), load_scene(CITY_FILE)])
def test_the_folder_of_a_run_is_simulated_again(tmp_path: Path, scene: Scene) -> None:
    """A run writes its city first."""
    (tmp_path / MARKER).touch()
    RunFolder(tmp_path).city.write_bytes(msgspec.json.encode(scene))
    assert OUTPUTS[0] == RunFolder(tmp_path).city.name
    assert scene_of(str(tmp_path)) == scene


def test_a_folder_without_its_city_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    with pytest.raises(BusError, match=r"has no city.json; run `genus demo traffic --out .*` again"):
        make_city(str(tmp_path))


def test_a_damaged_city_is_refused(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    for content in (b"{", b'{"minutes": 5}', b"[]", b"\xff"):
        (tmp_path / "city.json").write_bytes(content)
        with pytest.raises(BusError, match=r"city.json"):
            make_city(str(tmp_path))


def test_what_is_no_city_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[[[")
    for text in ("weather", "examples/crossing.toml", str(tmp_path), str(tmp_path / "broken.toml"), "", "traffic/"):
        assert make_city(text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("traffic?sites=0", "1 to 100 sites"),
        ("traffic?duration=0", "duration is 0"),
        ("traffic?sites=two", "sites is 'two'"),
        ("traffic?site=atlantis", "there is no site 'atlantis'"),
        (f"{CITY_FILE}?sites=3", "choose one with site=NAME"),
    ],
)
def test_wrong_options_are_refused(text: str, says: str) -> None:
    with pytest.raises(GenusError, match=says):
        make_city(text)


# -- the demo ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "is_told"), [("genus-demo", True), ("elsewhere", False)])
def test_the_demo_says_how_to_see_it_run(folder: str, is_told: bool, capsys: pytest.CaptureFixture[str]) -> None:
    _print_results(made_results(), RunFolder(Path(folder)))
    assert bool(re.search(r"^See it run: \S+ studio sim:genus-demo$", capsys.readouterr().out, re.MULTILINE)) == is_told
