"""The report: one well-formed page that asks for nothing, and says what the results say, good or bad."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import StrictUndefined, UndefinedError

from genus import GenusError
from genus.studio import vendor
from genus_traffic.report import page as page_module
from genus_traffic.report.charts import Columns, bus_timeline, chart_data, error_bars, is_late, sum_channels
from genus_traffic.report.checks import checks
from genus_traffic.report.formats import Clock, format_bits, format_count, format_micros, format_wall
from genus_traffic.report.page import SECTIONS, render_page, write_report
from genus_traffic.report.type_tree import drawn_types, families
from genus_traffic.results import ChannelRow, Minute, Results, Stage

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
    return ReadPage(render_page(GOOD))


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
def test_every_page_is_well_formed_and_has_all_sections_in_order(made: str) -> None:
    """Whatever is missing in the results, no section is missing in the page."""
    read = ReadPage(render_page(MADE[made]()))
    assert read.ids("section") == list(SECTIONS)
    assert [found["href"] for _, found in read.elements if found.get("href", "").startswith("#")]
    assert "None" not in read.text.replace("is not None", "").replace("is None", "")
    assert "nan" not in {value for _, found in read.elements for value in found.values()}


def test_a_page_asks_for_nothing_outside_itself(good: ReadPage) -> None:
    """No address but that of uPlot in a comment and the name of SVG, no file, no import, and a policy against them."""
    text = render_page(GOOD)
    addresses = re.findall(r"https?://\S+|@import|url\(|//[a-z]+\.[a-z]+/\S+", text)
    assert addresses == ["https://github.com/leeoniya/uPlot", 'http://www.w3.org/2000/svg";']
    assert 'const SVG_SPACE = "http://www.w3.org/2000/svg";' in text, "a name, which no browser asks for"
    assert "/*! https://github.com/leeoniya/uPlot (v" in text
    named = [found[name] for _, found in good.elements for name in ("src", "href", "action", "data") if name in found]
    assert named
    assert all(link.startswith("#") for link in named)
    assert not [
        tag for tag, _ in good.elements if tag in {"link", "img", "iframe", "object", "embed", "base", "image", "use"}
    ]
    assert any("default-src 'none'" in found.get("content", "") for _, found in good.elements)


def test_the_licence_of_the_chart_library_is_in_the_page(good: ReadPage) -> None:
    """The page contains the library, so it has to contain its licence."""
    licence = vendor("LICENSE")
    assert licence.startswith("The MIT License")
    assert licence in "".join(good.texts("script"))


def test_links_lead_to_what_is_there(good: ReadPage) -> None:
    """Every anchor exists once."""
    ids = Counter(found["id"] for _, found in good.elements if "id" in found)
    assert set(ids.values()) == {1}
    assert {found["href"][1:] for tag, found in good.elements if tag == "a"} <= ids.keys()


def test_no_text_of_the_results_becomes_markup(good: ReadPage) -> None:
    """Every text in the results is replaced by an attack; the page has the elements it had, and reads it as text."""
    text = render_page(renamed(GOOD, lambda text: NASTY + text))
    read = ReadPage(text)
    tags = Counter(tag for tag, _ in read.elements)
    assert tags["script"] == Counter(tag for tag, _ in good.elements)["script"] == 2
    assert not [name for _, found in read.elements for name in found if name.startswith("on")]
    assert tags.keys() <= {tag for tag, _ in good.elements}
    assert " ".join(NASTY.split()) in read.text
    assert NASTY not in text
    assert {name for _, found in read.elements for name in found} <= {n for _, found in good.elements for n in found}


@pytest.mark.parametrize(
    "name", ["</script><img src=x onerror=alert(1)>", "<!--<script>", "\u2028'\"\\&amp;]]>", NASTY]
)
def test_no_name_breaks_out_of_the_data_of_the_charts(name: str) -> None:
    """The script reads the name as it is, and the page has no more scripts and no images."""
    read = ReadPage(render_page(renamed(SMALL, lambda text: text + name)))
    assert [panel["title"] for panel in read.charts["traffic"][1:]] == [site.name + name for site in SMALL.sites]
    assert not set(read.scripts["chart-data"]) & set("<>&'")
    assert Counter(tag for tag, _ in read.elements)["script"] == 2
    assert "img" not in {tag for tag, _ in read.elements}


def test_templates_escape_and_refuse_what_nothing_defines() -> None:
    """A name that is misspelled in a template is an error, not an empty place."""
    environment = page_module._environment()
    assert environment.undefined is StrictUndefined
    assert environment.autoescape is True
    assert environment.from_string("{{ text }}").render(text="<b>") == "&lt;b&gt;"
    with pytest.raises(UndefinedError):
        environment.from_string("{{ results.sitse }}").render(results=GOOD)


def test_a_page_stays_small() -> None:
    """Eight sites for a quarter of an hour take less than 3 MB, and so do a hundred for an hour."""
    assert len(render_page(GOOD).encode()) < 400_000
    assert len(render_page(made_results(sites=100, minutes=60)).encode()) < 3_000_000


def test_writing_makes_the_folder_and_gives_the_path(tmp_path: Path) -> None:
    """The file holds the page."""
    path = write_report(GOOD, tmp_path / "new" / "report.html")
    assert path == tmp_path / "new" / "report.html"
    assert path.read_text(encoding="utf-8") == render_page(GOOD)


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
    assert "nothing to check" in ReadPage(render_page(empty_results())).text


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
    read = ReadPage(render_page(broken))
    assert f"1 check failed: {fault}." in read.text
    assert "checks passed" not in read.text


def test_a_bad_run_is_as_plain_as_a_good_one() -> None:
    """Wrong speeds, lost and late events, and targets that differ are named in their sections."""
    read, bad = ReadPage(render_page(bad_results())), bad_results()
    assert "10 checks failed" in read.text
    for words in ("41 events lost", "different results", "23 speeds invented", "The targets do not agree", "too long"):
        assert words in read.text
    assert "without a gap" not in read.text
    assert "has arrived" not in read.text
    assert f"{bad.accuracy.wrong} wrong" in read.text
    assert [bar["is_right"] for bar in read.charts["errors"]].count(False) == 1
    late = [row[-1] for row in read.tables["Soft events; spans count from publishing"][1:]]
    assert late == ["late", "late"]
    assert "2 of 2 soft events in the picture missed the deadline." in read.text


def test_the_headline_has_the_figures_of_the_results(good: ReadPage) -> None:
    """No figure is made up."""
    right, complete = map(format_count, (GOOD.accuracy.right, GOOD.accuracy.complete))
    delivered, published = map(format_count, (GOOD.refit.delivered, GOOD.refit.published))
    assert format_count(GOOD.event_count) in good.texts("strong")
    assert f"{right} of {complete} passages within 1 m/s of truth" in good.text
    assert f"{delivered} of {published} events reached the collector" in good.text


def test_every_subscription_is_there_with_its_filters_code_and_answers(good: ReadPage) -> None:
    """The bits of a filter are there as text, and as data for the script, which draws them in their place."""
    for compiled in GOOD.subscriptions:
        assert {compiled.subscriber} <= set(good.texts("figcaption"))
        assert {compiled.text, compiled.python, compiled.spark} <= set(good.texts("code"))
        assert {format_bits(value, mask, 29) for value, mask in compiled.filters} <= set(good.texts("code"))
    drawn = [[list(pair) for pair in compiled.filters] for compiled in GOOD.subscriptions]
    assert good.charts["filters"] == drawn
    places = [found["data-bits"] for _, found in good.elements if "data-bits" in found]
    assert places == [f"{n} {m}" for n, filters in enumerate(drawn) for m in range(len(filters))]
    assert len(good.classes("same")) == sum(len(each.answers) for each in GOOD.subscriptions)


def _vehicles_by_category(minutes: tuple[Minute, ...], site: str | None = None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for minute in minutes:
        counts[minute.category] += minute.count if site in (None, minute.site) else 0
    return counts


def test_the_panels_count_every_vehicle_by_category(good: ReadPage) -> None:
    """The charts of the city and of each site add up to the statistics."""
    city, *sites = good.charts["traffic"]
    assert [panel["title"] for panel in sites] == [site.name for site in GOOD.sites]
    for panel in (city, *sites):
        drawn = {series["name"]: sum(series["counts"]) for series in panel["series"]}
        assert drawn == _vehicles_by_category(GOOD.traffic, None if panel is city else panel["title"])


def test_the_tables_of_the_panels_have_the_figures_of_their_charts(good: ReadPage) -> None:
    """A row per column of the chart: its time, then vehicles and speed of each category."""
    for panel in good.charts["traffic"]:
        heads, *rows = good.tables[f"Vehicles, and their mean speeds in km/h, of {panel['title']}"]
        assert heads == ["From", *(h for series in panel["series"] for h in (series["name"], f"{series['name']} km/h"))]
        assert [row[0] for row in rows] == [format_wall(start) for start in panel["starts_s"]]
        for n, series in enumerate(panel["series"]):
            assert [int(row[1 + 2 * n].replace(",", "")) for row in rows] == series["counts"]
            assert [None if row[2 + 2 * n] == "–" else float(row[2 + 2 * n]) for row in rows] == series["speeds"]


def test_a_speed_of_one_minute_is_that_of_the_results(good: ReadPage) -> None:
    """In km/h, where a column is a minute."""
    for panel in good.charts["traffic"][1:]:
        for series in panel["series"]:
            mine = [m for m in GOOD.traffic if (m.site, m.category) == (panel["title"], series["name"])]
            assert series["speeds"] == [None if m.speed_mean is None else round(3.6 * m.speed_mean, 1) for m in mine]


def test_the_histogram_has_every_error(good: ReadPage) -> None:
    """A bar for each bin from the first to the last that is not empty, drawn and in the table."""
    meant = [[start, end, number] for start, end, number in GOOD.accuracy.errors]
    assert [[bar["start"], bar["end"], bar["passages"]] for bar in good.charts["errors"]] == meant
    rows = good.tables["Measured minus true speed; the outermost bars contain what lies beyond them"][1:]
    assert [int(row[2].replace(",", "")) for row in rows] == [number for _, _, number in meant]
    assert {row[3] for row in rows} == {"right"}


def test_a_histogram_of_one_bar_is_a_sentence() -> None:
    """A single bar shows nothing; empty bars around it are not drawn."""
    errors = ((-0.3, -0.1, 0), (-0.1, 0.1, 1174), (0.1, 0.3, 0))
    results = change(SMALL, accuracy=change(SMALL.accuracy, errors=errors))
    assert [bar.passages for bar in error_bars(results.accuracy)] == [1174]
    read = ReadPage(render_page(results))
    assert "1,174 measured speeds, all between −0.1 m/s and +0.1 m/s off the true one" in read.text
    assert "errors" not in {found["data-chart"] for found in read.classes("chart")}


def test_an_error_is_wrong_from_the_tolerance_on() -> None:
    """On both sides; a bar that ends or begins at the tolerance is the boundary."""
    errors = ((-1.5, -1.0, 1), (-1.0, -0.5, 2), (0.5, 1.0, 3), (1.0, 1.5, 4))
    bars = error_bars(change(SMALL.accuracy, errors=errors, tolerance=1.0))
    assert [bar.is_right for bar in bars] == [False, True, True, False]


def test_the_collector_received_what_the_charts_and_the_table_show(good: ReadPage) -> None:
    """Row by row, old and new events; the last row is all of them."""
    shown = good.charts["received"]
    assert [row["name"] for row in shown["rows"]] == [*(site.name for site in GOOD.sites), "StatisticsCollector"]
    for row in shown["rows"]:
        spans = [span for span in GOOD.refit.received if row["name"] in (span.site, "StatisticsCollector")]
        assert (sum(row["old"]), sum(row["new"])) == (sum(s.old for s in spans), sum(s.new for s in spans))
    heads, *rows = good.tables["Events per 20 s; those with confidence after the plus"]
    assert heads == ["From", *(row["name"] for row in shown["rows"])]
    for n, row in enumerate(shown["rows"]):
        sums = [sum(map(int, cells[n + 1].split(" + "))) for cells in rows]
        assert sums == [old + new for old, new in zip(row["old"], row["new"], strict=True)]
    assert shown["asked_s"] == Clock(GOOD).wall_s(GOOD.refit.asked_us or 0)


def test_every_chart_has_a_table_and_a_function_that_draws_it(good: ReadPage) -> None:
    """Without scripts the page still has the figures; its charts say where."""
    script = files("genus_traffic.report").joinpath("report.js").read_text(encoding="utf-8")
    kinds = {found["data-chart"] for found in good.classes("chart")}
    assert kinds == {"types", "bus", "counts", "speeds", "errors", "received"}
    assert all(re.search(rf"^    {kind}\(host", script, re.MULTILINE) for kind in kinds)
    assert good.text.count("the table below has the figures") == len(good.classes("chart"))
    for before, after in zip(good.elements, good.elements[1:], strict=False):
        if before[1].get("data-chart") in {"types", "speeds", "errors"}:
            assert after[0] == "details"
    assert len(script.splitlines()) < 250


def test_counts_above_the_published_ones_are_explained() -> None:
    """Two receivers get each event: the page says so beside the number."""
    row = change(SMALL.channels[0], published=100, delivered=200, filtered=101, missed=0)
    read = ReadPage(render_page(change(SMALL, channels=(row,))))
    assert "200 delivered (2×), 101 filtered (1.01×), 0 missed" in read.text
    assert "counts once per receiving node" in read.text


def test_channels_by_site_are_in_a_table(good: ReadPage) -> None:
    """With the counts of the results."""
    rows = good.tables["Channels by site"][1:]
    meant = [[r.site, r.channel, r.qos, r.published, r.delivered, r.filtered, r.missed] for r in GOOD.channels]
    assert [[*row[:3], *(int(cell.replace(",", "")) for cell in row[3:7])] for row in rows] == meant


def test_generated_code_keeps_its_lines_and_is_not_wrapped(good: ReadPage) -> None:
    """White space is kept and a long line scrolls in its box."""
    rules = re.findall(r"^(?:[\w.]+, )*pre(?:, [\w.]+)* \{([^}]*)\}", "".join(good.texts("style")), re.MULTILINE)
    assert "overflow: auto;" in rules[0]
    assert "white-space: pre;" in rules[-1]
    assert [text for text in good.texts("code") if "\n    return " in text]


def test_a_step_has_a_rate_unless_it_did_one_thing() -> None:
    """One session in a second is no throughput."""
    read = ReadPage(render_page(change(SMALL, stages=(Stage(name="x", seconds=2, amount=1, what="sessions"),))))
    assert "2.0 s" in read.texts("b")
    assert "1 session" in read.texts("small")
    read = ReadPage(render_page(change(SMALL, stages=(Stage(name="x", seconds=2, amount=3000, what="events"),))))
    assert "3,000 events · 1.5 k/s" in read.texts("small")


def test_each_frame_slot_and_wait_is_drawn_and_in_a_table(good: ReadPage) -> None:
    """With its times, its channel and what became of it."""
    bus, drawn = GOOD.bus, good.charts["bus"]
    assert (drawn["start_us"], drawn["end_us"]) == (0, bus.length_us)
    assert [row[:2] for row in drawn["frames"]] == [[each.start_us, each.end_us] for each in bus.frames]
    assert drawn["slots"] == [[each.start_us, each.deadline_us, each.channel] for each in bus.slots]
    assert drawn["waits"] == [[w.published_us, w.delivered_us, w.deadline_us, w.channel] for w in bus.waits]
    frames = good.tables["Frames on the bus; times count from the start of the picture"][1:]
    assert [[row[0], row[2], row[3], row[5]] for row in frames] == [
        [format_micros(each.start_us), each.channel, each.node, f"{each.identifier:#010x}"] for each in bus.frames
    ]
    slots = good.tables["Slots of the calendar; the event is delivered at the end"][1:]
    assert [row[1:] for row in slots] == [[format_micros(each.deadline_us), each.channel] for each in bus.slots]
    waits = good.tables["Soft events; spans count from publishing"][1:]
    assert [row[3:] for row in waits] == [[each.channel, "in time"] for each in bus.waits]


def test_a_corrupted_frame_is_marked_on_its_channel() -> None:
    """It belongs to the channel whose event is sent again."""
    frames = bus_timeline(GOOD.bus).frames
    assert [(frame.channel, frame.kind) for frame in frames if not frame.ok] == [("Loop of lower", "soft")]
    assert {frame.priority for frame in frames if frame.kind == "hard"} == {0}
    assert {frame.priority for frame in frames if frame.kind == "none"} == {255}


def test_a_second_subscription_that_was_not_made_is_not_drawn(good: ReadPage) -> None:
    """The second subscription appears with the instant at which it was made."""
    assert good.charts["received"]["asked_s"] is not None
    assert "second subscription" in good.texts("li")
    never = ReadPage(render_page(change(GOOD, refit=change(GOOD.refit, asked_us=None))))
    assert never.charts["received"]["asked_s"] is None
    assert "second subscription" not in never.texts("li")
    assert "There was no second subscription" in never.text


# Laws


def test_an_event_is_late_from_the_instant_after_its_deadline() -> None:
    """At the deadline it is in time; one that never came is late."""
    wait = GOOD.bus.waits[0]
    assert not is_late(change(wait, delivered_us=wait.deadline_us))
    assert is_late(change(wait, delivered_us=wait.deadline_us + 1))
    assert is_late(change(wait, delivered_us=None))


def test_channels_of_all_sites_add_up_and_keep_the_slowest() -> None:
    """The longest way is that of the site that used most of what was promised to it."""
    slow = change(GOOD.channels[-1], worst_us=1e6)
    summed = sum_channels((*GOOD.channels[:-1], slow))
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
    panel = columns.panel("s", "", minutes, ["car", "truck"])
    assert len(panel.starts_s) == columns.number
    for series in panel.series:
        mine = [minute for minute in minutes if minute.category == series.name]
        assert len(series.counts) == len(series.speeds) == columns.number
        assert sum(series.counts) == sum(minute.count for minute in mine)
        speeds = [3.6 * minute.speed_mean for minute in mine if minute.speed_mean is not None]
        assert all(min(speeds) - 0.05001 <= kmh <= max(speeds) + 0.05001 for kmh in series.speeds if kmh is not None)


def test_a_minute_is_drawn_where_it_was() -> None:
    """Three minutes to a column: the fifth minute is in the second; what lies outside is at the nearer end."""
    columns = Columns(Clock(change(GOOD, minutes=12)), 4)
    places = {
        n: columns.column(change(GOOD.traffic[0], start=START + timedelta(minutes=n))) for n in (-1, 0, 4, 11, 12)
    }
    assert places == {-1: 0, 0: 0, 4: 1, 11: 3, 12: 3}
    assert [columns.column(minute) for minute in GOOD.traffic[::4][:5]] == [0, 0, 0, 1, 1]


def test_times_are_those_of_a_clock_on_the_wall() -> None:
    """In the zone of the run; a start without a zone is in UTC."""
    clock = Clock(change(GOOD, start=datetime(2026, 5, 4, 7, 30)))
    assert clock.zone is UTC
    assert [clock.format_time(clock.start_us + at) for at in (0, 5_000_000, 60_900_000)] == [
        "07:30",
        "07:30:05",
        "07:31",
    ]
    india = change(GOOD, start=datetime(2026, 5, 4, 7, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))))
    assert format_wall(chart_data(change(india, traffic=GOOD.traffic)).traffic[0].starts_s[0]) == "07:30"


def test_every_type_is_drawn_and_in_a_table(good: ReadPage) -> None:
    """With its parents, its code as a product, and its event tags."""
    assert list(good.charts["types"]) == [row.name for row in GOOD.types]
    heads, *rows = good.tables[
        "Types; the bits that the event tags of a type and all below it have in common, and hyphens for the others"
    ]
    assert heads == ["Type", "Below", "Code", "Primes", "Own event tag", "Event tags"]
    for row, cells in zip(GOOD.types, rows, strict=True):
        tags = ", ".join(format_bits(value, mask, 14) for value, mask in row.etag_blocks)
        own = "none: a kind" if row.etag is None else f"{row.etag:#06x}"
        primes = " × ".join(map(str, row.factors))
        assert cells == [row.name, ", ".join(row.parents) or "–", str(row.code), primes or "–", own, tags or "–"]
    drawn = drawn_types(GOOD.types)
    assert {name: type_.blocks for name, type_ in drawn.items()} == {row.name: row.etag_blocks for row in GOOD.types}
    assert {name: type_.code for name, type_ in drawn.items()} == {row.name: str(row.code) for row in GOOD.types}


def test_types_belong_to_the_topmost_type_of_their_family() -> None:
    """Kinds and the root of all types belong to none."""
    assert {family.root: len(family.members) for family in families(GOOD.types)} == {
        "Edge": 4, "Occupancy": 1, "Setting": 1,
    }  # fmt: skip
    drawn = drawn_types(GOOD.types)
    assert {name: type_.family for name, type_ in drawn.items() if name in {"ConfidentLoop", "Event", "Roadside"}} == {
        "ConfidentLoop": "Edge", "Event": None, "Roadside": None,
    }  # fmt: skip


def test_an_attribute_is_declared_by_one_type_of_a_line() -> None:
    """Its subtypes inherit it, and others never carry it."""
    edge = next(family for family in families(GOOD.types) if family.root == "Edge")
    column = [name for _, name in edge.attributes].index("category")
    assert {name: cells[column] for name, cells in edge.members} == {
        "Edge": "none", "Loop": "own", "ConfidentLoop": "inherited", "Cleared": "none",
    }  # fmt: skip
