"""Vehicles and speeds over time: the whole city, then every site, by category."""

from collections.abc import Iterator, Sequence

from genus_traffic.report.figures import Clock, some
from genus_traffic.report.markup import NOTHING, Markup, element
from genus_traffic.report.minutes import Columns, categories_in, gathered
from genus_traffic.report.panel import SERIES, Panel, SeenBy
from genus_traffic.report.section import empty, figure, folded, legend, section
from genus_traffic.results import Minute, Results

_SAYS = (
    "What the pipeline found: how many vehicles of each category passed a site, and how fast they were. "
    "All sites have the same axes, so that they can be compared at a glance."
)
_SHOWN = 12
"""Sites that are shown at once; more are folded."""
_MANY = 24
_MOST_COLUMNS = 60
_FEW_COLUMNS = 20
"""For each of many sites: a page should not grow without bounds."""


def draw(results: Results) -> Markup:
    """The city in a wide panel, the sites in small ones."""
    if not any(minute.count for minute in results.traffic):
        return section("traffic", "Vehicles and speeds", _SAYS, empty("No vehicle was counted."))
    clock, categories = Clock(results), categories_in(results.traffic)
    wide = Columns(clock, _MOST_COLUMNS)
    narrow = Columns(clock, _MOST_COLUMNS if len(results.sites) <= _MANY else _FEW_COLUMNS)
    city, sites = gathered(results.traffic, wide), _by_site(results, narrow)
    whole, each = Panel.of(clock, wide, categories, [city]), Panel.of(clock, narrow, categories, list(sites.values()))
    key = legend((f"series-{number % SERIES}", name) for number, name in enumerate(categories))
    return section(
        "traffic",
        "Vehicles and speeds",
        _SAYS,
        key,
        _choices(categories, list(sites)),
        figure("The whole city", whole.draw("All sites", _passed(city), city, 110)),
        figure("Site by site", *_panels(each, sites, results)),
    )


def _by_site(results: Results, columns: Columns) -> dict[str, SeenBy]:
    """Every site of the city, also one that saw nothing, then whatever else was seen."""
    minutes: dict[str, list[Minute]] = {site.name: [] for site in results.sites}
    for minute in results.traffic:
        minutes.setdefault(minute.site, []).append(minute)
    return {site: gathered(seen, columns) for site, seen in minutes.items()}


def _panels(panel: Panel, sites: dict[str, SeenBy], results: Results) -> Iterator[Markup]:
    kinds = {site.name: site.kind for site in results.sites}
    drawn = [
        panel.draw(name, f"{kinds.get(name, 'unknown')}, {_passed(seen)}", seen, 64) for name, seen in sites.items()
    ]
    yield element("div", *drawn[:_SHOWN], class_="panels")
    if len(drawn) > _SHOWN:
        yield folded(
            f"{len(drawn) - _SHOWN} more sites", element("div", *drawn[_SHOWN:], class_="panels"), on_paper=False
        )


def _choices(categories: Sequence[str], sites: Sequence[str]) -> Markup:
    """For scripts only: to look at one category or one site."""
    buttons = [element("button", "all", type="button", data_series="", aria_pressed="true")]
    buttons += [
        element("button", name, type="button", data_series=number % SERIES, aria_pressed="false")
        for number, name in enumerate(categories)
    ]
    options = [element("option", "all sites", value=""), *(element("option", name, value=name) for name in sites)]
    chooser = element("label", "Site ", element("select", *options, id="site")) if len(sites) > 1 else NOTHING
    return element("div", "Category ", *buttons, " ", chooser, class_="choice", hidden=True)


def _passed(seen: SeenBy) -> str:
    return some(sum(cell.count for row in seen.values() for cell in row), "vehicle")
