"""The view Plot: attributes over time, added by name, by keyboard and by drag, and bounded."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from genus.bus import Bus, open_bus
from genus.studio import Studio
from tests.studio.view_page import SeenLoop, studio_of, view_page

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


def test_a_line_for_each_source(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "plot?series=SeenLoop.speed&by=source") as page:
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
                    const points = Array.from({ length: 500 }, (_, n) => [1e12 + turn * 8000 + n * 16, n % 7]);
                    if (turn === 60) [points[10][1], points[20][1]] = [-50, 99];
                    data.receive({ at: 1e12, series: { "A.x": { unit: null, lines: { "": points } } } });
                }
                const line = data.series.get("A.x").lines.get("");
                const values = line.map((point) => point[1]);
                return [line.length, Math.min(...values), Math.max(...values), line.at(-1)[0] - line[0][0]];
            }"""
        )
        assert 1000 < kept <= 5000
        assert (least, most) == (-50, 99)
        assert oldest <= 1.2 * 600_000


def test_points_that_come_twice_are_kept_once_and_in_order(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "plot") as page:
        line = page.evaluate(
            """async () => {
                const { PlotData } = await import("/page/views/plot-data.js");
                const data = new PlotData();
                for (const points of [[[1, 10], [3, 30]], [[1, 10], [2, 20], [3, 30], [4, 40]]])
                    data.receive({ at: 0, series: { "A.x": { unit: null, lines: { "": points } } } });
                data.cut(4);
                return data.series.get("A.x").lines.get("");
            }"""
        )
        assert line == [[1, 10], [2, 20], [3, 30]]


def test_points_before_and_after_a_step_in_time_are_not_connected(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "plot") as page:
        line = page.evaluate(
            """async () => {
                const { PlotData } = await import("/page/views/plot-data.js");
                const data = new PlotData();
                for (const points of [[[1000, 1], [2000, 2]], [[90000, 9]]])
                    data.receive({ at: 0, series: { "A.x": { unit: null, lines: { "": points } } } });
                data.breakLines(3000);
                data.breakLines(3500);
                return data.points("A.x", "", 0, 100000, 2);
            }"""
        )
        assert line == [[1000, 1], [2000, 2], [3000, None], [90000, 9]]


def test_a_time_in_which_nobody_listened_is_not_drawn(browser: "Browser", studio: Studio) -> None:
    """A line has a gap there; events that come in bursts, or seldom, are connected."""
    with view_page(browser, studio, "plot") as page:
        gaps = page.evaluate(
            """async () => {
                const { PlotData } = await import("/page/views/plot-data.js");
                const gaps = (times) => {
                    const data = new PlotData(), points = times.map((time) => [time, 1]);
                    data.receive({ at: 0, series: { "A.x": { unit: null, lines: { "": points } } } });
                    const drawn = data.points("A.x", "", 0, 1e6, 1e4);
                    return drawn.filter((point) => point[1] === null).map((point) => Math.round(point[0]));
                };
                const many = (size, time) => Array.from({ length: size }, (_, n) => time(n));
                return [
                    gaps([...many(50, (n) => 100 * n), ...many(50, (n) => 40000 + 100 * n)]),
                    gaps(many(60, (n) => 5000 * Math.floor(n / 6) + n % 6)),
                    gaps(many(20, (n) => 30000 * n)),
                ];
            }"""
        )
        assert gaps == [[4900], [], []]
