"""The first screen: whether all went well, and the figures that say so."""

from genus_traffic.report.checks import Check, checks
from genus_traffic.report.figures import count, seconds, some
from genus_traffic.report.markup import Markup, element
from genus_traffic.results import Results

_SIGNS = {True: ("✓", "good", "holds"), False: ("✗", "bad", "does not hold"), None: ("–", "unknown", "not checked")}


def draw(results: Results) -> Markup:
    """The title, one sentence, and a tile per claim."""
    made = checks(results)
    tiles = element("ul", _events(results), *(_tile(check) for check in made), class_="tiles")
    return element("header", element("h1", "A city's traffic, sensed by Genus"), _verdict(made), _ran(results), tiles)


def _verdict(made: tuple[Check, ...]) -> Markup:
    failed = [check.name for check in made if check.holds is False]
    if failed:
        says = f"{some(len(failed), 'check')} failed: {', '.join(failed)}."
        return element("p", element("span", "✗ ", aria_hidden="true"), says, class_="banner bad")
    unknown = sum(check.holds is None for check in made)
    if unknown == len(made):
        return element("p", "Nothing happened, so there was nothing to check.", class_="banner unknown")
    says = f"{some(len(made) - unknown, 'check')} passed" + (f", {unknown} had nothing to check." if unknown else ".")
    return element("p", element("span", "✓ ", aria_hidden="true"), says, class_="banner good")


def _ran(results: Results) -> Markup:
    sites, lanes = len(results.sites), sum(site.lanes for site in results.sites)
    took = seconds(sum(stage.seconds for stage in results.stages))
    says = (
        f"{some(sites, 'site')} with {some(lanes, 'lane')}, {results.minutes:g} minutes of traffic from "
        f"{results.start:%d %B %Y, %H:%M}. Every loop in the road is a sensor on a CAN bus; what it publishes is "
        f"filtered by type and attributes there, on the city's bus, and again on Spark. The run took {took}."
    )
    return element("p", says, class_="lead")


def _events(results: Results) -> Markup:
    return _made_tile("unknown", "", count(results.event_count), "events recorded", f"in {results.minutes:g} minutes")


def _tile(check: Check) -> Markup:
    sign, class_, spoken = _SIGNS[check.holds]
    shown = element("span", sign, class_="sign", role="img", aria_label=spoken)
    return _made_tile(class_, shown, check.figure, check.name, check.says)


def _made_tile(class_: str, sign: str, figure: str, name: str, says: str) -> Markup:
    return element(
        "li",
        element("strong", figure, sign or None, class_="number"),
        element("span", name, class_="name"),
        element("small", says),
        class_=class_,
    )
