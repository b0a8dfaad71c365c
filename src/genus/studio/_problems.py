"""What is wrong now: found in the rows of the sources, by what is bad in itself and by counters that grow.

A counter of losses is a problem while it grows, and for ten seconds after that: what was lost an hour ago is in the
tables, and not wrong now.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from genus.studio.types import ChannelRow, GatewayRow, NodeRow, ProblemRow, Row, SourceRow, SubscriptionRow

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
