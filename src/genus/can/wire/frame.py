"""A frame on the bus, as every part of the CAN room passes it on."""

import msgspec

from genus.can.wire.identifier import ETAG_MASK, NODE_SHIFT, PRIORITY_SHIFT


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A data frame: identifier and up to 8 bytes, or up to 64 with `fd`.

    >>> Frame(0x0021_6010, b"hi")
    Frame(0x00216010, 6869)
    """

    id: int
    data: bytes = b""
    fd: bool = False
    extended: bool = True

    @property
    def priority(self) -> int:
        """The first field of the identifier."""
        return self.id >> PRIORITY_SHIFT & 0xFF

    @property
    def node(self) -> int:
        """The sender's number."""
        return self.id >> NODE_SHIFT & 0x7F

    @property
    def etag(self) -> int:
        """The event tag."""
        return self.id & ETAG_MASK

    def __repr__(self) -> str:
        shown = f"{self.id:#010x}" if self.extended else f"{self.id:#05x}"
        return f"Frame({shown}, {self.data.hex()}{', fd' if self.fd else ''})"
