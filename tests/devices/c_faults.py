"""The fault table with C nodes: which stations they are in each row, and a command that prints the observations.

Rows 7 and 14 are about guardians and plans, 17 about brokers, 20, 21 and 24 about drivers of computers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from genus.can._plan.system_file import load_system
from genus.filters import Subscription
from tests.can.fault_table import ROWS, Observation, Setting, frames, fuzz
from tests.can.fault_table.dynamic_nodes import DynamicNodes
from tests.can.fault_table.transfers import TransferCounts, deliver_transfers
from tests.devices.c_node import CNode, c_stations
from tests.devices.c_segments import CReassembler

SYSTEM = load_system(Path(__file__).parents[2] / "examples" / "crossing.toml")
ALL = tuple(SYSTEM.nodes)
BUT_MONITOR = tuple(name for name in ALL if name != "monitor")
BUT_MASTERS = tuple(name for name in BUT_MONITOR if name != "controller")
ROWS_OF_NODES: dict[int, tuple[str, ...]] = {
    **dict.fromkeys((1, 2, 3, 4, 5, 8, 23), ALL),
    **dict.fromkeys((6, 9, 11, 12, 13, 19), BUT_MONITOR),
    **dict.fromkeys((10,), BUT_MASTERS),
    **dict.fromkeys((15, 18, 22), ()),
    16: BUT_MONITOR,
}
"""The stations that are C nodes, by row: all, where clocks are perfect; in other rows there has to be a time master."""
ROWS_OF_NODES = dict(sorted(ROWS_OF_NODES.items()))


class CDynamicNodes(DynamicNodes):
    """Nodes that join and leave a bus with a broker, all in C."""

    def _make(self, station: int, uid: int) -> Any:
        self._seeds[station] += 1
        return CNode(
            uid,
            timing=self.simulation.timing,
            catalog=self.catalog,
            synchronised=self._synchronised,
            seed=self.simulation.seed << 16 | station << 8 | self._seeds[station],
            on_notice=partial(self._record_notice, station),
        )


def c_fuzzed_node(setting: Setting, *, planned: bool) -> Any:
    """The node of row 22, in C."""
    typed, slots = setting.prepared.typed, setting.prepared.plan.calendar.slots
    name = typed.system.channels[0].node
    number = typed.system.nodes[name] if planned else None
    node = CNode(1, name=name, timing=typed.system.bus.timing, slots=slots, catalog=typed.catalog, number=number)
    node.start(0)
    for channel in typed.system.channels:
        if channel.node == name:
            node.announce(typed.stand_ins[channel.event].cls, channel.qos, 0)
    for stand_in in typed.stand_ins.values():
        node.subscribe(Subscription(stand_in.cls), 0)
    return node


def deliver_to_c(transfers: int, seed: int, **faults: float) -> TransferCounts:
    """Transfers with faults, reassembled in C."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.can.fault_table.transfers.Reassembler", CReassembler)
        return deliver_transfers(transfers, seed, **faults)


@contextmanager
def c_everywhere(number: int) -> Iterator[None]:
    """Within the block, a row of the fault table has C nodes."""
    with c_stations(*ROWS_OF_NODES[number]), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.can.fault_table.dynamic_nodes.DynamicNodes", CDynamicNodes)
        patch.setattr("tests.can.fault_table.brokers.DynamicNodes", CDynamicNodes)
        patch.setattr(fuzz, "_node", c_fuzzed_node)
        patch.setattr(frames, "deliver_transfers", deliver_to_c)
        yield


def observe(number: int, *, full: bool = False, seed: int = 1) -> Observation:
    """What a row observes with C nodes."""
    with c_everywhere(number):
        return ROWS[number].observe(Setting(SYSTEM, seed, full))


@click.command()
@click.argument("numbers", nargs=-1, type=int)
@click.option("--full", is_flag=True, help="As many events as docs/can-simulator.md has.")
@click.option("--seed", default=1)
def main(numbers: tuple[int, ...], full: bool, seed: int) -> None:
    """Run rows of the fault table with C nodes, and print them as a table."""
    for number in numbers or ROWS_OF_NODES:
        found = observe(number, full=full, seed=seed)
        stations = len(ROWS_OF_NODES[number])
        where = f"{stations} of {len(ALL)} stations" if stations else "all but the broker"
        size = "full" if full else "small"
        click.echo(
            f"| {number} | {ROWS[number].fault} | {where} | {size} | {found.text} | {'✓' if found.ok else '✗'} |"
        )


if __name__ == "__main__":
    main()
