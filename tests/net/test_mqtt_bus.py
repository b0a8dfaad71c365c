"""`mqtt:` as a bus: queues shared between processes, topics of others, CloudEvents."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.waiting import wait_for

pytest.importorskip("mqtt5", reason="mqtt5 comes with genus[mqtt]")

from genus import BestEffort, Event, Maybe, open_bus, this
from genus.bus import Bus
from genus.model import Unit
from genus.net import NetLink
from genus.net._mqtt.address import parse_mqtt_address
from genus.net._mqtt.transport import MqttTransport
from genus.net._transport import Sending
from genus.targets.topics import MQTT
from genus.testing import MqttBroker
from tests.net.memory_network import Faults, MemoryNetwork, MemoryTransport
from tests.net.mqtt_servers import KINDS, Listener, Server, make_server, running

PATIENCE_S = 30.0


class BusJob(Event):
    number: int


class BusClimate(Event):
    temperature: float
    humidity: Maybe[float] = None


@pytest.fixture(scope="module")
def broker() -> Iterator[MqttBroker]:
    with MqttBroker() as made:
        yield made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def address(broker: MqttBroker, realm: str, options: str = "") -> str:
    return f"mqtt://127.0.0.1:{broker.port}/{realm}{options}"


def opened(stack: ExitStack, where: str, count: int) -> list[Bus]:
    return [stack.enter_context(open_bus(where)) for _ in range(count)]


def test_each_event_of_a_queue_goes_to_one_process(broker: MqttBroker, stack: ExitStack) -> None:
    """Also those that a consumer publishes itself; other subscriptions get all of them."""
    publisher, left, right = opened(stack, address(broker, "queue"), 3)
    taken: dict[str, list[int]] = {"left": [], "right": [], "all": []}
    left.collection(BusJob, "queue").subscribe(lambda job: taken["left"].append(job.number))
    shared = right.collection(BusJob, "queue").subscribe(lambda job: taken["right"].append(job.number))
    right.collection(BusJob).subscribe(lambda job: taken["all"].append(job.number))
    for number in range(60):
        (publisher if number % 2 else left).publish(BusJob(number=number))
    wait_for(lambda: len(taken["left"]) + len(taken["right"]) >= 60)
    assert sorted(taken["left"] + taken["right"]) == list(range(60))
    assert taken["left"]
    assert taken["right"]
    wait_for(lambda: sorted(taken["all"]) == list(range(60)))
    shared.cancel()
    for number in range(60, 80):
        publisher.publish(BusJob(number=number))
    wait_for(lambda: set(range(60, 80)) <= set(taken["left"]))
    assert "lost" not in left.traffic().link


def raw(stack: ExitStack, broker: Server, heard: list[tuple[str, bytes, bytes]]) -> MqttTransport:
    """A client that does not know Genus."""

    class Receiver:
        def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
            heard.append((key, envelope, payload))

        def token(self, key: str, is_present: bool) -> None: ...

        def dropped(self, key: str, count: int, reason: str) -> None: ...

        def connected(self, is_connected: bool) -> None: ...

    made = MqttTransport(parse_mqtt_address(f"//127.0.0.1:{broker.port}/other", tls=False))
    made.open(Receiver())
    stack.callback(made.close)
    return made


@pytest.mark.slow
def test_topics_of_others_are_read_and_written_by_a_map(broker: MqttBroker, stack: ExitStack, tmp_path: Path) -> None:
    devices = tmp_path / "devices.toml"
    devices.write_text('topics."zigbee2mqtt/{source}" = "BusClimate"\n')
    (bus,) = opened(stack, address(broker, "home", f"?map={devices}"), 1)
    inbox = bus.collection(BusClimate).inbox(where=this.temperature > 20)
    heard: list[tuple[str, bytes, bytes]] = []
    other = raw(stack, broker, heard)
    other.subscribe("zigbee2mqtt/#")
    for payload in (b'{"temperature": 19.5}', b"no json", b'{"temperature": "warm"}', b'{"temperature": 21.5}'):
        other.sender("zigbee2mqtt/attic", Sending()).put(payload, b"")
    assert inbox.get(timeout=PATIENCE_S) == BusClimate(temperature=21.5, source="attic")
    counters = bus.traffic().link
    rejected = {name: count for name, count in counters.items() if name.startswith("rejected")}
    assert rejected == {
        "rejected: foreign: not JSON": 1,
        "rejected: foreign: BusClimate.temperature must be float64": 1,
    }
    assert isinstance(bus.link, NetLink)
    assert bus.link.examples()["foreign: not JSON"].topic == "zigbee2mqtt/attic"
    bus.publish(BusClimate(temperature=27.0, source="cellar"))
    wait_for(lambda: heard)
    assert (heard[0][0], json.loads(heard[0][2])) == ("zigbee2mqtt/cellar", {"temperature": 27.0})
    other.sender("zigbee2mqtt/attic", Sending()).put(b'{"temperature": 22.5}', b"")
    got = [inbox.get(timeout=PATIENCE_S).temperature for _ in range(2)]
    assert got == [27.0, 22.5], "its own message does not come back"


@pytest.mark.parametrize("kind", KINDS)
def test_maps_of_several_systems_are_used_together(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    """Each with its own attributes; a topic that several patterns match is read once, by the most specific."""
    (tmp_path / "zigbee.toml").write_text('topics."zigbee2mqtt/{source}" = "BusClimate"\n')
    (tmp_path / "tasmota.toml").write_text("""
ignore = ["TempUnit"]
[topics]
"tele/{source}/SENSOR" = { type = "BusClimate", at = "AM2301" }
"tele/{source}/{place}" = { type = "BusClimate", at = "SI7021" }
"tele/#" = false
[attributes]
Temperature = "temperature"
""")
    server = stack.enter_context(running(make_server(kind, tmp_path)))
    maps = f"?map={tmp_path / 'zigbee.toml'}&map={tmp_path / 'tasmota.toml'}"
    bus = stack.enter_context(open_bus(f"mqtt://127.0.0.1:{server.port}/home{maps}"))
    inbox = bus.collection(BusClimate).inbox()
    other = raw(stack, server, [])
    for topic, payload in (
        ("zigbee2mqtt/attic", b'{"temperature": 1.0, "linkquality": 90}'),
        ("tele/shed/SENSOR", b'{"TempUnit": "C", "AM2301": {"Temperature": 2.0, "Id": "0C"}}'),
        ("tele/shed/SENSOR", b'{"AM2301": {"Id": "0C"}}'),
        ("tele/shed/roof", b'{"SI7021": {"Temperature": 3.0}}'),
        ("zigbee2mqtt/last", b'{"temperature": 4.0}'),
    ):
        other.sender(topic, Sending()).put(payload, b"")
    assert [inbox.get(timeout=PATIENCE_S).temperature for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    counters = bus.traffic().link
    assert {name: count for name, count in counters.items() if name.startswith(("not read", "rejected"))} == {
        "not read: BusClimate.linkquality": 1,
        "not read: BusClimate.Id": 2,
        "rejected: foreign: BusClimate lacks 'temperature', which it must carry": 1,
    }


@pytest.mark.parametrize("format", ["cloudevents", "cloudevents-binary"])
def test_events_are_sent_as_cloudevents_that_both_sides_read(broker: MqttBroker, stack: ExitStack, format: str) -> None:
    here, there = opened(stack, address(broker, format, f"?format={format}"), 2)
    heard: list[tuple[str, bytes, bytes]] = []
    raw(stack, broker, heard).subscribe(f"{format}/#")
    inbox = there.collection(BusClimate).inbox()
    for number in range(3):
        here.publish(BusClimate(temperature=20.0 + number, source="attic"))
    assert [inbox.get(timeout=PATIENCE_S).temperature for _ in range(3)] == [20.0, 21.0, 22.0]
    wait_for(lambda: len(heard) == 3)
    data: Any = json.loads(heard[0][2])
    if format == "cloudevents":
        assert (data["specversion"], data["type"], data["source"]) == ("1.0", "BusClimate", "attic")
        data = data["data"]
    assert data["temperature"] == 20.0


def test_cloudevents_of_others_are_read_once(broker: MqttBroker, stack: ExitStack) -> None:
    (bus,) = opened(stack, address(broker, "clouds", "?cloudevents=plant/events/%23"), 1)
    inbox = bus.collection(BusClimate).inbox()
    other = raw(stack, broker, [])
    event = {"specversion": "1.0", "id": "7", "source": "/plant", "type": "BusClimate", "data": {"temperature": 3.5}}
    sender = other.sender("plant/events/a", Sending())
    for payload in (event, event, {**event, "id": "8"}):
        sender.put(json.dumps(payload).encode(), b"")
    assert [inbox.get(timeout=PATIENCE_S).source for _ in range(2)] == ["/plant", "/plant"]
    assert bus.traffic().link["duplicates"] == 1


def test_last_values_are_kept_by_the_broker(broker: MqttBroker, stack: ExitStack) -> None:
    """Also after their publisher has left."""
    with open_bus(address(broker, "kept")) as publisher:
        channel = publisher.channel(BusClimate, BestEffort(), keep=True)
        channel.announce()
        for source, temperature in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
            channel.publish(BusClimate(temperature=temperature, source=source))
    (late,) = opened(stack, address(broker, "kept"), 1)
    inbox = late.collection(BusClimate).inbox()
    got = {inbox.get(timeout=PATIENCE_S).temperature for _ in range(2)}
    assert got == {2.0, 3.0}


def test_processes_that_come_and_go_leave_one_statement_of_units(broker: MqttBroker, stack: ExitStack) -> None:
    def declare(unit: str) -> type[Any]:
        class Squall(Event):
            speed: Annotated[float, Unit(unit)]

        return Squall

    sent = declare("km/h")
    for number in range(4):
        with open_bus(address(broker, "gusts")) as bus, bus.channel(sent, BestEffort(), keep=True) as gusts:
            gusts.publish(sent(speed=36.0 * number))
    transport, heard = MqttTransport(parse_mqtt_address(address(broker, "gusts").removeprefix("mqtt:"))), Listener()
    transport.open(heard)
    stack.callback(transport.close)
    transport.subscribe("@genus/gusts/#", kept=True)
    wait_for(lambda: any("/last/" in key for key, _, _ in heard.packets))
    assert len([key for key, _, _ in heard.packets if "/types/" in key]) == 1
    (listener,) = opened(stack, address(broker, "gusts"), 1)
    inbox = listener.collection(declare("m/s")).inbox()
    assert inbox.get(timeout=PATIENCE_S).speed == pytest.approx(30.0)  # its sender is gone


def test_a_restarted_publisher_makes_the_broker_forget_what_its_predecessor_published(
    broker: MqttBroker, stack: ExitStack
) -> None:
    for first in (True, False):
        with open_bus(address(broker, "restarted")) as publisher:
            channel = publisher.channel(BusClimate, BestEffort(), keep=True)
            channel.announce()
            for source in ("a", "b") if first else ():
                channel.publish(BusClimate(temperature=1.0, source=source))
            if not first:
                assert channel.forget(source="a") == 0
    (late,) = opened(stack, address(broker, "restarted"), 1)
    inbox = late.collection(BusClimate).inbox()
    assert inbox.get(timeout=PATIENCE_S).source == "b"
    assert [event.source for event in late.last_values("BusClimate")] == ["b"]


class BusyTransport(MemoryTransport):
    """A transport whose receiver may be in one handler for long."""

    busy_s = 0.0

    def stop_handling(self) -> None: ...


def test_what_a_broker_holds_back_while_a_handler_runs_is_not_lost() -> None:
    """A beat overtakes the events of a session that wait for acknowledgements."""
    network, time_s = MemoryNetwork(MQTT), [100.0]
    there = BusyTransport(network)
    links = [
        NetLink(each, "city", medium="memory", now=lambda: time_s[0], runs=False)
        for each in (network.transport(), there)
    ]
    road, room = map(Bus, links)
    lost: list[object] = []
    room.collection(BusJob).subscribe(lambda job: None, on_problem=lost.append)

    def run(seconds: float, busy_s: float) -> None:
        there.busy_s = busy_s
        for _ in range(int(seconds * 10)):
            time_s[0] += 0.1
            for link in links:
                link.tick()
            network.deliver()

    road.publish(BusJob(number=0))
    run(4.0, busy_s=0.0)
    network.faults = Faults(lost=1.0)
    road.publish(BusJob(number=1))
    network.faults = Faults()
    network.deliver()
    run(20.0, busy_s=2.0)
    assert lost == []
    run(10.0, busy_s=0.0)
    assert len(lost) == 1
