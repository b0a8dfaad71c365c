"""Segments: whatever the bus loses, doubles or moves, a receiver gets what was sent or nothing."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, FD_SIZES, Frame, worst_case_bits
from genus.can._wire.segments import Reassembler, frame_sizes, split_payload

SENDER = 0x0021_6010
SECOND = 1_000_000_000
CAPACITIES = pytest.mark.parametrize("capacity", [CLASSIC_BYTES, FD_BYTES])


def frames_of(payload: bytes, transfer_id: int = 0, capacity: int = CLASSIC_BYTES, sender: int = SENDER) -> list[Frame]:
    return [Frame(sender, data, fd=capacity == FD_BYTES) for data in split_payload(payload, transfer_id, capacity)]


def received(frames: list[Frame], now: int = 0) -> tuple[list[bytes], Counter[str]]:
    whole = Reassembler(SECOND)
    found = [whole.receive(frame, now) for frame in frames]
    return [payload for payload in found if payload is not None], whole.counts


# ---- without faults


@given(st.binary(max_size=300), st.integers(0, 100), st.sampled_from([CLASSIC_BYTES, FD_BYTES]))
def test_a_payload_is_put_together_as_it_was(payload: bytes, transfer_id: int, capacity: int) -> None:
    assert received(frames_of(payload, transfer_id, capacity)) == ([payload], Counter())


@CAPACITIES
def test_every_frame_has_a_length_there_is(capacity: int) -> None:
    for size in range(400):
        lengths = [len(data) for data in split_payload(bytes(size), 1, capacity)]
        assert lengths == frame_sizes(size, capacity)
        assert set(lengths) <= set(FD_SIZES)
        assert set(lengths[:-1]) <= {capacity}
        assert lengths[-1] <= capacity


@CAPACITIES
@pytest.mark.parametrize("tail", [b"", b"\x80", b"\x00", b"\x80\x00", b"\x00" * 70])
def test_a_payload_that_looks_like_padding_is_kept(capacity: int, tail: bytes) -> None:
    for size in range(140):
        payload = b"x" * size + tail
        assert received(frames_of(payload, 1, capacity))[0] == [payload]


def test_the_cost_of_long_payloads_on_a_classic_bus() -> None:
    """Frames and worst-case bits as reckoned for Cyphal, whose frames these are."""
    for size, frames, bits in [(12, 2, 320), (64, 10, 1_560), (1_024, 147, 23_490)]:
        lengths = frame_sizes(size)
        assert (len(lengths), sum(map(worst_case_bits, lengths))) == (frames, bits)


def test_golden_frames() -> None:
    assert split_payload(b"", 0) == [b"\xe0"]
    assert split_payload(b"seven b", 33) == [b"seven b\xe1"]
    assert [data.hex() for data in split_payload(b"123456789", 30)] == ["31323334353637be", "383929b15f"]
    assert [data.hex() for data in split_payload(b"123456789", 30, FD_BYTES)] == ["31323334353637383980" + "00" + "fe"]


@pytest.mark.parametrize("capacity", [0, 7, 12, 65])
def test_another_capacity_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"8 bytes, or 64 with CAN FD, not {capacity}"):
        split_payload(b"", 0, capacity)
    with pytest.raises(ValueError, match="not"):
        frame_sizes(1, capacity)


# ---- one fault at a time

LONG = bytes(range(100, 150))
WHOLE = frames_of(LONG, 5)


@CAPACITIES
@pytest.mark.parametrize("size", [7, 8, 20, 63, 64, 130, 200])
def test_a_frame_that_is_repeated_is_ignored(capacity: int, size: int) -> None:
    frames = frames_of(bytes(range(size)), 3, capacity)
    found, counts = received([frame for frame in frames for _ in range(3)])
    assert found == [bytes(range(size))]
    assert counts == {"duplicate": 2 * len(frames)}


@pytest.mark.parametrize("lost", range(len(WHOLE)))
def test_a_transfer_without_one_of_its_frames_is_lost_and_the_next_is_not(lost: int) -> None:
    after = frames_of(b"the one after it", 6)
    found, counts = received([*WHOLE[:lost], *WHOLE[lost + 1 :], *after])
    assert found == [b"the one after it"]
    reason = "missing start" if lost == 0 else "missing end" if lost == len(WHOLE) - 1 else "missing frame"
    assert counts[reason] == 1
    assert set(counts) <= {reason, "rest of a lost transfer"}


@given(st.data())
def test_any_mixture_of_frames_gives_what_was_sent_or_nothing(data: st.DataObject) -> None:
    """Any subset of the frames of some transfers of one sender, repeated and in any order."""
    sent = [bytes((number,)) * 30 + bytes(range(number, number + 12)) for number in range(6)]
    frames = [frame for number, payload in enumerate(sent) for frame in frames_of(payload, number)]
    mixture = data.draw(st.lists(st.sampled_from(frames), max_size=60))
    found, _ = received(mixture)
    assert set(found) <= set(sent)


@pytest.mark.parametrize("first", range(1, len(WHOLE) - 2))
def test_a_lost_pair_of_frames_does_not_depend_on_the_crc(first: int) -> None:
    """Toggles are in order then; the numbers are not."""
    assert received([*WHOLE[:first], *WHOLE[first + 2 :]])[1]["missing frame"] == 1
    moved = [*WHOLE[:first], WHOLE[first + 2], WHOLE[first + 1], WHOLE[first], *WHOLE[first + 3 :]]
    assert received(moved)[1]["missing frame"] == 1


@pytest.mark.parametrize("bit", range(8 * 8))
def test_a_changed_bit_is_never_delivered(bit: int) -> None:
    for place, frame in enumerate(WHOLE):
        data = bytearray(frame.data)
        if bit // 8 < len(data):
            data[bit // 8] ^= 1 << bit % 8
            changed = [*WHOLE[:place], Frame(SENDER, bytes(data)), *WHOLE[place + 1 :]]
            assert set(received(changed)[0]) <= {LONG, bytes(data[:-1])}, "or a single frame, which CAN itself protects"


def test_every_reason_is_counted() -> None:
    cases = {
        "empty frame": [Frame(SENDER, b"")],
        "missing start": WHOLE[1:2],
        "missing end": [WHOLE[0], *frames_of(b"x", 6)],
        "missing frame": [WHOLE[0], WHOLE[2]],
        "duplicate": [WHOLE[0], WHOLE[0]],
        "wrong toggle": [WHOLE[0], _with_tail(WHOLE[1], WHOLE[1].data[-1] ^ 0x20)],
        "wrong crc": [*WHOLE[:-1], Frame(SENDER, b"y" + WHOLE[-1].data[1:])],
        "wrong length": [WHOLE[0], Frame(SENDER, WHOLE[1].data[3:])],
        "wrong padding": [Frame(SENDER, bytes(11) + b"\xe0")],
    }
    for reason, frames in cases.items():
        assert received(frames)[1] == {reason: 1}
    assert received([*WHOLE, WHOLE[1]])[1] == {"missing start": 1}
    assert received([_with_tail(WHOLE[0], 0x81)])[1] == {"wrong toggle": 1}
    assert received([Frame(SENDER, b"short\xa0")])[1] == {"wrong length": 1}
    assert received([WHOLE[0], Frame(SENDER, bytes(11) + WHOLE[1].data[-1:])])[1] == {"wrong length": 1}


def _with_tail(frame: Frame, tail: int) -> Frame:
    return Frame(frame.id, frame.data[:-1] + bytes((tail,)))


# ---- traps others have met


def test_a_transfer_out_of_order_does_not_kill_those_after_it() -> None:
    late = frames_of(b"a transfer that comes too late", 1)
    rest = [frame for number in range(2, 40) for frame in frames_of(b"transfer number %d" % number, number)]
    found, _ = received([*rest[:9], *late, *rest[9:]])
    assert found == [*(b"transfer number %d" % n for n in (2, 3, 4)), b"a transfer that comes too late"] + [
        b"transfer number %d" % n for n in range(5, 40)
    ]


@CAPACITIES
def test_the_crc_may_be_cut_by_the_end_of_a_frame(capacity: int) -> None:
    step = capacity - 1
    for size in range(2 * step - 3, 2 * step + 3):
        payload = random.Random(size).randbytes(size)
        assert received(frames_of(payload, 0, capacity)) == ([payload], Counter())


def test_single_frames_with_one_transfer_id_are_all_delivered_if_they_differ() -> None:
    """A sender that does not count its transfers, or of which 31 were lost, loses nothing."""
    frames = [Frame(SENDER, bytes((n, 0xE7))) for n in range(20)]
    assert received(frames) == ([bytes((n,)) for n in range(20)], Counter())


def test_the_same_frame_after_the_time_out_is_a_new_one() -> None:
    whole = Reassembler(1_000)
    frame = frames_of(b"on", 4)[0]
    assert [whole.receive(frame, now) for now in (0, 1_000, 1_001)] == [b"on", None, b"on"]


def test_a_sender_that_starts_again_in_the_middle_is_understood() -> None:
    found, counts = received([*WHOLE[:3], *frames_of(LONG[::-1], 5)])
    assert found == [LONG[::-1]]
    assert counts == {"missing end": 1}


def test_senders_and_tags_do_not_disturb_each_other() -> None:
    senders = [SENDER, SENDER + 1, SENDER + (1 << 14)]
    streams = [frames_of(LONG + bytes((n,)), 5, sender=sender) for n, sender in enumerate(senders)]
    mixed = [frame for turn in zip(*streams, strict=True) for frame in turn]
    assert received(mixed) == ([LONG + bytes((n,)) for n in range(3)], Counter())


def test_the_priority_may_change_within_a_transfer() -> None:
    """As that of soft real-time events does on their way to their deadline."""
    moved = [Frame(frame.id | n << 21, frame.data) for n, frame in enumerate(WHOLE)]
    assert received(moved)[0] == [LONG]


# ---- bounds


def test_a_transfer_that_stops_is_given_up_after_the_time_out() -> None:
    whole = Reassembler(1_000)
    for frame in WHOLE[:3]:
        whole.receive(frame, 0)
    assert len(whole) == 1
    assert whole.receive(WHOLE[3], 1_001) is None
    assert whole.counts == {"timed out": 1, "missing start": 1}
    whole.receive(WHOLE[0], 2_000)
    whole.expire(3_000)
    assert len(whole) == 1
    whole.expire(3_001)
    assert len(whole) == 0
    assert whole.counts["timed out"] == 2


def test_a_transfer_longer_than_allowed_is_dropped() -> None:
    whole = Reassembler(1_000, max_bytes=64)
    fits, exceeds = bytes(54), bytes(55)
    assert [whole.receive(frame, 0) for frame in frames_of(fits)][-1] == fits
    assert [whole.receive(frame, 0) for frame in frames_of(exceeds, 1)][-1] is None
    assert whole.counts == {"too long": 1}


def test_only_so_many_transfers_are_kept() -> None:
    whole = Reassembler(SECOND, max_transfers=10)
    for number in range(25):
        whole.receive(Frame(SENDER + number, WHOLE[0].data), 0)
    assert len(whole) == 10
    assert whole.counts == {"crowded out": 15}


def test_random_frames_do_no_harm() -> None:
    rng = random.Random(11)
    whole = Reassembler(1_000, max_bytes=500, max_transfers=50)
    for now in range(50_000):
        size = rng.choice((0, 1, 5, 8, 8, 8, 12, 64))
        whole.receive(Frame(rng.getrandbits(29) & 0x1FE0C007, rng.randbytes(size), fd=size > 8), now)
    assert len(whole._transfers) <= 50
    assert len(whole.counts) >= 8


# ---- many faults


class Traffic:
    """Transfers of several senders over a bus that loses, doubles and moves frames; counts what came of them."""

    def __init__(self, seed: int, senders: int = 8) -> None:
        self.rng = random.Random(seed)
        self.senders = senders
        self.whole = Reassembler(SECOND)
        self.transfers = self.delivered = self.wrong = 0

    def run(self, rounds: int, capacity: int, loss: float, doubling: float, moving: float) -> None:
        sent: list[bytes] = []
        frames = list(self._faulty(self._frames(sent, rounds, capacity), loss, doubling))
        for place in range(len(frames) - 2 * self.senders) if moving else ():
            if self.rng.random() < moving:
                other = place + self.rng.randint(1, 2 * self.senders)
                frames[place], frames[other] = frames[other], frames[place]
        self._check(frames, sent)

    def _frames(self, sent: list[bytes], rounds: int, capacity: int) -> Iterator[Frame]:
        rng = self.rng
        longest = 60 if capacity == CLASSIC_BYTES else 300
        for transfer_id in range(rounds):
            streams = []
            for sender in range(self.senders):
                payload = len(sent).to_bytes(4, "big") + rng.randbytes(int(rng.random() * longest))
                sent.append(payload)
                streams.append([Frame(SENDER + sender, data) for data in split_payload(payload, transfer_id, capacity)])
            for turn in zip_longest(*streams):
                yield from filter(None, turn)

    def _faulty(self, frames: Iterator[Frame], loss: float, doubling: float) -> Iterator[Frame]:
        rng = self.rng.random
        for frame in frames:
            drawn = rng()
            if drawn >= loss:
                yield frame
                if drawn < loss + doubling:
                    yield frame

    def _check(self, frames: list[Frame], sent: list[bytes]) -> None:
        receive = self.whole.receive
        for frame in frames:
            payload = receive(frame, 0)
            if payload is not None:
                number = int.from_bytes(payload[:4], "big")
                self.wrong += number >= len(sent) or sent[number] != payload
                self.delivered += 1
        self.transfers += len(sent)


FAULTS = [
    (loss, doubling, moving)
    for loss in (0.0, 0.001, 0.01, 0.1, 0.3)
    for doubling in (0.0, 0.1)
    for moving in (0.0, 0.01, 0.1)
]


def _run(transfers: int) -> Traffic:
    traffic = Traffic(seed=3)
    rounds = transfers // (len(FAULTS) * 4 * traffic.senders) + 1
    for faults in FAULTS:
        for capacity in (CLASSIC_BYTES, CLASSIC_BYTES, CLASSIC_BYTES, FD_BYTES):
            traffic.run(rounds, capacity, *faults)
    assert traffic.transfers >= transfers
    return traffic


def test_no_payload_is_wrong_in_20_000_transfers() -> None:
    traffic = _run(20_000)
    assert traffic.wrong == 0
    assert traffic.delivered > 10_000


@pytest.mark.slow
def test_no_payload_is_wrong_in_a_million_transfers() -> None:
    traffic = _run(1_000_000)
    assert traffic.wrong == 0
    assert traffic.delivered > 500_000


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.1])
def test_as_many_transfers_arrive_as_have_all_their_frames(loss: float) -> None:
    """(1 - p)**8 of those with 8 frames."""
    rng = random.Random(17)
    whole = Reassembler(SECOND)
    count, arrived = 4_000, 0
    for number in range(count):
        for frame in frames_of(LONG, number):
            arrived += rng.random() >= loss and whole.receive(frame, 0) == LONG
    expected = (1 - loss) ** len(WHOLE)
    sigma = (expected * (1 - expected) / count) ** 0.5
    assert len(WHOLE) == 8
    assert abs(arrived / count - expected) < 4 * sigma


def test_all_transfers_arrive_though_a_tenth_of_the_frames_is_doubled() -> None:
    traffic = Traffic(seed=2)
    traffic.run(200, CLASSIC_BYTES, 0.0, 0.1, 0.0)
    assert (traffic.delivered, traffic.wrong) == (1_600, 0)
    assert set(traffic.whole.counts) == {"duplicate"}
