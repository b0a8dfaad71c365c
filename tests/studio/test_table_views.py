"""The views that are tables: overview, channels, subscriptions, nodes and lakes, in a browser."""

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import pytest

from genus.studio import Studio, open_studio
from genus.studio.types import (
    ChannelRow,
    LakeCommitRow,
    LakeFollowerRow,
    LakeTableRow,
    NodeRow,
    SourceRow,
    SubscriptionRow,
    Tables,
)
from tests.studio.made_sources import MadeSource
from tests.studio.view_page import HOSTILE, SeenLoop, view_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

pytest.importorskip("uvicorn", reason="the extra studio")
api = pytest.importorskip("playwright.sync_api", reason="a browser needs playwright")
expect = api.expect

MANY = 5000


@pytest.fixture
def source() -> MadeSource:
    return MadeSource("made", [SeenLoop])


@pytest.fixture
def studio(source: MadeSource) -> Iterator[Studio]:
    with open_studio(source, port=0, docs="https://docs.example/genus") as opened:
        yield opened


def cells(row: "Locator") -> list[str]:
    """The texts of the cells of a row, as soon as it is there."""
    row.wait_for()
    return [text.strip() for text in row.locator("th, td").all_inner_texts()]


def test_what_is_wrong_comes_first(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """A problem has a word for how bad it is, leads to its row, is counted and said; without one, nothing is wrong."""
    with view_page(browser, studio, "overview") as page:
        expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
        source.tables["nodes"] = {"made|5": NodeRow(source="made", name=HOSTILE, state="bus off", is_well=False)}
        source.tables["subscriptions"] = {
            "made|1": SubscriptionRow(source="made", text="SeenLoop", waiting=9, capacity=10)
        }
        expect(page.locator(".problem .what")).to_contain_text([f"{HOSTILE}: bus off", "SeenLoop"])
        expect(page.locator(".problem .word")).to_have_text(["error", "warning"])
        expect(page.locator(".problem small").first).to_contain_text(re.compile("^made, since [0-9:]{8}"))
        expect(page.get_by_text("Nothing is wrong.")).to_be_hidden()
        expect(page.locator("#problem-count")).to_have_text("2")
        expect(page.locator("#announce")).to_contain_text(f"New problem: node {HOSTILE}")
        expect(page).to_have_title(re.compile(r"^\(2\) Overview"))
        page.locator(".problem").first.click()
        expect(page.locator("tr.found")).to_contain_text(HOSTILE)
        assert page.evaluate("window.hacked") is None


def test_figures_of_all_sources(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """Rates, losses and nodes are summed; losses that do not grow are a warning, growing ones are bad."""
    row = SourceRow(kind="bus", address="made:", rate=12.5, lost=7, nodes=4, load=0.31)
    source.tables["sources"] = {"made": row}
    with view_page(browser, studio, "overview") as page:
        tile = page.locator(".tiles > li").filter(has_text="lost")
        expect(tile).to_contain_text("7")
        expect(tile).to_have_class("warn")
        expect(page.locator(".tiles")).to_contain_text("12.5")
        expect(page.locator(".tiles")).to_contain_text("31 %")
        source.tables["sources"] = {"made": SourceRow(kind="bus", address="made:", rate=12.5, lost=8)}
        expect(tile).to_have_class("bad")
        expect(tile).to_contain_text("growing")


def test_a_channel_that_is_too_late(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """Latency above the bound has a sign besides the colour; what is not known is a dash; heads lead to the docs.

    Of a few channels, the last is open at first.
    """
    latency = {"worst_latency_ms": 12.0, "latency_ms": 8.0, "bound_ms": 9.0, "missed": 2}
    source.set_channel("Loop", qos="hard:10ms", health="degraded", rate=4.2, **latency)
    source.set_channel("Weather")
    with view_page(browser, studio, "channels") as page:
        rows = page.locator("tr.row")
        expect(rows).to_have_count(2)
        late, unknown = rows.first, rows.nth(1)
        assert cells(late)[0] == "Loop\nall publishers · made"
        assert re.fullmatch(r"⚠ degraded\nsince \d\d:\d\d", cells(late)[1])
        assert cells(late)[2] == "4.20"
        assert cells(late)[4:] == ["–", "–", "2", "8.00", "12.0", "✕ 133 %", "–", "hard:10ms", "0"]
        assert re.fullmatch(r"◌ no data\nsince \d\d:\d\d", cells(unknown)[1])
        assert cells(unknown)[4:] == ["–", "–", "–", "–", "–", "–", "–", "not known", "0"]
        expect(late).to_have_class(re.compile("bad"))
        expect(page.get_by_role("link", name="Jitter: documentation")).to_have_attribute(
            "href", "https://docs.example/genus/operations/#what-to-watch"
        )
        expect(page.get_by_role("link", name="See its events")).to_have_attribute("href", re.compile("q=Weather"))
        page.get_by_role("button", name="only with problems").click()
        expect(rows).to_have_count(1)
        late.get_by_role("button").click()
        expect(page.get_by_role("link", name="See its events")).to_have_attribute("href", "#events?q=Loop&source=made")


def test_thousands_of_channels(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """Few rows are in the document; all can be scrolled to, sorted, filtered, and reached by address and by keys."""
    for number in range(MANY):
        source.set_channel(f"Type{number}", rate=float(number))
    with view_page(browser, studio, f"channels?of=made|Type{MANY - 2}|") as page:
        rows = page.locator("tr.row")
        expect(page.locator("tr.found")).to_contain_text(f"Type{MANY - 2}")
        expect(page.locator("tr.found")).to_be_in_viewport()
        assert rows.count() < 100
        expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", str(MANY + 1))
        page.get_by_role("button", name="Rate /s", exact=True).click()
        page.locator(".live").evaluate("(scroller) => { scroller.scrollTop = 0; }")
        expect(rows.first).to_contain_text(f"Type{MANY - 1}")
        source.set_channel("Type7", rate=1e6)
        expect(rows.first).to_contain_text("Type7")
        rows.first.get_by_role("button").focus()
        for _ in range(60):
            page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.closest('tr').ariaRowIndex") == "62"
        page.keyboard.press("/")
        page.keyboard.type("type49 made")
        expect(page.locator(".counted")).to_have_text(f"{1 + 10 + 100} of 5,000 channels")
        expect(page).to_have_url(re.compile("filter=type49"))
        page.keyboard.press("Escape")
        expect(page.locator(".counted")).to_have_text("5,000 channels")


def test_rows_keep_their_place(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """Values change without moving rows unless the table is sorted by them; a row that is gone leaves."""
    for name in "abc":
        source.set_channel(name, rate=1.0)
    with view_page(browser, studio, "channels") as page:
        names = page.locator("tr.row strong")
        expect(names).to_have_text(["a", "b", "c"])
        first = names.first.element_handle()
        source.set_channel("c", rate=50.0)
        expect(page.locator("tr.row").nth(2)).to_contain_text("50.0")
        expect(names).to_have_text(["a", "b", "c"])
        assert first is not None
        assert first.evaluate("(element) => element.isConnected")
        page.get_by_role("button", name="Rate /s", exact=True).click()
        expect(names).to_have_text(["c", "a", "b"])
        source.set_channel("b", rate=90.0)
        expect(names).to_have_text(["b", "c", "a"])
        del source.tables["channels"]["made|c|"]
        expect(names).to_have_text(["b", "a"])


def test_what_a_subscription_became(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """An opened subscription shows its targets with bits, and leads to the view of events; a wrong one says why."""
    source.tables["subscriptions"] = {
        "made|1": SubscriptionRow(
            source="made", text="SeenLoop has note", delivered=5, dropped=2, waiting=10, capacity=10
        ),
        "made|2": SubscriptionRow(source="made", owner=HOSTILE, text=HOSTILE),
    }
    with view_page(browser, studio, "subscriptions") as page:
        row = page.locator("tr.row").filter(has_text="SeenLoop")
        assert cells(row) == [
            "SeenLoop has note", "⚠ degraded", "–", "5", "–", "2", "full: 10", "this process", "made"
        ]  # fmt: skip
        targets = page.locator(".target-list > li")
        expect(targets.filter(has_text="python").locator("pre").first).to_contain_text("note")
        bits = targets.filter(has_text="attributes").get_by_role("img").first
        expect(bits).to_have_attribute("aria-label", re.compile("speed free, note 1$"))
        expect(page.get_by_role("link", name="Try it in Events")).to_have_attribute(
            "href", "#events?q=SeenLoop+has+note"
        )
        page.locator("tr.row").filter(has_text="img").get_by_role("button").click()
        expect(page.locator(".targets .verdict.bad")).to_be_visible()
        assert page.evaluate("window.hacked") is None


def test_nodes_and_their_filters(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """A node's state in words, its clock, what it wants, and its filters as bits that a screen reader says."""
    source.tables["nodes"] = {
        "made|1": NodeRow(
            source="made", name="upper", number=2, uid="00ff", state="error passive", is_well=False, health="degraded",
            offset_us=1.5, precision_us=4.0, interests=("SeenLoop",), filters=((0x2020, 0x3FE0),),
        ),
    }  # fmt: skip
    with view_page(browser, studio, "nodes") as page:
        row = page.locator("tr.row")
        assert cells(row) == [
            "upper", "⚠ error passive", "–", "+1.50", "4.00", "2", "made", "SeenLoop", "1", "00ff"
        ]  # fmt: skip
        expect(page.get_by_role("img", name="filter 1: priority 8 free")).to_have_attribute(
            "aria-label",
            "filter 1: priority 8 free, node 7 free, event tag 1 0 0 0 0 0 0 0 1 free free free free free",
        )


def test_a_lake(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """Its tables, commits and followers; the view is listed only if there is a lake."""
    with view_page(browser, studio, "overview") as page:
        expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
        expect(page.get_by_role("link", name="Lake", exact=True)).to_have_count(0)
        source.tables |= {
            "sources": {"made": SourceRow(kind="lake", address="lake/")},
            "lake_tables": {
                "made|loop": LakeTableRow(
                    source="made", table="loop", events=1234, files=2, bytes=5000, types=("Loop",)
                )
            },
            "lake_commits": {
                f"made|{n}": LakeCommitRow(source="made", version=n, at_ms=0.0, what="append") for n in range(30)
            },
            "lake_followers": {
                "made|inbox": LakeFollowerRow(source="made", name="fast", kind="inbox", version=27, behind=2)
            },
        }
        page.get_by_role("link", name="Lake", exact=True).click()
        tables = page.get_by_role("table", name="Tables", exact=True)
        assert cells(tables.locator("tr.row"))[:5] == ["loop", "1,234", "2", "0.005", "–"]
        expect(page.get_by_role("table", name="Last commits").locator("tr.row th").first).to_have_text("29")
        followers = page.get_by_role("table", name="Streams, inboxes and derived tables")
        assert cells(followers.locator("tr.row"))[1:4] == ["inbox", "2", "27"]


def test_300_channels_20_times_a_second(browser: "Browser", source: MadeSource, studio: Studio) -> None:
    """A page on which every channel changes all the time stays quick."""
    ticks = 0

    class Busy(MadeSource):
        def rows(self, wanted: Collection[str]) -> Tables:
            nonlocal ticks
            ticks += 1
            for number in range(300):
                self.tables["channels"][f"busy|{number}"] = ChannelRow(
                    source="busy", type=f"Type{number}", rate=float(ticks % 100 + number), events=ticks
                )
            return super().rows(wanted)

    with open_studio(Busy("busy"), port=0) as busy, view_page(browser, busy, "channels") as page:
        expect(page.locator(".counted")).to_have_text("300 channels")
        before = ticks
        frames = page.evaluate(
            """() => new Promise((done) => {
                let frames = 0;
                const start = performance.now();
                const step = () => {
                    frames += 1;
                    if (performance.now() - start < 1500) requestAnimationFrame(step);
                    else done(frames / 1.5);
                };
                requestAnimationFrame(step);
            })"""
        )
        assert ticks - before > 15  # it did change meanwhile
        assert frames > 20  # 60 on an idle machine


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("channels", "Nobody has announced or published anything yet."),
        ("subscriptions", "Nobody has subscribed to anything that can be seen from here."),
        ("nodes", "No source has told of a node."),
        ("lake", "The lake has no tables yet."),
    ],
)
def test_a_table_without_rows_says_so(browser: "Browser", view: str, words: str) -> None:
    """It is never blank."""
    with open_studio(MadeSource("made"), port=0) as studio, view_page(browser, studio, view) as page:
        expect(page.get_by_text(words)).to_be_visible()
