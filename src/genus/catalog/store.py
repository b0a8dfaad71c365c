"""Catalog files on disk: read, locked and replaced whole.

A file is replaced by renaming a complete one over it, so a reader never sees half of one and needs no lock. Writers
take turns by an advisory lock (flock) on a sidecar file, which the kernel releases when its holder dies. The sidecar
stays: removing it would let two writers lock two different files.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from genus.errors import CatalogDamaged, CatalogUnavailable

POLL_SECONDS = 0.01


def real_path(path: str | os.PathLike[str]) -> str:
    """Where a path leads: a symbolic link is followed, not replaced."""
    return os.path.realpath(path)


def read_text(path: str) -> str | None:
    """The text of a file, or None if there is no such file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise _unavailable(path, "read", problem) from problem
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise CatalogDamaged(f"{path}: line {line}: not UTF-8 text") from problem


def replace_text(path: str, text: str) -> None:
    """Put a text in the place of a file, all or nothing, and have it on disk on return. Call it under the lock."""
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name}.new")
    try:
        _write(beside, text.encode(), _mode_of(path))
        os.replace(beside, path)
        _sync_folder(folder)
    except OSError as problem:
        _forget(beside)
        raise _unavailable(path, "written", problem) from problem


@contextmanager
def locked(path: str, timeout: float) -> Iterator[None]:
    """Hold the lock of a catalog file; other processes and other threads wait, up to a time-out in seconds."""
    import fcntl  # here, so that platforms without it can still use catalogs in memory

    lock = f"{path}.lock"
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        raise _unavailable(lock, "opened", problem) from problem
    try:
        _acquire(file, path, timeout)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may hold the descriptor open
    finally:
        os.close(file)


def _acquire(file: int, path: str, timeout: float) -> None:
    import fcntl

    deadline = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise CatalogUnavailable(
                    f"{path}: another process has held {path}.lock for {timeout:g} s; try again, or wait longer"
                ) from None
            time.sleep(POLL_SECONDS)
        except OSError as problem:
            raise _unavailable(f"{path}.lock", "locked", problem) from problem


def _write(path: str, data: bytes, mode: int | None) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    with open(file, "wb") as out:
        if mode is not None:
            os.fchmod(file, mode)
        out.write(data)
        out.flush()
        os.fsync(file)


def _mode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _forget(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        return


def _unavailable(path: str, verb: str, problem: OSError) -> CatalogUnavailable:
    return CatalogUnavailable(f"{path}: cannot be {verb}: {problem.strerror or problem}")
