"""Codes on the wire and the division-free test."""

import base64
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.codes import Divisor, code_size, encode_code, encode_path_segment, parse_code, parse_path_segment

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


@given(code=st.integers(1, 1 << 2000), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_a_code_survives_the_wire(code: int, before: bytes, after: bytes) -> None:
    data = before + encode_code(code) + after
    assert parse_code(data, len(before)) == (code, len(data) - len(after))
    assert len(encode_code(code)) == 1 + code_size(code)


@given(data=st.binary(max_size=20), offset=st.integers(-3, 30))
def test_any_bytes_are_parsed_or_refused_and_never_raise(data: bytes, offset: int) -> None:
    parsed = parse_code(data, offset)
    if parsed is not None:
        code, end = parsed
        assert encode_code(code) == data[offset:end]


@pytest.mark.parametrize("data", ["", "00", "01", "02 05", "01 00", "02 00 05"])
def test_malformed_codes_are_none(data: str) -> None:
    assert parse_code(bytes.fromhex(data)) is None


@pytest.mark.parametrize("code", [0, -6, 1 << 8 * 255])
def test_what_no_length_byte_can_carry_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="code"):
        encode_code(code)


@given(code=st.integers(1, (1 << 8 * 191) - 1))
def test_a_code_survives_a_path(code: int) -> None:
    segment = encode_path_segment(code)
    assert parse_path_segment(segment) == code
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,255}", segment)


@given(
    text=st.one_of(st.text(), st.text("AB+/=-_09z \n", max_size=9), st.from_regex(r"\A[\w-]{1,9}\Z", fullmatch=True))
)
def test_any_segment_is_canonical_or_refused_and_never_raises(text: str) -> None:
    code = parse_path_segment(text)
    assert code is None or encode_path_segment(code) == text


@given(code=st.integers(1, 1 << 200), data=st.data())
def test_no_other_segment_names_the_same_code(code: int, data: st.DataObject) -> None:
    """Each of the usual variants decodes to the same bytes, or the same number, and is refused."""
    raw = code.to_bytes(code_size(code), "big")
    padded = base64.urlsafe_b64encode(raw).decode()
    longer = base64.urlsafe_b64encode(bytes(data.draw(st.integers(1, 3))) + raw).decode().rstrip("=")
    segment = padded.rstrip("=")
    blank = data.draw(st.integers(0, len(segment)))
    variants = {padded, longer, padded.translate(str.maketrans("-_", "+/")), segment + "=", f"{segment}/",
                segment[:blank] + data.draw(st.sampled_from(" \n%é")) + segment[blank:]}  # fmt: skip
    if len(segment) % 4:
        last = ALPHABET.index(segment[-1])
        variants |= {segment[:-1] + ALPHABET[last | low] for low in range(1, 4 if len(segment) % 4 == 3 else 16)}
    assert {parse_path_segment(variant) for variant in variants - {segment}} == {None}


@pytest.mark.parametrize(
    "segment", ["", "A", "AA", "AAA", "AAAA", "AAAB", "FQ==", "FR", "F", "+_8", "A" * 256, "B" * 256]
)
def test_malformed_segments_are_none(segment: str) -> None:
    assert parse_path_segment(segment) is None


def test_the_longest_segment_is_that_of_a_uri_path_option() -> None:
    longest = (1 << 8 * 191) - 1
    assert len(encode_path_segment(longest)) == 255
    for code in (longest + 1, 0, -21):
        with pytest.raises(ValueError, match="code"):
            encode_path_segment(code)


def test_all_pairs_of_eight_bits_divide_without_division() -> None:
    for a in range(1, 256):
        divisor = Divisor.of(a, 8)
        assert all(divisor.divides(b) == (b % a == 0) for b in range(256))


@pytest.mark.parametrize("width", [8, 13, 16, 32, 64, 128])
@given(data=st.data())
def test_divisibility_at_any_width(width: int, data: st.DataObject) -> None:
    numbers = st.integers(1, (1 << width) - 1)
    a, b = data.draw(numbers), data.draw(numbers)
    assert Divisor.of(a, width).divides(b) == (b % a == 0)
    assert Divisor.of(a, width).divides(b // a * a)


def test_a_code_beyond_the_width_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 8 bits"):
        Divisor.of(256, 8)
    with pytest.raises(ValueError, match="8 bits"):
        Divisor.of(3, 8).divides(256)
