"""Codes on the wire, and the test whether one code divides another on processors without division.

The wire form is that of "Types in Their Prime" (its section 4.1): one length byte, then the code in as few big-endian
bytes as hold it. It is canonical: a leading zero byte, a zero code or a missing byte is malformed, so two equal codes
are equal as bytes.

As a segment of a URI path a code is the base64url text of the same bytes, without length byte and padding, canonical
too: two equal codes are equal as text. A segment needs no escapes and is the shortest text that any CoAP server takes.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Self

MAX_CODE_BYTES = 255

MAX_SEGMENT_BYTES = 255
"""A Uri-Path option of CoAP has at most so many (RFC 7252, 5.10)."""


def encode_code(code: int) -> bytes:
    """Return the wire form of a code; ValueError if it is not positive or longer than 255 bytes.

    >>> encode_code(30914).hex(" ")
    '02 78 c2'
    """
    if code < 1:
        raise ValueError(f"a code is a positive integer, not {code}")
    size = code_size(code)
    if size > MAX_CODE_BYTES:
        raise ValueError(f"a code of {size} bytes does not fit the {MAX_CODE_BYTES} bytes one length byte can count")
    return bytes((size,)) + code.to_bytes(size, "big")


def parse_code(data: bytes | bytearray | memoryview, offset: int = 0) -> tuple[int, int] | None:
    """Return the code at an offset and the offset after it; None if the bytes are malformed or too few.

    >>> parse_code(bytes.fromhex("02 78 c2 01 05"))
    (30914, 3)
    >>> parse_code(bytes.fromhex("02 78")) is None
    True
    """
    if not 0 <= offset < len(data):
        return None
    start, end = offset + 1, offset + 1 + data[offset]
    if end > len(data) or end == start or data[start] == 0:
        return None
    return int.from_bytes(data[start:end], "big"), end


def encode_path_segment(code: int) -> str:
    """Return a code as one segment of a URI path; ValueError if it is not positive, or too long for 255 bytes.

    >>> encode_path_segment(21), encode_path_segment(30914)
    ('FQ', 'eMI')
    """
    if code < 1:
        raise ValueError(f"a code is a positive integer, not {code}")
    segment = urlsafe_b64encode(code.to_bytes(code_size(code), "big")).rstrip(b"=").decode()
    if len(segment) > MAX_SEGMENT_BYTES:
        raise ValueError(f"a code of {code_size(code)} bytes does not fit a path segment of {MAX_SEGMENT_BYTES} bytes")
    return segment


def parse_path_segment(text: str) -> int | None:
    """Return the code that a segment of a URI path names; None unless it is exactly what `encode_path_segment` gives.

    So the code 0, padding, a leading zero byte, other characters, bits left over in the last character and segments of
    more than 255 bytes are None.

    >>> parse_path_segment("eMI"), parse_path_segment("eMJ"), parse_path_segment("AHjC"), parse_path_segment("FQ==")
    (30914, None, None, None)
    """
    if len(text) > MAX_SEGMENT_BYTES:
        return None
    try:
        code = int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")
    except ValueError:
        return None
    return code if code and encode_path_segment(code) == text else None


def code_size(code: int) -> int:
    """Return the number of bytes of a code, without its length byte.

    >>> code_size(1), code_size(255), code_size(256)
    (1, 1, 2)
    """
    return max(1, (code.bit_length() + 7) // 8)


@dataclass(frozen=True, slots=True)
class Divisor:
    """The constants a device needs to test whether one code divides another of at most `width` bits.

    Write a = 2^k * d with d odd. Multiplying by the inverse of d modulo 2^w permutes the w-bit numbers and maps exactly
    the multiples of d onto 0 .. (2^w - 1) // d, so one multiplication and two comparisons decide whether a divides b.
    From Granlund and Montgomery, "Division by invariant integers using multiplication" (1994), section 9.
    """

    width: int
    low_bits: int
    inverse: int
    limit: int

    @classmethod
    def of(cls, code: int, width: int) -> Self:
        """Return the constants for a code at a word width such as 8, 16, 32 or 64; any positive width is valid.

        Raises ValueError if the code does not fit the width.

        >>> Divisor.of(6, 8)
        Divisor(width=8, low_bits=1, inverse=171, limit=85)
        """
        if not 0 < code < 1 << width:
            raise ValueError(f"code {code} is not a positive integer of at most {width} bits")
        power_of_two = code & -code
        odd = code // power_of_two
        return cls(width, power_of_two - 1, pow(odd, -1, 1 << width), ((1 << width) - 1) // odd)

    def divides(self, code: int) -> bool:
        """Return whether the code given to `of` divides this one; ValueError if this one does not fit the width.

        >>> [b for b in range(1, 20) if Divisor.of(6, 8).divides(b)]
        [6, 12, 18]
        """
        if not 0 <= code < 1 << self.width:
            raise ValueError(f"code {code} does not fit {self.width} bits")
        product = code * self.inverse & (1 << self.width) - 1
        return code & self.low_bits == 0 and product <= self.limit
