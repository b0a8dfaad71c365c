"""Prime codes, event tags and codes on the wire: the arithmetic behind "is it a T, or below T?".

A **code** is an integer per type such that `code[b] % code[a] == 0` if and only if a is b or above b. An **event
tag** is a small number per type such that a type and everything below it are few (value, mask) pairs. Both are
append-only.
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.codes._coap_report import CoapReport, CoapSettings, PathCost, TrafficCost, measure_coap
    from genus.codes._coap_sizes import BLOCK_SIZES, Traffic, size_get, size_message, size_options
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
        MAX_CODES,
        CodeCost,
        NotApplicable,
        TreeCodeSize,
        assign_codes,
        compare_schemes,
        draw_balanced_trees,
        measure_balanced_trees,
    )
    from genus.codes._resources import Resource, read_resources
    from genus.codes._scheme import CodeEntry, Scheme

__all__ = [
    "BLOCK_SIZES",
    "MAX_CODES",
    "Block",
    "CoapReport",
    "CoapSettings",
    "CodeCost",
    "CodeEntry",
    "CompactPrimes",
    "Divisor",
    "EtagSpace",
    "Grant",
    "LinePrimes",
    "NotApplicable",
    "OriginalPrimes",
    "PathCost",
    "Resource",
    "Scheme",
    "Traffic",
    "TrafficCost",
    "TreeCodeSize",
    "assign_codes",
    "code_size",
    "compare_schemes",
    "draw_balanced_trees",
    "encode_code",
    "encode_path_segment",
    "hierarchy_of",
    "load_module",
    "measure_balanced_trees",
    "measure_coap",
    "parse_code",
    "parse_path_segment",
    "read_hierarchy",
    "read_resources",
    "size_get",
    "size_message",
    "size_options",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
