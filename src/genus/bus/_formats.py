"""Which format a file of events has: the blocks of a recording, or the frames of an older one."""

from typing import Final, Literal, TypeAlias

from genus.bus._blocks import HEADER, Block, blocks_in, next_block
from genus.bus._frames import FIRST_FORMAT, FORMAT, Frame, FrameFormat, Octets, frames_in

BLOCKS: Final = "blocks"
"""The format of new files."""

Format: TypeAlias = FrameFormat | Literal["blocks"]


def format_of_header(header: bytes) -> Format | None:
    """Return the format that a file's first bytes name; None if they are no header."""
    if header == HEADER:
        return BLOCKS
    return next((each for each in (FORMAT, FIRST_FORMAT) if header == each.header), None)


def find_format(data: Octets) -> Format | None:
    """Return the format of a file: by its header or, if that is damaged, by what is in it; None if it has none.

    Blocks may be inside of frames and frames inside of blocks, in an attribute of bytes: what has more bytes is
    outside.
    """
    named = format_of_header(data[: len(HEADER)])
    if named is not None:
        return named
    form = next((each for each in (FORMAT, FIRST_FORMAT) if each.next_frame(data, 0) is not None), None)
    if next_block(data, 0) is None:
        return form
    blocks = sum(each.end - each.start for each in blocks_in(data) if isinstance(each, Block))
    found = () if form is None else frames_in(data, form)
    frames = sum(each.end - each.start for each in found if isinstance(each, Frame))
    return form if form is not None and frames > blocks else BLOCKS
