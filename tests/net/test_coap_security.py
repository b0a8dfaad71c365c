"""OSCORE protects requests and observations; without keys nothing is answered, and nothing goes unprotected."""

import json
from pathlib import Path

import pytest
from aiocoap import defaults

from genus import Subscription, open_bus
from genus.errors import BusError
from tests.waiting import wait_for

from .coap_network import QUICK, CoapLoop, Heard, client, free_port, sums

missing = defaults.oscore_missing_modules()
needs_oscore = pytest.mark.skipif(bool(missing), reason=f"OSCORE needs {', '.join(missing)} (genus[oscore])")

SECRET = {"algorithm": "AES-CCM-16-64-128", "secret_hex": "0102030405060708090a0b0c0d0e0f10"}


def context(folder: Path, sender: str, recipient: str) -> Path:
    folder.mkdir()
    settings = {**SECRET, "sender-id_hex": sender, "recipient-id_hex": recipient}
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


def credentials(path: Path, entries: dict[str, Path]) -> Path:
    path.write_text(json.dumps({name: {"oscore": {"basedir": str(folder)}} for name, folder in entries.items()}))
    return path


@needs_oscore
def test_events_are_protected_both_ways(tmp_path: Path) -> None:
    port = free_port()
    for_server = credentials(tmp_path / "server.json", {":ann": context(tmp_path / "server", "01", "02")})
    for_client = credentials(
        tmp_path / "client.json", {f"coap://127.0.0.1:{port}/*": context(tmp_path / "client", "02", "01")}
    )
    down, up = Heard(), Heard()
    with open_bus(f"coap:?listen=127.0.0.1:{port}&{QUICK}&credentials={for_server}") as hub:
        with open_bus(f"coap://127.0.0.1:{port}?{QUICK}&credentials={for_client}") as one:
            hub.subscribe(Subscription(CoapLoop), up)
            one.subscribe(Subscription(CoapLoop), down)
            for lane in range(20):
                hub.publish(CoapLoop(lane=lane))
                one.publish(CoapLoop(lane=100 + lane))
            wait_for(lambda: len(up) == 40 and len(down) == 40)
            assert [lane for lane in down.lanes() if lane < 100] == list(range(20))
            assert [lane for lane in up.lanes() if lane >= 100] == list(range(100, 120))
        with pytest.raises(BusError, match=r"4\.01 Unauthorized; give credentials=FILE"):
            client(port)
        assert sums(hub, "refused: a request without the protection") > 0


@needs_oscore
def test_a_client_without_keys_for_its_server_sends_nothing(tmp_path: Path) -> None:
    path = credentials(tmp_path / "client.json", {"coap://other.example/*": context(tmp_path / "client", "02", "01")})
    with pytest.raises(BusError, match=r"has no credentials for coap://127\.0\.0\.1"):
        open_bus(f"coap://127.0.0.1:{free_port()}?{QUICK}&credentials={path}")


@pytest.mark.skipif(not missing, reason="the packages of OSCORE are installed")
def test_what_oscore_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    with pytest.raises(BusError, match=r"OSCORE needs .*pip install .*\[oscore\]'"):
        open_bus(f"coap:?listen=127.0.0.1:0&credentials={tmp_path}/keys.json")


@needs_oscore
@pytest.mark.parametrize(("text", "reason"), [("{", "cannot be read"), ("[]", "a JSON object"), ('{":a": 5}', "")])
def test_credentials_that_are_wrong_are_an_error(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(BusError, match=f"keys.json.*{reason}"):
        open_bus(f"coap:?listen=127.0.0.1:0&credentials={tmp_path}/keys.json")


def test_dtls_says_what_it_needs() -> None:
    with pytest.raises(BusError, match=r"coaps:\?listen=127.0.0.1:5684: DTLS .*OSCORE"):
        open_bus("coaps:?listen=127.0.0.1")
