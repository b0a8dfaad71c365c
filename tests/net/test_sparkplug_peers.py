"""Sparkplug B with independent clients, pysparkplug and mqtt-spb-wrapper, over mosquitto.

They need other versions of protobuf and paho than Genus's tests, so each has an environment of its own: `make peers`.
"""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_for

pytest.importorskip("mqtt5", reason="mqtt5 comes with genus[mqtt]")
pytest.importorskip("google.protobuf", reason="protobuf comes with genus[sparkplug]")

from genus import Event, Maybe, open_bus
from genus.net import EventsLost
from tests.net.mqtt_servers import Mosquitto, running

PATIENCE_S = 30.0
PEERS = Path(os.environ.get("GENUS_PEERS", Path(__file__).parents[2] / ".venv" / "peers"))


class PeerClimate(Event):
    temperature: Maybe[float] = None


class PeerTarget(Event):
    target: float


class PeerState(Event):
    online: bool


class Peer:
    """A client in a process of its own."""

    def __init__(self, package: str, role: str, port: int) -> None:
        python = PEERS / package / "bin" / "python"
        if not python.exists():
            pytest.skip(f"{package} is not installed at {PEERS}; `make peers` does it")
        program = str(Path(__file__).with_name("sparkplug_peer.py"))
        self._process = subprocess.Popen(
            [str(python), program, role, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.heard.put(json.loads(line))

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def await_message(self, kind: str, name: str) -> Any:
        """The value of a metric in the next message of a kind that has it."""
        while True:
            found = self.heard.get(timeout=PATIENCE_S)
            if kind in found.get("topic", kind) and name in found["values"]:
                return found["values"][name]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self.tell("end")
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def peer(package: str, role: str, port: int) -> Iterator[Peer]:
    made = Peer(package, role, port)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with running(Mosquitto(tmp_path)) as server:
        yield server.port


def address(port: int, tmp_path: Path, sparkplug: str, level: str, more: str = "") -> str:
    device = "/{source}" if level == "D" else ""
    birth = ', "DATA/Temperature" = "temperature"' if level == "N" else ""  # how mqtt-spb-wrapper names it in births
    (tmp_path / "plant.toml").write_text(f"""
[topics."spBv1.0/north/{level}DATA/{{place}}{device}"]
type = "PeerClimate"
payload = "sparkplug"
attributes = {{ Temperature = "temperature"{birth} }}

[topics."spBv1.0/north/{level}CMD/{{place}}{device}"]
type = "PeerTarget"
payload = "sparkplug"
attributes = {{ Target = "target" }}

[topics]
"spBv1.0/north/NBIRTH/{{place}}" = {{ type = "PeerState", payload = "sparkplug" }}
"spBv1.0/north/NDEATH/{{place}}" = {{ type = "PeerState", payload = "sparkplug" }}
""")
    return f"mqtt://127.0.0.1:{port}/city?sparkplug={sparkplug}&map={tmp_path / 'plant.toml'}{more}"


def test_an_edge_node_of_pysparkplug_is_heard_commanded_and_missed(port: int, tmp_path: Path) -> None:
    lost: list[Any] = []
    with open_bus(address(port, tmp_path, "north", "D", "&sparkplug_host=scada")) as bus:
        climate, states = bus.collection(PeerClimate).inbox(on_problem=lost.append), bus.collection(PeerState).inbox()
        with peer("pysparkplug", "pysparkplug_edge", port) as node:
            state = states.get(timeout=PATIENCE_S)
            assert (state.online, state.place) == (True, "boiler")
            first = climate.get(timeout=PATIENCE_S)
            assert (first.temperature, first.place, first.source) == (20.5, "boiler", "probe")
            node.tell("data 21.5")
            assert climate.get(timeout=PATIENCE_S).temperature == 21.5
            bus.publish(PeerTarget(target=19.5, place="boiler", source="probe"))
            assert node.await_message("DCMD", "Target") == 19.5
            node.tell("skip")
            node.tell("data 22.5")
            assert node.await_message("NCMD", "Node Control/Rebirth") is True
            wait_for(lambda: bool(lost))
            assert lost == [EventsLost("PeerClimate or PeerState", 1, "north/boiler", lost[0].receiver, lost[0].reason)]
            node.kill()
        found = [states.get(timeout=PATIENCE_S).online]
        assert found == [False], "the will is the death of the node"


def test_genus_as_an_edge_node_is_understood_by_pysparkplug(port: int, tmp_path: Path) -> None:
    with peer("pysparkplug", "pysparkplug_host", port) as host:
        with open_bus(address(port, tmp_path, "north/genus", "D")) as bus:
            targets = bus.collection(PeerTarget).inbox()

            def is_heard() -> bool:
                host.tell("rebirth")  # until the host has subscribed
                return not host.heard.empty()

            wait_for(is_heard)
            bus.publish(PeerClimate(temperature=20.5, place="genus", source="probe"))
            assert host.await_message("DBIRTH", "Temperature") == 20.5
            bus.publish(PeerClimate(temperature=21.5, place="genus", source="probe"))
            assert host.await_message("DDATA", "Temperature") == 21.5
            host.tell("target 18.5")
            target = targets.get(timeout=PATIENCE_S)
            assert (target.target, target.place, target.source) == (18.5, "genus", "probe")
            host.tell("rebirth")
            assert host.await_message("DBIRTH", "Temperature") == 21.5
        assert "NDEATH" in [
            *iter(lambda: host.heard.get(timeout=PATIENCE_S)["topic"].split("/")[2], "NDEATH"),
            "NDEATH",
        ]


def test_an_edge_node_of_mqtt_spb_wrapper_is_heard_and_commanded(port: int, tmp_path: Path) -> None:
    with open_bus(address(port, tmp_path, "north", "N")) as bus:
        climate, states = bus.collection(PeerClimate).inbox(), bus.collection(PeerState).inbox()
        with peer("mqtt-spb-wrapper", "wrapper_edge", port) as node:
            assert climate.get(timeout=PATIENCE_S).temperature == 20.5
            node.tell("data 21.5")
            assert climate.get(timeout=PATIENCE_S).temperature == 21.5
            bus.publish(PeerTarget(target=19.5, place="boiler"))
            assert node.await_message("NCMD", "Target") == 19.5
        assert [states.get(timeout=PATIENCE_S).online for _ in range(2)] == [True, False]


def test_genus_as_an_edge_node_is_understood_by_mqtt_spb_wrapper(port: int, tmp_path: Path) -> None:
    with (
        peer("mqtt-spb-wrapper", "wrapper_host", port) as host,
        open_bus(address(port, tmp_path, "north/genus", "D")) as bus,
    ):
        targets = bus.collection(PeerTarget).inbox()
        value = 20.0

        def is_heard() -> bool:
            nonlocal value
            value += 1
            bus.publish(PeerClimate(temperature=value, place="genus", source="probe"))
            return not host.heard.empty()

        wait_for(is_heard)
        assert host.await_message("DATA", "Temperature") <= value
        host.tell("target 18.5")
        assert targets.get(timeout=PATIENCE_S).target == 18.5
