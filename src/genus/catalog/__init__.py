"""The catalog: codes, vectors and event tags that a system agrees on, append-only, in one readable file."""

from genus.catalog._catalog import Catalog
from genus.catalog._declare import types_in

__all__ = [
    "Catalog",
    "types_in",
]
