"""Alerts: subscriptions that Studio keeps, whose matches are problems, and the webhook that gets them."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal, NamedTuple

from genus.errors import BusError, GenusError
from genus.filters import Subscription
from genus.filters.types import AttributeRef
from genus.model import name_of
from genus.studio._figures import cut, encode, event_text
from genus.studio._health import RECENT_S
from genus.studio._layout import MAX_ALERTS, Alert, check_text, parse_url
from genus.studio._questions import Asked, event_json
from genus.studio._source import EventSource, Source
from genus.studio._taps import Seen, Taps
from genus.studio.types import AlertRow, ProblemRow, Row, Tables

TIMEOUT_S = 5.0
"""How long a request may take in all."""
SPACING_S = 1.0
"""At least this long from one request to the next."""
PAUSES_S = (2.0, 5.0, 10.0, 30.0)
"""How long to wait after a failure, and after each further one; the last is for all others."""
GIVE_UP_S = 600.0
"""How long a message is tried."""


class Failing(NamedTuple):
    """That messages are not taken: since when, why the last one was not, and how many were given up."""

    since: float
    why: str
    lost: int


class _Waiting(NamedTuple):
    message: Callable[[], Mapping[str, Any]]
    since: float


class Webhook:
    """State: the messages that wait, at most one for each key, and whether the last one was taken.

    Args:
        url: Where messages go, `http://...` or `https://...`; BusError if it is none.
        pauses: How long to wait after each failure in a row, in seconds.
        spacing: How long to wait at least between two requests, in seconds.
        give_up: How long a message is tried, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        pauses: Sequence[float] = PAUSES_S,
        spacing: float = SPACING_S,
        give_up: float = GIVE_UP_S,
    ) -> None:
        self._url = parse_url(url)
        self.shown = f"{self._url.scheme}://{self._url.netloc}"
        """The address without what may be secret in it."""
        self.failing: Failing | None = None
        self._pauses, self._spacing, self._give_up = pauses, spacing, give_up
        self._waiting: dict[str, _Waiting] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def tell(self, key: str, message: Callable[[], Mapping[str, Any]]) -> None:
        """Send what a function gives as JSON, soon; replaces the message of this key that waits."""
        with self._changed:
            self._waiting[key] = _Waiting(message, time.monotonic())
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="genus-webhook", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Send nothing more; a request that is on its way is not waited for."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while (found := self._next()) is not None:
            key, waiting = found
            why = self._post(encode(waiting.message()))
            failures = 0 if why is None else failures + 1
            self._note(key, waiting, why)
            self._pause(self._pauses[min(failures, len(self._pauses)) - 1] if failures else self._spacing)

    def _next(self) -> tuple[str, _Waiting] | None:
        """Return the message that waits longest; None when it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            return None if self._is_closed else next(iter(self._waiting.items()))

    def _note(self, key: str, waiting: _Waiting, why: str | None) -> None:
        """Forget a message that was taken or is too old, unless another one has replaced it."""
        before = self.failing
        is_lost = why is not None and time.monotonic() - waiting.since >= self._give_up
        with self._changed:
            if (why is None or is_lost) and self._waiting.get(key) is waiting:
                del self._waiting[key]
        if why is None:
            self.failing = None
        else:
            since, lost = (time.time(), 0) if before is None else (before.since, before.lost)
            self.failing = Failing(since, why, lost + is_lost)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)

    def _post(self, content: bytes) -> str | None:
        """Why the server did not take it; None if it did."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=TIMEOUT_S)
        watch = threading.Timer(TIMEOUT_S, _shut, [connection])  # the timeout of a socket is for each byte anew
        watch.daemon, ends = True, time.monotonic() + TIMEOUT_S
        watch.start()
        path = f"{self._url.path or '/'}{'?' if self._url.query else ''}{self._url.query}"
        try:
            connection.request("POST", path, content, {"Content-Type": "application/json", "User-Agent": "genus"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, UnicodeError) as problem:  # of a name that no server can have
            if isinstance(problem, TimeoutError) or time.monotonic() >= ends:
                return f"no answer within {TIMEOUT_S:g} s"
            return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        finally:
            watch.cancel()
            connection.close()
        return None if 200 <= status < 300 else f"it answered {status}"


def _shut(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # it is not open yet, or no more
        connection.sock.shutdown(socket.SHUT_RDWR)


TESTED_S = 0.01
"""How long the events of a source are tested in a turn, at most, in time of the processor."""
TESTED = 64
"""Events between two looks at the clock."""


class _Episode:
    """State: from the first event to some seconds after the last one."""

    def __init__(self, since: float) -> None:
        self.since, self.until, self.count = since, 0.0, 0
        self.last: Seen | None = None

    def note(self, count: int, now: float, last: Seen | None = None) -> None:
        self.count, self.until, self.last = self.count + count, now + RECENT_S, last or self.last


class _Kept:
    """State: an alert, and what it found."""

    def __init__(self, alert: Alert, origin: Literal["file", "page"], since: float, sources: Sequence[str]) -> None:
        self.alert, self.origin, self.since, self.sources = alert, origin, since, sources
        self.asked: Asked | None = None
        self.problem = ""
        self.matched = self.unseen = 0
        self.last_ms: float | None = None
        self.episodes: dict[str, _Episode] = {}
        """By source."""

    @property
    def name(self) -> str:
        return self.alert.name or cut(self.alert.subscription)


class Alerts:
    """State: the alerts of a Studio. It has the methods of a source, whose tables are `alerts` and `problems`.

    All but the constructor belongs to the loop of the server.

    Args:
        sources: What Studio shows.
        taps: Their taps.
        ask: Reads the text of a subscription; SubscriptionError if no source can.
        webhook: Where alerts of files are sent, or None.
        title: What the page is called, for the webhook.
    """

    name = "alerts"

    def __init__(
        self,
        sources: Sequence[Source],
        taps: Taps,
        ask: Callable[[str], Asked],
        *,
        webhook: Webhook | None = None,
        title: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._sources, self._taps, self._ask = sources, taps, ask
        self._webhook, self._title, self._clock, self._wall, self._cpu = webhook, title, clock, wall, cpu
        self._kept: dict[str, _Kept] = {}
        self._numbers = count(1)
        self._ends: dict[str, Callable[[], None]] = {}
        """Of each source that is followed, the function that ends it."""
        self._unseen: dict[str, _Episode] = {}
        self._types_known = -1

    def __len__(self) -> int:
        return len(self._kept)

    # -- changes -----------------------------------------------------------------------------------------------------

    def add(self, alert: Alert, origin: Literal["file", "page"] = "page") -> str:
        """Keep an alert; returns its key.

        One of a file whose types are not known yet waits for them. BusError or SubscriptionError says why not.
        """
        if len(self._kept) >= MAX_ALERTS:
            raise BusError(f"there are {MAX_ALERTS} alerts already, which is the most; remove one")
        check_text(alert.subscription)
        self._check_sources(alert)
        kept = _Kept(alert, origin, self._wall(), self._names(alert))
        try:
            kept.asked = self._ask(alert.subscription)
        except GenusError as problem:
            if origin == "page":
                raise
            kept.problem = str(getattr(problem, "reason", problem))
        if any(known.alert == alert for known in self._kept.values()):
            raise BusError(f"there is such an alert already: {kept.name}")
        key = f"{self.name}|{next(self._numbers)}"
        self._kept[key] = kept
        self._follow()
        return key

    def _check_sources(self, alert: Alert) -> None:
        having = [source.name for source in self._sources if isinstance(source, EventSource)]
        for name in alert.sources:
            if name not in having:
                listed = ", ".join(having) or "none"
                raise BusError(f"alert {alert.name!r}: sources has {name!r}; those with events are {listed}")

    def remove(self, key: str) -> None:
        """Forget an alert; BusError if there is none."""
        kept = self._kept.pop(key, None)
        if kept is None:
            raise BusError("there is no such alert; it was removed already")
        for source in list(kept.episodes):
            self._tell(key, kept, source, kept.episodes.pop(source), "removed")
        self._follow()

    def alerts(self) -> list[Alert]:
        return [kept.alert for kept in self._kept.values()]

    def waiting(self) -> Iterator[tuple[str, str]]:
        """Yield the names of alerts that do not run, and why."""
        for kept in self._kept.values():
            if kept.problem:
                yield kept.name, kept.problem

    def _names(self, alert: Alert) -> tuple[str, ...]:
        """Return the sources of an alert: those that it names, or all but those whose events another one has, too."""
        known = {source.name: getattr(source, "part_of", None) for source in self._sources}
        names = self._taps.names()
        return alert.sources or tuple(name for name in names if getattr(known[name], "name", None) not in names)

    def _follow(self) -> None:
        """Take the events of those sources that alerts are for."""
        wanted = {name for kept in self._kept.values() for name in kept.sources}
        for name in [name for name in self._ends if name not in wanted]:
            self._ends.pop(name)()
        for name in wanted - self._ends.keys():
            self._ends[name] = self._taps.follow([name], self._take)

    # -- events ------------------------------------------------------------------------------------------------------

    def _take(self, events: Sequence[Seen], skipped: int) -> None:
        """Test the events of a source, for a bounded time."""
        source = events[0].source
        kept = [(key, each) for key, each in self._kept.items() if source in each.sources]
        until, tested = self._cpu() + TESTED_S, 0
        while tested < len(events) and (not tested or self._cpu() < until):
            part = events[tested : tested + TESTED]
            tested += len(part)
            for key, each in kept:
                if each.asked is not None and (found := [seen for seen in part if each.asked.is_match(seen)]):
                    self._note(key, each, source, found)
        if unseen := skipped + len(events) - tested:
            for _, each in kept:
                each.unseen += unseen
            self._unseen.setdefault(source, _Episode(self._wall())).note(unseen, self._clock())

    def _note(self, key: str, kept: _Kept, source: str, found: Sequence[Seen]) -> None:
        kept.matched += len(found)
        kept.last_ms = self._wall() * 1000
        episode = kept.episodes.get(source)
        is_new = episode is None
        if episode is None:
            episode = kept.episodes[source] = _Episode(self._wall())
        episode.note(len(found), self._clock(), found[-1])
        if is_new:
            self._tell(key, kept, source, episode, "active")

    def _tell(self, key: str, kept: _Kept, source: str, episode: _Episode, state: str) -> None:
        if self._webhook is None or not kept.alert.webhook or kept.origin == "page":
            return
        self._webhook.tell(f"{key}|{source}", lambda: self._message(kept, source, episode, state))

    def _message(self, kept: _Kept, source: str, episode: _Episode, state: str) -> dict[str, Any]:
        return {
            "studio": self._title,
            "alert": kept.name,
            "subscription": kept.alert.subscription,
            "severity": kept.alert.severity,
            "source": source,
            "state": state,
            "since": datetime.fromtimestamp(episode.since, UTC).isoformat().replace("+00:00", "Z"),
            "count": episode.count,
            "unseen": kept.unseen,
            "event": None if episode.last is None else _event_sent(episode.last),
        }

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        """Return the rows of alerts, and the problems that they are now."""
        self._ask_again()
        now = self._clock()
        for key, kept in self._kept.items():
            for source in [name for name, episode in kept.episodes.items() if episode.until <= now]:
                self._tell(key, kept, source, kept.episodes.pop(source), "ended")
        self._unseen = {name: episode for name, episode in self._unseen.items() if episode.until > now}
        found: dict[str, dict[str, Row]] = {}
        if "alerts" in wanted:
            found["alerts"] = {key: _row(kept) for key, kept in self._kept.items()}
        if "problems" in wanted:
            found["problems"] = dict(self._problems())
        return found

    def _ask_again(self) -> None:
        """Read the texts anew when there are more types: of those that wait, and of those that a source lacked."""
        known = sum(len(source.types()) for source in self._sources) if self._kept else self._types_known
        if known == self._types_known:
            return
        self._types_known = known
        for kept in self._kept.values():
            try:
                kept.asked, kept.problem = self._ask(kept.alert.subscription), ""
            except GenusError as problem:
                kept.asked, kept.problem = None, str(getattr(problem, "reason", problem))

    def _problems(self) -> Iterator[tuple[str, ProblemRow]]:
        for key, kept in self._kept.items():
            text, severity = kept.alert.subscription, kept.alert.severity
            for source, episode in kept.episodes.items():
                what = f"{kept.name}: {_described(kept.asked, episode.last)}"
                yield f"{source}|{key}", _problem(severity, source, what, episode, text)
            if kept.problem:
                what = f"the alert “{kept.name}” does not run: {kept.problem}"
                since_ms = round(kept.since * 1000)
                yield (
                    f"{key}|waits",
                    ProblemRow(
                        severity="warn", source=self.name, what=cut(what), since_ms=since_ms, view="events", of=text
                    ),
                )
        for source, episode in self._unseen.items():
            what = "alerts did not see all events: they came faster than Studio could test them"
            yield f"{source}|{self.name}|unseen", _problem("warn", source, what, episode, "")
        if self._webhook is not None and (failing := self._webhook.failing) is not None:
            lost = f"; {failing.lost:,} given up" if failing.lost else ""
            yield (
                f"{self.name}|webhook",
                ProblemRow(
                    severity="bad",
                    source=self.name,
                    what=cut(f"alerts do not reach the webhook {self._webhook.shown}: {failing.why}{lost}"),
                    since_ms=round(failing.since * 1000),
                    view="overview",
                ),
            )

    def types(self) -> Collection[type]:
        """None of its own."""
        return ()

    def counts(self) -> Mapping[str, int]:
        """None of its own."""
        return {}

    def close(self) -> None:
        """Take no more events, and tell nobody."""
        for end in self._ends.values():
            end()
        self._ends.clear()
        if self._webhook is not None:
            self._webhook.close()


def _row(kept: _Kept) -> AlertRow:
    return AlertRow(
        name=kept.name,
        text=kept.alert.subscription,
        severity=kept.alert.severity,
        sources=kept.alert.sources,
        origin=kept.origin,
        is_active=bool(kept.episodes),
        matched=kept.matched,
        unseen=kept.unseen,
        last_ms=kept.last_ms,
        problem=kept.problem,
    )


def _problem(severity: Literal["warn", "bad"], source: str, what: str, episode: _Episode, of: str) -> ProblemRow:
    since_ms = round(episode.since * 1000)
    return ProblemRow(
        severity=severity, source=source, what=what, count=episode.count, since_ms=since_ms, view="events", of=of
    )


def _described(asked: Asked | None, seen: Seen | None) -> str:
    """Return an event in a sentence: its type, and the values that the subscription is about."""
    if seen is None:
        return ""
    subscription = None if asked is None else asked.on(seen.source)
    text = event_text(seen.event, _named(subscription))
    return f"{name_of(type(seen.event))}, {text}" if text else name_of(type(seen.event))


def _named(subscription: Subscription[Any] | None) -> list[str]:
    """Return the attributes that tell a reader why and where."""
    where = () if subscription is None or subscription.where is None else subscription.where.walk()
    has = () if subscription is None else subscription.has
    return list(
        dict.fromkeys([*(node.name for node in where if isinstance(node, AttributeRef)), *has, "source", "place"])
    )


def _event_sent(seen: Seen) -> dict[str, Any]:
    event = event_json(seen)
    return {"type": event["type"], "at_ms": event["at_ms"], "values": event["values"]}
