"""Last values on any network: which are one value, and who still has one that was replaced or forgotten."""

from collections.abc import Iterator

import pytest

from genus import Event, NonReal
from genus.bus import Bus
from genus.targets.topics import MQTT, ZENOH
from genus.testing._network import MemoryNetwork
from tests.net.test_netlink import City


class Lock(Event):
    a: str = ""
    b: str = ""
    n: int = 0


@pytest.fixture(params=[ZENOH, MQTT], ids=["zenoh", "mqtt"])
def town(request: pytest.FixtureRequest) -> Iterator[City]:
    made = City(MemoryNetwork(request.param))
    yield made
    for bus in made.buses:
        bus.close()


def late_values(city: City, bus: Bus, cls: type[Event] = Lock) -> list[Event]:
    """What a subscriber gets that comes now."""
    got: list[Event] = []
    city.run()
    bus.collection(cls).subscribe(got.append)
    city.run()
    return sorted(got, key=str)


def test_different_values_of_the_key_are_different_last_values(town: City) -> None:
    here, there = town.bus(), town.bus()
    locks = here.channel(Lock, NonReal(), keep=1, keep_by=("a", "b"))
    locks.announce()
    sent = [Lock(a=a, b=b) for a, b in (("1,2", "3"), ("1", "2,3"), ("1\\", "2"), ("1", "\\,2"), ("", ""), ("\\-", ""))]
    for event in sent:
        locks.publish(event)
    assert late_values(town, there) == sorted(sent, key=str)


def test_no_source_and_an_empty_source_are_different(town: City) -> None:
    here, there = town.bus(), town.bus()
    locks = here.channel(Lock, NonReal(), keep=1)
    locks.announce()
    sent = [Lock(n=1), Lock(n=2, source=""), Lock(n=3, source="\\-"), Lock(n=4, source="-")]
    for event in sent:
        locks.publish(event)
    assert late_values(town, there) == sorted(sent, key=str)
