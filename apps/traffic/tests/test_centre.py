"""The city's centre: what arrives goes onto one bus, is counted, and lands in files, in the city's own time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from genus import read_recording
from genus.errors import RecordingError
from genus_traffic.centre.centre import CityTime, merge_arrivals, run_centre
from genus_traffic.centre.uplink import Uplink
from genus_traffic.road.city import default_city
from genus_traffic.segment.listeners import Arrival
from genus_traffic.types import TYPES, Category, ConfidentLoop, Loop

SCENE = default_city(2, "4 min", seed=3)
FIRST, SECOND = SCENE.names
REFITS = {name: SCENE.refit_us(name) or 0 for name in SCENE.names}


def vehicles(site: str, count: int = 200) -> list[Arrival]:
    """One vehicle a second at a site, seen by the new sensor once it is there."""
    refit_us = SCENE.refit_us(site)
    assert refit_us is not None
    made = []
    for number in range(count):
        at_us = SCENE.start_us + number * 1_000_000
        time = datetime.fromtimestamp(at_us / 1e6, UTC)
        common = {"time": time, "source": site, "place": site, "lane": 1, "category": Category.CAR}
        new = at_us >= refit_us
        made.append(Arrival(at_us, ConfidentLoop(**common, confidence=0.5) if new else Loop(**common)))  # type: ignore[arg-type]
    return made


def test_everything_that_arrives_is_counted_once(tmp_path: Path) -> None:
    arriving = merge_arrivals({site: vehicles(site) for site in SCENE.names}, Uplink(), seed=1)
    centre = run_centre(SCENE, arriving, 400, REFITS, tmp_path)
    assert centre.arrived == centre.matches["StatisticsCollector"] == centre.refit.delivered == 400


def test_recordings_hold_what_arrived_with_the_instants_of_arrival(tmp_path: Path) -> None:
    arriving = merge_arrivals({FIRST: vehicles(FIRST)}, Uplink(), seed=1)
    centre = run_centre(SCENE, arriving, 200, REFITS, tmp_path)
    files = sorted(tmp_path.glob("*.genus"))
    assert len(files) == centre.files > 10
    recorded = [(each.at_us, each.event) for file in files for each in read_recording(file, TYPES)]
    assert recorded == [(each.at_us, each.event) for each in arriving]


def test_files_are_dated_in_the_order_in_which_they_landed(tmp_path: Path) -> None:
    """A stream takes files by their dates; they must not be those of this machine's clock, which all are the same."""
    run_centre(SCENE, merge_arrivals({FIRST: vehicles(FIRST)}, Uplink(), seed=1), 200, REFITS, tmp_path)
    dates = [file.stat().st_mtime_ns for file in sorted(tmp_path.glob("*.genus"))]
    assert dates == sorted(set(dates))


def test_events_of_a_site_that_overtook_each_other_are_counted(tmp_path: Path) -> None:
    def out_of_order(straggling: float) -> int:
        uplink = Uplink(straggling=straggling, outage_us=0, late=0)
        arriving = merge_arrivals({FIRST: vehicles(FIRST)}, uplink, 1)
        return run_centre(SCENE, arriving, 200, REFITS, tmp_path / f"{straggling}").out_of_order

    assert out_of_order(0.0) == 0
    assert out_of_order(0.5) > 20


def test_the_collector_asks_for_confidence_when_the_last_site_is_refitted(tmp_path: Path) -> None:
    """Its first subscription goes on, and the second gets what comes from then on."""
    straight = Uplink(straggling=0.0, outage_us=0, late=0)
    arriving = merge_arrivals({site: vehicles(site) for site in SCENE.names}, straight, seed=1)
    refit = run_centre(SCENE, arriving, 400, REFITS, tmp_path).refit
    assert SCENE.refitted_us is not None
    assert refit.asked_us is not None
    assert timedelta(0) <= timedelta(microseconds=refit.asked_us - SCENE.refitted_us) < timedelta(seconds=2)
    after = [each for each in arriving if each.at_us >= refit.asked_us and isinstance(each.event, ConfidentLoop)]
    assert refit.confident == len(after) > 0
    assert refit.delivered == 400


def test_the_city_s_time_never_goes_back() -> None:
    time = CityTime(5)
    time.advance(9)
    time.advance(7)
    assert time.now_us == 9


def test_what_cannot_be_recorded_ends_the_run(tmp_path: Path) -> None:
    """A bus keeps a handler that fails from stopping others; a recording that loses events must not go unnoticed."""
    (tmp_path / "landing").write_text("in the way")
    with pytest.raises(RecordingError, match=r"cannot write to .*landing"):
        run_centre(SCENE, vehicles(FIRST), 200, REFITS, tmp_path / "landing")


def test_a_subscription_that_got_nothing_says_so(tmp_path: Path) -> None:
    """Else it would seem that it was not asked."""
    assert run_centre(SCENE, vehicles(FIRST), 200, REFITS, tmp_path).matches["HeartbeatWatch"] == 0
