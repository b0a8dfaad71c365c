"""TLS and mutual TLS, against mosquitto."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from genus.errors import BusError
from genus.net._mqtt.address import parse_mqtt_address
from genus.net._mqtt.transport import MqttTransport
from genus.net._transport import Sending
from genus.testing import MqttBroker
from tests.net.certificates import Authority
from tests.net.mqtt_servers import Listener, Mosquitto, running
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    ca = Authority(made, "ca")
    for name in ("server", "client"):
        ca.issue(name)
    Authority(made, "stranger")
    return made


@pytest.fixture(params=[False, True], ids=["TLS", "mutual TLS"])
def server(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[tuple[Mosquitto, bool]]:
    lines = [
        f"cafile {folder / 'ca.pem'}",
        f"certfile {folder / 'server.pem'}",
        f"keyfile {folder / 'server.key'}",
        f"require_certificate {'true' if request.param else 'false'}",
        "allow_anonymous true",
    ]
    made = Mosquitto(tmp_path, *lines)
    with running(made):
        yield made, request.param


def transport(server: Mosquitto, query: str) -> MqttTransport:
    return MqttTransport(parse_mqtt_address(f"//localhost:{server.port}/city?{query}", tls=True))


@pytest.mark.slow
def test_packets_pass_over_tls(server: tuple[Mosquitto, bool], folder: Path) -> None:
    broker, is_mutual = server
    query = f"ca={folder / 'ca.pem'}"
    if is_mutual:
        query += f"&cert={folder / 'client.pem'}&key={folder / 'client.key'}"
    one, other, heard = transport(broker, query), transport(broker, query), Listener()
    one.open(Listener())
    other.open(heard)
    try:
        other.subscribe("city/#")
        payloads = [str(number).encode() * 100 for number in range(1000)] + [b"x" * 3_000_000]
        for reliable in (True, False):
            sender = one.sender("city/a", Sending(reliable=reliable))
            heard.packets.clear()
            for payload in payloads:
                sender.put(payload, bytes(25))
            wait_for(lambda: len(heard.packets) == len(payloads))
            assert heard.payloads == payloads
    finally:
        one.close()
        other.close()


def test_a_server_with_a_strange_certificate_is_refused(server: tuple[Mosquitto, bool], folder: Path) -> None:
    broker, _ = server
    with pytest.raises(BusError, match="certificate of the server is not trusted"):
        transport(broker, f"ca={folder / 'stranger.pem'}").open(Listener())


def test_a_client_without_a_valid_certificate_is_refused(server: tuple[Mosquitto, bool], folder: Path) -> None:
    broker, is_mutual = server
    if not is_mutual:
        return
    for own, why in (
        ("", "the server asks for a certificate of this client; give cert= and key="),
        (f"&cert={folder / 'stranger.pem'}&key={folder / 'stranger.key'}", "does not trust the certificate of this"),
    ):
        with pytest.raises(BusError, match=rf"^mqtts://localhost:\d+/city: .*{why}"):
            transport(broker, f"ca={folder / 'ca.pem'}{own}").open(Listener())


def test_tls_on_one_side_only_is_told(server: tuple[Mosquitto, bool], folder: Path, tmp_path: Path) -> None:
    broker, _ = server
    with pytest.raises(BusError, match=r"[wW]rite mqtts://"):
        MqttTransport(parse_mqtt_address(f"//localhost:{broker.port}/city")).open(Listener())
    with MqttBroker() as plain, pytest.raises(BusError, match=r"(does|may) not speak TLS here"):
        MqttTransport(parse_mqtt_address(f"//localhost:{plain.port}/city", tls=True)).open(Listener())


def test_files_that_cannot_be_used_are_named(folder: Path) -> None:
    for query, why in (
        ("ca=/nowhere/ca.pem", "/nowhere/ca.pem cannot be read"),
        (f"ca={folder / 'ca.key'}", "the certificates cannot be used"),
        (f"cert={folder / 'client.pem'}&key={folder / 'server.key'}", "the certificates cannot be used"),
    ):
        with pytest.raises(BusError, match=why):
            MqttTransport(parse_mqtt_address(f"//localhost/city?{query}", tls=True))
