"""Prime codes, prefix tags and integers on the wire: the arithmetic behind "is it a T, or below T?".

A **code** is an integer per type such that `code[b] % code[a] == 0` if and only if a is b or above b. An **event
tag** is a small number per type such that a type and everything below it are few (value, mask) pairs. Both are
append-only.
"""

from genus.codes.compact import CompactPrimes
from genus.codes.division import Divisor
from genus.codes.etags import Block, EtagSpace, Grant
from genus.codes.hierarchy import hierarchy_of, read_hierarchy
from genus.codes.lines import LinePrimes
from genus.codes.original import OriginalPrimes
from genus.codes.scheme import Entry, Scheme
from genus.codes.wire import code_size, encode_code, parse_code

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
