"""Codes and presence bits as text in the options of a request.

A path is the code's big-endian bytes in base64url, without padding, in one segment. It is canonical: a leading zero
byte, bits behind the last byte, padding and other signs are malformed, so equal codes have equal paths. No code has a
path of one sign, so these are free for resources of the server itself.
"""

import base64
import re

from genus.codes import code_size
from genus.codes._encoding import MAX_CODE_BYTES

_ALPHABET = re.compile(r"[A-Za-z0-9_-]{2,}", re.ASCII)
_MASK = re.compile(r"[1-9a-f][0-9a-f]{0,255}", re.ASCII)
MOST_SIGNS = 4 * MAX_CODE_BYTES // 3
"""The length of the longest path."""


def path_of(code: int) -> str:
    """The path segment of a code; ValueError if it is not positive or longer than 255 bytes.

    >>> path_of(12), path_of(30914)
    ('DA', 'eMI')
    """
    if code < 1 or code_size(code) > MAX_CODE_BYTES:
        raise ValueError(f"a code is a positive integer of at most {MAX_CODE_BYTES} bytes, not {code}")
    return base64.urlsafe_b64encode(code.to_bytes(code_size(code), "big")).rstrip(b"=").decode()


def parse_path(segment: str) -> int | None:
    """The code of a path segment; None if it is malformed.

    >>> parse_path("eMI")
    30914
    >>> [parse_path(text) for text in ("AA", "AAE", "eMI=", "eMJ", "e+I", "e", "")]
    [None, None, None, None, None, None, None]
    """
    if len(segment) > MOST_SIGNS or not _ALPHABET.fullmatch(segment) or len(segment) % 4 == 1:
        return None
    data = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    code = int.from_bytes(data, "big")
    return code if data[0] and path_of(code) == segment else None


def format_mask(mask: int) -> str:
    """Presence bits as text: hexadecimal digits; ValueError unless there are some.

    >>> format_mask(36)
    '24'
    """
    if mask < 1:
        raise ValueError(f"presence bits are a positive integer, not {mask}")
    return f"{mask:x}"


def parse_mask(text: str) -> int | None:
    """The presence bits of a text; None if it is malformed.

    >>> parse_mask("24"), parse_mask("024"), parse_mask("2G")
    (36, None, None)
    """
    return int(text, 16) if _MASK.fullmatch(text) else None
