"""Frames between processes: split however they come, and damaged ones harm nothing."""

import contextlib
import random
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.net._ipc.connections import ipc_folder
from genus.net._ipc.inbox import Inbox, Outbox, PacketSender
from genus.net._ipc.peer import (
    DECLARE,
    DONE,
    HEAD,
    HELLO,
    KEPT,
    KEY,
    LOST,
    MAX_BODY,
    PACKET,
    STATE,
    SUBSCRIBE,
    UNDECLARE,
    UNSUBSCRIBE,
    VERSION,
    Frame,
    FrameReader,
    FramingLost,
    Hello,
    Peer,
    State,
    Subscribe,
    TokenBoard,
    encode_frame,
)
from genus.net._ipc.queues import DeliveringMailbox, Item
from genus.net._ipc.transport import IpcTransport
from genus.net._transport import Sending
from tests.net.recording_receiver import RecordingReceiver

frames = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=255), st.binary(max_size=300)),
    max_size=20,
)


def packet(kind: int, number: int, envelope: bytes, payload: bytes) -> bytes:
    return HEAD.pack(len(envelope) + len(payload), kind, len(envelope), number) + envelope + payload


@given(frames, st.lists(st.integers(1, 400), min_size=1))
def test_frames_are_the_same_however_their_bytes_come(sent: list[Frame], sizes: list[int]) -> None:
    data = b"".join(packet(*frame) for frame in sent)
    reader = FrameReader()
    got: list[Frame] = []
    at = 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        got += reader.feed(data[at : at + size])
        at += size
    assert got == sent


def test_a_length_that_is_too_large_ends_the_reading() -> None:
    whole = encode_frame(KEY, "a")
    with pytest.raises(FramingLost):
        FrameReader().feed(whole + HEAD.pack(MAX_BODY + 1, PACKET, 0, 0))


class CollectingMailbox(DeliveringMailbox):
    """A mailbox without a thread."""

    def __init__(self) -> None:
        super().__init__(100, "drop_oldest", lambda: None)
        self.items: list[Item] = []

    def put(self, packets: list[Item], kept: int = 0) -> bool:
        self.items += packets
        return True


class Bench:
    """An inbox with one peer, without threads and processes."""

    def __init__(self) -> None:
        self.mailbox = CollectingMailbox()
        self.tokens: Counter[str] = Counter()
        self.outbox = Outbox(100, "drop_oldest", lambda: None, lambda: True)
        self.inbox = Inbox(self.outbox, self.mailbox, TokenBoard(lambda token, _: self.tokens.update([token])))
        self.connection, self.other = socket.socketpair()
        self.connection.setblocking(False)
        self.peer = Peer(self.connection, "me", 100, self.outbox.losses, self.outbox.shown.encode)
        self.outbox.add_peer(self.peer)
        self.sender = PacketSender(self.outbox, "own/key", Sending(keep=True))
        self.sender.put(b"kept", b"")

    def close(self) -> None:
        self.connection.close()
        self.other.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


START = encode_frame(HELLO, Hello(VERSION, "7-other")) + encode_frame(KEY, "good", 9)
SENTINEL = packet(PACKET, 9, b"e" * 25, b"good")
BODIES = [
    encode_frame(HELLO, Hello(VERSION, "8-other")),
    encode_frame(STATE, State((("a/**", True), ("own/*", False)), ("t/1", "t/2"))),
    encode_frame(SUBSCRIBE, Subscribe("own/**", True), 3),
    encode_frame(UNSUBSCRIBE, "own/**"),
    encode_frame(DECLARE, "t/3"),
    encode_frame(UNDECLARE, "t/1"),
    encode_frame(KEY, "other/key", 10),
    packet(PACKET, 10, b"e" * 25, b"some payload"),
    packet(KEPT, 11, b"", b"some other payload"),
    encode_frame(LOST, {0: 7, 1: 2}),
    encode_frame(DONE, True, 4),
]


def damage_body(rng: random.Random, frame: bytes) -> bytes:
    """The frame with some bytes changed, but for its length."""
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 20))):
        changed[rng.randrange(4, len(changed))] = rng.choice((rng.randrange(256), 0, 0xFF, 0xC1, 0xDF))
    return bytes(changed)


def damage_stream(rng: random.Random, data: bytes) -> bytes:
    """The bytes with some changed, left out, added or doubled."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(changed)), rng.randint(1, 12)
        match rng.randrange(4):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = rng.randbytes(size)
            case _:
                changed[at:at] = changed[at : at + size]
    return bytes(changed)


def feed_damaged_bodies(bench: Bench, count: int) -> None:
    rng = random.Random(count)
    sent = 0
    bench.inbox.feed(bench.peer, START)
    for start in range(0, count, 100):
        some = [damage_body(rng, rng.choice(BODIES)) for _ in range(100)]
        bench.inbox.feed(bench.peer, SENTINEL.join(some) + SENTINEL)
        sent += 100
        bench.mailbox.run_calls()
        good = [item for item in bench.mailbox.items if item[0].number == 9 and item[2] == b"good"]
        assert len(good) >= 100, start
        assert {item[0].key for item in good} == {"good"}
        bench.mailbox.items.clear()
        bench.sender.put(b"still sent", b"")
        drain(bench)
    assert sum(bench.inbox.rejected.values()) > count / 3
    assert {"frame of an unknown kind", "packet of a key that was not told", "malformed frame: state",
            "invalid key or pattern"} <= set(bench.inbox.rejected)  # fmt: skip


def drain(bench: Bench) -> None:
    """Read what was sent to the peer."""
    bench.other.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while bench.other.recv(1 << 20):
            bench.outbox.send(bench.peer)


def feed_damaged_streams(count: int) -> None:
    rng = random.Random(count)
    lost = 0
    for _ in range(count // 20):
        bench = Bench()
        data = START + damage_stream(rng, b"".join(rng.choices(BODIES, k=20)))
        try:
            for at in range(0, len(data), 97):
                bench.inbox.feed(bench.peer, data[at : at + 97])
        except FramingLost:
            lost += 1
        bench.mailbox.run_calls()
        bench.close()
    assert lost > 0


@pytest.mark.slow
def test_damaged_frames_are_counted_and_the_others_arrive(bench: Bench) -> None:
    feed_damaged_bodies(bench, 100_000)


def test_a_damaged_stream_raises_nothing_but_that_its_framing_is_lost() -> None:
    feed_damaged_streams(10_000)


@pytest.mark.slow
def test_a_million_damaged_frames(bench: Bench) -> None:
    feed_damaged_bodies(bench, 1_000_000)
    feed_damaged_streams(100_000)


def test_strangers_and_newer_processes_disturb_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their connections are closed, or their frames skipped; the counters say why, and the others go on."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    one, two, got = IpcTransport("test"), IpcTransport("test"), RecordingReceiver()
    one.open(got)
    one.subscribe("a")
    address = str(ipc_folder("test") / one.name)
    newer = encode_frame(HELLO, Hello(VERSION, "9-newer")) + HEAD.pack(3, 99, 0, 0) + b"new" + encode_frame(KEY, "a")
    for said, closes in (
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (encode_frame(KEY, "a"), True),
        (encode_frame(HELLO, Hello(VERSION + 1, "9-much-newer")), True),
        (newer + packet(PACKET, 0, b"", b"newer"), False),
    ):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(address)
            stranger.sendall(said)
            if closes:
                while stranger.recv(1 << 16):
                    pass
            else:
                got.wait_for(1)
    two.open(RecordingReceiver())
    two.sender("a", Sending()).put(b"good", b"")
    assert got.wait_for(2) == [b"newer", b"good"]
    assert {reason: count for reason, count in one.counters().items() if reason.startswith("rejected")} == {
        "rejected: bytes that are no frames": 1,
        "rejected: a connection that does not begin with hello": 1,
        "rejected: a process with another version of the frames": 1,
        "rejected: frame of an unknown kind": 1,
    }
    two.close()
    one.close()
