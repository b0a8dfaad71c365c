"""A bus gets event tags for the types it carries when it needs them; others need none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genus import Event, Kind, Soft, UInt8, open_bus
from genus.can import World
from genus.can._node.node import Node
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import FileEtags, MemoryStore
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Timing
from genus.can.types import EtagsRefused
from genus.catalog import Catalog
from genus.errors import EtagsExhausted
from genus.filters import Subscription
from tests.catalog.declaring import fill_etags

MS = 1_000_000


class Metered(Kind): ...


class Pipe(Event):
    number: UInt8


class GasPipe(Pipe, Metered):
    pressure: UInt8


class OilPipe(Pipe):
    heat: UInt8


PIPES = (Pipe, GasPipe, OilPipe)


def catalog_without_room() -> Catalog:
    """A catalog whose last types got no event tags when they were registered."""
    catalog = Catalog()
    fill_etags(catalog)
    catalog.register(*PIPES)
    assert not any(map(catalog.has_etag, PIPES))
    return catalog


@pytest.fixture(params=[False, True], ids=["catalog of each node", "broker"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World("pipes", catalog=catalog_without_room(), broker=request.param, seed=1) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [Pipe, Metered, Event, GasPipe])
def test_events_of_types_without_event_tags_are_received(world: World, wanted: Any) -> None:
    """The subscriber comes first and knows nothing of the types below; two publishers come one after the other."""
    with open_bus("sim:pipes?name=reader") as reader, open_bus("sim:pipes?name=gas") as gas:
        inbox = reader.collection(wanted).inbox()
        reader.sleep("2s")
        for event in (GasPipe(number=1, pressure=7), OilPipe(number=1, heat=7)):
            channel = gas.channel(type(event), Soft(deadline="20ms"))
            channel.announce()
            channel.publish(event)
            reader.sleep("1s")
        expected = [cls for cls in (GasPipe, OilPipe) if issubclass(cls, wanted)]
        assert [type(inbox.get(timeout=5)) for _ in expected] == expected
    assert all(map(world.catalog.has_etag, PIPES))


def test_only_the_types_that_are_on_the_bus_get_event_tags(world: World) -> None:
    with open_bus("sim:pipes?name=gas") as gas:
        gas.channel(GasPipe, Soft(deadline="20ms")).announce()
        gas.sleep("1s")
    assert [world.catalog.has_etag(cls) for cls in PIPES] == [True, True, False]


# -- files and exhaustion ----------------------------------------------------------------------------------------------


class Street:
    """A simulated bus of nodes, each with the catalog of a file as it was when the node started."""

    def __init__(self, path: Path) -> None:
        self.path, self.bus, self.hosts = path, SimBus(Timing(500_000)), 0
        self.events: list[Event] = []

    def host(self, machine: Node | Broker) -> Host:
        self.hosts += 1
        return Host(machine, self.bus.attach(Controller(self.hosts)), self.bus)

    def node(self) -> tuple[Node, Host]:
        catalog, etags = Catalog.load(self.path), FileEtags(self.path)
        node = Node(
            self.hosts + 1, timing=Timing(500_000), catalog=catalog, etags=etags, number=self.hosts + 1,
            synchronised=False, on_event=self.events.append,
        )  # fmt: skip
        host = self.host(node)
        host.call(node.start)
        return node, host

    def run(self, milliseconds: int) -> None:
        self.bus.run(self.bus.now + milliseconds * MS)


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [Pipe, Metered, Event])
def test_nodes_with_one_catalog_file_agree_on_event_tags(tmp_path: Path, wanted: type) -> None:
    """The reader started before the event tags were given, and takes them over when the channel is announced."""
    path = tmp_path / "pipes.json"
    catalog_without_room().save(path)
    street = Street(path)
    (reader, reading), (writer, writing) = street.node(), street.node()
    reading.call(lambda now: reader.subscribe(Subscription(wanted), now))
    street.run(5)
    writing.call(lambda now: writer.announce(GasPipe, Soft(deadline="20ms"), now))
    street.run(5)
    writing.call(lambda now: writer.publish(GasPipe(number=1, pressure=2), now))
    street.run(5)
    assert street.events == [GasPipe(number=1, pressure=2)]
    assert Catalog.load(path).etag(GasPipe) == writer.catalog.etag(GasPipe) == reader.catalog.etag(GasPipe)  # type: ignore[union-attr]


class NoEtags:
    """A source that has no event tags left."""

    def give(self, catalog: Catalog, name: str) -> Catalog:
        raise EtagsExhausted(f"event tags exhausted: 60 types leave none for {name!r}")

    def reread(self, catalog: Catalog) -> Catalog:
        return catalog


def test_a_node_says_that_event_tags_are_exhausted(tmp_path: Path) -> None:
    path = tmp_path / "pipes.json"
    catalog_without_room().save(path)
    street, troubles = Street(path), list[Any]()
    node = Node(1, timing=Timing(500_000), catalog=Catalog.load(path), etags=NoEtags(), number=1, synchronised=False)
    host = street.host(node)
    host.call(node.start)
    street.run(1)
    host.call(lambda now: node.subscribe(Subscription(Pipe), now, on_problem=troubles.append))
    street.run(1)
    assert [trouble.reason for trouble in troubles] == ["event tags exhausted: 60 types leave none for 'Pipe'"]
    with pytest.raises(Exception, match="event tags exhausted: 60 types leave none for 'GasPipe'"):
        host.call(lambda now: node.announce(GasPipe, Soft(deadline="20ms"), now))


def test_a_broker_that_has_no_event_tag_left_refuses_and_says_so(tmp_path: Path) -> None:
    notices, troubles = list[object](), list[Any]()
    street = Street(tmp_path)
    street.host(Broker(1, catalog_without_room(), MemoryStore(), etags=NoEtags(), notify=notices.append))
    node = Node(7, timing=Timing(500_000), synchronised=False)
    host = street.host(node)
    host.call(node.start)
    host.call(lambda now: node.announce(GasPipe, Soft(deadline="20ms"), now, on_problem=troubles.append))
    street.run(4000)
    assert EtagsRefused("GasPipe", "event tags exhausted: 60 types leave none for 'GasPipe'") in notices
    assert [trouble.reason for trouble in troubles] == [
        "the broker's catalog has no event tag left for it; use another bus, with a catalog of its own types"
    ]
