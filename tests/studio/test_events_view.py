"""The view Events: events as they come, a subscription typed in, and why others do not match."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from genus.bus import Bus, open_bus
from genus.studio import Studio, open_studio
from genus.studio.types import SourceRow
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import HOSTILE, SeenGate, SeenLoop, studio_of, view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
expect = api.expect


@pytest.fixture
def bus() -> Iterator[Bus]:
    with open_bus("local:") as opened:
        yield opened


@pytest.fixture
def studio(bus: Bus) -> Iterator[Studio]:
    with studio_of(bus, allow_publish=True) as opened:
        yield opened


def rows(page: "Page") -> "list[list[str]]":
    return [row.locator(".event-cell").all_inner_texts() for row in page.locator("tr.event").all()]


def is_connected(page: "Page") -> None:
    """Events are taken from now on: the server has answered."""
    expect(page.locator(".event-counts")).to_be_visible()


def type_query(page: "Page", text: str) -> None:
    page.locator(".query-input").fill(text)
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")


def test_values_appear_exactly_as_they_are(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events?q=SeenLoop") as page:
        is_connected(page)
        bus.publish(SeenLoop(lane=2**63 - 1, speed=float("nan"), note=HOSTILE))
        expect(page.locator("tr.event")).to_have_count(1)
        (cells,) = rows(page)
        assert {"SeenLoop", "9223372036854775807", HOSTILE} <= set(cells)
        assert "nan" in [cell.lower() for cell in cells]
        page.locator("tr.event").click()
        expect(page.locator(".event-value").filter(has_text="<img")).to_have_text(HOSTILE)
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.hacked") is None


def test_only_matching_events_are_shown_and_the_address_can_be_shared(
    browser: "Browser", bus: Bus, studio: Studio
) -> None:
    with view_page(browser, studio, "events") as page:
        type_query(page, "SeenLoop where speed > 30")
        expect(page).to_have_url(re.compile(r"#events\?q=SeenLoop\+where\+speed"))
        is_connected(page)
        for speed in (10.0, 40.0):
            bus.publish(SeenLoop(lane=1, speed=speed))
        bus.publish(SeenGate(open=True))
        expect(page.locator(".event-counts")).to_contain_text("3 seen = 1 matched + 2 others")
        assert [row[-1] for row in rows(page)] == ["40"]


def test_why_not_names_the_part_and_its_values(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events?q=SeenLoop+where+speed+%3E+30&others=1") as page:
        is_connected(page)
        bus.publish(SeenGate(open=True))
        bus.publish(SeenLoop(lane=1))
        bus.publish(SeenLoop(lane=1, speed=12.5))
        expect(page.locator("tr.event.other")).to_have_count(3)
        texts = [row[2] for row in rows(page)]
        assert texts == [
            "speed > 30.0 is false: speed = 12.5",
            "speed > 30.0 is unknown: speed is absent",
            "type SeenLoop: it is SeenGate",
        ]
        page.locator("tr.event.other").first.click()
        expect(page.locator(".event-why li")).to_contain_text("speed > 30.0 is false")


def test_completion_by_keyboard(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "events") as page:
        query = page.locator(".query-input")
        query.press_sequentially("SeenL")
        option = page.get_by_role("option", name="SeenLoop")
        expect(option).to_be_visible()
        query.press("ArrowDown")
        expect(option).to_have_attribute("aria-selected", "true")
        assert query.get_attribute("aria-activedescendant") == option.get_attribute("id")
        query.press("Enter")
        expect(query).to_have_value("SeenLoop ")
        expect(page.get_by_role("option", name="where")).to_be_visible()
        query.press("Escape")
        expect(query).to_have_attribute("aria-expanded", "false")
        query.press("Tab")
        expect(page.get_by_role("button", name="Run")).to_be_focused()


def test_enter_completes_half_a_word_and_runs_a_whole_one(browser: "Browser", studio: Studio) -> None:
    """While completions are offered, nothing is called wrong: the word is still being typed."""
    with view_page(browser, studio, "events") as page:
        query, listed = page.locator(".query-input"), page.locator(".query-list")
        type_query(page, "SeenLoop where spede > 3")
        expect(page.locator(".query-message.bad")).to_be_visible()
        query.fill("")
        query.press_sequentially("SeenLoop where spe")
        expect(page.get_by_role("option", name="speed")).to_be_visible()
        expect(listed).to_contain_text("Enter or Tab to take, Esc to close")
        with page.expect_response(re.compile("/api/check.*spee$")):
            query.press_sequentially("e")  # what is wrong with this text comes while the list is open
        expect(page.locator(".query-message.bad")).to_have_count(0)
        assert query.get_attribute("aria-invalid") is None
        query.press("Enter")
        expect(query).to_have_value("SeenLoop where speed")
        query.press_sequentially(" > 3")
        query.press("Escape")
        query.press("Enter")
        expect(page).to_have_url(re.compile("speed"))
        query.fill("")
        query.press_sequentially("SeenGate")
        query.press("Enter")
        expect(page).to_have_url(re.compile("q=SeenGate$"))


def test_an_answer_out_of_order_is_dropped(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "events") as page:
        held: list[Route] = []
        page.route("**/api/complete*", lambda route: route.continue_() if held else held.append(route))
        query = page.locator(".query-input")
        with page.expect_request("**/api/complete*"):
            query.press_sequentially("S")
        query.press_sequentially("eenG")
        options = page.locator(".query-list .query-text")
        expect(options).to_have_text(["SeenGate"])
        with page.expect_response("**/api/complete*") as late:
            held[0].continue_()
        assert len(late.value.json()["items"]) > 1
        expect(options).to_have_text(["SeenGate"])


@pytest.mark.parametrize(
    ("text", "before", "marked"),
    [
        ("SeenLoop where speed > and lane == 1", "SeenLoop where speed > ", "and"),
        ("SeenLoop where note == '😀' and and", "SeenLoop where note == '😀' and ", "and"),
        ("SeenLoop where spede > 3", "SeenLoop where ", "spede"),
    ],
)
def test_an_error_is_marked_at_its_column(
    browser: "Browser", studio: Studio, text: str, before: str, marked: str
) -> None:
    with view_page(browser, studio, "events") as page:
        type_query(page, text)
        expect(page.locator(".query-mark")).to_have_text(marked)
        assert page.locator(".query-layer > span").first.text_content() == before
        expect(page.locator(".query-message")).to_contain_text(f"column {len(before) + 1}")
        expect(page.locator(".query-input")).to_have_attribute("aria-invalid", "true")
        assert "q=" not in page.url


def test_a_subscription_that_never_matches_is_told(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "events") as page:
        type_query(page, "SeenLoop where speed > 50 and speed < 30")
        expect(page.locator(".query-message.warn")).to_contain_text("can never match: no value of 'speed'")


def test_recent_texts_are_bounded_and_survive_garbage(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "events") as page:
        stored = "localStorage['genus.studio.subscriptions']"
        page.evaluate(f"() => {{ {stored} = '{{broken'; }}")
        page.get_by_role("button", name="Recent").click()
        expect(page.locator(".query-message")).to_contain_text("no recent subscriptions")
        many = [1, None, {"a": 1}, *(f"SeenLoop where lane == {n}" for n in range(30))]
        page.evaluate(f"many => {{ {stored} = JSON.stringify(many); }}", many)
        page.get_by_role("button", name="Recent").click()
        expect(page.get_by_role("option")).to_have_count(20)
        page.get_by_role("option").first.click()
        expect(page).to_have_url(re.compile("lane"))
        assert len(page.evaluate(f"() => JSON.parse({stored})")) == 20


def test_a_subscription_is_copied_as_text_and_as_python(browser: "Browser", studio: Studio) -> None:
    with view_page(browser, studio, "events?q=SeenLoop+where+lane+%3D+1") as page:
        page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
        for name, copied in (
            ("Copy as text", "SeenLoop where lane == 1"),
            ("Copy as Python", "bus.collection(SeenLoop).subscribe(where=this.lane == 1)"),
        ):
            page.get_by_role("button", name=name).click()
            page.wait_for_function("copied => window.copied?.includes(copied)", arg=copied)


def test_at_most_500_events_are_kept_and_only_rows_in_view_exist(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events") as page:
        is_connected(page)
        for sent in range(100, 701, 100):
            for lane in range(100):
                bus.publish(SeenLoop(lane=lane))
            expect(page.locator(".event-counts")).to_contain_text(f"{sent} seen")
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "501")
        assert page.locator("tr.event").count() < 60


def test_rows_stay_while_somebody_reads_and_new_ones_are_counted(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events") as page:
        is_connected(page)
        for lane in range(90):
            bus.publish(SeenLoop(lane=lane))
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "91")
        page.locator(".event-scroll").evaluate("element => { element.scrollTop = 1200; }")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        seen = rows(page)
        for lane in range(37):
            bus.publish(SeenLoop(lane=lane))
        more = page.get_by_role("button", name="37 new events")
        expect(more).to_be_visible()
        assert rows(page) == seen
        more.click()
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "128")
        assert page.locator(".event-scroll").evaluate("element => element.scrollTop") == 0


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_row_that_is_clicked_stays_and_is_marked(
    browser: "Browser", bus: Bus, studio: Studio, is_paused: bool
) -> None:
    """However many events come before, while and after it is pressed."""
    with view_page(browser, studio, "events?q=SeenLoop") as page:
        is_connected(page)
        for lane in range(30):
            bus.publish(SeenLoop(lane=lane))
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "31")
        expect(page.locator(".event-counts")).to_contain_text("30 seen")
        if is_paused:
            page.locator(".event-tools").get_by_role("button", name="Pause").click()
        row = page.locator("tr.event").filter(has=page.get_by_text("25", exact=True))
        before = row.bounding_box()
        assert before is not None
        if is_paused:
            publish_seen(page, bus, 40)
        page.mouse.move(before["x"] + 20, before["y"] + before["height"] / 2)
        page.mouse.down()
        publish_seen(page, bus, 40)
        page.mouse.up()
        chosen = page.locator("tr.event[aria-selected=true]")
        expect(chosen.locator(".event-cell").last).to_have_text("25")
        publish_seen(page, bus, 50)
        expect(chosen.locator(".event-cell").last).to_have_text("25")
        after = chosen.bounding_box()
        assert after is not None
        assert after["y"] == before["y"]
        ground = "element => getComputedStyle(element.firstElementChild).backgroundColor"
        assert chosen.evaluate(ground) != page.locator("tr.event[aria-selected=false]").first.evaluate(ground)


def publish_seen(page: "Page", bus: Bus, number: int) -> None:
    """Publish events, and wait until the page has taken them."""
    counts = page.locator(".event-counts")
    found = re.search(r"(\d+) seen", counts.inner_text())
    assert found is not None
    for _ in range(number):
        bus.publish(SeenLoop(lane=99))
    expect(counts).to_contain_text(f"{int(found[1]) + number} seen")


def test_what_cannot_be_seen_in_a_text_is_shown(browser: "Browser", bus: Bus, studio: Studio) -> None:
    """An empty text is not an absent one; line breaks and changes of direction have signs; the details have all."""
    with view_page(browser, studio, "events?q=SeenLoop") as page:
        is_connected(page)
        for note in (None, "", "two\nlines", "a\u202eevil\u2066b"):
            bus.publish(SeenLoop(lane=1, note=note))
        expect(page.locator("tr.event")).to_have_count(4)
        assert [row[-1] for row in rows(page)] == ["a⟨U+202E⟩evil⟨U+2066⟩b", "two⏎lines", '""', ""]
        expect(page.locator("tr.event").nth(2).locator(".event-cell").last).to_have_class(re.compile("event-blank"))
        page.locator("tr.event").nth(1).click()
        assert page.locator("bdi.event-value").last.text_content() == "two\nlines"


def test_rows_by_keyboard(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events?q=SeenLoop") as page:
        is_connected(page)
        for lane in (1, 2, 3):
            bus.publish(SeenLoop(lane=lane))
        expect(page.locator("tr.event")).to_have_count(3)
        grid = page.get_by_role("grid")
        grid.press("ArrowDown")
        grid.press("ArrowDown")
        chosen = page.locator("tr.event[aria-selected=true]")
        assert chosen.locator(".event-cell").all_inner_texts()[-1] == "2"
        assert grid.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
        grid.press("Enter")
        details = page.get_by_role("region", name="details of the event")
        expect(details).to_contain_text("lane")
        page.keyboard.press("Escape")
        expect(details).to_be_hidden()
        expect(grid).to_be_focused()


def test_an_event_is_published_from_the_form(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events?q=SeenLoop") as page:
        is_connected(page)
        page.get_by_role("button", name="Publish an event").click()
        page.get_by_label("type of the event").select_option("SeenLoop")
        page.locator(".publish input[name=lane]").fill("two")
        page.get_by_role("button", name="Publish", exact=True).click()
        expect(page.locator(".publish-said.bad")).to_contain_text("lane")
        page.locator(".publish input[name=lane]").fill("2")
        page.get_by_role("button", name="Publish", exact=True).click()
        expect(page.locator("tr.event")).to_have_count(1)
        assert rows(page)[0][-1] == "2"


class AskedLake(MadeSource):
    """A lake: it sends nothing, and answers when it is asked."""

    def __init__(self, name: str) -> None:
        super().__init__(name, types=[SeenLoop])
        self.tables["sources"] = {name: SourceRow(kind="lake", address="lake/")}

    def ask(self, subscription: object, most: int) -> list[dict[str, Any]]:
        return [{"type": "SeenLoop", "lane": lane} for lane in (1, 2)]


def test_a_lake_alone_is_asked_by_run(browser: "Browser") -> None:
    """It is not called live, and the address asks it again."""
    with open_studio(AskedLake("old"), port=0) as studio, view_page(browser, studio, "events") as page:
        expect(page.locator(".event-empty")).to_contain_text("a lake answers once")
        expect(page.get_by_role("group", name="old")).to_contain_text("on request")
        type_query(page, "SeenLoop")
        expect(page.locator("tr.event")).to_have_count(2)
        expect(page.locator(".event-said")).to_have_text("2 events found in old")
        page.reload()
        expect(page.locator("tr.event")).to_have_count(2)


def test_without_permission_there_is_no_form(browser: "Browser", bus: Bus) -> None:
    with bus.studio(port=0) as studio, view_page(browser, studio, "events") as page:
        is_connected(page)
        assert page.get_by_text("Publish an event").count() == 0


def test_a_column_leads_to_its_plot(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events") as page:
        is_connected(page)
        bus.publish(SeenLoop(lane=1, speed=3.0))
        page.get_by_role("button", name="speed").click()
        page.get_by_role("link", name="Plot SeenLoop.speed").click()
        expect(page).to_have_url(re.compile("#plot.series=SeenLoop.speed"))


# -- columns, sums, ranges and alerts ----------------------------------------------------------------------------------


def heads(page: "Page") -> list[str]:
    return [text.replace("▾", "").strip() for text in page.locator(".event-table thead th").all_inner_texts()]


def test_where_an_event_comes_from_is_first_and_units_are_in_the_heads(
    browser: "Browser", bus: Bus, studio: Studio
) -> None:
    with view_page(browser, studio, "events?q=SeenLoop") as page:
        is_connected(page)
        for level in (7.5, 11.25, 3.0):
            bus.publish(SeenLoop(lane=1, speed=level, source="plc", place="hall", time=datetime.now(UTC)))
        expect(page.locator("tr.event")).to_have_count(3)
        expect(page.locator(".event-table thead small")).to_have_text("m/s")
        assert heads(page)[:-1] == ["time (UTC)", "type", "source", "place", "lane", "speed m/s", "time"]
        cells = page.locator("tr.event td:nth-child(6) .event-cell").all_text_contents()
        assert [cell.strip() for cell in cells] == ["3", "11.25", "7.5"]
        ends = page.locator("tr.event td:nth-child(6) .event-cell").evaluate_all(POINTS)
        assert max(ends) - min(ends) < 1, "points are below each other"


POINTS = """cells => cells.map((cell) => {
  const range = document.createRange(), text = cell.firstChild, at = text.nodeValue.search(/[.\\u2008]/);
  range.setStart(text, at);
  range.setEnd(text, at + 1);
  return range.getBoundingClientRect().right;
})"""


def test_a_subscription_is_kept_as_an_alert_and_removed(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events?q=SeenLoop+where+speed+%3E+11") as page:
        is_connected(page)
        page.get_by_role("button", name="Alerts").click()
        page.get_by_label("name of the alert").fill("<b>full")
        page.get_by_label("severity").select_option("error")
        page.get_by_role("button", name="Keep as alert").click()
        expect(page.get_by_role("button", name="Alerts 1")).to_be_visible()
        bus.publish(SeenLoop(lane=1, speed=12.0))
        expect(page.locator("#problem-count")).to_have_text("1")
        page.locator("#views a[data-view=overview]").click()
        page.get_by_role("link", name="<b>full: SeenLoop, speed 12 m/s").click()
        expect(page.locator(".query-input")).to_have_value("SeenLoop where speed > 11.0")
        page.get_by_role("button", name="Alerts 1").click()
        expect(page.locator(".alert-list")).to_contain_text("1 event so far")
        page.get_by_role("button", name="remove the alert").click()
        expect(page.locator(".event-said")).to_have_text("The alert was removed.")
        expect(page.locator("#problem-count")).to_be_hidden()


def test_sound_is_off_until_it_is_switched_on(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "events?q=SeenLoop") as page:
        page.evaluate(COUNT_BEEPS)
        is_connected(page)
        for name, beeps in (("first", 0), ("second", 2)):
            page.get_by_role("button", name="Alerts").click()
            if beeps:
                page.get_by_label("sound in this browser").check()  # which sounds once
            page.get_by_label("name of the alert").fill(name)
            page.get_by_role("button", name="Keep as alert").click()
            expect(page.locator(".event-said")).to_contain_text("Kept as an alert")
            bus.publish(SeenLoop(lane=1, speed=12.0))
            expect(page.locator("#problem-count")).to_have_text("1" if name == "first" else "2")
            assert page.evaluate("window.beeps") == beeps


COUNT_BEEPS = """() => {
  window.beeps = 0;
  window.AudioContext = class extends AudioContext { constructor() { super(); window.beeps += 1; } };
}"""


def test_a_range_of_time_is_asked_for_and_left(browser: "Browser", bus: Bus, studio: Studio) -> None:
    with view_page(browser, studio, "overview") as page:
        asked: list[str] = []

        def answer(route: "Route") -> None:
            asked.append(route.request.url)
            route.fulfill(json=RANGE)

        page.route("**/api/events?*", answer)
        page.evaluate("location.hash = '#events?q=SeenLoop&from=1795003200000&to=1795003260000'")
        expect(page.locator("tr.event")).to_have_count(1)
        expect(page.locator(".event-said")).to_contain_text("7 events found in this process, the first 1 shown")
        assert "from=1795003200000&to=1795003260000" in asked[0]
        page.get_by_role("button", name="2026-11-18 12:00:00 – 12:01:00").click()
        expect(page).to_have_url(re.compile("#events[?]q=SeenLoop$"))
        is_connected(page)
        assert len(asked) == 1


RANGE = {
    "events": [
        {
            "n": 1,
            "source": "this process",
            "publisher": None,
            "type": "SeenLoop",
            "at_ms": 1795003201000,
            "values": {"lane": "3"},
            "numbers": {"lane": 3.0},
            "why": None,
        }
    ],
    "total": 7,
}
