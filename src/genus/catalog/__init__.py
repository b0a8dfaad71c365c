"""The catalog: codes, vector bits and event tags that a system agrees on, append-only, in one readable file."""

from genus.catalog.catalog import Catalog
from genus.catalog.records import Finding, Registered, TypeEntry
from genus.catalog.sources import types_in

__all__ = ["Catalog", "Finding", "Registered", "TypeEntry", "types_in"]
