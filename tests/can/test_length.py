"""Frame lengths: the formulas, and exact lengths against an encoder that goes bit by bit."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._wire.frame import (
    ACTIVE_ERROR_BITS,
    FD_SIZES,
    SHORTEST_ERROR_BITS,
    WORST_ERROR_BITS,
    FdBits,
    Frame,
    Timing,
    exact_bits,
    exact_fd_bits,
    padded_size,
    worst_case_bits,
    worst_case_fd_bits,
)
from genus.errors import BusError

# ---- an independent encoder: text of 0 and 1, as the standard draws it


def bits_of(value: int, width: int) -> str:
    return format(value, f"0{width}b")


def crc15(bits: str) -> str:
    """The register of the CAN specification 2.0, section 3.1.1."""
    register = 0
    for bit in bits:
        invert = int(bit) ^ register >> 14
        register = register << 1 & 0x7FFF
        if invert:
            register ^= 0x4599
    return bits_of(register, 15)


def stuff(bits: str) -> str:
    """With the opposite bit after every five equal ones; stuff bits count among the five."""
    out = ""
    for bit in bits:
        out += bit
        if out[-5:] == bit * 5:
            out += "10"[int(bit)]
    return out


def head(frame: Frame, extended_end: str, standard_end: str) -> str:
    if not frame.extended:
        return "0" + bits_of(frame.id, 11) + standard_end
    return "0" + bits_of(frame.id >> 18, 11) + "11" + bits_of(frame.id & 0x3FFFF, 18) + extended_end


def data_bits(frame: Frame) -> str:
    return "".join(bits_of(byte, 8) for byte in frame.data)


def classic_length(frame: Frame) -> int:
    body = head(frame, "000", "000") + bits_of(len(frame.data), 4) + data_bits(frame)
    return len(stuff(body + crc15(body))) + 1 + 2 + 7 + 3


def fd_lengths(frame: Frame, switched: bool) -> tuple[int, int]:
    """A stuff bit that would follow the last data bit gives way to the fixed one that begins the CRC field."""
    arbitration = head(frame, "010", "0010") + str(int(switched))
    body = arbitration + "0" + bits_of(FD_SIZES.index(len(frame.data)), 4) + data_bits(frame)
    nominal = len(stuff(arbitration[:-1])) + 1
    crc_field = 4 + (17 if len(frame.data) <= 16 else 21)
    fixed = len(range(0, crc_field, 4))
    return nominal + 1 + 2 + 7 + 3, len(stuff(body[:-1])) + 1 - nominal + crc_field + fixed


# ---- frames that stuff much or little, and any


@st.composite
def frames(draw: st.DrawFn, sizes: tuple[int, ...], fd: bool) -> Frame:
    extended = draw(st.booleans())
    identifier = draw(st.integers(0, 2**29 - 1) | st.sampled_from([0, 0x1FFFFFFF, 0x7C1F07C1]))
    size = draw(st.sampled_from(sizes))
    runs = st.sampled_from([0, 0xFF, 0x0F, 0xF0, 0x1F, 0xE0, 0x78, 0x87, 0x3C, 0xC3, 0x55])
    data = bytes(draw(st.lists(runs | st.integers(0, 255), min_size=size, max_size=size)))
    return Frame(identifier & (0x1FFFFFFF if extended else 0x7FF), data, fd=fd, extended=extended)


@given(frames(tuple(range(9)), fd=False))
def test_the_exact_length_is_that_of_the_bits_on_the_wire(frame: Frame) -> None:
    assert exact_bits(frame) == classic_length(frame) <= worst_case_bits(len(frame.data), extended=frame.extended)


@given(frames(FD_SIZES, fd=True), st.booleans())
def test_the_exact_fd_length_is_that_of_the_bits_on_the_wire(frame: Frame, switched: bool) -> None:
    nominal, data = exact_fd_bits(frame, switched=switched)
    assert (nominal, data) == fd_lengths(frame, switched)
    worst = worst_case_fd_bits(len(frame.data), extended=frame.extended)
    assert nominal <= worst.nominal
    assert nominal + data <= sum(worst)
    assert data <= worst.data or not switched


def test_a_thousand_random_frames_have_the_length_of_their_bits() -> None:
    rng = random.Random(3)
    for _ in range(1_000):
        frame = Frame(rng.getrandbits(29), rng.randbytes(rng.randrange(9)))
        assert exact_bits(frame) == classic_length(frame)


def test_random_eight_byte_frames_take_135_bits_on_average() -> None:
    rng = random.Random(1)
    lengths = [exact_bits(Frame(rng.getrandbits(29), rng.randbytes(8))) for _ in range(20_000)]
    assert sum(lengths) / len(lengths) == pytest.approx(135.1, abs=0.1)
    assert max(lengths) <= 148


# ---- the formulas


def test_worst_cases_of_classic_frames_are_those_of_davis_et_al() -> None:
    assert [worst_case_bits(n, extended=False) for n in range(9)] == [55, 65, 75, 85, 95, 105, 115, 125, 135]
    assert [worst_case_bits(n) for n in range(9)] == [80, 90, 100, 110, 120, 130, 140, 150, 160]


TIGHT = {False: (54, 65, 73, 84, 94, 103, 113, 124, 134), True: (79, 89, 98, 109, 119, 128, 138, 149, 159)}
"""The longest there can be, with the fixed bits as they are and any CRC."""


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("size", range(9))
def test_no_frame_is_longer_than_the_tight_maximum(extended: bool, size: int) -> None:
    """Frames made to stuff often come within a few bits of it; the CRC, which cannot be chosen, costs the rest."""
    rng = random.Random(size)
    width = 29 if extended else 11
    longest = 0
    for _ in range(1_000):
        run = int(("00001111" * 12)[rng.randrange(8) :][: width + 8 * size], 2)
        run ^= 1 << rng.randrange(width + 8 * size)
        identifier, data = run >> 8 * size, (run & (1 << 8 * size) - 1).to_bytes(size, "big")
        longest = max(longest, exact_bits(Frame(identifier, data, extended=extended)))
    assert TIGHT[extended][size] - 10 <= longest <= TIGHT[extended][size] <= worst_case_bits(size, extended=extended)


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("size", FD_SIZES)
def test_worst_cases_of_fd_frames_follow_from_their_fields(extended: bool, size: int) -> None:
    start = 36 if extended else 17
    nominal = start + (start - 1) // 4 + 1 + 2 + 7 + 3
    stuffed = (start + 5 + 8 * size - 1) // 4 - (start - 1) // 4
    crc = 17 + 6 if size <= 16 else 21 + 7
    assert worst_case_fd_bits(size, extended=extended) == (nominal, 5 + 8 * size + stuffed + 4 + crc)


def test_a_full_fd_frame_takes_as_many_bits_as_linux_reckons() -> None:
    """736 and 712 bits: `can_frame_bits` of Linux, with intermission."""
    assert sum(worst_case_fd_bits(64)) == 736
    assert sum(worst_case_fd_bits(64, extended=False)) == 712


def test_errors_take_17_to_23_bits_and_31_from_a_passive_sender() -> None:
    assert (SHORTEST_ERROR_BITS, ACTIVE_ERROR_BITS, WORST_ERROR_BITS) == (17, 23, 31)


# ---- sizes and times


@given(st.integers(0, 64))
def test_fd_data_are_padded_to_the_next_length_there_is(size: int) -> None:
    assert padded_size(size) == min(length for length in FD_SIZES if length >= size)


def test_times_are_whole_nanoseconds() -> None:
    assert [Timing(rate).bit_ns for rate in (125_000, 250_000, 500_000, 800_000, 1_000_000)] == [
        8000,
        4000,
        2000,
        1250,
        1000,
    ]
    assert [Timing(500_000, rate).data_bit_ns for rate in (2_000_000, 4_000_000, 5_000_000, 8_000_000)] == [
        500,
        250,
        200,
        125,
    ]


def test_worst_case_times_of_fd_frames_are_as_reckoned_by_hand() -> None:
    slow, fast = Timing(500_000, 2_000_000), Timing(1_000_000, 5_000_000)
    assert (slow.worst_case_ns(64, fd=True), fast.worst_case_ns(64, fd=True)) == (453_500, 192_800)
    assert (slow.worst_case_ns(8, fd=True), fast.worst_case_ns(8, fd=True)) == (171_000, 79_800)
    assert slow.worst_case_ns(9, fd=True) == slow.worst_case_ns(12, fd=True)
    assert Timing(500_000).worst_case_ns(8, fd=True) == (57 + 114) * 2_000


@given(frames(tuple(range(9)), fd=False) | frames(FD_SIZES, fd=True), st.sampled_from([None, 2_000_000]))
def test_a_frame_never_takes_longer_than_its_worst_case(frame: Frame, data_bitrate: int | None) -> None:
    bus = Timing(500_000, data_bitrate)
    assert 0 < bus.exact_ns(frame) <= bus.worst_case_ns(len(frame.data), fd=frame.fd, extended=frame.extended)


@given(
    frames(tuple(range(9)), fd=False) | frames(FD_SIZES, fd=True),
    st.integers(1_000, 1_000_000) | st.sampled_from([33_333, 83_333, 95_238]),
    st.none() | st.integers(1_000_000, 8_000_000),
)
def test_durations_are_exact_and_rounded_up_at_any_bit_rate(
    frame: Frame, bitrate: int, data_bitrate: int | None
) -> None:
    bus = Timing(bitrate, data_bitrate)
    bits = exact_fd_bits(frame, switched=data_bitrate is not None) if frame.fd else FdBits(exact_bits(frame), 0)
    real = Fraction(10**9 * bits.nominal, bitrate) + Fraction(10**9 * bits.data, data_bitrate or bitrate)
    assert real <= bus.exact_ns(frame) < real + 1
    assert bus.exact_ns(frame) <= bus.worst_case_ns(len(frame.data), fd=frame.fd, extended=frame.extended)


@given(st.integers(0, 100_000), st.integers(1_000, 8_000_000))
def test_bits_are_found_again_in_their_duration(bits: int, bitrate: int) -> None:
    bus = Timing(bitrate)
    assert bus.bits_in(bus.bits_ns(bits)) == bits
    assert Fraction(10**9 * bits, bitrate) <= bus.bits_ns(bits) <= bits * bus.bit_ns


@pytest.mark.parametrize("rates", [(0,), (-5,), (2_000_000_000,), (500_000, 0), (500_000, -1)])
def test_a_bit_rate_that_is_none_is_refused(rates: tuple[int, ...]) -> None:
    with pytest.raises(BusError, match=f"bitrate is {rates[-1]}"):
        Timing(*rates)


@pytest.mark.parametrize("size", [-1, 9, 65])
def test_a_classic_frame_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="0 to 8 bytes"):
        worst_case_bits(size)


def test_frames_that_cannot_be_on_a_bus_are_refused() -> None:
    refused = [
        (Frame(1, bytes(9)), "0 to 8 bytes, not 9"),
        (Frame(1, b"", fd=True), "use exact_fd_bits"),
        (Frame(1 << 29), "29 bits"),
        (Frame(1 << 11, extended=False), "11 bits"),
        (Frame(-1), "29 bits"),
    ]
    for frame, why in refused:
        with pytest.raises(ValueError, match=why):
            exact_bits(frame)
    with pytest.raises(ValueError, match="no CAN FD frame has 9 data bytes"):
        exact_fd_bits(Frame(1, bytes(9), fd=True))
    with pytest.raises(ValueError, match="0 to 64 bytes"):
        padded_size(65)
