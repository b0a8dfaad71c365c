"""The view of a CAN bus: live and stopped, back and forth, spans, lanes, load, and the frames as a table."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pytest

from genus.studio import Studio, open_studio
from genus.studio.types import FrameSpan, SlotSpan, SourceRow, Timeline
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import HOSTILE, view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
expect = api.expect

AREA, TIME = "[role=application]", ".can-time"


class MadeBus(MadeSource):
    """A bus with a frame every 2 ms from the time 0 on, and a slot every 10 ms; `now_us` is its time."""

    def __init__(self, name: str, node: str = "upper", rate: float = 500.0) -> None:
        super().__init__(name)
        self.tables["sources"] = {name: SourceRow(kind="can", address="can:made", rate=rate, has_timeline=True)}
        self.node, self.now_us = node, 1_000_000.0

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        start = self.now_us - span_us if start_us is None else start_us
        starts = [at for at in range(0, 2_000_000, 2_000) if start <= at < start + span_us]
        frames = [self._frame(at) for at in starts]
        slots = [SlotSpan(at, at + 500, "Occupancy") for at in starts if at % 10_000 == 0]
        return Timeline(start, start + span_us, frames, slots, load=0.13)

    def _frame(self, at: int) -> FrameSpan:
        kind = "hard" if at % 10_000 == 0 else "soft"
        is_good, late = at != 990_000, at == 992_000
        deadline = at + (100.0 if late else 5_000.0)
        return FrameSpan(at, at + 300.0, self.node, HOSTILE, kind, 0x02809300, is_good, 20, deadline, 40.0, ["Setting"])


@pytest.fixture
def road() -> MadeBus:
    return MadeBus("road")


@pytest.fixture
def studio(road: MadeBus) -> Iterator[Studio]:
    with open_studio(road, MadeBus("bench", "lower", rate=8.0), MadeSource("other"), port=0) as opened:
        yield opened


def test_a_bus_is_followed_until_it_is_stopped(browser: "Browser", studio: Studio, road: MadeBus) -> None:
    """Then its time can be walked through, and what it does meanwhile does not disturb."""
    with view_page(browser, studio, "can?span=20") as page:
        expect(page.locator(AREA)).to_have_attribute(
            "aria-label", re.compile(r"Timeline of road: 10 frames, 2 slots, .*1 frame corrupted, 1 late in 20.0 ms")
        )
        expect(page.locator(TIME)).to_have_text("from 0.980000 s")
        road.now_us = 1_100_000
        expect(page.locator(TIME)).to_have_text("from 1.080000 s")
        page.get_by_role("button", name="pause the timeline").click()
        road.now_us = 1_500_000
        page.get_by_role("button", name="earlier").click()
        expect(page.locator(TIME)).to_have_text("from 1.070000 s")
        page.get_by_role("button", name="later").click(click_count=2)
        expect(page.locator(TIME)).to_have_text("from 1.090000 s")
        page.get_by_role("button", name="follow the bus live").click()
        expect(page.locator(TIME)).to_have_text("from 1.480000 s")


def test_an_answer_that_comes_too_late_is_not_shown(browser: "Browser", studio: Studio) -> None:
    """The one that was asked for last stays."""
    with view_page(browser, studio, "can?span=20") as page:
        expect(page.locator(TIME)).to_have_text("from 0.980000 s")
        held: list[Route] = []
        page.route(re.compile("/api/can[?]"), lambda route: route.continue_() if held else held.append(route))
        page.get_by_role("button", name="earlier").click()
        expect(page.locator(TIME)).to_have_text("from 0.980000 s")
        page.get_by_role("button", name="earlier").click()
        expect(page.locator(TIME)).to_have_text("from 0.960000 s")
        with page.expect_response(re.compile("start_us=970000")) as late:
            held[0].continue_()
        late.value.finished()
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.text_content(TIME) == "from 0.960000 s"


def test_the_load_is_there_as_a_number_and_the_frames_as_a_table(browser: "Browser", studio: Studio) -> None:
    """A name that looks like markup is text."""
    with view_page(browser, studio, "can?span=20") as page:
        expect(page.locator(".can-head")).to_contain_text("Load13 %")
        rows = page.locator(".view-can tr.row")
        expect(rows).to_have_count(10)
        expect(rows.filter(has_text="corrupted")).to_have_count(1)
        expect(rows.filter(has_text="late")).to_have_count(1)
        expect(rows.first).to_contain_text(HOSTILE)
        expect(rows.first).to_contain_text("0x02809300")
        assert page.evaluate("window.hacked") is None


def test_source_span_and_lanes_are_chosen_and_stay_in_the_address(browser: "Browser", studio: Studio) -> None:
    """A quiet bus has a long span at first; sources without a bus are not offered."""
    with view_page(browser, studio, "can") as page:
        expect(page.locator("label", has_text="Span").locator("select")).to_have_value("50")
        assert page.locator("label", has_text="Bus").locator("select").locator("option").all_text_contents() == [
            "road",
            "bench",
        ]
        page.locator("label", has_text="Bus").locator("select").select_option("bench")
        expect(page.locator(".timeline-names")).to_contain_text("lower")
        page.locator("label", has_text="Span").locator("select").select_option("100")
        expect(page.locator(AREA)).to_have_attribute("aria-label", re.compile("50 frames.* in 100 ms"))
        page.get_by_role("button", name="by channel").click()
        expect(page.locator(".timeline-names")).to_contain_text("all frames")
        expect(page).to_have_url(re.compile(r"#can\?source=bench&span=100&lanes=channel$"))
        page.reload()
        expect(page.locator(AREA)).to_have_attribute("aria-label", re.compile("Timeline of bench: 50 frames"))
    with view_page(browser, studio, "can?source=bench") as page:
        expect(page.locator("label", has_text="Span").locator("select")).to_have_value("1000")


def test_where_it_was_stopped_stays_in_the_address(browser: "Browser", studio: Studio, road: MadeBus) -> None:
    """With the bus and the span, also if nobody chose them."""
    with view_page(browser, studio, "can") as page:
        expect(page).to_have_url(re.compile(r"#can\?source=road&span=50$"))
        expect(page.locator(TIME)).to_have_text("from 0.950000 s")
        page.get_by_role("button", name="pause the timeline").click()
        page.get_by_role("button", name="earlier").click()
        expect(page).to_have_url(re.compile(r"#can\?source=road&span=50&at=925000$"))
        road.now_us = 1_500_000
        page.reload()
        expect(page.locator(TIME)).to_have_text("from 0.925000 s")
        page.get_by_role("button", name="follow the bus live").click()
        expect(page.locator(TIME)).to_have_text("from 1.450000 s")
        expect(page).to_have_url(re.compile(r"#can\?source=road&span=50$"))


def test_a_span_without_frames_can_be_widened(browser: "Browser", studio: Studio, road: MadeBus) -> None:
    """And a bus whose time stands still is not called live only."""
    road.now_us = 2_006_000  # the last frames began 8 and 10 ms ago
    with view_page(browser, studio, "can?source=road&span=5") as page:
        expect(page.locator(".can-none")).to_contain_text("No frame in this span.")
        page.get_by_role("button", name="Widen the span").click()
        expect(page.locator(AREA)).to_have_attribute("aria-label", re.compile("2 frames.* in 10.0 ms"))
        expect(page.locator(".can-none")).to_be_hidden()
        expect(page).to_have_url(re.compile("span=10$"))
        row = msgspec.structs.replace(road.tables["sources"]["road"], state="paused")
        road.tables["sources"] = {"road": row}
        expect(page.get_by_text("Its time is paused")).to_be_visible()


def test_without_a_bus_the_view_says_so(browser: "Browser") -> None:
    """And how one is opened."""
    with open_studio(MadeSource("other"), port=0) as studio, view_page(browser, studio, "can") as page:
        expect(page.locator(".empty")).to_contain_text("No source has a CAN bus")
        expect(page.locator(AREA)).to_have_count(0)
