"""A bus as a source: its counters are read; its events are taken only while somebody asks for them.

A bus that Studio opened itself, to a network, has no other subscriber, so Studio subscribes to what is to be seen. On a
bus of the program that it runs in, nothing is subscribed to until a page shows events.
"""

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from genus.bus import Bus, Inbox, Listener, format_qos
from genus.filters import Subscription
from genus.model import Event, Kind, name_of, subtypes
from genus.studio._figures import MAX_LENGTH, Meters, Rates, cut, three_digits
from genus.studio._source import Receive, Source
from genus.studio.types import ChannelRow, NodeRow, Row, SourceRow, SubscriptionRow, Tables

if TYPE_CHECKING:
    from genus.net import NetLink
    from genus.net.types import Participant

MAX_ROWS = 1000
"""Most channels, subscriptions or participants that are told apart."""
RING = 65_536
"""Events that may come between two turns and still be measured; more are only counted."""
LOSSES = ("lost", "dropped", "rejected", "unknown")
"""How counters of a link begin that tell of losses."""
UNREAD = ("not read", "delivered as")
"""How those begin that tell of events that were delivered without something."""
LATE = ("late", "expired")
GONE_S = 60.0
"""How long a participant that left is shown."""


class BusSource:
    """State: a bus, and what its counters were before.

    Args:
        bus: The bus.
        name: Its name on the page.
        address: How it was opened, without a password.
        watch: What Studio subscribes to for as long as it runs; None for a bus of the program's own.
        owned: Whether the bus is closed with this source.
        part_of: Another source that has the events of this bus as well.
        time_ns: Replaces the clock of the bus; rates are then of its time, too.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        name: str,
        address: str = "",
        watch: Subscription | None = None,
        owned: bool = False,
        types: Collection[type] = (),
        part_of: Source | None = None,
        time_ns: Callable[[], int] | None = None,
    ) -> None:
        self.name, self.bus, self.address, self.part_of = name, bus, address, part_of
        self._own_time_ns = time_ns
        self._owned = owned
        self._types = tuple(types)
        self._watch = watch
        self._rates, self._meters = Rates(), Meters(by_source=watch is not None)
        self._texts: dict[Subscription, str] = {}
        self._receivers: tuple[Receive, ...] = ()
        self._present: dict[str, Participant] = {}
        self._left: dict[str, tuple[Participant, float]] = {}
        self._listener: Listener[Any] | None = None
        self._ring: deque[tuple[int, Event]] = deque()
        self._missed: Counter[str] = Counter()
        """Events that found the ring full, by type."""
        self._missed_lock = threading.Lock()
        self.leaps = 0
        self._was_connected = True
        if watch is not None:
            self._listen(watch)

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        now = time.monotonic() if self._own_time_ns is None else self._own_time_ns() / 1e9
        self._measure()
        published = self.bus.published()
        found: dict[str, dict[str, Row]] = {}
        if "channels" in wanted:
            found["channels"] = {
                f"{self.name}|{row.type}|{row.publisher}": row for row in self._channels(published, now)
            }
        if "subscriptions" in wanted:
            found["subscriptions"] = dict(self._subscriptions(now))
        if "nodes" in wanted:
            found["nodes"] = {f"{self.name}|{row.uid or row.name}": row for row in self._nodes()}
        if "sources" in wanted:
            found["sources"] = {self.name: self._row(published, now)}
        return found

    def types(self) -> Collection[type]:
        """Return the types that were given or that the medium brings; without any, all that are declared by now."""
        if self._types:
            return (*self._types, *self.bus.types.values())
        return [cls for cls in (*subtypes(Event), *subtypes(Kind)) if not _is_own(cls)]

    def counts(self) -> Mapping[str, int]:
        return self.bus.published()

    def tap(self, receive: Receive) -> Callable[[], None]:
        self._receivers = (*self._receivers, receive)
        self._listen(self._watch or Subscription(Event))

        def end() -> None:
            self._receivers = tuple(each for each in self._receivers if each is not receive)
            if not self._receivers and self._watch is None:
                self._stop_listening()

        return end

    def publish(self, event: Event) -> None:
        self.bus.publish(event)

    def close(self) -> None:
        self._stop_listening()
        if self._owned:
            self.bus.close()

    def follow(self, bus: Bus) -> None:
        """Show another bus from now on, to those who tap this one as well."""
        self.leaps += 1
        is_listening = self._listener is not None
        self._stop_listening()
        self.bus, self._meters = bus, Meters(by_source=self._watch is not None)
        if is_listening:
            self._listen(self._watch or Subscription(Event))

    # -- events ------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether time goes on; rates are 0 while it does not."""
        return True

    def _time_ns(self) -> int:
        return self.bus.time_ns() if self._own_time_ns is None else self._own_time_ns()

    def _rate(self, key: str) -> float:
        return three_digits(self._rates.rate(key)) if self.is_running else 0.0

    def _listen(self, subscription: Subscription) -> None:
        if self._listener is None:
            self._measure()
            self._meters.interrupt()
            self._listener = self.bus.subscribe(subscription, self._note)

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()

    def _note(self, event: Event) -> None:
        now = self._time_ns()
        if len(self._ring) < RING:
            self._ring.append((now, event))
        else:
            with self._missed_lock:
                self._missed[name_of(type(event))] += 1
        for receive in self._receivers:
            receive(now, event, None)

    def _measure(self) -> None:
        """Take the times of the events since the last call into the meters."""
        ring, add = self._ring, self._meters.add
        for _ in range(len(ring)):
            add(*ring.popleft())
        if self._missed:
            with self._missed_lock:
                missed, self._missed = self._missed, Counter()
            for name, events in missed.items():
                self._meters.skip(name, events)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _row(self, published: Mapping[str, int], now: float) -> SourceRow:
        link = self.bus.link
        counts = {} if link is None else link.counters()
        events = sum(published.values())
        self._rates.note("", events, now)
        nodes = self._participants()
        queued = (listener for listener in self.bus.listeners() if type(listener) is not Listener)
        dropped = sum(listener.counters.dropped for listener in queued)  # others have no queue, and may be very many
        is_connected = self.bus.is_closed or link is None or link.is_connected
        self.leaps += self._was_connected and not is_connected
        self._was_connected = is_connected
        return SourceRow(
            kind="bus",
            address=self.address,
            state="ended" if self.bus.is_closed else "live" if is_connected else "failed",
            note=self._note_of(counts) if is_connected else "not connected",
            time_ms=self._time_ns() // 1_000_000,
            events=events,
            rate=self._rate(""),
            lost=dropped + _sum(counts, LOSSES),
            late=_sum(counts, LATE),
            nodes=None if nodes is None else len(nodes),
            can_publish=not self.bus.is_closed,
        )

    def _note_of(self, link: Mapping[str, int]) -> str:
        """Return the counters of the link that tell of losses, largest first, and of what could not be read."""
        losses, unread = (
            sorted(((count, name) for name, count in link.items() if count and name.startswith(found)), reverse=True)
            for found in (LOSSES, UNREAD)
        )
        texts = [f"{name}: {count:,}" for count, name in (*losses[:3], *unread[:2])]
        if self._watch is not None and any("unknown type" in name for _, name in losses):
            texts.append("name the types of events with -t")
        return "; ".join(["the bus is closed"] * self.bus.is_closed + texts)

    def _channels(self, published: Mapping[str, int], now: float) -> Iterator[ChannelRow]:
        qualities, own = self._announced(), {name_of(each.type) for each in self.bus.channels()}
        measured = self._meters.by_type() if self._watch is not None else {}
        counts = {**dict.fromkeys(qualities, 0), **published}
        heard = own | self._heard(name for name, count in counts.items() if not count)
        for name, count in sorted(counts.items(), key=lambda item: -item[1])[:MAX_ROWS]:
            parts = measured.get(name) or {"": count}
            for publisher, part in parts.items():
                row = self._channel(name, publisher, part, qualities.get(name, ""), now)
                yield row if part or name in heard else msgspec.structs.replace(row, is_heard=False)

    def _heard(self, names: Iterable[str]) -> set[str]:
        """Those of some types of which all events would come here: a condition may hold back all that there are."""
        missing = set(names)
        classes = [cls for cls in self.types() if name_of(cls) in missing] if missing else []
        asked = [self._watch] if self._watch is not None else self.bus.subscriptions() if classes else []
        whole = {
            (each.types, each.exact): each for each in asked if not (each.has or each.lacks or each.where is not None)
        }
        return {name_of(cls) for cls in classes if any(each.accepts(cls) for each in whole.values())}

    def _announced(self) -> dict[str, str]:
        """The types that were announced here or, as far as Studio would hear them, by others, with their quality."""
        link, watch = self._net_link(), self._watch
        others = [] if link is None else link.announced()
        if watch is not None and others and watch.types != (Event,):
            heard = {name_of(cls) for cls in self.types() if watch.accepts(cls)}
            others = [each for each in others if each.type in heard]
        found = {each.type: each.qos for each in others}
        return found | {name_of(each.type): format_qos(each.qos) for each in self.bus.channels()}

    def _channel(self, name: str, publisher: str, events: int, qos: str, now: float) -> ChannelRow:
        key = f"{name}|{publisher}"
        self._rates.note(key, events, now)
        times = self._meters.times(name, publisher)
        return ChannelRow(
            source=self.name,
            type=name,
            publisher=publisher,
            qos=qos,
            events=events,
            rate=self._rate(key),
            jitter_ms=times.jitter_ms,
            latency_ms=times.latency_ms,
            worst_latency_ms=times.worst_latency_ms,
            rates=tuple(map(three_digits, self._rates.history(key))),
        )

    def _subscriptions(self, now: float) -> Iterator[tuple[str, Row]]:
        listeners = [one for one in self.bus.listeners() if one is not self._listener]
        for listener in _busiest(listeners):
            counters = listener.counters
            key = f"{self.name}|{id(listener)}"
            self._rates.note(key, counters.delivered, now)
            yield (
                key,
                SubscriptionRow(
                    source=self.name,
                    owner=_handler(listener),
                    text=self._text(listener.subscription),
                    delivered=counters.delivered,
                    rate=self._rate(key),
                    failed=counters.failed,
                    error=cut(listener.last_error),
                    dropped=counters.dropped,
                    waiting=counters.waiting,
                    capacity=listener.queue.capacity if isinstance(listener, Inbox) else None,
                ),
            )
        for number, interest in enumerate(self._interests()[:MAX_ROWS]):
            yield f"{self.name}|want {number}", interest

    def _text(self, subscription: Subscription) -> str:
        text = self._texts.get(subscription)
        if text is None:
            if len(self._texts) > 2 * MAX_ROWS:
                self._texts.clear()
            text = self._texts[subscription] = str(subscription)
        return text

    # -- networks ----------------------------------------------------------------------------------------------------

    def _net_link(self) -> "NetLink | None":
        link = self.bus.link
        if link is None or not link.capabilities.last_values:  # those of networks keep; without them, no import
            return None
        from genus.net import NetLink

        return link if isinstance(link, NetLink) else None

    def _participants(self) -> list[Any] | None:
        link = self._net_link()
        return None if link is None else link.participants()[:MAX_ROWS]

    def _interests(self) -> list[SubscriptionRow]:
        link = self._net_link()
        if link is None:
            return []
        names = {each.uid: _program(each.about, each.uid) for each in link.participants()}
        interests = sorted(
            (names.get(interest.speaker, interest.speaker[:8]), interest.text, interest.hops)
            for interest in link.interest_texts()
        )
        return [
            SubscriptionRow(source=self.name, owner=f"{owner}, {hops} gateways away" if hops else owner, text=text)
            for owner, text, hops in interests
        ]

    def _nodes(self) -> Iterator[NodeRow]:
        link = self._net_link()
        if link is None:
            return
        interests: dict[str, list[str]] = {}
        for interest in link.interest_texts():
            interests.setdefault(interest.speaker, []).append(interest.text[:MAX_LENGTH])
        present = link.participants()[:MAX_ROWS]
        for each in present:
            heard = link.heard_ago(each.uid)
            heard_ms = None if heard is None else round(time.time() - heard) * 1000
            yield self._node(each, "up", heard_ms, tuple(sorted(interests.get(each.uid, ()))[:20]))
        for each, gone_at in self._gone(present, time.monotonic()):
            yield self._node(each, "gone", round(time.time() - (time.monotonic() - gone_at)) * 1000)

    def _gone(self, present: list["Participant"], now: float) -> list[tuple["Participant", float]]:
        """Return those who left in the last minute, and when: whether they wanted to, the medium does not tell."""
        uids = {each.uid for each in present}
        for uid, each in self._present.items():
            if uid not in uids:
                self._left[uid] = each, now
        self._present = {each.uid: each for each in present}
        self._left = {
            uid: (each, at) for uid, (each, at) in self._left.items() if uid not in uids and now - at < GONE_S
        }
        return list(self._left.values())

    def _node(self, each: "Participant", state: str, heard_ms: int | None, interests: tuple[str, ...] = ()) -> NodeRow:
        about = each.about
        return NodeRow(
            source=self.name,
            name=_program(about, each.uid),
            uid=each.uid,
            host=str(about.get("host", ""))[:MAX_LENGTH],
            pid=about.get("pid") if isinstance(about.get("pid"), int) else None,
            program=str(about.get("program", ""))[:MAX_LENGTH],
            state=state,
            heard_ms=heard_ms,
            interests=interests,
        )


def _is_own(cls: type) -> bool:
    """Whether a class is one of Genus itself; one that a program makes by calling `type` has a module of Genus, too."""
    module = sys.modules.get(cls.__module__) if cls.__module__.startswith("genus.") else None
    return module is not None and getattr(module, cls.__name__, None) is cls


def _busiest(listeners: list[Listener[Any]]) -> list[Listener[Any]]:
    """Return all listeners, or those with the most events if they are very many."""
    if len(listeners) <= MAX_ROWS:
        return listeners
    return sorted(listeners, key=lambda one: -one.counters.delivered)[:MAX_ROWS]


def _handler(listener: Listener[Any]) -> str:
    """Return the name of the function that handles the events of a subscription."""
    if type(listener) is Inbox:
        return "inbox"
    handler = listener.handler
    return cut(str(getattr(handler, "__qualname__", "") or type(handler).__qualname__).rpartition("<locals>.")[2])


def _program(about: Mapping[str, Any], uid: str) -> str:
    """Return the name of a participant: its program and process, or the beginning of its uid."""
    program, pid = str(about.get("program", ""))[:MAX_LENGTH], about.get("pid", "")
    return f"{program} {pid}".strip() or uid[:8]


def _sum(link: Mapping[str, int], beginnings: tuple[str, ...]) -> int:
    return sum(count for name, count in link.items() if name.startswith(beginnings))
