"""The shell of the page: the connection and its state, keys, themes, many windows, and the time of played sources."""

import re
import socket
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import pytest

from genus.errors import BusError
from genus.studio import Studio, open_studio
from genus.studio.types import SourceRow, State, Tables
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
expect = api.expect

LIVE_AGAIN_MS = 5000
HIDE = """(isHidden) => {
    Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
BUSY = "() => { const end = performance.now() + 3000; while (performance.now() < end); }"
COUNT_STREAMS = """() => {
    window.opened = 0;
    const Known = EventSource;
    window.EventSource = class extends Known { constructor(path) { super(path); window.opened += 1; } };
}"""


class Player(MadeSource):
    """State: a recording of an hour that is played."""

    def __init__(self, name: str, player: str = "") -> None:
        super().__init__(name)
        self.state: State = "paused"
        self.player, self.speed, self.time_ms, self.can_seek = player, 1.0, 0.0, True
        self.show()

    def show(self) -> None:
        row = SourceRow(
            kind="recording", address="hour.genus", state=self.state, time_ms=self.time_ms, begin_ms=0.0, end_ms=3.6e6,
            speed=self.speed, can_seek=self.can_seek, player=self.player,
        )  # fmt: skip
        self.tables["sources"] = {self.name: row}

    def play(self) -> None:
        self.state = "playing"
        self.show()

    def pause(self) -> None:
        self.state = "paused"
        self.show()

    def set_speed(self, speed: float) -> None:
        if speed > 50:
            raise BusError("that is too fast")
        self.speed = speed
        self.show()

    def seek(self, time_ms: float) -> None:
        self.time_ms = time_ms
        self.show()


@pytest.fixture
def source() -> MadeSource:
    return MadeSource("made")


@pytest.fixture
def studio(source: MadeSource) -> Iterator[Studio]:
    with open_studio(source, port=0) as opened:
        yield opened


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_server_that_comes_back(browser: "Browser", source: MadeSource) -> None:
    """The page says that the server is gone and since when, and is live again soon after it is back."""
    port = free_port()
    with open_studio(source, port=port) as first, view_page(browser, first, "channels") as page:
        expect(page.locator("#status")).to_contain_text("live")
        first.close()
        expect(page.locator("#status")).to_contain_text("reconnecting")
        expect(page.locator("#status")).to_contain_text(
            re.compile(r"no data since \d\d:\d\d UTC: the server is gone"), timeout=15_000
        )
        source.set_channel("Loop")
        with open_studio(source, port=port):
            expect(page.locator("#status")).to_contain_text("live", timeout=LIVE_AGAIN_MS)
            expect(page.locator("tr.row")).to_contain_text("Loop")


def test_a_hidden_page_closes_its_stream(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """It says that it is paused, and shows the present rows as soon as it is seen again."""
    with view_page(browser, studio, "channels") as page:
        expect(page.locator("#status")).to_contain_text("live")
        page.evaluate(HIDE, True)
        expect(page.locator("#status")).to_contain_text("paused")
        source.set_channel("Loop")
        page.evaluate(HIDE, False)
        expect(page.locator("#status")).to_contain_text("live")
        expect(page.locator("tr.row")).to_contain_text("Loop")


def test_a_foreign_name_that_leads_to_this_machine_shows_nothing(browser: "Browser", studio: Studio) -> None:
    """As a page of another site would try it: the browser sends that site's name as Host."""
    page = browser.new_page()
    try:
        for path in ("", "api/sources", "page/app.js"):
            answer = page.goto(f"http://evil.example:{studio.port}/{path}")
            assert answer is not None
            assert answer.status == 403
        answer = page.goto(f"http://localhost:{studio.port}/")
        assert answer is not None
        assert answer.status == 200
    finally:
        page.close()


class ChangingSource(MadeSource):
    """A source that has changed whenever it is looked at."""

    turns = 0

    def rows(self, wanted: Collection[str]) -> Tables:
        self.turns += 1
        self.set_channel("Turn", events=self.turns)
        return super().rows(wanted)


def test_a_page_that_lags_asks_for_a_snapshot(browser: "Browser") -> None:
    """A page that was busy for long opens its stream again instead of working off what came meanwhile."""
    source = ChangingSource("made")
    with open_studio(source) as studio, view_page(browser, studio, "channels") as page:
        expect(page.locator("#status")).to_contain_text("live")
        turn = page.locator("tr.row").filter(has_text="Turn").locator("td").last
        expect(turn).not_to_have_text(turn.inner_text())  # it has got a change, so it knows how old a message is
        page.evaluate(COUNT_STREAMS)
        page.evaluate(BUSY)
        deadline = time.monotonic() + 15
        while not page.evaluate("window.opened"):
            assert time.monotonic() < deadline, "it works off what came"
        source.set_channel("Loop")
        expect(page.locator("tr.row").filter(has_text="Loop")).to_be_visible()


def test_ten_windows(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """All windows of a browser are live, though it opens six connections to a server at most."""
    context = browser.new_context()
    try:
        pages = [context.new_page() for _ in range(10)]
        for page in pages:
            page.goto(f"{studio.url}#channels")
        for page in pages:
            expect(page.locator("#status")).to_contain_text("live")
        source.set_channel("Loop")
        for page in pages:
            expect(page.locator("tr.row")).to_contain_text("Loop")
        assert sum("every 2 s" in page.locator("#status").inner_text() for page in pages) == 7
        pages[0].close()
        deadline = time.monotonic() + 10
        while sum("every 2 s" in page.locator("#status").inner_text() for page in pages[1:]) != 6:
            assert time.monotonic() < deadline, "no window took the stream of the one that was closed"
    finally:
        context.close()


def test_keys(browser: "Browser", studio: Studio) -> None:
    """Letters and numbers change the view, but not while somebody types or has switched them off."""
    with view_page(browser, studio, "overview") as page:
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.keyboard.press("g")
        page.keyboard.press("c")
        expect(page.get_by_role("heading", name="Channels", exact=True)).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("g n 1")
        expect(page.get_by_role("searchbox")).to_have_value("g n 1")
        page.locator("main").focus()
        page.keyboard.press("5")
        expect(page.get_by_role("heading", name="Nodes")).to_be_visible()
        page.keyboard.press("?")
        page.get_by_label("single letters and numbers are keys").uncheck()
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page).to_have_url(re.compile("#nodes$"))


def test_the_theme_is_remembered(browser: "Browser", studio: Studio) -> None:
    """The colours are those of the system until the reader chooses others; a reload keeps them, without a flash."""
    ground = "getComputedStyle(document.body).backgroundColor"
    with view_page(browser, studio, "overview", color_scheme="light") as page:
        light = page.evaluate(ground)
        page.get_by_role("button", name="change to dark colours").click()
        dark = page.evaluate(ground)
        assert dark != light
        page.reload()
        assert page.evaluate(ground) == dark
        page.get_by_role("button", name="change to light colours").click()
        assert page.evaluate(ground) == light


def test_the_time_of_a_recording(browser: "Browser") -> None:
    """Play, pause, seek and speed are sent to the source; what it refuses is said, and the old value comes back."""
    source = Player("hour")
    with open_studio(source, port=0) as studio, view_page(browser, studio, "overview") as page:
        bar = page.get_by_role("group", name="hour")
        bar.get_by_role("button", name="play hour").click()
        bar.get_by_role("button", name="pause hour").click()
        expect(bar).to_contain_text("paused")
        bar.get_by_role("slider").focus()
        with page.expect_response("**/api/control"):
            page.keyboard.press("End")
        expect(bar.locator("time")).to_have_text("01:00:00.0")
        expect(bar.get_by_role("slider")).to_have_attribute("aria-valuetext", "01:00:00")
        assert source.time_ms == 3.6e6
        bar.get_by_role("combobox").select_option("10")
        expect(bar.get_by_role("combobox")).to_have_value("10")
        bar.get_by_role("combobox").select_option("100")
        expect(bar.get_by_role("alert")).to_have_text(re.compile("too fast"))
        page.locator("main").focus()
        expect(bar.get_by_role("combobox")).to_have_value("10")
        assert source.speed == 10


def test_what_has_ended_is_played_again(browser: "Browser") -> None:
    """The button says that it begins at the beginning."""
    source = Player("hour")
    source.state, source.can_seek = "ended", False
    source.show()
    with open_studio(source, port=0) as studio, view_page(browser, studio, "overview") as page:
        button = page.get_by_role("button", name="play hour")
        expect(button).to_have_attribute("title", re.compile("from the beginning"))
        button.click()
        expect(page.get_by_role("button", name="pause hour")).to_be_visible()


def test_an_error_of_the_bar_goes_away(browser: "Browser") -> None:
    """It would stand on every view for ever."""
    with open_studio(Player("hour"), port=0) as studio, view_page(browser, studio, "overview") as page:
        page.clock.install()
        bar = page.get_by_role("group", name="hour")
        bar.get_by_role("combobox").select_option("100")
        expect(bar.get_by_role("alert")).to_have_text(re.compile("too fast"))
        page.clock.fast_forward(6_100)
        expect(bar.get_by_role("alert")).to_be_hidden()


def test_sources_of_one_player_are_one_item(browser: "Browser") -> None:
    """What is played together has one button."""
    sources = [Player(name, player="both") for name in ("north", "south")]
    with open_studio(*sources, port=0) as studio, view_page(browser, studio, "overview") as page:
        bar = page.get_by_role("region", name="Sources and their time")
        expect(bar.get_by_role("group")).to_have_count(1)
        expect(bar).to_contain_text("hour.genus, 2 sources")


def test_nothing_is_known_of_a_server_that_is_gone(browser: "Browser", source: MadeSource) -> None:
    """What was well when it was last heard may not be now."""
    with open_studio(source, port=0) as studio, view_page(browser, studio, "overview") as page:
        expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
        studio.close()
        expect(page.get_by_text("Not known: the server does not answer.")).to_be_visible()
        expect(page.get_by_text("Nothing is wrong.")).to_be_hidden()
