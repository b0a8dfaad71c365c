"""Logs in archives are read as if they were unpacked, and compressed ones never fill the memory."""

import bz2
import gzip
import lzma
import random
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from genus.can import read_log
from genus.can._logs.log_file import LogFile, SkippedRecords
from genus.errors import RecordingError
from tests.can.log_writers import WRITERS
from tests.can.test_log_formats import binary, logged_frames

TEXT = b"(1.500000) can0 123#1122\n(2.500000) can1 124#33\n"
OTHER = b"(9.000000) can7 7FF#\n"


def archive(path: Path, method: int = zipfile.ZIP_DEFLATED, /, **files: bytes) -> Path:
    """A zip archive; in names of files `__` stands for a dot."""
    with zipfile.ZipFile(path, "w", method) as made:
        for name, content in files.items():
            made.writestr(name.replace("__", "."), content)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("name", ["candump -L", "asc hex", "savvycan", "blf", "mf4", "sqlite"])
def test_a_log_alone_in_an_archive_is_read_as_if_unpacked(name: str, method: int, tmp_path: Path) -> None:
    raw = WRITERS[name].write(logged_frames(WRITERS[name], 7)).encode() if name in WRITERS else binary(name, tmp_path)
    (tmp_path / "plain").write_bytes(raw)
    plain, packed = read_log(tmp_path / "plain"), read_log(archive(tmp_path / "some.zip", method, inner__dat=raw))
    assert packed.format == plain.format
    assert list(packed) == list(plain)
    assert (packed.skipped, packed.problems) == (plain.skipped, plain.problems)
    assert packed.position == packed.size == (tmp_path / "some.zip").stat().st_size
    assert list(read_log(tmp_path / "some.zip" / "inner.dat")) == list(plain)


def test_files_that_systems_add_to_archives_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "some.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.mkdir("logs")
        for name, content in (("logs/a.log", TEXT), ("__MACOSX/logs/._a.log", b"x"), ("logs/.DS_Store", b"x")):
            made.writestr(name, content)
    assert [each.channel for each in read_log(path)] == ["can0", "can1"]


def test_one_of_several_logs_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "some.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("day 2/b.log", OTHER)
        made.writestr("a.log", TEXT)
    with pytest.raises(
        RecordingError, match=r"some\.zip: it is a zip archive of 2 files: a\.log, day 2/b\.log; name one"
    ):
        read_log(path)
    assert [each.channel for each in read_log(path / "day 2" / "b.log")] == ["can7"]
    assert [each.channel for each in read_log(f"{path}/a.log")] == ["can0", "can1"]
    with pytest.raises(RecordingError, match=r"it has no 'c\.log', but a\.log, day 2/b\.log"):
        read_log(path / "c.log")


def test_names_of_many_files_are_cut_short(tmp_path: Path) -> None:
    path = archive(tmp_path / "some.zip", **{f"log_{at:02}": TEXT for at in range(30)})
    with pytest.raises(RecordingError, match=r"30 files: log_00, .*log_09 and 20 more; name one"):
        read_log(path)


def test_what_is_no_archive_of_a_log_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "some.log").write_bytes(TEXT)
    with pytest.raises(RecordingError, match=r"it is no archive, so it has no 'inner\.log'"):
        read_log(tmp_path / "some.log" / "inner.log")
    with pytest.raises(RecordingError, match=r"cannot read .*No such file"):
        read_log(tmp_path / "missing.zip" / "inner.log")
    with pytest.raises(RecordingError, match="zip archive without a file"):
        read_log(archive(tmp_path / "empty.zip"))
    nested = archive(tmp_path / "nested.zip", inner__zip=archive(tmp_path / "inner.zip", a__log=TEXT).read_bytes())
    with pytest.raises(RecordingError, match=r"inner\.zip in it is packed once more \(zip\)"):
        read_log(nested)
    with pytest.raises(RecordingError, match=r"a\.log\.gz in it is packed once more \(gzip\)"):
        read_log(archive(tmp_path / "gz.zip", a__log__gz=gzip.compress(TEXT)))


def test_an_encrypted_archive_is_one_clear_error(tmp_path: Path) -> None:
    path = archive(tmp_path / "some.zip", a__log=TEXT)
    raw = bytearray(path.read_bytes())
    raw[6] |= 1  # the flag in the header of the file
    raw[raw.rindex(b"PK\x01\x02") + 8] |= 1  # and in the directory
    path.write_bytes(raw)
    with pytest.raises(RecordingError, match=r"a\.log in it is encrypted"):
        read_log(path)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_archive_gives_a_part_of_its_log_or_says_why_not(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    text = b"".join(b"(%d.%06d) can0 123#%016X\n" % (at, at, rng.getrandbits(64)) for at in range(400))
    (tmp_path / "plain.log").write_bytes(text)
    plain = list(read_log(tmp_path / "plain.log"))
    path = archive(tmp_path / "some.zip", inner__log=text)
    raw = bytearray(path.read_bytes())
    if seed % 2:
        del raw[rng.randrange(len(raw)) :]
    else:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    try:
        log = read_log(path, "log")
        found = list(log)
    except RecordingError:
        return
    # Up to the damage the frames are those of the log; whatever differs is told.
    same = sum(1 for one, other in zip(found, plain, strict=False) if one == other)
    assert same == len(plain) or log.problems


BOMB = bytes(1 << 24)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(level=19).compress,
    "bzip2": lambda raw: bz2.compress(raw, 1),
    "xz": lambda raw: lzma.compress(raw, preset=0),
}


def packed(packing: str, folder: Path, raw: bytes) -> Path:
    path = folder / "packed"
    if packing == "zip":
        return archive(path, inner__log=raw)
    path.write_bytes(PACKERS[packing](raw))
    return path


@pytest.mark.parametrize("packing", [*PACKERS, "zip"])
def test_a_small_file_that_becomes_very_large_is_unpacked_a_piece_at_a_time(packing: str, tmp_path: Path) -> None:
    path = packed(packing, tmp_path, BOMB)
    assert path.stat().st_size < len(BOMB) // 500
    tracemalloc.start()
    try:
        with closing(LogFile(path, SkippedRecords())) as file:
            sizes = [len(chunk) for chunk in file.chunks(1 << 16)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sizes) == len(BOMB)
    assert max(sizes) <= 1 << 18
    assert peak < 6 << 20


def test_a_binary_log_that_becomes_absurdly_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.can._logs.log_file.SMALL_COPY", 1 << 20)
    for name, start in (("blf", b"LOGG\x90\0\0\0"), ("pcap", b"\xd4\xc3\xb2\xa1"), ("sqlite", b"SQLite format 3\0")):
        log = read_log(archive(tmp_path / "some.zip", inner__dat=start + BOMB))
        assert log.format == name
        with pytest.raises(RecordingError, match=r"some\.zip: it unpacks to more than 250 times its size"):
            list(log)
