"""The page: head, headline, sections in the order of the story, foot. One file, which asks for nothing else."""

from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

from genus.errors import GenusError
from genus_traffic.report import (
    bus_timeline,
    channels,
    city,
    compiled,
    headline,
    lateness,
    refit,
    throughput,
    traffic,
    truth,
    type_tree,
)
from genus_traffic.report.markup import Markup, element, verbatim
from genus_traffic.results import Results

SECTIONS: dict[str, tuple[str, Callable[[Results], Markup]]] = {
    "city": ("City", city.draw),
    "types": ("Types", type_tree.draw),
    "subscriptions": ("Subscriptions", compiled.draw),
    "bus": ("Bus", bus_timeline.draw),
    "channels": ("Channels", channels.draw),
    "traffic": ("Traffic", traffic.draw),
    "truth": ("Truth", truth.draw),
    "refit": ("Refit", refit.draw),
    "order": ("Order", lateness.draw),
    "throughput": ("Speed", throughput.draw),
}
"""The anchor of each section, its short name, and what draws it."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""A browser refuses to fetch anything for this page."""


def write_report(results: Results, path: Path | str) -> Path:
    """Write the page of a run, and its folder if need be; gives the path it was written to."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(results), encoding="utf-8")
    except OSError as problem:
        raise GenusError(
            f"cannot write the report {target}: {problem.strerror or problem}; choose another path"
        ) from problem
    return target


def page(results: Results) -> str:
    """The page of a run as text."""
    sections = (draw(results) for _, draw in SECTIONS.values())
    body = element(
        "body",
        element("a", "Skip to the results", href="#main", class_="skip"),
        _navigation(),
        element("main", headline.draw(results), *sections, id="main"),
        _foot(results),
        element("div", id="tip", hidden=True, aria_hidden="true"),
        element("script", verbatim(_part("script.js"))),
    )
    return "<!DOCTYPE html>\n" + element("html", element("head", *_head(results)), body, lang="en") + "\n"


def _head(results: Results) -> Iterator[Markup]:
    yield element("meta", charset="utf-8")
    yield element("meta", http_equiv="Content-Security-Policy", content=_POLICY)
    yield element("meta", name="viewport", content="width=device-width, initial-scale=1")
    yield element("meta", name="color-scheme", content="light dark")
    yield element("title", f"Genus: traffic at {len(results.sites)} sites, {results.start:%Y-%m-%d %H:%M}")
    yield element("style", verbatim(_part("style.css")))


def _navigation() -> Markup:
    links = (element("a", name, href=f"#{anchor}") for anchor, (name, _) in SECTIONS.items())
    theme = element("button", "Theme", type="button", id="theme", hidden=True, aria_label="light or dark")
    return element(
        "nav", element("strong", "Genus"), element("div", *links, class_="links"), theme, aria_label="Sections"
    )


def _foot(results: Results) -> Markup:
    again = f"genus demo traffic --sites {len(results.sites)} --minutes {results.minutes:g} --seed {results.seed}"
    says = f"Seed {results.seed}, {results.machine}, Spark at {results.master}. The same again: "
    return element("footer", element("p", says, element("code", again)))


def _part(name: str) -> str:
    return files("genus_traffic.report").joinpath(name).read_text(encoding="utf-8")
