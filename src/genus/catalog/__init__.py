"""The catalog: codes, vector bits and event tags that a system agrees on, append-only, in one readable file."""

from genus.catalog._catalog import Catalog
from genus.catalog._declare import types_in
from genus.catalog._records import Finding, Registered, TypeEntry

__all__ = ["Catalog", "Finding", "Registered", "TypeEntry", "types_in"]
