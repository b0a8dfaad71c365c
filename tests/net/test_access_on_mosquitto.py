"""A mosquitto with the access list of a grants file, over mutual TLS: what users get by their certificates."""

import getpass
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import pytest

from genus import Event, Maybe, Subscription, Unit, open_bus
from genus.bus import BestEffort, Bus
from genus.errors import BusError
from genus.net import Gateway, NetLink, read_grants
from genus.net.types import Refusal
from tests.net.certificates import Authority, Certificate
from tests.programs import need
from tests.waiting import wait_for

mqtt5 = pytest.importorskip("mqtt5")


class RiverMark(Event):
    level: Maybe[Annotated[float, Unit("m")]] = None


class HighRiver(RiverMark): ...


class Barge(Event): ...


GRANTS = """
[users.gauge]
publish = ["RiverMark"]

[users.harbour]
subscribe = ["RiverMark"]

[users.pilot]
subscribe = ["Barge"]

[users.lock]
gateway = true
"""


class Client:
    """One connection; waits for what the broker answers."""

    def __init__(self, port: int, authority: Authority, own: Certificate | None) -> None:
        context = ssl.create_default_context(cafile=str(authority.root))
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._received = b""
        self._heard: list[str] = []
        self._number = 0

    def __enter__(self) -> "Client":
        try:
            self._send(mqtt5.ConnectPacket("", clean_start=True))
            assert self._await(mqtt5.ConnAckPacket).reason_code == 0
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def subscribe(self, pattern: str) -> int:
        """Subscribe; the reason code of the answer."""
        self._number += 1
        self._send(mqtt5.SubscribePacket(self._number, [mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
        (code,) = self._await(mqtt5.SubAckPacket).reason_codes
        return int(code)

    def publish(self, topic: str, payload: bytes = b"x") -> int:
        """Publish with QoS 1; the reason code of the answer."""
        self._number += 1
        self._send(mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=self._number))
        return int(self._await(mqtt5.PubAckPacket).reason_code)

    def heard(self) -> list[str]:
        """The topics of what was delivered before the broker answered a ping: it answers in order."""
        self._send(mqtt5.PingReqPacket())
        self._await(mqtt5.PingRespPacket)
        return self._heard

    def _send(self, packet: Any) -> None:
        self._socket.sendall(packet.write())

    def _await(self, kind: type[Any]) -> Any:
        while True:
            packet = self._next()
            if isinstance(packet, kind):
                return packet
            if isinstance(packet, mqtt5.PublishPacket):
                self._heard.append(packet.topic)
                if packet.packet_id:
                    self._send(mqtt5.PubAckPacket(packet.packet_id))

    def _next(self) -> Any:
        while True:
            try:
                packet, used = mqtt5.read(memoryview(self._received))
            except IndexError:
                more = self._socket.recv(65536)
                if not more:
                    raise ConnectionResetError("the broker closed the connection") from None
                self._received += more
            else:
                self._received = self._received[used:]
                return packet


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def port(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = need("mosquitto")
    folder = tmp_path_factory.mktemp("mosquitto")
    (folder / "grants.toml").write_text(GRANTS)
    (folder / "acl.txt").write_text(
        read_grants(folder / "grants.toml", [RiverMark, HighRiver, Barge]).mosquitto_acl("city")
    )
    server = authority.issue("broker")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    (folder / "mosquitto.conf").write_text(
        f"user {getpass.getuser()}\nlistener {number} 127.0.0.1\nallow_anonymous false\nacl_file {folder / 'acl.txt'}\n"
        f"cafile {authority.root}\ncertfile {server.certificate}\nkeyfile {server.key}\n"
        "require_certificate true\nuse_identity_as_username true\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "-c", str(folder / "mosquitto.conf")], stdout=log, stderr=log)
    try:
        _await_port(number, process, folder / "log")
        yield number
    finally:
        process.terminate()
        process.wait(30)


def _await_port(number: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    def accepts() -> bool:
        assert process.poll() is None, log.read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", number), timeout=1):
            return True
        return False

    wait_for(accepts, str(log))


NOT_AUTHORIZED = 135


def test_users_publish_and_receive_what_is_granted(port: int, authority: Authority) -> None:
    with (
        Client(port, authority, authority.issue("gauge")) as gauge,
        Client(port, authority, authority.issue("harbour")) as harbour,
        Client(port, authority, authority.issue("pilot")) as pilot,
    ):
        assert harbour.subscribe("city/RiverMark/#") == 1
        assert harbour.subscribe("@genus/city/last/RiverMark/#") == 1
        assert pilot.subscribe("city/#") == 1, "a SUBSCRIBE that is denied looks granted"
        assert pilot.subscribe("city/RiverMark/#") == 1
        assert pilot.subscribe("@genus/city/last/#") == 1
        assert gauge.publish("city/RiverMark") == 0
        assert gauge.publish("city/RiverMark/HighRiver") == 0
        assert gauge.publish("@genus/city/last/RiverMark/=A8") == 0
        assert gauge.publish("city/Barge") == NOT_AUTHORIZED
        assert gauge.publish("@genus/city/last/Barge/=A8") == NOT_AUTHORIZED
        assert gauge.publish("elsewhere/RiverMark") == NOT_AUTHORIZED
        assert pilot.publish("city/RiverMark") == NOT_AUTHORIZED
        assert harbour.heard() == ["city/RiverMark", "city/RiverMark/HighRiver", "@genus/city/last/RiverMark/=A8"]
        assert pilot.heard() == []


def test_everyone_takes_part_in_the_control_keys(port: int, authority: Authority) -> None:
    with (
        Client(port, authority, authority.issue("gauge")) as gauge,
        Client(port, authority, authority.issue("pilot")) as pilot,
    ):
        assert gauge.subscribe("@genus/city/want/#") == 1
        assert pilot.publish("@genus/city/want/0011223344556677/0011223344556677/U2hpcB/0") == 0
        assert pilot.publish("@genus/elsewhere/want/a/b/c/0") == NOT_AUTHORIZED
        assert gauge.heard() == ["@genus/city/want/0011223344556677/0011223344556677/U2hpcB/0"]


def test_only_gateways_may_say_that_they_are_gateways(port: int, authority: Authority) -> None:
    with (
        Client(port, authority, authority.issue("lock")) as lock,
        Client(port, authority, authority.issue("gauge")) as gauge,
        Client(port, authority, authority.issue("pilot")) as pilot,
    ):
        assert gauge.subscribe("@genus/city/gate/#") == 1
        for key in ("@genus/city/gate", "@genus/city/gate/0011223344556677/x"):
            assert pilot.publish(key) == NOT_AUTHORIZED
            assert lock.publish(key) == 0
        assert gauge.heard() == ["@genus/city/gate", "@genus/city/gate/0011223344556677/x"]


def test_what_the_broker_keeps_silent_about_the_grants_say(tmp_path: Path) -> None:
    """That is why a link must know them."""
    (tmp_path / "grants.toml").write_text(GRANTS)
    grants = read_grants(tmp_path / "grants.toml")
    assert isinstance(grants.may_subscribe("pilot", Subscription(RiverMark)), Refusal)
    assert grants.may_subscribe("harbour", Subscription(HighRiver))


def test_a_certificate_without_grants_hears_nothing(port: int, authority: Authority) -> None:
    with (
        Client(port, authority, authority.issue("stranger")) as stranger,
        Client(port, authority, authority.issue("gauge")) as gauge,
    ):
        assert stranger.subscribe("#") == 1
        assert gauge.publish("city/RiverMark") in (0, 16)
        assert stranger.publish("city/RiverMark") == NOT_AUTHORIZED
        assert stranger.heard() == []


# -- typed buses -------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(port: int, authority: Authority, tmp_path: Path) -> Iterator[Callable[[str], Bus]]:
    """Opens the bus of a user, by its address; it knows the grants."""
    (tmp_path / "grants.toml").write_text(GRANTS)
    with ExitStack() as stack:

        def open_as(user: str) -> Bus:
            own = authority.issue(user)
            options = {"ca": authority.root, "cert": own.certificate, "key": own.key}
            query = urlencode({**options, "grants": tmp_path / "grants.toml", "user": user})
            return stack.enter_context(open_bus(f"mqtts://127.0.0.1:{port}/city?{query}"))

        yield open_as


def test_typed_buses_work_under_the_access_list(opened: Callable[[str], Bus]) -> None:
    """Events, kept events for those who come later, interest and participants: all that a link does is allowed."""
    gauge, harbour = opened("gauge"), opened("harbour")
    link = gauge.link
    assert isinstance(link, NetLink)
    kept = gauge.channel(HighRiver, BestEffort(), keep=True)
    kept.announce()
    kept.publish(HighRiver(source="A8"))
    heard: list[Event] = []
    harbour.collection(RiverMark).subscribe(heard.append)
    wait_for(lambda: heard == [HighRiver(source="A8")])
    wait_for(lambda: link.wanted_by(RiverMark()))
    gauge.publish(RiverMark(place="A9", level=1.5))
    wait_for(lambda: len(heard) == 2)
    wait_for(lambda: len(link.participants()) == 1)
    assert heard == [HighRiver(source="A8"), RiverMark(place="A9", level=1.5)]


def test_gateways_hear_each_other_under_the_access_list(opened: Callable[[str], Bus]) -> None:
    """And who may not be one is told so."""
    links = [bus.link for bus in (opened("lock"), opened("lock"))]
    heard: list[str] = []
    assert isinstance(links[0], NetLink)
    assert isinstance(links[1], NetLink)
    links[0].on_gateways(heard.append)
    links[1].tell_gateways("it works")
    wait_for(lambda: heard == ["it works"])
    with open_bus() as road, pytest.raises(BusError, match="pilot may not be a gateway that has a name: "):
        Gateway(road, opened("pilot"), name="pair")


def test_a_typed_bus_says_what_the_broker_would_keep_silent_about(opened: Callable[[str], Bus]) -> None:
    pilot = opened("pilot")
    pilot.collection(Barge).subscribe(print)
    with pytest.raises(BusError, match=r"pilot may not subscribe to RiverMark: .* grants Barge"):
        pilot.collection(RiverMark).subscribe(print)
    with pytest.raises(BusError, match=r"pilot may not publish Barge: .* grants nothing"):
        pilot.publish(Barge())


def test_without_a_certificate_of_the_authority_there_is_no_connection(
    port: int, authority: Authority, tmp_path: Path
) -> None:
    forged = Authority(tmp_path, "forger").issue("gauge")
    for own in (None, forged):
        with pytest.raises((ssl.SSLError, ConnectionError)), Client(port, authority, own):
            pass
