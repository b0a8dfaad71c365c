"""Text files in blocks of whole lines: every line is in one range, whatever the ranges, the blocks and the damage."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._logs.log_file import MAX_LINE
from genus.can._logs.text_reader import parse_candump
from genus.lake._ingest.format import DeadLetter, Split, TextBlock, byte_ranges, read_blocks

lines = st.sampled_from([b"(1436509052.249713) can0 123#11223344", b"", b"one", b"two three"]) | st.binary(max_size=40)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "some.log"


def blocks_of(path: Path, target: int) -> list[TextBlock]:
    """The blocks of all ranges of a file without damage."""
    splits = byte_ranges(str(path), path.stat().st_size, target)
    found = [block for split in splits for block in read_blocks(split, MAX_LINE)]
    blocks = [block for block in found if isinstance(block, TextBlock)]
    assert blocks == found
    return blocks


@given(st.lists(lines, max_size=12).map(b"\n".join), st.integers(1, 60), st.sampled_from([1, 7, 30, 1 << 21]))
def test_ranges_of_a_file_have_every_line_once(path: Path, raw: bytes, target: int, size: int) -> None:
    """Lines that begin in a range are read with it, at their offsets in the file."""
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genus.lake._ingest.format.BLOCK", size)
        blocks = blocks_of(path, target)
    assert b"".join(block.text for block in blocks) == raw
    assert all(raw[block.at : block.at + len(block.text)] == block.text for block in blocks)
    assert all(raw[: block.at].endswith(b"\n") for block in blocks if block.at)


@pytest.mark.parametrize("target", [1000, MAX_LINE, 5_000_000])
def test_a_line_without_end_does_not_fill_memory(path: Path, target: int) -> None:
    """Of a line that is too long the beginning is kept, once, and the next line is read."""
    line = b"(1.5) can0 123#00\n"
    raw = line + b"x" * 3_000_000 + b"\n" + line
    path.write_bytes(raw)
    blocks = blocks_of(path, target)
    parsed = [parse_candump(block.text, block.at) for block in blocks]
    assert [p for part in parsed for f in part.frames for p in f.position.tolist()] == [0, len(raw) - len(line)]
    assert [(each.position, each.reason) for part in parsed for each in part.damaged] == [(18, "line too long")]
    assert sum(len(block.text) for block in blocks) < 2 * MAX_LINE + 2_100_000


def test_the_last_line_of_cut_text_is_left_out(tmp_path: Path) -> None:
    """It may be the beginning of a longer one; a dead letter has what was read of it."""
    path = tmp_path / "cut.log.gz"
    whole = gzip.compress(b"one\ntwo\nthr", mtime=0)
    path.write_bytes(whole)
    split = Split(str(path), 0, len(whole), gzipped=True)
    assert list(read_blocks(split, 100)) == [TextBlock(0, b"one\ntwo\n"), TextBlock(8, b"thr")]
    path.write_bytes(whole[:-9])
    first, letters = read_blocks(split, 100)
    assert first == TextBlock(0, b"one\ntwo\n")
    assert isinstance(letters, list)
    assert [(letter.position, letter.reason) for letter in letters] == [
        (8, "the file is damaged here: it ends too early")
    ]
    assert isinstance(letters[0], DeadLetter)
    assert b"thr".startswith(letters[0].raw.encode())


@pytest.mark.parametrize("gzipped", [True, False])
def test_compression_is_found_out_once_and_kept_in_the_split(tmp_path: Path, gzipped: bool) -> None:
    """By the name of a file, unless the format looks at its content."""
    path = str(tmp_path / "some.txt")
    assert [split.gzipped for split in byte_ranges(path, 100, 30, gzipped)] == ([True] if gzipped else [False] * 4)
    assert [split.gzipped for split in byte_ranges(f"{path}.gz", 100, 30)] == [True]
    assert [split.gzipped for split in byte_ranges(path, 100, 30)] == [False] * 4
