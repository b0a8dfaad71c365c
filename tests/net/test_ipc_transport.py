"""Packets, tokens, kept packets and full queues between the transports of `ipc:`."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genus.errors import BusError, EventError, QueueFull
from genus.net._addresses import IpcOptions, parse_ipc_address
from genus.net._ipc.connections import ipc_folder
from genus.net._ipc.peer import MAX_PAYLOAD
from genus.net._ipc.transport import IpcTransport
from genus.net._transport import Sending, Transport
from tests.net.recording_receiver import RecordingReceiver

ENVELOPE = b"e" * 25
LUMP = b"x" * (1 << 18)
"""A payload of which a few fill a connection."""


class Held:
    """A handler that holds the thread that delivers, until it is released."""

    def __init__(self) -> None:
        self.is_held, self.go_on = threading.Event(), threading.Event()

    def __call__(self, payload: bytes) -> None:
        self.is_held.set()
        assert self.go_on.wait(60)


Open = Callable[..., tuple[IpcTransport, RecordingReceiver]]


@pytest.fixture
def open_transport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    opened: list[IpcTransport] = []
    holds: list[Held] = []

    def make(
        *patterns: str, on_packet: Callable[[bytes], object] | None = None, kept: bool = False, options: str = ""
    ) -> tuple[IpcTransport, RecordingReceiver]:
        transport, receiver = IpcTransport(*parse_ipc_address(f"test?{options}")), RecordingReceiver(on_packet)
        opened.append(transport)
        if isinstance(on_packet, Held):
            holds.append(on_packet)
        transport.open(receiver)
        for pattern in patterns:
            transport.subscribe(pattern, kept=kept)
        return transport, receiver

    yield make
    for hold in holds:
        hold.go_on.set()
    for transport in reversed(opened):
        transport.close()


def fill(transport: IpcTransport, key: str, count: int, sending: Sending | None = None) -> None:
    """Send so many packets of 256 KiB, numbered."""
    sender = transport.sender(key, sending or Sending())
    for number in range(count):
        sender.put(number.to_bytes(4) + LUMP, ENVELOPE)


def numbers(receiver: RecordingReceiver) -> list[int]:
    return [int.from_bytes(payload[:4]) for payload in receiver.payloads]


# -- packets -----------------------------------------------------------------------------------------------------------


def test_it_is_a_transport() -> None:
    transport: Transport = IpcTransport("test")
    assert transport.dialect.name == "zenoh"
    assert transport.abilities.keeps


def test_packets_come_in_order_with_their_envelope_to_those_that_subscribed(open_transport: Open) -> None:
    """Both ways on one connection, whoever came first; each once, though two patterns match."""
    one, got_one = open_transport("a/**")
    two, got_two = open_transport("b/*", "b/**", "a/c")
    _, got_none = open_transport("d/**")
    for number in range(500):
        one.sender("b/c", Sending()).put(b"%d" % number, ENVELOPE)
        two.sender("a/b/c", Sending()).put(b"%d" % number, b"")
    assert got_two.wait_for(500) == [b"%d" % number for number in range(500)]
    assert got_one.wait_for(500) == [b"%d" % number for number in range(500)]
    assert got_two.packets[0] == ("b/c", ENVELOPE, b"0")
    assert got_one.packets[0] == ("a/b/c", b"", b"0")
    assert got_none.packets == []
    assert one.counters() == {"packets sent": 500, "packets received": 500}


def test_what_is_published_after_subscribing_or_opening_is_not_missed(open_transport: Open) -> None:
    """Neither the first packet of one that was there, nor that of a newcomer; so a newcomer needs no pause."""
    early, _ = open_transport()
    for number in range(20):
        _, got = open_transport(f"n{number}/*")
        early.sender(f"n{number}/a", Sending()).put(b"early", b"")
        late, _ = open_transport()
        late.sender(f"n{number}/a", Sending()).put(b"late", b"")
        assert sorted(got.wait_for(2)) == [b"early", b"late"]


def test_a_subscription_ends(open_transport: Open) -> None:
    one, _ = open_transport()
    two, got = open_transport("z")
    end = two.subscribe("a")
    again = two.subscribe("a")
    end()
    end()
    one.sender("a", Sending()).put(b"1", b"")
    got.wait_for(1)
    again()
    two.subscribe("b")  # is answered after the end of the other
    one.sender("a", Sending()).put(b"2", b"")
    one.sender("z", Sending()).put(b"3", b"")
    assert got.wait_for(2) == [b"1", b"3"]


@pytest.mark.parametrize("size", [1 << 16, MAX_PAYLOAD - 25])
def test_large_packets_come_whole_and_in_order(open_transport: Open, size: int) -> None:
    one, _ = open_transport()
    _, got = open_transport("a/*", options="receive_overflow=block")
    large = os.urandom(1024) * (size // 1024) + b"z" * (size % 1024)
    for payload in (b"before", large, b"after"):
        one.sender("a/b", Sending()).put(payload, ENVELOPE)
    assert got.wait_for(3) == [b"before", large, b"after"]


def test_a_packet_that_is_too_large_is_refused(open_transport: Open) -> None:
    one, _ = open_transport()
    _, got = open_transport("a")
    sender = one.sender("a", Sending())
    with pytest.raises(EventError, match="carries up to 67,108,864"):
        sender.put(bytes(MAX_PAYLOAD), ENVELOPE)
    sender.put(b"next", b"")
    assert got.wait_for(1) == [b"next"]


def test_all_calls_come_from_one_thread(open_transport: Open) -> None:
    one, _ = open_transport()
    two, _ = open_transport()
    three, got = open_transport("a")
    three.watch("t/*")
    for other in (one, two):
        other.declare("t/x")
        threading.Thread(target=other.sender("a", Sending()).put, args=(b"1", b"")).start()
    got.wait_for(2)
    got.wait(lambda: bool(got.tokens))
    assert len(got.threads) == 1


def test_closing_sends_what_waits(open_transport: Open) -> None:
    one, _ = open_transport()
    _, got = open_transport("a")
    sender = one.sender("a", Sending())
    for number in range(3000):
        sender.put(b"%d" % number, b"")
    one.close()
    assert len(got.wait_for(3000)) == 3000
    with pytest.raises(BusError, match="closed"):
        sender.put(b"", b"")
    one.close()


def test_a_handler_may_publish_subscribe_and_close(open_transport: Open) -> None:
    echo, _ = open_transport()

    def answer(payload: bytes) -> None:
        echo_back.subscribe("more")
        echo_back.sender("answer", Sending()).put(payload, b"")
        echo_back.close()

    echo_back, _ = open_transport("ask", on_packet=answer)
    _, got = open_transport("answer")
    echo.sender("ask", Sending()).put(b"?", b"")
    assert got.wait_for(1) == [b"?"]


# -- kept packets and tokens -------------------------------------------------------------------------------------------


def test_the_newest_kept_packet_of_each_key_comes_first(open_transport: Open) -> None:
    one, _ = open_transport()
    for key in ("a/1", "a/2", "b/1"):
        sender = one.sender(key, Sending(keep=True))
        sender.put(b"old", b"")
        sender.put(b"new " + key.encode(), ENVELOPE)
        sender.close()
    one.sender("a/2", Sending(keep=True)).put(b"", b"")  # an empty packet ends it
    two, got = open_transport("a/*", kept=True)
    one.sender("a/1", Sending(keep=True)).put(b"live", b"")
    assert got.wait_for(2) == [b"new a/1", b"live"]
    two.subscribe("a/*", kept=True)  # who asks again gets it again
    assert got.wait_for(3)[2] == b"live"
    _, got_live = open_transport("**")
    one.sender("b/1", Sending()).put(b"only", b"")
    assert got_live.wait_for(1) == [b"only"]


def test_kept_packets_of_a_publisher_that_comes_later(open_transport: Open) -> None:
    _, got = open_transport("a/*", kept=True)
    one, _ = open_transport()
    one.sender("a/1", Sending(keep=True)).put(b"1", b"")
    assert got.wait_for(1) == [b"1"]


def test_more_kept_packets_than_the_capacity_all_come(open_transport: Open) -> None:
    one, _ = open_transport(options="capacity=10")
    for number in range(300):
        one.sender(f"a/{number}", Sending(keep=True)).put(b"%d" % number, b"")
    _, got = open_transport("a/*", kept=True, options="receive_capacity=10")
    assert len(got.wait_for(300)) == 300


def test_tokens_are_seen_while_their_owner_lives(open_transport: Open) -> None:
    one, _ = open_transport()
    two, _ = open_transport()
    end = one.declare("here/one")
    three, got = open_transport()
    three.watch("here/*")
    assert got.tokens.keys() == {"here/one"}
    two.declare("here/two")
    two.declare("there/two")
    two.declare("here/one")  # two owners
    got.wait(lambda: "here/two" in got.tokens)
    end()
    two.close()
    got.wait(lambda: not got.tokens)
    assert got.calls[:2] == [("here/one", True), ("here/two", True)]
    assert sorted(got.calls[2:]) == [("here/one", False), ("here/two", False)]


def test_ones_own_tokens_are_not_told(open_transport: Open) -> None:
    one, got = open_transport()
    one.watch("here/*")
    one.declare("here/one")
    two, _ = open_transport()
    two.declare("here/two")
    got.wait(lambda: "here/two" in got.tokens)
    assert got.calls == [("here/two", True)]


def test_nothing_is_told_of_tokens_after_watching_ended(open_transport: Open) -> None:
    one, got = open_transport()
    end = one.watch("here/*")
    one.watch("there/*")
    two, _ = open_transport()
    two.declare("here/a")
    got.wait(lambda: bool(got.tokens))
    end()
    two.declare("here/b")
    two.declare("there/b")
    got.wait(lambda: "there/b" in got.tokens)
    assert "here/b" not in got.tokens


def test_the_tokens_of_one_that_leaves_go_after_its_packets(open_transport: Open) -> None:
    held = Held()
    one, got = open_transport("a", on_packet=held)
    one.watch("here/*")
    two, _ = open_transport()
    two.declare("here/two")
    for number in range(100):
        two.sender("a", Sending()).put(b"%d" % number, b"")
    assert held.is_held.wait(60)
    two.close()
    seen_at: list[int] = []
    held.go_on.set()
    got.wait(lambda: bool(got.calls) and not got.tokens)
    seen_at.append(len(got.packets))
    assert seen_at == [100]


def test_tokens_do_not_wait_for_the_packets_before_them(open_transport: Open) -> None:
    """A handler that is slow delays them by one packet, not by all that wait."""
    seen_at: list[int] = []
    turns = threading.Semaphore(0)
    one, got = open_transport("a", on_packet=lambda _: turns.acquire(timeout=60))
    one.watch("here/*")
    two, _ = open_transport()
    for number in range(1000):
        two.sender("a", Sending()).put(b"%d" % number, b"")
    two.declare("here/two")
    two.subscribe("b")
    turns.release(2)
    got.wait(lambda: bool(got.tokens))
    seen_at.append(len(got.packets))
    turns.release(1000)
    got.wait_for(1000)
    assert seen_at[0] < 1000


# -- full queues -------------------------------------------------------------------------------------------------------

PACKETS = 60


@pytest.mark.parametrize("full", ["drop_oldest", "drop_newest"])
def test_a_full_queue_drops_and_tells_the_publisher(open_transport: Open, full: str) -> None:
    """The receiver reads no more; each packet arrives or is told, the newest or the oldest ones by the policy."""
    held = Held()
    one, told = open_transport(options=f"overflow={full}&capacity=10")
    two, got = open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    fill(one, "a/b", PACKETS)
    told.wait(lambda: told.losses["a/b"] > 0)
    held.go_on.set()
    told.wait(lambda: len(got.packets) + told.losses["a/b"] == PACKETS)
    came = numbers(got)
    assert came == sorted(came)
    assert (PACKETS - 1 in came) == (full == "drop_oldest")
    assert came[0] == 0
    assert told.reasons == {"the queue for a receiver is full"}
    assert one.counters()["dropped: the queue for a receiver is full"] == told.losses["a/b"]
    assert one.counters()["packets sent"] == len(came) == two.counters()["packets received"]


def test_one_that_reads_no_more_costs_the_other_nothing(open_transport: Open) -> None:
    held = Held()
    one, told = open_transport(options="capacity=10")
    open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    _, got = open_transport("a/b", options="receive_overflow=block")
    sender = one.sender("a/b", Sending())
    for number in range(PACKETS):
        sender.put(number.to_bytes(4) + LUMP, ENVELOPE)
        got.wait_for(number + 1)
    assert numbers(got) == list(range(PACKETS))
    told.wait(lambda: told.losses["a/b"] > 0)


def test_raise_is_told_to_the_caller_and_others_get_the_packet(open_transport: Open) -> None:
    held = Held()
    one, told = open_transport(options="overflow=raise&capacity=10")
    _, got_slow = open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    _, got = open_transport("a/b", options="receive_overflow=block")
    raised = 0
    sender = one.sender("a/b", Sending())
    for number in range(PACKETS):
        try:
            sender.put(number.to_bytes(4) + LUMP, ENVELOPE)
        except QueueFull as problem:
            assert "holds 10 packets" in str(problem)  # noqa: PT017
            raised += 1
        got.wait_for(number + 1)
    assert numbers(got) == list(range(PACKETS))
    assert raised > 0
    held.go_on.set()
    told.wait(lambda: told.losses["a/b"] == raised)
    assert len(got_slow.wait_for(PACKETS - raised)) == PACKETS - raised


def test_block_makes_the_publisher_wait_and_loses_nothing(open_transport: Open) -> None:
    held = Held()
    one, told = open_transport(options="overflow=block&capacity=10")
    _, got = open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    publisher = threading.Thread(target=fill, args=(one, "a/b", PACKETS))
    publisher.start()
    assert held.is_held.wait(60)
    publisher.join(0.3)
    assert publisher.is_alive()
    held.go_on.set()
    publisher.join(60)
    got.wait_for(PACKETS)
    assert numbers(got) == list(range(PACKETS))
    assert not told.losses


def test_packets_that_do_not_wait_are_dropped_instead(open_transport: Open) -> None:
    held = Held()
    one, told = open_transport(options="overflow=block&capacity=10")
    open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    fill(one, "a/b", PACKETS, Sending(waits=False))
    told.wait(lambda: told.losses["a/b"] > 0)


@pytest.mark.parametrize("leaves", ["publisher", "receiver"])
def test_a_publisher_that_waits_goes_on_when_one_leaves(open_transport: Open, leaves: str) -> None:
    held = Held()
    one, _ = open_transport(options="overflow=block&capacity=10")
    two, _ = open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    ended: list[object] = []

    def publish() -> None:
        try:
            fill(one, "a/b", PACKETS)
            ended.append("all")
        except BusError as problem:
            ended.append(str(problem))

    publisher = threading.Thread(target=publish)
    publisher.start()
    assert held.is_held.wait(60)
    publisher.join(0.2)
    assert publisher.is_alive()
    if leaves == "receiver":
        threading.Timer(0.1, held.go_on.set).start()  # closing waits for the handler
        two.close()
    else:
        one.close()
    publisher.join(60)
    assert ended == ["all"] if leaves == "receiver" else "was closed while a publisher waited" in str(ended[0])


def test_handlers_that_publish_to_each_other_do_not_wait_for_each_other(open_transport: Open) -> None:
    """With `block` everywhere two would wait for ever: a handler gets QueueFull instead."""
    options = "overflow=block&capacity=4&receive_overflow=block&receive_capacity=4"
    refused = threading.Event()

    def answer(transport: list[IpcTransport], key: str) -> Callable[[bytes], None]:
        def put(payload: bytes) -> None:
            try:
                for _ in range(3):
                    transport[0].sender(key, Sending()).put(payload, b"")
            except QueueFull:
                refused.set()

        return put

    first: list[IpcTransport] = []
    second: list[IpcTransport] = []
    one, _ = open_transport("to/one", on_packet=answer(first, "to/two"), options=options)
    two, _ = open_transport("to/two", on_packet=answer(second, "to/one"), options=options)
    first.append(one)
    second.append(two)
    one.sender("to/two", Sending()).put(LUMP, b"")
    assert refused.wait(60)


def test_the_mailbox_drops_what_is_too_much_and_tells_the_sender(open_transport: Open) -> None:
    """A slow handler does not stop reading; the packets that it could not take are told to the publisher."""
    for full, newest_comes in (("drop_oldest", True), ("drop_newest", False)):
        held = Held()
        one, told = open_transport()
        two, got = open_transport(f"{full}/b", on_packet=held, options=f"receive_overflow={full}&receive_capacity=100")
        sender = one.sender(f"{full}/b", Sending())
        for number in range(1000):
            sender.put(number.to_bytes(4), b"")
        two.subscribe("later")
        told.wait(lambda full=full, told=told: told.losses[f"{full}/b"] >= 800)  # type: ignore[misc]
        held.go_on.set()
        told.wait(lambda full=full, told=told, got=got: len(got.packets) + told.losses[f"{full}/b"] == 1000)  # type: ignore[misc]
        assert (999 in numbers(got)) == newest_comes
        assert told.reasons == {"the mailbox of a receiver is full"}
        assert two.counters()["dropped: the mailbox is full"] == told.losses[f"{full}/b"]


def test_packets_that_waited_too_long_are_not_sent(open_transport: Open) -> None:
    held = Held()
    one, told = open_transport()
    _, got = open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    fill(one, "a/b", PACKETS, Sending(expires_s=0.05))
    assert held.is_held.wait(60)
    started = time.monotonic()
    told.wait(lambda: time.monotonic() - started > 0.1)
    held.go_on.set()
    told.wait(lambda: told.losses["a/b"] > 0 and len(got.packets) + told.losses["a/b"] == PACKETS)
    assert told.reasons == {"expired"}


@pytest.mark.slow
def test_very_many_changes_for_one_that_does_not_read_are_replaced_by_the_state(open_transport: Open) -> None:
    held = Held()
    one, _ = open_transport()
    two, got = open_transport("a/b", on_packet=held, options="receive_overflow=block&receive_capacity=1")
    two.watch("t/**")
    fill(one, "a/b", 40)  # the connection is full
    ends = [one.declare(f"t/{number}") for number in range(12_000)]
    for end in ends[1:]:
        end()
    one.declare("t/last")
    held.go_on.set()
    got.wait(lambda: got.tokens.keys() == {"t/0", "t/last"})


# -- the folder and the address ----------------------------------------------------------------------------------------


def test_nothing_is_left_behind(open_transport: Open) -> None:
    one, _ = open_transport()
    assert [path.is_socket() for path in ipc_folder("test").iterdir()] == [True]
    assert ipc_folder("test").stat().st_mode & 0o777 == 0o700
    one.close()
    assert list(ipc_folder("test").iterdir()) == []


def test_a_name_that_is_a_path_is_refused() -> None:
    with pytest.raises(BusError, match="letters, digits"):
        IpcTransport("../../etc")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, open_transport: Open) -> None:
    (tmp_path / "genus").write_text("in the way")
    with pytest.raises(BusError, match="cannot open the bus in"):
        open_transport()


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, open_transport: Open) -> None:
    (tmp_path / "genus" / "test").mkdir(parents=True)
    (tmp_path / "genus" / "test").chmod(0o755)
    with pytest.raises(BusError, match="others may enter it"):
        open_transport()


def test_paths_longer_than_the_system_allows_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_transport: Open
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    one, _ = open_transport()
    _, got = open_transport("a")
    one.sender("a", Sending()).put(b"1", b"")
    assert got.wait_for(1) == [b"1"]


def test_options_of_the_address() -> None:
    assert parse_ipc_address("") == ("genus", IpcOptions())
    assert parse_ipc_address("x?overflow=raise&receive_overflow=block&receive_capacity=7") == (
        "x",
        IpcOptions(overflow="raise", receive_overflow="block", receive_capacity=7),
    )
    for rest, message in (
        ("x?overflo=block", "did you mean 'overflow'"),
        ("x?full=block", "it is called overflow now"),
        ("x?receive_full=block", "it is called receive_overflow now"),
        ("x?overflow=drop", "choose one of block, drop_oldest"),
        ("x?receive_overflow=raise", "has no caller that could be told; choose one of block"),
        ("x?capacity=0", "write a whole number from 1"),
        ("x?capacity=many", "write a whole number from 1"),
    ):
        with pytest.raises(BusError, match=message):
            parse_ipc_address(rest)


def test_keys_patterns_and_tokens_are_checked(open_transport: Open) -> None:
    one, _ = open_transport()
    for call in (lambda: one.sender("a/*", Sending()), lambda: one.subscribe("a//b"), lambda: one.declare("a/**"),
                 lambda: one.watch("")):  # fmt: skip
        with pytest.raises(BusError, match="of an ipc: bus"):
            call()
