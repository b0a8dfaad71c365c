"""Speeds against the truth: how far off they are, where, and what became of the hard cases."""

from collections.abc import Iterator

from genus_traffic.report.figures import count, share, some
from genus_traffic.report.markup import Child, Markup, element, together
from genus_traffic.report.plot import Plot
from genus_traffic.report.scale import Scale
from genus_traffic.report.section import empty, figure, folded, legend, section, table, verdict
from genus_traffic.results import Accuracy, Results, Trap

_SAYS = (
    "The traffic is made up, so the truth is known. Every speed was compared with that of the vehicle it belongs to. "
    "Vehicles that only one of the two loops noticed must get no speed at all."
)
_SHOWN = 12
_LEAST_PX = 2.0
TRAPS = {
    "standing": "it stood still over the loops",
    "two between": "the next vehicle came onto the pair before it had crossed it",
    "lane change": "it changed lanes at the loops",
    "missed": "a loop did not notice an edge",
    "simultaneous": "it came onto both loops at one instant",
    "too late": "an edge of it arrived too late to count",
}


def draw(results: Results) -> Markup:
    """The histogram, sites from the worst, and a table of traps."""
    accuracy = results.accuracy
    return section(
        "truth",
        "Against the truth",
        _SAYS,
        *_verdicts(accuracy),
        _histogram(accuracy),
        _sites(accuracy),
        _traps(accuracy),
    )


def _verdicts(accuracy: Accuracy) -> Iterator[Markup]:
    within = f"within {accuracy.tolerance:g} m/s ({accuracy.tolerance * 3.6:.3g} km/h)"
    if accuracy.complete:
        parts = f"{count(accuracy.wrong)} wrong, {count(accuracy.unmeasured)} not measured"
        says = f"{count(accuracy.right)} of {some(accuracy.complete, 'complete passage')} {within}; {parts}."
        yield verdict(accuracy.reaches_goal, says)
    else:
        yield verdict(None, "No vehicle was noticed by both loops.")
    half = f"{some(accuracy.one_sided, 'passage')} noticed by halves"
    yield verdict(accuracy.invented == 0, f"{some(accuracy.invented, 'speed')} invented, with {half}.")


def _histogram(accuracy: Accuracy) -> Markup:
    caption = "Measured minus true speed"
    bars = accuracy.errors
    if not any(number for _, _, number in bars):
        return figure(caption, empty("There is no speed to compare."))
    low, high = min(start for start, _, _ in bars), max(end for _, end, _ in bars)
    reach = max(abs(low), abs(high), accuracy.tolerance * 1.25)
    plot = Plot(Scale(-reach, reach), Scale.up_to(max(number for _, _, number in bars)), 170)
    drawn = together(_bar(plot, bar, accuracy.tolerance) for bar in bars if bar[2])
    chart = plot.chart(
        _tolerated(plot, accuracy.tolerance),
        plot.grid(),
        drawn,
        label=caption,
        y_labels=plot.y_labels("veh"),
        x_labels=plot.x_labels((at, f"{at:+g} m/s" if at else "0") for at in plot.x.ticks(5)),
    )
    key = legend(
        [
            ("good", "right"),
            ("bad", "wrong or not measured"),
            ("tolerated", f"tolerated: {accuracy.tolerance:g} m/s either way"),
        ]
    )
    return figure(caption, key, chart)


def _tolerated(plot: Plot, tolerance: float) -> Markup:
    x, width = plot.x.percent(-tolerance), plot.x.width(-tolerance, tolerance)
    return element("rect", x=x, width=width, y=0, height=plot.height, class_="tolerated")


def _bar(plot: Plot, bar: tuple[float, float, int], tolerance: float) -> Markup:
    start, end, number = bar
    height = max(plot.height - plot.top(number), _LEAST_PX)
    wrong = start >= tolerance - 1e-9 or end <= -tolerance + 1e-9
    return element(
        "rect",
        element("title", f"{start:+g} to {end:+g} m/s\n{some(number, 'vehicle')}"),
        x=plot.x.percent(start),
        width=plot.x.width(start, end),
        y=plot.height - height,
        height=height,
        class_="error wrong" if wrong else "error",
    )


def _sites(accuracy: Accuracy) -> Markup:
    caption = "Right speeds by site, the worst first"
    worst = sorted(accuracy.by_site.items(), key=lambda item: item[1][1] / item[1][0] if item[1][0] else 2.0)
    if not worst:
        return figure(caption, empty("No site measured a speed."))
    heads = ("Site", "Right", "", "Speeds")
    shown = table(heads, (_site(*item) for item in worst[:_SHOWN]), caption)
    if len(worst) <= _SHOWN:
        return figure(caption, shown)
    others = table(heads, (_site(*item) for item in worst[_SHOWN:]), "Right speeds of the other sites")
    return figure(caption, shown, folded(f"{len(worst) - _SHOWN} more sites", others, on_paper=False))


def _site(name: str, speeds: tuple[int, int]) -> tuple[Child, ...]:
    complete, right = speeds
    return name, share(right, complete), _parts(right, complete), f"{count(right)} of {count(complete)}"


def _parts(right: int, whole: int) -> Markup:
    """A bar of two parts, of which the wrong one can be seen however small it is."""
    parts = [("good", right), ("bad", whole - right)]
    shown = (element("span", class_=class_, style=f"flex-grow:{number}") for class_, number in parts if number > 0)
    return element("div", *shown, class_="stack", role="img", aria_label=f"{count(right)} of {count(whole)} right")


def _traps(accuracy: Accuracy) -> Markup:
    caption = "Hard cases, and how many of them came out right"
    if not accuracy.traps:
        return figure(caption, empty("There were none."))
    return figure(caption, table(("Case", "Right", "", "Passages"), map(_trap, accuracy.traps), caption))


def _trap(trap: Trap) -> tuple[Child, ...]:
    name = element("div", trap.name, element("small", TRAPS.get(trap.name, "")))
    return name, share(trap.right, trap.met), _parts(trap.right, trap.met), f"{count(trap.right)} of {count(trap.met)}"
