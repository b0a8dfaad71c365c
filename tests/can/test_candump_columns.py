"""Logs of candump read in columns give what `read_candump` gives line by line."""

import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genus.can._logs.candump import parse_candump, read_line
from genus.can._logs.frames import EXTENDED, FrameColumns
from genus.can._logs.log_file import HARMLESS
from tests.examples import examples

TESLA = Path(__file__).parents[3] / "shared" / "data" / "can" / "tesla"

Seen = tuple[int, str | None, int, bool, bytes]
"""Time, channel, identifier, whether it is extended, data."""


def line_by_line(text: bytes) -> tuple[list[Seen], dict[str, int]]:
    """Frames in the order of the log, and how often each kind of damage is in it."""
    seen: list[Seen] = []
    damage: Counter[str] = Counter()
    for found in map(read_line, text.split(b"\n")):
        if isinstance(found, str):
            damage[found] += found not in HARMLESS
        elif found is not None:
            at, channel, frame, _ = found
            seen.append((at, channel, frame.id, frame.extended, frame.data))
    return seen, {reason: count for reason, count in damage.items() if count}


def rows_of(frames: FrameColumns) -> Iterator[tuple[int, Seen]]:
    """Positions and frames."""
    columns = (frames.position, frames.at_us, frames.channel, frames.identifier, frames.length)
    rows = zip(*(column.tolist() for column in columns), frames.data, strict=True)
    for position, at_us, channel, identifier, length, data in rows:
        is_extended = identifier >= EXTENDED
        seen = at_us, frames.channels[channel], identifier & ~EXTENDED, is_extended, data[:length].tobytes()
        yield position, seen


def in_columns(text: bytes) -> tuple[list[Seen], dict[str, int]]:
    """The same by columns."""
    block = parse_candump(text)
    placed = dict(row for frames in block.frames for row in rows_of(frames))
    damage: dict[str, int] = {}
    for position, reason, line in block.damaged:
        assert text[position : position + len(line)] == line
        damage[reason] = damage.get(reason, 0) + 1
    return [placed[position] for position in sorted(placed)], damage


digits = st.text("0123456789", max_size=13)
times = st.builds("({}.{})".format, digits, digits.map(lambda text: text[:10])) | st.just("(1436509052.249713)")
gaps = st.sampled_from([" ", " ", " ", "  ", "\t", "\x0b", "", "\u2003"])
channels = st.sampled_from(["can0", "vcan12", "a", "#", "ca#0", "can0\x00", "ä", "any)", "x" * 15, "x" * 40, "", "."])
identifiers = st.sampled_from(["123", "7FF", "800", "1F334455", "1f33445a", "20000080", "3FFFFFFF", "40000000", "12"])
identifiers |= st.text("0123456789abcdefABCDEFg", min_size=2, max_size=9)
bytes_ = st.binary(max_size=70).map(bytes.hex)
data = st.sampled_from(["#", "#R", "#R8", "##", "##1", "#1122334455667788", "#112233445566778899", "#123", "#_9"])
data |= st.builds("#{}".format, bytes_.map(lambda text: text[:17])) | st.builds("##{}{}".format, st.just("1"), bytes_)
ends = st.sampled_from(["", "", "", "\r", " R", " T", " t\r", "  R", " ", "_9", "_9 T", " X", "\x1c"])
lines = st.builds("{}{}{}{}{}{}{}".format, times, gaps, channels, gaps, identifiers, data, ends)
good = st.builds(
    "(14365{}.{}) {} {}{}{}".format,
    st.integers(10000, 99999),
    st.sampled_from(["249713", "000000", "5", "123456789"]),
    st.sampled_from(["can0", "  vcan1"]),
    st.sampled_from(["123", "1F334455"]),
    st.builds("#{}".format, st.binary(max_size=8).map(bytes.hex)) | st.builds("##1{}".format, bytes_),
    st.sampled_from(["", " R", "\r"]),
)
noise = st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))
texts = st.lists(good | good | lines | noise, max_size=20).map("\n".join)


@given(texts, st.sampled_from(["", "\n", "\r\n"]), st.sampled_from(["utf-8", "latin-1"]))
@example("(253402300799.999999) can0 123#00\n(253402300800.000000) can0 123#00", "", "utf-8")
@example("(1.1) can0 20000080#0000\n(1.2) can0 FFFFFFFF#", "\n", "utf-8")
@example("(1.5) a 123#00\n(.5) a 123#00\n(1.) a 123#00\n(.) a 123#00", "", "utf-8")
@example("(1.1) can0 123#00\n(1.1) can0\x00 123#00", "\n", "utf-8")
@examples(150)
def test_any_text_is_read_as_line_by_line(text: str, end: str, encoding: str) -> None:
    """Frames, their times and channels, and the reasons for which lines are none."""
    raw = (text + end).encode(encoding, "replace")
    assert in_columns(raw) == line_by_line(raw)


@given(st.lists(good, min_size=1, max_size=30), st.data())
def test_a_damaged_byte_costs_its_line_at_most(frames: list[str], data: st.DataObject) -> None:
    """A byte of a good log is replaced by any other; both readers see the same."""
    raw = bytearray("\n".join(frames).encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert in_columns(bytes(raw)) == line_by_line(bytes(raw))


def test_lines_of_the_common_form_are_read_in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upper and lower case, several channels, FD frames, directions and all widths of times."""
    common = b"\n".join(
        [
            b"(1436509052.249713) can0 123#11223344",
            b"(1.5)   can10 1F334455##1112233445566778899aabB R",
            b"(1.123456789) c 7ff#",
        ]
    )
    expected = line_by_line(common)
    monkeypatch.setattr("genus.can._logs.candump.parse_line", lambda text: pytest.fail("line by line"))
    assert in_columns(common) == expected
    assert len(expected[0]) == 3


@pytest.mark.skipif(not TESLA.exists(), reason=f"real data not found: {TESLA}")
def test_a_real_log_is_read_as_line_by_line() -> None:
    """5,368 frames of a car."""
    raw = gzip.decompress((TESLA / "tesla_model3_muxfuzz.candump.log.gz").read_bytes())
    seen, damage = in_columns(raw)
    assert (seen, damage) == line_by_line(raw)
    assert (len(seen), damage) == (5368, {})
