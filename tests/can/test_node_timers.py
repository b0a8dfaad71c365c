"""A node's driver asks for one time: that of the first of all its timers, though it looks at few of them each time."""

from pathlib import Path
from random import Random

import pytest

from genus.can import PreparedSystem, Scenario, simulate
from genus.can._node.node import Node
from genus.can._plan import load_system
from genus.can._sim.fault_text import parse_fault

CROSSING = Path(__file__).parents[2] / "examples" / "crossing.toml"


def first_of_all(node: Node) -> int | None:
    """Look at every timer of a node."""
    events = [at for at, _, event in node._context.queue._timers if not event.done]
    return min([*events, *(each.wake_at for each in node._in_order if each.wake_at is not None)], default=None)


@pytest.mark.parametrize("seed", [2, 3])
def test_a_node_wakes_at_the_first_of_all_its_timers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wake_at, asked = Node.wake_at.fget, 0  # type: ignore[attr-defined]

    def checked(node: Node) -> int | None:
        nonlocal asked
        asked += 1
        found: int | None = wake_at(node)
        assert found == first_of_all(node)
        return found

    monkeypatch.setattr(Node, "wake_at", property(checked))
    prepared = PreparedSystem.of(load_system(CROSSING))
    nodes = prepared.typed.system.nodes
    crashed, stepped, failing = Random(seed).sample(list(nodes), 3)
    faults = (
        f"counters nodes={failing} tec=120 at=400ms",
        f"crash node={crashed} at=400ms restart=500ms",
        f"step node={stepped} by=1ms at=450ms",
        "errors p=0.2",
    )
    simulate(
        Scenario(
            prepared=prepared,
            seed=seed,
            duration=0.2,
            faults=tuple(parse_fault(fault, nodes) for fault in faults[: 1 + seed]),
            pattern="sporadic",
            broker=seed % 2 == 1,
        )
    )
    assert asked > 1000
