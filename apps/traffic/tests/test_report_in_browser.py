"""The report in a browser: its pictures have what its tables have, for any results, in any theme, and on paper."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from genus_traffic.report.page import write_report
from genus_traffic.results import Results

from .made_results import bad_results, empty_results, made_results
from .test_report import NASTY, renamed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright").expect
GOOD = made_results(sites=3, minutes=6)
change = msgspec.structs.replace


@contextmanager
def opened(browser: "Browser", results: Results, folder: Path, **options: Any) -> "Iterator[Page]":
    """The page of results, from its file; whatever it asks for, and errors of its scripts, fail the test."""
    path = write_report(results, folder / "report.html")
    page = browser.new_page(**options)
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
    try:
        page.goto(path.as_uri())
        yield page
        assert asked == [path.as_uri()]
        assert not wrong
    finally:
        page.close()


def scroll_through(page: "Page") -> None:
    """Unfold everything, so that all pictures are drawn."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    expect(page.locator(".chart:not(:has(*))")).to_have_count(0)


def test_every_picture_is_drawn_in_its_place(browser: "Browser", tmp_path: Path) -> None:
    """Where the page without a script says that the table has the figures, the page with one has a picture."""
    with opened(browser, GOOD, tmp_path) as page:
        scroll_through(page)
        assert "drawn by a script" not in (page.text_content("main") or "")
        assert page.locator(".chart canvas").count() >= 3 * 2 + 2
        label = page.get_attribute("[role=application]", "aria-label") or ""
        bus = GOOD.bus
        drawn = f"{len(bus.frames)} frames, {len(bus.slots)} slots, {len(bus.waits)} waiting events"
        assert f"{drawn}, 1 frame corrupted, 0 late" in label
        lanes = page.locator(".timeline-names > div").all_text_contents()
        hard, soft = ["Occupancy of lower", "Occupancy of upper"], ["Cleared of lower", "Cleared of upper"]
        assert lanes == [*hard, *soft, "Loop of lower", "Loop of upper", "middleware", "Setting of upper", "all frames"]


def test_the_tree_has_every_type_below_its_parent(browser: "Browser", tmp_path: Path) -> None:
    """With its primes: those of its parents, and its own."""
    with opened(browser, GOOD, tmp_path) as page:
        items = page.locator("[role=treeitem]")
        levels = {item.get_attribute("data-type"): int(item.get_attribute("aria-level") or 0) for item in items.all()}
        assert levels.keys() == {row.name for row in GOOD.types}
        assert levels["ConfidentLoop"] == levels["Loop"] + 1 == levels["Edge"] + 2
        for row in GOOD.types:
            primes = page.locator(f"[data-type={row.name}] .prime").all_text_contents()
            assert sorted(primes) == sorted(map(str, row.factors))
        assert page.locator("[data-type=Loop] .prime.own").all_text_contents() == ["2"]


def test_the_bits_of_all_filters_are_drawn(browser: "Browser", tmp_path: Path) -> None:
    """29 of them in three parts, as the mask says."""
    with opened(browser, GOOD, tmp_path) as page:
        drawn = page.locator("[data-bits]").all()
        filters = [pair for compiled in GOOD.subscriptions for pair in compiled.filters]
        for place, (value, mask) in zip(drawn, filters, strict=True):
            assert place.locator(".part small").all_text_contents() == ["priority", "node", "event tag"]
            bits = "".join(place.locator("i").all_text_contents())
            assert bits == "".join(str(value >> bit & 1) if mask >> bit & 1 else "·" for bit in reversed(range(29)))


def test_late_events_are_counted_in_the_picture(browser: "Browser", tmp_path: Path) -> None:
    """Two waits that missed their deadlines."""
    with opened(browser, bad_results(), tmp_path) as page:
        assert "2 late" in (page.get_attribute("[role=application]", "aria-label") or "")
        assert page.locator(".timeline .legend li", has_text="deadline missed").count() == 1


@pytest.mark.parametrize(
    "results",
    [
        pytest.param(empty_results(), id="empty"),
        pytest.param(made_results(sites=1, minutes=1), id="one site"),
        pytest.param(change(GOOD, bus=change(GOOD.bus, length_us=0)), id="a bus without time"),
        pytest.param(renamed(GOOD, lambda text: text * 40), id="long names"),
        pytest.param(renamed(GOOD, lambda text: NASTY + text), id="attacks"),
    ],
)
def test_any_results_are_drawn(browser: "Browser", tmp_path: Path, results: Results) -> None:
    """Without an error, without markup from names, and not wider than a phone."""
    with opened(browser, results, tmp_path, viewport={"width": 360, "height": 700}) as page:
        scroll_through(page)
        assert page.query_selector("img") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_category_that_is_chosen_is_drawn_alone(browser: "Browser", tmp_path: Path) -> None:
    """In the picture, and in the text at the pointer."""
    with opened(browser, GOOD, tmp_path) as page:
        place = page.locator("[data-chart=counts]").first
        place.scroll_into_view_if_needed()
        place.locator(".u-over").hover()
        assert "× car" in (page.text_content(".tip") or "")
        page.click("[data-only='1']")
        place.locator(".u-over").hover(position={"x": 300, "y": 50})
        assert "× car" not in (page.text_content(".tip") or "")


def test_dark_light_and_paper(browser: "Browser", tmp_path: Path) -> None:
    """The theme follows the reader's system, then the button; paper is light, and the theme is there again after it."""
    with opened(browser, GOOD, tmp_path, color_scheme="dark") as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.click("#theme")
        light = page.evaluate(ground)
        assert dark != light
        page.click("#theme")
        assert page.evaluate(ground) == dark
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate(ground) == light
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate(ground) == dark


def test_without_a_script_the_figures_are_there(browser: "Browser", tmp_path: Path) -> None:
    """Every table can be unfolded, and says what the picture would show."""
    with opened(browser, GOOD, tmp_path, java_script_enabled=False) as page:
        page.click("text=The frames")
        assert page.locator("table", has_text="Frames on the bus").locator("tbody tr").count() == len(GOOD.bus.frames)
        assert page.locator("#theme").is_hidden()
        assert page.locator("[data-bits] code").first.is_visible()
