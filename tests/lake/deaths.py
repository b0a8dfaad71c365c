"""A process that dies at the n-th change of a file, simulated in this one: from then on nothing is changed any more.

A change is a call of the operating system that links, renames, removes or flushes a file, a file that a task in this
process writes, or what a Spark job writes. The process dies before it or after it: each has two points.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from genus.lake._ingest import job
from genus.lake._tables.lake_tables import SparkStore
from genus.lake._tables.store import Drafts


class Killed(BaseException):
    """Ends the simulated process."""


class Death:
    """Counts the points of an operation and dies at one of them; before that, another process may act there."""

    def __init__(self, at: int, meanwhile: Callable[[], object] | None = None) -> None:
        self.reached = 0
        self.is_dead = False
        self._at, self._meanwhile = at, meanwhile
        self._is_other = False

    def point(self) -> None:
        """Die here if this is the point; a dead process does nothing more."""
        if self._is_other:
            return
        if self.is_dead:
            raise Killed
        self.reached += 1
        if self.reached == self._at:
            self._act()
            self.is_dead = True
            raise Killed

    def _act(self) -> None:
        if self._meanwhile is not None:
            self._is_other = True
            try:
                self._meanwhile()
            finally:
                self._is_other = False

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a point before and one after it."""

        def run(*arguments: Any, **options: Any) -> Any:
            self.point()
            result = function(*arguments, **options)
            self.point()
            return result

        return run


@contextmanager
def dying(death: Death) -> Iterator[None]:
    """Run a block in which the process dies; the locks that it holds are released, as by the operating system."""
    changes = ("link", "replace", "unlink", "rmdir", "fsync")
    opened: list[Drafts] = []
    begin = Drafts.begin

    def note(self: Drafts, id: str) -> None:
        opened.append(self)
        begin(self, id)

    write: Callable[..., Any] = vars(job)["write_file"]
    patches = [patch.object(os, name, death.around(getattr(os, name))) for name in changes]
    patches += [
        patch.object(job, "write_file", death.around(write)),
        patch.object(SparkStore, "write", death.around(SparkStore.write)),
        patch.object(Drafts, "begin", note),
        patch.object(Drafts, "forget", lambda *_: None),
    ]
    for each in patches:
        each.start()
    try:
        yield
    except Killed:
        pass
    finally:
        for each in patches:
            each.stop()
        for found in opened:
            for _, lock in found._open.values():
                if lock is not None:
                    os.close(lock)
            found._open.clear()
