"""What calls of `genus.catalog` return, and options that programs name in annotations only."""

from genus.catalog._records import Finding, RegistrationResult, TypeEntry

__all__ = [
    "Finding",
    "RegistrationResult",
    "TypeEntry",
]
