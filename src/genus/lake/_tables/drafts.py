"""Drafts that are being written: whose folders a running writer still needs.

A writer holds a lock on a file of its draft until the draft is committed or discarded. The operating system releases
the lock when the process ends, however it ends, so that the files of a killed writer are known and can be removed. On
file systems without such locks there are no such files, and the age of a folder decides.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from genus.lake._tables.files import local_path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DRAFTS = "_drafts"


class _Open(NamedTuple):
    """A draft that this process is writing."""

    thread: int
    lock: int | None
    """Descriptor of the locked file."""


class Drafts:
    """The drafts of one store that are being written, by this process and by others."""

    def __init__(self, path: str) -> None:
        local = local_path(path)
        self._folder = None if local is None or fcntl is None else f"{local}/{DRAFTS}"
        self._open: dict[str, _Open] = {}

    def begin(self, id: str) -> None:
        """Note that this thread writes files of a draft."""
        if id not in self._open:
            self._open[id] = _Open(threading.get_ident(), self._lock(id))

    def end(self, id: str) -> None:
        """Note that a draft is committed or discarded."""
        known = self._open.pop(id, None)
        if known is not None and known.lock is not None:
            self.forget(id)
            os.close(known.lock)

    def forget(self, id: str) -> None:
        """Remove the file of a draft that has ended."""
        if self._folder is not None:
            with suppress(OSError):
                os.unlink(f"{self._folder}/{id}")

    def mine(self) -> set[str]:
        """The drafts that this thread writes."""
        return {id for id, found in self._open.items() if found.thread == threading.get_ident()}

    def has_ended(self, id: str) -> bool:
        """Whether the writer of a draft is known to have ended without committing or discarding it."""
        if self._folder is None or id in self._open:
            return False
        try:
            descriptor = os.open(f"{self._folder}/{id}", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def ended(self) -> Iterator[str]:
        """The drafts whose writers have ended without committing or discarding them."""
        if self._folder is not None:
            with suppress(OSError):
                yield from filter(self.has_ended, sorted(os.listdir(self._folder)))

    def _lock(self, id: str) -> int | None:
        """Create and lock the file of a draft; None where that is not possible, as on a full disk."""
        if self._folder is None:
            return None
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            descriptor = os.open(f"{self._folder}/{id}", os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise
            return descriptor
        return None
