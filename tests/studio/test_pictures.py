"""Trees of types, charts and networks in a browser: what they show, keys, and data that wants to be more than text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .component_page import component_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LONG = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(browser: "Browser") -> "Iterator[Page]":
    with component_page(browser, "tree", "chart", "network") as opened:
        yield opened


def type_row(*parents: str, factors: tuple[int, ...] = (), etag: int | None = 0, **more: Any) -> dict[str, Any]:
    code = 1
    for prime in factors:
        code *= prime
    return {
        "parents": parents,
        "kind": etag is None,
        "family": "Edge",
        "doc": "",
        "code": str(code),
        "factors": [str(p) for p in factors],
        "etag": etag,
        "blocks": [],
        "attributes": [],
        "vector": [],
        "deprecated": None,
        "events": 0,
        "rate": 0,
        "last": "",
        "last_ms": None,
    } | more


def attribute(name: str, bit: int) -> dict[str, Any]:
    return {"name": name, "bit": bit, "type": "float", "required": False, "unit": "m/s"}


VECTOR = ["time", "lane", "speed", "confidence"]
TYPES = {
    "Event": type_row(),
    "Roadside": type_row(factors=(3,), etag=None),
    "Edge": type_row(
        "Event", "Roadside", factors=(2, 3), attributes=[attribute("lane", 1)], vector=VECTOR, blocks=[[0x1000, 0x3000]]
    ),
    "Loop": type_row("Edge", factors=(2, 3, 5), attributes=[attribute("speed", 2)], vector=VECTOR, doc="On a loop."),
    "ConfidentLoop": type_row(
        "Loop", factors=(2, 3, 5, 5), attributes=[attribute("confidence", 3)], vector=VECTOR, deprecated=NASTY
    ),
    "Cleared": type_row("Edge", factors=(2, 3, 7), vector=VECTOR),
}

# Trees of types

LAY = """(rows) => Object.fromEntries([...studio.layTypes(new Map(Object.entries(rows)))].map(([name, node]) =>
  [name, {depth: node.depth, parent: node.parent?.name ?? null, others: node.others,
    inherited: node.inherited, own: node.own}]))"""
GROW = """([rows, options]) => {
  const onChoose = (name) => { window.chosen = name; };
  window.tree = studio.drawTypeTree(new Map(Object.entries(rows)), {...options, onChoose});
  document.querySelector("main").replaceChildren(window.tree);
}"""
SHOWN = (
    "() => [...document.querySelectorAll('[role=treeitem]')].map((item) => [item.dataset.type, Number(item.ariaLevel)])"
)
FOCUSED = "() => document.activeElement.dataset.type"


def test_every_type_is_below_its_first_known_parent(page: "Page") -> None:
    """Once each; other parents are named, and a parent that is not known makes a root."""
    laid = page.evaluate(LAY, TYPES | {"Alone": type_row("Nowhere")})
    assert {name: node["depth"] for name, node in laid.items()} == {
        "Event": 0,
        "Roadside": 0,
        "Edge": 1,
        "Loop": 2,
        "ConfidentLoop": 3,
        "Cleared": 2,
        "Alone": 0,
    }
    assert laid["Edge"]["others"] == ["Roadside"]


primes = st.lists(st.sampled_from([2, 3, 5, 7]), max_size=5)


@LONG
@given(primes, primes, primes)
def test_the_primes_of_a_type_are_those_of_its_parents_and_its_own(
    page: "Page", first: list[int], second: list[int], code: list[int]
) -> None:
    """Together they are its code, and none is inherited more often than a parent has it."""
    rows = {
        "A": type_row(factors=tuple(first)),
        "B": type_row(factors=tuple(second)),
        "C": type_row("A", "B", factors=tuple(code)),
    }
    node = page.evaluate(LAY, rows)["C"]
    assert sorted(node["inherited"] + node["own"]) == sorted(map(str, code))
    for prime in set(code):
        assert node["inherited"].count(str(prime)) == min(
            code.count(prime), max(first.count(prime), second.count(prime))
        )


def test_attributes_are_own_inherited_or_of_other_types(page: "Page") -> None:
    """Those that no type of the family declares are of all events."""
    of = """([rows, name]) => studio.attributesOf(new Map(Object.entries(rows)), name)
      .map((one) => [one.name, one.bit, one.from, one.isOwn])"""
    assert page.evaluate(of, [TYPES, "Loop"]) == [
        ["time", 0, "Event", False],
        ["lane", 1, "Edge", False],
        ["speed", 2, "Loop", True],
        ["confidence", 3, None, False],
    ]


def test_types_that_know_each_other_are_drawn(page: "Page") -> None:
    """Data from elsewhere may be wrong; it does not stop the page."""
    laid = page.evaluate(LAY, {"A": type_row("B"), "B": type_row("A")})
    assert sorted(node["depth"] for node in laid.values()) == [0, 1]


def test_the_tree_is_used_by_keys(page: "Page") -> None:
    """Arrows move, close and open; Enter chooses."""
    page.evaluate(GROW, [TYPES, {}])
    everything = [["Event", 1], ["Edge", 2], ["Loop", 3], ["ConfidentLoop", 4], ["Cleared", 3], ["Roadside", 1]]
    assert page.evaluate(SHOWN) == everything
    page.focus("[data-type=Event]")
    for key, name in {"ArrowDown": "Edge", "End": "Roadside", "ArrowUp": "Cleared", "ArrowLeft": "Edge"}.items():
        page.keyboard.press(key)
        assert page.evaluate(FOCUSED) == name
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(SHOWN) == [["Event", 1], ["Edge", 2], ["Roadside", 1]]
    assert page.get_attribute("[data-type=Edge]", "aria-expanded") == "false"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(SHOWN) == everything
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.evaluate("window.chosen") == "Loop"
    assert page.get_attribute("[aria-selected=true]", "data-type") == "Loop"
    assert page.locator("[role=treeitem][tabindex='0']").count() == 1


def test_a_filter_shows_what_fits_and_what_is_above_it(page: "Page") -> None:
    """By name, text or attribute; closed branches too."""
    page.evaluate(GROW, [TYPES, {}])
    page.evaluate("window.tree.openAll(false)")
    for text, names in {
        "on loop.": ["Event", "Edge", "Loop"],
        "CONFIDENCE": ["Event", "Edge", "Loop", "ConfidentLoop"],
        "kind": ["Roadside"],
        "xyz": [],
    }.items():
        page.evaluate("(text) => window.tree.filter(text)", text)
        assert [name for name, _ in page.evaluate(SHOWN)] == names


def test_of_a_thousand_types_the_top_is_open(page: "Page") -> None:
    """And rates are written without building the tree again."""
    rows = {"Event": type_row()} | {f"T{n}": type_row("Event" if n < 10 else f"T{n // 10}") for n in range(1000)}
    page.evaluate(GROW, [rows, {"isLive": True}])
    assert len(page.evaluate(SHOWN)) == 11
    page.evaluate("window.kept = document.querySelector('[data-type=T3]')")
    changed = rows | {"T3": rows["T3"] | {"events": 5, "rate": 2.5, "last": NASTY, "last_ms": 0}}
    page.evaluate("(rows) => window.tree.update(new Map(Object.entries(rows)), new Set(['T3']))", changed)
    assert page.evaluate("window.kept === document.querySelector('[data-type=T3]')") is True
    assert "2.50" in (page.text_content("[data-type=T3]") or "")
    assert NASTY in (page.text_content("[data-type=T3]") or "")
    changed["T1000"] = type_row("Event", doc="new")
    page.evaluate("(rows) => window.tree.update(new Map(Object.entries(rows)), new Set(['T1000']))", changed)
    assert ["T1000", 2] in page.evaluate(SHOWN)


def test_no_text_of_a_type_becomes_markup(page: "Page") -> None:
    """Names, texts and reasons are shown as they are."""
    page.evaluate(GROW, [{NASTY: type_row(doc=NASTY, deprecated=NASTY, last=NASTY)}, {"isLive": True}])
    assert page.query_selector("main img") is None
    assert (page.text_content("main") or "").count(NASTY) == 2


# Charts

PLOT = """([series, data, options]) => {
  const place = document.querySelector("main");
  place.replaceChildren();
  window.chart = studio.lines(place, {series, data, ...options});
}"""
LEGEND = """() => [...document.querySelectorAll(".chart-legend button")].map((one) =>
  [one.querySelector("span").textContent, one.querySelector("b").textContent, one.ariaPressed, one.disabled])"""


def test_lines_with_different_times_share_an_axis(page: "Page") -> None:
    """What a line does not know is bridged; a value that is no number, and another segment, is after a gap.

    All of a gap is one, also where other lines have points.
    """
    align = """(lists) => studio.alignLines(lists)
      .map((column) => column.map((value) => value === undefined ? "between" : value))"""
    aligned = page.evaluate(align, [[[0, 1, 1], [20, 2, 1], [200, 3, 2]], [[10, 5], [20, None]]])
    assert aligned == [[0, 10, 20, 110, 200], [1, "between", 2, None, 3], ["between", 5, None, "between", "between"]]
    aligned = page.evaluate(align, [[[0, 1, 1], [100, 2, 2]], [[20, 7, 1], [40, 8, 1], [80, 9, 1]]])
    assert aligned[:2] == [[0, 20, 40, 50, 80, 100], [1, None, None, None, None, 2]]


@LONG
@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=300), st.integers(1, 40))
def test_a_thinned_line_keeps_its_lowest_and_highest_points(page: "Page", values: list[int], width: int) -> None:
    """In order, and at most two for a column."""
    points = [[n, value] for n, value in enumerate(values)]
    thin = page.evaluate("([points, width]) => studio.thinLine(points, width)", [points, width])
    assert len(thin) <= 2 * (len(points) // width + 1)
    assert all(point in points for point in thin)
    assert thin == sorted(thin)
    assert (min(y for _, y in thin), max(y for _, y in thin)) == (min(values), max(values))


def test_the_legend_has_the_last_values_and_hides_lines_by_key(page: "Page") -> None:
    """Every unit has a scale, the first ones an axis; 20 lines at most are drawn."""
    series = [{"label": name, "unit": unit} for name, unit in zip("abcde", ["m/s", "K", "V", "A", "bar"], strict=True)]
    page.evaluate(PLOT, [series, [[[0, 1], [1000, 2.5]], [[500, 300]], [[0, 1]], [[0, 2]], [[0, 3]]], {}])
    assert page.evaluate(LEGEND) == [
        ["a", "2.5", "true", False],
        ["b", "300", "true", False],
        ["c", "1", "true", False],
        ["d", "2", "true", False],
        ["e", "3", "true", False],
    ]
    notes = page.locator(".chart-legend button").all_text_contents()
    assert [("on a scale of its own" in note) for note in notes] == [False, False, False, False, True]
    assert page.locator(".u-axis").count() == 5
    page.focus(".chart-legend button")
    page.keyboard.press("Enter")
    assert page.evaluate(LEGEND)[0] == ["a", "–", "false", False]
    page.keyboard.press("Enter")
    assert page.evaluate(LEGEND)[0] == ["a", "2.5", "true", False]
    page.evaluate("window.chart.update([[[0, 7]], [], [], [], []])")
    assert page.evaluate(LEGEND)[0][1] == "7"
    many = [{"label": f"l{n}", "unit": ""} for n in range(22)]
    page.evaluate(PLOT, [many, [[[0, n]] for n in range(22)], {}])
    assert [disabled for *_, disabled in page.evaluate(LEGEND)] == [False] * 20 + [True] * 2


def test_lines_look_different_from_each_other(page: "Page") -> None:
    """By colour and dashes: all 20, and those of the same colour by dashes alone."""
    looks = page.evaluate("Array.from({length: 20}, (_, n) => JSON.stringify(studio.lineLook(n)))")
    assert len(set(looks)) == 20


def test_arrow_keys_say_the_values_of_a_chart(page: "Page") -> None:
    """At the time of the cursor, of all lines that are shown."""
    page.evaluate(PLOT, [[{"label": "speed", "unit": "m/s"}], [[[60_000, 1], [61_000, 2], [62_500, 3]]], {}])
    page.focus(".chart-plot")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.text_content(".chart-frame .spoken") == "00:01:01, speed 2 m/s"
    page.keyboard.press("End")
    assert page.text_content(".chart-frame .spoken") == "00:01:02.500, speed 3 m/s"


# Networks


def side(gateway: str, name: str, **more: Any) -> dict[str, Any]:
    counters = dict.fromkeys(
        [
            "asked",
            "refused",
            "waiting",
            "heard",
            "unwanted",
            "duplicates",
            "out_of_scope",
            "wanted",
            "crossed",
            "lost",
            "spooled",
            "limited",
        ],
        0,
    )
    return (
        {
            "source": gateway,
            "side": name,
            "address": f"udp:{name}",
            "is_active": True,
            "is_connected": True,
            "rate": 0.0,
        }
        | counters
        | more
    )


def test_networks_are_drawn_once_with_their_gateways_and_what_crosses(page: "Page") -> None:
    """A network that two gateways share is one; what is not connected or stands by is labelled, not only dashed."""
    rows = {
        "g|a": side("g", "a", rate=12.5),
        "g|b": side("g", "b", is_connected=False, spooled=4200),
        "h|a": side("h", "a", is_active=False),
        "h|c": side("h", NASTY, waiting=3),
    }
    page.evaluate(
        """(rows) => {
          window.networks = studio.drawNetworks(new Map(Object.entries(rows)));
          document.querySelector("main").replaceChildren(window.networks);
        }""",
        rows,
    )
    assert page.locator(".network").count() == 3
    assert page.locator(".gate").count() == 2
    shared = page.locator(".network", has_text="udp:a").locator("rect")
    assert shared.get_attribute("y") == "72", "alone in its column, in the middle of two rows"
    texts = page.locator(".edge").all_text_contents()
    for text, words in zip(
        texts, ("12.5/s", "✕ not connected4,200 spooled", "0/sstanding by", "3 waiting"), strict=True
    ):
        assert words in text
    label = page.get_attribute(".network-picture", "aria-label") or ""
    assert label.startswith("2 gateways between 3 networks. g to a (udp:a): 12.5 events/s cross. ")
    assert "g to b (udp:b): 0 events/s cross, not connected, 4,200 spooled" in label
    assert page.query_selector("main img") is None
    rows["g|a"]["rate"] = 13.0
    page.evaluate(
        """(rows) => {
          window.kept = document.querySelector(".gate");
          window.networks.update(new Map(Object.entries(rows)));
        }""",
        rows,
    )
    assert "13.0/s" in page.locator(".edge").all_text_contents()[0]
    assert page.evaluate("window.kept.isConnected") is True
