"""The page: the results and what is prepared from them, rendered by templates into one file.

Its style and what draws its pictures are those of Genus Studio.
"""

from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from statistics import mode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from genus.errors import GenusError
from genus.studio import bundle, stylesheet, vendor
from genus_traffic.report import formats
from genus_traffic.report.charts import CLASSES, chart_data, is_late, sum_channels, worst_sites
from genus_traffic.report.checks import answers_agree, checks
from genus_traffic.report.type_tree import division_example, families
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
_COMPONENTS = ("bits", "timeline", "tree", "chart", "tip", "colours")
"""The components of Studio that the script of the page uses."""
_TESTS = {"agreeing": answers_agree, "late": is_late}


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
        families=families(results.types),
        division=division_example(results.types),
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
    made.policies["json.dumps_kwargs"] = {"sort_keys": False}  # types are in the order of the catalog
    made.filters.update(_FILTERS)
    made.tests.update(_TESTS)
    made.globals.update(sections=SECTIONS, classes=CLASSES, loop_distance_m=DISTANCE_M)
    made.globals.update(style=_style, script=_script, licence=lambda: Markup(vendor("LICENSE")))
    return made


def _style() -> Markup:
    """The style of the page: that of the charts, the design that Studio has too, and what only the report has."""
    return Markup("\n".join((vendor("uPlot.min.css"), stylesheet(), _read_asset("report.css"))))


def _script() -> Markup:
    """The script of the page: the library of the charts, Studio's components, and what uses them."""
    return Markup("\n".join((vendor("uPlot.iife.min.js"), bundle(*_COMPONENTS), _read_asset("report.js"))))


def _read_asset(name: str) -> str:
    return files("genus_traffic.report").joinpath(name).read_text(encoding="utf-8")
