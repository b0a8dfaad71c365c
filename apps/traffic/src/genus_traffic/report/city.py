"""The city: what a site is made of, and all sites."""

from collections.abc import Iterator

from genus_traffic.report.figures import Clock, count, share, some
from genus_traffic.report.markup import Child, Markup, element, together
from genus_traffic.report.section import empty, figure, folded, scrolling, section
from genus_traffic.results import Results, Site
from genus_traffic.types import DISTANCE_M

_SAYS = (
    "At each site, pairs of loops lie in the lanes. The upper loops, which vehicles reach first, say where they are "
    "and what they saw; the lower ones say only the lane and the time. All are nodes on the site's own CAN bus, "
    "and a gateway carries their events to the city."
)
_DRAWN_LANES = 4
_SHOWN = 24
_NODES = (
    ("upper", "SensorLoop_1"),
    ("lower", "SensorLoop_2"),
    ("monitor", "VelocityMonitor"),
    ("gateway", "to the city"),
)
_CITY = ("StatisticsCollector", "recording", "lake on Spark")


def draw(results: Results) -> Markup:
    """A site from above with its bus, then a card per site."""
    if not results.sites:
        return section("city", "The city", _SAYS, empty("The city has no sites."))
    lanes = min(max(site.lanes for site in results.sites), _DRAWN_LANES)
    anatomy = scrolling(_anatomy(lanes), "How a site is built")
    cards = list(_cards(results))
    shown = [element("ul", *cards[:_SHOWN], class_="sites")]
    if len(cards) > _SHOWN:
        more = element("ul", *cards[_SHOWN:], class_="sites")
        shown.append(folded(f"{len(cards) - _SHOWN} more sites", more, on_paper=False))
    return section(
        "city", "The city", _SAYS, figure("How a site is built", anatomy), figure(_number_of_sites(results), *shown)
    )


def _number_of_sites(results: Results) -> str:
    return f"{some(len(results.sites), 'site')}, and how many of their speeds are right"


def _anatomy(lanes: int) -> Markup:
    height = 24 * lanes
    return element(
        "svg",
        _road(lanes, height),
        _segment(height + 86),
        _city_bus(height + 86),
        viewBox=f"0 0 900 {height + 150}",
        class_="anatomy",
        role="img",
        aria_label="Loops in the lanes, four nodes on the CAN bus of the site, the city's bus with what listens there",
    )


def _road(lanes: int, height: int) -> Markup:
    edge = element("rect", x=20, y=26, width=500, height=height, rx=4, class_="asphalt")
    marks = (
        element("line", x1=20, x2=520, y1=26 + 24 * n, y2=26 + 24 * n, class_="lane-mark") for n in range(1, lanes)
    )
    loops = (_loop(x, 26 + 24 * n, class_) for n in range(lanes) for x, class_ in ((200, "upper"), (340, "lower")))
    cars = (_vehicle(40 + (n * 137) % 380, 26 + 24 * n, 26 + 22 * (n % 2)) for n in range(lanes))
    names = (_text(213, height + 42, "upper loops", "middle"), _text(353, height + 42, "lower loops", "middle"))
    return together([edge, *marks, *loops, *cars, _distance(), *names])


def _loop(x: int, y: int, class_: str) -> Markup:
    return element("rect", x=x, y=y + 3, width=26, height=18, rx=3, class_=f"loop {class_}")


def _vehicle(x: int, y: int, length: int) -> Markup:
    return element("rect", x=x, y=y + 7, width=length, height=10, rx=4, class_="vehicle")


def _distance() -> Markup:
    line = element("path", d="M200 16v6M200 19h140M340 16v6", class_="measure")
    return together([line, _text(270, 14, f"{DISTANCE_M:g} m", "middle"), _text(20, 14, "→ traffic", "start")])


def _segment(y: int) -> Markup:
    wire = element("line", x1=40, x2=520, y1=y, y2=y, class_="wire")
    return together([wire, _text(20, y - 10, "CAN", "start"), *(_node(n, y) for n in range(len(_NODES)))])


def _node(number: int, y: int) -> Markup:
    name, does = _NODES[number]
    x = 60 + 120 * number
    drop = element("line", x1=x + 50, x2=x + 50, y1=y, y2=y + 14, class_="wire")
    return together([drop, *_box(x, y + 14, 100, name, does, name)])


def _box(x: int, y: int, width: int, name: str, does: str, class_: str) -> Iterator[Markup]:
    yield element("rect", x=x, y=y, width=width, height=40, rx=6, class_=f"box {class_}")
    yield _text(x + width // 2, y + (17 if does else 24), name, "middle", "strong")
    yield _text(x + width // 2, y + 32, does, "middle")


def _city_bus(y: int) -> Markup:
    """The bus of the city stands on end, beside the sites' buses."""
    top = y - 68
    wire = element("path", d=f"M520 {y + 34}H600M600 {top}V{y + 54}", class_="wire city")
    boxes = (part for n, name in enumerate(_CITY) for part in _listener(n, name, top))
    return together([wire, _text(600, top - 8, "the city's bus, all sites", "middle"), *boxes])


def _listener(number: int, name: str, top: int) -> Iterator[Markup]:
    """The collector and the recording listen; the lake reads the recording."""
    x, y = (660, top + 4) if number == 0 else (660, top + 58) if number == 1 else (790, top + 58)
    yield element("path", d=f"M{600 if number < 2 else 766} {y + 20}H{x}", class_="wire city")
    yield from _box(x, y, 150 if number == 0 else 106, name, "", "listener")


def _text(x: int, y: int, text: str, anchor: str, class_: str | None = None) -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _cards(results: Results) -> Iterator[Markup]:
    clock = Clock(results)
    for site in results.sites:
        yield element("li", element("strong", site.name), *_about(site, results, clock))


def _about(site: Site, results: Results, clock: Clock) -> Iterator[Child]:
    yield element("span", f"{site.kind}, {some(site.lanes, 'lane')}")
    if site.place != site.name:
        yield element("small", site.place)
    complete, right = results.accuracy.by_site.get(site.name, (0, 0))
    yield element("small", f"{share(right, complete)} of {count(complete)} right")
    if site.refit_us is not None:
        yield element("small", f"refitted at {clock.time_of_day(site.refit_us)}")
