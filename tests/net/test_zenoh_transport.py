"""zenoh without a server: the processes of a machine find each other on the loopback interface."""

import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from genus.errors import BusError
from genus.net import _zenoh_session as session
from genus.net._transport import BULK, NORMAL, SOFT, URGENT, Sending
from tests.waiting import wait_for

pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")

from tests.net.zenoh_network import Process, free_port, participant, put_until

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
        put_until(sender, lambda: at_b.packets, b"payload")
        assert at_b.packets[0] == ("r/Edge/1/Loop", b"envelope", b"payload")
        assert at_a.packets == []  # nothing of its own
        a.sender("r/Other", Sending()).put(b"", b"")
        a.sender("r/Edge/0/Loop/Deep", Sending()).put(b"", b"")
        wait_for(lambda: at_b.packets[-1] == ("r/Edge/0/Loop/Deep", b"", b""))
        assert {key for key, _, _ in at_b.packets} == {"r/Edge/1/Loop", "r/Edge/0/Loop/Deep"}


def test_packets_of_a_key_keep_their_order_with_any_priority(address: str) -> None:
    with participant(address + "&overflow=block") as (a, _), participant(address) as (b, at_b):
        b.subscribe("r/**")
        for priority in (BULK, NORMAL, SOFT, URGENT):
            at_b.packets.clear()
            sender = a.sender(f"r/{priority}", Sending(priority))
            put_until(sender, lambda: at_b.packets)
            for number in range(500):
                sender.put(b"%d" % number, b"")
            wait_for(lambda: at_b.numbers()[-1] == 499)
            assert [each for each in at_b.numbers() if each >= 0] == list(range(500))
        assert len(at_b.threads) == 1


def test_a_large_packet_arrives_whole(address: str) -> None:
    with participant(address) as (a, _), participant(address) as (b, at_b):
        b.subscribe("r/**")
        sender = a.sender("r/big", Sending())
        put_until(sender, lambda: at_b.packets)
        big = os.urandom(1 << 20) * 20
        sender.put(big, b"e")
        wait_for(lambda: at_b.packets[-1][2] == big)


def test_an_ended_subscription_gets_nothing(address: str) -> None:
    with participant(address) as (a, _), participant(address) as (b, at_b):
        end = b.subscribe("r/x")
        b.subscribe("r/y")
        x, y = a.sender("r/x", Sending()), a.sender("r/y", Sending())
        put_until([x, y], lambda: {key for key, _, _ in at_b.packets} == {"r/x", "r/y"})
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
        wait_for(lambda: at_a.tokens == {"@genus/r/here/other": False}, seconds=5)


@pytest.mark.slow
def test_a_silent_process_is_gone_after_the_lease_and_comes_back(address: str, members: list[Process]) -> None:
    with participant(address) as (a, at_a):
        a.watch("@genus/r/here/**")
        members.append(Process(MEMBER, address, "other"))
        wait_for(lambda: at_a.tokens.get("@genus/r/here/other"))
        members[0].signal(signal.SIGSTOP)
        wait_for(lambda: at_a.tokens == {"@genus/r/here/other": False}, seconds=10)
        members[0].signal(signal.SIGCONT)
        wait_for(lambda: at_a.tokens == {"@genus/r/here/other": True})


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
        wait_for(lambda: "put the rest goes on" in members[1].ask("?"))
        members.append(Process(MEMBER, address, "newcomer"))
        assert members[-1].line() == "ready"
        wait_for(lambda: sum(tokens.tokens.values()) == 3)
        port = int(address.partition("port=")[2])
        with socket.socket() as probe, pytest.raises(OSError, match="in use"):
            probe.bind(("127.0.0.1", port))
        for number, sender in enumerate(members):
            for other in members[:number] + members[number + 1 :]:
                _reaches(sender, other, f"put {number}")


def _reaches(sender: Process, other: Process, text: str) -> None:
    sender.say(text)
    wait_for(lambda: text in other.ask("?"))


def test_a_port_of_another_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_MEET_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with (
            pytest.raises(BusError, match=f"port {port}.*does not answer as zenoh does"),
            participant(f"r?port={port}"),
        ):
            pass


def test_what_was_sent_before_closing_arrives(address: str) -> None:
    with participant(address) as (b, at_b):
        b.subscribe("r/x")
        with participant(address + "&overflow=block") as (a, _):
            sender = a.sender("r/x", Sending())
            put_until(sender, lambda: at_b.packets)
            for number in range(2000):
                sender.put(b"%d" % number, b"")
        wait_for(lambda: at_b.numbers()[-1] == 1999)
        assert [each for each in at_b.numbers() if each >= 0] == list(range(2000))


def test_closing_is_quick_and_leaves_no_thread(address: str) -> None:
    before = threading.active_count()
    with participant(address) as (a, _), participant(address) as (b, _):
        a.subscribe("r/**", kept=True)
        b.sender("r/x/y/z", Sending(keep=True, reliable=True)).put(b"x", b"")
    wait_for(lambda: threading.active_count() <= before)
    a.close()
    with pytest.raises(BusError, match="not open"):
        a.subscribe("r/**")


def test_what_is_too_long_is_refused_before_zenoh_panics(address: str) -> None:
    long = "r/" + "ä" * 40_000
    with participant(address) as (a, _), participant(address) as (b, at_b):
        for refused in (a.subscribe, a.declare, a.watch, lambda key: a.sender(key, Sending(keep=True))):
            with pytest.raises(BusError, match="has 80,002 bytes, more than 60,000"):
                refused(long)
        longest = "r/" + "x" * 59_998
        b.subscribe(longest)
        put_until(a.sender(longest, Sending()), lambda: at_b.packets)
        assert at_b.packets[0][0] == longest
