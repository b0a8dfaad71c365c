"""A slow reader on zenoh: bounded, counted, and of no cost to others."""

import threading

import pytest

from genus.net import _zenoh_transport as transport
from genus.net._transport import Sending
from tests.waiting import wait_for

pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")

from tests.net.zenoh_network import Collector, free_port, participant, put_until

COUNT = 3000


class Held(Collector):
    """A receiver whose handler does not return until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.is_held = threading.Event(), threading.Event()

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        self.is_held.set()
        self.go.wait()
        super().packet(key, envelope, payload)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_a_stopped_reader_keeps_a_bounded_number_and_costs_the_other_nothing(policy: str) -> None:
    port = free_port()
    held = Held()
    with (
        participant(f"r?port={port}&overflow=block") as (a, _),
        participant(f"r?port={port}&receive_capacity=100&receive_overflow={policy}", held) as (slow, _),
        participant(f"r?port={port}") as (fast, at_fast),
    ):
        slow.subscribe("r/x")
        fast.subscribe("r/x")
        sender = a.sender("r/x", Sending())
        put_until(sender, lambda: at_fast.packets and held.is_held.is_set())
        for number in range(COUNT):
            sender.put(b"%d" % number, b"")
        wait_for(lambda: at_fast.numbers()[-1] == COUNT - 1)
        assert [each for each in at_fast.numbers() if each >= 0] == list(range(COUNT))
        assert fast.counters()["dropped on arrival"] == 0
        wait_for(lambda: slow.counters()["waiting"] <= 101 and slow.counters()["dropped on arrival"] >= COUNT - 101)
        held.go.set()
        wait_for(lambda: slow.counters()["waiting"] == 0)
        sender.put(b"99999", b"")
        wait_for(lambda: held.numbers()[-1:] == [99999])
        got = held.numbers()
        assert len(got) <= 103
        assert ((COUNT - 1) in got) == (policy == "drop_oldest")
        assert got == sorted(got)


def test_tokens_are_told_though_packets_are_dropped() -> None:
    port = free_port()
    held = Held()
    with (
        participant(f"r?port={port}&overflow=block") as (a, _),
        participant(f"r?port={port}&receive_capacity=10", held) as (slow, _),
    ):
        slow.subscribe("r/x")
        slow.watch("@genus/**")
        sender = a.sender("r/x", Sending())
        put_until(sender, held.is_held.is_set)
        a.declare("@genus/r/here/a")
        for _ in range(1000):
            sender.put(b"0", b"")
        wait_for(lambda: slow.counters()["dropped on arrival"] > 900)
        held.go.set()
        wait_for(lambda: held.tokens == {"@genus/r/here/a": True})


def test_a_handler_that_hangs_does_not_hang_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CLOSE_S", 0.2)
    port = free_port()
    held = Held()
    with participant(f"r?port={port}") as (a, _), participant(f"r?port={port}", held) as (slow, _):
        slow.subscribe("r/x")
        put_until(a.sender("r/x", Sending()), held.is_held.is_set)
        closing = threading.Thread(target=slow.close)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
        held.go.set()
