"""The table of faults in docs/networks.md; `python -m bench.network_faults WORD ...` runs those that have a word.

A fault is a function that gets a folder of its own and returns the counts that it checked; the tests run the same
functions, with fewer or smaller cases.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import NamedTuple

from tests.net import gateway_kills
from tests.net.fault_counts import NONE, Counts
from tests.net.test_gateway_losses import run_with_full_disk, run_with_full_spool
from tests.net.test_mqtt_kill import kill_and_restart
from tests.net.test_zenoh_survivors import kill_or_pause_in_turn

HEADING = (
    "| fault | sent | delivered | of these twice | reported lost at the receiver | at the sender | test |\n"
    "|---|---:|---:|---:|---:|---:|---|"
)
KILLS = int(os.environ.get("GENUS_KILLS", "207"))


class Fault(NamedTuple):
    """A row: what is done to events, the function that does it, and the test that has the law."""

    text: str
    run: Callable[[Path], Counts]
    test: str
    most_twice: int = 0
    """How many events may come again."""


def _seeds(run: Callable[[Path, int], Counts], seeds: range) -> Callable[[Path], Counts]:
    """The sum over seeds."""
    return lambda folder: reduce(Counts.plus, (run(folder / str(seed), seed) for seed in seeds), NONE)


def _kill_gateways(folder: Path) -> Counts:
    """The sum over all pairs of networks."""
    pairs = [*product(("ipc", "zenoh", "mqtt"), repeat=2)]
    runs = (
        gateway_kills.run(folder / str(seed), road=road, city=city, kills=KILLS // len(pairs), seed=seed)
        for seed, (road, city) in enumerate(pairs)
    )
    return reduce(Counts.plus, runs, NONE)


def _kill_session(folder: Path, seed: int, *, with_file: bool) -> Counts:
    folder.mkdir(parents=True)
    return kill_and_restart(folder, seed, count=2100, kills=8, seconds=0.001, with_file=with_file)


FAULTS = (
    Fault(f"the active one of two gateways killed {KILLS} times, between all pairs of `ipc:`, `zenoh:` and `mqtt:`, "
          "the receiver stopped every second time", _kill_gateways, "test_gateway_kills"),
    Fault(
        "the same, 10 times, CAN (`udp_multicast`) to `ipc:`",
        partial(gateway_kills.run, road="can", city="ipc", kills=10, seed=1),
        "test_gateway_kills",
    ),
    Fault("a gateway's disk full at times, its side gone at times, 60 seeds", _seeds(run_with_full_disk, range(60)),
          "test_gateway_losses"),
    Fault("a gateway's side gone, its spool full", run_with_full_spool, "test_gateway_losses"),
    Fault("`zenoh:` without a server: each of four processes killed or paused in turn, 3 seeds",
          _seeds(lambda folder, seed: kill_or_pause_in_turn(seed), range(3)), "test_zenoh_survivors"),
    Fault("a slow subscriber of `mqtt:` with `session=` and `session_file=` killed 8 times, 2 seeds",
          _seeds(partial(_kill_session, with_file=True), range(2)), "test_mqtt_kill", most_twice=16),
    Fault("the same without `session_file=`",
          _seeds(partial(_kill_session, with_file=False), range(2)), "test_mqtt_kill", most_twice=16_000),
)  # fmt: skip


def table(words: Sequence[str] = ()) -> str:
    """A row for each fault, or for those whose text has one of these words."""
    chosen = [fault for fault in FAULTS if not words or any(word in fault.text for word in words)]
    return "\n".join([HEADING, *(_row(fault, _run(fault)) for fault in chosen)])


def _run(fault: Fault) -> Counts:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gf") as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        counts = fault.run(Path(folder) / "run").check(fault.most_twice)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    return counts


def _row(fault: Fault, counts: Counts) -> str:
    return f"| {fault.text} | {' | '.join(f'{count:,}' for count in counts)} | `{fault.test}` |"


if __name__ == "__main__":
    print(table(sys.argv[1:]))
