"""A trace of a simulated CAN bus as a source: its timeline, with a time that is played, stopped and set."""

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from genus.can import Passage, ProtocolEtag, Trace
from genus.catalog import Catalog
from genus.errors import BusError
from genus.studio._rows import ChannelRow, NodeRow, Row, SourceRow, State, Tables
from genus.studio._source import FrameSpan, Timeline
from genus.studio._texts import three_digits

SECOND_NS, MINUTE = 1_000_000_000, 60
SLOWEST, FASTEST = 1e-6, 1e3
"""Limits of the speed: a millisecond of a bus may be looked at for minutes."""


class TraceSource:
    """State: a trace, and the time that is shown of it.

    Args:
        path: A file that `genus can sim --trace` wrote.
        catalog: A catalog file that names the channels; without it they have their event tags.
        name: The name of the source.
        clock: Seconds of a clock that only goes on.

    Raises:
        RecordingError: The file cannot be read, or is no trace.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        catalog: Path | None = None,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._path, self._clock = Path(path), clock
        self._trace = Trace.load_file(path)
        self._passages = sorted(self._trace.passages, key=lambda passage: passage.end_ns)
        self._ends = [passage.end_ns for passage in self._passages]
        self._first_ns, self._last_ns = self._trace.first_ns, self._trace.span_ns
        self._catalog = None if catalog is None else Catalog.load(catalog)
        self._names = {etag.value: etag.name.replace("_", " ").lower() for etag in ProtocolEtag}
        """What the frames of each event tag are."""
        self._by_channel: dict[tuple[str, str], list[int]] = {}
        """When the frames of each channel and node ended."""
        for passage in self._passages:
            if passage.outcome.is_good:
                key = self._channel(passage), _node(passage)
                self._by_channel.setdefault(key, []).append(passage.end_ns)
        self._speed, self._is_playing, self._waits = 1.0, False, True
        self._position_ns, self._since = float(self._first_ns), clock()

    # -- time --------------------------------------------------------------------------------------------------------

    def looked_at(self) -> None:
        """Begin with the first page."""
        if self._waits:
            self.play()

    def play(self) -> None:
        """Go on; from the beginning if it has ended."""
        at_ns = self._now_ns()
        self._set(float(self._first_ns) if at_ns >= self._last_ns else at_ns)
        self._is_playing, self._waits = True, False

    def pause(self) -> None:
        """Stop."""
        self._set(self._now_ns())
        self._is_playing = self._waits = False

    def set_speed(self, speed: float) -> None:
        """Let time pass so many times as fast as in reality; BusError if that is none, or beyond the limits."""
        if not SLOWEST <= speed <= FASTEST:
            raise BusError(f"a trace is played at {SLOWEST:g} to {FASTEST:g} times its speed, not {speed:g}")
        self._set(self._now_ns())
        self._speed = speed

    def seek(self, time_ms: float) -> None:
        """Go on from a time; one outside of the trace means the nearer end."""
        self._set(min(max(time_ms * 1e6, float(self._first_ns)), float(self._last_ns)))
        self._waits = False

    def _set(self, position_ns: float) -> None:
        self._position_ns, self._since = position_ns, self._clock()

    def _now_ns(self) -> float:
        passed = (self._clock() - self._since) * self._speed * 1e9 if self._is_playing else 0.0
        return min(self._position_ns + passed, float(self._last_ns))

    def _state(self, at_ns: float) -> State:
        if at_ns >= self._last_ns:
            return "ended"
        return "playing" if self._is_playing else "paused"

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        """The present rows: what was on the bus until the time that is shown."""
        at_ns = round(self._now_ns())
        found: dict[str, dict[str, Row]] = {"sources": {self.name: self._row(at_ns)}}
        if "channels" in wanted:
            rows = (self._channel_row(channel, node, ends, at_ns) for (channel, node), ends in self._by_channel.items())
            found["channels"] = {f"{self.name}|{row.type}|{row.publisher}": row for row in rows if row.events}
        if "nodes" in wanted:
            found["nodes"] = {f"{self.name}|{name}": row for name, row in self._nodes(at_ns).items()}
        return found

    def _row(self, at_ns: int) -> SourceRow:
        seen = bisect_right(self._ends, at_ns)
        recent = seen - bisect_right(self._ends, at_ns - SECOND_NS)
        second = self._passages[seen - recent : seen]
        state = self._state(at_ns)
        broken = sum(not passage.outcome.is_good for passage in second)
        texts = [self._trace.header.title, f"{broken} corrupted in the last second" if broken else ""]
        texts.append(f"{self._trace.unreadable:,} lines skipped" if self._trace.unreadable else "")
        return SourceRow(
            kind="can",
            address=str(self._path),
            state=state,
            note="; ".join(text for text in texts if text),
            time_ms=at_ns / 1e6,
            events=seen,
            rate=float(recent) if state == "playing" else 0.0,
            nodes=len({_node(passage) for passage in second}) or None,
            load=three_digits(sum(passage.end_ns - passage.start_ns for passage in second) / SECOND_NS),
            begin_ms=self._first_ns / 1e6,
            end_ms=self._last_ns / 1e6,
            speed=self._speed,
            can_seek=True,
            has_events=False,
            has_timeline=True,
        )

    def _channel_row(self, channel: str, node: str, ends: Sequence[int], at_ns: int) -> ChannelRow:
        marks = [bisect_right(ends, at_ns - second * SECOND_NS) for second in range(MINUTE, -1, -1)]
        rates = tuple(float(after - before) for before, after in pairwise(marks))
        rate = rates[-1] if self._is_playing else 0.0
        return ChannelRow(source=self.name, type=channel, publisher=node, events=marks[-1], rate=rate, rates=rates)

    def _nodes(self, at_ns: int) -> dict[str, NodeRow]:
        heard: dict[str, int] = {}
        for (_, node), ends in self._by_channel.items():
            if place := bisect_right(ends, at_ns):
                heard[node] = max(heard.get(node, 0), ends[place - 1])
        return {
            node: NodeRow(source=self.name, name=node, number=int(node.split()[-1]), heard_ms=last / 1e6)
            for node, last in heard.items()
        }

    def types(self) -> Collection[type]:
        """None: a trace has frames."""
        return ()

    def counts(self) -> Mapping[str, int]:
        """Of no types."""
        return {}

    def close(self) -> None:
        """Nothing to release."""

    # -- the timeline ------------------------------------------------------------------------------------------------

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        """The frames from a time on; of the last `span_us` before the time that is shown without one."""
        now_us = self._now_ns() / 1000
        first_us = max(now_us - span_us, 0.0) if start_us is None else start_us
        start_ns, end_ns = round(first_us * 1000), round((first_us + span_us) * 1000)
        begin = bisect_right(self._ends, start_ns)
        inside = [one for one in self._passages[begin : self._after(end_ns)] if one.start_ns < end_ns]
        busy = sum(min(one.end_ns, end_ns) - max(one.start_ns, start_ns) for one in inside)
        load = busy / (end_ns - start_ns) if end_ns > start_ns else 0.0
        return Timeline(first_us, first_us + span_us, list(map(self._frame, inside)), (), load)

    def _after(self, end_ns: int) -> int:
        """Behind the frames that may begin before a time: on each part of the bus, one of them may end after it."""
        return bisect_right(self._ends, end_ns) + 2

    def _frame(self, passage: Passage) -> FrameSpan:
        return FrameSpan(
            start_us=passage.start_ns / 1000,
            end_us=passage.end_ns / 1000,
            node=_node(passage),
            channel=self._channel(passage),
            kind=passage.traffic_class.value,
            identifier=passage.id,
            ok=passage.outcome.is_good,
            priority=passage.frame.priority,
        )

    def _channel(self, passage: Passage) -> str:
        etag = passage.frame.etag
        if etag not in self._names:
            name = None if self._catalog is None else self._catalog.type_of(etag)
            self._names[etag] = name or f"event tag {etag:#06x}"
        return self._names[etag]


def _node(passage: Passage) -> str:
    return f"node {passage.senders[0]}"
