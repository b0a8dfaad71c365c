"""The file systems of a lake: local files, objects of S3, and all others through Hadoop.

The driver reads and writes the ledger and the catalog through a `FileSystem`, which creates and replaces files
atomically. Tasks have none: they use the functions of `files`.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from genus._extras import install_command
from genus.errors import LakeError
from genus.lake._tables.files import FileInfo, file_error, hidden_path, local_path, sync

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import S3Store
    from pyspark.sql import SparkSession

SCHEME = "s3://"
_MAX_LENGTH = 300
_CHUNK = 1 << 20


class FileSystem(Protocol):
    """File operations of the driver; all paths are absolute."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is no such file."""

    def create(self, path: str, content: bytes) -> bool:
        """Create a file atomically; False, and nothing is changed, if it exists already."""

    def replace(self, path: str, content: bytes, durable: bool = True) -> None:
        """Write a file atomically, in place of one that may exist, and flush it to disk.

        Without `durable` it is not flushed, and may be missing for a moment, or after a crash.
        """

    def list_folder(self, folder: str) -> list[FileInfo]:
        """Return the direct entries of a folder, sorted by name; an empty list if there is no such folder."""

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with everything in it; does nothing if it does not exist."""


def is_object_path(path: str) -> bool:
    """Return whether a path is in an object store with conditional puts.

    >>> is_object_path("s3://city/lake"), is_object_path("s3a://city/lake"), is_object_path("/data/lake")
    (True, False, False)
    """
    return path.startswith(SCHEME)


def direct_file_system(path: str) -> FileSystem | None:
    """Return the file system of a path that needs no Spark; None if only Hadoop can open it."""
    if local_path(path) is not None:
        return LocalFileSystem()
    return ObjectFileSystem(path) if is_object_path(path) else None


def file_system_for(spark: "SparkSession", path: str) -> FileSystem:
    return direct_file_system(path) or HadoopFileSystem(spark, path)


def walk_files(files: FileSystem, folder: str, *, hidden: bool = True) -> Iterator[FileInfo]:
    """Yield all files below a folder; without `hidden`, neither hidden files nor those in hidden folders."""
    for found in files.list_folder(folder):
        if found.is_hidden and not hidden:
            continue
        if found.is_folder:
            yield from walk_files(files, found.path, hidden=hidden)
        else:
            yield found


# -- local files -------------------------------------------------------------------------------------------------------


class LocalFileSystem:
    """Files on local disks and mounted folders."""

    def read(self, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as problem:
            raise file_error("read", path, problem) from problem

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
            sync(os.path.dirname(path))
            return True

    def replace(self, path: str, content: bytes, durable: bool = True) -> None:
        with _temporary_file(path, content, durable) as made:
            if not durable:
                with suppress(FileNotFoundError):
                    os.unlink(path)  # else some file systems flush the new file before they rename it
            os.replace(made, path)
            if durable:
                sync(os.path.dirname(path))

    def list_folder(self, folder: str) -> list[FileInfo]:
        found = []
        try:
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                with suppress(FileNotFoundError):  # it was removed meanwhile, as temporary files of writers are
                    status = entry.stat()
                    found.append(FileInfo(entry.path, status.st_size, entry.is_dir(), status.st_mtime))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as problem:
            raise file_error("list", folder, problem) from problem
        return found

    def delete(self, path: str) -> None:
        try:
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise file_error("remove", path, problem) from problem


@contextmanager
def _temporary_file(path: str, content: bytes, durable: bool = True) -> Iterator[str]:
    """Write a complete file under a hidden name in the folder of `path`; it is removed when the block ends."""
    made = hidden_path(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(made, "xb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield made
    except OSError as problem:
        raise file_error("write", path, problem) from problem
    finally:
        with suppress(OSError):  # on a read-only disk there is nothing to remove, and the first problem is raised
            os.unlink(made)


# -- objects -----------------------------------------------------------------------------------------------------------


class ObjectFileSystem:
    """The objects of a bucket of S3, or of a store with its protocol, as files, through obstore.

    A put is atomic. One that must create its object (`If-None-Match: *`) succeeds for one of many writers only, which
    is what a ledger needs; so any number of programs may write to a lake there. Endpoint, region and credentials come
    from the environment (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, ...), where pyarrow finds them too.
    """

    def __init__(self, path: str) -> None:
        bucket = path[len(SCHEME) :].partition("/")[0]
        if not bucket:
            raise LakeError(f"{path} names no bucket; write s3://BUCKET/FOLDER")
        self._root = f"{SCHEME}{bucket}/"
        self._objects = open_bucket(bucket, os.environ.get("AWS_ENDPOINT_URL", ""))

    def read(self, path: str) -> bytes | None:
        with _object_errors("read", path):
            try:
                return bytes(self._objects.get(self._key(path)).bytes())
            except FileNotFoundError:
                return None

    def create(self, path: str, content: bytes) -> bool:
        """Create an object by a conditional put, which succeeds for one writer only."""
        from obstore.exceptions import AlreadyExistsError

        with _object_errors("write", path):
            try:
                self._objects.put(self._key(path), content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

    def replace(self, path: str, content: bytes, durable: bool = True) -> None:
        """Put an object, in place of one that may exist; a store that has answered keeps it."""
        with _object_errors("write", path):
            self._objects.put(self._key(path), content, use_multipart=False)

    def swap(self, path: str, before: bytes | None, content: bytes) -> bool:
        """Put an object in place of one with a known content; False, and nothing is changed, if it has another."""
        from obstore.exceptions import PreconditionError

        if before is None:
            return self.create(path, content)
        with _object_errors("write", path):
            try:
                found = self._objects.get(self._key(path))
                if bytes(found.bytes()) != before:
                    return False
                unchanged: UpdateVersion = {"e_tag": found.meta["e_tag"]}
                self._objects.put(self._key(path), content, mode=unchanged, use_multipart=False)
            except (FileNotFoundError, PreconditionError):
                return False
            return True

    def list_folder(self, folder: str) -> list[FileInfo]:
        """Return the direct entries of a folder, sorted by name; folders have no time of their last change."""
        with _object_errors("list", folder):
            found = self._objects.list_with_delimiter(self._key(folder))
        inside = [FileInfo(self._root + name, 0, True, 0.0) for name in found["common_prefixes"]]
        inside += [
            FileInfo(self._root + each["path"], each["size"], False, each["last_modified"].timestamp())
            for each in found["objects"]
        ]
        return sorted(inside, key=lambda each: each.path)

    def delete(self, path: str) -> None:
        key = self._key(path)
        with _object_errors("remove", path):
            inside = [each["path"] for batch in self._objects.list(key) for each in batch]
            self._objects.delete([*inside, key])

    def _key(self, path: str) -> str:
        if not f"{path}/".startswith(self._root):
            raise LakeError(f"{path} is not in {self._root}")
        return path[len(self._root) :]


@lru_cache(maxsize=8)
def open_bucket(bucket: str, endpoint: str) -> "S3Store":
    """Return a bucket, at an endpoint that the environment names; an endpoint may be without TLS only if it says so."""
    try:
        from obstore.store import S3Store
    except ImportError as problem:
        raise LakeError(f"s3://{bucket} needs obstore: {install_command('objects')}") from problem
    return S3Store(bucket, client_options={"allow_http": endpoint.startswith("http://")})


@contextmanager
def _object_errors(what: str, path: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as problem:
        line = str(problem).strip().partition("\n")[0]
        raise LakeError(f"cannot {what} {path}: {line[:_MAX_LENGTH]}") from problem


# -- Hadoop ------------------------------------------------------------------------------------------------------------


class HadoopFileSystem:
    """Files of any Hadoop file system, through the session's JVM; no other module uses the JVM.

    HDFS lets one writer only rename a file to a name. Object stores have no such guarantee through Hadoop: one process
    at a time may write to a lake there.
    """

    def __init__(self, spark: "SparkSession", path: str) -> None:
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
        with _java_errors("read", path):
            try:
                stream = self._files.open(self._path(path))
            except Exception as problem:
                if "FileNotFoundException" in _first_line(problem):
                    return None
                raise
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def create(self, path: str, content: bytes) -> bool:
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
        with _java_errors("write", path):
            self._put(path, content, "OVERWRITE")

    def list_folder(self, folder: str) -> list[FileInfo]:
        with _java_errors("list", folder):
            path = self._path(folder)
            if not self._files.exists(path) or not self._files.getFileStatus(path).isDirectory():
                return []
            found = []
            for status in self._files.listStatus(path):
                name, modified = status.getPath().getName(), status.getModificationTime() / 1000
                found.append(FileInfo(f"{folder.rstrip('/')}/{name}", status.getLen(), status.isDirectory(), modified))
        return sorted(found, key=lambda each: each.path)

    def delete(self, path: str) -> None:
        with _java_errors("remove", path):
            self._files.delete(self._path(path), True)

    def _put(self, path: str, content: bytes, how: str) -> None:
        """Write a file under a hidden name and rename it; `how` is a Hadoop rename option."""
        made, rename = hidden_path(path), self._jvm.org.apache.hadoop.fs.Options.Rename
        try:
            stream = self._files.create(self._path(made), True)
            try:
                for at in range(0, len(content), _CHUNK):  # py4j copies what goes to the JVM several times
                    stream.write(bytearray(content[at : at + _CHUNK]))
            finally:
                stream.close()
            options = self._gateway.new_array(rename, 1)
            options[0] = getattr(rename, how)
            self._context.rename(self._path(made), self._path(path), options)
        except Exception:
            self.delete(made)
            raise


@contextmanager
def _java_errors(what: str, path: str) -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # py4j's class cannot be named: with Spark Connect, py4j is not installed
        raise LakeError(f"cannot {what} {path}: {_first_line(problem)}") from problem


def _first_line(problem: Exception) -> str:
    java = getattr(problem, "java_exception", None)
    return str(problem if java is None else java.toString()).strip().partition("\n")[0]
