"""Addresses of zenoh networks: defaults, and errors that say what to write."""

from pathlib import Path

import pytest

from genus.errors import BusError
from genus.net._addresses import MEETING_PORT, parse_zenoh_address


def test_without_options_processes_of_this_machine_meet() -> None:
    options = parse_zenoh_address("")
    assert (options.realm, options.mode, options.scouting, options.port) == ("genus", "peer", "loopback", MEETING_PORT)
    assert options.meets
    assert options.has_connection


def test_a_named_router_is_all_that_is_used() -> None:
    options = parse_zenoh_address("city?connect=tcp/a:7447&connect=tcp/b:7447&wait=10s")
    assert (options.realm, options.connect) == ("city", ("tcp/a:7447", "tcp/b:7447"))
    assert (options.mode, options.scouting, options.wait_s) == ("client", "off", 10.0)
    assert options.has_connection
    assert not options.meets


def test_one_that_listens_is_a_peer() -> None:
    assert parse_zenoh_address("?listen=tcp/0.0.0.0:7450&connect=tcp/a:7447").mode == "peer"
    assert parse_zenoh_address("?connect=tcp/a:7447&mode=peer").mode == "peer"
    assert parse_zenoh_address("?scouting=lan").scouting == "lan"


def test_queues_and_recovery_are_options() -> None:
    options = parse_zenoh_address(
        "?reliable=1&capacity=5&overflow=block&receive_capacity=7&receive_overflow=drop_newest&port=1234"
    )
    assert (options.reliable, options.capacity, options.overflow) == (True, 5, "block")
    assert (options.receive_capacity, options.receive_overflow, options.port) == (7, "drop_newest", 1234)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("a/b", "'a/b' cannot be the name of a realm"),
        ("?conect=tcp/a:1", "did you mean 'connect'"),
        ("?connect", "write options as name=value"),
        ("?connect=a:7447", "write an endpoint: tcp/host:port"),
        ("?port=0", "write a whole number from 1 to 65535"),
        ("?port=1&port=2", "given twice"),
        ("?wait=soon", "wait is 'soon'; write seconds as a number"),
        ("?mode=router", "choose one of peer, client"),
        ("?mode=client", "mode=client needs a router"),
        ("?mode=client&connect=tcp/a:1&listen=tcp/b:1", "a client does not listen"),
        ("?scouting=lan2", "did you mean 'lan'"),
        ("?scouting=loopback&connect=tcp/a:1", "without connect="),
        ("?reliable=yes", "write 1 or 0"),
        ("?capacity=none", "write a whole number"),
        ("?overflow=raise", "not possible: zenoh does not tell that its queue is full"),
        ("?overflow=drop_oldest", "zenoh's queue drops the newest"),
        ("?receive_overflow=block", "zenoh's own threads would wait"),
        ("?receive_overflow=raise", "has no caller that could be told"),
        ("?ca=/nowhere/ca.pem", "is not a file"),
    ],
)
def test_a_wrong_address_says_what_to_write(rest: str, message: str) -> None:
    with pytest.raises(BusError, match=message):
        parse_zenoh_address(rest)


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.touch()
    with pytest.raises(BusError, match="belong together"):
        parse_zenoh_address(f"?cert={file}")
    assert parse_zenoh_address(f"?cert={file}&key={file}&ca={file}").key == file
