"""Values as texts and numbers that JSON can carry, rates of counters, and times of events."""

import json
import math
import struct
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import islice
from reprlib import Repr
from typing import Any, NamedTuple

import msgspec

from genus._spread import Spread
from genus.model import Event, attributes, micros_of_time, name_of
from genus.model.types import FloatType

MAX_LENGTH = 200
"""Longest text of a value, in characters."""

_FLOAT32 = struct.Struct("<f")
_encode = msgspec.json.Encoder().encode
_short = Repr()
_short.maxlong = _short.maxstring = _short.maxother = 2 * MAX_LENGTH


def value_text(value: object) -> str:
    """Return a value as a person would write it, and not as Python would; long ones are cut.

    >>> value_text(2**63), value_text(float("nan")), value_text("<b>"), value_text(b"ab"), value_text(True)
    ('9223372036854775808', 'nan', '<b>', '61 62', 'true')
    >>> value_text([timedelta(seconds=2), (1, None)]), value_text({"lane": 2.50})
    ('2 s, 1, none', 'lane: 2.5')
    """
    try:
        return cut(_text(value))
    except Exception as problem:  # of a class's own code, or of an integer with thousands of digits
        return cut(f"<{type(value).__name__} that cannot be shown: {type(problem).__name__}>")


def _text(value: object) -> str:
    match value:
        case Enum():
            return _text(value.value)
        case str():
            return value
        case None | bool():
            return str(value).lower()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value.total_seconds():.10g} s"
        case float():
            return f"{value:.10g}"
        case bytes() | bytearray():
            return bytes(value[: MAX_LENGTH + 1]).hex(" ")
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(_text, islice(value, MAX_LENGTH)))
        case Mapping():
            return ", ".join(f"{_text(key)}: {_text(each)}" for key, each in islice(value.items(), MAX_LENGTH))
    return _short.repr(value)


def float32(value: float) -> float:
    """Return the number with the fewest digits that is the same float of 32 bits.

    >>> float32(13.797471714019775), float32(0.1), float32(1e300)
    (13.797472, 0.1, 1e+300)
    """
    try:
        stored = _FLOAT32.pack(value)
    except OverflowError:  # it is none
        return value
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    return next((float(text) for text in texts if _FLOAT32.pack(float(text)) == stored), value)


@cache
def _floats32(cls: type[Event]) -> frozenset[str]:
    """Return the attributes of a class that are floats of 32 bits."""
    return frozenset(each.name for each in attributes(cls) if each.type == FloatType(32))


def cut(text: str) -> str:
    """A text that is not too long, and that JSON can carry: of half a surrogate pair the number is shown.

    >>> cut("a" * 300)[190:], cut("\\ud800")
    ('aaaaaaaaaa…', '\\\\ud800')
    """
    shown = text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"
    return shown if shown.isascii() else shown.encode("utf-8", "backslashreplace").decode()


def encode(content: Any) -> bytes:
    """Something as JSON.

    Names and texts of a program may have what `msgspec` refuses: half a surrogate pair, or an integer of more than 64
    bits. They are rare, and take longer.

    >>> encode({"speed": float("nan"), "code": 2**64, "name": "\\ud800"})
    b'{"speed": null, "code": 18446744073709551616, "name": "\\\\ud800"}'
    """
    try:
        return _encode(content)
    except (UnicodeEncodeError, OverflowError):
        text = json.dumps(msgspec.to_builtins(content, builtin_types=(bytes, datetime)), default=str)
        return json.dumps(json.loads(text, parse_constant=lambda _: None)).encode()


def number_of(value: object) -> float | None:
    """Return a value as a number to draw; None if it is none, or not finite.

    >>> number_of(True), number_of(3), number_of(float("inf")), number_of("3")
    (1.0, 3.0, None, None)
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not isinstance(value, bool | int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def time_us_of(event: Event) -> int | None:
    """The time that an event carries, in microseconds since 1970; None if it has none, or one without a time zone."""
    try:
        return None if event.time is None else micros_of_time(event.time)
    except TypeError:
        return None


def values_of(event: Event) -> dict[str, Any]:
    """Return the attributes that an event carries, by name; floats of 32 bits have no more digits than they need."""
    found = {name: getattr(event, name) for name in event.__struct_fields__}
    short = {name: float32(found[name]) for name in _floats32(type(event)) if isinstance(found.get(name), float)}
    return {name: value for name, value in (found | short).items() if value is not None}


def event_text(event: Event, names: Collection[str] | None = None) -> str:
    """What an event says, as one line: names, values and units of attributes that it carries, all or some of them."""
    units, values = _units(type(event)), values_of(event)
    said = values if names is None else {name: values[name] for name in names if name in values}
    parts = (f"{name} {value_text(value)} {units.get(name) or ''}".rstrip() for name, value in said.items())
    return cut(", ".join(parts))


@cache
def _units(cls: type[Event]) -> dict[str, str | None]:
    return {each.name: each.unit for each in attributes(cls)}


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def three_digits(number: float) -> float:
    """Return a number to three digits: what a person reads, and no change where there is none to see.

    >>> three_digits(1234.5), three_digits(0.00012345)
    (1230.0, 0.000123)
    """
    return float(f"{number:.3g}")


SECONDS = 60
"""How many seconds a history has."""
KEEP_S = 300.0
"""After this time without a note, a key is forgotten."""
_WINDOW_S = 1.0
_STEP_S = 0.2
MAX_SOURCES = 50
"""A type with more values of `source` than this is not told apart by them."""
MAX_METERS = 2000
OTHER_CLOCK_US = 3_600_000_000.0
"""An event whose `time` is off by an hour has it from another clock, such as a simulation's: no latency is known."""
OTHERS = "(others)"


class Rates:
    """The rate of counters, by key: over the last second, and for each of the last 60 seconds.

    Time is an argument, in seconds of a clock of the caller's; a recording's rates can so be of its own time. If time
    or a counter goes back, the counter's rate starts anew and its history continues. A key that is not noted for five
    minutes is forgotten.

        >>> rates = Rates()
        >>> for second in range(4):
        ...     rates.note("Loop", 10 * second, float(second))
        >>> rates.rate("Loop"), rates.history("Loop")
        (10.0, (10.0, 10.0, 10.0))
        >>> rates.rate("never noted"), rates.history("never noted")
        (0.0, ())
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}
        self._swept_s: float | None = None

    def note(self, key: str, count: int, now_s: float) -> None:
        """Tell the value of a counter, the total so far, at a time."""
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(count, now_s)
        else:
            series.note(count, now_s)
        self._sweep(now_s)

    def rate(self, key: str) -> float:
        """Counts a second, over the last second before the last note; 0 for an unknown key."""
        series = self._series.get(key)
        return 0.0 if series is None else series.rate()

    def history(self, key: str) -> tuple[float, ...]:
        """Counts in each of the last 60 whole seconds, the oldest first; fewer if it was noted for a shorter time."""
        series = self._series.get(key)
        return () if series is None else tuple(series.history)

    def restart(self) -> None:
        """Begin anew after a leap of time: the counters go on, what they gained meanwhile is in no rate."""
        for series in self._series.values():
            series.is_new = True

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def _sweep(self, now_s: float) -> None:
        if self._swept_s is not None and 0.0 <= now_s - self._swept_s < KEEP_S / 10:
            return
        self._swept_s = now_s
        old = [key for key, series in self._series.items() if now_s - series.last_s > KEEP_S]
        for key in old:
            del self._series[key]


class _Series:
    """The notes of one key."""

    __slots__ = ("base", "base_s", "history", "is_new", "last", "last_s", "second", "window")

    def __init__(self, count: int, now_s: float) -> None:
        self.history: deque[float] = deque(maxlen=SECONDS)
        self._start(count, now_s)

    def _start(self, count: int, now_s: float) -> None:
        self.window = deque([(now_s, count)])
        self.base, self.base_s, self.second = count, now_s, now_s // 1.0
        self.last, self.last_s, self.is_new = count, now_s, False

    def note(self, count: int, now_s: float) -> None:
        if self.is_new or count < self.last or now_s < self.last_s:
            self._start(count, now_s)
            return
        self.last, self.last_s = count, now_s
        window = self.window
        if now_s - window[-1][0] >= _STEP_S:
            window.append((now_s, count))
        while len(window) > 1 and window[1][0] <= now_s - _WINDOW_S:
            window.popleft()
        second = now_s // 1.0
        if second > self.second:
            self._end_seconds(second, count, now_s)

    def _end_seconds(self, second: float, count: int, now_s: float) -> None:
        """The seconds since the last end get an equal share each, of what was counted since then."""
        mean = float(f"{(count - self.base) / (now_s - self.base_s):.4g}")  # shorter in a message to a page
        self.history.extend([mean] * int(min(second - self.second, SECONDS)))
        self.base, self.base_s, self.second = count, now_s, second

    def rate(self) -> float:
        began_s, began = self.window[0]
        # At least half a second: a first event at once after the first note would be a rate of thousands.
        span_s = max(self.last_s - began_s, _WINDOW_S / 2)
        return (self.last - began) / span_s


class Times(NamedTuple):
    """What is known of the times of a channel."""

    jitter_ms: float | None = None
    latency_ms: float | None = None
    worst_latency_ms: float | None = None


class _Meter:
    """State: the times of one channel."""

    __slots__ = ("events", "intervals", "last_ns", "latencies_us")

    def __init__(self) -> None:
        self.events = 0
        self.intervals, self.latencies_us = Spread(), Spread()
        self.last_ns: int | None = None

    def add(self, at_ns: int, sent_us: int | None) -> None:
        self.events += 1
        if self.last_ns is not None:
            self.intervals.add(at_ns - self.last_ns)
        self.last_ns = at_ns
        took = OTHER_CLOCK_US if sent_us is None else at_ns / 1000 - sent_us
        if abs(took) < OTHER_CLOCK_US:
            self.latencies_us.add(took)

    def times(self) -> Times:
        jitter = three_digits(self.intervals.deviation / 1e6) if self.intervals.count else None
        latencies = self.latencies_us
        if not latencies.count:
            return Times(jitter)
        return Times(jitter, three_digits(latencies.mean / 1000), three_digits(latencies.most / 1000))


class Meters:
    """State: the meters of a bus, by type; also by the value of `source`, where there are few, if that is asked for."""

    def __init__(self, *, by_source: bool) -> None:
        self._by_source = by_source
        self._meters: dict[tuple[str, str], _Meter] = {}
        self._sources: dict[str, set[str]] = {}
        self._found: dict[tuple[type, object], _Meter] = {}

    def add(self, at_ns: int, event: Event) -> None:
        """An event arrived at a time."""
        given = type(event), event.source if self._by_source else None
        meter = self._found.get(given) or self._find(*given)
        meter.add(at_ns, time_us_of(event))

    def _find(self, cls: type, source: object) -> _Meter:
        """Return the meter of a class and a value of `source`; found again quickly for the next event."""
        key = name_of(cls), "" if source is None else cut(str(source))
        meter = self._meters.get(key) or self._new(key)
        if len(self._found) >= 2 * MAX_METERS:
            self._found.clear()
        self._found[cls, source] = meter
        return meter

    def skip(self, type: str, events: int) -> None:
        """There were more events of a type than could be looked at."""
        source = OTHERS if self._by_source else ""
        self._sources.setdefault(type, set()).add(source)
        self._meters.setdefault((type, source), _Meter()).events += events

    def interrupt(self) -> None:
        """Nothing is heard for a while: the next event of a channel has no interval to the one before it."""
        for meter in self._meters.values():
            meter.last_ns = None

    def _new(self, key: tuple[str, str]) -> _Meter:
        sources = self._sources.setdefault(key[0], set())
        if len(sources) >= MAX_SOURCES or len(self._meters) >= MAX_METERS:
            key = key[0], OTHERS
        sources.add(key[1])
        return self._meters.setdefault(key, _Meter())

    def by_type(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many events came, by type and source."""
        return {name: {one: self._meters[name, one].events for one in ones} for name, ones in self._sources.items()}

    def times(self, type: str, source: str) -> Times:
        meter = self._meters.get((type, source))
        return Times() if meter is None else meter.times()
