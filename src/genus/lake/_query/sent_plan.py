"""Plans on their way to Spark tasks: a small one within the task, a large one as a file that every worker gets once.

The arrays of an object are written one after the other, outside of the pickled object (pickle protocol 5), so that
workers map the file into memory: all workers of a machine share it, and it is loaded in no time.
"""

import atexit
import hashlib
import mmap
import pickle
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from pyspark import SparkFiles
from pyspark.sql import SparkSession

MAX_CONTENT = 1 << 20
"""Larger objects are sent as files."""
_ALIGNMENT = 64
_SIZE = 8


T = TypeVar("T")


class Sent(Generic[T]):
    """An object that tasks load; each worker process does so once."""

    def __init__(self, name: str, content: bytes | None) -> None:
        self._name, self._content = name, content

    def load(self) -> T:
        """The object, in a task."""
        if self._name not in _LOADED:
            content = self._content if self._content is not None else _map_file(SparkFiles.get(self._name))
            if len(_LOADED) >= MAX_LOADED:
                del _LOADED[next(iter(_LOADED))]
            _LOADED[self._name] = read_object(content)
        loaded: T = _LOADED[self._name]
        return loaded


MAX_LOADED = 8
_LOADED: dict[str, Any] = {}
"""What this worker process has loaded, by name."""


def send(spark: SparkSession, given: T) -> Sent[T]:
    """Make an object available to tasks of a session."""
    content = write_object(given)
    name = f"genus-plan-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    if len(content) <= MAX_CONTENT:
        return Sent(name, content)
    path = _folder() / name
    path.write_bytes(content)
    spark.addArtifacts(str(path), file=True)
    return Sent(name, None)


@cache
def _folder() -> Path:
    """A folder for files that is removed when this process ends; workers that join later need the files too."""
    folder = Path(tempfile.mkdtemp(prefix="genus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write_object(given: object) -> bytes:
    """An object as bytes: the number and sizes of its pieces, the pickled object, then its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    pieces = [memoryview(pickle.dumps(given, protocol=5, buffer_callback=buffers.append))]
    pieces += [buffer.raw() for buffer in buffers]
    head = b"".join(number.to_bytes(_SIZE, "little") for number in (len(pieces), *map(len, pieces)))
    return b"".join(part for piece in (memoryview(head), *pieces) for part in (piece, _padding(len(piece))))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _ALIGNMENT)


def read_object(content: bytes | mmap.mmap) -> Any:
    """The object that `write_object` wrote; its arrays are views of the content."""
    view = memoryview(content)
    count = int.from_bytes(view[:_SIZE], "little")
    sizes = np.frombuffer(view[_SIZE : _SIZE * (count + 1)], "<i8").tolist()
    at, pieces = _SIZE * (len(sizes) + 1), []
    at += -at % _ALIGNMENT
    for size in sizes:
        pieces.append(view[at : at + size])
        at += size + -size % _ALIGNMENT
    return pickle.loads(pieces[0], buffers=pieces[1:])


def _map_file(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
