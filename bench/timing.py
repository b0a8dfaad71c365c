"""Fair times on a noisy machine: contestants take turns, and the least of many windows counts; cells of tables.

A contestant is a statement and the names it uses, so that nothing but the statement is timed.
"""

import math
import time
import timeit
from collections.abc import Mapping
from typing import Any, TypeAlias

Contestant: TypeAlias = tuple[str, dict[str, Any]]

MISSED = "✗"
"""What marks a figure that misses its goal."""
WINDOWS = 25
WINDOW_SECONDS = 0.02


def least_ns(contestants: Mapping[str, Contestant], windows: int = WINDOWS) -> dict[str, float]:
    """Nanoseconds of CPU per execution of each statement, measured in turn in the same run."""
    timers = {
        name: timeit.Timer(statement, globals=names, timer=time.process_time)
        for name, (statement, names) in contestants.items()
    }
    calls = {name: _calls_per_window(timer) for name, timer in timers.items()}
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(windows):
        for name, timer in timers.items():
            best[name] = min(best[name], timer.timeit(calls[name]) / calls[name] * 1e9)
    return best


def _calls_per_window(timer: timeit.Timer) -> int:
    timer.timeit(3)  # what is made with the first event is made now
    calls = 1
    while timer.timeit(calls) < WINDOW_SECONDS / 2:
        calls *= 2
    return calls


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def human(ns: float) -> str:
    """Nanoseconds in three figures."""
    if ns < 1e4:
        return f"{ns:,.0f} ns"
    return f"{ns / 1e3:,.1f} µs" if ns < 1e6 else f"{ns / 1e6:,.2f} ms"


def goal(cell: str, value: float, *, at_least: float = -math.inf, at_most: float = math.inf, unit: str = "") -> str:
    """A cell with the goal of its value; bold and with a cross if it is missed.

    >>> goal("1.4×", 1.4, at_least=1, unit="×"), goal("90 ms", 90, at_most=80, unit=" ms")
    ('1.4× (goal ≥ 1×)', '**90 ms (goal ≤ 80 ms)** ✗')
    """
    bound = f"≥ {at_least:,g}{unit}" if at_most == math.inf else f"≤ {at_most:,g}{unit}"
    return f"{cell} (goal {bound})" if at_least <= value <= at_most else f"**{cell} (goal {bound})** {MISSED}"
