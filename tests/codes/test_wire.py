"""Codes on the wire and the division-free test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.codes import Divisor, code_size, encode_code, parse_code


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
