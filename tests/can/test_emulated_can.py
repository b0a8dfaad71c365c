"""The emulated CAN network, and nodes on it: echoes, errors, bus-off and recovery, a cut cable."""

import threading
from collections.abc import Iterator

import pytest

import can
from genus import BestEffort, Catalog, Event, Soft, Subscription, UInt32
from genus.can import BusOff, Expired, MaybeSent, NotConfirmed
from genus.can._live.host import LiveHost
from genus.can._live.interfaces import PROFILES
from genus.can._node.node import Node
from genus.errors import BusError
from tests.can.emulated_can import EmulatedCan, EmulatedCanBus
from tests.can.emulated_host import EmulatedHost


class Beacon(Event):
    number: UInt32


class Station:
    """A node on an emulated driver, with the events it received and the troubles it was told."""

    def __init__(self, network: EmulatedCan, number: int, **options: int) -> None:
        catalog = Catalog()
        catalog.register(Beacon)
        self.received: list[int] = []
        self.troubles: list[object] = []
        self.node = Node(
            1000 + number,
            timing=network.timing,
            catalog=catalog,
            number=number,
            synchronised=False,
            on_event=lambda event: self.received.append(event.number),  # type: ignore[attr-defined]
        )
        self.host = EmulatedHost(network, self.node, **options)  # type: ignore[arg-type]
        self.host.call(self.node.start)

    def subscribe(self) -> None:
        self.host.call(lambda now: self.node.subscribe(Subscription(Beacon), now))

    def announce(self, qos: Soft | BestEffort) -> None:
        self.host.call(lambda now: self.node.announce(Beacon, qos, now, on_problem=self.troubles.append))

    def publish(self, number: int) -> None:
        self.host.call(lambda now: self.node.publish(Beacon(number=number), now))

    def told(self, kind: type) -> int:
        return sum(isinstance(trouble, kind) for trouble in self.troubles)


class Pair:
    """A sender and a receiver."""

    def __init__(self, **options: float) -> None:
        self.network = EmulatedCan(500_000, **options)  # type: ignore[arg-type]
        self.sender, self.receiver = Station(self.network, 1), Station(self.network, 2)
        self.receiver.subscribe()
        self.sender.announce(Soft(deadline="10ms", expires="30ms"))
        self.network.advance("20ms")

    def close(self) -> None:
        self.sender.host.bus.shutdown()
        self.receiver.host.bus.shutdown()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def drain(bus: EmulatedCanBus) -> list[can.Message]:
    found = []
    while (message := bus.recv(0)) is not None:
        found.append(message)
    return found


def test_events_pass_and_the_times_are_those_of_the_wire(pair: Pair) -> None:
    for number in range(5):
        pair.sender.publish(number)
    pair.network.advance("10ms")
    assert pair.receiver.received == [0, 1, 2, 3, 4]
    assert not pair.sender.troubles


def test_a_node_that_goes_off_the_bus_is_told_and_sends_again_when_it_is_back(pair: Pair) -> None:
    pair.network.disturb(pair.sender.host.bus)
    pair.sender.publish(1)
    pair.network.advance("8ms")
    assert pair.sender.told(BusOff) == 1
    counts = pair.sender.host.port.counts
    assert counts["bus off"] == 1
    assert counts["error passive"] == 1
    assert counts["attempts failed"] >= 16
    pair.network.disturb(pair.sender.host.bus, False)
    pair.sender.publish(2)
    pair.network.advance("20ms")
    assert pair.receiver.received == [1, 2]


def test_an_event_that_expires_while_the_node_is_off_the_bus_is_told_and_not_sent(pair: Pair) -> None:
    pair.network.disturb(pair.sender.host.bus)
    pair.sender.publish(1)
    pair.network.advance("40ms")
    assert pair.sender.told(Expired) == 1
    pair.network.disturb(pair.sender.host.bus, False)
    pair.network.advance("100ms")
    pair.sender.publish(2)
    pair.network.advance("20ms")
    assert pair.receiver.received == [2]


def test_behind_a_cut_cable_events_expire_and_only_few_in_the_driver_are_sent_later(pair: Pair) -> None:
    """Nothing tells this driver that the cable is cut, so the fate of the first frames is not known."""
    pair.sender.host.bus.disconnect()
    for number in range(100):
        pair.sender.publish(number)
        pair.network.advance("7ms")
    assert pair.sender.host.bus.queued <= 5
    assert 1 <= pair.sender.told(MaybeSent) < 5
    assert pair.sender.told(NotConfirmed) == 1
    pair.sender.host.bus.reconnect()
    pair.network.advance("50ms")
    counts = pair.sender.node.counts().sent["Beacon"]
    assert len(pair.receiver.received) == counts.sent + counts.unknown == 100 - counts.expired
    assert counts.sent_expired <= 1


def test_a_node_alone_on_the_bus_is_error_passive_and_not_off() -> None:
    network = EmulatedCan()
    station = Station(network, 1)
    network.advance("50ms")
    assert station.host.port.counts["error passive"] == 1
    assert station.host.port.counts["bus off"] == 0
    station.host.bus.shutdown()


def test_every_event_is_sent_once_on_a_bus_with_errors() -> None:
    pair = Pair(errors=0.1, seed=3)
    for number in range(200):
        pair.network.advance("2ms")
        pair.sender.publish(number)
    pair.network.advance("100ms")
    told = {trouble.event.number for trouble in pair.sender.troubles if isinstance(trouble, Expired)}  # type: ignore[attr-defined]
    assert pair.receiver.received == [number for number in range(200) if number not in told]
    pair.close()


# -- the bus itself ----------------------------------------------------------------------------------------------------


def test_the_queue_of_a_driver_is_first_in_first_out_and_stations_compete_by_identifier() -> None:
    network = EmulatedCan(500_000)
    one, two = network.open(fifo=3), network.open(fifo=3)
    for identifier in (0x300, 0x100, 0x200):
        one.send(can.Message(arbitration_id=identifier))
    two.send(can.Message(arbitration_id=0x250))
    network.advance("5ms")
    assert [passage.id for passage in network.trace] == [0x250, 0x300, 0x100, 0x200]
    assert [message.is_rx for message in drain(two)] == [False, True, True, True]
    one.shutdown()
    two.shutdown()


def test_filters_apply_to_frames_and_not_to_error_frames() -> None:
    network = EmulatedCan(500_000)
    one, two = network.open(), network.open()
    one.set_filters([{"can_id": 0x100, "can_mask": 0x1FFFFFFF, "extended": True}])
    network.disturb(one)
    one.send(can.Message(arbitration_id=0x100))
    two.send(can.Message(arbitration_id=0x200))
    network.advance("30ms")
    assert one.state is can.BusState.ACTIVE, "it has recovered, with an empty queue"
    errors = [message for message in drain(one) if message.is_error_frame]
    assert errors[-1].arbitration_id == 0x100, "restarted"
    assert len(errors) >= 32
    one.shutdown()
    two.shutdown()


def test_what_cannot_be_emulated_is_refused() -> None:
    network = EmulatedCan()
    with pytest.raises(BusError, match="room for 0"):
        network.open(fifo=0)
    bus = network.open()
    with pytest.raises(can.CanOperationError, match="only data frames"):
        bus.send(can.Message(arbitration_id=1, is_remote_frame=True))
    bus.shutdown()


def test_background_traffic_takes_its_share_and_follows_from_the_seed() -> None:
    traces = []
    for _ in range(2):
        network = EmulatedCan(500_000, seed=5)
        network.add_traffic(0.6)
        network.advance("1s")
        assert 0.55 < network.wire.busy_ns / network.now < 0.65
        traces.append(network.trace.passages)
    assert traces[0] == traces[1]


def test_the_threads_of_a_live_host_run_on_it_too() -> None:
    """Virtual time passes in this thread; the host's threads read and send as on any python-can bus."""
    network = EmulatedCan(500_000)
    catalog = Catalog()
    catalog.register(Beacon)
    arrived = threading.Event()
    nodes = [
        Node(
            1000 + number,
            timing=network.timing,
            catalog=catalog,
            number=number,
            synchronised=False,
            on_event=lambda event: arrived.set(),
        )
        for number in (1, 2)
    ]
    hosts = [LiveHost(node, network.open(), PROFILES["socketcan"]) for node in nodes]
    for host, node in zip(hosts, nodes, strict=True):
        host.call(node.start)
    hosts[1].call(lambda now: nodes[1].subscribe(Subscription(Beacon), now))
    made = hosts[0].call(lambda now: nodes[0].announce(Beacon, BestEffort(), now))

    def run_until(condition: threading.Event | None) -> None:
        for _ in range(20_000):
            network.advance("1ms")
            if condition.wait(0.001) if condition else hosts[0].wait_for(lambda: made.state == "ready", 0.001):
                return
        raise AssertionError("nothing came")

    run_until(None)
    hosts[0].call(lambda now: nodes[0].publish(Beacon(number=7), now))
    run_until(arrived)
    for host in hosts:
        host.close()
