"""A receiver that raises, which it must not, does not end the delivery of what comes behind, on any transport."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from genus.net._addresses import parse_ipc_address, parse_zenoh_address
from genus.net._ipc.transport import IpcTransport
from genus.net._mqtt.address import parse_mqtt_address
from genus.net._mqtt.transport import MqttTransport
from genus.net._transport import Sending, Transport
from genus.net._zenoh_transport import ZenohTransport
from tests.net.mqtt_servers import KINDS, make_server, running
from tests.net.recording_receiver import RecordingReceiver
from tests.net.zenoh_network import free_port
from tests.waiting import wait_for

BAD = b"bad"


class Failing(RecordingReceiver):
    """A receiver that cannot stand some packets and tokens."""

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        if payload == BAD:
            raise RecursionError("too deep")
        super().packet(key, envelope, payload)

    def token(self, key: str, is_present: bool) -> None:
        if "bad" in key:
            raise ValueError("no token")
        super().token(key, is_present)


@pytest.fixture(params=["ipc", "zenoh", KINDS[0]])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Transport, Transport, Failing]]:
    with ExitStack() as stack:
        made: list[Transport] = []
        if request.param == "ipc":
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
            made += [IpcTransport(*parse_ipc_address("test")) for _ in range(2)]
        elif request.param == "zenoh":
            pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")
            port = free_port()
            made += [ZenohTransport(parse_zenoh_address(f"r?port={port}")) for _ in range(2)]
        else:
            server = stack.enter_context(running(make_server(request.param, tmp_path)))
            address = f"//127.0.0.1:{server.port}/r"
            made += [MqttTransport(parse_mqtt_address(address)) for _ in range(2)]
        receiver = Failing()
        made[0].open(RecordingReceiver())
        stack.callback(made[0].close)
        made[1].open(receiver)
        stack.callback(made[1].close)
        yield made[0], made[1], receiver


def test_what_follows_a_failure_is_delivered_and_failures_count(
    pair: tuple[Transport, Transport, Failing],
) -> None:
    speaker, listener, receiver = pair
    for name in ("a", "bad", "z"):
        speaker.declare(f"@genus/r/here/{name}")
    listener.watch(f"@genus/r/here/{listener.dialect.rest}")
    wait_for(lambda: set(receiver.tokens) == {"@genus/r/here/a", "@genus/r/here/z"})
    listener.subscribe("r/x")
    sender = speaker.sender("r/x", Sending())

    def is_heard() -> bool:
        sender.put(BAD, b"")
        sender.put(b"good", b"")
        return len(receiver.payloads) > 10

    wait_for(is_heard)
    assert set(receiver.payloads) == {b"good"}
    assert listener.counters()["failed: an error of the receiver (ValueError)"] == 1
    assert listener.counters()["failed: an error of the receiver (RecursionError)"] >= 10
    speaker.declare("@genus/r/here/later")
    wait_for(lambda: "@genus/r/here/later" in receiver.tokens)
