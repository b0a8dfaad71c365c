"""File access through Hadoop, for lakes on file systems that only Spark's JVM can use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake._tables.files import FileInfo, FileSystem, hidden_path
from genus.lake._tables.objects import direct_file_system


def file_system_for(spark: SparkSession, path: str) -> FileSystem:
    """The file system of a path."""
    return direct_file_system(path) or HadoopFileSystem(spark, path)


_CHUNK = 1 << 20


class HadoopFileSystem:
    """Files of any Hadoop file system, through the session's JVM; no other module uses the JVM.

    HDFS lets one writer only rename a file to a name. Object stores have no such guarantee through Hadoop: one process
    at a time may write to a lake there.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = getattr(spark, "_jsc", None)
        if context is None:
            raise LakeError(f"{path}: with Spark Connect a lake must be in a mounted folder or in s3://")
        gateway: Any = spark.sparkContext._gateway
        self._gateway, self._jvm = gateway, gateway.jvm
        with _java_errors("open", path):
            uri = self._path(path).toUri()
            configuration = context.hadoopConfiguration()
            self._files: Any = self._jvm.org.apache.hadoop.fs.FileSystem.get(uri, configuration)
            self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(uri, configuration)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        with _java_errors("read", path):
            if (stream := self._open(path)) is None:
                return None
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def _open(self, path: str) -> Any:
        try:
            return self._files.open(self._path(path))
        except Exception as problem:
            if "FileNotFoundException" in _first_line(problem):
                return None
            raise

    def create(self, path: str, content: bytes) -> bool:
        """Create a file by renaming a complete one."""
        with _java_errors("write", path):
            if self._files.exists(self._path(path)):
                return False
            try:
                self._put(path, content, "NONE")
            except Exception:
                if self._files.exists(self._path(path)):
                    return False
                raise
            return True

    def replace(self, path: str, content: bytes, durable: bool = True) -> None:
        """Rename a complete file over the present one."""
        with _java_errors("write", path):
            self._put(path, content, "OVERWRITE")

    def list_folder(self, folder: str) -> list[FileInfo]:
        """The direct entries of a folder, sorted by name."""
        with _java_errors("list", folder):
            path = self._path(folder)
            if not self._files.exists(path) or not self._files.getFileStatus(path).isDirectory():
                return []
            found = [_hadoop_info(folder.rstrip("/"), status) for status in self._files.listStatus(path)]
        return sorted(found, key=lambda each: each.path)

    def delete(self, path: str) -> None:
        """Remove a file or a folder."""
        with _java_errors("remove", path):
            self._files.delete(self._path(path), True)

    def _put(self, path: str, content: bytes, how: str) -> None:
        """Write a file under a hidden name and rename it; `how` is a Hadoop rename option."""
        made = hidden_path(path)
        try:
            self._write(made, content)
            self._rename(made, path, how)
        except Exception:
            self.delete(made)
            raise

    def _write(self, path: str, content: bytes) -> None:
        """Write in chunks, because py4j copies what goes to the JVM several times."""
        stream = self._files.create(self._path(path), True)
        try:
            for at in range(0, len(content), _CHUNK):
                stream.write(bytearray(content[at : at + _CHUNK]))
        finally:
            stream.close()

    def _rename(self, made: str, path: str, how: str) -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = getattr(rename, how)
        self._context.rename(self._path(made), self._path(path), options)


@contextmanager
def _java_errors(what: str, path: str) -> Iterator[None]:
    """Turn exceptions of Java into a LakeError that names the path."""
    try:
        yield
    except Exception as problem:  # py4j's class cannot be named: with Spark Connect, py4j is not installed
        raise LakeError(f"cannot {what} {path}: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    java = getattr(problem, "java_exception", None)
    return str(problem if java is None else java.toString()).strip().partition("\n")[0]


def _hadoop_info(folder: str, status: Any) -> FileInfo:
    path = f"{folder}/{status.getPath().getName()}"
    return FileInfo(path, status.getLen(), status.isDirectory(), status.getModificationTime() / 1000)
