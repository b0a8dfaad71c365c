"""Events that came out of order, and those that came too late."""

from genus_traffic.report.figures import count, share
from genus_traffic.report.markup import Markup, element
from genus_traffic.report.section import figure, meter, section, verdict
from genus_traffic.results import Results

_SAYS = (
    "Events from many sites do not arrive in the order in which they happened. The pipeline puts them in order, and "
    "waits only so long: what comes later still is set aside, and counted, in the same way on a stream and in batch."
)


def draw(results: Results) -> Markup:
    """Three bars, each a part of the one above, and whether stream and batch agree."""
    total, lateness = results.event_count, results.lateness
    bars = (
        _bar("events recorded", total, total, "filtered"),
        _bar("came out of order, put right", lateness.out_of_order, total, "delivered"),
        _bar("came too late to count", lateness.late, total, "missed"),
    )
    return section(
        "order",
        "Out of order, and late",
        _SAYS,
        figure("Events of the recording", element("div", *bars, class_="bars")),
        _agreement(results),
    )


def _bar(name: str, number: int, total: int, class_: str) -> Markup:
    part = number / total if total else 0.0
    words = element("small", f"{name}, {share(number, total)}" if number != total else name)
    return element("div", element("strong", count(number)), meter(part, class_, label=name), words, class_="bar-row")


def _agreement(results: Results) -> Markup:
    if results.stream_equals_batch:
        return verdict(True, "Stream and batch gave identical results.")
    return verdict(False, "Stream and batch gave different results.")
