"""The timeline of a bus in a browser: its axis, its lanes, what is drawn and said, keys and live data."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .component_page import component_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LONG = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def page(browser: "Browser") -> "Iterator[Page]":
    with component_page(browser, "timeline", "bus-axis", "bus-picture") as opened:
        yield opened


def frame(start: float, end: float, node: str = "n", channel: str = "c", kind: str = "soft", **more: Any) -> list[Any]:
    rest = {"identifier": 20 << 21, "ok": True, "priority": 20, "deadline": None, "waited": None, "beaten": []} | more
    return [start, end, node, channel, kind, *rest.values()]


def picture(*frames: list[Any], slots: Any = (), end: float = 100_000, **more: Any) -> dict[str, Any]:
    return {"start_us": 0, "end_us": end, "load": 0.5, "frames": frames, "slots": slots} | more


# The axis

AXIS = """([spans, usual, instants, end]) => {
  const axis = new studio.BusAxis(0, end, spans, usual);
  const parts = instants.map((at) => axis.part(at)), back = parts.map((part) => axis.instant(part));
  return {stretches: axis.stretches, parts, back,
    ticks: axis.ticks(24), landmarks: axis.landmarks(), isShortened: axis.isShortened};
}"""


def axis_of(page: "Page", starts: list[float], length: float, instants: list[float], end: float = 100_000) -> Any:
    return page.evaluate(AXIS, [[[at, at + length] for at in starts], length, instants, end])


spans = st.lists(st.tuples(st.floats(0, 99_000), st.floats(1, 900) | st.floats(1, 40_000)), min_size=1, max_size=30)


@pytest.mark.slow
@LONG
@given(spans, st.floats(1, 900))
def test_a_shortened_time_keeps_the_order_and_shortens_no_frame(
    page: "Page", spans: list[tuple[float, float]], usual: float
) -> None:
    """Instants stay in order from end to end, and what is shortened has nothing in it, however long things are."""
    busy = [[at, at + length] for at, length in spans]
    instants = sorted([0.0, *(at for at, _ in spans), 100_000.0])
    axis = page.evaluate(AXIS, [busy, usual, [-5, *instants, 200_000], 100_000])
    first, *parts, last = axis["parts"]
    assert parts == sorted(parts)
    assert (first, parts[0], last) == (0, 0, 1)
    assert parts[-1] == pytest.approx(1)
    assert axis["back"][1:-1] == pytest.approx(instants, abs=1e-3)
    assert all(each["start"] < each["end"] and each["left"] < each["right"] for each in axis["stretches"])
    assert [each["right"] for each in axis["stretches"][:-1]] == [each["left"] for each in axis["stretches"][1:]]
    for idle in (each for each in axis["stretches"] if each["isIdle"]):
        assert not [at for at, end in busy if at < idle["end"] and end > idle["start"]]


def test_a_short_frame_within_a_long_slot_does_not_end_it(page: "Page") -> None:
    """The rest of the slot is not idle."""
    axis = page.evaluate(AXIS, [[[10_000, 50_000], [10_100, 10_200], [90_000, 90_100]], 100, [], 100_000])
    idle = [each for each in axis["stretches"] if each["isIdle"]]
    assert len(idle) == 3
    assert idle[1]["start"] >= 50_000


def test_only_frames_too_thin_to_be_seen_shorten_the_time(page: "Page") -> None:
    """Two bursts in a tenth of a second: what lies around them gives its room to them; broad frames need none."""
    thin = axis_of(page, [30_000, 30_200, 80_000], 150, [30_000, 30_150])
    assert [each["isIdle"] for each in thin["stretches"]] == [True, False, True, False, True]
    assert thin["parts"][1] - thin["parts"][0] > 0.2
    broad = axis_of(page, [30_000, 80_000], 500, [25_000])
    assert [each["isIdle"] for each in broad["stretches"]] == [False]
    assert broad["parts"] == [0.25]


@LONG
@given(st.floats(1e-3, 1e6), st.integers(1, 12))
def test_ticks_lie_on_their_axis(page: "Page", length: float, wanted: int) -> None:
    """They are in order, round, and not many more than wanted."""
    ticks = page.evaluate("([end, wanted]) => new studio.BusAxis(0, end).ticks(wanted)", [length, wanted])
    assert all(-length * 1e-6 <= tick <= length * (1 + 1e-6) for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 2 * wanted + 2


def test_ticks_of_a_shortened_axis_lie_where_it_is_busy(page: "Page") -> None:
    """No label stands in an idle stretch."""
    axis = axis_of(page, [30_000, 30_200, 80_000], 150, [])
    busy = [each for each in axis["stretches"] if not each["isIdle"]]
    assert axis["ticks"]
    for tick in axis["ticks"]:
        assert any(each["start"] <= tick <= each["end"] for each in busy)
    assert axis["landmarks"][0] == busy[0]["start"]


def test_an_axis_without_time_can_be_drawn(page: "Page") -> None:
    """A picture of nothing does not divide by zero."""
    assert page.evaluate("() => { const axis = new studio.BusAxis(5, 5); return [axis.part(5), axis.part(6)]; }") == [
        0,
        1,
    ]


# Lanes

LANES = """([data, by, known]) => studio.lanesOf(studio.readPicture(data), by, known)
  .map((lane) => [lane.name, lane.frames.length, lane.slots.length, lane.waits.length])"""


def test_nodes_have_lanes_below_that_of_the_calendar(page: "Page") -> None:
    """In the order of their names and numbers; nodes that were there once keep their lanes."""
    data = picture(frame(0, 9, "node 10"), frame(20, 29, "node 9", waited=5), slots=[[0, 9, "c"]])
    lanes = page.evaluate(LANES, [data, "node", ["node 11"]])
    assert lanes == [["calendar", 0, 1, 0], ["node 9", 1, 0, 1], ["node 10", 1, 0, 0], ["node 11", 0, 0, 0]]


def test_channels_have_lanes_by_class_and_all_frames_one(page: "Page") -> None:
    """Hard ones first; the middleware's frames share a lane, and corrupted frames stay on their channel."""
    data = picture(
        frame(0, 9, channel="b", kind="hard"),
        frame(10, 19, channel="SYNC", kind="system"),
        frame(20, 29, channel="CLAIM", kind="system"),
        frame(30, 39, channel="a", kind="soft", ok=False),
        slots=[[0, 9, "b"]],
    )
    lanes = page.evaluate(LANES, [data, "channel", []])
    assert lanes == [["b", 1, 1, 0], ["a", 1, 0, 0], ["middleware", 2, 0, 0], ["all frames", 4, 0, 0]]


def test_a_picture_with_too_many_channels_has_a_lane_per_class(page: "Page") -> None:
    """And no frame is left out."""
    frames = [frame(n, n + 1, channel=f"c{n}", kind=("soft", "none")[n % 2]) for n in range(40)]
    lanes = page.evaluate(LANES, [picture(*frames), "channel", []])
    assert [lane[:2] for lane in lanes] == [["soft real time", 20], ["no real time", 20], ["all frames", 40]]


def test_those_who_lost_against_a_frame_are_the_next_of_their_channels(page: "Page") -> None:
    """Frames before it, or at the same time, are not; a channel that has not sent since is left out."""
    data = picture(
        frame(0, 9, channel="a"), frame(10, 19, channel="b", beaten=["a", "c", "gone"]), frame(20, 29, channel="c"),
        frame(30, 39, channel="a"), frame(40, 49, channel="a"),
    )  # fmt: skip
    code = """(data) => { const {frames} = studio.readPicture(data);
      return studio.beatenFrames(frames[1], frames).map((other) => [other.channel, other.start]); }"""
    assert page.evaluate(code, data) == [["a", 30], ["c", 20]]


# What is drawn and said

DRAW = """([data, options]) => {
  window.drawn?.close();
  window.drawn = studio.drawTimeline(data, options);
  document.querySelector("main").append(window.drawn);
  return window.drawn.querySelector("[role=application]").ariaLabel;
}"""
FACTS = "() => document.querySelector('.timeline > .spoken').textContent"


def test_frames_slots_waits_and_what_is_wrong_are_counted(page: "Page") -> None:
    """In the label, for those who do not see the picture."""
    data = picture(
        frame(0, 9, kind="hard", deadline=8),
        frame(10, 19, ok=False, deadline=12),
        frame(20, 29, deadline=29),
        slots=[[0, 8, "c"]],
    )
    assert "3 frames, 1 slot, 1 waiting event, 1 frame corrupted, 1 late" in page.evaluate(DRAW, [data, {}])


def test_an_event_is_late_from_the_instant_after_its_deadline(page: "Page") -> None:
    """At the deadline it is in time; one that never came is late."""
    late = "(waits) => studio.readPicture({frames: [], slots: [], waits}).waits.map((wait) => wait.isLate)"
    waits = [[0, 10, 10, "c"], [0, 11, 10, "c"], [0, None, 10, "c"]]
    assert page.evaluate(late, waits) == [False, True, True]


def test_arrow_keys_go_from_frame_to_frame_and_say_all_of_it(page: "Page") -> None:
    """By time with left and right, to the nearest frame of another lane with up and down."""
    first = frame(
        10_000, 10_130, "a", "Loop", "soft", identifier=0x02809300, deadline=12_130, waited=300, beaten=["Setting"]
    )
    page.evaluate(
        DRAW, [picture(first, frame(20_000, 20_100, "a"), frame(21_000, 21_300, "b", "Setting", "none", ok=False)), {}]
    )
    page.focus("[role=application]")
    page.keyboard.press("ArrowRight")
    said = page.evaluate(FACTS)
    for fact in (
        "Loop",
        "soft real time",
        "node a",
        "identifier 0x02809300",
        "priority 20",
        "start 10.0 ms",
        "length 130 µs",
        "waited 300 µs",
        "deadline 2.00 ms to spare",
        "beat Setting",
    ):
        assert fact in said
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FACTS).startswith("Setting, no real time, state corrupted")
    page.keyboard.press("ArrowLeft")
    assert "start 20.0 ms" in page.evaluate(FACTS)
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate(FACTS) == said


def test_the_facts_of_a_frame_are_text(page: "Page") -> None:
    """Whatever its channel is called."""
    name = "<img src=x onerror=alert(1)>"
    page.evaluate(DRAW, [picture(frame(0, 50_000, name, name, name, beaten=[name])), {}])
    page.focus("[role=application]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".timeline-facts:not([hidden])")
    assert page.text_content(".timeline-facts strong") == name
    assert page.query_selector("img") is None


def test_a_chosen_frame_stays_chosen_while_time_goes_on(page: "Page") -> None:
    """Until it has left the span."""
    frames = [frame(at, at + 100, channel=f"c{at}") for at in range(0, 50_000, 10_000)]
    page.evaluate(DRAW, [picture(*frames, end=50_000), {}])
    page.focus("[role=application]")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.timeline-facts strong')?.textContent === 'c30000'")
    later = picture(*frames[2:]) | {"start_us": 15_000, "end_us": 65_000}
    page.evaluate("(data) => window.drawn.update(data)", later)
    page.wait_for_function("document.querySelector('.timeline-facts dl').textContent.includes('15.0 ms')")
    page.evaluate("(data) => window.drawn.update(data)", picture(frames[4]) | {"start_us": 35_000, "end_us": 85_000})
    page.wait_for_function("document.querySelector('.timeline-facts').hidden")


def test_zoom_keeps_what_is_under_the_pointer(page: "Page") -> None:
    """Keys and the wheel magnify; the key 0 shows everything again."""
    page.evaluate(DRAW, [picture(frame(50_000, 50_100)), {}])
    page.focus("[role=application]")
    for _ in range(3):
        page.keyboard.press("+")
    assert page.text_content(".timeline-zoom") == "8×"
    page.keyboard.press("0")
    assert page.text_content(".timeline-zoom") == "1×"
    box = page.query_selector(".timeline-area canvas").bounding_box()  # type: ignore[union-attr]
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 15)  # type: ignore[index]
    page.keyboard.down("Control")
    page.mouse.wheel(0, -600)
    page.keyboard.up("Control")
    page.wait_for_function("Number.parseInt(document.querySelector('.timeline-zoom').textContent) >= 10")
    page.wait_for_selector(".timeline-facts:not([hidden])")


def test_many_frames_are_drawn_ten_times_a_second(page: "Page") -> None:
    """Eight thousand frames of ten nodes, in less than the tenth of a second that a live bus has for it."""
    code = """() => {
      const kinds = ["hard", "soft", "none", "system"], spent = [];
      const frames = Array.from({length: 8000}, (_, n) => [n * 120, n * 120 + 100, `n${n % 10}`, `c${n % 40}`,
        kinds[n % 4], n, n % 50 > 0, 20, n * 120 + 90 + n % 20, n % 300, []]);
      const data = {start_us: 0, end_us: 960000, load: 0.8, frames, slots: []};
      for (let n = 0; n < 7; n += 1) {
        const start = performance.now();
        window.drawn.update(data);
        window.drawn.fit();
        spent.push(performance.now() - start);
      }
      return Math.min(...spent);
    }"""
    assert page.evaluate(code) < 100
