"""What a gateway cannot send is told to both ends."""

from pathlib import Path
from typing import Any

from genus import Event
from genus.bus import Bus
from genus.net import Gateway, GatewaySide, NetLink
from genus.testing._network import MemoryNetwork


class LostParcel(Event):
    text: str


def bus_on(network: MemoryNetwork, realm: str) -> Bus:
    return Bus(NetLink(network.transport(), realm, medium="memory", runs=False))


def link_of(bus: Bus) -> NetLink:
    assert isinstance(bus.link, NetLink)
    return bus.link


def test_what_a_full_spool_drops_is_told_to_publisher_and_receiver(tmp_path: Path) -> None:
    road, city = MemoryNetwork(), MemoryNetwork()
    time = [100.0]
    publisher, receiver, near, far = (bus_on(*where) for where in ((road, "r"), (city, "c"), (road, "r"), (city, "c")))
    buses = (publisher, receiver, near, far)
    for bus in buses:
        link_of(bus).now = lambda: time[0]
    told: dict[str, list[Any]] = {"publisher": [], "receiver": []}

    def run(seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            time[0] += 0.1
            for bus in buses:
                link_of(bus).tick()
            gateway.settle()  # `step` does nothing while the thread of the gateway is at it
            road.deliver()
            city.deliver()

    got: list[Any] = []
    receiver.collection(LostParcel).subscribe(got.append, on_trouble=told["receiver"].append)
    with Gateway(near, GatewaySide(bus=far, spool=tmp_path / "spool", spool_bytes=20_000)) as gateway:
        run(1)
        channel = publisher.channel(LostParcel, on_trouble=told["publisher"].append)
        channel.announce()
        channel.publish(LostParcel(text="first"))
        run(1)
        assert len(got) == 1
        link_of(far).connected(False)
        for number in range(400):
            channel.publish(LostParcel(text=f"{number:03d}" + "x" * 100))
            road.deliver()
        link_of(far).connected(True)
        run(5)
        lost = 401 - len(got)
        assert 0 < lost < 400
        assert sum(trouble.count for trouble in told["receiver"]) == lost
        assert sum(trouble.count for trouble in told["publisher"]) >= lost
        assert publisher.traffic().link["lost by receivers"] == lost
    for bus in buses:
        bus.close()
