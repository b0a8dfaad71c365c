"""The catalog: codes, vectors and event tags that a system agrees on, append-only, in one readable file."""

from genus.catalog._catalog import Catalog
from genus.catalog._declare import types_in
from genus.catalog._records import Finding, RegistrationResult, TypeEntry

__all__ = ["Catalog", "Finding", "RegistrationResult", "TypeEntry", "types_in"]
