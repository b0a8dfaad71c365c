"""What calls of `genus.devices` return, and options that programs name in annotations only."""

from typing import Literal, TypeAlias

import msgspec

__all__ = ["Codec", "Estimate", "NodeFeature"]

Codec: TypeAlias = Literal["table", "straight"]
"""How payloads are read: by tables, so that types can be learnt at run time, or by code for each type."""
NodeFeature: TypeAlias = Literal["segmentation", "calendar"]
"""What a node can do without; types that are learnt are left out by `late=0`."""


class Estimate(msgspec.Struct, frozen=True):
    """Bytes on an 8-bit processor (AVR), about; others are similar.

    `flash` is for all code and tables that a program with these handlers gets, without the handlers themselves;
    `tables` are part of it. `ram` is for what is kept, and `stack` for one event while it is tested.
    """

    flash: int
    tables: int
    ram: int
    stack: int

    def __str__(self) -> str:
        return (
            f"flash: about {self.flash} bytes, {self.tables} of them tables\n"
            f"RAM: {self.ram} bytes that are kept, {self.stack} on the stack for an event"
        )
