"""The active one of two gateways dies: every event is delivered once, or told as lost, also to a busy receiver."""

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from genus import Event
from genus.bus import Bus
from genus.errors import BusError
from genus.net import Gateway, NetLink
from genus.net._link import relays
from tests.net import gateway_kills
from tests.net.memory_network import MemoryNetwork, MemoryTransport
from tests.waiting import wait_for

LINKS = ("ipc", "zenoh", "mqtt")
KILLS = int(os.environ.get("GENUS_KILLS", "18"))
"""Kills of the long test, over all pairs of links."""


def check_kills(folder: Path, road: str, city: str, kills: int, seed: int) -> None:
    for link, module in {"zenoh": "zenoh", "mqtt": "mqtt5"}.items():
        if link in (road, city):
            pytest.importorskip(module)
    counts = gateway_kills.run(folder, road, city, kills, seed)
    print(f"{road} to {city}, {kills} kills: {counts}")
    counts.check()


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_an_active_gateway_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, "mqtt", "ipc", kills=1, seed=1)


@pytest.mark.slow
def test_an_active_gateway_of_a_can_bus_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """The standby goes on with the numbers of the active gateway, so that what both sent is delivered once."""
    pytest.importorskip("can")
    try:
        check_kills(tmp_path, "can", "ipc", kills=1, seed=1)
    except BusError as problem:
        pytest.skip(f"no multicast here: {problem}")


@pytest.mark.slow
@pytest.mark.parametrize(("place", "pair"), list(enumerate(product(LINKS, LINKS))))
def test_gateways_that_are_killed_again_and_again_lose_nothing(
    tmp_path: Path, place: int, pair: tuple[str, str]
) -> None:
    """`GENUS_KILLS=200` kills 200 gateways over all pairs."""
    kills = KILLS // len(LINKS) ** 2 + (place < KILLS % len(LINKS) ** 2)
    check_kills(tmp_path, *pair, kills=kills, seed=place + 10)


# -- what a standby repeats --------------------------------------------------------------------------------------------


class Repeated(Event):
    number: int


class Pair:
    """State: two gateways of a name between two networks in this process, a publisher and a receiver."""

    def __init__(self) -> None:
        self.road, self.city = MemoryNetwork(), MemoryNetwork()
        self.time = 100.0
        self.got: list[int] = []
        self.told: list[Any] = []
        self.buses: list[Bus] = []
        self.publisher, self.receiver = self.open(self.road), self.open(self.city)
        self.receiver.collection(Repeated).subscribe(
            lambda event: self.got.append(event.number), on_problem=self.told.append
        )
        self.gateways = [self._gateway() for _ in range(2)]
        wait_for(self._is_first_active, "no gateway is active")
        self.run(5)
        assert not self.gateways[1].is_active

    def open(self, network: MemoryNetwork) -> Bus:
        bus = Bus(NetLink(network.transport(), "city", medium="memory", runs=False, now=lambda: self.time))
        self.buses.append(bus)
        return bus

    def _gateway(self) -> Gateway:
        return Gateway(self.open(self.road), self.open(self.city), name="pair")

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.time += 0.1
            for bus in self.buses:
                link_of(bus).tick()
            for gateway in self.gateways:
                gateway.settle()
            self.deliver()

    def _is_first_active(self) -> bool:
        self.run(0.1)
        return self.gateways[0].is_active

    def deliver(self) -> None:
        while self.road.deliver() + self.city.deliver():
            pass

    def kill_first(self) -> None:
        """Let the first gateway vanish: nothing of what it still does reaches anybody."""
        first, *self.gateways = self.gateways
        for side in first.sides.values():
            self.buses.remove(side.bus)
            transport_of(side.bus).close()
            transport_of(side.bus).is_cut_off = True
        first.close()
        wait_for(self._is_first_active, "no gateway takes over")

    def close(self) -> None:
        for gateway in self.gateways:
            gateway.close()
        for bus in self.buses:
            bus.close()


def link_of(bus: Bus) -> NetLink:
    assert isinstance(bus.link, NetLink)
    return bus.link


def transport_of(bus: Bus) -> MemoryTransport:
    transport = link_of(bus).transport
    assert isinstance(transport, MemoryTransport)
    return transport


@pytest.mark.slow
@pytest.mark.parametrize(("queued", "is_kept_long"), [(0, True), (30, True), (50, True), (120, True), (30, False)])
def test_what_a_dead_gateway_had_queued_for_a_busy_receiver_is_repeated_or_told(
    monkeypatch: pytest.MonkeyPatch, queued: int, is_kept_long: bool
) -> None:
    """What is beyond the bounds of the standby's memory, in number or in time, is told to the event."""
    monkeypatch.setattr(relays, "RECENT", 50)
    pair = Pair()
    taken = transport_of(pair.receiver)
    for number in range(200):
        if number == 200 - queued:
            taken.is_cut_off = True  # it takes nothing: the rest stays in the queues of the active gateway
        pair.publisher.publish(Repeated(number=number))
        pair.deliver()
    if not is_kept_long:
        pair.time += relays.RECENT_S
    taken.is_cut_off = False
    pair.kill_first()
    pair.publisher.publish(Repeated(number=200))
    pair.run(5)
    lost = max(0, queued - 50) if is_kept_long else queued
    assert pair.got == [*range(200 - queued), *range(200 - queued + lost, 201)]
    assert sum(problem.count for problem in pair.told) == lost
    pair.close()


def test_last_values_are_there_for_later_subscribers_after_the_gateway_that_carried_them_died() -> None:
    pair = Pair()
    values = pair.publisher.channel(Repeated, keep=True)
    values.announce()
    for number, source in enumerate(("a", "b", "a")):
        values.publish(Repeated(number=number, source=source))
    pair.run(2)
    pair.time += 2 * relays.RECENT_S
    pair.kill_first()
    late: list[int] = []
    pair.open(pair.city).collection(Repeated).subscribe(lambda event: late.append(event.number))
    pair.run(3)
    assert (pair.got, sorted(late), pair.told) == ([0, 1, 2], [1, 2], [])
    pair.close()


def test_bytes_that_a_standby_remembers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "RECENT_BYTES", 1000)
    recent = relays.RecentPackets(lambda: 0.0, "@genus/city/last/")
    recent.follow([b"s" * 8])
    envelope = b"o" * 13 + b"s" * 8 + b"\0" * 4
    for number in range(100):
        recent.note("a", envelope, bytes([number]) * 75)
        recent.note("a", b"o" * 25, b"of another sender")
    assert [payload[0] for _, _, payload in recent.take()] == list(range(90, 100))
    assert recent.take() == []
