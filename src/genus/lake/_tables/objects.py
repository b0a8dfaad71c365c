"""Files of S3 and of stores with its protocol, through obstore: `s3://bucket/prefix`.

A put is atomic. One that must create its object (`If-None-Match: *`) succeeds for one of many writers only, which is
what a ledger needs; so any number of programs may write to a lake there. Endpoint, region and credentials come from the
environment (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, ...), where pyarrow finds them too.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from genus._extras import install_command
from genus.errors import LakeError
from genus.lake._tables.files import FileInfo, FileSystem, LocalFileSystem, local_path

if TYPE_CHECKING:
    from obstore import ObjectMeta, UpdateVersion
    from obstore.store import S3Store

SCHEME = "s3://"
_MAX_LENGTH = 300


def is_object_path(path: str) -> bool:
    """Whether a path is in an object store with conditional puts.

    >>> is_object_path("s3://city/lake"), is_object_path("s3a://city/lake"), is_object_path("/data/lake")
    (True, False, False)
    """
    return path.startswith(SCHEME)


def direct_file_system(path: str) -> FileSystem | None:
    """The file system of a path that needs no Spark; None if only Hadoop can open it."""
    if local_path(path) is not None:
        return LocalFileSystem()
    return ObjectFileSystem(path) if is_object_path(path) else None


class ObjectFileSystem:
    """The objects of a bucket as files; a folder is what several names have in common up to a `/`.

    Args:
        path: Any path in the bucket.

    Raises:
        LakeError: obstore is not installed, or the path names no bucket.
    """

    def __init__(self, path: str) -> None:
        bucket = path[len(SCHEME) :].partition("/")[0]
        if not bucket:
            raise LakeError(f"{path} names no bucket; write s3://BUCKET/FOLDER")
        self._root = f"{SCHEME}{bucket}/"
        self._objects = open_bucket(bucket, os.environ.get("AWS_ENDPOINT_URL", ""))

    def read(self, path: str) -> bytes | None:
        """The content of an object; None if there is none."""
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
        """The direct entries of a folder, sorted by name; folders have no time of their last change."""
        with _object_errors("list", folder):
            found = self._objects.list_with_delimiter(self._key(folder))
        inside = [FileInfo(self._root + name, 0, True, 0.0) for name in found["common_prefixes"]]
        inside += [self._info(each) for each in found["objects"]]
        return sorted(inside, key=lambda each: each.path)

    def delete(self, path: str) -> None:
        """Remove an object, or all whose names begin with a folder."""
        key = self._key(path)
        with _object_errors("remove", path):
            inside = [each["path"] for batch in self._objects.list(key) for each in batch]
            self._objects.delete([*inside, key])

    def _key(self, path: str) -> str:
        if not f"{path}/".startswith(self._root):
            raise LakeError(f"{path} is not in {self._root}")
        return path[len(self._root) :]

    def _info(self, found: "ObjectMeta") -> FileInfo:
        return FileInfo(self._root + found["path"], found["size"], False, found["last_modified"].timestamp())


@lru_cache(maxsize=8)
def open_bucket(bucket: str, endpoint: str) -> "S3Store":
    """A bucket, at an endpoint that the environment names; an endpoint may be without TLS only if it says so."""
    try:
        from obstore.store import S3Store
    except ImportError as problem:
        raise LakeError(f"s3://{bucket} needs obstore: {install_command('objects')}") from problem
    return S3Store(bucket, client_options={"allow_http": endpoint.startswith("http://")})


@contextmanager
def _object_errors(what: str, path: str) -> Iterator[None]:
    """Turn exceptions of obstore into a LakeError of one line that names the path."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as problem:
        line = str(problem).strip().partition("\n")[0]
        raise LakeError(f"cannot {what} {path}: {line[:_MAX_LENGTH]}") from problem
