"""What calls of `genus.records` return, and options that programs name in annotations only."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.records._payload import Example, Rejected

__all__ = [
    "Example",
    "Rejected",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
