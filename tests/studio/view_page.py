"""A view of Studio's page in a browser, for tests; errors of scripts fail the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from genus import Bus, Event, Maybe, Unit
from genus.studio import Studio, open_studio
from genus.studio._bus_source import BusSource

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = '<img src=x onerror="window.hacked = 1">'


class SeenLoop(Event):
    """An induction loop saw a vehicle."""

    lane: int
    speed: Maybe[Annotated[float, Unit("m/s")]] = None
    note: Maybe[str] = None


class SeenGate(Event):
    """A barrier moved."""

    open: bool


def studio_of(bus: Bus, **options: Any) -> Studio:
    """The page of a bus with these types alone: the process of the tests has declared thousands of others."""
    source = BusSource(bus, name="this process", address="this process", types=(SeenLoop, SeenGate))
    return open_studio(source, **options)


@contextmanager
def view_page(browser: "Browser", studio: Studio, view: str, **options: Any) -> Iterator["Page"]:
    """The page at the address of a view, such as `events?q=SeenLoop`."""
    page = browser.new_page(**options)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    try:
        page.goto(f"{studio.url}#{view}")
        yield page
        assert not errors
    finally:
        page.close()
