"""How well things are, found in the rows of all sources alike: fine only where something was seen and nothing is wrong.

Silence is found by counters of events that do not grow. A channel is silent if it has no events, or none for three of
its usual intervals, and three seconds at least. Its usual interval is its period, if a quality of service promises one,
or else the longest pause that it made lately, of which each event forgets 0.2 %. Events at random times make a pause of
three times the longest of many before it less than once in 100,000 events. Where the longest pause is more than three
times the mean one, events come irregularly or in bursts, and a minute at least must pass. Until ten pauses are known a
channel is fine for a minute after an event, and then not known to be. All this is in the time of the source: nothing
becomes silent while that stands still.

What is wrong now (`Problems`) is found by what is bad in itself and by counters that grow. A counter of losses is a
problem while it grows, and for ten seconds after that: what was lost an hour ago is in the tables, and not wrong now.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from genus.bus import BestEffort, Hard, parse_qos
from genus.errors import BusError
from genus.model import seconds
from genus.studio._figures import counted, cut
from genus.studio.types import (
    TABLES,
    ChannelRow,
    GatewayRow,
    Health,
    NodeRow,
    ProblemRow,
    Row,
    SourceRow,
    SubscriptionRow,
)

INTERVALS, LEAST_S = 3, 3.0
"""A channel is silent after so many intervals, and so many seconds at least."""
PAUSES, FRESH_S = 10, 60.0
"""Its interval is known after so many pauses; before that, and if they are irregular, it is fine for so many seconds
after an event."""
KEPT, MEAN_OF = 0.998, 100
"""The share of the longest pause that is left after an event, and how many pauses the mean is of, about."""
LEAP_S = 1.0
"""Time that moves by more than this, and than twice its speed, was set."""
FIRST_YEAR_MS = 366 * 86_400_000.0
"""Times before 1971 are counted from 0, and no dates."""
HEALTH_OF: Mapping[str, Health] = {"bad": "wrong", "warn": "degraded"}
PLAYED = frozenset({"world", "recording"})
HANDLERS = "its handlers are in another process, which does not tell what becomes of events"
UNKNOWN: Mapping[str, str] = {
    "gone": "it left or was lost: the network does not tell which",
    "starting": "it is starting",
    "closed": "its program closed it",
}
"""States of nodes that tell neither that they are fine nor that something is wrong."""


class _Pulse:
    """State: a counter of events, when it last grew, and its pauses."""

    __slots__ = ("events", "grew_at", "grew_ms", "is_left", "is_seen", "longest_s", "mean_s", "own_ms", "pauses")

    def __init__(self, at: float, wall_ms: float) -> None:
        self.events, self.is_seen = 0, False
        """Whether it grew while Studio looked."""
        self.is_left = False
        """Whether everybody left, and it did not grow since."""
        self.grew_at, self.grew_ms = at, wall_ms
        self.own_ms: float | None = None
        """When it last grew, in the source's time, to a second."""
        self.restart(at)

    def restart(self, at: float) -> None:
        """Time was set."""
        self.grew_at, self.pauses, self.longest_s, self.mean_s = at, 0, 0.0, 0.0

    def grow(self, events: int, at: float, wall_ms: float, own_ms: float | None) -> None:
        if self.is_seen:
            pause_s = at - self.grew_at
            self.pauses += 1
            self.longest_s = max(pause_s, self.longest_s * KEPT)
            self.mean_s += (pause_s - self.mean_s) / min(self.pauses, MEAN_OF)
        self.events, self.is_seen, self.grew_at, self.grew_ms = events, True, at, wall_ms
        self.is_left = False
        self.own_ms = None if own_ms is None else own_ms // 1000 * 1000.0

    def health(self, at: float, period_s: float | None) -> Health:
        """Return how it is at a time, if it promises a period or not."""
        if not self.events or self.is_left:
            return "silent"
        age_s = at - self.grew_at
        if period_s is not None:
            return "silent" if age_s > max(LEAST_S, INTERVALS * period_s) else "fine"
        if self.pauses < PAUSES:
            return "fine" if self.is_seen and age_s <= FRESH_S else "unknown"
        least_s = LEAST_S if self.longest_s <= INTERVALS * self.mean_s else FRESH_S
        return "silent" if age_s > max(least_s, INTERVALS * self.longest_s) else "fine"


class _Time(NamedTuple):
    """The time of a source when it was last looked at, and the time then."""

    row: SourceRow
    at: float
    now: float


class Judge:
    """State: since when everything is as it is, and the pulse of each source and channel."""

    def __init__(self) -> None:
        self._pulses: dict[str, dict[str, _Pulse]] = {}
        """By source, and by the key of the channel; that of the source itself has the source's name."""
        self._channels: dict[str, dict[str, tuple[Health, ChannelRow]]] = {}
        """How the channels of each source are, by key."""
        self._looked: set[str] = set()
        """The sources whose channels were looked at."""
        self._times: dict[str, _Time] = {}
        self._since: dict[tuple[str, str], tuple[Health, float]] = {}
        self._problems: dict[tuple[str, str], ProblemRow] = {}
        self._of_source: dict[str, ProblemRow] = {}

    def note_problems(self, rows: Mapping[str, Row]) -> None:
        """What is wrong now, the worst first."""
        self._problems, self._of_source = {}, {}
        for row in rows.values():
            if isinstance(row, ProblemRow):
                self._problems.setdefault((row.view, row.of), row)
                self._of_source.setdefault(row.source, row)

    def complete(self, found: dict[str, dict[str, Row]], now: float, wall: float) -> None:
        """Fill in the health of rows; a source that states one itself knows better."""
        sources = found.get("sources", {})
        for name, row in sources.items():
            if isinstance(row, SourceRow):
                self._note_time(name, row, now, wall * 1000)
        channels = found.get("channels", {})
        for key, row in channels.items():
            if isinstance(row, ChannelRow) and row.source in self._times:
                channels[key] = self._channel(key, row, wall * 1000)
        if "channels" in found:
            self._forget(channels)
            self._looked |= self._times.keys()
        for name, row in sources.items():
            if isinstance(row, SourceRow):
                sources[name] = self._source(name, row, wall * 1000)
        for table, judge in _SIMPLE.items():
            rows = found.get(table, {})
            for key, row in rows.items():
                if isinstance(row, TABLES[table]) and row.health == "unknown":  # type: ignore[attr-defined]
                    cells: dict[str, Any] = judge(row)
                    problem = self._problems.get((table, key))
                    health = cells["health"] if problem is None else HEALTH_OF[problem.severity]
                    rows[key] = msgspec.structs.replace(row, **{**cells, "health": health})

    def silences(self) -> dict[str, Row]:
        """For each source of which some channels are silent, and not all is, a problem."""
        found: dict[str, Row] = {}
        for source, channels in self._channels.items():
            silent = [key for key, (health, _) in channels.items() if health == "silent"]
            if silent and self._since[("sources", source)][0] in ("wrong", "degraded"):
                since_ms = max(self._since["channels", key][1] for key in silent)
                found[f"{source}|silent"] = ProblemRow(
                    severity="warn", source=source, what=self._silence(source), since_ms=since_ms, view="channels"
                )
        return found

    def _silence(self, source: str) -> str:
        """Return which channels of a source are silent; empty if none is."""
        channels = self._channels.get(source, {})
        silent = [row for health, row in channels.values() if health == "silent"]
        names = [f"{row.type} of {row.publisher}" if row.publisher else row.type for row in silent[:3]]
        shown = ", ".join(names) + (", …" if len(silent) > 3 else "")
        return f"no data from {shown} ({len(silent):,} of {counted(len(channels), 'channel')})" if silent else ""

    def _since_ms(self, key: tuple[str, str], health: Health, begins_ms: float) -> float:
        """Since when something has the health that it has."""
        known = self._since.get(key)
        if known is None or known[0] != health:
            known = self._since[key] = health, round(begins_ms)
        return known[1]

    # -- time --------------------------------------------------------------------------------------------------------

    def _note_time(self, name: str, row: SourceRow, now: float, wall_ms: float) -> None:
        is_played = row.time_ms is not None and (row.kind in PLAYED or row.speed is not None)
        at = (row.time_ms or 0.0) / 1000 if is_played else now
        before, pulses = self._times.get(name), self._pulses.setdefault(name, {})
        self._channels.setdefault(name, {})
        if before is not None and not -1e-9 <= at - before.at <= LEAP_S + 2 * (row.speed or 1.0) * (now - before.now):
            for pulse in pulses.values():
                pulse.restart(at)
        if before is not None and before.row.nodes and row.nodes == 0:
            for pulse in pulses.values():
                pulse.is_left = True
        self._times[name] = _Time(row, at, now)
        self._pulse(name, name, row.events, wall_ms)

    def _pulse(self, source: str, key: str, events: int, wall_ms: float) -> tuple[_Pulse, float]:
        """Return the pulse of a source or channel, with its present counter, and the time of the source."""
        row, at, _ = self._times[source]
        pulses = self._pulses[source]
        pulse = pulses.get(key)
        if pulse is None:
            pulse = pulses[key] = _Pulse(at, wall_ms)
            if source not in self._looked:  # what was counted before Studio looked was not seen to come
                pulse.events = events
        if events > pulse.events:
            pulse.grow(events, at, wall_ms, row.time_ms)
        pulse.events = events
        return pulse, at

    def _forget(self, channels: Mapping[str, Row]) -> None:
        """Forget channels that are there no more."""
        for source, pulses in self._pulses.items():
            for key in [key for key in pulses if key != source and key not in channels]:
                del pulses[key]
                self._channels[source].pop(key, None)
                self._since.pop(("channels", key), None)

    # -- channels and sources ----------------------------------------------------------------------------------------

    def _channel(self, key: str, row: ChannelRow, wall_ms: float) -> ChannelRow:
        pulse, at = self._pulse(row.source, key, row.events, wall_ms)
        health = row.health
        if health == "unknown":
            source = self._times[row.source].row
            if not _is_over(source) and (row.events or (source.state != "paused" and row.is_heard)):
                health = pulse.health(at, period_s(row.qos))
            if (problem := self._problems.get(("channels", key))) is not None:
                health = HEALTH_OF[problem.severity]
        self._channels[row.source][key] = health, row
        since_ms = self._since_ms(("channels", key), health, pulse.grew_ms if health == "silent" else wall_ms)
        return msgspec.structs.replace(
            row,
            health=health,
            health_since_ms=since_ms if row.health_since_ms is None else row.health_since_ms,
            last_ms=pulse.own_ms if row.last_ms is None else row.last_ms,
        )

    def _source(self, name: str, row: SourceRow, wall_ms: float) -> SourceRow:
        judged = self._judged(name, row, wall_ms)
        health, why, since_ms = judged if row.health == "unknown" else (row.health, row.why, wall_ms)
        since_ms = self._since_ms(("sources", name), health, since_ms)
        time_ms = row.begin_ms if row.time_ms is None else row.time_ms
        return msgspec.structs.replace(
            row,
            health=health,
            why=row.why or cut(why),
            health_since_ms=since_ms if row.health_since_ms is None else row.health_since_ms,
            counts_from_zero=row.counts_from_zero or (time_ms is not None and time_ms < FIRST_YEAR_MS),
        )

    def _judged(self, name: str, row: SourceRow, wall_ms: float) -> tuple[Health, str, float]:
        if row.state == "failed":
            return "wrong", row.note or "it does not work", wall_ms
        if _is_over(row):
            return "unknown", row.note or "it is closed", wall_ms
        if (problem := self._of_source.get(name)) is not None:
            number = "" if problem.count is None else f": {problem.count:,}"
            return HEALTH_OF[problem.severity], f"{problem.what}{number}", problem.since_ms
        pulses, channels = self._pulses[name], self._channels.get(name, {})
        states = [health for health, _ in channels.values()] or [pulses[name].health(self._times[name].at, None)]
        silence = self._silence(name)
        since_ms = max(pulse.grew_ms for pulse in pulses.values())
        if not row.events and row.state == "paused":
            return "unknown", row.note or "it is not played yet", wall_ms
        if row.kind == "lake":
            return ("fine", "", wall_ms) if row.events else ("silent", row.note or "it has no events", since_ms)
        if row.nodes == 0 and "fine" not in states:
            return "nobody", "nobody else is there: is the address right, and is anybody to be?", since_ms
        if "fine" not in states and "silent" in states:
            there = "" if not row.nodes else f"{counted(row.nodes, 'participant')} there, but "
            return "silent", there + ("no events for longer than is usual" if row.events else "no event yet"), since_ms
        if "fine" not in states:
            return "unknown", "nothing came since Studio looks, or too little to know how often it should", wall_ms
        return ("degraded", silence, wall_ms) if silence else ("fine", "", wall_ms)


def _is_over(row: SourceRow) -> bool:
    """Return whether nothing is seen of a source any more; a recording that has ended can be looked at."""
    return row.state == "failed" or (row.state == "ended" and row.speed is None)


@lru_cache(1000)
def period_s(qos: str) -> float | None:
    """Return the period that a quality of service promises; None if it promises none.

    >>> period_s("hard:10ms"), period_s("none:1s"), period_s("hard:10ms:sporadic"), period_s("soft:1s")
    (0.01, 1.0, None, None)
    """
    try:
        parsed = parse_qos(qos)
    except BusError:
        return None
    match parsed:
        case Hard(sporadic=False, period=period) | BestEffort(period=period):
            return None if period is None else seconds(period, "period")
    return None


# -- others ------------------------------------------------------------------------------------------------------------


def _subscription(row: SubscriptionRow) -> dict[str, Any]:
    if row.delivered is None:
        return {"health": "unknown", "why": HANDLERS}
    return {"health": "fine" if row.delivered else "silent"}


def _node(row: NodeRow) -> dict[str, Any]:
    if row.state in UNKNOWN:
        return {"health": "unknown", "why": UNKNOWN[row.state]}
    return {"health": "fine" if row.is_well else "wrong"}


def _gateway(row: GatewayRow) -> dict[str, Any]:
    return {"health": "wrong" if not row.is_connected else "fine" if row.heard or row.crossed else "silent"}


_SIMPLE: Mapping[str, Any] = {"subscriptions": _subscription, "nodes": _node, "gateways": _gateway}


RECENT_S = 10.0
"""How long a counter that has grown is a problem."""
FULL = 0.8
"""A queue that is this full is a problem."""
BUSY = 0.9
"""A CAN bus that is busy for this share of the time is a problem."""
MAX_COUNT = 200
LOSSES = ("lost", "dropped")
"""Signs of channels, subscriptions and gateways that explain the losses of their source."""

Severity: TypeAlias = Literal["bad", "warn"]
Found: TypeAlias = Mapping[str, Mapping[str, Row]]


class Sign(NamedTuple):
    """One thing that is wrong, or may be: a state if `counter` is None, and else a counter that must not grow."""

    name: str
    severity: Severity
    source: str
    what: str
    view: str
    of: str
    counter: int | None = None


class _Growth:
    """State: a counter, and when it last grew."""

    def __init__(self, count: int) -> None:
        self.count, self.before, self.since, self.grew_at = count, count, 0.0, -RECENT_S

    def note(self, count: int, now: float, wall: float) -> int | None:
        """By how much it has grown since it began to; None if it has not grown lately."""
        is_quiet = now - self.grew_at >= RECENT_S
        if count > self.count:
            if is_quiet:
                self.before, self.since = self.count, wall
            self.grew_at = now
            is_quiet = False
        elif count < self.count:  # the source started again
            self.before, is_quiet, self.grew_at = count, True, now - RECENT_S
        self.count = count
        return None if is_quiet else count - self.before


class Problems:
    """State: which counters there were, and since when each problem lasts."""

    def __init__(self) -> None:
        self._growths: dict[str, _Growth] = {}
        self._since: dict[str, float] = {}

    def find(self, found: Found, now: float, wall: float) -> dict[str, Row]:
        """Return the problems in the present rows, the worst and newest first.

        A source whose losses are those of its channels or subscriptions is not named beside them.
        """
        rows: dict[str, ProblemRow] = {}
        seen, explained = set[str](), set[str]()
        for sign in _signs(found):
            key = f"{sign.source}|{sign.name}|{sign.of}"
            seen.add(key)
            if (row := self._row(key, sign, now, wall)) is not None:
                rows[key] = row
                if sign.name in LOSSES and sign.of != sign.source:
                    explained.add(f"{sign.source}|lost|{sign.source}")
        self._since = {key: since for key, since in self._since.items() if key in rows}
        self._growths = {key: growth for key, growth in self._growths.items() if key in seen}
        shown = [(key, row) for key, row in rows.items() if key not in explained]
        ordered = sorted(shown, key=lambda item: (item[1].severity != "bad", -item[1].since_ms, item[0]))
        return dict(ordered[:MAX_COUNT])

    def _row(self, key: str, sign: Sign, now: float, wall: float) -> ProblemRow | None:
        if sign.counter is None:
            since, grown = self._since.setdefault(key, wall), None
        else:
            growth = self._growths.get(key)
            if growth is None:
                growth = self._growths[key] = _Growth(sign.counter)
            grown = growth.note(sign.counter, now, wall)
            since = growth.since
            if grown is None:
                return None
        return ProblemRow(
            severity=sign.severity,
            source=sign.source,
            what=sign.what,
            count=grown,
            since_ms=round(since * 1000),
            view=sign.view,
            of=sign.of,
        )


def _signs(found: Found) -> Iterator[Sign]:
    for table, read in _READERS.items():
        for key, row in found.get(table, {}).items():
            yield from read(key, row)


def _of_source(key: str, row: SourceRow) -> Iterator[Sign]:
    if row.state == "failed":
        yield Sign("failed", "bad", key, row.note or "does not work", "overview", key)
    if row.load is not None and row.load >= BUSY:
        yield Sign("load", "warn", key, f"the bus is busy for {row.load:.0%} of the time", "can", key)
    if row.lost > row.events:
        what = f"more events were lost or could not be read ({row.lost:,}) than came ({row.events:,})"
        yield Sign("unread", "bad", key, f"{what}: {row.note}" if row.note else what, "overview", key)
    yield Sign("lost", "bad", key, "events lost, dropped or rejected", "overview", key, row.lost)
    yield Sign("corrupted", "warn", key, "frames corrupted on the bus", "can", key, row.corrupted)


def _of_channel(key: str, row: ChannelRow) -> Iterator[Sign]:
    name = f"{row.type} of {row.publisher}" if row.publisher else row.type
    counters = (
        ("missed", "bad" if row.qos.startswith("hard") else "warn", "deadlines missed", row.missed),
        ("expired", "warn", "events expired before they were sent", row.expired),
        ("lost", "bad", "events sent and not received", row.lost),
    )
    for what, severity, text, number in counters:
        if number is not None:
            yield Sign(what, severity, row.source, f"{name}: {text}", "channels", key, number)  # type: ignore[arg-type]


def _of_subscription(key: str, row: SubscriptionRow) -> Iterator[Sign]:
    if row.dropped is not None:
        what = f"{row.text}: queue full, events dropped"
        yield Sign("dropped", "bad", row.source, what, "subscriptions", key, row.dropped)
    if row.failed is not None:
        what = f"{row.text}: handler {row.owner} raises {row.error}".replace("  ", " ").rstrip()
        yield Sign("failing", "bad", row.source, what, "subscriptions", key, row.failed)
    if row.capacity and row.waiting is not None and row.waiting >= FULL * row.capacity:
        what = f"{row.text}: {row.waiting:,} of {row.capacity:,} places in the queue taken"
        yield Sign("queue", "warn", row.source, what, "subscriptions", key)


def _of_node(key: str, row: NodeRow) -> Iterator[Sign]:
    if not row.is_well:
        severity: Severity = "bad" if row.state in ("down", "bus off") else "warn"
        yield Sign("state", severity, row.source, f"node {row.name}: {row.state}", "nodes", key)


def _of_gateway(key: str, row: GatewayRow) -> Iterator[Sign]:
    if not row.is_connected:
        yield Sign("connected", "bad", row.source, f"{row.side} is not connected", "gateways", key)
    if row.waiting:
        yield Sign("waiting", "warn", row.source, f"{row.side}: events wait to cross", "gateways", key)
    yield Sign("lost", "bad", row.source, f"{row.side}: events could not cross", "gateways", key, row.lost)
    yield Sign("limited", "warn", row.source, f"{row.side}: events over the rate limit", "gateways", key, row.limited)


_READERS: Mapping[str, Callable[[str, Any], Iterator[Sign]]] = {
    "sources": _of_source,
    "gateways": _of_gateway,
    "nodes": _of_node,
    "channels": _of_channel,
    "subscriptions": _of_subscription,
}
