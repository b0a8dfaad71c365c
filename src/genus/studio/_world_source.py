"""A simulated world as a source: its channels, nodes and subscriptions, its events, and the timeline of its bus.

The world runs in another thread meanwhile. Everything is read and nothing is changed; what is being written at that
moment is read again.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from genus.can import ChannelResult, NodeState, World
from genus.studio._rates import Rates
from genus.studio._rows import ChannelRow, NodeRow, Row, SourceRow, SubscriptionRow, Tables
from genus.studio._source import Receive, Timeline
from genus.studio._texts import three_digits
from genus.studio._world_timeline import draw_span

T = TypeVar("T")

TRIES = 50
"""How often something is read that changes at the same time."""
UNWELL = frozenset({"down", "bus off", "error passive", "not synchronised"})


class WorldSource:
    """State: a world, and what its counters were before.

    Args:
        world: The world; whoever made it runs it.
        name: Its name on the page.
        address: What it was opened by.
        types: Its event types; by default those of its catalog.
    """

    def __init__(self, world: World, *, name: str, address: str = "", types: Collection[type] = ()) -> None:
        self.name = name
        self.world = world
        self._address = address or f"sim:{world.name}"
        self._types, self._is_given = tuple(types), bool(types)
        self._rates = Rates()

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        """The present rows of tables."""
        now_ns = self.world.now_ns
        results = self._results()
        found: dict[str, dict[str, Row]] = {}
        if "channels" in wanted:
            keyed = {f"{self.name}|{result.channel}": result for result in results}
            found["channels"] = {key: self._channel(key, result, now_ns) for key, result in keyed.items()}
        if "nodes" in wanted or "subscriptions" in wanted:
            states = steady(self.world.nodes)
            if "nodes" in wanted:
                bus_ns = _offset_of_bus(states)
                found["nodes"] = {f"{self.name}|{state.name}": self._node(state, bus_ns) for state in states}
            if "subscriptions" in wanted:
                found["subscriptions"] = dict(self._subscriptions(states, now_ns))
        if "sources" in wanted:
            found["sources"] = {self.name: self._source(results, now_ns)}
        return found

    def types(self) -> Collection[type]:
        """The types that were given, or those of the world's catalog."""
        known = self.world.catalog.types
        if not self._is_given and len(self._types) < len(known):
            self._types = tuple(self.world.catalog.declare(name) for name in known)
        return self._types

    def counts(self) -> Mapping[str, int]:
        """How many events of each type were published."""
        found: dict[str, int] = {}
        for result in self._results():
            found[result.event] = found.get(result.event, 0) + result.published
        return found

    def rates_of(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        """How many events of each type there are in a second of virtual time."""
        for name, count in counts.items():
            self._rates.note(f"type {name}", count, self.world.now_ns / 1e9)
        return {name: self._rate(f"type {name}") for name in counts}

    def tap(self, receive: Receive) -> Callable[[], None]:
        """Call a function with each event that a program publishes from now on."""
        return self.world.watch(lambda node, event, time_ns: receive(time_ns, event, node))

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        """The frames from a time on; of the last `span_us` without one."""
        begin_ns, now_ns = self.world.start_ns, self.world.now_ns
        span_ns = round(span_us * 1000)
        start_ns = now_ns - span_ns if start_us is None else round(start_us * 1000) - begin_ns
        start_ns = max(-span_ns, min(start_ns, now_ns))  # nothing is known of before, and of later
        return steady(lambda: draw_span(self.world, start_ns, start_ns + span_ns))

    def close(self) -> None:
        """Nothing to release: whoever made the world closes it."""

    # -- rows --------------------------------------------------------------------------------------------------------

    def _results(self) -> tuple[ChannelResult, ...]:
        """The channels now: those of the plan, whether or not something was published, and others."""
        found = steady(self.world.channels)
        return (*found, *self._unused({each.channel for each in found}))

    def _unused(self, used: Collection[str]) -> Iterator[ChannelResult]:
        plan = self.world.plan
        for channel in plan.system.channels if plan is not None else ():
            if plan is not None and channel.name not in used:
                yield ChannelResult.without_events(channel, plan.verdict(channel.name))

    @property
    def _is_running(self) -> bool:
        return not self.world.is_closed

    def _rate(self, key: str) -> float:
        """Counts in a second of virtual time; 0 while that stands still."""
        return three_digits(self._rates.rate(key)) if self._is_running else 0.0

    def _channel(self, key: str, result: ChannelResult, now_ns: int) -> ChannelRow:
        self._rates.note(key, result.published, now_ns / 1e9)
        is_sent = result.sent > 0
        return ChannelRow(
            source=self.name,
            type=result.event,
            publisher=result.node,
            qos=result.qos,
            events=result.published,
            rate=self._rate(key),
            jitter_ms=_milliseconds(result.jitter_ns),
            latency_ms=_milliseconds(result.mean_ns) if is_sent else None,
            worst_latency_ms=_milliseconds(result.worst_ns) if is_sent else None,
            bound_ms=_milliseconds(result.bound_ns),
            missed=missed_deadlines(result),
            expired=result.expired,
            lost=result.lost,
            rates=tuple(map(three_digits, self._rates.history(key))),
        )

    def _subscriptions(self, states: Sequence[NodeState], now_ns: int) -> Iterator[tuple[str, Row]]:
        for state in states:
            alike: dict[str, int] = {}
            for each in state.subscriptions:
                alike[each.text] = number = alike.get(each.text, 0) + 1
                key = f"{self.name}|{state.name}|{each.text}" + (f"|{number}" if number > 1 else "")
                self._rates.note(key, each.delivered, now_ns / 1e9)
                rate = self._rate(key)
                yield (
                    key,
                    SubscriptionRow(
                        source=self.name, owner=state.name, text=each.text, delivered=each.delivered, rate=rate
                    ),
                )

    def _node(self, state: NodeState, bus_ns: int) -> NodeRow:
        heard = state.heard_ns
        return NodeRow(
            source=self.name,
            name=state.name,
            number=state.number,
            uid=f"{state.uid:016x}" if state.uid else "",
            state=state.condition,
            is_well=state.condition not in UNWELL,
            role=", ".join(state.roles),
            offset_us=None if state.offset_ns is None else three_digits((state.offset_ns - bus_ns) / 1e3),
            precision_us=None if state.precision_ns is None else three_digits(state.precision_ns / 1e3),
            heard_ms=None if heard is None else (self.world.start_ns + heard) // 1_000_000,
            wants=tuple(each.text for each in state.subscriptions),
            filters=state.filters,
        )

    def _source(self, results: Sequence[ChannelResult], now_ns: int) -> SourceRow:
        events = sum(result.published for result in results)
        self._rates.note("", events, now_ns / 1e9)
        self._rates.note(" busy", self.world.busy_ns, now_ns / 1e9)
        is_closed = self.world.is_closed
        row = SourceRow(
            kind="world",
            address=self._address,
            state="ended" if is_closed else "live",
            note="the world is closed" if is_closed else "",
            time_ms=(self.world.start_ns + now_ns) // 1_000_000,
            events=events,
            rate=self._rate(""),
            lost=sum(result.lost + result.refused for result in results),
            late=sum(missed_deadlines(result) + result.expired for result in results),
            nodes=len(self.world.stations),
            load=three_digits(min(1.0, self._rates.rate(" busy") / 1e9)),
            has_timeline=True,
        )
        return msgspec.structs.replace(row, **self._played())

    def _played(self) -> Mapping[str, Any]:
        """Fields of the source's row that depend on who runs the world."""
        return {}


def missed_deadlines(result: ChannelResult) -> int:
    """Deadlines that a channel missed: at its publisher, or as the subscriber knows that was told most often."""
    return result.missed + max([result.not_sent, *result.alarms.values()])


def steady(read: Callable[[], T]) -> T:
    """What a function reads of a world that runs in another thread, read again if it changed meanwhile."""
    for _ in range(TRIES):
        try:
            return read()
        except (RuntimeError, LookupError, AttributeError):  # a dictionary grew, or a node is being made
            time.sleep(0)
    return read()


def _offset_of_bus(states: Iterable[NodeState]) -> int:
    """How far the time of the bus is off the true time: that of the time master; 0 if there is none."""
    return next((state.offset_ns or 0 for state in states if "time master" in state.roles), 0)


def _milliseconds(span_ns: int | None) -> float | None:
    return None if span_ns is None else three_digits(span_ns / 1e6)
