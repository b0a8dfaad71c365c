"""Codes on the wire: one length byte, then the code in as few big-endian bytes as hold it.

The variable-length form of "Types in Their Prime" (its section 4.1). The form is canonical: a leading zero byte, a
zero code or a missing byte is malformed, so two equal codes are equal as bytes.
"""

LONGEST_CODE = 255


def encode_code(code: int) -> bytes:
    """A code as bytes.

    >>> encode_code(30914).hex(" ")
    '02 78 c2'
    """
    if code < 1:
        raise ValueError(f"a code is a positive integer, not {code}")
    size = code_size(code)
    if size > LONGEST_CODE:
        raise ValueError(f"a code of {size} bytes does not fit the {LONGEST_CODE} bytes one length byte can count")
    return bytes((size,)) + code.to_bytes(size, "big")


def parse_code(data: bytes | bytearray | memoryview, offset: int = 0) -> tuple[int, int] | None:
    """The code at an offset and the offset behind it; None when the bytes are malformed or end too soon.

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


def code_size(code: int) -> int:
    """How many bytes a code takes, without its length byte.

    >>> code_size(1), code_size(255), code_size(256)
    (1, 1, 2)
    """
    return max(1, (code.bit_length() + 7) // 8)
