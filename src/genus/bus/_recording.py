"""Recordings: the events of a file, read and replayed.

`genus.bus._blocks` has the format of the file; older files have frames (`genus.bus._frames`). What damage cost is
listed in `damage`, and reading goes on after it.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from genus.bus._attribute_map import UnreadValues
from genus.bus._block_events import StoredEvents, StoredGroup, events_in
from genus.bus._blocks import BLOCKS, HEADER, blocks_in, find_block, find_format
from genus.bus._bus import Bus, Wanted, as_subscription
from genus.bus._codec import FIRST_US, LAST_US, EventDecoder, Recorded, Rejected
from genus.bus._frames import FileBytes, Frame, FrameFormat, Gap, Octets, frames_in
from genus.bus._recording_index import IndexBuilder, RecordingIndex, frames_from, index_blocks
from genus.bus._router import log
from genus.errors import Reasons, RecordingError
from genus.model import Event

RUN = 4096
"""Events of an older file that are in excerpts together."""


class Excerpt(NamedTuple):
    """Some attributes of events of one class, from `Recording.excerpts`."""

    type: type[Event]
    times: Sequence[int]
    """When they were recorded, in microseconds since 1970."""
    events: Sequence[Any]
    """Objects that have the attributes that were asked for, None for those that are absent."""
    has_gap: bool
    """Whether events are missing before or among them, because the file is damaged there."""


@dataclass(slots=True)
class Recording:
    """A recording to read: iterating gives its events, oldest first.

    `events` counts them, `problems` counts those that are of no known type or do not fit it by reason, `damage` lists
    the damaged parts of the file and what was lost by them, `lost` is the number of events that is known to be lost
    (one for a part of which it is not known), and `unread` counts values that were left out of events, because the
    class has no attribute for them (`Loop.speed`). All are complete when the iteration has ended.
    """

    path: Path
    types: Iterable[type] | None = None
    events: int = 0
    lost: int = 0
    problems: Reasons = field(default_factory=Reasons)
    damage: list[str] = field(default_factory=list)
    unread: UnreadValues = field(default_factory=UnreadValues)
    _index: RecordingIndex | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size

    def __iter__(self) -> Iterator[Recorded]:
        """The events, oldest first."""
        return chain.from_iterable(self._batches(None))

    def index(self, progress: Callable[[int, int], object] | None = None) -> RecordingIndex:
        """Return what the recording has, and where its times are; read from its end or from the heads of its blocks.

        An older file is gone through for it, once, without decoding events.

        Args:
            progress: Called now and then with the bytes that were read, and the total; what it raises ends the pass.
        """
        if self._index is None:
            with self._open() as data:
                form = find_format(data) or BLOCKS
                if isinstance(form, FrameFormat):
                    self._index = IndexBuilder().read(data, form, progress)
                else:
                    self._index = index_blocks(data, progress)
        return self._index

    def read_from(self, time_us: int) -> Iterator[Recorded]:
        """Return the events from a time in microseconds since 1970 on, without a pass over those before.

        Events are in the order of the file. Where times go back, an event counts as of the latest time so far.

        >>> import tempfile, pathlib
        >>> from genus import Event
        >>> class Lamp(Event):
        ...     on: bool
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "lamps.genus"
        >>> from genus.bus import RecordingWriter
        >>> with RecordingWriter(file) as writer:
        ...     for second in range(5):
        ...         writer.write(Lamp(on=second % 2 == 0), second * 1_000_000)
        >>> recording = read_recording(file, [Lamp])
        >>> [recorded.at_us for recorded in recording.read_from(3_000_000)]
        [3000000, 4000000]
        >>> index = recording.index()
        >>> index.start_us, index.end_us, index.events, index.types
        (0, 4000000, 5, {'Lamp': 5})
        """
        return chain.from_iterable(self._batches(time_us))

    def excerpts(self, wanted: Mapping[type[Event], Iterable[str]]) -> Iterator["Excerpt"]:
        """Return some attributes of the events of types and of those below them, without making the events.

        For plots and statistics of a whole recording: it is quicker, and other attributes are not looked at. `events`,
        `lost` and `damage` are counted as in an iteration.

        Args:
            wanted: The names of attributes by type.
        """
        names = {cls: frozenset(each) for cls, each in wanted.items()}
        self.events, self.lost, self.problems, self.damage = 0, 0, Reasons(), []
        with self._open() as data:
            if isinstance(find_format(data), FrameFormat):
                yield from self._excerpts_of_frames(tuple(wanted))
                return
            decoder = EventDecoder(names, Statements(data).named)
            lost = 0
            for stored in self._stored_events(data, 0):
                self.events += len(stored.times)
                for number, group in enumerate(stored.groups):
                    cls = decoder.type_named(group.group.name)
                    if cls is not None:
                        attributes = frozenset().union(*(each for root, each in names.items() if issubclass(cls, root)))
                        yield _excerpt(decoder, cls, stored, number, attributes, self.lost > lost)
                lost = self.lost

    def _excerpts_of_frames(self, wanted: tuple[type[Event], ...]) -> Iterator["Excerpt"]:
        """Yield the same of an older file, with whole events."""
        lost = 0
        events = iter(self)
        while run := list(islice(events, RUN)):
            for cls in dict.fromkeys(type(recorded.event) for recorded in run):
                if issubclass(cls, wanted):
                    own = [recorded for recorded in run if type(recorded.event) is cls]
                    times = [recorded.at_us for recorded in own]
                    yield Excerpt(cls, times, [recorded.event for recorded in own], self.lost > lost)
            lost = self.lost

    @contextmanager
    def _open(self) -> Iterator[FileBytes]:
        with open(self.path, "rb", buffering=0) as file:
            yield FileBytes(file, self.path)

    def _batches(self, time_us: int | None) -> Iterator[list[Recorded]]:
        """Yield the events of a recording, or those from a time on, some at a time."""
        self.events, self.lost, self.problems, self.damage = 0, 0, Reasons(), []
        with self._open() as data:
            form = find_format(data) or BLOCKS
            decoder = EventDecoder(self.types, Statements(data).named)
            self.unread = decoder.unread
            if isinstance(form, FrameFormat):
                yield from self._read_frames(data, form, decoder, time_us)
            else:
                yield from self._read_blocks(data, decoder, time_us)

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _read_blocks(self, data: Octets, decoder: EventDecoder, time_us: int | None) -> Iterator[list[Recorded]]:
        start = 0 if time_us is None else find_block(data, time_us)
        for stored in self._stored_events(data, start):
            rejected = decoder.rejected
            decoded = decode_block(decoder, stored)
            is_clean = not stored.lost and decoder.rejected == rejected and _are_times(stored.times)
            made: map[Recorded] = map(Recorded, stored.times, decoded)  # type: ignore[arg-type]
            found = list(made) if is_clean else self._accept(stored.times, decoded)
            if time_us is not None:
                reached = next((row for row, each in enumerate(found) if each.at_us >= time_us), None)
                if reached is None:
                    continue
                found, time_us = found[reached:], None
            self.events += len(found)
            yield found

    def _stored_events(self, data: Octets, start: int) -> Iterator[StoredEvents]:
        """Yield the events of the blocks from a position on; damage is noted, with the number of events lost by it."""
        expected: int | None = None if start else 0
        gap: Gap | None = None
        for found in events_in(data, start):
            if isinstance(found, Gap):
                gap = found
                continue
            head, at = found.block.head, found.block.start
            lost = None if expected is None else max(head.before - expected, 0)
            if gap is not None:
                self._note_gap(gap, lost, len(data))
            elif lost:
                self._note(at, f"{lost:,} events lost before it", lost)
            gap, expected = None, head.before + head.events
            if found.stored.is_damaged:
                what = "truncated" if found.block.end > len(data) else "damaged"
                self._note(at, f"{found.stored.lost:,} of {head.events:,} events lost", found.stored.lost, what)
            if head.events:
                yield found.stored
        if gap is not None:
            self._note_gap(gap, None, len(data))

    def _note_gap(self, gap: Gap, lost: int | None, size: int) -> None:
        events = "" if lost is None else f", {lost:,} events lost"
        what = "truncated" if gap.end == size else "damaged"
        self._note(gap.start, f"{gap.end - gap.start} bytes skipped{events}", 1 if lost is None else lost, what)

    def _note(self, at: int, cost: str, lost: int, what: str = "damaged") -> None:
        self.damage.append(f"{self.path}: {what} at byte {at}: {cost}")
        self.lost += lost

    def _accept(self, times: Sequence[int], found: "list[Event | Rejected | None]") -> list[Recorded]:
        """Return the events among what was decoded, with their times; the others are counted by reason."""
        events = []
        for at_us, each in zip(times, found, strict=True):
            if isinstance(each, Rejected) or not FIRST_US <= at_us <= LAST_US:
                self.problems[each.reason if isinstance(each, Rejected) else "not a time of recording"] += 1
            elif each is not None:
                events.append(Recorded(at_us, each))
        return events

    # -- frames of older files -----------------------------------------------------------------------------------------

    def _read_frames(
        self, data: Octets, form: FrameFormat, decoder: EventDecoder, time_us: int | None
    ) -> Iterator[list[Recorded]]:
        for found in self._frames(data, form, decoder, time_us):
            if isinstance(found, Gap):
                self._note_gap(found, None, len(data))
            else:
                decoded = decoder.decode(found.packet)
                if isinstance(decoded, Recorded):
                    self.events += 1
                    yield [decoded]
                elif isinstance(decoded, Rejected):
                    self.problems[decoded.reason] += 1

    def _frames(
        self, data: Octets, form: FrameFormat, decoder: EventDecoder, time_us: int | None
    ) -> Iterator[Frame | Gap]:
        if time_us is None:
            return frames_in(data, form)
        index = self.index()
        place = index.find(time_us)
        for packet in index.units_before(place.offset):
            decoder.decode(packet)
        return frames_from(data, form, place, time_us)


def _excerpt(
    decoder: EventDecoder, cls: type[Event], stored: StoredEvents, number: int, wanted: frozenset[str], has_gap: bool
) -> "Excerpt":
    """Some attributes of the events of a group of a block."""
    each = stored.groups[number]
    group, rows, rejected = each.group, each.rows, decoder.rejected
    array = each.array if each.is_whole else b""
    found = decoder.decode_some(group.name, group.units, len(rows), array, each.take_maps, wanted)
    times: Sequence[int] = stored.times
    if len(stored.groups) > 1 or not each.is_whole:
        places = stored.places(number)
        times = list(map(times.__getitem__, places if each.is_whole else map(places.__getitem__, rows)))
    if decoder.rejected == rejected and _are_times(times):
        return Excerpt(cls, times, found, has_gap)
    good = [
        (at, one)
        for at, one in zip(times, found, strict=True)
        if not isinstance(one, Rejected) and FIRST_US <= at <= LAST_US
    ]
    return Excerpt(cls, [at for at, _ in good], [one for _, one in good], True)


def _are_times(times: Sequence[int]) -> bool:
    return not times or (min(times) >= FIRST_US and max(times) <= LAST_US)


def decode_block(decoder: EventDecoder, stored: StoredEvents) -> "list[Event | Rejected | None]":
    """Return the events of a block in their order, the reasons why some are none, and None for those that are lost."""
    parts = [_decode_group(decoder, each) for each in stored.groups]
    if len(parts) == 1:
        return parts[0]
    rest = [iter(part) for part in parts]
    return list(map(next, map(rest.__getitem__, stored.kinds)))


def _decode_group(decoder: EventDecoder, stored: StoredGroup) -> "list[Event | Rejected | None]":
    group = stored.group
    if stored.is_whole:
        return decoder.decode_all(group.name, group.units, group.count, stored.array, stored.take_maps)
    found: list[Event | Rejected | None] = [None] * group.count
    left = decoder.decode_all(group.name, group.units, len(stored.rows), b"", stored.take_maps)
    for row, each in zip(stored.rows, left, strict=True):
        found[row] = each
    return found


class Statements:
    """State: what a file states about its types; looked for when a type is not known, by one pass over directories."""

    def __init__(self, data: Octets) -> None:
        self._data = data
        self._found: dict[str, list[bytes]] | None = None

    def named(self, name: str) -> Sequence[bytes]:
        """Return the statements of a type, the oldest first."""
        if self._found is None:
            self._found = {}
            for block in blocks_in(self._data) if find_format(self._data) is BLOCKS else ():
                for group in () if isinstance(block, Gap) else block.groups:
                    if group.statement:
                        self._found.setdefault(group.name, []).append(group.statement)
        return self._found.get(name, ())


def read_recording(path: str | os.PathLike[str], types: Iterable[type] | type | None = None) -> Recording:
    """Open a recording; RecordingError if the file is none.

    `types` is a type or several. Events that are of none of them or below one (default: all types) are counted in
    `problems` and skipped. Of a type that the program has not declared, they have a class that is generated from what
    the recording states about it, below the program's own classes; older recordings state nothing, and such events are
    skipped.
    """
    recording = Recording(Path(path), (types,) if isinstance(types, type) else types)
    try:
        with recording._open() as data:
            found = find_format(data)
    except OSError as problem:
        raise RecordingError(f"cannot read {path}: {problem.strerror or problem}") from None
    if found is None:
        raise RecordingError(f"{path} is not a recording: it does not begin with {HEADER!r}")
    return recording


def replay(
    recording: Recording | str | os.PathLike[str],
    publish: Callable[[Event], object],
    subscription: Wanted[Any] | str | None = None,
    *,
    speed: float | None = None,
    bus: Bus | None = None,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Call `publish` with the events of a recording that match a subscription (default: all); returns how many.

    Parts of the file that cannot be read are skipped and listed in the recording's `problems`. Values that the classes
    have no attribute for are counted in its `unread`, and logged at the end.

    Args:
        recording: What `read_recording` returned, or the path of a recording.
        publish: Is called with each event, such as `bus.publish`.
        subscription: Which events, in any form that `Bus.subscribe` takes.
        speed: 1.0 keeps the original intervals, 2.0 is twice as fast; None is as fast as possible.
        bus: Keep the intervals in the time of this bus, as a program in the simulator must.
        sleep: Replaces `time.sleep`; it may return early.
        clock: Replaces `time.monotonic`.

    Raises:
        ValueError: `speed` is not positive.
    """
    if speed is not None and speed <= 0:
        raise ValueError(f"speed must be more than 0, not {speed}")
    if bus is not None:
        sleep, clock = bus.sleep, lambda: bus.time_ns() / 1e9
    wanted = as_subscription(Event if subscription is None else subscription, {} if bus is None else bus.types)
    recording = recording if isinstance(recording, Recording) else read_recording(recording)
    began, first, count = clock(), None, 0
    for recorded in recording:
        if not wanted.matches(recorded.event):
            continue
        if speed is not None:
            first = recorded.at_us if first is None else first
            ahead = (recorded.at_us - first) / 1e6 / speed - (clock() - began)
            if ahead > 0:
                sleep(ahead)
        publish(recorded.event)
        count += 1
    for line in recording.unread.lines():
        log().warning("%s: %s", recording.path, line)
    return count
