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
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from pyspark import SparkFiles
from pyspark.sql import SparkSession

MAX_CONTENT = 1 << 20
"""Larger objects are sent as files."""
_ALIGNMENT = 64
T = TypeVar("T")


@dataclass(frozen=True)
class Sent(Generic[T]):
    """An object that tasks load; each worker process does so once."""

    name: str
    content: bytes | None = field(compare=False)
    """The object; None if it is sent as a file."""

    def load(self) -> T:
        loaded: T = _load(self)
        return loaded


@lru_cache(maxsize=8)
def _load(sent: Sent[Any]) -> Any:
    if sent.content is not None:
        return read_object(sent.content)
    with open(SparkFiles.get(sent.name), "rb") as file:
        return read_object(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


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
    """Return an object as bytes: the number and sizes of its pieces, the pickled object, then its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    pieces = [memoryview(pickle.dumps(given, protocol=5, buffer_callback=buffers.append))]
    pieces += [buffer.raw() for buffer in buffers]
    head = memoryview(np.array([len(pieces), *map(len, pieces)], "<i8").tobytes())
    return b"".join(part for piece in (head, *pieces) for part in (piece, b"\0" * (-len(piece) % _ALIGNMENT)))


def read_object(content: bytes | mmap.mmap) -> Any:
    """Return the object that `write_object` wrote; its arrays are views of the content."""
    view = memoryview(content)
    (count,) = np.frombuffer(view, "<i8", 1).tolist()
    sizes = np.frombuffer(view, "<i8", count + 1).tolist()[1:]
    at, pieces = 8 * (count + 1), []
    at += -at % _ALIGNMENT
    for size in sizes:
        pieces.append(view[at : at + size])
        at += size + -size % _ALIGNMENT
    return pickle.loads(pieces[0], buffers=pieces[1:])
