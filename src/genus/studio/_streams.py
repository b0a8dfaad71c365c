"""Server-sent events: the tables, events by a subscription or points of a plot, and the timeline of a CAN bus.

Each stream of a page holds no more than one message: what the page has not taken yet is replaced, thinned out or
counted, never queued.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool

from genus.filters.types import Mismatch
from genus.studio._feed import ALIVE_S, Feed, Turn
from genus.studio._figures import cut
from genus.studio._figures import encode as _encode
from genus.studio._plot import PlotStream
from genus.studio._questions import Asked, event_json
from genus.studio._source import TimelineSource
from genus.studio._taps import Seen, Taps

RETRY = b"retry: 1000\n\n"
"""A page connects again after a second."""
BATCH, FIRST_BATCH = 100, 500
"""Most events in a message; the first one has as many of the past as a page keeps."""
TIMELINE_S = 0.1
EXPLAINED_S = 0.02
"""How long a message may take to say why events do not match: a long subscription takes long for each."""


def message(kind: bytes, data: bytes) -> bytes:
    """One server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (kind, data)


class Ticker:
    """State: runs the turns, and wakes all streams after each; belongs to the loop of the server."""

    def __init__(self, feed: Feed, taps: Taps) -> None:
        self.feed, self._taps = feed, taps
        self._turned = asyncio.Event()
        self._messages: dict[tuple[int, tuple[str, ...]], bytes] = {}
        self._has_joined = asyncio.Event()
        self._problem = ""
        self.is_closed = False

    async def run(self) -> None:
        """Take turns until it is closed."""
        loop = asyncio.get_running_loop()
        while not self.is_closed:
            self._try_turn()
            self._has_joined.clear()
            due = loop.time() + self.feed.pause_s
            try:
                await asyncio.wait_for(self._has_joined.wait(), due - loop.time())
            except TimeoutError:
                self.feed.note_lateness(loop.time() - due)

    def _try_turn(self) -> None:
        """Take a turn; what goes wrong in it is logged once, and the next one is taken."""
        try:
            self.take_turn()
            self._problem = ""
        except Exception as problem:
            if self._problem != (text := repr(problem)):
                logging.getLogger("genus.studio").exception("Studio could not gather what changed")
            self._problem = text

    def take_turn(self) -> None:
        """Gather once, and wake the streams."""
        self._taps.turn(wants_last=self.feed.is_viewed("types"))
        self.feed.advance()
        self._messages.clear()
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def wait(self, seconds: float = ALIVE_S) -> None:
        """Wait for the next turn, for so many seconds at most."""
        turned = self._turned
        try:
            await asyncio.wait_for(turned.wait(), seconds)
        except TimeoutError:
            return

    def close(self) -> None:
        self.is_closed = True
        self._has_joined.set()
        self._turned.set()

    def join(self, viewer: object, tables: Collection[str] = ()) -> None:
        """A stream begins; turns come quickly as long as there is one."""
        self.feed.join(viewer, tables)
        self._has_joined.set()

    # -- tables ------------------------------------------------------------------------------------------------------

    async def tables(self, names: tuple[str, ...]) -> AsyncIterator[bytes]:
        viewer = object()
        self.join(viewer, names)
        self.feed.gather(names)
        try:
            yield RETRY
            seen = self.feed.turn.number
            yield self._snapshot(names)
            loop = asyncio.get_running_loop()
            heard_at = loop.time()
            while not self.is_closed:
                await self.wait()
                due = self._due(names, seen)
                seen = self.feed.turn.number
                if due or loop.time() - heard_at >= ALIVE_S:
                    heard_at = loop.time()
                    yield due or message(b"change", b'{"seq":%d,"at":%d}' % (seen, self.feed.turn.at_ms))
        finally:
            self.feed.leave(viewer)

    def _snapshot(self, names: tuple[str, ...]) -> bytes:
        turn = self.feed.turn
        return message(
            b"snapshot", b'{"seq":%d,"at":%d,"tables":%s}' % (turn.number, turn.at_ms, self.feed.snapshot(names))
        )

    def _due(self, names: tuple[str, ...], seen: int) -> bytes:
        """Return what a page that has seen a turn is to get now: the changes since then, or all if they are gone."""
        if seen == self.feed.turn.number:
            return b""
        turns = self.feed.turns
        if turns[0].number > seen + 1:
            return self._snapshot(names)
        return b"".join(self._change(turn, names) for turn in turns if turn.number > seen)

    def _change(self, turn: Turn, names: tuple[str, ...]) -> bytes:
        """Return the message of a turn, made once for all pages that look at the same tables."""
        key = turn.number, names
        made = self._messages.get(key)
        if made is None:
            made = self._messages[key] = _change_message(turn, names)
        return made


def _change_message(turn: Turn, names: tuple[str, ...]) -> bytes:
    cells = [b'"%s":%s' % (name.encode(), turn.cells[name]) for name in names if name in turn.cells]
    gone = [b'"%s":%s' % (name.encode(), turn.gone[name]) for name in names if name in turn.gone]
    if not cells and not gone and not turn.is_beat:
        return b""
    parts = turn.number, turn.at_ms, b",".join(cells), b",".join(gone), b"true" if turn.is_beat else b"false"
    return message(b"change", b'{"seq":%d,"at":%d,"set":{%s},"gone":{%s},"beat":%s}' % parts)


# -- events ------------------------------------------------------------------------------------------------------------


class EventStream:
    """State: the events that match a subscription, until the page takes them."""

    def __init__(self, asked: Asked, *, others: bool) -> None:
        self._asked, self._others, self._text = asked, others, cut(str(asked.subscription))
        self._waiting: deque[tuple[Seen, bool]] = deque(maxlen=FIRST_BATCH)
        self._matched = self._unmatched = self._unread = self._shown = 0

    def take(self, events: Sequence[Seen], skipped: int) -> None:
        """Choose among the events of a turn."""
        self._unread += skipped
        for seen in events:
            if is_match := self._asked.is_match(seen):
                self._matched += 1
            else:
                self._unmatched += 1
            if is_match or self._others:
                self._waiting.append((seen, is_match))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def data(self) -> dict[str, Any]:
        """Return what waits, as a message; after it, no event waits, so each that matched was shown or is not."""
        waiting, self._waiting = self._waiting, deque(maxlen=BATCH)
        self._shown += sum(is_match for _, is_match in waiting)
        until = time.monotonic() + EXPLAINED_S
        return {
            "events": [event_json(each, None if is_match else self._why(each, until)) for each, is_match in waiting],
            "seen": self._matched + self._unmatched + self._unread,
            "matched": self._matched,
            "unmatched": self._unmatched,
            "unread": self._unread,
            "shown": self._shown,
            "unshown": self._matched - self._shown,
        }

    def _why(self, seen: Seen, until: float) -> tuple[Mismatch, ...]:
        """Why an event does not match; never empty, as that would mean that it does."""
        text = self._text
        if (asked := self._asked.on(seen.source)) is None:
            return (Mismatch("type", text, "false", f"{seen.source} has no such type"),)
        if time.monotonic() > until:
            return (Mismatch("where", text, "unknown", "not looked into: it would take too long"),)
        try:
            found = asked.why_not(seen.event)
        except Exception:  # the same value as in the test
            found = ()
        return found or (Mismatch("where", text, "unknown", "a value is not of its type"),)


async def followed(
    ticker: Ticker,
    taps: Taps,
    names: Collection[str],
    stream: EventStream | PlotStream,
    kind: bytes,
    past: Callable[[Sequence[Seen]], Sequence[Seen]],
) -> AsyncIterator[bytes]:
    """The messages of a stream of events or points, at most one each turn; `past` chooses of those that are kept."""
    stream.take(past(taps.kept(names)), 0)
    end = taps.follow(names, stream.take)
    ticker.join(stream)
    try:
        yield RETRY
        loop = asyncio.get_running_loop()
        heard_at = -ALIVE_S
        while not ticker.is_closed:
            if not stream.is_empty or loop.time() - heard_at >= ALIVE_S:
                heard_at = loop.time()
                yield message(kind, _encode({"at": ticker.feed.turn.at_ms, **stream.data()}))
            await ticker.wait()
    finally:
        ticker.feed.leave(stream)
        end()


async def timelines(ticker: Ticker, source: TimelineSource, span_us: float) -> AsyncIterator[bytes]:
    """Yield the last stretch of a CAN bus, ten times a second."""
    yield RETRY
    loop = asyncio.get_running_loop()
    while not ticker.is_closed:
        began = loop.time()
        drawn = await run_in_threadpool(timeline_json, source, None, span_us, ticker.feed.turn.at_ms)
        yield message(b"timeline", _encode(drawn))
        await asyncio.sleep(max(TIMELINE_S, 10 * (loop.time() - began)))


def timeline_json(source: TimelineSource, start_us: float | None, span_us: float, at_ms: int) -> dict[str, Any]:
    """Return a stretch of a CAN bus as the page draws it."""
    found = source.timeline(start_us, span_us)
    return {
        "at": at_ms,
        "start_us": found.start_us,
        "end_us": found.end_us,
        "load": found.load,
        "frames": [list(frame) for frame in found.frames],
        "slots": [list(slot) for slot in found.slots],
    }
