"""The pictures of Studio: `python -m docs.pictures.studio_page` simulates a city, and takes them in Debian's chromium.

They are photographs of a running page, so they differ a little each time and no test compares them.
"""

from pathlib import Path

from genus.studio import open_source, open_studio

DOCS = Path(__file__).parents[1]
CHROMIUM = "/usr/bin/chromium"
VIEWS = {
    "studio.png": "overview",
    "studio-can.png": "can",
    "studio-events.png": "events?q=Loop%20where%20lane%20%3E%200",
}
WIDTH, HEIGHT = 1200, 900
MINUTE_MS = 62_000
"""Until then the lines of the last minute are full."""


def take_pictures() -> None:
    """Take the pictures of all views, each once it has something to show."""
    from playwright.sync_api import sync_playwright

    with open_studio(*open_source("sim:traffic"), title="sim:traffic") as studio, sync_playwright() as player:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = player.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"{studio.url}#overview")
        page.wait_for_timeout(MINUTE_MS)
        for name, view in VIEWS.items():
            page.goto(f"{studio.url}#{view}")
            page.wait_for_timeout(4000)
            page.screenshot(path=str(DOCS / name))
            print(DOCS / name)
        browser.close()


if __name__ == "__main__":
    take_pictures()
