"""Paths and files of a lake.

Tasks have no Hadoop: they read sources with `open_input` and write tables with `write_file`, locally or through
pyarrow's file systems (S3, GCS, Azure, HDFS). The driver uses `file_systems`.
"""

import errno
import glob
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from genus.errors import LakeError
from genus.lake._tables.commits import checksum

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""URL schemes of Hadoop that pyarrow knows by another name."""
_OBJECT_STORES = ("s3", "gcs", "abfs")
"""Types of pyarrow's file systems that have no folders, and whose files appear when they are complete."""


class FileInfo(msgspec.Struct, frozen=True):
    path: str
    size: int
    is_folder: bool
    modified: float
    """Time of the last change, in seconds since 1970."""

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def modified_us(self) -> int:
        return round(self.modified * 1e6)

    @property
    def is_hidden(self) -> bool:
        return self.name.startswith((".", "_"))


def local_path(path: str | os.PathLike[str]) -> str | None:
    """Return the path in the local file system; None if it lies in another one.

    >>> local_path("file:///tmp/lake"), local_path("/tmp/a b"), local_path("s3a://city/lake")
    ('/tmp/lake', '/tmp/a b', None)
    """
    text = os.fspath(path)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    return None if parts.scheme and "://" in text else os.path.abspath(text)


def absolute_path(path: str | os.PathLike[str]) -> str:
    local = local_path(path)
    return (local if local is not None else os.fspath(path)).rstrip("/") or "/"


def spark_path(path: str) -> str:
    """Return an absolute path for Spark, which takes paths without a scheme to be in the cluster's default file system.

    >>> spark_path("/tmp/a b"), spark_path("s3://city/lake")
    ('file:///tmp/a b', 's3a://city/lake')
    """
    if local_path(path) is not None:
        return f"file://{path}"
    return f"s3a{path[2:]}" if path.startswith("s3://") else path


def open_path(path: str) -> str:
    """Return an absolute path for others than Spark, who name some file systems otherwise.

    >>> open_path("/tmp/a b"), open_path("s3a://city/lake")
    ('/tmp/a b', 's3://city/lake')
    """
    scheme, found, rest = path.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}://{rest}" if found else path


def no_space(path: str) -> str:
    return f"no space left on the disk of {path}; nothing was committed; free some space and try again"


def file_error(what: str, path: str, problem: OSError) -> LakeError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return LakeError(no_space(path))
    return LakeError(f"cannot {what} {path}: {problem.strerror or problem}")


def hidden_path(path: str) -> str:
    """Return a unique hidden path in the same folder, for a file that is renamed when it is complete."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4().hex}"


def sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- in tasks ----------------------------------------------------------------------------------------------------------


def arrow_opens(path: str) -> bool:
    """Return whether pyarrow has a file system for a path, so that tasks can read and write there."""
    try:
        _arrow_file_system(path)
    except LakeError:
        return False
    return True


def open_input(path: str) -> IO[bytes]:
    local = local_path(path)
    if local is not None:
        return open(local, "rb")
    files, inner = _arrow_file_system(path)
    opened: IO[bytes] = files.open_input_file(inner)
    return opened


def list_files(path: str) -> list[str]:
    """Return the files that a path stands for: a file, all files of a folder but hidden ones, or a local pattern."""
    import pyarrow.fs as arrow_fs

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


def file_info(path: str) -> FileInfo:
    """Size and time of a file; LakeError if there is no such file."""
    files, inner = _arrow_file_system(path)
    found = files.get_file_info(inner)
    if not found.is_file:
        raise LakeError(f"cannot read {path}: there is no such file")
    local = local_path(path)
    return FileInfo(path, int(found.size), False, os.stat(local).st_mtime if local else (found.mtime_ns or 0) / 1e9)


Content: TypeAlias = bytes | memoryview


class WrittenContent(NamedTuple):
    bytes: int
    checksum: str
    footer: str
    """The checksum of the end of a Parquet file, which says where which values are."""

    @classmethod
    def of(cls, content: Content) -> "WrittenContent":
        footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
        return cls(len(content), checksum(content), checksum(footer))


def write_file(path: str, write: Callable[[Any], None]) -> WrittenContent:
    """Call `write` with a stream, and write its content to a file; see `put_content`."""
    content = content_of(write)
    put_content(path, content)
    return WrittenContent.of(memoryview(content))


def put_content(path: str, content: "pa.Buffer") -> None:
    """Write a content to a hidden file, which is renamed when it is on disk.

    A task that is retried writes the same file again. In object stores, a file appears at once when it is complete, so
    it is written under its name.
    """
    files, inner = _arrow_file_system(path)
    made = inner if files.type_name in _OBJECT_STORES else hidden_path(inner)
    try:
        if made != inner:
            files.create_dir(inner.rpartition("/")[0], recursive=True)
        with files.open_output_stream(made) as stream:
            stream.write(content)
        if local_path(path) is not None:
            sync(made)
        if made != inner:
            _move(files, made, inner, content.size)
    except BaseException as problem:
        if made != inner:
            with suppress(OSError):
                files.delete_file(made)
        if isinstance(problem, OSError):
            raise file_error("write", path, problem) from problem
        raise


def content_of(write: Callable[[Any], None]) -> "pa.Buffer":
    import pyarrow as pa

    stream = pa.BufferOutputStream()
    write(stream)
    return stream.getvalue()


def _move(files: Any, made: str, path: str, size: int) -> None:
    """Rename a file; if HDFS refuses because the name is taken, another attempt of the same task has written it."""
    try:
        files.move(made, path)
    except OSError:
        if files.get_file_info(path).size != size:
            raise
        files.delete_file(made)


def _arrow_file_system(path: str) -> tuple[Any, str]:
    """The pyarrow file system of a path, and the path there; pyarrow is imported when a file system is needed."""
    import pyarrow as pa
    import pyarrow.fs as arrow_fs

    local = local_path(path)
    if local is not None:
        return arrow_fs.LocalFileSystem(), local
    url = open_path(path)
    try:
        if url.startswith("s3://") and "?" not in url:
            bucket = url[len("s3://") :].partition("/")[0]
            return _arrow_bucket(bucket, os.environ.get("AWS_ENDPOINT_URL", "")), url[len("s3://") :]
        files, inner = arrow_fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, OSError, NotImplementedError) as problem:
        raise LakeError(f"{path}: pyarrow has no file system for it: {problem}") from problem
    return files, inner


@lru_cache(maxsize=8)
def _arrow_bucket(bucket: str, endpoint: str) -> Any:
    """The pyarrow file system of a bucket, at an endpoint that the environment names; opening one asks the store."""
    import pyarrow.fs as arrow_fs

    return arrow_fs.FileSystem.from_uri(f"s3://{bucket}")[0]
