"""The report: one well-formed page that asks for nothing, and says what the results say, good or bad."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import GenusError
from genus_traffic.report.bits import spelled
from genus_traffic.report.bus_axis import BusAxis
from genus_traffic.report.bus_timeline import is_late, rows_of
from genus_traffic.report.channels import together_by_channel
from genus_traffic.report.checks import checks
from genus_traffic.report.figures import Clock, count
from genus_traffic.report.minutes import Columns, gathered
from genus_traffic.report.page import SECTIONS, page, write_report
from genus_traffic.report.scale import Scale
from genus_traffic.report.type_tree import families, in_order
from genus_traffic.results import BusPicture, ChannelRow, FrameSpan, Minute, Results, Stage

from .made_results import START, bad_results, empty_results, made_results
from .read_page import ReadPage

change = msgspec.structs.replace
GOOD = made_results()
SMALL = made_results(sites=2, minutes=3)
NASTY = """</script><script>alert("1")</script><b onclick='x()'>&amp;" onload="y()"""
MADE: dict[str, Callable[[], Results]] = {
    "good": lambda: GOOD,
    "bad": bad_results,
    "empty": empty_results,
    "one site": lambda: made_results(sites=1, minutes=1),
    "three hours": lambda: made_results(sites=2, minutes=180),
    "no vehicles": lambda: change(GOOD, traffic=tuple(change(m, count=0, speed_mean=None) for m in GOOD.traffic)),
    "no time": lambda: change(GOOD, minutes=0),
    "a bus without time": lambda: change(SMALL, bus=change(SMALL.bus, length_us=0)),
    "long names": lambda: renamed(GOOD, lambda text: text * 40),
}


@pytest.fixture(scope="module")
def good() -> ReadPage:
    return ReadPage(page(GOOD))


def renamed(results: Results, rename: Callable[[str], str]) -> Results:
    """The same results with every text in them changed, wherever it is."""

    def changed(part: Any) -> Any:
        if isinstance(part, str):
            return rename(part)
        if isinstance(part, dict):
            return {changed(key): changed(value) for key, value in part.items()}
        return [changed(each) for each in part] if isinstance(part, list | tuple) else part

    plain = msgspec.to_builtins(results, builtin_types=(datetime,))

    def fields(part: Any, kept: bool) -> Any:
        """Names of fields stay; the keys of dictionaries that are data do not."""
        if isinstance(part, dict) and kept:
            return {
                key: fields(value, key not in {"bits", "answers", "by_site", "longest_pause_s"})
                for key, value in part.items()
            }
        if isinstance(part, list | tuple) and kept:
            return [fields(each, True) for each in part]
        return changed(part)

    return msgspec.convert(fields(plain, True), Results)


# One page that asks for nothing


@pytest.mark.parametrize("made", MADE)
def test_every_page_is_well_formed_and_tells_all_parts_in_order(made: str) -> None:
    """Whatever is missing in the results, no section is missing in the page."""
    read = ReadPage(page(MADE[made]()))
    assert read.ids("section") == list(SECTIONS)
    assert [found["href"] for _, found in read.elements if found.get("href", "").startswith("#")]
    assert "None" not in read.text.replace("is not None", "").replace("is None", "")
    assert "nan" not in {value for _, found in read.elements for value in found.values()}


def test_a_page_asks_for_nothing_outside_itself(good: ReadPage) -> None:
    """No address, no file, no import, and a policy by which a browser would refuse them."""
    text = page(GOOD)
    assert not re.search(r"https?://|@import|url\(|//[a-z]+\.[a-z]+/", text)
    named = [found[name] for _, found in good.elements for name in ("src", "href", "action", "data") if name in found]
    assert named
    assert all(link.startswith("#") for link in named)
    assert not [
        tag for tag, _ in good.elements if tag in {"link", "img", "iframe", "object", "embed", "base", "image", "use"}
    ]
    assert any("default-src 'none'" in found.get("content", "") for _, found in good.elements)


def test_links_lead_to_what_is_there(good: ReadPage) -> None:
    """Every anchor exists once."""
    ids = Counter(found["id"] for _, found in good.elements if "id" in found)
    assert set(ids.values()) == {1}
    assert {found["href"][1:] for tag, found in good.elements if tag == "a"} <= ids.keys()


def test_no_text_of_the_results_becomes_markup(good: ReadPage) -> None:
    """Every text in the results is replaced by an attack; the page has the elements it had, and reads it as text."""
    read = ReadPage(page(renamed(GOOD, lambda text: NASTY + text)))
    assert Counter(tag for tag, _ in read.elements)["script"] == 1
    assert not [name for _, found in read.elements for name in found if name.startswith("on")]
    assert {tag for tag, _ in read.elements} <= {tag for tag, _ in good.elements}
    assert NASTY in read.text
    assert {name for _, found in read.elements for name in found} <= {n for _, found in good.elements for n in found}


def test_a_page_stays_small() -> None:
    """Eight sites for a quarter of an hour take less than 3 MB, and so do a hundred for an hour."""
    assert len(page(GOOD).encode()) < 400_000
    assert len(page(made_results(sites=100, minutes=60)).encode()) < 3_000_000


def test_writing_makes_the_folder_and_gives_the_path(tmp_path: Path) -> None:
    """The file holds the page."""
    path = write_report(GOOD, tmp_path / "new" / "report.html")
    assert path == tmp_path / "new" / "report.html"
    assert path.read_text(encoding="utf-8") == page(GOOD)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """One line, with the path and what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(GenusError, match=r"cannot write the report .*file/report\.html: .*; choose another path"):
        write_report(GOOD, tmp_path / "file" / "report.html")


# It says what the results say


def test_a_good_run_passes_all_checks(good: ReadPage) -> None:
    """And nothing on its page is marked as bad."""
    assert all(check.holds for check in checks(GOOD))
    assert "10 checks passed." in good.text
    assert not good.classes("differs")
    assert not [found for found in good.classes("verdict") if "bad" in found["class"]]


def test_an_empty_run_proves_nothing() -> None:
    """What could not be checked is not said to hold."""
    assert {check.holds for check in checks(empty_results())} == {None}
    assert "nothing to check" in ReadPage(page(empty_results())).text


FAULTS: dict[str, Callable[[Results], Results]] = {
    "speeds right": lambda r: change(r, accuracy=change(r.accuracy, right=r.accuracy.complete * 99 // 100)),
    "speeds invented": lambda r: change(r, accuracy=change(r.accuracy, invented=1)),
    "vehicles counted": lambda r: change(r, accuracy=change(r.accuracy, counted=r.accuracy.to_count - 1)),
    "events lost in the refit": lambda r: change(r, refit=change(r.refit, delivered=r.refit.published - 1)),
    "events too many in the refit": lambda r: change(r, refit=change(r.refit, delivered=r.refit.published + 1)),
    "stream and batch": lambda r: change(r, stream_equals_batch=False),
    "subscriptions agree": lambda r: change(
        r, subscriptions=(*r.subscriptions[1:], change(r.subscriptions[0], answers={"CAN": 5, "Spark": 6}))
    ),
    "hard deadlines missed": lambda r: change(r, channels=(*r.channels[1:], change(r.channels[0], missed=1))),
    "soft deadlines missed": lambda r: change(r, channels=tuple(map(_late_if_soft, r.channels))),
    "roadside and lake": lambda r: change(r, roadside=change(r.roadside, alike=r.roadside.lanes - 1)),
    "dead letters": lambda r: change(r, dead_letters=1),
}


def _late_if_soft(row: ChannelRow) -> ChannelRow:
    return change(row, missed=1) if row.qos == "soft" else row


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_fails_one_check_and_the_page_begins_with_it(fault: str) -> None:
    """The smallest thing that goes wrong is in the headline."""
    broken = FAULTS[fault](SMALL)
    assert [check.name for check in checks(broken) if check.holds is False] == [fault]
    read = ReadPage(page(broken))
    assert f"1 check failed: {fault}." in read.text
    assert "checks passed" not in read.text


def test_a_bad_run_is_as_plain_as_a_good_one() -> None:
    """Wrong speeds, lost events, late ones and places that differ are told where they belong."""
    read, bad = ReadPage(page(bad_results())), bad_results()
    assert "10 checks failed" in read.text
    for words in ("41 events lost", "different results", "23 speeds invented", "The places do not agree", "too long"):
        assert words in read.text
    assert "without a gap" not in read.text
    assert "has arrived" not in read.text
    assert f"{bad.accuracy.wrong} wrong" in read.text
    assert read.classes("wrong")
    assert len(read.classes("late")) == 2 + 1, "two waits and the legend"


def test_the_headline_has_the_figures_of_the_results(good: ReadPage) -> None:
    """No figure is made up."""
    accuracy, refit = GOOD.accuracy, GOOD.refit
    assert count(GOOD.event_count) in good.texts("strong")
    assert f"{count(accuracy.right)} of {count(accuracy.complete)} passages within 1 m/s of truth" in good.text
    assert f"{count(refit.delivered)} of {count(refit.published)} events reached the collector" in good.text


def test_every_subscription_is_there_with_its_filters_code_and_answers(good: ReadPage) -> None:
    """The bits of a filter can be heard as well as seen."""
    labels = {found.get("aria-label") for _, found in good.elements}
    for compiled in GOOD.subscriptions:
        assert {compiled.subscriber} <= set(good.texts("h3"))
        assert {compiled.text, compiled.python, compiled.spark} <= set(good.texts("code"))
        assert {spelled(value, mask, 29) for value, mask in compiled.filters} <= labels
    assert len(good.classes("same")) == sum(len(each.answers) for each in GOOD.subscriptions)


def test_the_city_panel_counts_every_vehicle_by_category() -> None:
    """The tips of its columns add up to the statistics."""
    text = page(GOOD)
    city = text[text.index("The whole city") : text.index("Site by site")]
    told = re.findall(
        r"(\S+) × (\w+)", " ".join(ReadPage(city[city.index("<div") : city.rindex("</figure>")]).texts("title"))
    )
    sums: Counter[str] = Counter()
    for number, category in told:
        sums[category] += int(number.replace(",", ""))
    meant: Counter[str] = Counter()
    for minute in GOOD.traffic:
        meant[minute.category] += minute.count
    assert {category: number // 2 for category, number in sums.items()} == meant, "counts and speeds share their tips"


def test_the_histogram_has_every_error(good: ReadPage) -> None:
    """A bar for each bin that is not empty, with its number."""
    told = [re.search(r"m/s\n([\d,]+) vehicle", title) for title in good.texts("title")]
    numbers = [int(found[1].replace(",", "")) for found in told if found]
    assert numbers == [number for _, _, number in GOOD.accuracy.errors if number]


def test_a_step_tells_its_pace_unless_it_did_one_thing() -> None:
    """One session in a second is no throughput."""
    read = ReadPage(page(change(SMALL, stages=(Stage(name="x", seconds=2, amount=1, what="sessions"),))))
    assert "2.0 s · 1 session" in read.texts("small")
    read = ReadPage(page(change(SMALL, stages=(Stage(name="x", seconds=2, amount=3000, what="events"),))))
    assert "2.0 s · 3,000 events · 1.5 k/s" in read.texts("small")


def test_each_frame_slot_and_wait_is_drawn(good: ReadPage) -> None:
    """Frames twice: in the row of their channel and on the wire as a whole."""
    bus = GOOD.bus
    assert len(good.classes("frame")) == 2 * len(bus.frames)
    assert len(good.classes("waiting")) == len(bus.waits)
    assert len([found for found in good.classes("slot") if "x" in found]) == len(bus.slots)


def test_what_was_never_asked_for_is_not_drawn(good: ReadPage) -> None:
    """The second subscription appears with the instant at which it was made, on every row."""
    assert len(good.classes("asked")) == len(GOOD.sites) + 2
    never = ReadPage(page(change(GOOD, refit=change(GOOD.refit, asked_us=None))))
    assert not never.classes("asked")
    assert "was never asked for" in never.text


# Laws


def test_a_picture_with_too_many_channels_has_a_row_per_class() -> None:
    """And no frame is left out."""
    frames = tuple(
        FrameSpan(start_us=n, end_us=n + 1, channel=f"c{n}", node="n", qos=("soft", "none")[n % 2]) for n in range(40)
    )
    rows = rows_of(change(GOOD.bus, frames=frames, slots=(), waits=()))
    assert [row.name for row in rows] == ["soft real time", "no real time", "all frames"]
    assert sum(len(row.frames) for row in rows) == 2 * len(frames)


def frames_at(*starts: float, length_us: float, bus_us: float) -> BusPicture:
    frames = [FrameSpan(start_us=at, end_us=at + length_us, channel="c", node="n", qos="soft") for at in starts]
    return BusPicture(site="s", from_us=0, length_us=bus_us, frames=tuple(frames), slots=(), waits=())


@given(st.lists(st.floats(0, 99_000), min_size=1, max_size=30), st.floats(1, 900))
def test_a_shortened_time_keeps_the_order_and_shortens_no_frame(starts: list[float], length_us: float) -> None:
    """Instants stay in order from end to end, and what is shortened has no frame in it."""
    bus = frames_at(*starts, length_us=length_us, bus_us=100_000)
    axis = BusAxis.of(bus)
    parts = [axis.part(at) for at in sorted([0.0, *starts, 100_000.0])]
    assert parts == sorted(parts)
    assert (axis.part(-5), axis.part(0), axis.part(200_000)) == (0, 0, 1)
    assert axis.part(100_000) == pytest.approx(1)
    assert all(stretch.start_us < stretch.end_us and stretch.left < stretch.right for stretch in axis.stretches)
    for idle in (stretch for stretch in axis.stretches if stretch.idle):
        assert not [at for at in starts if at < idle.end_us and at + length_us > idle.start_us]


def test_only_frames_too_thin_to_be_seen_shorten_the_time() -> None:
    """Two bursts in a tenth of a second: what lies around them gives its room to them; broad frames need none."""
    thin = BusAxis.of(frames_at(30_000, 30_200, 80_000, length_us=150, bus_us=100_000))
    assert [stretch.idle for stretch in thin.stretches] == [True, False, True, False, True]
    assert thin.part(30_150) - thin.part(30_000) > 0.2
    broad = BusAxis.of(frames_at(30_000, 80_000, length_us=500, bus_us=100_000))
    assert [stretch.idle for stretch in broad.stretches] == [False]
    assert broad.part(25_000) == 0.25


def test_an_event_is_late_from_the_instant_after_its_deadline() -> None:
    """At the deadline it is in time; one that never came is late."""
    wait = GOOD.bus.waits[0]
    assert not is_late(change(wait, delivered_us=wait.deadline_us))
    assert is_late(change(wait, delivered_us=wait.deadline_us + 1))
    assert is_late(change(wait, delivered_us=None))


def test_channels_of_all_sites_add_up_and_keep_the_slowest() -> None:
    """The longest way is that of the site that used most of what was promised to it."""
    slow = change(GOOD.channels[-1], worst_us=1e6)
    summed = together_by_channel((*GOOD.channels[:-1], slow))
    assert sum(row.published for row in summed) == sum(row.published for row in GOOD.channels)
    assert len(summed) == len({row.channel for row in GOOD.channels})
    assert [row.worst_us for row in summed if row.channel == slow.channel] == [1e6]
    assert [row.qos for row in summed] == ["hard"] * 2 + ["soft"] * 4 + ["none"] * 2


minutes_seen = st.builds(
    Minute,
    site=st.just("s"),
    category=st.sampled_from(["car", "truck"]),
    start=st.integers(-5, 400).map(lambda n: START + timedelta(minutes=n)),
    count=st.integers(0, 50),
    speed_mean=st.none() | st.floats(0, 60),
)


@given(st.lists(minutes_seen, max_size=30), st.integers(0, 300), st.integers(1, 60))
def test_columns_lose_no_vehicle(minutes: list[Minute], length: int, most: int) -> None:
    """However many minutes a column takes, the vehicles add up, and no mean lies outside the means it is made of."""
    columns = Columns(Clock(change(GOOD, minutes=length)), most)
    assert 1 <= columns.number <= most
    for category, seen in gathered(minutes, columns).items():
        mine = [minute for minute in minutes if minute.category == category]
        assert len(seen) == columns.number
        assert sum(cell.count for cell in seen) == sum(minute.count for minute in mine)
        speeds = [3.6 * minute.speed_mean for minute in mine if minute.speed_mean is not None]
        assert all(min(speeds) - 1e-6 <= cell.kmh <= max(speeds) + 1e-6 for cell in seen if cell.kmh is not None)


def test_a_minute_is_drawn_where_it_was() -> None:
    """Three minutes to a column: the fifth minute is in the second; what lies outside is at the nearer end."""
    columns = Columns(Clock(change(GOOD, minutes=12)), 4)
    places = {
        n: columns.column(change(GOOD.traffic[0], start=START + timedelta(minutes=n))) for n in (-1, 0, 4, 11, 12)
    }
    assert places == {-1: 0, 0: 0, 4: 1, 11: 3, 12: 3}
    assert [columns.column(minute) for minute in GOOD.traffic[::4][:5]] == [0, 0, 0, 1, 1]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 12))
def test_ticks_lie_on_their_axis(low: float, span: float, wanted: int) -> None:
    """They are in order, evenly spaced, and not many more than wanted."""
    scale = Scale(low, low + span)
    ticks = scale.ticks(wanted)
    slack = span * 1e-6
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 2 * wanted + 2


def test_times_on_an_axis_are_round() -> None:
    """A quarter of an hour has ticks at full minutes, in the zone of the run."""
    clock = Clock(change(GOOD, start=datetime(2026, 5, 4, 7, 30)))
    ticks = Scale(float(clock.start_us), float(clock.end_us)).time_ticks(5)
    assert [clock.time_of_day(tick) for tick in ticks] == ["07:30", "07:35", "07:40", "07:45"]
    assert clock.zone is UTC


def test_every_type_is_in_the_tree_below_its_parent() -> None:
    """Once each, and its depth is one more than its parent's."""
    placed = in_order(GOOD.types)
    assert sorted(row.name for row, _ in placed) == sorted(row.name for row in GOOD.types)
    depths = {row.name: depth for row, depth in placed}
    assert depths["ConfidentLoop"] == depths["Loop"] + 1 == depths["Edge"] + 2
    assert {root: len(members) for root, members in families(GOOD.types).items()} == {
        "Edge": 4, "Occupancy": 1, "Setting": 1,
    }  # fmt: skip
