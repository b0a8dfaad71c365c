"""`Spool`: events on disk for a side that is not connected; bounded, in order, and kept over a restart.

A folder with numbered files, each of which holds frames as a recording does (`genus.bus._frames`): a frame that was cut
or damaged loses its own event, and is counted. A frame has a msgpack array of three: where the event comes from, the
value under which it is kept, and the event as in a recording. The file `position` says how far events were sent.

Every event is handed to the operating system at once, so that nothing is lost if the process is killed; `sync`, about
once a second, writes it to the disk, so that a power failure loses about a second. After a crash, up to
`POSITION_EVERY` events are sent again, and recognised as copies by their numbers.
"""

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from genus.bus._codec import EventDecoder, Recorded, encode_event
from genus.bus._frames import FORMAT, Frame, FrameFormat, frames_in
from genus.catalog._statement import digest_of, state_type
from genus.errors import BusError
from genus.net._envelope import Origin
from genus.net._relay import Arrival

MOST_BYTES = 64 * 1024 * 1024
FILES = 16
"""A full spool drops its oldest file: about a sixteenth of its size."""
POSITION_EVERY = 256
SUFFIX = ".spool"

_FORM = FrameFormat(b"genspl\x01\n", FORMAT.marker, is_escaped=True)
_ORIGIN = struct.Struct(">8sIB")
_packets = msgspec.msgpack.Decoder(tuple[bytes, str | None, bytes])
_FORGOTTEN = b"\x00"
"""Stands before an event that is kept no more; no recorded event begins so."""


def _encode(arrival: Arrival, at_us: int) -> bytes:
    origin = _ORIGIN.pack(arrival.origin.uid, arrival.origin.number, arrival.origin.hops)
    event = encode_event(arrival.event, at_us)
    return msgspec.msgpack.encode((origin, arrival.kept, _FORGOTTEN + event if arrival.is_forgotten else event))


class Spool:
    """State: the events that wait in a folder; use from one thread at a time.

    BusError if the folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> None:
        self.folder = Path(folder)
        self.most_bytes = most_bytes
        self.damaged = 0
        """Parts of files that could not be read, and events of types that are unknown."""
        self._stated: set[type] = set()
        self._decoder = EventDecoder(None, lambda name: [file.read_bytes() for file in self.folder.glob("*.type")])
        self._lock = self._open_folder()
        self._counts: dict[int, int] = {}
        """By file: the events that wait in it."""
        self._sizes: dict[int, int] = {}
        self._writing: BinaryIO | None = None
        self._newest = 0
        self._reading: Iterator[Arrival] | None = None
        self._next: Arrival | None = None
        self._sent = 0
        """Events of the oldest file that were sent."""
        self._read_folder()

    def _open_folder(self) -> BinaryIO:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("wb")
        except OSError as problem:
            raise BusError(f"the spool {self.folder} cannot be used: {problem.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise BusError(f"the spool {self.folder} is used by another gateway; give each one of its own") from None
        return lock

    def _read_folder(self) -> None:
        """Count what an earlier process left."""
        found = sorted(int(path.stem) for path in self.folder.glob(f"*{SUFFIX}") if path.stem.isdecimal())
        for number in found:
            data = self._path(number).read_bytes()
            parts = list(frames_in(data, _FORM))
            self._counts[number] = sum(isinstance(part, Frame) for part in parts)
            self._sizes[number] = len(data)
            self.damaged += len(parts) - self._counts[number]
        self._newest = found[-1] if found else 0
        if found:
            self._skip_sent(found[0])
        self._remove_empty()

    def _skip_sent(self, oldest: int) -> None:
        """Go to where the earlier process was."""
        with contextlib.suppress(OSError, ValueError):
            number, sent = map(int, (self.folder / "position").read_text().split())
            if number == oldest:
                self._sent = min(sent, self._counts[oldest])
                self._counts[oldest] -= self._sent

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}{SUFFIX}"

    def __len__(self) -> int:
        return sum(self._counts.values())

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(self._sizes.values())

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, arrival: Arrival) -> list[Arrival]:
        """Add an event; returns old ones that were dropped for it. OSError if it cannot be written."""
        self._state(type(arrival.event))
        frame = _FORM.frame(_encode(arrival, time.time_ns() // 1000))
        file = self._file_for(len(frame))
        file.write(frame)
        file.flush()
        self._sizes[self._newest] += len(frame)
        self._counts[self._newest] += 1
        return self._drop_oldest()

    def _state(self, cls: type) -> None:
        """Keep the statement of a class beside its events: a later process may not know its type."""
        if cls not in self._stated and (text := state_type(cls)) is not None:
            (self.folder / f"{digest_of(text)}.type").write_bytes(text)
        self._stated.add(cls)

    def _file_for(self, size: int) -> BinaryIO:
        """The file to write to; a new one if the last is full."""
        if self._writing is not None and self._sizes[self._newest] + size > self.most_bytes // FILES:
            self._end_file()
        if self._writing is None:
            self._writing = self._path(self._newest + 1).open("xb")
            self._newest += 1
            self._writing.write(_FORM.header)
            self._sizes[self._newest], self._counts[self._newest] = len(_FORM.header), 0
        return self._writing

    def _end_file(self) -> None:
        if self._writing is not None:
            self.sync()
            self._writing.close()
            self._writing = None

    def _drop_oldest(self) -> list[Arrival]:
        dropped: list[Arrival] = []
        while self.size > self.most_bytes and len(self._counts) > 1:
            oldest = next(iter(self._counts))
            dropped += self._read(oldest, self._sent)
            self._remove(oldest)
        return dropped

    def _remove(self, number: int) -> None:
        del self._counts[number], self._sizes[number]
        self._path(number).unlink(missing_ok=True)
        self._reading, self._next, self._sent = None, None, 0

    def sync(self) -> None:
        """Write to the disk what was handed to the operating system."""
        if self._writing is not None:
            with contextlib.suppress(OSError):
                self._writing.flush()
                os.fsync(self._writing.fileno())

    # -- reading -----------------------------------------------------------------------------------------------------

    def first(self) -> Arrival | None:
        """The oldest event; None if there is none. It stays until `sent` is called."""
        while self._next is None and self._counts:
            oldest = next(iter(self._counts))
            if self._reading is None:
                if oldest == self._newest:
                    self._end_file()
                self._reading = self._read(oldest, self._sent)
            self._next = next(self._reading, None)
            if self._next is None:
                self._remove(oldest)
        return self._next

    def sent(self) -> None:
        """The oldest event was sent."""
        if self._next is None:
            return
        self._next = None
        self._sent += 1
        oldest = next(iter(self._counts))
        self._counts[oldest] -= 1
        if self._sent % POSITION_EVERY == 0:
            self._write_position(oldest)

    def _read(self, number: int, skipped: int) -> Iterator[Arrival]:
        data = self._path(number).read_bytes()
        frames = [part for part in frames_in(data, _FORM) if isinstance(part, Frame)]
        for frame in frames[skipped:]:
            arrival = self._decode(frame.packet)
            if arrival is not None:
                yield arrival
            else:
                self.damaged += 1
                self._counts[number] -= 1
                self._sent += 1

    def _decode(self, packet: bytes) -> Arrival | None:
        try:
            origin, kept, event = _packets.decode(packet)
            is_forgotten = event.startswith(_FORGOTTEN)
            found = self._decoder.decode(event.removeprefix(_FORGOTTEN))
            made = Origin(*_ORIGIN.unpack(origin))
        except (msgspec.MsgspecError, struct.error, UnicodeDecodeError):
            return None
        return Arrival(found.event, made, kept, is_forgotten) if isinstance(found, Recorded) else None

    def _write_position(self, oldest: int) -> None:
        draft = self.folder / "position.new"
        with contextlib.suppress(OSError):  # without it, some events are sent again, and recognised
            draft.write_text(f"{oldest} {self._sent}")
            os.replace(draft, self.folder / "position")

    def _remove_empty(self) -> None:
        for number in [number for number, count in self._counts.items() if not count]:
            self._remove(number)

    def close(self) -> None:
        """Write all to the disk, and let others use the folder."""
        self._end_file()
        if self._counts:
            self._write_position(next(iter(self._counts)))
        self._lock.close()
