"""Files of a lake: on this machine by the operating system, anywhere else by Hadoop's own file systems.

The driver keeps the ledger and the catalog through `Files`; what it creates is whole or not there at all. Tasks have no
Hadoop: they read sources and write tables with `open_input` and `write_file`, locally or through pyarrow's file systems
(S3, GCS, Azure, HDFS).
"""

import glob
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.fs as arrow_fs
from pyspark.sql import SparkSession

from genus.errors import LakeError

_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of file systems that pyarrow knows by another."""


class Found(msgspec.Struct, frozen=True):
    """A file or folder in a listing."""

    path: str
    size: int
    is_folder: bool
    changed: float
    """When it was last written, in seconds since 1970."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rstrip("/").rpartition("/")[2]


class Files(Protocol):
    """What the driver does with files; paths are whole ones."""

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""

    def create(self, path: str, content: bytes) -> bool:
        """Make a file that is not there yet; False, and nothing changed, if it is."""

    def replace(self, path: str, content: bytes) -> None:
        """Put a content in the place of a file, all or nothing."""

    def listing(self, folder: str) -> list[Found]:
        """What is directly in a folder, by name; nothing if there is no such folder."""

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it; nothing happens if it is not there."""


def local_path(path: str | os.PathLike[str]) -> str | None:
    """The path as this machine's file system has it; None if it lies elsewhere.

    >>> local_path("file:///tmp/lake"), local_path("/tmp/a b"), local_path("s3a://city/lake")
    ('/tmp/lake', '/tmp/a b', None)
    """
    text = os.fspath(path)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    return None if parts.scheme and "://" in text else os.path.abspath(text)


def whole_path(path: str | os.PathLike[str]) -> str:
    """A path that means the same in every process: absolute, without a slash at its end."""
    local = local_path(path)
    return (local if local is not None else os.fspath(path)).rstrip("/") or "/"


def spark_path(path: str) -> str:
    """A whole path as Spark is given it: without a scheme it would look in the cluster's default file system.

    >>> spark_path("/tmp/a b"), spark_path("s3a://city/lake")
    ('file:///tmp/a b', 's3a://city/lake')
    """
    return path if local_path(path) is None else f"file://{path}"


def files_of(spark: SparkSession, path: str) -> Files:
    """The file system that a path lies in."""
    if local_path(path) is not None:
        return LocalFiles()

    return HadoopFiles(spark, path)


def everything_in(files: Files, folder: str) -> Iterator[Found]:
    """All files below a folder."""
    for found in files.listing(folder):
        if found.is_folder:
            yield from everything_in(files, found.path)
        else:
            yield found


class LocalFiles:
    """Files of this machine, or of one mounted here."""

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as problem:
            raise _failed("read", path, problem) from problem

    def create(self, path: str, content: bytes) -> bool:
        """Make a file that is not there yet: a complete one is linked to its name, which one writer only can do."""
        with _beside(path, content) as made:
            try:
                os.link(made, path)
            except FileExistsError:
                return False
            except OSError as problem:
                raise LakeError(f"cannot link {path}: {problem.strerror}; commits need hard links there") from problem
            _sync_folder(os.path.dirname(path))
            return True

    def replace(self, path: str, content: bytes) -> None:
        """Rename a complete file over another."""
        with _beside(path, content) as made:
            os.replace(made, path)
            _sync_folder(os.path.dirname(path))

    def listing(self, folder: str) -> list[Found]:
        """What is directly in a folder, by name."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            return [found for entry in entries if (found := _found(entry)) is not None]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as problem:
            raise _failed("list", folder, problem) from problem

    def delete(self, path: str) -> None:
        """Remove a file or a folder."""
        try:
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise _failed("remove", path, problem) from problem


def _failed(what: str, path: str, problem: OSError) -> LakeError:
    return LakeError(f"cannot {what} {path}: {problem.strerror or problem}")


def _found(entry: os.DirEntry[str]) -> Found | None:
    """An entry of a folder; None if it is gone by now, as the hidden files of other writers may be."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return Found(entry.path, status.st_size, entry.is_dir(), status.st_mtime)


@contextmanager
def _beside(path: str, content: bytes) -> Iterator[str]:
    """A complete file in the same folder under a hidden name, gone at the end of the block."""
    folder, name = os.path.split(path)
    made = os.path.join(folder, f".{name}.{uuid.uuid4().hex}")
    try:
        os.makedirs(folder, exist_ok=True)
        with open(made, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield made
    except OSError as problem:
        raise _failed("write", path, problem) from problem
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(made)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- in tasks ----------------------------------------------------------------------------------------------------------


def opens_in_tasks(path: str) -> bool:
    """Whether tasks can reach a path themselves."""
    try:
        _arrow(path)
    except LakeError:
        return False
    return True


def open_input(path: str) -> IO[bytes]:
    """A file to read from any place in it."""
    local = local_path(path)
    if local is not None:
        return open(local, "rb")
    files, inner = _arrow(path)
    opened: IO[bytes] = files.open_input_file(inner)
    return opened


def found_in_tasks(path: str) -> list[str]:
    """The files that a path stands for: itself, all in a folder but hidden ones, or here those of a pattern."""
    files, inner = _arrow(path)
    found = files.get_file_info(inner)
    if found.type == arrow_fs.FileType.NotFound:
        return sorted(filter(os.path.isfile, glob.glob(inner, recursive=True))) if local_path(path) else []
    if found.is_file:
        return [inner if local_path(path) else path]
    inside = files.get_file_info(arrow_fs.FileSelector(inner, recursive=True))
    names = sorted(each.path[len(inner.rstrip("/")) :] for each in inside if each.is_file)
    base = whole_path(path)
    return [base + name for name in names if not any(part[:1] in (".", "_") for part in name.split("/"))]


def size_of(path: str) -> int:
    """How many bytes a file has."""
    files, inner = _arrow(path)
    found = files.get_file_info(inner)
    if not found.is_file:
        raise LakeError(f"cannot read {path}: there is no such file")
    return int(found.size)


def write_file(path: str, write: Callable[[Any], None]) -> int:
    """Have a file written under a hidden name and then renamed, so that it is whole or not there; returns its size.

    A task that is tried again writes the same file again.
    """
    files, inner = _arrow(path)
    folder, _, name = inner.rpartition("/")
    files.create_dir(folder, recursive=True)
    made = f"{folder}/.{name}.{uuid.uuid4().hex}"
    try:
        with files.open_output_stream(made) as stream:
            write(stream)
        size = int(files.get_file_info(made).size)
        _move(files, made, inner, size)
    except BaseException:
        with suppress(OSError):
            files.delete_file(made)
        raise
    return size


def _move(files: Any, made: str, path: str, size: int) -> None:
    """Give a file its name; HDFS refuses one that is taken, and then it is by another try of the same task."""
    try:
        files.move(made, path)
    except OSError:
        if files.get_file_info(path).size != size:
            raise
        files.delete_file(made)


def _arrow(path: str) -> tuple[Any, str]:
    local = local_path(path)
    if local is not None:
        return arrow_fs.LocalFileSystem(), local
    scheme, _, rest = path.partition("://")
    try:
        files, inner = arrow_fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    except (pa.ArrowInvalid, OSError, NotImplementedError) as problem:
        raise LakeError(f"{path}: no file system of pyarrow opens it: {problem}") from problem
    return files, inner


# Files of any Hadoop file system, by the session's JVM: the one place that reaches into it.


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
