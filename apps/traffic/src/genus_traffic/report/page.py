"""The page: the results and what is prepared from them, rendered by templates into one file."""

from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from statistics import mode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from genus.errors import GenusError
from genus.studio._components import vendor
from genus_traffic.report import formats
from genus_traffic.report.bus import CLASSES, BusAxis, is_corrupted, is_late, sum_channels, timeline_rows
from genus_traffic.report.charts import chart_data, worst_sites
from genus_traffic.report.checks import answers_agree, checks
from genus_traffic.report.type_tree import division_example, families, type_tree
from genus_traffic.results import Results
from genus_traffic.types import DISTANCE_M

SECTIONS = {
    "city": "City",
    "types": "Types",
    "subscriptions": "Subscriptions",
    "bus": "Bus",
    "channels": "Channels",
    "traffic": "Traffic",
    "truth": "Truth",
    "refit": "Refit",
    "order": "Order",
    "throughput": "Speed",
}
"""The anchor of each section, and its name in the navigation."""
_FILTERS = {
    "bits": formats.format_bits,
    "count": formats.format_count,
    "count_of": formats.count_of,
    "micros": formats.format_micros,
    "mode": mode,
    "rate": formats.format_rate,
    "seconds": formats.format_seconds,
    "share": formats.format_share,
    "wall": formats.format_wall,
    "worst_sites": worst_sites,
}
_TESTS = {"agreeing": answers_agree, "corrupted": is_corrupted, "late": is_late}


def write_report(results: Results, path: Path | str) -> Path:
    """Write the page of a run, and its folder if need be; returns the path.

    Raises a GenusError if the path cannot be written.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(render_page(results), encoding="utf-8")
    except OSError as problem:
        raise GenusError(
            f"cannot write the report {target}: {problem.strerror or problem}; choose another path"
        ) from problem
    return target


def render_page(results: Results) -> str:
    """The page of a run as text."""
    charts = chart_data(results)
    begins = accumulate((stage.seconds for stage in results.stages), initial=0.0)
    return _environment().get_template("page.html").render(
        results=results,
        clock=formats.Clock(results),
        checks=checks(results),
        tree=type_tree(results.types),
        families=families(results.types),
        division=division_example(results.types),
        axis=BusAxis.of(results.bus),
        bus_rows=timeline_rows(results.bus),
        channels=sum_channels(results.channels),
        charts=charts,
        chart_json=msgspec.to_builtins(charts),
        stages=list(zip(begins, results.stages, strict=False)),
    )  # fmt: skip


@cache
def _environment() -> Environment:
    """Templates that escape every text and refuse names that nothing defines."""
    made = Environment(
        loader=PackageLoader("genus_traffic.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(_FILTERS)
    made.tests.update(_TESTS)
    made.globals.update(sections=SECTIONS, classes=CLASSES, loop_distance_m=DISTANCE_M, read_asset=_read_asset, read_vendor=_read_vendor)
    return made


def _read_vendor(name: str) -> Markup:
    """A file of a library that the page contains."""
    return Markup(vendor(name))


def _read_asset(name: str) -> Markup:
    """A style sheet or script of this package, which is put into the page as it is."""
    return Markup(files("genus_traffic.report").joinpath(name).read_text(encoding="utf-8"))
