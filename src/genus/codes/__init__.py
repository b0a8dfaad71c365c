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
    from genus.codes._etags import Block, EtagSpace, Grant
    from genus.codes._hierarchy import hierarchy_of, load_module, read_hierarchy
    from genus.codes._prime_schemes import CompactPrimes, LinePrimes, OriginalPrimes
    from genus.codes._report import (
        LARGEST_CODES,
        CodeCost,
        NotApplicable,
        TreeCodeSize,
        compare_schemes,
        draw_balanced_trees,
        measure_balanced_trees,
    )
    from genus.codes._scheme import CodeEntry, Scheme

__all__ = [
    "LARGEST_CODES",
    "Block",
    "CodeCost",
    "CodeEntry",
    "CompactPrimes",
    "Divisor",
    "EtagSpace",
    "Grant",
    "LinePrimes",
    "NotApplicable",
    "OriginalPrimes",
    "Scheme",
    "TreeCodeSize",
    "code_size",
    "compare_schemes",
    "draw_balanced_trees",
    "encode_code",
    "encode_path_segment",
    "hierarchy_of",
    "load_module",
    "measure_balanced_trees",
    "parse_code",
    "parse_path_segment",
    "read_hierarchy",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        _encoding="Divisor code_size encode_code encode_path_segment parse_code parse_path_segment",
        _etags="Block EtagSpace Grant",
        _hierarchy="hierarchy_of load_module read_hierarchy",
        _prime_schemes="CompactPrimes LinePrimes OriginalPrimes",
        _report="LARGEST_CODES CodeCost NotApplicable TreeCodeSize compare_schemes draw_balanced_trees "
        "measure_balanced_trees",
        _scheme="CodeEntry Scheme",
    )
