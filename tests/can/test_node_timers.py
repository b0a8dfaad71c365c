"""A node's driver asks for one time: that of the first of all its timers, though it looks at few of them each time."""

from pathlib import Path
from random import Random

import pytest

from genus import BestEffort, Catalog, Event, UInt8
from genus.can import PreparedSystem, Scenario, simulate
from genus.can._machine import Load
from genus.can._node.node import Node
from genus.can._plan.system_file import load_system
from genus.can._sim.faults import parse_fault
from genus.can._wire.frame import Frame, Timing

CROSSING = Path(__file__).parents[2] / "examples" / "crossing.toml"


def first_of_all(node: Node) -> int | None:
    """Look at every timer of a node."""
    events = [at for at, _, event in node._context.queue._timers if not event.done]
    return min([*events, *(each.wake_at for each in node._in_order if each.wake_at is not None)], default=None)


@pytest.mark.parametrize("seed", [2])
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


class Note(Event):
    """An event without a deadline."""

    number: UInt8


def test_the_last_event_of_a_withdrawn_channel_sets_the_timer_of_reports() -> None:
    """It waits until the node has nothing to report any more; then an event that was sent sets a timer."""
    catalog = Catalog()
    catalog.register(Note)
    node = Node(1, timing=Timing(500_000), catalog=catalog, number=1, synchronised=False)
    now, second = 0, 1_000_000_000

    def loaded() -> Frame | None:
        return next((each.frame for each in reversed(node.take()) if isinstance(each, Load)), None)

    node.start(now)
    note = node.announce(Note, BestEffort(), now)
    while (frame := loaded()) is not None or note.channel.state != "ready":
        now = now + 1_000_000 if frame is not None else max(now, node.wake_at or 0)
        if frame is not None:
            node.sent(frame, now)
        node.wake(now)
    node.publish(Note(number=1), now)
    frame = loaded()
    node.withdraw(note, now)
    while (at := node.wake_at) is not None and now < 3 * second:
        now = at
        node.wake(now)
    assert frame is not None
    node.sent(frame, now)
    assert node.tx.reporter.wake_at == now + second
    assert node._context.timers_changed, "other timers may be later than this one"
    assert node.wake_at == first_of_all(node)
