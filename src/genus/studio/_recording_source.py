"""A recording as a source: played on the page, with play, pause, seek and speed.

A thread plays it, another one makes the index that seeking needs. It begins when the first page looks, which would miss
the beginning otherwise. Counters go on over seeks; rates are in the time of the recording, and begin anew after a seek.
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from genus.bus.types import Recorded
from genus.errors import BusError, GenusError
from genus.filters import Subscription
from genus.model import Event, name_of, subtypes
from genus.studio._figures import Meters, Rates, counted, three_digits, time_us_of
from genus.studio._history import Piece
from genus.studio._plot import PlotSeries
from genus.studio._recording_sequence import DAMAGED, Playback, RecordingSequence, SequenceIndex
from genus.studio._source import Receive
from genus.studio._taps import Seen
from genus.studio.types import ChannelRow, Row, SourceRow, Tables
from genus.targets import python as python_target

BATCH = 500
"""Most events that are played before somebody else may look."""
YIELD_S = 0.0005
IDLE_S = 0.5
PATIENCE_S = 0.01
"""How long a page waits for the thread that plays: a stretch without events of known types may take it minutes."""
LONG_WAIT_S = 10.0
"""A note says so if the next event comes after a longer time."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ALL = ""


class _Closed(Exception):
    """The source was closed while the index was made."""


class RecordingSource:
    """State: a recording, or a landing folder of recordings, as it is played.

    Args:
        path: The file, or the folder.
        types: The event types, with those below them; without any, all that are declared.
        name: Its name on the page.
        plays: Whether it plays as soon as somebody looks; else it is paused until `play`.
        clock: Replaces `time.monotonic`.
        threaded: Whether threads make the index and play; else the index is made first, and `step` plays.

    Raises:
        RecordingError: There is no recording at the path, or it cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        types: Collection[type] = (),
        *,
        name: str,
        plays: bool = True,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
    ) -> None:
        self.name = name
        self._types = tuple(dict.fromkeys(cls for root in types or [Event] for cls in subtypes(root)))
        self._known = {name_of(cls) for cls in self._types}
        self._sequence = RecordingSequence(path, self._types if types else None)
        self._clock = clock
        self._playback = Playback(self._sequence.read)
        self._rates, self._meters = Rates(), Meters(by_source=True)
        self._before: dict[tuple[str, str], int] = {}
        """Events that were counted before the last leap, by type and `source`."""
        self._events = 0
        self.leaps = 0
        self._index: SequenceIndex | None = None
        self._indexed = 0.0
        self._problem = ""
        self._receivers: tuple[Receive, ...] = ()
        self._changed = threading.Condition(threading.RLock())
        """Guards all of this, and tells the thread that plays."""
        self._shown: dict[str, Mapping[str, Row]] = {}
        self._counted: Mapping[str, int] = {}
        self._type_rates: Mapping[str, float] = {}
        """Rows and counters as they were last seen."""
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self._is_waiting = plays
        """Whether it waits for a page to play."""
        if threaded:
            self._start()
        else:
            self._make_index()

    def _start(self) -> None:
        for work in (self._make_index, self._run):
            thread = threading.Thread(target=work, name=f"genus-studio {work.__name__[1:]} {self.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        """Return the present rows of tables; those of before while the thread that plays is busy."""
        if self._changed.acquire(timeout=PATIENCE_S):
            try:
                self._shown |= self._present(wanted)
            finally:
                self._changed.release()
        elif not self._shown:
            row = SourceRow(kind="recording", address=str(self._sequence.path), state="playing", note="is being read")
            return {"sources": {self.name: row}}
        return {table: rows for table, rows in self._shown.items() if table in wanted}

    def _present(self, wanted: Collection[str]) -> dict[str, Mapping[str, Row]]:
        with self._changed:
            position_us = self._playback.position_us(self._clock())
            counts = self._channel_counts()
            if position_us is not None:
                self._note_rates(counts, position_us / 1e6)
            found: dict[str, Mapping[str, Row]] = {"sources": {self.name: self._source_row(position_us)}}
            if "channels" in wanted:
                found["channels"] = {
                    self._key(*channel): self._channel_row(*channel, count) for channel, count in counts.items()
                }
        return found

    def types(self) -> Collection[type]:
        return self._types

    def counts(self) -> Mapping[str, int]:
        if self._changed.acquire(timeout=PATIENCE_S):
            try:
                found: Counter[str] = Counter()
                for (type_, _), count in self._channel_counts().items():
                    found[type_] += count
                self._counted = found
            finally:
                self._changed.release()
        return self._counted

    def rates_of(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        """How many events of each type there are in a second of the recording; those of before while it is busy."""
        if self._changed.acquire(timeout=PATIENCE_S):
            try:
                position_us = self._playback.position_us(self._clock())
                for name, count in counts.items() if position_us is not None else ():
                    self._rates.note(f"type {name}", count, (position_us or 0) / 1e6)
                self._type_rates = {name: self._rate(f"type {name}") for name in counts}
            finally:
                self._changed.release()
        return self._type_rates

    def tap(self, receive: Receive) -> Callable[[], None]:
        """Call a function with each event that is played; returns a function that ends it."""
        self._receivers = (*self._receivers, receive)

        def end() -> None:
            self._receivers = tuple(each for each in self._receivers if each is not receive)

        return end

    def stored_range(self, start_ms: float | None, end_ms: float | None) -> None:
        """All is read to plot any range."""

    def read_points(
        self, series: Sequence[PlotSeries], span_ms: tuple[float, float] | None
    ) -> Iterator[tuple[float, Piece]]:
        return RecordingSequence(self._sequence.path, None).read_points(series)

    def events_between(
        self, subscription: Subscription, start_ms: float, end_ms: float, most: int
    ) -> tuple[list[Seen], int]:
        is_match, found, total = python_target.compile(subscription), list[Seen](), 0
        start_us, end_us = 1000 * start_ms, 1000 * end_ms
        for number, recorded in enumerate(RecordingSequence(self._sequence.path, subscription.classes()).read(), 1):
            event, time_us = recorded.event, time_us_of(recorded.event)
            if start_us <= (recorded.at_us if time_us is None else time_us) <= end_us and is_match(event):
                total += 1
                if total <= most:
                    publisher = None if event.source is None else str(event.source)
                    found.append(Seen(-number, self.name, recorded.at_us / 1000, event, publisher))
        return found, total

    def close(self) -> None:
        self._is_closed = True
        if self._changed.acquire(timeout=PATIENCE_S):
            self._changed.notify_all()
            self._changed.release()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5)

    # -- playing -----------------------------------------------------------------------------------------------------

    def looked_at(self) -> None:
        """A page looks: play if that was waited for."""
        if self._is_waiting:  # asked first without the lock, which the thread that plays may hold for long
            with self._changed:
                if self._is_waiting:
                    self.play()

    def play(self) -> None:
        """Go on; from the beginning if it has ended."""
        with self._changed:
            self._is_waiting = False
            if self._playback.state in ("ended", "failed"):
                self._leap()
            self._problem = ""
            self._playback.play(self._clock())
            self._changed.notify_all()

    def pause(self) -> None:
        """Stop; one that waits for a page waits no more, and stays paused."""
        with self._changed:
            self._is_waiting = False
            self._playback.pause(self._clock())
            self._changed.notify_all()

    def set_speed(self, speed: float) -> None:
        with self._changed:
            self._playback.set_speed(speed, self._clock())
            self._changed.notify_all()

    def seek(self, time_ms: float) -> None:
        """Go on from a time, or from the beginning or the end if that is nearer; BusError while the index is made."""
        with self._changed:
            index = self._index
            if index is None:
                raise BusError(
                    f"{self._sequence.path} is being indexed, {self._indexed:.0%} done; seek when it is complete"
                )
            if time_ms != time_ms:
                raise BusError("a recording has no time NaN; give milliseconds since 1970")
            if index.start_us is None or index.end_us is None:
                raise BusError(f"{self._sequence.path} has no events to seek among")
            time_us = min(max(time_ms * 1000, index.start_us), index.end_us)
            self._leap()
            self._problem = ""
            self._playback.seek(round(time_us), self._clock())
            self._changed.notify_all()

    def step(self) -> float | None:
        """Play what is due; returns after how many seconds more is, None if nothing is."""
        with self._changed:
            now = self._clock()
            try:
                events = self._playback.take(now, BATCH)
            except (GenusError, OSError, ValueError) as problem:  # the file was removed or is empty now
                self._fail(problem)
                return None
            for recorded in events:
                self._receive(recorded)
            return self._playback.wait_s(self._clock())

    def _fail(self, problem: Exception) -> None:
        self._playback.fail()
        self._problem = f"{self._sequence.path} cannot be read: {problem}"

    def _receive(self, recorded: Recorded) -> None:
        event, at_ns = recorded.event, recorded.at_us * 1000
        self._events += 1
        self._meters.add(at_ns, event)
        for receive in self._receivers:
            receive(at_ns, event, None if event.source is None else str(event.source))

    def _leap(self) -> None:
        """Times begin anew; what was counted stays."""
        self.leaps += 1
        self._before = self._channel_counts()
        self._meters = Meters(by_source=True)
        self._rates.restart()

    # -- threads -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._changed:
            while not self._is_closed:
                try:
                    left = self.step()
                except Exception as problem:  # of a class's own code: it is shown, and the page goes on
                    _log().exception("%s cannot be played", self._sequence.path)
                    self._fail(problem)
                    left = None
                self._changed.wait(IDLE_S if left is None else min(max(left, YIELD_S), IDLE_S))

    def _make_index(self) -> None:
        try:
            index = self._sequence.index(self._tell_progress)
        except _Closed:
            return
        except (GenusError, OSError, ValueError) as problem:
            with self._changed:
                self._problem = f"{self._sequence.path} cannot be indexed: {problem}"
            return
        with self._changed:
            self._index = index

    def _tell_progress(self, share: float) -> None:
        self._indexed = share
        if self._is_closed:
            raise _Closed
        time.sleep(0)  # those who wait for Python's lock go first

    # -- rows --------------------------------------------------------------------------------------------------------

    def _channel_counts(self) -> dict[tuple[str, str], int]:
        found = dict(self._before)
        for type_, sources in self._meters.by_type().items():
            for source, count in sources.items():
                found[type_, source] = found.get((type_, source), 0) + count
        return found

    def _note_rates(self, counts: Mapping[tuple[str, str], int], now_s: float) -> None:
        self._rates.note(_ALL, self._events, now_s)
        for channel, count in counts.items():
            self._rates.note(self._key(*channel), count, now_s)

    def _key(self, type_: str, source: str) -> str:
        return f"{self.name}|{type_}|{source}"

    def _rate(self, key: str) -> float:
        return three_digits(self._rates.rate(key)) if self._playback.state == "playing" else 0.0

    def _channel_row(self, type_: str, source: str, count: int) -> ChannelRow:
        key, times = self._key(type_, source), self._meters.times(type_, source)
        return ChannelRow(
            source=self.name,
            type=type_,
            publisher=source,
            events=count,
            rate=self._rate(key),
            rates=self._rates.history(key),
            jitter_ms=times.jitter_ms,
            latency_ms=times.latency_ms,
            worst_latency_ms=times.worst_latency_ms,
        )

    def _source_row(self, position_us: int | None) -> SourceRow:
        index = self._index
        return SourceRow(
            kind="recording",
            address=str(self._sequence.path),
            state=self._playback.state,
            note="; ".join(self._notes()),
            time_ms=_ms(position_us if position_us is not None or index is None else index.start_us),
            events=self._events,
            rate=self._rate(_ALL),
            lost=self._sequence.rejected,
            begin_ms=None if index is None else _ms(index.start_us),
            end_ms=None if index is None else _ms(index.end_us),
            speed=self._playback.speed,
            can_seek=index is not None and index.events > 0,
        )

    def _notes(self) -> Iterator[str]:
        """Yield what a person should know."""
        if self._is_waiting:
            yield "waits for a page"
        if self._problem:
            yield self._problem
        elif self._index is None:
            yield f"indexing {self._indexed:.0%}"
        elif not self._index.events:
            yield "has no events"
        left = self._playback.wait_s(self._clock())
        if left is not None and left > LONG_WAIT_S and (due_us := self._playback.next_us) is not None:
            yield f"the next event is of {_EPOCH + timedelta(microseconds=due_us):%Y-%m-%d %H:%M:%S} UTC"
        if damaged := max(self._sequence.damaged, 0 if self._index is None else self._index.damaged):
            yield f"damaged in {counted(damaged, 'place')}"
        if self._index is not None and (unknown := sorted(self._index.types.keys() - self._known)):
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            yield f"types that are not known here: {', '.join(unknown[:3])}{more}"
        told = ("unknown type ", DAMAGED)
        reasons = [reason for reason, _ in self._sequence.reasons().most_common() if not reason.startswith(told)]
        if reasons:
            yield f"not read: {reasons[0]}"
        yield from self._sequence.refused[:1]


def _log() -> logging.Logger:
    return logging.getLogger("genus.studio")


def _ms(time_us: int | None) -> float | None:
    return None if time_us is None else time_us / 1000
