"""The view of gateways: a picture of the networks, and a table of what crossed to each side and what did not."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from genus.studio import Studio, open_studio
from genus.studio.types import GatewayRow
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import HOSTILE, view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
expect = api.expect


@pytest.fixture
def source() -> MadeSource:
    made = MadeSource("gate")
    made.tables["gateways"] = {
        "gate|road": GatewayRow(source="gate", side="road", address="can:road", wanted=1234, crossed=1230, rate=12.5),
        "gate|city": GatewayRow(source="gate", side=HOSTILE, address="mqtt://city", is_connected=False, spooled=42),
    }
    return made


@pytest.fixture
def studio(source: MadeSource) -> Iterator[Studio]:
    with open_studio(source, port=0) as opened:
        yield opened


def test_sides_are_drawn_and_in_the_table(browser: "Browser", studio: Studio, source: MadeSource) -> None:
    """With their state in words; both follow what happens."""
    with view_page(browser, studio, "gateways") as page:
        rows = page.locator(".view-gateways tr.row")
        expect(rows.filter(has_text="road")).to_contain_text("active")
        expect(rows.filter(has_text="road")).to_contain_text("1,230")
        expect(rows.filter(has_text=HOSTILE)).to_contain_text("not connected")
        expect(page.locator(".edge").nth(1)).to_contain_text("✕ not connected")
        expect(page.locator(".network")).to_have_count(2)
        words = re.compile(r"gate to road \(can:road\): 12.5 events/s cross")
        expect(page.locator(".network-picture")).to_have_attribute("aria-label", words)
        source.tables["gateways"]["gate|city"] = GatewayRow(
            source="gate", side=HOSTILE, address="mqtt://city", rate=3.0
        )
        expect(page.locator(".edge").nth(1)).to_contain_text("3.0/s")
        expect(rows.filter(has_text=HOSTILE)).to_contain_text("active")
        assert page.evaluate("window.hacked") is None


def test_only_sides_with_trouble_can_be_shown(browser: "Browser", studio: Studio) -> None:
    """Those that are not connected, lost events or were refused what they asked for."""
    with view_page(browser, studio, "gateways") as page:
        expect(page.locator(".view-gateways tr.row")).to_have_count(2)
        page.get_by_role("button", name="only with problems").click()
        expect(page.locator(".view-gateways tr.row")).to_have_count(1)


def test_without_a_gateway_the_view_says_so(browser: "Browser") -> None:
    """And there is no picture of nothing."""
    with open_studio(MadeSource("other"), port=0) as studio, view_page(browser, studio, "gateways") as page:
        expect(page.locator(".view-gateways .none")).to_contain_text("No source is a gateway")
        expect(page.locator(".networks")).to_be_hidden()
