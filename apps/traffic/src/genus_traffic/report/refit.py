"""The refit as a timeline: sensors change site by site, and the collector's stream goes on without a gap."""

from collections.abc import Iterator, Sequence

from genus_traffic.report.figures import Clock, count, seconds, some
from genus_traffic.report.markup import NOTHING, Markup, element, together
from genus_traffic.report.plot import Plot
from genus_traffic.report.scale import Scale
from genus_traffic.report.section import empty, figure, legend, section, verdict
from genus_traffic.results import Received, Refit, Results

_SAYS = (
    "One site after the other gets a new upper sensor that also says how sure it is. Nothing restarts. New events have "
    "all that the collector asked for, and more, so its subscription receives old and new alike; after the last change "
    "a second subscription asks for the confidence too."
)
_NONE = "No sensor was replaced in this run; the collector received the first generation alone."
_HOLES = "Where nothing is drawn nobody drove, as at a red light: every event that was made has arrived."
_FEW = 16
"""So many sites have rows of full height."""


def draw(results: Results) -> Markup:
    """A row per site, the collector below, its second subscription last."""
    if not results.refit.received:
        return section(
            "refit", "New sensors", _SAYS, _nothing_lost(results.refit), empty("The collector received nothing.")
        )
    refitted = any(site.refit_us is not None for site in results.sites)
    complete = results.refit.delivered == results.refit.published
    title = "New sensors, without a gap" if complete and refitted else "New sensors"
    key = legend([("old", "first generation"), ("new", "with confidence"), ("mark", "sensor replaced")])
    note = element("p", _HOLES, class_="note") if complete else None
    picture = figure("What the collector received, by site", key, _picture(results), note)
    return section("refit", title, _SAYS if refitted else _NONE, _nothing_lost(results.refit), picture)


def _nothing_lost(refit: Refit) -> Markup:
    lost = refit.published - refit.delivered
    says = f"{count(refit.published)} events were made for the collector, {count(refit.delivered)} reached it"
    if lost > 0:
        return verdict(False, f"{says}: {some(lost, 'event')} lost.")
    return verdict(lost == 0, f"{says}: none was lost." if not lost else f"{says}: {count(-lost)} too many.")


def _picture(results: Results) -> Markup:
    clock, refit = Clock(results), results.refit
    starts = [span.start_us for span in refit.received]
    x = Scale(float(min(clock.start_us, *starts)), float(max(clock.end_us, max(starts) + refit.span_us)))
    names = list(dict.fromkeys([*(site.name for site in results.sites), *(span.site for span in refit.received)]))
    height = 30 if len(names) <= _FEW else 14
    sites = (_site(name, results, x, height) for name in names)
    return element(
        "div",
        *sites,
        _collector(refit, x, clock),
        _second(refit, x, clock),
        class_="refit" if len(names) <= _FEW else "refit dense",
    )


def _site(name: str, results: Results, x: Scale, height: int) -> Markup:
    refit = results.refit
    spans = [span for span in refit.received if span.site == name]
    replaced = next((site.refit_us for site in results.sites if site.name == name), None)
    plot = Plot(x, Scale.up_to(max((span.old + span.new for span in spans), default=0)), height)
    mark = plot.marker(replaced, "mark") if replaced is not None else NOTHING
    pause = refit.longest_pause_s.get(name)
    words = f"longest pause {seconds(pause)}" if pause is not None else ""
    label = f"Events from {name}: {_spoken(spans)}"
    return _row(
        name,
        words,
        plot.stretched(*_areas(plot, spans, refit.span_us)),
        mark,
        _asked(refit, plot),
        height=height,
        label=label,
    )


def _areas(plot: Plot, spans: Sequence[Received], span_us: int) -> Iterator[Markup]:
    """Steps that touch each other: where nothing came, the ground shows."""
    old = [(span.start_us, span.start_us + span_us, 0, span.old) for span in spans if span.old]
    new = [(span.start_us, span.start_us + span_us, span.old, span.old + span.new) for span in spans if span.new]
    yield plot.steps(old, "old")
    yield plot.steps(new, "new")


def _collector(refit: Refit, x: Scale, clock: Clock) -> Markup:
    """All sites together, with the times below."""
    spans = _summed(refit.received)
    plot = Plot(x, Scale.up_to(max(span.old + span.new for span in spans)), 64)
    tips = together(plot.hover(span.start_us, span.start_us + refit.span_us, _tip(span, clock)) for span in spans)
    drawn = plot.stretched(*_areas(plot, spans, refit.span_us))
    label = f"All that the collector received: {_spoken(spans)}"
    words = f"{some(refit.delivered, 'event')}, one subscription"
    return _row("StatisticsCollector", words, drawn, _asked(refit, plot), tips, height=64, label=label, class_="whole")


def _summed(received: Sequence[Received]) -> list[Received]:
    sums: dict[int, tuple[int, int]] = {}
    for span in received:
        old, new = sums.get(span.start_us, (0, 0))
        sums[span.start_us] = old + span.old, new + span.new
    return [Received(site="all", start_us=start, old=old, new=new) for start, (old, new) in sorted(sums.items())]


def _second(refit: Refit, x: Scale, clock: Clock) -> Markup:
    """From when it was asked for, and the times of day."""
    plot = Plot(x, Scale(0, 1), 30)
    if refit.asked_us is None:
        bar, words = NOTHING, "was never asked for"
    else:
        where = {"x": x.percent(refit.asked_us), "width": x.width(refit.asked_us, x.high)}
        bar, words = (
            element("rect", **where, y=8, height=14, class_="new"),
            f"{some(refit.confident, 'event')} since {clock.time_of_day(refit.asked_us)}",
        )
    return _row(
        "… has confidence",
        words,
        bar,
        _asked(refit, plot),
        plot.times(clock),
        height=52,
        label=f"Second subscription: {words}",
    )


def _asked(refit: Refit, plot: Plot) -> Markup:
    return plot.marker(refit.asked_us, "asked") if refit.asked_us is not None else NOTHING


def _row(name: str, words: str, *drawn: Markup, height: int, label: str, class_: str = "") -> Markup:
    picture = element("svg", *drawn, class_="plot", width="100%", height=height, role="img", aria_label=label)
    head = element("div", element("strong", name, title=name), element("small", words), class_="refit-name")
    return element("div", head, picture, class_=f"refit-row {class_}".strip())


def _spoken(spans: Sequence[Received]) -> str:
    old, new = sum(span.old for span in spans), sum(span.new for span in spans)
    return f"{count(old)} of the first generation, {count(new)} with confidence"


def _tip(span: Received, clock: Clock) -> str:
    return f"{clock.time_of_day(span.start_us)}\n{_spoken([span])}"
