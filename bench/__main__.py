"""`make bench`: measure the tables of the pages that are not measured yet from these sources, and write them.

A table stands in its page between `<!-- python -m bench NAME -->` and `<!-- end -->`, with a line that says when it was
measured, at which load, and from which sources: a digest of `src/genus` and `bench`. So a run that was stopped goes on
where it was. `python -m bench NAME ...` measures some tables anew, `python -m bench --all` all. Each is measured in a
process of its own; what fails, or needs a program that is missing, is said in its place and at the end.
"""

import json
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from importlib import import_module
from os import getloadavg
from pathlib import Path
from typing import Any, NamedTuple

from bench.page import read_blocks, write_block
from bench.timing import MISSED
from bench.tools import MissingTool, check_tools

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
STAMP = re.compile(r"^Measured on (?P<day>\S+) at a load of \S+ from sources (?P<sources>\w+)\.$", re.MULTILINE)
NOT_MEASURED = "Not measured: "


class Step(NamedTuple):
    """What is measured at once: the tables it gives, the module that does it, and how; its page; what it needs."""

    tables: tuple[str, ...]
    module: str
    measure: Callable[[Any], Mapping[str, str]]
    page: str
    needs: tuple[str, ...] = ()


def step(
    name: str,
    module: str,
    measure: Callable[[Any], str] = lambda bench: bench.table(),
    page: str = "benchmarks",
    needs: tuple[str, ...] = (),
) -> Step:
    """A step that gives one table; its module, which may need the extra `bench`, is imported when it is measured."""
    return Step((name,), module, lambda bench: {name: measure(bench)}, page, needs)


def _of_run(bench: Any) -> str:
    return str(bench.table(bench.run()))


def _measure_dispatch(bench: Any) -> str:
    """The table of publishing; draws the picture, too."""
    published = bench.run()
    draw(published, DOCS / "benchmarks.svg")
    return str(bench.table(published))


STEPS = (
    step("dispatch", "bench.dispatch", _measure_dispatch),
    step("importing", "bench.importing", _of_run),
    step("engine", "bench.engine"),
    step("simulator", "bench.simulator", _of_run),
    Step(("routing", "predicates"), "bench.routing", lambda bench: bench.tables(), "benchmarks"),
    step("local_reader", "bench.local_reader"),
    step("ingest", "bench.ingest", _of_run),
    step("logs", "bench.can_logs"),
    step("foreign", "bench.can_foreign"),
    step("streaming", "bench.streaming", _of_run),
    step("ipc", "bench.ipc", _of_run),
    step("zenoh", "bench.zenoh"),
    step("mqtt", "bench.mqtt", lambda bench: bench.run(), needs=("mosquitto",)),
    step("cloudevents", "bench.cloudevents"),
    step("recordings", "bench.recordings"),
    step("device_codes", "bench.device_codes"),
    step("device_frames", "bench.device_frames"),
    step("coap", "bench.coap", lambda bench: bench.run()),
    step("studio", "bench.studio", needs=("chromium",)),
    step("plots", "bench.plots", needs=("chromium",)),
    step("node_sizes", "bench.node_sizes", page="devices-node", needs=("avr-gcc", "arm-none-eabi-gcc")),
    step("admission", "bench.admission", page="can-planning"),
    step("network_faults", "bench.network_faults", page="networks", needs=("mosquitto",)),
    step("fault_table", "tests.can.fault_table.__main__", page="can-simulator"),
)


def machine() -> str:
    """What this was measured on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        cores = sum(line.startswith("processor") for line in lines)
    except (OSError, StopIteration):
        model, cores = platform.processor() or platform.machine(), 0
    return (
        f"{model}, {cores} cores, {platform.python_implementation()} {platform.python_version()}, {platform.system()}"
    )


def draw(times: dict[str, dict[str, float]], file: Path) -> None:
    """Bars per library, one panel per case, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "genus"
    from matplotlib import pyplot

    cases = list(next(iter(times.values())))
    figure, panels = pyplot.subplots(1, len(cases), figsize=(12, 3.4), sharey=True, layout="constrained")
    names = list(times)[::-1]
    for panel, case in zip(panels, cases, strict=True):
        values = [times[name][case] / 1e3 for name in names]
        colours = ["#d1495b" if name == "genus" else "#8d99ae" for name in names]
        bars = panel.barh(names, values, color=colours)
        panel.bar_label(bars, [f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in values], padding=3)
        panel.set_xscale("log")
        panel.set_xlim(min(values) / 2, max(values) * 6)
        count, _, rest = case.partition(",")
        panel.set_title(f"{count} handler{'' if count == '1' else 's'}{',' if rest else ''}{rest}", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("µs per published event (logarithmic)", fontsize=9)
    figure.savefig(file, metadata={"Date": None})


def digest_sources() -> str:
    """What tells one version of `src/genus` and `bench` from another."""
    found = sha256()
    for folder in ("src/genus", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:10]


def is_measured(each: Step, sources: str) -> bool:
    """Whether all tables of a step were measured from these sources."""
    blocks = read_blocks((DOCS / f"{each.page}.md").read_text())
    stamps = (STAMP.search(blocks.get(f"python -m bench {name}", "")) for name in each.tables)
    return all(stamp is not None and stamp["sources"] == sources for stamp in stamps)


def measure(each: Step) -> dict[str, str]:
    """The tables of a step by names, from a process of its own; MissingTool says what is missing."""
    check_tools(*each.needs)
    command = [sys.executable, "-m", "bench", "--measure", each.tables[0]]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    if missing := found.get("missing"):
        raise MissingTool(missing)
    return found


def measure_here(name: str) -> dict[str, str]:
    """The tables of a step by names, measured in this process; `missing` says what is missing."""
    each = next(each for each in STEPS if name in each.tables)
    try:
        return dict(each.measure(import_module(each.module)))
    except MissingTool as problem:
        return {"missing": str(problem)}
    except ModuleNotFoundError as problem:
        return {"missing": f"not installed: {problem.name}. make bench installs genus[bench]"}


def write(each: Step, texts: Mapping[str, str]) -> None:
    """Write texts into the page of a step, and the machine."""
    page = DOCS / f"{each.page}.md"
    text = page.read_text()
    for name in each.tables:
        text = write_block(text, f"python -m bench {name}", texts[name])
    page.write_text(text)
    page = DOCS / "benchmarks.md"
    page.write_text(write_block(page.read_text(), "python -m bench machine", f"The machine: {machine()}."))


def perform(each: Step) -> str:
    """Measure a step and write its tables, or why there are none; returns what to say of it."""
    sources = digest_sources()
    try:
        found = measure(each)
    except (MissingTool, subprocess.CalledProcessError) as problem:
        reason = str(problem) if isinstance(problem, MissingTool) else "it failed"
        write(each, dict.fromkeys(each.tables, f"{NOT_MEASURED}{reason}."))
        return f"{NOT_MEASURED}{reason}"
    stamp = f"Measured on {datetime.now(UTC):%Y-%m-%d} at a load of {getloadavg()[0]:.1f} from sources {sources}."
    write(each, {name: f"{table}\n\n{stamp}" for name, table in found.items()})
    missed = sum(table.count(MISSED) for table in found.values())
    return f"{missed} missed" if missed else "done"


def main(arguments: list[str]) -> None:
    """Measure the named tables, all, or those that are not measured yet; exit code 1 if one failed."""
    known = [name for each in STEPS for name in each.tables]
    names = set(arguments) - {"--all"}
    if {"-h", "--help"} & names:
        print(f"{__doc__}\nTables: {', '.join(known)}")
        return
    if unknown := names - set(known):
        sys.exit(f"there is no table {min(unknown)}; there are {', '.join(known)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # ends the process that measures, too
    chosen = [each for each in STEPS if not names or names & set(each.tables)]
    if not arguments:
        sources = digest_sources()
        chosen = [each for each in chosen if not is_measured(each, sources)]
    began, said = time.monotonic(), dict[str, str]()
    for number, each in enumerate(chosen, 1):
        name, started = ", ".join(each.tables), time.monotonic()
        _say(f"{number} of {len(chosen)}: {name} ({started - began:,.0f} s so far) ...")
        said[name] = perform(each)
        _say(f"    {said[name]} in {time.monotonic() - started:,.0f} s")
    _say(f"{len(chosen)} of {len(STEPS)} steps in {time.monotonic() - began:,.0f} s; the others were measured before")
    for name, text in said.items():
        if text != "done":
            _say(f"{name}: {text}")
    if any(text.endswith("it failed") for text in said.values()):
        sys.exit(1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure_here(sys.argv[2])))
    else:
        main(sys.argv[1:])
