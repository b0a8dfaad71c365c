"""Prime codes, prefix tags and integers on the wire: the arithmetic behind "is it a T, or below T?".

A **code** is an integer per type such that `code[b] % code[a] == 0` if and only if a is b or above b. An **event
tag** is a small number per type such that a type and everything below it are few (value, mask) pairs. Both are
append-only.
"""

from genus.codes._encoding import Divisor, code_size, encode_code, parse_code
from genus.codes._etags import Block, EtagSpace, Grant
from genus.codes._hierarchy import hierarchy_of, read_hierarchy
from genus.codes._scheme import Entry, Scheme
from genus.codes._schemes import CompactPrimes, LinePrimes, OriginalPrimes

__all__ = [
    "Block",
    "CompactPrimes",
    "Divisor",
    "Entry",
    "EtagSpace",
    "Grant",
    "LinePrimes",
    "OriginalPrimes",
    "Scheme",
    "code_size",
    "encode_code",
    "hierarchy_of",
    "parse_code",
    "read_hierarchy",
]
