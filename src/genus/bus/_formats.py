"""Which format a file of events has: the blocks of a recording, or the frames of an older one."""

from typing import Final, Literal, TypeAlias

from genus.bus._blocks import HEADER, next_block
from genus.bus._frames import FIRST_FORMAT, FORMAT, FrameFormat, Octets

BLOCKS: Final = "blocks"
"""The format of new files."""

Format: TypeAlias = FrameFormat | Literal["blocks"]


def format_of_header(header: bytes) -> Format | None:
    """The format that a file's first bytes name; None if they are no header."""
    if header == HEADER:
        return BLOCKS
    return next((each for each in (FORMAT, FIRST_FORMAT) if header == each.header), None)


def find_format(data: Octets) -> Format | None:
    """The format of a file: by its header or, if that is damaged, by what is first in it; None if it has none."""
    named = format_of_header(data[: len(HEADER)])
    if named is not None:
        return named
    firsts = ((FORMAT, FORMAT.next_frame(data, 0)), (FIRST_FORMAT, FIRST_FORMAT.next_frame(data, 0)))
    found: list[tuple[int, Format]] = [(frame.start, form) for form, frame in firsts if frame is not None]
    if (block := next_block(data, 0)) is not None:
        found.append((block.start, BLOCKS))
    return min(found, key=lambda each: each[0])[1] if found else None
