"""Files of CloudEvents: one JSON object per line, as the lake reads them; a file that is one array is read, too."""

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from genus.catalog import Catalog
from genus.errors import RecordingError
from genus.model import Event
from genus.net._cloudevents import MAX_SIZE, CloudEvent, CloudEventReader, CloudEventWriter
from genus.net._envelope import Origin, new_uid
from genus.records.types import Rejected

_MAX_ARRAY = 256 * 1024 * 1024
_SPACE = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"


def write_cloudevents(
    path: str | os.PathLike[str], events: Iterable[Event], *, uid: bytes | None = None, catalog: Catalog | None = None
) -> int:
    """Write events to a file as CloudEvents, one per line, and return their number.

    A name that ends in `.gz` is compressed. The ids are made of a uid, random if not given, and the number of the
    event. EventError names the attribute of an event that could not be read back; RecordingError if the file cannot be
    written.
    """
    writer, origin_uid = CloudEventWriter(catalog), uid or new_uid()
    number = -1
    try:
        with _open(path, "wb") as stream:
            for number, event in enumerate(events):
                stream.write(writer.write_structured(event, Origin(origin_uid, number)) + b"\n")
    except OSError as problem:
        raise RecordingError(f"{os.fspath(path)}: cannot be written: {problem.strerror or problem}") from problem
    return number + 1


def read_cloudevents(
    path: str | os.PathLike[str], types: Iterable[type] | None = None
) -> Iterator[CloudEvent | Rejected]:
    """Return the events of a file of CloudEvents, and why other lines are none.

    `types` are the event types to read, with their subtypes; all that are declared, if not given. RecordingError if the
    file cannot be opened; damage within it is a `Rejected`.
    """
    try:
        stream = _open(path, "rb")
    except OSError as problem:
        raise RecordingError(f"{os.fspath(path)}: cannot be read: {problem.strerror or problem}") from problem
    return _read(stream, types)


def _open(path: str | os.PathLike[str], mode: str) -> IO[bytes]:
    if os.fspath(path).lower().endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, mode))
    return cast(IO[bytes], Path(path).open(mode))


def _read(stream: IO[bytes], types: Iterable[type] | None) -> Iterator[CloudEvent | Rejected]:
    reader = CloudEventReader(types)
    with stream:
        try:
            first = _next_line(stream).removeprefix(_MARK)
            while first and not first.strip(_SPACE):
                first = _next_line(stream)
            if first.lstrip(_SPACE).startswith(b"["):
                array = first + stream.read(_MAX_ARRAY)
                yield from CloudEventReader(types, largest=_MAX_ARRAY).read_batch(array)
                return
            while first:
                if len(first) > MAX_SIZE:
                    yield Rejected(f"more than {MAX_SIZE} bytes")
                    _skip_line(stream, first)
                elif line := first.strip(_SPACE):
                    yield reader.read_structured(line)
                first = _next_line(stream)
        except (OSError, EOFError) as problem:
            yield Rejected("the file is damaged", f"the file is damaged here: {problem}")


def _next_line(stream: IO[bytes]) -> bytes:
    """Return the next line, or its beginning if it is too long; empty at the end."""
    return stream.readline(MAX_SIZE + 1)


def _skip_line(stream: IO[bytes], part: bytes) -> None:
    while part and not part.endswith(b"\n"):
        part = _next_line(stream)
