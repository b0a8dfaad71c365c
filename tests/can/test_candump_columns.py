"""Logs of candump read in columns give what they give line by line."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genus.can._logs.formats import ROWS, LineFormat
from genus.can._logs.text_reader import TextReader, parse_candump
from genus.can.types import LogBlock, LoggedFrame
from tests.examples import examples

TESLA = Path(__file__).parents[3] / "shared" / "data" / "can" / "tesla"
Seen = tuple[list[tuple[int, LoggedFrame]], Counter[Any], Counter[str]]


def seen(block: LogBlock) -> Seen:
    return list(block.rows()), Counter((each.position, each.reason) for each in block.damaged), block.skipped


def alone(raw: bytes) -> Seen:
    return seen(TextReader(LineFormat(ROWS["log"]), learns=False).parse(raw))


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
@examples(100)
def test_any_text_is_read_as_line_by_line(text: str, end: str, encoding: str) -> None:
    """Frames, their times and channels, and the reasons for which lines are none."""
    raw = (text + end).encode(encoding, "replace")
    assert seen(parse_candump(raw)) == alone(raw)


@pytest.mark.skipif(not TESLA.exists(), reason=f"real data not found: {TESLA}")
def test_a_real_log_is_read_as_line_by_line() -> None:
    """5,368 frames of a car."""
    raw = gzip.decompress((TESLA / "tesla_model3_muxfuzz.candump.log.gz").read_bytes())
    found = seen(parse_candump(raw))
    assert found == alone(raw)
    assert (len(found[0]), found[1]) == (5368, Counter())
