"""Plans on their way to Spark tasks: a small one within the task, a large one as a file that every worker gets once.

The arrays of a plan are written one after the other, outside of the pickled object (pickle protocol 5), so that workers
map the file into memory: all workers of a machine share it, and a plan is loaded in no time.
"""

import atexit
import hashlib
import mmap
import pickle
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from genus.lake._query.route_plan import FamilyPlan

MAX_CONTENT = 1 << 20
"""Larger plans are sent as files."""
_ALIGNMENT = 64
_SIZE = 8


class SentPlan:
    """A plan that tasks load; each worker process does so once."""

    def __init__(self, name: str, content: bytes | None) -> None:
        self._name, self._content = name, content

    def load(self) -> FamilyPlan:
        """The plan, in a task."""
        known = _LOADED.get(self._name)
        if known is None:
            content = self._content if self._content is not None else _map_file(SparkFiles.get(self._name))
            if len(_LOADED) >= MAX_LOADED:
                del _LOADED[next(iter(_LOADED))]
            known = _LOADED[self._name] = read_plan(content)
        return known


MAX_LOADED = 8
_LOADED: dict[str, FamilyPlan] = {}
"""The plans that this worker process has loaded, by name."""


def send_plan(spark: SparkSession, plan: FamilyPlan) -> SentPlan:
    """Make a plan available to tasks of a session."""
    content = write_plan(plan)
    name = f"genus-plan-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    if len(content) <= MAX_CONTENT:
        return SentPlan(name, content)
    path = _folder() / name
    path.write_bytes(content)
    spark.addArtifacts(str(path), file=True)
    return SentPlan(name, None)


@cache
def _folder() -> Path:
    """A folder for plans that is removed when this process ends; workers that join later need the files too."""
    folder = Path(tempfile.mkdtemp(prefix="genus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write_plan(plan: FamilyPlan) -> bytes:
    """A plan as bytes: the number and sizes of its pieces, the pickled object, then its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    pieces = [memoryview(pickle.dumps(plan, protocol=5, buffer_callback=buffers.append))]
    pieces += [buffer.raw() for buffer in buffers]
    head = b"".join(number.to_bytes(_SIZE, "little") for number in (len(pieces), *map(len, pieces)))
    return b"".join(part for piece in (memoryview(head), *pieces) for part in (piece, _padding(len(piece))))


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _ALIGNMENT)


def read_plan(content: bytes | mmap.mmap) -> FamilyPlan:
    """The plan that `write_plan` wrote; its arrays are views of the content."""
    view = memoryview(content)
    count = int.from_bytes(view[:_SIZE], "little")
    sizes = np.frombuffer(view[_SIZE : _SIZE * (count + 1)], "<i8").tolist()
    at, pieces = _SIZE * (len(sizes) + 1), []
    at += -at % _ALIGNMENT
    for size in sizes:
        pieces.append(view[at : at + size])
        at += size + -size % _ALIGNMENT
    plan: FamilyPlan = pickle.loads(pieces[0], buffers=pieces[1:])
    return plan


def _map_file(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
