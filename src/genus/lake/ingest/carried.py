"""Files of tasks that cannot reach a lake themselves: their bytes go to the driver, which writes them.

pyarrow knows fewer file systems than Hadoop. Everything read in then passes through one process, file after file, so
this is for small lakes on unusual file systems.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from genus.lake.files import Files

SCHEMA = "path string, content binary"
"""What tasks give back: a report, which has no path, after the files that are carried."""

_ARROW = pa.schema([("path", pa.string()), ("content", pa.binary())])


class Carrier:
    """State: the files of one split, until they are handed over."""

    def __init__(self) -> None:
        self._files: list[tuple[str, bytes]] = []

    def write(self, path: str, write: Callable[[Any], None]) -> int:
        """Keep a file instead of writing it; returns its size."""
        stream = io.BytesIO()
        write(stream)
        self._files.append((path, stream.getvalue()))
        return len(self._files[-1][1])

    def rows(self, report: bytes) -> Iterator[pa.RecordBatch]:
        """The files, one a batch, and the report after them."""
        for path, content in (*self._files, (None, report)):
            yield pa.record_batch([pa.array([path], pa.string()), pa.array([content], pa.binary())], schema=_ARROW)


def unload(files: Files, rows: Iterable[Any]) -> Iterator[bytes]:
    """Write what tasks have carried, and give their reports."""
    for path, content in rows:
        if path is None:
            yield bytes(content)
        else:
            files.replace(path, bytes(content))
