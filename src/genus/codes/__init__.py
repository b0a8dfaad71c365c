"""Prime codes, event tags and codes on the wire: the arithmetic behind "is it a T, or below T?".

A **code** is an integer per type such that `code[b] % code[a] == 0` if and only if a is b or above b. An **event
tag** is a small number per type such that a type and everything below it are few (value, mask) pairs. Both are
append-only.
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.codes._encoding import (
        Divisor,
        code_size,
        encode_code,
        encode_path_segment,
        parse_code,
        parse_path_segment,
    )
    from genus.codes._etags import EtagSpace
    from genus.codes._hierarchy import load_module, read_hierarchy
    from genus.codes._prime_schemes import CompactPrimes, LinePrimes, OriginalPrimes, compare_schemes
    from genus.codes._scheme import Scheme

__all__ = [
    "CompactPrimes",
    "Divisor",
    "EtagSpace",
    "LinePrimes",
    "OriginalPrimes",
    "Scheme",
    "code_size",
    "compare_schemes",
    "encode_code",
    "encode_path_segment",
    "load_module",
    "parse_code",
    "parse_path_segment",
    "read_hierarchy",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
