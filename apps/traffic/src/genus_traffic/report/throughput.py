"""How long each step of the run took, and how much it got through."""

from collections.abc import Iterator
from itertools import accumulate

from genus_traffic.report.figures import rate, seconds, some
from genus_traffic.report.markup import Markup, element
from genus_traffic.report.scale import Scale
from genus_traffic.report.section import empty, figure, section
from genus_traffic.results import Results, Stage

_SAYS = "From made-up vehicles to checked results: the steps of the run, one after the other."


def draw(results: Results) -> Markup:
    """A bar per step, beginning where the one before ended."""
    if not results.stages:
        return section("throughput", "How fast it was", _SAYS, empty("No step was timed."))
    total = sum(stage.seconds for stage in results.stages)
    caption = f"{seconds(total)} in all, on {results.machine} ({results.master})"
    steps = element("ol", *_steps(results, Scale(0.0, total)), class_="stages")
    return section("throughput", "How fast it was", _SAYS, figure(caption, steps))


def _steps(results: Results, scale: Scale) -> Iterator[Markup]:
    begins = accumulate((stage.seconds for stage in results.stages), initial=0.0)
    return (_step(stage, begin, scale) for stage, begin in zip(results.stages, begins, strict=False))


def _step(stage: Stage, begin: float, scale: Scale) -> Markup:
    place = f"left:{scale.percent(begin)};width:{scale.width(begin, begin + stage.seconds)}"
    bar = element("div", element("span", style=place), class_="track", aria_hidden="true")
    pace = rate(stage.amount, stage.seconds) if stage.amount > 1 else ""
    words = " · ".join(part for part in (seconds(stage.seconds), _amount(stage), pace) if part)
    return element("li", element("strong", stage.name), element("small", words), bar)


def _amount(stage: Stage) -> str:
    return some(stage.amount, stage.what.removesuffix("s"))
