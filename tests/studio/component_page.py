"""A page with the components of Studio and nothing else, for tests that draw with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from genus.studio import bundle, stylesheet, vendor

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def component_page(browser: "Browser", *names: str, **options: Any) -> Iterator["Page"]:
    """A page whose scripts know `studio`, with the exports of some components; errors of scripts fail the test."""
    page = browser.new_page(**options)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        style = f"<style>{vendor('uPlot.min.css')}\n{stylesheet()}</style>"
        script = f"<script>{vendor('uPlot.iife.min.js')}\n{bundle(*names)}</script>"
        page.set_content(f"<!DOCTYPE html><html lang=en><head>{style}</head><body><main></main>{script}</body></html>")
        yield page
        assert not errors
    finally:
        page.close()
