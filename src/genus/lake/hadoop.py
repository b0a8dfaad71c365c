"""Files of any Hadoop file system, by the session's JVM: the one place that reaches into it."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake.files import Found

_PIECE = 1 << 20


class HadoopFiles:
    """Files of any Hadoop file system, through the session's JVM.

    HDFS renames a file to a name for one writer only. An object store has no such promise: let one process at a time
    write to a lake that lies in one.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = getattr(spark, "_jsc", None)
        if context is None:
            raise LakeError(f"{path}: a Spark Connect session reaches lakes in mounted folders only")
        gateway: Any = spark.sparkContext._gateway
        self._gateway, self._jvm = gateway, gateway.jvm
        with _java("open", path):
            uri = self._path(path).toUri()
            configuration = context.hadoopConfiguration()
            self._files: Any = self._jvm.org.apache.hadoop.fs.FileSystem.get(uri, configuration)
            self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, configuration)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        with _java("read", path):
            if (stream := self._opened(path)) is None:
                return None
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def _opened(self, path: str) -> Any:
        try:
            return self._files.open(self._path(path))
        except Exception as problem:
            if "FileNotFoundException" in _first_line(problem):
                return None
            raise

    def create(self, path: str, content: bytes) -> bool:
        """Make a file that is not there yet: a complete one is renamed."""
        with _java("write", path):
            if self._files.exists(self._path(path)):
                return False
            try:
                self._put(path, content, "NONE")
            except Exception:
                if self._files.exists(self._path(path)):
                    return False
                raise
            return True

    def replace(self, path: str, content: bytes) -> None:
        """Rename a complete file over another."""
        with _java("write", path):
            self._put(path, content, "OVERWRITE")

    def listing(self, folder: str) -> list[Found]:
        """What is directly in a folder, by name."""
        with _java("list", folder):
            path = self._path(folder)
            if not self._files.exists(path) or not self._files.getFileStatus(path).isDirectory():
                return []
            found = [_status(folder.rstrip("/"), status) for status in self._files.listStatus(path)]
        return sorted(found, key=lambda each: each.path)

    def delete(self, path: str) -> None:
        """Remove a file or a folder."""
        with _java("remove", path):
            self._files.delete(self._path(path), True)

    def _put(self, path: str, content: bytes, how: str) -> None:
        """Write a file under a hidden name and rename it."""
        folder, _, name = path.rpartition("/")
        made = f"{folder}/.{name}.{uuid.uuid4().hex}"
        try:
            self._write(made, content)
            self._rename(made, path, how)
        except Exception:
            self.delete(made)
            raise

    def _write(self, path: str, content: bytes) -> None:
        """Piece by piece: what goes to the JVM is there several times for a moment."""
        stream = self._files.create(self._path(path), True)
        try:
            for at in range(0, len(content), _PIECE):
                stream.write(bytearray(content[at : at + _PIECE]))
        finally:
            stream.close()

    def _rename(self, made: str, path: str, how: str) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = getattr(rename, how)
        self._context.rename(self._path(made), self._path(path), options)


@contextmanager
def _java(what: str, path: str) -> Iterator[None]:
    """What Java raises becomes an error that names the path; py4j, which says so, is not there with Spark Connect."""
    try:
        yield
    except Exception as problem:
        raise LakeError(f"cannot {what} {path}: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    java = getattr(problem, "java_exception", None)
    return str(problem if java is None else java.toString()).strip().partition("\n")[0]


def _status(folder: str, status: Any) -> Found:
    path = f"{folder}/{status.getPath().getName()}"
    return Found(path, status.getLen(), status.isDirectory(), status.getModificationTime() / 1000)
