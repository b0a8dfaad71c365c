"""Two buses that speak Sparkplug with one another: presence, the primary host, and connections that are lost."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_for

pytest.importorskip("mqtt5", reason="mqtt5 comes with genus[mqtt]")
pytest.importorskip("google.protobuf", reason="protobuf comes with genus[sparkplug]")

from genus import BestEffort, Event, open_bus
from genus.bus import Bus
from genus.net import EventsLost
from tests.net.mqtt_servers import KINDS, Server, make_server, running

PATIENCE_S = 30.0
MAPPING = """
[topics]
"spBv1.0/north/DDATA/boiler/{source}" = { type = "BusReading", payload = "sparkplug" }
"spBv1.0/north/NCMD/boiler" = { type = "BusOrder", payload = "sparkplug" }
"spBv1.0/north/NBIRTH/{place}" = { type = "BusPresence", payload = "sparkplug" }
"spBv1.0/north/NDEATH/{place}" = { type = "BusPresence", payload = "sparkplug" }
"""


class BusReading(Event):
    value: float


class BusOrder(Event):
    level: int


class BusPresence(Event):
    online: bool


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[Server, str], str]:
    (tmp_path / "plant.toml").write_text(MAPPING)
    return lambda server, options: (
        f"mqtt://127.0.0.1:{server.port}/city?map={tmp_path / 'plant.toml'}&sparkplug={options}"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_edge_node_is_there_while_its_primary_host_is(
    kind: str, tmp_path: Path, opened: Callable[[Server, str], str]
) -> None:
    """What is published while it is not is told as lost, and the newest values come with the next birth."""
    with ExitStack() as stack:
        server = stack.enter_context(running(make_server(kind, tmp_path)))
        edge: Bus = stack.enter_context(open_bus(opened(server, "north/boiler&sparkplug_host=scada")))
        orders = edge.collection(BusOrder).inbox()
        edge.publish(BusReading(value=1.0, source="probe"))
        edge.publish(BusReading(value=2.0, source="probe"))
        assert edge.traffic().link["dropped: the edge node is not online"] == 2
        with open_bus(opened(server, "north&sparkplug_host=scada")) as host:
            readings, states = host.collection(BusReading).inbox(), host.collection(BusPresence).inbox()
            state = states.get(timeout=PATIENCE_S)
            assert (state.online, state.place) == (True, "boiler")
            assert readings.get(timeout=PATIENCE_S).value == 2.0
            edge.publish(BusReading(value=3.0, source="probe"))
            assert readings.get(timeout=PATIENCE_S).value == 3.0
            host.publish(BusOrder(level=7))
            assert orders.get(timeout=PATIENCE_S).level == 7
        wait_for(lambda: _is_dropped(edge, 3), "the host has gone")
        with open_bus(opened(server, "north")) as watcher:
            readings = watcher.collection(BusReading).inbox()
            assert "lost" not in watcher.traffic().link
            with pytest.raises(TimeoutError):
                readings.get(timeout=0)


def _is_dropped(edge: Bus, least: int) -> bool:
    edge.publish(BusReading(value=4.0, source="probe"))
    return edge.traffic().link["dropped: the edge node is not online"] >= least


@pytest.mark.parametrize("kind", KINDS)
def test_births_come_again_after_the_broker_was_away(
    kind: str, tmp_path: Path, opened: Callable[[Server, str], str]
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(running(make_server(kind, tmp_path)))
        host: Bus = stack.enter_context(open_bus(opened(server, "north")))
        edge: Bus = stack.enter_context(open_bus(opened(server, "north/boiler")))
        heard: list[float] = []
        host.collection(BusReading).subscribe(lambda reading: heard.append(reading.value))
        edge.publish(BusReading(value=1.0, source="probe"))
        wait_for(lambda: heard == [1.0])
        server.stop()
        wait_for(lambda: not edge.link.is_connected)  # type: ignore[union-attr]
        server.start()
        number = 1.0

        def is_heard() -> bool:
            nonlocal number
            number += 1
            edge.publish(BusReading(value=number, source="probe"))
            return len(heard) > 1

        wait_for(is_heard)


def test_losses_of_an_edge_node_are_told_to_its_channels(tmp_path: Path, opened: Callable[[Server, str], str]) -> None:
    with (
        running(make_server("small", tmp_path)) as server,
        open_bus(opened(server, "north/boiler&sparkplug_host=s")) as edge,
    ):
        told: list[Any] = []
        edge._announce(BusReading, BestEffort(), on_problem=told.append)
        edge.publish(BusReading(value=1.0, source="probe"))
        wait_for(lambda: bool(told))
        assert told == [EventsLost("BusReading", 1, told[0].sender, "", "the edge node is not online")]
