"""Blocks of whole lines, out of bytes that come in pieces: a range of a file, or what is unpacked of it.

A line belongs to the range in which its first byte is, so that ranges side by side have every line once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import IO, NamedTuple

from genus.can.dbc.lines import LONGEST_LINE

BLOCK = 1 << 20
"""So many bytes are best read together: their columns stay in the processor's cache."""


class LineBlock(NamedTuple):
    """Whole lines, and where the first begins; the last line of all may lack its end."""

    at: int
    text: bytes


def lines_between(file: IO[bytes], start: int, end: int) -> Iterator[LineBlock]:
    """The lines of a file that begin in a range of bytes.

    >>> import io
    >>> list(lines_between(io.BytesIO(b"one\\ntwo\\nthree\\n"), 1, 5))
    [LineBlock(at=4, text=b'two\\n')]
    """
    behind = max(start - 1, 0)  # where a line ends that may begin before the range
    file.seek(behind)
    return _blocks(iter(lambda: file.read(BLOCK), b""), behind, end, skip=start > 0)


def lines_unpacked(pieces: Iterable[bytes], is_cut: Callable[[], bool]) -> Iterator[LineBlock]:
    """All lines of a text that comes in pieces; without the last if it is cut off, which is known in the end."""
    return _blocks(_joined(pieces), 0, 1 << 63, skip=False, is_cut=is_cut)


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) >= BLOCK:
            yield b"".join(waiting)
            waiting = []
    yield b"".join(waiting)


def _blocks(
    pieces: Iterable[bytes], at: int, end: int, *, skip: bool, is_cut: Callable[[], bool] = lambda: False
) -> Iterator[LineBlock]:
    """The lines that begin before `end`; of one that is too long only its beginning. `skip` what is left of a line."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        if skip:
            over = text.find(b"\n") + 1
            at, text, skip = at + (over or len(text)), text[over:] if over else b"", not over
        size, is_last = _whole(text, end - at)
        if size:
            yield LineBlock(at, text[:size])
        if is_last:
            return
        at, rest = at + size, text[size:]
        if len(rest) > LONGEST_LINE:
            yield LineBlock(at, rest[: LONGEST_LINE + 1])
            at, rest, skip = at + len(rest), b"", True
    if rest and not is_cut():
        yield LineBlock(at, rest)


def _whole(text: bytes, left: int) -> tuple[int, bool]:
    """How much of a text is whole lines that begin in its first `left` bytes, and whether no other does."""
    if left <= 0:
        return 0, True
    last = text.find(b"\n", left - 1)
    return (last + 1, True) if last >= 0 else (text.rfind(b"\n") + 1, False)
