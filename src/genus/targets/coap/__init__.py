"""The CoAP target: subscriptions become the path of a resource and a query, which a server tests.

`compile` makes them of one subscription; `read_query` is what a server makes of them. A code is the path of a resource
(`genus.codes.encode_path_segment`).
"""

from genus.targets.coap._compiler import (
    CoapFilter,
    QueryFilter,
    ServerTests,
    compile,
    format_mask,
    parse_mask,
    read_query,
)

__all__ = [
    "CoapFilter",
    "QueryFilter",
    "ServerTests",
    "compile",
    "format_mask",
    "parse_mask",
    "read_query",
]
