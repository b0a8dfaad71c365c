"""Long J1939 messages: reassembled exactly, whatever is lost, repeated, interleaved or damaged."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can import _j1939
from genus.can._j1939 import (
    ANSWER_GAP_US,
    BAD_ANNOUNCEMENT,
    BAD_PACKET,
    BROADCAST_GAP_US,
    DIFFERENT,
    GLOBAL_ADDRESS,
    LOST,
    MAX_FAST,
    NOT_FINISHED,
    REPLACED,
    STRAY,
    TIMED_OUT,
    TOO_MANY,
    FastPackets,
    Incomplete,
    J1939Id,
    J1939Reassembler,
    LongMessage,
    pgn_of,
)
from genus.can._j1939_transfer import J1939Broadcast, J1939Frame, J1939Receiver, J1939Transfer

from .j1939_traffic import BusFrame, SentMessage, Traffic, is_expected

Counted = dict[str, int]


def check(traffic: Traffic, count: int, pairs: int) -> int:
    """Compare what a listener puts together with what was sent; returns how many messages were complete."""
    listener, given_ = J1939Reassembler(), []
    seen: dict[int, list[BusFrame]] = {}
    for each in traffic.frames(count, pairs):
        seen.setdefault(id(each.message), []).append(each)
        found = listener.receive(*each.frame, each.at_us)
        if found is not None:
            assert (found.frame_id, found.data) == (each.message.frame_id, each.message.data)
            assert found.destination == each.message.destination
            given_.append(id(each.message))
    listener.close()
    expected = [id(message) for message in traffic.messages if is_expected(message, seen.get(id(message), []))]
    assert sorted(given_) == sorted(expected), "each once, and none that is not complete"
    announced = sum(any(is_announcement(each.frame) for each in frames) for frames in seen.values())
    ended = sum(times for reason, times in listener.counts.items() if reason not in (STRAY, BAD_PACKET))
    assert (listener.messages, ended) == (len(expected), announced - len(expected)), "all others are counted"
    return len(expected)


def is_announcement(frame: J1939Frame) -> bool:
    return pgn_of(frame.frame_id) == 60416 and frame.data[0] in (_j1939.RTS, _j1939.BAM)


@pytest.mark.parametrize("seed", range(3))
def test_interleaved_messages_are_exact(seed: int) -> None:
    """Without losses, of 60 pairs of nodes at once, one message right after the other: all of them."""
    assert check(Traffic(seed), 600, 60) == 600


@pytest.mark.parametrize(("node_loss", "listener_loss"), [(0.05, 0.0), (0.0, 0.02), (0.03, 0.03), (0.3, 0.1)])
def test_messages_are_exact_under_loss(node_loss: float, listener_loss: float) -> None:
    """Nodes ask again for what they lost; a message of which the listener missed a packet is never given."""
    traffic = Traffic(7, node_loss=node_loss, listener_loss=listener_loss)
    complete = check(traffic, 600, 50)
    assert 0 < complete <= len(traffic.messages)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_thousand_sessions_are_exact(seed: int) -> None:
    """5,000 sessions each of 20 seeds, with losses from none to many."""
    rates = (0.0, 0.001, 0.01, 0.05, 0.2)
    traffic = Traffic(seed, node_loss=rates[seed % 5], listener_loss=rates[seed // 5])
    assert check(traffic, 5_000, 250) > 0
    assert len(traffic.messages) == 5_000


def test_nodes_that_lose_few_frames_complete_their_transfers() -> None:
    """The two ends: with one frame of fifty lost most transfers arrive, without loss all do."""
    for loss, least in ((0.0, 1.0), (0.02, 0.5)):
        traffic = Traffic(3, node_loss=loss)
        list(traffic.frames(300, 30))
        assert sum(each.arrived for each in traffic.messages) >= least * len(traffic.messages)


# -- single rules ------------------------------------------------------------------------------------------------------

DATA = bytes(range(20))


def broadcast(data: bytes = DATA, source: int = 3, pgn: int = 65226) -> list[tuple[int, bytes]]:
    """The frames of a broadcast: identifiers and data."""
    return [(frame.frame_id, frame.data) for _, frame in J1939Broadcast(pgn, data, source).frames(0)]


def listen(*frames: tuple[int, bytes], step_us: int = 10_000) -> tuple[list[bytes], Counted]:
    """What a listener gets from frames at steady times, and what it counts."""
    listener = J1939Reassembler()
    found = [listener.receive(*frame, number * step_us) for number, frame in enumerate(frames)]
    listener.close()
    return [each.data for each in found if each is not None], dict(listener.counts)


def test_a_message_to_all_has_the_identifier_that_a_frame_would_have() -> None:
    listener = J1939Reassembler()
    *_, last = (listener.receive(*frame, 0) for frame in broadcast(pgn=0xD900))
    assert last == LongMessage(0x1CD9FF03, DATA, GLOBAL_ADDRESS)
    assert (listener.messages, listener.open_sessions) == (1, 0)


def test_a_packet_that_is_repeated_does_no_harm() -> None:
    head, one, two, three = broadcast()
    assert listen(head, one, one, two, two, three) == ([DATA], {})


def test_a_lost_packet_loses_a_broadcast() -> None:
    head, one, _, three = broadcast()
    assert listen(head, one, three) == ([], {LOST: 1})
    assert listen(head, one) == ([], {NOT_FINISHED: 1})


def test_a_new_announcement_replaces_an_unfinished_message() -> None:
    head, one, *_ = broadcast(b"x" * 30)
    assert listen(head, one, *broadcast()) == ([DATA], {REPLACED: 1})


def test_packets_of_a_message_whose_announcement_was_lost_are_not_taken_for_another() -> None:
    head, one, *_ = broadcast()
    assert listen(head, one, *broadcast(b"y" * 20)[1:]) == ([], {DIFFERENT: 1, STRAY: 2})


def test_a_pause_that_is_too_long_ends_a_message() -> None:
    head, one, two, three = broadcast()
    assert listen(head, one, two, three, step_us=BROADCAST_GAP_US) == ([DATA], {})
    assert listen(head, one, two, three, step_us=BROADCAST_GAP_US + 1) == ([], {TIMED_OUT: 1, STRAY: 3})
    listener = J1939Reassembler()
    listener.receive(*head, 0)
    listener.expire(BROADCAST_GAP_US)
    assert listener.open_sessions == 1
    listener.expire(BROADCAST_GAP_US + 1)
    assert (listener.open_sessions, dict(listener.counts)) == (0, {TIMED_OUT: 1})


def test_an_abort_by_either_node_ends_a_transfer_and_says_why() -> None:
    sender = J1939Transfer(65226, DATA, 3, 9)
    (announced,) = sender.start(0)
    receiver = J1939Receiver(9)
    (asked,) = receiver.receive(*announced, 0)
    for source, destination in ((3, 9), (9, 3)):
        abort = J1939Id(7, 60416, source, destination).pack(), bytes([255, 2, 255, 255, 255, 0xCA, 0xFE, 0])
        assert listen(announced, asked, abort) == ([], {"aborted: out of resources": 1})
        assert listen(announced, asked, (abort[0], abort[1][:5] + b"\0\0\0")) == ([], {NOT_FINISHED: 1})
    assert sender.receive(J1939Id(7, 60416, 9, 3).pack(), abort[1], 0) == []
    assert sender.failure == "aborted: out of resources"


def test_a_receiver_may_ask_again_for_what_a_listener_has_seen() -> None:
    """The message is given once, and its repeated packets belong to it."""
    sender, receiver = J1939Transfer(65226, DATA, 3, 9), J1939Receiver(9)
    (announced,) = sender.start(0)
    (asked,) = receiver.receive(*announced, 0)
    one, two, three = sender.receive(*asked, 0)
    assert receiver.receive(*one, 0) == [], "it loses the second"
    (again,) = receiver.receive(*three, 0)
    assert again.data[:3] == bytes([_j1939.CTS, 1, 2])
    (repeated,) = sender.receive(*again, 0)
    (end,) = receiver.receive(*repeated, 0)
    sender.receive(*end, 0)
    assert sender.is_done
    assert [each.data for each in receiver.messages] == [DATA]
    assert listen(announced, asked, one, two, three, again, repeated, end) == ([DATA], {})
    assert listen(announced, asked, one, three, again, repeated, end) == ([DATA], {}), "or has not seen"
    assert listen(announced, asked, one, three, again, end) == ([], {LOST: 1})


def test_a_sender_gives_up_if_nobody_answers() -> None:
    sender = J1939Transfer(65226, DATA, 3, 9)
    sender.start(0)
    assert sender.wake(ANSWER_GAP_US - 1) == []
    (abort,) = sender.wake(ANSWER_GAP_US)
    assert (abort.data[0], sender.failure) == (_j1939.ABORT, "timed out")


@pytest.mark.parametrize(
    "head",
    [
        bytes([32, 20, 0, 2, 255, 0xCA, 0xFE, 0]),
        bytes([32, 0, 0, 0, 255, 0xCA, 0xFE, 0]),
        bytes([32, 250, 6, 255, 255, 0xCA, 0xFE, 0]),
        bytes([32, 20, 0, 3, 255, 0xCA, 0xFE, 4]),
        bytes([16, 20, 0, 3, 255, 0xCA, 0xFE, 0]),
        bytes([32, 20, 0, 3]),
        bytes([99, 20, 0, 3, 255, 0xCA, 0xFE, 0]),
        b"",
    ],
)
def test_announcements_that_contradict_themselves_are_counted(head: bytes) -> None:
    assert listen((0x1CECFF03, head)) == ([], {BAD_ANNOUNCEMENT: 1})


def test_packets_that_cannot_be_are_counted_and_skipped() -> None:
    head, one, two, three = broadcast()
    wrong = [(one[0], data) for data in (b"\0abcdefg", b"\4abcdefg", b"\1abc", b"")]
    assert listen(head, *wrong, one, two, three) == ([DATA], {BAD_PACKET: 4})
    assert listen(head, one, two, (three[0], three[1][:7])) == ([DATA], {}), "a last packet without padding"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_j1939, "MAX_SESSIONS", 4)
    listener = J1939Reassembler()
    for source in range(10):
        listener.receive(*broadcast(source=source)[0], 0)
    assert (listener.open_sessions, dict(listener.counts)) == (4, {TOO_MANY: 6})


@given(
    frames=st.lists(
        st.tuples(
            st.sampled_from([0x1CECFF03, 0x1CEBFF03, 0x1CEC0903, 0x1CEB0903, 0x1CEC0309, 0x18FECA03, 0]),
            st.one_of(
                st.binary(max_size=9),
                st.builds(
                    lambda kind, size, packets, pgn: bytes([kind, size, 0, packets, 255]) + pgn,
                    st.sampled_from([16, 17, 19, 32, 255]),
                    st.integers(0, 30),
                    st.integers(0, 5),
                    st.sampled_from([b"\xca\xfe\0", b"\0\0\0", b"\0\xef\0"]),
                ),
                st.builds(lambda number, rest: bytes([number]) + rest, st.integers(0, 5), st.just(b"abcdefg")),
            ),
            st.integers(-(10**6), 10**7),
        ),
        max_size=40,
    )
)
def test_no_frame_raises_and_nothing_is_invented(frames: list[tuple[int, bytes, int]]) -> None:
    """Whatever comes, in whatever time: a message has a size that was announced, and losses have marks."""
    lost: list[Incomplete] = []
    listener = J1939Reassembler(lost.append)
    for number, (frame_id, data, at_us) in enumerate(frames):
        found = listener.receive(frame_id, data, at_us, mark=number)
        assert found is None or any(len(found.data) == each[1] for _, each, _ in frames[:number] if len(each) > 1)
    listener.close()
    assert listener.open_sessions == 0
    assert len(lost) == listener.counts.total()
    assert all(isinstance(each.mark, int) for each in lost)


@given(data=st.binary(min_size=9, max_size=1785), window=st.integers(1, 255))
def test_what_a_node_sends_is_what_the_other_has(data: bytes, window: int) -> None:
    sender, receiver = J1939Transfer(0xEF00, data, 3, 9), J1939Receiver(9, window=window)
    waiting = sender.start(0)
    while waiting:
        frame = waiting.pop(0)
        waiting += receiver.receive(*frame, 0) + sender.receive(*frame, 0)
    assert sender.is_done
    assert receiver.messages == [LongMessage(0x1CEF0903, data, 9)]


@pytest.mark.parametrize("size", [0, 8, 1786])
def test_sizes_that_the_protocol_does_not_take_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="takes 9 to 1785"):
        J1939Broadcast(65226, bytes(size), 3)
    with pytest.raises(ValueError, match="takes 9 to 1785"):
        J1939Transfer(65226, bytes(size), 3, 9)


# -- fast packets ------------------------------------------------------------------------------------------------------

FAST_ID = 0x0DF80523


def fast(data: bytes, counter: int = 0) -> list[bytes]:
    """The frames of a fast packet."""
    parts = [bytes([len(data)]) + data[:6], *(data[at : at + 7] for at in range(6, len(data), 7))]
    return [bytes([counter << 5 | number]) + part.ljust(7, b"\xff") for number, part in enumerate(parts)]


@given(data=st.binary(min_size=1, max_size=MAX_FAST), counter=st.integers(0, 7))
def test_fast_packets_are_exact(data: bytes, counter: int) -> None:
    bus = FastPackets({129029})
    found = [bus.receive(FAST_ID, frame, 0) for frame in fast(data, counter)]
    assert [each for each in found if each is not None] == [LongMessage(FAST_ID, data, None)]
    assert not bus.counts


def test_fast_packets_of_several_senders_and_counters_are_told_apart() -> None:
    rnd, bus = random.Random(5), FastPackets({129029})
    sent = {(source, counter): rnd.randbytes(rnd.randint(9, 60)) for source in range(20) for counter in range(8)}
    queues = {key: [(FAST_ID & ~0xFF | key[0], each) for each in fast(data, key[1])] for key, data in sent.items()}
    found = []
    while queues:
        key = rnd.choice(list(queues))
        message = bus.receive(*queues[key].pop(0), 0)
        if message is not None:
            found.append(message.data)
        if not queues[key]:
            del queues[key]
    assert sorted(found) == sorted(sent.values())


def test_lost_fast_packets_are_counted() -> None:
    bus = FastPackets({129029})
    first, second, third = fast(bytes(20))
    for frame, at_us in ((first, 0), (third, 0), (first, 0), (second, 10**7), (b"\0", 0), (b"\1", 0), (b"", 0)):
        assert bus.receive(FAST_ID, frame, at_us) is None
    bus.close()
    assert dict(bus.counts) == {REPLACED: 1, TIMED_OUT: 1, STRAY: 2, BAD_ANNOUNCEMENT: 1, BAD_PACKET: 1}
    assert bus.receive(0x0DF80423, first, 0) is None, "of another group"


def test_the_traffic_of_these_tests_is_not_trivial() -> None:
    """The generator loses, repeats and interleaves, so that the tests above can fail."""
    traffic = Traffic(1, node_loss=0.05, listener_loss=0.02)
    frames = list(traffic.frames(300, 30))
    packets = [(id(each.message), each.frame.data[0]) for each in frames if pgn_of(each.frame.frame_id) == 60160]
    assert len(set(packets)) < len(packets), "repeated"
    turns = sum(one.message is not other.message for one, other in pairwise(frames))
    assert turns > len(frames) / 2, "interleaved"
    seen = {id(message): [each for each in frames if each.message is message] for message in traffic.messages}
    assert not all(is_expected(message, seen[id(message)]) for message in traffic.messages), "lost"
    assert isinstance(traffic.messages[0], SentMessage)
