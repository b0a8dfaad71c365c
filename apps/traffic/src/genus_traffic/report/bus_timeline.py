"""A short span of one site's bus: reserved slots, waiting events and the frames on the wire."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from genus_traffic.report.bus_axis import BusAxis, Stretch
from genus_traffic.report.figures import Clock, micros, some
from genus_traffic.report.markup import Markup, element, together
from genus_traffic.report.section import empty, figure, legend, section, verdict
from genus_traffic.results import BusPicture, FrameSpan, Results, SlotSpan, Wait

_SAYS = (
    "One bus carries three classes of events. Hard ones have slots in a calendar and are delivered exactly at the end "
    "of their slot, soft ones go in the order of their deadlines, and the rest takes what is left. An unused slot is "
    "not wasted: whatever waits may send."
)
_ROW = 30
_AXIS = 22
_MOST_ROWS = 18
_ROOMY = 0.01
"""Of the width of the picture."""
CORRUPTED = " (corrupted)"
"""How the channel of a frame ends that was disturbed on the wire."""
CLASSES = {
    "hard": "hard real time",
    "soft": "soft real time",
    "none": "no real time",
    "system": "the middleware itself",
}


class Row(msgspec.Struct, frozen=True):
    """A line of the picture: what happened on a channel, or to a whole class."""

    name: str
    qos: str
    slots: tuple[SlotSpan, ...] = ()
    waits: tuple[Wait, ...] = ()
    frames: tuple[FrameSpan, ...] = ()


def draw(results: Results) -> Markup:
    """The picture, a row per channel, all frames together below."""
    bus = results.bus
    if not (bus.frames or bus.slots or bus.waits):
        return section("bus", "On the wire", _SAYS, empty("No bus was recorded."))
    when = Clock(results).time_of_day(bus.from_us)
    caption = f"{micros(bus.length_us)} of the bus of {bus.site}, from {when}"
    if any(stretch.idle for stretch in BusAxis.of(bus).stretches):
        caption += "; long idle stretches are shortened"
    return section("bus", "On the wire", _SAYS, figure(caption, _key(bus), _zoom(), _timeline(bus)), _late(bus))


def is_late(wait: Wait) -> bool:
    """Whether an event was not there by its deadline."""
    return wait.delivered_us is None or wait.delivered_us > wait.deadline_us


def _late(bus: BusPicture) -> Markup:
    late = sum(map(is_late, bus.waits))
    if not bus.waits:
        return verdict(None, "No soft event was under way.")
    if late:
        return verdict(False, f"{late} of {some(len(bus.waits), 'soft event')} in the picture came after the deadline.")
    return verdict(True, f"{some(len(bus.waits), 'soft event')} in the picture, none after its deadline.")


def _key(bus: BusPicture) -> Markup:
    frames = [(f"qos-{qos}", f"frame, {words}") for qos, words in CLASSES.items()]
    always = [("slot", "reserved slot"), ("wait", "waiting"), ("slack", "time left"), ("deadline", "deadline")]
    seldom = {"late": any(map(is_late, bus.waits)), "corrupted": any(map(_is_corrupted, bus.frames))}
    return legend([*frames, *always, *((name, name) for name, seen in seldom.items() if seen)])


def _zoom() -> Markup:
    buttons = (
        element("button", f"{times}×", type="button", data_zoom=times, aria_pressed="true" if times == 1 else "false")
        for times in (1, 3, 10)
    )
    return element("div", "Magnify ", *buttons, class_="choice", hidden=True)


def _timeline(bus: BusPicture) -> Markup:
    rows = rows_of(bus)
    scale = BusAxis.of(bus)
    names = element("div", *(_label(row) for row in rows), class_="row-names")
    height = _ROW * len(rows) + _AXIS
    drawn = (_drawn(row, scale, _ROW * number) for number, row in enumerate(rows))
    label = f"{some(len(bus.frames), 'frame')} in {micros(bus.length_us)}"
    picture = element(
        "svg", _axis(scale, _ROW * len(rows)), *drawn, width="100%", height=height, role="img", aria_label=label
    )
    area = element("div", picture, class_="scrolling zoomed", tabindex=0, role="region", aria_label="bus timeline")
    return element("div", names, area, class_="rows")


def rows_of(bus: BusPicture) -> list[Row]:
    """A row per channel, by class; a row per class if there are too many; the whole wire last."""
    rows = list(_by_channel(bus))
    if len(rows) > _MOST_ROWS:
        rows = [_joined(qos, rows) for qos in CLASSES if any(row.qos == qos for row in rows)]
    return [*rows, Row("all frames", "", frames=bus.frames)]


def _by_channel(bus: BusPicture) -> Iterator[Row]:
    named = {_channel(frame): frame.qos for frame in bus.frames if frame.qos != "system"}
    named |= {wait.channel: "soft" for wait in bus.waits} | {slot.channel: "hard" for slot in bus.slots}
    order = list(CLASSES)
    for name, qos in sorted(named.items(), key=lambda item: (order.index(item[1]) if item[1] in order else 9, item[0])):
        slots = tuple(slot for slot in bus.slots if slot.channel == name)
        waits = tuple(wait for wait in bus.waits if wait.channel == name)
        yield Row(name, qos, slots, waits, tuple(frame for frame in bus.frames if _channel(frame) == name))
    if system := tuple(frame for frame in bus.frames if frame.qos == "system"):
        yield Row(CLASSES["system"], "system", frames=system)


def _channel(frame: FrameSpan) -> str:
    return frame.channel.removesuffix(CORRUPTED)


def _is_corrupted(frame: FrameSpan) -> bool:
    return frame.channel.endswith(CORRUPTED)


def _joined(qos: str, rows: Sequence[Row]) -> Row:
    same = [row for row in rows if row.qos == qos]
    return Row(
        CLASSES[qos],
        qos,
        tuple(slot for row in same for slot in row.slots),
        tuple(wait for row in same for wait in row.waits),
        tuple(frame for row in same for frame in row.frames),
    )


def _label(row: Row) -> Markup:
    return element("div", row.name, title=row.name, class_=f"row-name qos-{row.qos}" if row.qos else "row-name")


def _axis(scale: BusAxis, bottom: int) -> Markup:
    coarse, idle = scale.landmarks(), (stretch for stretch in scale.stretches if stretch.idle)
    ticks = (_tick(at, scale, bottom, at in coarse) for at in sorted({*coarse, *scale.ticks(24)}))
    return together([*(_idle(stretch, bottom) for stretch in idle), *ticks])


def _idle(stretch: Stretch, bottom: int) -> Markup:
    """A stretch that was shortened, and how long it is."""
    words = f"{micros(stretch.end_us - stretch.start_us)} idle"
    middle = f"{50 * (stretch.left + stretch.right):.2f}%"
    x, width = f"{100 * stretch.left:.2f}%", f"{100 * (stretch.right - stretch.left):.2f}%"
    box = element("rect", x=x, width=width, y=0, height=bottom, class_="idle")
    return element("g", box, element("text", words, x=middle, y=bottom / 2, class_="idle", text_anchor="middle"))


def _tick(at: float, scale: BusAxis, bottom: int, coarse: bool) -> Markup:
    x, part = scale.percent(at), scale.part(at)
    anchor = "start" if part < 0.04 else "end" if part > 0.96 else "middle"
    class_ = "tick-group" if coarse else "tick-group fine"
    line = element("line", x1=x, x2=x, y1=0, y2=bottom, class_="grid")
    return element("g", line, element("text", micros(at), x=x, y=bottom + 16, text_anchor=anchor), class_=class_)


def _drawn(row: Row, scale: BusAxis, top: int) -> Markup:
    floor = element("line", x1=0, x2="100%", y1=top + _ROW, y2=top + _ROW, class_="grid")
    slots = (_slot(slot, scale, top) for slot in row.slots)
    waits = (_wait(wait, scale, top + 7 + 8 * (number % 3)) for number, wait in enumerate(row.waits))
    return together([floor, *slots, *_frames(row.frames, scale, top), *waits])


def _slot(slot: SlotSpan, scale: BusAxis, top: int) -> Markup:
    tip = f"{slot.channel}: slot of {micros(slot.deadline_us - slot.start_us)}, delivery at its end"
    x = scale.percent(slot.deadline_us)
    width = scale.width(slot.start_us, slot.deadline_us)
    box = element("rect", x=scale.percent(slot.start_us), width=width, y=top + 3, height=_ROW - 6, class_="slot")
    end = element("line", x1=x, x2=x, y1=top + 1, y2=top + _ROW - 1, class_="deadline")
    return element("g", element("title", tip), box, end)


def _frames(frames: Iterable[FrameSpan], scale: BusAxis, top: int) -> Iterator[Markup]:
    for frame in frames:
        tip = f"{frame.channel}: {micros(frame.end_us - frame.start_us)} from {frame.node} at {micros(frame.start_us)}"
        yield element(
            "rect",
            element("title", tip),
            x=scale.percent(frame.start_us),
            width=scale.width(frame.start_us, frame.end_us),
            y=top + 7,
            height=_ROW - 14,
            class_=_looks(frame, scale.part(frame.end_us) - scale.part(frame.start_us)),
        )


def _looks(frame: FrameSpan, part: float) -> str:
    """Frames with room for it have a border, so that those that follow each other can be told apart."""
    class_ = f"frame qos-{frame.qos}" if frame.qos in CLASSES else "frame"
    class_ += " roomy" if part > _ROOMY else ""
    return f"{class_} corrupted" if _is_corrupted(frame) else class_


def _wait(wait: Wait, scale: BusAxis, y: int) -> Markup:
    end = wait.delivered_us if wait.delivered_us is not None else max(wait.deadline_us, scale.length_us)
    came = f"delivered after {micros(end - wait.published_us)}" if wait.delivered_us is not None else "never delivered"
    tip = f"{wait.channel}: {came}, deadline after {micros(wait.deadline_us - wait.published_us)}"
    x1, x2, limit = (scale.percent(at) for at in (wait.published_us, end, wait.deadline_us))
    marks = [element("line", x1=x1, x2=x2, y1=y, y2=y, class_="wait"), element("circle", cx=x1, cy=y, r=2.5)]
    if end < wait.deadline_us:
        marks.append(element("line", x1=x2, x2=limit, y1=y, y2=y, class_="slack"))
    if 0 <= wait.deadline_us <= scale.length_us:
        marks.append(element("line", x1=limit, x2=limit, y1=y - 4, y2=y + 4, class_="deadline"))
    return element("g", element("title", tip), *marks, class_="waiting late" if is_late(wait) else "waiting")
