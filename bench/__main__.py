"""`make bench`: measure all tables of docs/benchmarks.md, or some: `python -m bench NAME ...`; and its picture.

The text of the page is in the page; a table stands between `<!-- python -m bench NAME -->` and `<!-- end -->`.
"""

import platform
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from os import getloadavg
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

from bench.page import write_block

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"


class Step(NamedTuple):
    """What is measured at once: the tables it gives, the module that does it, and how; others that name columns."""

    tables: tuple[str, ...]
    module: str
    measure: Callable[[Any], Mapping[str, str]]
    others: tuple[str, ...] = ()


def step(name: str, module: str, measure: Callable[[Any], str] = lambda bench: bench.table(bench.run())) -> Step:
    """A step that gives one table; its module, which may need the extra `bench`, is imported when it is measured."""
    return Step((name,), module, lambda bench: {name: measure(bench)})


def _measure_dispatch(bench: Any) -> str:
    """The table of publishing; draws the picture, too."""
    published = bench.run()
    draw(published, DOCS / "benchmarks.svg")
    return str(bench.table(published))


STEPS = (
    step("dispatch", "dispatch", _measure_dispatch),
    step("engine", "engine", lambda bench: bench.table()),  # about five minutes
    step("simulator", "simulator"),
    Step(("routing", "predicates"), "routing", lambda bench: bench.tables()),  # about five minutes
    step("local_reader", "local_reader", lambda bench: bench.table()),
    step("ingest", "ingest"),
    step("logs", "can_logs", lambda bench: bench.table()),  # about three minutes
    step("streaming", "streaming"),
    step("ipc", "ipc"),
    step("zenoh", "zenoh", lambda bench: bench.rates_table(bench.ROUNDS)),
    step("mqtt", "mqtt", lambda bench: bench.run() if which("mosquitto") else "mosquitto is not installed."),
    step("recordings", "recordings", lambda bench: bench.table()),
    Step(("device_frames",), "devices", lambda bench: bench.tables(), ("device_frames", "device_nanopb")),
    step("coap", "coap", lambda bench: bench.run()),
    step("studio", "studio", lambda bench: bench.table()),
    step("plots", "plots", lambda bench: bench.table()),
    step("importing", "importing"),
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


def main(names: list[str]) -> None:
    """Measure the named tables, or all, and write each into the page when it is known."""
    known = [name for each in STEPS for name in each.tables]
    if {"-h", "--help"} & set(names):
        sys.exit(f"{__doc__}\nTables: {', '.join(known)}")
    if unknown := set(names) - set(known):
        sys.exit(f"there is no table {min(unknown)}; there are {', '.join(known)}")
    chosen = [each for each in STEPS if not names or set(each.tables) & set(names)]
    for number, each in enumerate(chosen, 1):
        print(f"measuring {', '.join(each.tables)} ({number} of {len(chosen)}) ...", file=sys.stderr, flush=True)
        found = each.measure(import_module(f"bench.{each.module}"))
        measured = f"Measured on {datetime.now(UTC):%Y-%m-%d} at a load of {getloadavg()[0]:.1f}."
        text = write_block(PAGE.read_text(), "python -m bench machine", f"The machine: {machine()}.")
        for name, table in found.items():
            text = write_block(text, f"python -m bench {name}", f"{table}\n\n{measured}")
        PAGE.write_text(text)
    print(f"wrote {PAGE}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
