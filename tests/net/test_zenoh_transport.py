"""zenoh without a server: the processes of a machine find each other on the loopback interface."""

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from genus.errors import BusError
from genus.net._transport import BULK, NORMAL, SOFT, URGENT, Sending

pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")

from tests.net.zenoh_network import Process, free_port, participant, wait_for

MEMBER = """
import sys
from tests.net.zenoh_network import participant
from genus.net._transport import Sending
with participant(sys.argv[1]) as (transport, collector):
    transport.declare("@genus/r/here/" + sys.argv[2])
    transport.subscribe("r/all/**")
    sender = transport.sender("r/all/" + sys.argv[2], Sending())
    print("ready", flush=True)
    for line in sys.stdin:
        if line.startswith("put"):
            sender.put(line.strip().encode(), b"e")
        else:
            print(sorted(payload.decode() for payload in collector.payloads), flush=True)
"""


@pytest.fixture
def address() -> str:
    return f"r?port={free_port()}"


@pytest.fixture
def members() -> Iterator[list[Process]]:
    found: list[Process] = []
    yield found
    for each in found:
        each.kill()


def test_a_packet_arrives_with_key_envelope_and_payload(address: str) -> None:
    with participant(address) as (a, at_a), participant(address) as (b, at_b):
        b.subscribe("r/Edge/*/Loop/**")
        a.subscribe("r/**")
        sender = a.sender("r/Edge/1/Loop", Sending())
        wait_for(lambda: sender.put(b"payload", b"envelope") or at_b.packets)
        assert at_b.packets[0] == ("r/Edge/1/Loop", b"envelope", b"payload")
        assert at_a.packets == []  # nothing of its own
        a.sender("r/Other", Sending()).put(b"", b"")
        a.sender("r/Edge/0/Loop/Deep", Sending()).put(b"", b"")
        wait_for(lambda: at_b.packets[-1] == ("r/Edge/0/Loop/Deep", b"", b""))
        assert {key for key, _, _ in at_b.packets} == {"r/Edge/1/Loop", "r/Edge/0/Loop/Deep"}


def test_packets_of_a_key_keep_their_order_with_any_priority(address: str) -> None:
    with participant(address + "&full=block") as (a, _), participant(address) as (b, at_b):
        b.subscribe("r/**")
        b.declare("b")
        seen: list[str] = []
        a.watch("b")
        for priority in (BULK, NORMAL, SOFT, URGENT):
            sender = a.sender(f"r/{priority}", Sending(priority))
            wait_for(lambda key=f"r/{priority}", sender=sender: sender.put(b"-1", b"") or _of(at_b, key))  # type: ignore[misc]
            for number in range(500):
                sender.put(b"%d" % number, b"")
            wait_for(lambda key=f"r/{priority}": _of(at_b, key)[-1:] == [499])  # type: ignore[misc]
            assert [each for each in _of(at_b, f"r/{priority}") if each >= 0] == list(range(500))
            seen.append(f"r/{priority}")
        assert len(at_b.threads) == 1


def _of(collector: object, key: str) -> list[int]:
    return [int(payload) for each, _, payload in collector.packets if each == key]  # type: ignore[attr-defined]


def test_a_large_packet_arrives_whole(address: str) -> None:
    with participant(address) as (a, _), participant(address) as (b, at_b):
        b.subscribe("r/**")
        sender = a.sender("r/big", Sending())
        wait_for(lambda: sender.put(b"small", b"") or at_b.packets)
        big = os.urandom(1 << 20) * 20
        sender.put(big, b"e")
        wait_for(lambda: at_b.packets[-1][2] == big)


def test_an_ended_subscription_gets_nothing(address: str) -> None:
    with participant(address) as (a, _), participant(address) as (b, at_b):
        end = b.subscribe("r/x")
        b.subscribe("r/y")
        x, y = a.sender("r/x", Sending()), a.sender("r/y", Sending())
        wait_for(
            lambda: x.put(b"before", b"") or y.put(b"", b"") or {"r/x", "r/y"} <= {key for key, _, _ in at_b.packets}
        )
        end()
        end()
        x.put(b"after", b"")
        y.put(b"last", b"")
        wait_for(lambda: b"last" in at_b.payloads)
        assert b"after" not in at_b.payloads


def test_tokens_are_shown_to_others_present_and_future_ones(address: str) -> None:
    with participant(address) as (a, at_a), participant(address) as (b, at_b):
        end = a.declare("@genus/r/here/a")
        a.watch("@genus/r/here/**")
        b.watch("@genus/r/here/**")
        wait_for(lambda: at_b.tokens.get("@genus/r/here/a"))
        b.declare("@genus/r/here/b")
        wait_for(lambda: at_a.tokens.get("@genus/r/here/b"))
        end()
        wait_for(lambda: at_b.tokens == {"@genus/r/here/a": False})
        assert at_a.tokens == {"@genus/r/here/b": True}  # not its own


def test_without_a_server_a_participant_is_connected(address: str) -> None:
    with participant(address) as (_, collector):
        wait_for(lambda: collector.connections == [True])


def test_a_crash_is_seen_by_the_token(address: str, members: list[Process]) -> None:
    with participant(address) as (a, at_a):
        a.watch("@genus/r/here/**")
        other = Process(MEMBER, address, "other")
        members.append(other)
        wait_for(lambda: at_a.tokens.get("@genus/r/here/other"))
        members.remove(other)
        other.kill()
        wait_for(lambda: at_a.tokens == {"@genus/r/here/other": False}, patience_s=2)


def test_the_first_process_is_killed_the_others_go_on_and_a_newcomer_takes_the_port(
    address: str, members: list[Process]
) -> None:
    first = Process(MEMBER, address, "first")
    assert first.line() == "ready"
    members += [Process(MEMBER, address, name) for name in ("second", "third")]
    assert [each.line() for each in members] == ["ready", "ready"]
    with participant(address) as (watcher, tokens):
        watcher.watch("@genus/r/here/**")
        wait_for(lambda: sum(tokens.tokens.values()) == 3)
        first.kill()
        wait_for(lambda: sum(tokens.tokens.values()) == 2)
        members[0].say("put the rest goes on")
        wait_for(lambda: members[1].say("?") or "put the rest goes on" in members[1].line())  # type: ignore[func-returns-value]
        members.append(Process(MEMBER, address, "newcomer"))
        assert members[-1].line() == "ready"
        wait_for(lambda: sum(tokens.tokens.values()) == 3)
        port = int(address.partition("port=")[2])
        with socket.socket() as probe, pytest.raises(OSError, match="in use"):
            probe.bind(("127.0.0.1", port))
        for number, sender in enumerate(members):
            for other in members[:number] + members[number + 1 :]:
                text = f"put {number}"
                wait_for(lambda: sender.say(text) or other.say("?") or text in other.line())  # type: ignore[func-returns-value]  # noqa: B023


def test_a_port_of_another_program_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with (
            pytest.raises(BusError, match=f"port {port}.*does not answer as zenoh does"),
            participant(f"r?port={port}"),
        ):
            pass


def test_closing_is_quick_and_leaves_no_thread(address: str) -> None:
    before = threading.active_count()
    with participant(address) as (a, _), participant(address) as (b, _):
        a.subscribe("r/**", kept=True)
        b.sender("r/x/y/z", Sending(keep=True, reliable=True)).put(b"x", b"")
    wait_for(lambda: threading.active_count() == before)
    a.close()
    with pytest.raises(BusError, match="not open"):
        a.subscribe("r/**")
