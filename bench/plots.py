"""Plots of a whole recording: how long until the first one is drawn, and until a zoom is.

`genus studio` is a process of its own, the page is in Debian's chromium. Time begins when the address of the page
changes or the wheel turns, and ends with the frame after which the page shows all points of the range. The first plot
is measured with a new server each time: nothing is read before. The CPU time of the server says what a machine that is
busy with other things would do if it were not.
"""

import math
import statistics
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.studio import CHROMIUM, FLAGS, cpu_s, process
from bench.timing import goal, markdown

EVENTS, ROUNDS, ZOOMS = 1_000_000, 3, 12
BEGIN = datetime(2026, 3, 2, 6, tzinfo=UTC)
TYPES = """
from typing import Annotated
from genus import Event, Unit

class BenchLevel(Event):
    tank: str
    level: Annotated[float, Unit("m")]

class BenchTemperature(Event):
    tank: str
    temperature: Annotated[float, Unit("degC")]
"""
CASES = {
    "one line of 500,000 points": "BenchLevel.level",
    "four tanks of one type, 500,000 points": "BenchLevel.level by tank",
    "four tanks, two units, 1,000,000 points": "BenchLevel.level,BenchTemperature.temperature by tank",
}

DRAWN = """
async (change) => {
  const asked = () => performance.getEntriesByType("resource").filter((one) => one.name.includes("/api/plot?"));
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const text = (selector) => document.querySelector(selector)?.textContent ?? "";
  const isDrawn = () => text(".chart-legend b").match(/\\d/) && !text(".plot-said");
  performance.clearResourceTimings();
  const began = performance.now();
  new Function(change)();
  while (!asked().some((one) => one.responseEnd > began) || !isDrawn()) await frame();
  await frame();
  return performance.now() - began;
}
"""
WHEEL = """
const over = document.querySelector(".u-over"), box = over.getBoundingClientRect();
const place = {clientX: box.left + box.width * %f, clientY: box.top + 20, deltaY: %d};
over.dispatchEvent(new WheelEvent("wheel", {...place, bubbles: true, cancelable: true}));
"""


def write_recording(path: Path, types: Path) -> None:
    """A day of a plant: two types in turn, four tanks."""
    from genus.bus import RecordingWriter
    from genus.catalog import types_in
    from genus.codes import load_module

    level, temperature = (cls for cls in types_in(load_module(str(types))))
    step_s = 86_400 / EVENTS
    with RecordingWriter(path) as writer:
        for number in range(EVENTS):
            at = BEGIN + timedelta(seconds=number * step_s)
            tank, wave = f"T{number // 2 % 4}", math.sin(number / 30_000 + number // 2 % 4)
            values: dict[str, Any] = {"level": 2 + wave} if number % 2 == 0 else {"temperature": 60 + 20 * wave}
            cls: Any = temperature if number % 2 else level
            writer.write(cls(tank=tank, time=at, source="plc", **values), round(at.timestamp() * 1e6))


def measure(case: str, recording: Path, types: Path, browser: Any) -> tuple[float, float, list[float]]:
    """The milliseconds until a first plot, of the server's CPU for it, and until each of some zooms in and out."""
    with process("genus", "studio", "-t", str(types), "--port", "0", str(recording)) as server:
        assert server.stderr is not None
        url = server.stderr.readline().removeprefix("Studio: ").strip()
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{url}#plot")
        page.wait_for_selector(".plot-chip")
        page.get_by_role("button", name="pause").first.click()
        page.wait_for_timeout(1000)
        before = cpu_s(server.pid)
        first = page.evaluate(DRAWN, f"location.hash = 'plot?series={case.replace(' ', '+')}'")
        used = 1000 * (cpu_s(server.pid) - before)
        page.wait_for_timeout(500)
        zooms = []
        for number in range(ZOOMS):
            delta = -400 if number < ZOOMS * 2 // 3 else 400
            zooms.append(page.evaluate(DRAWN, WHEEL % (0.3 + 0.4 * (number % 2), delta)))
            page.wait_for_timeout(100)
        page.close()
    return first, used, zooms


def table() -> str:
    """The figures as Markdown."""
    from playwright.sync_api import sync_playwright

    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as player:
        types, recording = Path(folder) / "plant.py", Path(folder) / "day.genus"
        types.write_text(TYPES)
        write_recording(recording, types)
        browser = player.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name, case in CASES.items():
            found = [measure(case, recording, types, browser) for _ in range(ROUNDS)]
            zooms = sorted(zoom for *_, each in found for zoom in each)
            late = zooms[int(0.95 * len(zooms))]
            firsts = sorted(first for first, *_ in found)
            median = statistics.median(firsts)
            rows.append(
                [
                    name,
                    goal(f"{firsts[0]:,.0f} / {median:,.0f} ms", median, at_most=1000, unit=" ms"),
                    f"{min(used for _, used, _ in found):,.0f} ms",
                    goal(f"{statistics.median(zooms):,.0f} / {late:,.0f} ms", late, at_most=100, unit=" ms"),
                ]
            )
        browser.close()
    heads = [
        f"a recording of {EVENTS:,} events",
        "first plot, best / median",
        "CPU of the server",
        "zoom, median / 95 of 100",
    ]
    return markdown(heads, rows)


if __name__ == "__main__":
    print(table())
