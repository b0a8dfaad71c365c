"""What holds for every view of the page: contrast and names, its size, that it stands still, and that it comes back."""

import re
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from genus.studio import Studio, open_studio
from genus.studio.types import GatewayRow, Health, LakeTableRow, NodeRow, SourceRow, SubscriptionRow, Timeline
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import SeenLoop, view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python, as in `dev`")
expect = api.expect

VIEWS = (
    "overview", "types", "channels", "subscriptions", "nodes", "gateways", "can", "lake",
    "events?q=SeenLoop", "plot?series=SeenLoop.speed",
)  # fmt: skip
HEALTHS: dict[Health, str] = {
    "fine": "● fine", "degraded": "⚠ degraded", "wrong": "✕ wrong", "silent": "◌ no data", "nobody": "○ nobody here",
    "unknown": "? not known",
}  # fmt: skip
RATIO = """(element) => {
    const light = (text) => {
        const pen = new OffscreenCanvas(1, 1).getContext("2d");
        pen.fillStyle = text;
        pen.fillRect(0, 0, 1, 1);
        const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
        const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
        return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
    };
    let ground = element;
    while (/, 0\\)$|transparent/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
    const both = [light(getComputedStyle(element).color), light(getComputedStyle(ground).backgroundColor)];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
}"""
SHIFTS = """() => {
    window.shifts = 0;
    new PerformanceObserver((list) => { for (const one of list.getEntries()) window.shifts += one.value; })
        .observe({ type: "layout-shift" });
}"""


class Plant(MadeSource):
    """A source with something in every table."""

    def __init__(self, name: str = "plant") -> None:
        super().__init__(name, [SeenLoop])
        row = SourceRow(
            kind="bus",
            address="made:",
            health="degraded",
            why="1 lost",
            health_since_ms=0.0,
            load=0.4,
            has_timeline=True,
        )
        self.tables["sources"] = {
            name: row,
            "gate": SourceRow(kind="gateway", address="gate.toml", health="wrong"),
            "lake": SourceRow(kind="lake", address="lake/", health="fine"),
            "hour": SourceRow(
                kind="recording", address="hour.genus", state="ended", health="fine", time_ms=60e3, begin_ms=0.0,
                end_ms=60e3, speed=1.0, can_seek=True,
            ),
        }  # fmt: skip
        for n, health in enumerate(HEALTHS):
            self.set_channel(f"Seen{n}", health=health, rate=10.0**n, lost=n, qos="hard:10ms", rates=(1.0, 2.0))
        self.set_channel("SeenMore")
        nodes = (("up", "fine"), ("bus off", "wrong"), ("gone", "unknown"))
        self.tables["nodes"] = {
            f"{name}|{state}": NodeRow(source=name, name=f"node {state}", state=state, health=health, filters=((1, 3),))  # type: ignore[arg-type]
            for state, health in nodes
        }
        self.tables["subscriptions"] = {
            f"{name}|{n}": SubscriptionRow(
                source=name, text=f"SeenLoop has note where lane == {n}", waiting=n, capacity=9
            )
            for n in range(10)
        }
        self.tables["gateways"] = {
            f"gate|{side}": GatewayRow(source="gate", side=side, address=f"mqtt://{side}", is_connected=side != "city")
            for side in ("road", "plant", "city")
        }
        self.tables["lake_tables"] = {"lake|a": LakeTableRow(source="lake", table="a", events=1, files=1, bytes=1)}

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        return Timeline(0.0, span_us, [], [], load=0.4)


@pytest.fixture
def plant() -> Plant:
    return Plant()


@pytest.fixture
def studio(plant: Plant) -> Iterator[Studio]:
    with open_studio(plant, port=0) as opened:
        yield opened


def visit(page: "Page", view: str) -> None:
    """Go to a view of the page that is open, and wait for its rows."""
    page.evaluate("(view) => { location.hash = view; }", view)
    expect(page.locator(f"main.view-{view.partition('?')[0]} h1")).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0) if view == "overview" else None


@pytest.mark.parametrize(
    ("look", "rules"),
    [
        ({"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"}, None),
        ({"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"}, ["color-contrast"]),
        ({"viewport": {"width": 390, "height": 844}, "color_scheme": "light"}, None),
    ],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_nothing(browser: "Browser", studio: Studio, look: dict[str, Any], rules: list[str] | None) -> None:
    """In no view, light or dark, wide or narrow: names, roles, keys, and contrast of at least 4.5."""
    hash_links = {"skip-link": {"enabled": False}}  # it takes links to views, which are out of sight, for skip links
    options: dict[str, Any] = {"resultTypes": ["violations"], "rules": hash_links}
    if rules is not None:
        options["runOnly"] = rules
    with view_page(browser, studio, "overview", **look) as page:
        expect(page.locator("#sources .source").first).to_be_visible()
        for view in VIEWS:
            visit(page, view)
            found = axe.Axe().run(page, options=options).response["violations"]
            told = [(one["id"], [node["html"][:160] for node in one["nodes"][:4]]) for one in found]
            assert not told, (view, told)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_buttons_can_be_read_while_they_are_used(browser: "Browser", studio: Studio, scheme: Any) -> None:
    """Hovered, pressed and both: 4.5 at least; axe sees them at rest only."""
    with view_page(browser, studio, "channels", color_scheme=scheme) as page:
        button = page.get_by_role("button", name="only with problems")
        for view, name in (
            ("channels", "only with problems"),
            ("can", "by channel"),
            ("types", "codes and event tags"),
        ):
            visit(page, view)
            button = page.get_by_role("button", name=name)
            assert button.evaluate(RATIO) >= 4.5
            button.hover()
            assert button.evaluate(RATIO) >= 4.5, "hovered"
            button.click()
            assert button.get_attribute("aria-pressed") == "true"
            assert button.evaluate(RATIO) >= 4.5, "hovered and pressed"
            page.mouse.move(0, 0)
            assert button.evaluate(RATIO) >= 4.5, "pressed"


def test_no_view_is_wider_or_much_taller_than_the_window(browser: "Browser", plant: Plant, studio: Studio) -> None:
    """Wide tables scroll in their own frame and say so; on a phone rows are cards, and nothing is beyond the edge."""
    plant.set_channel("LongNameOfAType" * 20, publisher="long" * 50)
    beyond = """() => [...document.querySelectorAll("main .live")]
        .filter((live) => live.scrollWidth > live.clientWidth + 8 && !live.closest("[data-more]")).length"""
    with view_page(browser, studio, "overview") as page:
        for width in (360, 768, 1280, 2560):
            page.set_viewport_size({"width": width, "height": 900})
            for view in VIEWS:
                visit(page, view)
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (width, view)
                page.wait_for_function(f"({beyond})() === 0")
        for view in ("channels", "subscriptions", "nodes"):
            visit(page, view)
            assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0, view
            page.set_viewport_size({"width": 390, "height": 844})
            assert page.locator(".live").evaluate("(live) => live.scrollWidth - live.clientWidth") <= 0, view
            cells = page.locator("tr.row").first.locator("td").all()
            assert all((cell.bounding_box() or {"x": 999})["x"] < 390 for cell in cells), view
            page.set_viewport_size({"width": 1280, "height": 900})


def test_the_page_stands_still(browser: "Browser", studio: Studio, plant: Plant) -> None:
    """Rates, states and notes that come and go move nothing."""

    def change(turn: int) -> None:
        note = "this machine reaches 0.66 times real time" if turn % 2 else ""
        health: Health = list(HEALTHS)[turn % len(HEALTHS)]
        plant.tables["sources"]["plant"] = SourceRow(
            kind="world", address="made:", state="playing", speed=1.0, begin_ms=0.0, end_ms=1e9, time_ms=1.7e5 * turn,
            note=note, health=health, why=note, rate=10.0**turn,
        )  # fmt: skip
        plant.set_channel("Seen0", health=health, rate=10.0**turn, events=turn, last_ms=0.0)

    change(0)
    with view_page(browser, studio, "channels", viewport={"width": 1440, "height": 900}) as page:
        expect(page.locator("tr.row").first).to_be_visible()
        page.evaluate(SHIFTS)
        for turn in range(1, 12):
            change(turn)
            expect(page.locator("tr.row").first.locator("td").last).to_have_text(str(turn))
        assert page.locator("#sources").bounding_box()["height"] <= 90  # type: ignore[index]
        assert page.evaluate("window.shifts") < 0.05


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_views_that_were_opened_while_the_server_was_away(browser: "Browser") -> None:
    """Each is shown by itself when the server is back: one whose files never came, and one that asks for more."""
    port, source = free_port(), Plant()
    with (
        open_studio(source, port=port) as first,
        view_page(browser, first, "subscriptions") as page,
        view_page(browser, first, "overview") as other,
    ):
        row = page.locator("tr.row").filter(has_text="lane == 3")
        expect(row).to_be_visible()
        expect(other.locator("#sources .source").first).to_be_visible()
        first.close()
        row.click()
        expect(page.get_by_text("Asking what it became")).to_be_visible()
        other.evaluate("location.hash = 'can'")
        expect(other.get_by_text("as soon as the server answers")).to_be_visible()
        with open_studio(source, port=port):
            expect(page.locator(".target-list > li").first).to_be_visible(timeout=10_000)
            expect(other.locator("main.view-can .timeline")).to_be_visible(timeout=10_000)
            expect(other.locator("#status")).to_contain_text("live")


def test_a_row_opens_wherever_it_is_pressed(browser: "Browser", studio: Studio) -> None:
    """And by the keyboard; a row of the overview leads to what it is about."""
    with view_page(browser, studio, "channels", viewport={"width": 1280, "height": 1600}) as page:
        row = page.locator("tr.row").first
        row.locator("td").last.click()
        expect(page.locator("tr.detail")).to_have_count(1)
        row.locator("td").nth(2).click()
        expect(page.locator("tr.detail")).to_have_count(0)
        row.get_by_role("button").press("Enter")
        expect(page.locator("tr.detail")).to_have_count(1)
        visit(page, "overview")
        page.get_by_role("table", name="Sources").locator("tr.row").filter(has_text="gate.toml").locator(
            "td"
        ).last.click()
        expect(page).to_have_url(re.compile("#gateways$"))


def test_a_state_has_a_sign_a_word_and_a_time(browser: "Browser", studio: Studio, plant: Plant) -> None:
    """One for each health, in tables and in the bar; only what is fine is called so."""
    plant.set_channel("Silent", health="silent", health_since_ms=time.time() * 1000 - 60_000)
    with view_page(browser, studio, "channels") as page:
        for n, words in enumerate(list(HEALTHS.values())[:-1]):
            expect(page.locator("tr.row").filter(has_text=f"Seen{n}").locator(".chip").first).to_have_text(words)
        expect(page.locator("tr.row").filter(has_text="Silent")).to_contain_text(
            re.compile(r"no data\s*since \d\d:\d\d")
        )
        visit(page, "nodes")
        expect(page.locator("tr.row").filter(has_text="gone")).to_contain_text("? gone")
        bar = page.locator("#sources")
        expect(bar.get_by_role("group", name="gate")).to_contain_text("✕gatewrong")
        expect(bar.get_by_role("group", name="plant")).to_contain_text("degraded")
        plant.tables = {"sources": {"plant": SourceRow(kind="bus", address="x", health="nobody")}}
        visit(page, "overview")
        expect(page.locator(".all-well")).to_have_text(
            re.compile(r"\? No problem is known, but not all is seen\. plant: nobody here since \d\d:\d\d\.")
        )


def test_a_view_whose_file_is_broken_says_so(browser: "Browser", studio: Studio) -> None:
    """It is loaded again once, and not for ever."""
    with view_page(browser, studio, "overview") as page:
        asked: list[str] = []

        def refuse(route: "Route") -> None:
            asked.append(route.request.url)
            route.abort()

        page.route(re.compile("views/nodes.js"), refuse)
        page.evaluate("location.hash = 'nodes'")
        expect(page.get_by_text("This view cannot be shown")).to_be_visible()
        expect(page.locator("#status")).to_contain_text("live")
        assert len(asked) <= 4  # each time as it is wanted, and before that while the server is asked
