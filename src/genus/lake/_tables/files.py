"""File access for lakes: local files through the operating system, all others through Hadoop or pyarrow.

The driver reads and writes the ledger and the catalog through a `FileSystem`, which creates and replaces files
atomically. Tasks have no Hadoop: they read sources with `open_input` and write tables with `write_file`, locally or
through pyarrow's file systems (S3, GCS, Azure, HDFS).
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
"""URL schemes of Hadoop that pyarrow knows by another name."""


class FileInfo(msgspec.Struct, frozen=True):
    """A file or folder in a listing."""

    path: str
    size: int
    is_folder: bool
    modified: float
    """Time of the last change, in seconds since 1970."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rstrip("/").rpartition("/")[2]


class FileSystem(Protocol):
    """File operations of the driver; all paths are absolute."""

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""

    def create(self, path: str, content: bytes) -> bool:
        """Create a file atomically; False, and nothing is changed, if it exists already."""

    def replace(self, path: str, content: bytes) -> None:
        """Write a file atomically, in place of one that may exist."""

    def list_folder(self, folder: str) -> list[FileInfo]:
        """The direct entries of a folder, sorted by name; an empty list if there is no such folder."""

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with everything in it; does nothing if it does not exist."""


def local_path(path: str | os.PathLike[str]) -> str | None:
    """The path in the local file system; None if it lies in another one.

    >>> local_path("file:///tmp/lake"), local_path("/tmp/a b"), local_path("s3a://city/lake")
    ('/tmp/lake', '/tmp/a b', None)
    """
    text = os.fspath(path)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    return None if parts.scheme and "://" in text else os.path.abspath(text)


def absolute_path(path: str | os.PathLike[str]) -> str:
    """The absolute path or URL, without a trailing slash."""
    local = local_path(path)
    return (local if local is not None else os.fspath(path)).rstrip("/") or "/"


def spark_path(path: str) -> str:
    """An absolute path for Spark, which takes paths without a scheme to be in the cluster's default file system.

    >>> spark_path("/tmp/a b"), spark_path("s3a://city/lake")
    ('file:///tmp/a b', 's3a://city/lake')
    """
    return path if local_path(path) is None else f"file://{path}"


def file_system_for(spark: SparkSession, path: str) -> FileSystem:
    """The file system of a path."""
    return LocalFileSystem() if local_path(path) is not None else HadoopFileSystem(spark, path)


def walk_files(files: FileSystem, folder: str) -> Iterator[FileInfo]:
    """All files below a folder."""
    for found in files.list_folder(folder):
        if found.is_folder:
            yield from walk_files(files, found.path)
        else:
            yield found


class LocalFileSystem:
    """Files on local disks and mounted folders."""

    def read(self, path: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as problem:
            raise _file_error("read", path, problem) from problem

    def create(self, path: str, content: bytes) -> bool:
        """Create a file by hard-linking a complete one to its name, which succeeds for one writer only."""
        with _temporary_file(path, content) as made:
            try:
                os.link(made, path)
            except FileExistsError:
                return False
            except OSError as problem:
                raise LakeError(
                    f"cannot link {path}: {problem.strerror}; the file system of a lake must have hard links"
                ) from problem
            _sync_folder(os.path.dirname(path))
            return True

    def replace(self, path: str, content: bytes) -> None:
        """Rename a complete file over the present one."""
        with _temporary_file(path, content) as made:
            os.replace(made, path)
            _sync_folder(os.path.dirname(path))

    def list_folder(self, folder: str) -> list[FileInfo]:
        """The direct entries of a folder, sorted by name."""
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            return [found for entry in entries if (found := _file_info(entry)) is not None]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as problem:
            raise _file_error("list", folder, problem) from problem

    def delete(self, path: str) -> None:
        """Remove a file or a folder."""
        try:
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise _file_error("remove", path, problem) from problem


def _file_error(what: str, path: str, problem: OSError) -> LakeError:
    return LakeError(f"cannot {what} {path}: {problem.strerror or problem}")


def _file_info(entry: os.DirEntry[str]) -> FileInfo | None:
    """An entry of a folder; None if it was removed meanwhile, as temporary files of other writers are."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return FileInfo(entry.path, status.st_size, entry.is_dir(), status.st_mtime)


def _hidden_path(path: str) -> str:
    """A unique hidden path in the same folder, for a file that is renamed when it is complete."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4().hex}"


@contextmanager
def _temporary_file(path: str, content: bytes) -> Iterator[str]:
    """Write a complete file under a hidden name in the folder of `path`; it is removed when the block ends."""
    made = _hidden_path(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(made, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield made
    except OSError as problem:
        raise _file_error("write", path, problem) from problem
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


def arrow_opens(path: str) -> bool:
    """Whether pyarrow has a file system for a path, so that tasks can read and write there."""
    try:
        _arrow_file_system(path)
    except LakeError:
        return False
    return True


def open_input(path: str) -> IO[bytes]:
    """Open a file for reading and seeking."""
    local = local_path(path)
    if local is not None:
        return open(local, "rb")
    files, inner = _arrow_file_system(path)
    opened: IO[bytes] = files.open_input_file(inner)
    return opened


def list_files(path: str) -> list[str]:
    """The files that a path stands for: a file, all files of a folder but hidden ones, or a local pattern."""
    files, inner = _arrow_file_system(path)
    found = files.get_file_info(inner)
    if found.type == arrow_fs.FileType.NotFound:
        return sorted(filter(os.path.isfile, glob.glob(inner, recursive=True))) if local_path(path) else []
    if found.is_file:
        return [inner if local_path(path) else path]
    inside = files.get_file_info(arrow_fs.FileSelector(inner, recursive=True))
    names = sorted(each.path[len(inner.rstrip("/")) :] for each in inside if each.is_file)
    base = absolute_path(path)
    return [base + name for name in names if not any(part[:1] in (".", "_") for part in name.split("/"))]


def file_size(path: str) -> int:
    """The number of bytes of a file; LakeError if there is no such file."""
    files, inner = _arrow_file_system(path)
    found = files.get_file_info(inner)
    if not found.is_file:
        raise LakeError(f"cannot read {path}: there is no such file")
    return int(found.size)


def write_file(path: str, write: Callable[[Any], None]) -> int:
    """Call `write` with a stream to a hidden file, then rename it, so that the file is complete; returns its size.

    A task that is retried writes the same file again.
    """
    files, inner = _arrow_file_system(path)
    files.create_dir(inner.rpartition("/")[0], recursive=True)
    made = _hidden_path(inner)
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
    """Rename a file; if HDFS refuses because the name is taken, another attempt of the same task has written it."""
    try:
        files.move(made, path)
    except OSError:
        if files.get_file_info(path).size != size:
            raise
        files.delete_file(made)


def _arrow_file_system(path: str) -> tuple[Any, str]:
    """The pyarrow file system of a path, and the path there."""
    local = local_path(path)
    if local is not None:
        return arrow_fs.LocalFileSystem(), local
    scheme, _, rest = path.partition("://")
    try:
        files, inner = arrow_fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    except (pa.ArrowInvalid, OSError, NotImplementedError) as problem:
        raise LakeError(f"{path}: pyarrow has no file system for it: {problem}") from problem
    return files, inner


# -- Hadoop ------------------------------------------------------------------------------------------------------------


_CHUNK = 1 << 20


class HadoopFileSystem:
    """Files of any Hadoop file system, through the session's JVM; no other module uses the JVM.

    HDFS lets one writer only rename a file to a name. Object stores have no such guarantee: one process at a time may
    write to a lake there.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context: Any = getattr(spark, "_jsc", None)
        if context is None:
            raise LakeError(f"{path}: with Spark Connect a lake must be in a mounted folder")
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

    def replace(self, path: str, content: bytes) -> None:
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
        made = _hidden_path(path)
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
