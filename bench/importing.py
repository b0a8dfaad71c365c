"""What `import genus` costs, in a fresh interpreter each time."""

import subprocess
import sys

from bench.timing import goal, markdown

STATEMENTS = ("pass", "import msgspec", "import asyncio", "import genus")


def run(times: int = 15) -> dict[str, float]:
    """Milliseconds of each import alone, the least of several."""
    return {statement: min(_milliseconds(statement) for _ in range(times)) for statement in STATEMENTS}


def _milliseconds(statement: str) -> float:
    code = f"import time; began = time.perf_counter(); {statement}; print(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout) * 1e3


def table(times: dict[str, float]) -> str:
    cells = {name: f"{ms:.1f}" for name, ms in times.items() if name != "pass"}
    cells["import genus"] = goal(cells["import genus"], times["import genus"], at_most=80)
    return markdown(["statement", "ms"], [[f"`{name}`", cell] for name, cell in cells.items()])


if __name__ == "__main__":
    print(table(run()))
