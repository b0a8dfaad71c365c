"""What carries events to one side, also while the side is not connected.

`Spool`: events on disk for a side that is not connected; bounded, in order, and kept over a restart.

A folder with numbered files, each of which holds frames as a recording does (`genus.bus._frames`): a frame that was cut
or damaged loses its own event, and is counted. A frame has a msgpack array of three: where the event comes from, the
value under which it is kept, and the event as in a recording. The file `position` says how far events were sent; it is
overwritten in place, so that a full disk does not stop it.

A disk may refuse anything at any time. An event that was not written whole is not in the spool, and its file is cut
where that event began: whoever appended it knows that it is lost. The next one is tried again.

Every event is handed to the operating system at once, so that nothing is lost if the process is killed; `sync`, about
once a second, writes it to the disk, so that a power failure loses about a second. After a crash, up to
`POSITION_EVERY` events are sent again, and recognised as copies by their numbers.

`Outlet`: what carries events to one side: a queue, and a spool while the side is not connected.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from genus.bus import Bus, EventChannel
from genus.bus.internal import FORMAT, EventDecoder, Frame, FrameFormat, encode_event, frames_in
from genus.bus.types import QoS, Recorded
from genus.catalog.internal import digest_of, state_type
from genus.errors import BusError, GenusError, Reasons
from genus.model import Event, name_of
from genus.net._envelope import Arrival, Origin, RelayLink
from genus.net._gateway.machine import SideCounters

MAX_BYTES = 64 * 1024 * 1024
FILES = 16
"""A full spool drops its oldest file: about a sixteenth of its size."""
POSITION_EVERY = 256
SUFFIX = ".spool"

_FORM = FrameFormat(b"genspl\x01\n", FORMAT.marker, is_escaped=True)
_ORIGIN = struct.Struct(">8sIB")
_packets = msgspec.msgpack.Decoder(tuple[bytes, str | None, bytes])
_FORGOTTEN = b"\x00"
"""Stands before an event that is kept no more; no recorded event begins so."""


_SIZES = {"kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def parse_size(size: int | str) -> int:
    """Return the size of a spool in bytes, given so or as text; BusError if it cannot be read, or is too small.

    >>> parse_size("64MB"), parse_size("1 MiB")
    (64000000, 1048576)
    """
    found = re.fullmatch(r"(\d{1,9})\s*(kB|MB|GB|KiB|MiB|GiB)", size.strip()) if isinstance(size, str) else None
    bytes_ = size if isinstance(size, int) else int(found[1]) * _SIZES[found[2]] if found is not None else 0
    if bytes_ < FILES * 1024:
        raise BusError(f"spool_size is {size!r}; write one like '64MB', of at least {FILES}KiB")
    return bytes_


def _encode(arrival: Arrival, at_us: int) -> bytes:
    origin = _ORIGIN.pack(arrival.origin.uid, arrival.origin.number, arrival.origin.hops)
    event = encode_event(arrival.event, at_us)
    return msgspec.msgpack.encode((origin, arrival.kept, _FORGOTTEN + event if arrival.is_forgotten else event))


class Spool:
    """State: the events that wait in a folder; use from one thread at a time.

    BusError if the folder cannot be used, or another process uses it.
    """

    def __init__(self, folder: str | os.PathLike[str], most_bytes: int = MAX_BYTES) -> None:
        self.folder = Path(folder)
        self.most_bytes = most_bytes
        self.damaged = 0
        """Events that could not be read again, as their file or type could not; and damaged parts of older files."""
        self._stated: set[type] = set()
        self._decoder = EventDecoder(None, lambda name: [file.read_bytes() for file in self.folder.glob("*.type")])
        self._position = self._open_folder()
        self._counts: dict[int, int] = {}
        """By file: the events that wait in it."""
        self._sizes: dict[int, int] = {}
        self._writing: int | None = None
        self._newest = 0
        self._reading: Iterator[Arrival] | None = None
        self._next: Arrival | None = None
        self._sent = 0
        """Events of the oldest file that were sent."""
        self._read_folder()

    def _open_folder(self) -> int:
        """Return the file `position`, which is locked while the folder is used."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            position = os.open(self.folder / "position", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as problem:
            raise BusError(f"the spool {self.folder} cannot be used: {problem.strerror}") from None
        try:
            fcntl.flock(position, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(position)
            raise BusError(f"the spool {self.folder} is used by another gateway; give each one of its own") from None
        return position

    def _read_folder(self) -> None:
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
        for number in [number for number, count in self._counts.items() if not count]:
            self._remove(number)

    def _skip_sent(self, oldest: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            number, sent = map(int, os.pread(self._position, 100, 0).split())
            if number == oldest:
                self._sent = min(sent, self._counts[oldest])
                self._counts[oldest] -= self._sent

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}{SUFFIX}"

    def __len__(self) -> int:
        return sum(self._counts.values())

    @property
    def size(self) -> int:
        return sum(self._sizes.values())

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, arrival: Arrival) -> list[Arrival]:
        """Add an event; returns old ones that were dropped for it. OSError if it is not added."""
        self._state(type(arrival.event))
        frame = _FORM.frame(_encode(arrival, time.time_ns() // 1000))
        self._write(self._file_for(len(frame)), frame)
        self._counts[self._newest] += 1
        return self._drop_oldest()

    def _state(self, cls: type) -> None:
        """Keep the statement of a class beside its events: a later process may not know its type."""
        if cls not in self._stated and (text := state_type(cls)) is not None:
            (self.folder / f"{digest_of(text)}.type").write_bytes(text)
        self._stated.add(cls)

    def _file_for(self, size: int) -> int:
        """Return the file to write to; a new one if the last is full."""
        if self._writing is not None and self._sizes[self._newest] + size > self.most_bytes // FILES:
            self._end_file()
        if self._writing is None:
            self._newest += 1
            self._writing = os.open(self._path(self._newest), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            self._sizes[self._newest] = self._counts[self._newest] = 0
            self._write(self._writing, _FORM.header)
        return self._writing

    def _write(self, file: int, data: bytes) -> None:
        """Write all, or nothing: what a full disk took of it is cut off, or no more is written to the file."""
        try:
            if os.write(file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            try:
                os.ftruncate(file, self._sizes[self._newest])
            except OSError:
                self._end_file()
            if not self._sizes[self._newest]:  # it has no header
                self._end_file()
                self._delete(self._newest)
            raise
        self._sizes[self._newest] += len(data)

    def _end_file(self) -> None:
        if self._writing is not None:
            self.sync()
            with contextlib.suppress(OSError):
                os.close(self._writing)
            self._writing = None

    def _drop_oldest(self) -> list[Arrival]:
        dropped: list[Arrival] = []
        while self.size > self.most_bytes and len(self._counts) > 1:
            oldest = next(iter(self._counts))
            found = list(self._read(oldest, self._sent))
            self._counts[oldest] -= len(found)
            self._remove(oldest)
            dropped += found
        return dropped

    def _remove(self, number: int) -> None:
        """Remove the oldest file; events that should still be in it could not be read."""
        self.damaged += self._counts[number]
        self._delete(number)
        self._reading, self._next, self._sent = None, None, 0

    def _delete(self, number: int) -> None:
        del self._counts[number], self._sizes[number]
        with contextlib.suppress(OSError):
            self._path(number).unlink()

    def sync(self) -> None:
        """Write to the disk what was handed to the operating system."""
        if self._writing is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._writing)

    # -- reading -----------------------------------------------------------------------------------------------------

    def first(self) -> Arrival | None:
        """Return the oldest event; None if there is none. It stays until `sent` is called."""
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
        if not self._counts[oldest]:
            self._remove(oldest)
        elif self._sent % POSITION_EVERY == 0:
            self._write_position(oldest)

    def _read(self, number: int, skipped: int) -> Iterator[Arrival]:
        """Yield the events of a file that can be read."""
        try:
            data = self._path(number).read_bytes()
        except OSError:
            return
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
        with contextlib.suppress(OSError):  # without it, some events are sent again, and recognised
            os.pwrite(self._position, f"{oldest:08d} {self._sent:010d}\n".encode(), 0)

    def close(self) -> None:
        """Write all to the disk, and let others use the folder."""
        self._end_file()
        if self._counts:
            self._write_position(next(iter(self._counts)))
        os.close(self._position)


MAX_QUEUED = 10_000
"""Events that may wait for a side that takes long; of more, the oldest are dropped and counted as lost."""
RETRY_S = 10.0
"""How long after a refusal a type is announced again."""
SLOW_S = 1.0
"""A refusal that took so long, as that of a CAN bus without a broker, holds for as long for all events of the type."""

log = logging.getLogger("genus.net")


class Outlet:
    """State: the events on their way to a side. They are sent in the order in which they were put.

    Whoever puts an event calls `drain` afterwards: one thread sends, others leave it to that one. With `runs`, a thread
    of its own does it, for media on which sending may block.
    """

    def __init__(
        self,
        name: str,
        bus: Bus,
        link: RelayLink,
        counts: SideCounters,
        quality: Mapping[type, QoS],
        spool: Spool | None = None,
        *,
        runs: bool = False,
        on_lost: Callable[[Arrival], None] = lambda arrival: None,
    ) -> None:
        self.name, self.spool = name, spool
        self._on_lost = on_lost
        self._damaged = spool.damaged if spool is not None else 0
        """Events of the spool that could not be read, and were counted as lost."""
        self._bus, self._link, self._counts = bus, link, counts
        self._quality = dict(quality)
        self._channels: dict[type, EventChannel[Any] | None] = {}
        self._queue: deque[Arrival] = deque()
        self._sending = threading.Lock()
        self._refused = Reasons()
        self._refusals: dict[type, tuple[GenusError, float]] = {}
        """Types that could not be announced, why, and when to try again."""
        self._takes_over = False
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        if runs:
            self._thread = threading.Thread(target=self._run, name=f"genus-gateway-{name}", daemon=True)
            self._thread.start()

    @property
    def waiting(self) -> int:
        """How many events wait, in the queue and in the spool."""
        return len(self._queue) + (len(self.spool) if self.spool is not None else 0)

    @property
    def is_connected(self) -> bool:
        """Whether the side is connected, as far as its link tells."""
        return self._link.is_connected

    def put(self, arrival: Arrival) -> None:
        """Add an event; calls must not overlap."""
        self._queue.append(arrival)
        if len(self._queue) > MAX_QUEUED:
            self._lose(self._queue.popleft())

    def take_over(self) -> None:
        """Repeat what other gateways sent last before the next event is sent: this one carries on for them."""
        self._takes_over = True

    def drain(self) -> None:
        """Send what waits, unless another thread is doing it; that one sends these events too."""
        if self._thread is not None:
            self._wake.set()
        else:
            self._drain()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait()
            self._wake.clear()
            self._drain()

    def _drain(self) -> None:
        while self._has_work() and self._sending.acquire(blocking=False):
            try:
                while self._has_work():
                    self._send_next()
            finally:
                self._sending.release()

    def _has_work(self) -> bool:
        may_empty_spool = self.spool is not None and self.is_connected and bool(len(self.spool))
        return self._takes_over or bool(self._queue) or may_empty_spool

    def _send_next(self) -> None:
        """Send the oldest event: of the spool, if that has any and the side is connected."""
        if self._takes_over:
            self._takes_over = False
            self._repeat()
        if self.spool is not None and (len(self.spool) or not self.is_connected):
            while self._queue:
                self._write(self.spool, self._queue.popleft())
            first = self.spool.first() if self.is_connected else None
            self._count_damaged(self.spool)
            if first is not None:
                self._forward(first)
                self.spool.sent()
        elif self._queue:
            self._forward(self._queue.popleft())

    def _repeat(self) -> None:
        try:
            self._link.repeat()
            self._link.follow(())
        except Exception:  # of a transport: what waits is sent all the same
            log.exception("a gateway failed to repeat on %s what another one had sent", self.name)

    def _write(self, spool: Spool, arrival: Arrival) -> None:
        """Put an event into the spool, for which others may have to go; one that cannot be written is lost."""
        try:
            for dropped in spool.append(arrival):
                self._lose(dropped)
            self._counts.spooled += 1
            self._count_damaged(spool)
        except (OSError, GenusError) as problem:
            self._refuse(arrival, f"it cannot be spooled: {problem}")

    def _count_damaged(self, spool: Spool) -> None:
        """Count events as lost that cannot be read again; whose they were is not known."""
        if spool.damaged > self._damaged:
            log.warning("%d events of the spool %s cannot be read", spool.damaged - self._damaged, spool.folder)
            self._counts.lost += spool.damaged - self._damaged
            self._damaged = spool.damaged

    def _forward(self, arrival: Arrival) -> None:
        began = time.monotonic()
        try:
            self._announce(type(arrival.event))
            self._link.forward(arrival)
            self._counts.crossed += 1
        except GenusError as problem:
            if time.monotonic() - began > SLOW_S:
                self._refusals[type(arrival.event)] = problem, time.monotonic() + RETRY_S
            self._refuse(arrival, str(problem))
        except Exception:  # of a transport: the side that the event came from must not suffer from it
            self._lose(arrival)
            log.exception("a gateway failed to send an event to %s", self.name)

    def _announce(self, cls: type[Event]) -> None:
        """Announce a type with the quality of service that it has on this side; BusError if it cannot be kept."""
        refusal = self._refusals.get(cls) if self._refusals else None
        if refusal is not None and time.monotonic() < refusal[1]:
            raise refusal[0]
        if cls in self._channels or not self._quality:
            return
        qos = next((qos for limited, qos in self._quality.items() if issubclass(cls, limited)), None)
        self._channels[cls] = self._open_channel(cls, qos) if qos is not None else None

    def _open_channel(self, cls: type[Event], qos: QoS) -> EventChannel[Any]:
        channel: EventChannel[Any] = self._bus.channel(cls, qos, carries=Event.__struct_fields__)
        try:
            channel.announce()
        except GenusError as problem:
            self._refusals[cls] = problem, time.monotonic() + RETRY_S
            raise
        return channel

    def _lose(self, arrival: Arrival) -> None:
        """Count an event as lost, and tell both ends."""
        self._counts.lost += 1
        self._on_lost(arrival)

    def _refuse(self, arrival: Arrival, why: str) -> None:
        """Lose an event; the first of a type and reason is logged."""
        self._lose(arrival)
        event = arrival.event
        name = name_of(type(event))
        if self._refused.add(f"{name}: {why}"):
            log.warning("a gateway could not send a %s to %s: %s", name, self.name, why)

    def sync(self) -> None:
        if self.spool is not None and self._sending.acquire(blocking=False):
            try:
                self.spool.sync()
            finally:
                self._sending.release()

    def close(self) -> None:
        """Send what waits; what cannot be sent stays in the spool."""
        self._is_closed = True
        if self._thread is not None:
            self._wake.set()
            if self._thread is not threading.current_thread():
                self._thread.join(5)
        self._drain()
        for channel in self._channels.values():
            if channel is not None:
                channel.cancel()
        if self.spool is not None:
            with self._sending:
                self.spool.close()
