"""The view Plot: attributes over time, added by name, by keyboard and by drag, and bounded."""

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from genus.bus import Bus, RecordingWriter, open_bus
from genus.studio import Studio, open_studio
from genus.studio._plot import PlotSeries, PlotStream, last_minute
from genus.studio._recording_source import RecordingSource
from genus.studio._taps import Taps
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import SeenGate, SeenLoop, studio_of, view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
expect = api.expect


@pytest.fixture
def bus() -> Iterator[Bus]:
    with open_bus("local:") as opened:
        yield opened


@pytest.fixture
def studio(bus: Bus) -> Iterator[Studio]:
    with studio_of(bus) as opened:
        yield opened


def publish_until(page: "Page", bus: Bus, text: str, speed: float, source: str | None = None) -> None:
    """Publish until a legend shows a text: a plot shows what comes after it was opened."""
    legend = page.locator(".chart-legend").filter(has_text=text)
    for _ in range(100):
        bus.publish(SeenLoop(lane=1, speed=speed, source=source))
        if legend.count():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"no legend has {text!r}")


def test_a_series_of_the_address_is_drawn_with_its_unit(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "plot?series=SeenLoop.speed") as page:
        expect(page.locator(".plot")).to_contain_text("No event with a value yet.")
        publish_until(page, bus, "SeenLoop.speed 31.5 m/s", speed=31.5)
        assert page.locator(".plot canvas").first.is_visible()


def test_a_live_plot_is_held_and_goes_on(browser: "Browser", bus: Bus, studio: Studio) -> None:
    """By its button, and by whatever changes the range; it goes on receiving."""
    with view_page(browser, studio, "plot?series=SeenLoop.speed") as page:
        publish_until(page, bus, "SeenLoop.speed 31.5 m/s", speed=31.5)
        told = page.locator(".plot-range")
        expect(told).to_have_text("")
        page.locator(".chart-plot").press("+")
        expect(told).to_have_text(re.compile("UTC$"))
        page.get_by_role("button", name="Go live").click()
        expect(told).to_have_text("")
        page.get_by_role("button", name="Pause").click()
        expect(told).to_have_text(re.compile("UTC$"))
        page.get_by_role("button", name="Go live").click()
        publish_until(page, bus, "SeenLoop.speed 7 m/s", speed=7.0)


def test_a_line_for_each_source(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "plot?series=SeenLoop.speed by source") as page:
        publish_until(page, bus, "north", speed=1.0, source="north")
        publish_until(page, bus, "south", speed=2.0, source="south")
        assert page.locator(".chart-legend button").count() == 2


def test_plots_by_keyboard_by_drag_and_by_name(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "plot") as page:
        chip = page.locator(".plot-type", has_text="SeenLoop").locator(".plot-chip")
        chip.filter(has_text="speed").press("Enter")
        expect(page).to_have_url(re.compile(r"series=SeenLoop\.speed$"))
        chip.filter(has_text="lane").drag_to(page.locator(".plot"))
        expect(page).to_have_url(re.compile(r"series=SeenLoop\.speed%2CSeenLoop\.lane$"))
        page.locator(".plot-name").fill("SeenGate.open")
        page.keyboard.press("Enter")
        expect(page.locator(".plot")).to_have_count(2)
        page.get_by_role("button", name="remove SeenLoop.speed").click()
        expect(page).to_have_url(re.compile(r"series=SeenLoop\.lane%3BSeenGate\.open$"))
        page.reload()
        expect(page.locator(".plot")).to_have_count(2)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Nothing.speed", "there is no type Nothing"),
        ("SeenLoop.weight", "SeenLoop has no attribute weight"),
        ("SeenLoop.note", "SeenLoop.note is not a number"),
        ("<img src=x>", "write a type and an attribute"),
    ],
)
def test_a_series_that_cannot_be_drawn_is_told(browser: "Browser", studio: Studio, name: str, problem: str) -> None:
    with view_page(browser, studio, "plot?series=SeenLoop.speed") as page:
        expect(page.locator(".plot-chip").first).to_be_visible()
        page.locator(".plot-name").fill(name)
        page.keyboard.press("Enter")
        expect(page.locator(".plot-said")).to_contain_text(problem)
        expect(page.locator(".plot")).to_have_count(1)
        assert page.locator("main img").count() == 0


def test_points_are_bounded_and_extremes_stay(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "plot") as page:
        kept, least, most, oldest = page.evaluate(
            """async () => {
                const { PlotData } = await import("/page/views/plot-data.js");
                const data = new PlotData();
                for (let turn = 0; turn < 100; turn += 1) {
                    const points = Array.from({ length: 500 }, (_, n) => [1e12 + turn * 8000 + n * 16, n % 7, 1]);
                    if (turn === 60) [points[10][1], points[20][1]] = [-50, 99];
                    const columns = [0, 1, 2].map((place) => points.map((point) => point[place]));
                    data.receive({ at: 1e12, series: { "A.x": { unit: null, lines: { "": columns }, cut: {} } } });
                }
                const line = data.series.get("A.x").lines.get("");
                const values = line.map((point) => point[1]);
                return [line.length, Math.min(...values), Math.max(...values), line.at(-1)[0] - line[0][0]];
            }"""
        )
        assert 1000 < kept <= 5000
        assert (least, most) == (-50, 99)
        assert oldest <= 1.2 * 600_000


RING = 40


class Leaping(MadeSource):
    """State: a source that can be set to another time."""

    leaps = 0


def played(chance: random.Random) -> tuple[list[Any], dict[int, int]]:
    """What a page gets while a source is played, set to other times, lost and connected again; the run of each event.

    The value of an event is its number. Events of one run came one after the other, and nothing was left out.
    """
    source, at_ms, run, number = Leaping(), 0.0, 0, 0
    taps = Taps([source])
    asked = PlotSeries("SeenLoop.speed", (SeenLoop,), "speed", None, "none")
    stream, end = PlotStream({asked.text: asked}, has_sources=False), taps.follow([], lambda events, skipped: None)
    messages: list[Any] = ["begin"]
    runs: dict[int, int] = {}

    def follow() -> None:
        nonlocal stream, end
        end()
        stream = PlotStream({asked.text: asked}, has_sources=False)
        stream.take(last_minute(taps.kept(["made"])), 0)
        end = taps.follow(["made"], stream.take)

    follow()
    for _ in range(chance.randrange(5, 40)):
        match chance.choice(["play", "play", "play", "play", "seek", "turn", "absent", "again", "gone", "flood"]):
            case "play":
                for _ in range(chance.randrange(1, 6)):
                    number, at_ms = number + 1, at_ms + chance.choice([0, 10, 1000])
                    runs[number] = run
                    source.emit(SeenLoop(lane=1, speed=float(number)), at_ms)
            case "seek":
                source.leaps, run, at_ms = source.leaps + 1, run + 1, float(chance.randrange(100_000))
            case "absent":
                source.emit(SeenLoop(lane=1), at_ms)
                run += 1
            case "flood":  # more than the ring holds: all that wait are skipped
                run += 1
                for _ in range(RING + 1):
                    number, at_ms = number + 1, at_ms + 10
                    runs[number] = run
                    source.emit(SeenLoop(lane=1, speed=float(number)), at_ms)
            case step:
                taps.turn(wants_last=False)
                messages.append({"at": 0, **stream.data()})
                if step == "gone":  # nobody listens for a while
                    taps.close()
                    source.emit(SeenLoop(lane=1, speed=float(number := number + 1)), at_ms := at_ms + 10)
                    run += 1
                if step != "turn":
                    messages.append("begin")
                    follow()
    taps.turn(wants_last=False)
    return [*messages, {"at": 0, **stream.data()}], runs


def test_no_line_is_drawn_over_what_was_not_played_or_received(
    browser: "Browser", studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any number of seeks, losses, absent values and new connections, and however few columns there are."""
    monkeypatch.setattr("genus.studio._taps.RING", RING)
    cases = [played(random.Random(seed)) for seed in range(60)]
    with view_page(browser, studio, "plot") as page:
        drawn = page.evaluate(
            """async (cases) => {
                const { PlotData } = await import("/page/views/plot-data.js");
                const { alignLines } = await import("/page/components/chart.js");
                return cases.flatMap((messages) => [5, 1000].map((columns) => {
                    const data = new PlotData();
                    for (const message of messages) message === "begin" ? data.begin() : data.receive(message);
                    const points = data.points("SeenLoop.speed", "", -1e6, 1e6, columns);
                    const [, values] = alignLines([points]), joined = [];
                    for (let n = 1; n < values.length; n += 1)
                        if (values[n] !== null && values[n - 1] !== null) joined.push([values[n - 1], values[n]]);
                    return [points.length, joined];
                }));
            }""",
            [messages for messages, _ in cases],
        )
    assert sum(len(joined) for _, joined in drawn) > 100, "lines are drawn"
    for place, (_, joined) in enumerate(drawn):
        runs = cases[place // 2][1]
        for one, other in joined:
            assert runs[one] == runs[other]


# -- what is stored ----------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Studio]:
    begin = datetime(2026, 5, 1, tzinfo=UTC)
    with RecordingWriter(tmp_path / "day.genus") as writer:
        for number in range(4000):
            at = begin + timedelta(seconds=number)
            writer.write(SeenLoop(lane=number % 4, speed=number / 100, time=at), round(at.timestamp() * 1e6))
    source = RecordingSource(tmp_path / "day.genus", (SeenLoop, SeenGate), name="day.genus", plays=False)
    with open_studio(source) as opened:
        yield opened


def test_a_whole_recording_is_drawn_by_an_attribute_and_zoomed(browser: "Browser", recorded: Studio) -> None:
    """Before it is played; by keys, wheel and drag; and the range leads to its events."""
    with view_page(browser, recorded, "plot?series=SeenLoop.speed by lane") as page:
        legend = page.locator(".chart-legend button")
        expect(legend).to_have_count(4)
        assert [text.split()[0] for text in legend.all_text_contents()] == ["0", "1", "2", "3"]
        expect(legend.nth(3)).to_contain_text("39.99 m/s")
        told = page.locator(".plot-range")
        expect(told).to_have_text("2026-05-01 00:00 – 01:06:39 UTC")
        page.locator(".chart-plot").press("+")
        expect(told).to_have_text("2026-05-01 00:16:40 – 00:49:59 UTC")
        expect(page).to_have_url(re.compile("from=1777594799750&to=1777596799250|from=1777594"))
        box = page.locator(".u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30, steps=3)
        page.mouse.up()
        expect(told).to_have_text(re.compile("00:2[45]:.* – 00:33"))
        page.mouse.wheel(0, -600)
        expect(told).not_to_have_text(re.compile("00:2[45]:"))
        link = page.locator(".toolbar a").get_attribute("href") or ""
        assert re.match(r"#events\?q=SeenLoop&source=day.genus&from=\d+&to=\d+$", link)
        page.reload()
        expect(legend).to_have_count(4)
        expect(told).not_to_have_text(re.compile("01:06:39"))
        page.get_by_role("button", name="Whole recording").click()
        expect(told).to_have_text("2026-05-01 00:00 – 01:06:39 UTC")


def test_lines_are_told_apart_by_what_is_chosen(browser: "Browser", recorded: Studio) -> None:
    with view_page(browser, recorded, "plot?series=SeenLoop.speed") as page:
        expect(page.locator(".chart-legend button")).to_have_count(1)
        page.locator(".plot-by").select_option("lane")
        expect(page.locator(".chart-legend button")).to_have_count(4)
        expect(page).to_have_url(re.compile(r"series=SeenLoop\.speed\+by\+lane"))
