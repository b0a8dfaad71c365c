"""The view of types: the tree with rates, a type in full, filters, and what changed in the catalog."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import pytest

from genus import Event, Kind, Maybe, UInt8, Unit
from genus.catalog import Catalog
from genus.studio import Studio, open_studio
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import HOSTILE, view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
expect = api.expect


class SeenRoadside(Kind):
    """Beside a road."""


class SeenEdge(Event, SeenRoadside):
    __doc__ = HOSTILE

    lane: UInt8


class SeenPassage(SeenEdge):
    """A vehicle passed."""

    speed: Maybe[Annotated[float, Unit("m/s")]] = None


class SeenTram(SeenEdge):
    """A tram passed."""


@pytest.fixture
def source() -> MadeSource:
    return MadeSource("made", types=[SeenRoadside, SeenEdge, SeenPassage])


@pytest.fixture
def studio(source: MadeSource) -> Iterator[Studio]:
    with open_studio(source, port=0) as opened:
        yield opened


def test_a_type_is_shown_in_full(browser: "Browser", studio: Studio) -> None:
    """Its code, bits, attributes with units and where they are from; the address leads to it."""
    catalog = Catalog()
    catalog.register(SeenRoadside, SeenEdge, SeenPassage)
    with view_page(browser, studio, "types") as page:
        page.locator("[data-type=SeenPassage] strong").click()
        panel = page.get_by_role("complementary", name="The chosen type")
        expect(panel.locator(".product")).to_have_text(f" = {catalog.entries['SeenPassage'].code}")
        expect(panel.locator(".tags")).to_contain_text(f"own event tag {catalog.etag('SeenPassage'):#06x}")
        (block,) = catalog.entries["SeenPassage"].blocks
        bits = [str(block.value >> n & 1) if block.mask >> n & 1 else "·" for n in reversed(range(14))]
        assert panel.locator(".bits i").all_text_contents() == bits
        lines = [row.locator("td, th").all_text_contents() for row in panel.locator("tbody tr").all()]
        cells = {line[1]: [text.strip() for text in line] for line in lines}
        assert list(cells) == [attribute.name for attribute in catalog.vector("SeenPassage")]
        assert cells["time"] == ["0", "time", "time", "", "Event"]
        assert cells["lane"] == ["5", "lane", "uint8 required", "", "SeenEdge"]
        assert cells["speed"] == ["6", "speed", "float64", "m/s", "itself"]
        expect(panel.get_by_role("link", name="its events")).to_have_attribute("href", "#events?q=SeenPassage")
        expect(page).to_have_url(re.compile("#types.of=SeenPassage$"))
        panel.get_by_role("button", name="SeenEdge").first.click()
        expect(panel).to_contain_text(HOSTILE)
        assert page.evaluate("window.hacked") is None
        page.reload()
        expect(page.locator("[aria-selected=true]")).to_have_attribute("data-type", "SeenEdge")
        panel.get_by_role("button", name="close").click()
        expect(panel).to_be_hidden()


def test_rates_and_last_events_come_while_the_page_is_open(
    browser: "Browser", studio: Studio, source: MadeSource
) -> None:
    """In the tree, and in the panel of the chosen type."""
    with view_page(browser, studio, "types?of=SeenPassage", viewport={"width": 1600, "height": 900}) as page:
        panel = page.get_by_role("complementary", name="The chosen type")
        expect(panel).to_contain_text("none yet")
        source.counted["SeenPassage"] = 1200
        source.emit(SeenPassage(lane=2, speed=31.5), at_ms=3_723_000)
        expect(panel).to_contain_text("1,200 so far")
        expect(panel.locator("pre")).to_contain_text("31.5")
        expect(panel).to_contain_text("Last event 01:02:03.000")
        expect(page.locator("[data-type=SeenPassage] .type-rate")).to_have_text(re.compile(r"[\d.,]+"))


def test_types_that_are_new_are_marked_and_told(browser: "Browser", studio: Studio, source: MadeSource) -> None:
    """Those that were there before Studio was opened are not."""
    with view_page(browser, studio, "types") as page:
        expect(page.locator("[data-type=SeenPassage]")).to_be_visible()
        expect(page.locator(".type-changes")).to_be_hidden()
        source.declared.append(SeenTram)
        expect(page.locator("[data-type=SeenTram]")).to_contain_text("new")
        expect(page.locator(".type-changes")).to_contain_text("SeenTram: added")
        expect(page.locator("[data-type=SeenPassage]")).not_to_contain_text("new")


def test_the_filter_is_in_the_address(browser: "Browser", studio: Studio) -> None:
    """The key / leads to it, and Escape clears it."""
    with view_page(browser, studio, "types") as page:
        expect(page.locator("[role=treeitem]")).to_have_count(4)
        page.keyboard.press("/")
        page.keyboard.type("speed")
        expect(page.locator("[role=treeitem]")).to_have_count(3)
        expect(page.locator(".counted")).to_have_text("3 of 4 types")
        expect(page).to_have_url(re.compile("#types.filter=speed$"))
        page.keyboard.press("Escape")
        expect(page.locator("[role=treeitem]")).to_have_count(4)
