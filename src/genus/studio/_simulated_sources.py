"""The sources of a simulation: its worlds, and buses that it feeds. They stop and go together, and have its time.

A simulation that is played again makes new worlds and buses. Its sources then follow those, with whoever taps them.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from genus.bus import Bus
from genus.can import World
from genus.model import Event
from genus.studio._bus_source import BusSource
from genus.studio._meters import Meters
from genus.studio._rates import Rates
from genus.studio._rows import ChannelRow, Row, SourceRow, State, SubscriptionRow, Tables
from genus.studio._simulated_system import SimulatedSystem
from genus.studio._source import Receive
from genus.studio._texts import three_digits
from genus.studio._world_source import WorldSource


class Player(Protocol):
    """What plays the sources: the simulation, as they see it."""

    state: State
    system: SimulatedSystem
    """What runs now."""

    def play(self) -> None:
        """Go on."""

    def pause(self) -> None:
        """Stop."""

    def set_speed(self, speed: float) -> None:
        """Let time pass so many times as fast as in reality."""

    def seek(self, time_ms: float) -> None:
        """Go on from a time, or raise BusError."""

    def close(self) -> None:
        """End it."""

    def fields(self) -> Mapping[str, Any]:
        """The fields of the rows of its sources that tell how it runs."""


class _Played:
    """State: a source whose time is that of a simulation, and who taps it."""

    simulation: Player

    def __init__(self) -> None:
        self._tapping = threading.Lock()
        self._receivers: tuple[Receive, ...] = ()
        self._unlisten: Callable[[], None] | None = None

    def play(self) -> None:
        """Go on, with all sources of the simulation; from the beginning if it has ended."""
        self.simulation.play()

    def pause(self) -> None:
        """Stop, with all sources of the simulation."""
        self.simulation.pause()

    def set_speed(self, speed: float) -> None:
        """Let time pass so many times as fast as in reality, on all sources of the simulation."""
        self.simulation.set_speed(speed)

    def seek(self, time_ms: float) -> None:
        """BusError: a simulation only goes forward."""
        self.simulation.seek(time_ms)

    def close(self) -> None:
        """End the simulation."""
        self.simulation.close()

    # -- events ------------------------------------------------------------------------------------------------------

    def tap(self, receive: Receive) -> Callable[[], None]:
        """Call a function with each event from now on, also when the simulation is played again."""
        with self._tapping:
            self._receivers = (*self._receivers, receive)
            if self._unlisten is None:
                self._unlisten = self._listen()

        def end() -> None:
            with self._tapping:
                self._receivers = tuple(each for each in self._receivers if each is not receive)
                if not self._receivers:
                    self._stop_listening()

        return end

    def _deliver(self, at_ns: int, event: Event, publisher: str | None) -> None:
        for receive in self._receivers:
            receive(at_ns, event, publisher)

    def _listen(self) -> Callable[[], None]:
        """Have `_deliver` called with each event; returns a function that ends it."""
        raise NotImplementedError

    def _stop_listening(self) -> None:
        unlisten, self._unlisten = self._unlisten, None
        if unlisten is not None:
            unlisten()


class SimulatedWorldSource(_Played, WorldSource):
    """A world of a simulation."""

    def __init__(self, simulation: Player, world: World, *, name: str, address: str, types: Collection[type]) -> None:
        _Played.__init__(self)
        WorldSource.__init__(self, world, name=name, address=address, types=types)
        self.simulation = simulation

    def follow(self, world: World) -> None:
        """Show another world from now on."""
        with self._tapping:
            self._stop_listening()
            self.world = world
            if self._receivers:
                self._unlisten = self._listen()

    def _listen(self) -> Callable[[], None]:
        return WorldSource.tap(self, self._deliver)

    @property
    def _is_running(self) -> bool:
        return self.simulation.state == "playing"

    def _played(self) -> Mapping[str, Any]:
        return self.simulation.fields()


class SimulatedBusSource(_Played):
    """A bus that a simulation feeds.

    The bus has the clock of the system. What depends on time is therefore measured here, in the time of the simulation.
    """

    def __init__(self, simulation: Player, bus: Bus, *, name: str, address: str) -> None:
        super().__init__()
        self.name = name
        self.simulation = simulation
        self._address, self._types = address, tuple(simulation.system.types)
        self._rates, self._meters = Rates(), Meters(by_source=False)
        self._measuring = threading.Lock()
        """Guards the meters: events come in the thread of the simulation."""
        self._source = self._source_of(bus)

    def _source_of(self, bus: Bus) -> BusSource:
        return BusSource(bus, name=self.name, address=self._address, types=self._types)

    def follow(self, bus: Bus) -> None:
        """Show another bus from now on."""
        with self._tapping:
            self._stop_listening()
            self._source.close()
            self._source, self._meters = self._source_of(bus), Meters(by_source=False)
            if self._receivers:
                self._unlisten = self._listen()

    # -- a source ----------------------------------------------------------------------------------------------------

    def rows(self, wanted: Collection[str]) -> Tables:
        """The present rows of tables."""
        self._source.name = self.name  # Studio may give it another one
        now_s = self.simulation.system.now_ns / 1e9
        return {table: dict(self._in_its_time(table, rows, now_s)) for table, rows in self._source.rows(wanted).items()}

    def types(self) -> Collection[type]:
        """The types of the simulation."""
        return self._source.types()

    def counts(self) -> Mapping[str, int]:
        """How many events of each type there were."""
        return self._source.counts()

    def rates_of(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        """How many events of each type there are in a second of the simulation."""
        now_s = self.simulation.system.now_ns / 1e9
        return {name: self._rate(f"type {name}", count, now_s) for name, count in counts.items()}

    def publish(self, event: Event) -> None:
        """Publish an event."""
        self._source.publish(event)

    def close(self) -> None:
        """End the simulation, which closes the bus."""
        super().close()
        self._source.close()

    # -- in the time of the simulation -------------------------------------------------------------------------------

    def _listen(self) -> Callable[[], None]:
        with self._measuring:
            self._meters.interrupt()
        return self._source.tap(self._measure)

    def _measure(self, _: int, event: Event, publisher: str | None) -> None:
        now_ns = self.simulation.system.now_ns
        with self._measuring:
            self._meters.add(now_ns, event)
        self._deliver(now_ns, event, publisher)

    def _rate(self, key: str, count: int, now_s: float) -> float:
        self._rates.note(key, count, now_s)
        return three_digits(self._rates.rate(key)) if self.simulation.state == "playing" else 0.0

    def _in_its_time(self, table: str, rows: Mapping[str, Row], now_s: float) -> Iterator[tuple[str, Row]]:
        for key, row in rows.items():
            noted = f"{table} {key}"
            if isinstance(row, ChannelRow):
                yield key, self._channel(row, noted, now_s)
            elif isinstance(row, SubscriptionRow):
                rate = None if row.delivered is None else self._rate(noted, row.delivered, now_s)
                yield key, msgspec.structs.replace(row, rate=rate)
            elif isinstance(row, SourceRow):
                fields = {**self.simulation.fields(), "time_ms": round(now_s * 1000)}
                yield key, msgspec.structs.replace(row, rate=self._rate(noted, row.events, now_s), **fields)
            else:
                yield key, row

    def _channel(self, row: ChannelRow, noted: str, now_s: float) -> ChannelRow:
        with self._measuring:
            times = self._meters.times(row.type, row.publisher)
        return msgspec.structs.replace(
            row,
            rate=self._rate(noted, row.events, now_s),
            rates=tuple(map(three_digits, self._rates.history(noted))),
            **times._asdict(),
        )
