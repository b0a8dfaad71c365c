"""Drivers that filter in any manner and lose confirmations: errors arrive, and nobody is told what is not known."""

import random
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import BestEffort, Catalog, Event, Hard, Soft, Subscription, UInt32
from genus.can import BusOff, Expired, MaybeSent, NotSent
from genus.can._live.interfaces import PROFILES, UNKNOWN, InterfaceProfile
from genus.can._live.port import GIVE_UP_NS
from genus.can._node.channels import TxCounts
from genus.can._node.node import Node
from genus.can._plan.admission import plan
from genus.can._plan.system_file import parse_system
from genus.can._wire.frame import Frame
from tests.can.emulated_can import EmulatedCan
from tests.can.emulated_host import EPOCH_NS, MS, EmulatedHost
from tests.examples import examples


class Signal(Event):
    number: UInt32


class Other(Event):
    number: UInt32


CATALOG = Catalog()
CATALOG.register(Signal, Other)
SOFT = Soft(deadline="10ms", expires="30ms")


class Station:
    """A node on an emulated driver, with what it received and was told."""

    def __init__(
        self,
        network: EmulatedCan,
        number: int,
        profile: InterfaceProfile = PROFILES["socketcan"],
        *,
        filters: int = 512,
        long_errors: bool = False,
    ) -> None:
        self.received: list[int] = []
        self.troubles: list[object] = []
        self.node = Node(
            1000 + number,
            timing=network.timing,
            catalog=CATALOG,
            number=number,
            synchronised=False,
            on_event=lambda event: self.received.append(event.number),  # type: ignore[attr-defined]
        )
        self.host = EmulatedHost(network, self.node, profile=profile, filters=filters, long_errors=long_errors)
        self.host.call(self.node.start)

    def subscribe(self, cls: type[Event]) -> None:
        self.host.call(lambda now: self.node.subscribe(Subscription(cls), now))

    def announce(self, cls: type[Event], qos: Soft | BestEffort) -> None:
        self.host.call(lambda now: self.node.announce(cls, qos, now, on_problem=self.troubles.append))

    def publish(self, number: int) -> None:
        self.host.call(lambda now: self.node.publish(Signal(number=number), now))

    @property
    def counts(self) -> TxCounts:
        return self.node.counts().sent["Signal"]

    def told(self, kind: type) -> list[int]:
        """The events of which a publisher was told so, except those that were sent though they had expired."""
        troubles = (each for each in self.troubles if isinstance(each, kind) and not getattr(each, "sent", False))
        return [each.event.number for each in troubles]  # type: ignore[attr-defined]


# -- error frames ------------------------------------------------------------------------------------------------------


class Manner(NamedTuple):
    """How a driver filters, and how many filters Genus believes it to have."""

    driver: int
    believed: int


MANNERS = {
    "in the kernel": Manner(512, 512),
    "in a controller with one filter": Manner(1, 1),
    "by python-can": Manner(0, 0),
    "in a driver that is not known": Manner(512, 0),
}
WITH_ERRORS = {name: profile for name, profile in PROFILES.items() if profile.linux_errors} | {"unknown": UNKNOWN}


@pytest.mark.parametrize("long_errors", [False, True], ids=["11 bits", "29 bits"])
@pytest.mark.parametrize("interface", WITH_ERRORS)
@pytest.mark.parametrize("manner", MANNERS)
def test_bus_off_and_return_are_told_however_frames_are_filtered(
    manner: str, interface: str, long_errors: bool
) -> None:
    """The bus is silent meanwhile: nothing but the error frame says that the controller is back."""
    driver, believed = MANNERS[manner]
    network = EmulatedCan(500_000)
    profile = msgspec.structs.replace(WITH_ERRORS[interface], filters=believed)
    sender = Station(network, 1, profile, filters=driver, long_errors=long_errors)
    receiver = Station(network, 2)
    sender.subscribe(Other)
    receiver.subscribe(Signal)
    sender.announce(Signal, BestEffort())
    network.advance("20ms")
    network.disturb(sender.host.bus)
    sender.publish(1)
    network.advance("100ms")
    assert sum(isinstance(each, BusOff) for each in sender.troubles) >= 1
    assert sender.host.port.counts["bus off"] >= 1
    network.disturb(sender.host.bus, False)
    network.advance("100ms")
    sender.publish(2)
    network.advance("100ms")
    assert receiver.received[-1] == 2
    for station in (sender, receiver):
        station.host.bus.shutdown()


@pytest.mark.parametrize("manner", MANNERS)
def test_frames_that_nobody_subscribed_to_are_dropped_however_frames_are_filtered(manner: str) -> None:
    driver, believed = MANNERS[manner]
    network = EmulatedCan(500_000)
    profile = msgspec.structs.replace(PROFILES["socketcan"], filters=believed)
    sender, receiver = Station(network, 1), Station(network, 2, profile, filters=driver)
    sender.announce(Signal, BestEffort())
    receiver.subscribe(Other)
    network.advance("20ms")
    sender.publish(1)
    network.advance("20ms")
    receiver.subscribe(Signal)
    sender.publish(2)
    network.advance("20ms")
    assert receiver.received == [2]
    for station in (sender, receiver):
        station.host.bus.shutdown()


# -- confirmations that are lost ---------------------------------------------------------------------------------------


class LossyRun:
    """State: events of one sender whose driver loses some echoes; `on_bus` has those that were on the bus."""

    def __init__(
        self, seed: int, lost: float | frozenset[int], *, load: float = 0.0, qos: Soft | BestEffort = SOFT
    ) -> None:
        self.network = EmulatedCan(500_000, seed=seed)
        if load:
            self.network.add_traffic(load)
        self.sender, self.receiver = Station(self.network, 1), Station(self.network, 2)
        self.receiver.subscribe(Signal)
        self.sender.announce(Signal, qos)
        self.network.advance("50ms")
        rng, self._echoes = random.Random(seed), 0
        self.streaks = [0]
        """How many echoes were lost in a row, each time."""

        def loses(frame: Frame) -> bool:
            is_event = frame.etag == CATALOG.etag("Signal")
            self._echoes += is_event
            is_lost = rng.random() < lost if isinstance(lost, float) else is_event and self._echoes in lost
            if not is_lost:
                self.streaks.append(0)
            self.streaks[-1] += is_lost
            return is_lost

        self.sender.host.bus.loses_echo = loses

    def publish(self, events: int, gap_ns: int) -> "LossyRun":
        for number in range(events):
            self.sender.publish(number)
            self.network.run(self.network.now + gap_ns)
        self.sender.host.bus.loses_echo = lambda frame: False
        end = self.network.now + 2 * GIVE_UP_NS
        while self.sender.node.has_frames and self.network.now < end:
            self.network.advance("50ms")
        self.network.advance("50ms")
        self.close()
        return self

    def close(self) -> None:
        for station in (self.sender, self.receiver):
            station.host.bus.shutdown()

    @property
    def on_bus(self) -> list[int]:
        etag = CATALOG.etag("Signal")
        sent = (each.frame for each in self.network.trace if each.outcome == "sent" and each.frame.node == 1)
        return [int.from_bytes(frame.data[1:5], "big") for frame in sent if frame.etag == etag]

    def check(self, events: int) -> None:
        """Each event has one result, and that is true; nothing was on the bus twice."""
        sender, counts, on_bus = self.sender, self.sender.counts, self.on_bus
        expired, maybe, not_sent = sender.told(Expired), sender.told(MaybeSent), sender.told(NotSent)
        assert counts.published == events == counts.sent + counts.expired + counts.unknown + counts.failed
        assert (len(expired), len(maybe), len(not_sent)) == (counts.expired, counts.unknown, counts.failed)
        assert len(set(on_bus)) == len(on_bus), "an event that may have been sent is not sent again"
        assert not set(on_bus) & {*expired, *not_sent}, "told as not sent, and was on the bus"
        assert set(range(events)) - set(on_bus) <= {*expired, *not_sent, *maybe}
        assert self.receiver.received == on_bus
        assert not self.receiver.node.counts().lost.get("Signal"), "the sequence numbers have no gaps"


@pytest.mark.parametrize(("lost", "expired"), [({20, 60}, 0), ({20, 21}, 0), ({1, 2, 3}, 20)])
def test_few_lost_echoes_on_a_quiet_bus_stop_nothing_for_long(lost: set[int], expired: int) -> None:
    run = LossyRun(1, frozenset(lost)).publish(200, 5 * MS)
    run.check(200)
    assert len(run.on_bus) == 200 - run.sender.counts.expired
    assert run.sender.counts.unknown == len(lost)
    assert run.sender.counts.expired <= expired


@given(
    st.integers(0, 10_000),
    st.sampled_from([0.01, 0.05, 0.2]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([SOFT, BestEffort()]),
)
@examples(40)
def test_whatever_echoes_are_lost_every_event_has_one_true_result(
    seed: int, lost: float, load: float, qos: Soft | BestEffort
) -> None:
    events = 150
    run = LossyRun(seed, lost, load=load, qos=qos).publish(events, 5 * MS)
    run.check(events)
    patience_ms = 40 if load else 10
    blocked_ms = sum(patience_ms * (4**streak - 1) // 3 for streak in run.streaks)
    assert len(run.on_bus) >= events - blocked_ms // 5, "a lost echo costs the events of some milliseconds"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("qos", [SOFT, BestEffort()], ids=["soft", "none"])
def test_echoes_lost_while_the_controller_is_passive_or_off_stop_nothing_for_ever(
    seed: int, qos: Soft | BestEffort
) -> None:
    rng, run = random.Random(seed), LossyRun(seed, 0.3, qos=qos)
    network, bus = run.network, run.sender.host.bus
    for _ in range(3):
        begin = network.now + rng.randrange(700 * MS)
        network.at(begin, lambda: network.disturb(bus))
        network.at(begin + rng.randrange(MS, 60 * MS), lambda: network.disturb(bus, False))
    run.publish(150, 5 * MS).check(150)


# -- hard events -------------------------------------------------------------------------------------------------------

SYSTEM = """
[bus]
bitrate = 500_000
[[channel]]
name = "Signal"
node = "tower"
class = "hard"
period = "5ms"
omissions = 1
size = 5
"""


READING_NS = 150_000
"""How long a host takes to read a message, at most."""


class HardRun:
    """State: a hard channel over emulated drivers, whose hosts read messages at random times, by one clock."""

    def __init__(self, seed: int, lost: float) -> None:
        rng = random.Random(seed)
        network = self.network = EmulatedCan(500_000, seed=seed)
        network.add_traffic(0.3)
        (self.slot,) = plan(parse_system(SYSTEM)).calendar.slots
        self.received: list[int] = []
        self.troubles: list[object] = []
        hosts = []
        for number, name in ((self.slot.number, "tower"), (9, "ship")):
            node = Node(
                1000 + number,
                name=name,
                timing=network.timing,
                catalog=CATALOG,
                number=number,
                slots=[self.slot],
                synchronised=False,
                granularity_ns=READING_NS,
                on_event=lambda event: self.received.append(event.number),  # type: ignore[attr-defined]
            )
            host = EmulatedHost(network, node, delay=lambda: rng.randrange(20_000, READING_NS))
            host.call(node.start)
            hosts.append(host)
        self.tower, self.ship = hosts
        self.ship.call(lambda now: self.ship.machine.subscribe(Subscription(Signal), now))  # type: ignore[attr-defined]
        qos = Hard(period="5ms", omissions=1)
        self.tower.call(lambda now: self.node.announce(Signal, qos, now, on_problem=self.troubles.append))
        network.advance("50ms")
        self.tower.bus.loses_echo = lambda frame: rng.random() < lost

    @property
    def node(self) -> Node:
        assert isinstance(self.tower.machine, Node)
        return self.tower.machine

    def publish(self, events: int) -> "HardRun":
        for number in range(events):
            self.tower.call(lambda now, number=number: self.node.publish(Signal(number=number), now))  # type: ignore[misc]
            self.network.advance("5ms")
        self.network.advance("1s")
        for host in (self.tower, self.ship):
            host.bus.shutdown()
        return self

    def told(self, kind: type) -> set[int]:
        return {each.event.number for each in self.troubles if isinstance(each, kind)}  # type: ignore[attr-defined]

    def passages(self) -> Iterator[tuple[int, int, int]]:
        """The events on the bus, and when in their slot they began and ended."""
        for passage in self.network.trace:
            if passage.outcome == "sent" and passage.frame.priority == 0 and passage.frame.node == self.slot.number:
                begin = (EPOCH_NS + passage.start_ns - self.slot.offset_ns) % self.slot.period_ns
                number = int.from_bytes(passage.frame.data[1:5], "big")
                yield number, begin, begin + passage.end_ns - passage.start_ns


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.05, 0.3]))
@examples(20)
def test_hard_events_are_in_their_slots_and_every_one_has_a_true_result(seed: int, lost: float) -> None:
    events = 60
    run = HardRun(seed, lost).publish(events)
    in_slot = [number for number, _, end in run.passages() if end <= run.slot.length_ns]
    counts, sent = run.node.counts().sent["Signal"], set(in_slot)
    assert counts.published == events == counts.sent + counts.failed + counts.unknown + counts.replaced
    assert not sent & run.told(NotSent), "told as not sent, and was on the bus in its slot"
    assert len(run.told(MaybeSent)) == counts.unknown
    surely_read = {number for number, _, end in run.passages() if end <= run.slot.length_ns - READING_NS}
    assert surely_read <= set(run.received) <= sent, "a frame that ends with its slot may be read after the deadline"
    assert len(run.received) == len(set(run.received))
    if not lost:
        assert counts.sent == len(in_slot) >= events - 3, "behind a report in the driver one may come too late"
