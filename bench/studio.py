"""Studio: how far behind the page is, how smooth, what the server takes, and what publishing loses.

A publisher and `genus studio` are processes of their own, connected by `ipc:`; the page is in Debian's chromium, driven
by Playwright. The lag is the time from publishing an event to the frame after which the page shows it in the table of
channels: a marker is published every 100 ms, and an observer in the page notes when its counter is written. Publishing
is measured in one process that opens Studio on its own bus, with a page connected in another process and without.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.timing import goal, markdown
from genus.cli._doctor import find_program

CHROMIUM = find_program("chromium") or "chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LOADS = ((1_000, 60), (20_000, 300))
"""Events a second, and over how many channels."""
SETTLE_S, MEASURE_S = 4.0, 15.0
MARKER_S = 0.1
TICK = os.sysconf("SC_CLK_TCK")

OBSERVE = """
() => {
  window.shown = []; window.frames = 0; window.began = performance.now();
  const row = document.querySelector('[data-key$="|AMarker|publisher"]');
  const note = () => {
    const text = row.lastElementChild.textContent.replace(/[^0-9]/g, "");
    if (text === window.last) return;
    window.last = text;
    requestAnimationFrame(() => window.shown.push([Number(text), Date.now()]));
  };
  new MutationObserver(note).observe(row, {subtree: true, childList: true, characterData: true});
  const count = () => { window.frames += 1; requestAnimationFrame(count); };
  requestAnimationFrame(count);
}
"""


def types_text(channels: int) -> str:
    names = ["AMarker", *(f"Channel{number:03}" for number in range(channels - 1))]
    return "from genus import Event\n" + "".join(f"class {name}(Event):\n    number: int\n\n" for name in names)


# -- the publisher, a process of its own -------------------------------------------------------------------------------


def publish(address: str, types: str, rate: int, times: str) -> None:
    """Publish evenly over all channels until standard input ends; write when each marker was published."""
    from genus import open_bus
    from genus.catalog import types_in
    from genus.codes import load_module

    classes: list[Any] = list(types_in(load_module(types)))
    marker, others = classes[0], classes[1:]
    step_s = 0.005
    with open_bus(address, source="publisher") as bus, open(times, "w") as log:
        assert bus.link is not None
        while not bus.link.wanted_by(marker(number=0)):
            time.sleep(0.01)
        sent = markers = 0
        began = marked = time.monotonic()
        while not _is_over():
            now = time.monotonic()
            due = int((now - began) * rate)
            while sent < due:
                bus.publish(others[sent % len(others)](number=sent))
                sent += 1
            if now - marked >= MARKER_S:
                marked, markers = now, markers + 1
                at_ms = time.time() * 1000
                bus.publish(marker(number=markers))
                log.write(f"{markers} {at_ms:.3f}\n")
                log.flush()
            time.sleep(max(0.0, step_s - (time.monotonic() - now)))
        print(json.dumps({"rate": sent / (time.monotonic() - began)}))


def _is_over() -> bool:
    import select

    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


# -- the page ----------------------------------------------------------------------------------------------------------


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block."""
    started = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.terminate()
        started.communicate(timeout=20)


def measure_load(rate: int, channels: int, folder: Path) -> dict[str, float]:
    """Lag, frames a second and CPU of the server at a load."""
    from playwright.sync_api import sync_playwright

    types, times = folder / f"types{channels}.py", folder / f"times{channels}"
    types.write_text(types_text(channels))
    address = f"ipc:bench-studio-{os.getpid()}-{channels}"
    studio = ("genus", "studio", "-t", str(types), "--port", "0", address)
    publisher = ("bench.studio", "publish", address, str(types), str(rate), str(times))
    with process(*studio) as server, sync_playwright() as player, ExitStack() as stack:
        assert server.stderr is not None
        url = server.stderr.readline().removeprefix("Studio: ").strip()
        source = stack.enter_context(process(*publisher))
        assert source.stdin is not None
        assert source.stdout is not None
        browser = player.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{url}#channels")
        page.wait_for_selector('[data-key$="|AMarker|publisher"]')
        page.wait_for_timeout(1000 * SETTLE_S)
        page.evaluate(OBSERVE)
        before, began = cpu_s(server.pid), time.monotonic()
        page.wait_for_timeout(1000 * MEASURE_S)
        share = (cpu_s(server.pid) - before) / (time.monotonic() - began)
        shown = page.evaluate("() => window.shown")
        frames = page.evaluate("() => window.frames / (performance.now() - window.began) * 1000")
        browser.close()
        source.stdin.write("\n")
        source.stdin.flush()
        reached = json.loads(source.stdout.readline())["rate"]
        time.sleep(1)
        counted = _count(url)
    lags = sorted(_lags(shown, counted, times.read_text()))
    return {
        "reached": reached,
        "p50": statistics.median(lags),
        "p99": lags[min(len(lags) - 1, int(0.99 * len(lags)))],
        "markers": len(lags),
        "frames": frames,
        "share": share,
    }


def _count(url: str) -> int:
    """How many markers Studio has seen; the first may have come before it had joined."""
    with urllib.request.urlopen(f"{url}api/channels") as answer:
        rows = json.load(answer)
    return next(int(row["events"]) for row in rows.values() if row["type"] == "AMarker")


def _lags(shown: list[tuple[int, float]], counted: int, times: str) -> Iterator[float]:
    """From the publishing of each marker to the first frame that shows it, or a later one."""
    published = [float(line.split()[1]) for line in times.splitlines()][-counted:]
    ordered = sorted(shown)
    first, last = ordered[0][0], ordered[-1][0]
    for number in range(first + 1, last + 1):
        at = next(at for count, at in ordered if count >= number)
        yield at - published[number - 1]


# -- publishing with Studio open ---------------------------------------------------------------------------------------

EVENTS, WARM_UP, WINDOWS, ROUNDS = 800_000, 200_000, 3, 20
"""A window is long enough for several turns of Studio; of those of a round, the one that was disturbed least counts."""
PACE, PACED_S = 20_000, 2.0


def publish_here() -> None:
    """Publish as fast as one process can, in turns with Studio open and not; write the events a second."""
    from genus import Event, open_bus, this

    classes = [type(f"Here{number:02}", (Event,), {"__annotations__": {"number": int}}) for number in range(20)]
    found: dict[str, list[Any]] = {"without": [], "with": [], "events": [], "paced": [], "paced events": []}
    with open_bus() as bus:
        for cls in classes:
            bus.collection(cls).subscribe(len_of)
            bus.collection(cls).subscribe(len_of, where=this.number > 10)
        events = [cls(number=number) for number, cls in enumerate(classes)]
        for number in range(ROUNDS):
            if number % 2:
                found["without"].append(_speed(bus.publish, events))
            for name, view in (("with", "tables=sources,problems,channels"), ("events", "events")):
                if name == "with" or number < ROUNDS // 4:
                    with bus.studio() as studio, _reader(studio.url, view):
                        found[name].append(_speed(bus.publish, events))
            if not number % 2:
                found["without"].append(_speed(bus.publish, events))
        for _ in range(ROUNDS // 4):
            found["paced"].append(_paced(bus.publish, events))
            with bus.studio() as studio, _reader(studio.url, "events"):
                found["paced events"].append(_paced(bus.publish, events))
    print(json.dumps(found))


def len_of(event: Any) -> None:
    """A handler that does next to nothing."""


def _speed(publish: Any, events: list[Any]) -> float:
    """Events a second, once the bus has generated its code after a change of subscriptions."""
    _publish_all(publish, events, WARM_UP)
    found = []
    for _ in range(WINDOWS):
        began = time.perf_counter()
        _publish_all(publish, events, EVENTS)
        found.append(EVENTS / (time.perf_counter() - began))
    return max(found)


def _publish_all(publish: Any, events: list[Any], number: int) -> None:
    for _ in range(number // len(events)):
        for event in events:
            publish(event)


def _paced(publish: Any, events: list[Any]) -> tuple[float, float]:
    """The events a second of a program that publishes `PACE` of them, and the share of a core that its thread takes."""
    _publish_all(publish, events, 10 * len(events))
    sent, began, spent = 0, time.perf_counter(), time.thread_time()
    while (passed := time.perf_counter() - began) < PACED_S:
        due = round(PACE * passed) - sent
        _publish_all(publish, events, due)
        sent += due - due % len(events)
        time.sleep(0.001)
    return sent / passed, (time.thread_time() - spent) / passed


@contextmanager
def _reader(url: str, view: str) -> Iterator[None]:
    """A page, in another process, that reads the stream of a view."""
    path = "api/events/stream?q=Event" if view == "events" else f"api/stream?{view}"
    code = "import sys, urllib.request\nwith urllib.request.urlopen(sys.argv[1]) as r:\n    [0 for _ in r]"
    reader = subprocess.Popen([sys.executable, "-c", code, f"{url}{path}"], stderr=subprocess.DEVNULL)
    with urllib.request.urlopen(f"{url}api/config"):
        time.sleep(0.5)
    try:
        yield
    finally:
        reader.terminate()
        reader.wait()


def measure_publishing() -> dict[str, Any]:
    """Events a second without Studio, as shares of that with a page on channels and on events, and at a given pace."""
    done = subprocess.run([sys.executable, "-m", "bench.studio", "here"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    without = found["without"]
    return {
        "without": statistics.median(without),
        "with": statistics.median(one / other for one, other in zip(found["with"], without, strict=True)),
        "events": statistics.median(one / other for one, other in zip(found["events"], without, strict=False)),
        **{name: list(map(statistics.median, zip(*found[name], strict=True))) for name in ("paced", "paced events")},
    }


# -- the table ---------------------------------------------------------------------------------------------------------


def table() -> str:
    """The figures as Markdown."""
    publishing = measure_publishing()
    kept = 100 * publishing["paced events"][0] / publishing["paced"][0]
    lines = [
        ["without Studio", f"{publishing['without']:,.0f} events/s"],
        ["a page on the table of channels", f"{publishing['with']:.3f} of that"],
        ["a page on all events", f"{publishing['events']:.3f} of that"],
        [f"at a pace of {PACE:,}, without Studio", _pace(*publishing["paced"])],
        [
            f"at a pace of {PACE:,}, a page on all events",
            goal(_pace(*publishing["paced events"]), kept, at_least=80, unit=" % of without"),
        ],
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for rate, channels in LOADS:
            one = measure_load(rate, channels, Path(folder))
            lag, frames = f"{one['p50']:.0f} / {one['p99']:.0f} ms", f"{one['frames']:.0f}"
            rows.append(
                [
                    f"{one['reached']:,.0f} events/s over {channels} channels",
                    goal(lag, one["p99"], at_most=100, unit=" ms") if rate == LOADS[0][0] else lag,
                    frames if rate == LOADS[0][0] else goal(frames, one["frames"], at_least=30),
                    f"{one['share']:.1%}",
                ]
            )
    heads = ["load", "lag p50 / p99", "frames/s", "server, of a core"]
    return f"{markdown(heads, rows)}\n\n{markdown(['publishing in one process', 'speed'], lines)}"


def _pace(rate: float, share: float) -> str:
    return f"{rate:,.0f} events/s, {share:.1%} of a core"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publish", address, types, rate, times]:
            publish(address, types, int(rate), times)
        case ["here"]:
            publish_here()
        case _:
            print(table())
