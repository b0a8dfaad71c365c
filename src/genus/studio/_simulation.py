"""`Simulation`: runs the worlds of a system in a thread, paced to real time; each world is a source of its own."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from typing import Any

import msgspec

from genus.bus import Bus
from genus.can import World
from genus.errors import BusError
from genus.model import Event
from genus.studio._bus_source import BusSource
from genus.studio._rows import Row, SourceRow, State, Tables
from genus.studio._simulated_system import ENTRY_POINTS, SimulatedSystem, SimulationMaker, make_scenario
from genus.studio._source import Receive, Source
from genus.studio._texts import three_digits
from genus.studio._world_source import WorldSource

STEP_S = 0.02
"""How often time is moved on, in real time: quick enough for the eye, and little work."""
CHUNK_NS = 50_000_000
"""Most virtual time that passes at once, so that a simulation that cannot keep up is stopped quickly too."""
BREATH_S = 0.0005
"""A pause after each chunk of a simulation that cannot keep up: others get a turn."""
MOST_BEHIND_S = 0.25
"""What a simulation is behind by more, in real time, it does not catch up."""
MEASURED_S = 1.0
"""Over this real time is measured how fast it is."""
SLOW = 0.95
"""It is too slow if it reaches less than this share of the speed."""
SLOWEST, FASTEST = 0.01, 100.0
CLOSE_S = 1.0


class Pace:
    """State: virtual time against real time; both are arguments, nothing waits here.

    >>> pace = Pace()
    >>> pace.restart(10.0, 5_000_000_000)
    >>> pace.due_ns(10.5)
    5500000000
    """

    def __init__(self) -> None:
        self.speed = 1.0
        self.reached: float | None = None
        """The speed that it reaches, if that is less than it should be."""
        self._real_s, self._virtual_ns = 0.0, 0
        self._measured_s, self._measured_ns = 0.0, 0

    def restart(self, real_s: float, virtual_ns: int) -> None:
        """Go on from a time, after a pause or with another speed."""
        self._real_s, self._virtual_ns = real_s, virtual_ns
        self._measured_s, self._measured_ns, self.reached = real_s, virtual_ns, None

    def due_ns(self, real_s: float) -> int:
        """The virtual time that it should be."""
        return self._virtual_ns + round((real_s - self._real_s) * self.speed * 1e9)

    def came(self, real_s: float, virtual_ns: int) -> float:
        """Virtual time has come so far; returns how much it is behind, in real time."""
        behind_s = (self.due_ns(real_s) - virtual_ns) / self.speed / 1e9
        if behind_s > MOST_BEHIND_S:
            self._real_s, self._virtual_ns = real_s, virtual_ns
        passed_s = real_s - self._measured_s
        if passed_s >= MEASURED_S:
            reached = (virtual_ns - self._measured_ns) / passed_s / 1e9
            self.reached = reached if reached < SLOW * self.speed else None
            self._measured_s, self._measured_ns = real_s, virtual_ns
        return behind_s


_NUMBERS = count(1)


class Simulation:
    """State: a system that runs in the background.

    Args:
        system: What runs; it is started, advanced and closed by one thread.
        address: What it was opened by.
        clock: Replaces `time.monotonic`.
    """

    def __init__(
        self, system: SimulatedSystem, *, address: str = "sim:", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.system = system
        self.player = f"{address} {next(_NUMBERS)}"
        """Its name among all that plays something."""
        self.state: State = "playing"
        self.note = "starting"
        self.sources: list[Source] = [
            *(
                SimulatedWorldSource(self, world, name=name, address=address, types=system.types)
                for name, world in system.worlds.items()
            ),
            *(SimulatedBusSource(self, bus, name=name, address=address) for name, bus in system.buses.items()),
        ]
        self._clock = clock
        self._pace = Pace()
        self._has_started = self._is_closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def speed(self) -> float:
        """How many times as fast as in reality time should pass."""
        return self._pace.speed

    # -- from any thread ---------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Let it run in a thread."""
        self._thread = threading.Thread(target=self._run, name="genus-studio simulation", daemon=True)
        self._thread.start()

    def play(self) -> None:
        """Go on; BusError if it has ended."""
        with self._changed:
            if self.state in ("ended", "failed"):
                raise BusError(f"the simulation has {self.state}; open it again to see it from the beginning")
            self.state = "playing"
            self._restart()

    def pause(self) -> None:
        """Stop virtual time, soon."""
        with self._changed:
            if self.state == "playing":
                self.state = "paused"
                self._restart()

    def set_speed(self, speed: float) -> None:
        """Let time pass so many times as fast as in reality; BusError beyond 0.01 to 100."""
        if not SLOWEST <= speed <= FASTEST:
            raise BusError(f"speed is {speed:g}; it is {SLOWEST:g} to {FASTEST:g}")
        with self._changed:
            self._pace.speed = float(speed)
            self._restart()

    def seek(self, time_ms: float) -> None:
        """BusError: virtual time cannot be set."""
        raise BusError("a simulation only goes forward; set its speed to come to a later time sooner")

    def _restart(self) -> None:
        self._pace.restart(self._clock(), self.system.now_ns)
        self._changed.notify_all()

    def close(self) -> None:
        """End it; a second call does nothing."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is None:
            self.system.close()
        elif self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def fields(self) -> Mapping[str, Any]:
        """The fields of the rows of its sources that tell how it runs."""
        end_ns, reached = self.system.end_ns, self._pace.reached
        note = self.note
        if not note and reached is not None and self.state == "playing":
            note = f"this machine reaches {three_digits(reached):g} times real time"
        return {
            "state": self.state,
            "note": note,
            "begin_ms": self.system.begin_ns // 1_000_000,
            "end_ms": None if end_ns is None else end_ns // 1_000_000,
            "speed": self.speed,
            "player": self.player,
        }

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.start()
            while not self._is_closing:
                wait_s = self.turn()
                with self._changed:
                    if not self._is_closing and (wait_s is None or wait_s > 0):
                        self._changed.wait(wait_s)
        except Exception as problem:
            self.state, self.note = "failed", str(problem) or type(problem).__name__
        finally:
            self.system.close()

    def start(self) -> None:
        """Get the system ready."""
        for step in self.system.start():
            self.note = step
            if self._is_closing:
                return
        with self._changed:
            self.note, self._has_started = "", True
            self._restart()

    def turn(self) -> float | None:
        """Let the time pass that is due, but not too much at once.

        Returns:
            How long to wait before the next turn, in seconds; None: until something is changed.
        """
        with self._changed:
            if self.state != "playing":
                return None
            began_s, at_ns = self._clock(), self.system.now_ns
            until_ns = min(self._pace.due_ns(began_s), at_ns + CHUNK_NS)
        end_ns = self.system.end_ns
        if end_ns is not None and until_ns >= end_ns:
            until_ns = end_ns
        if until_ns > at_ns:
            self.system.advance(until_ns)
        with self._changed:
            if until_ns == end_ns:
                self.state = "ended"
                return None
            if self.state != "playing":
                return None
            now_s = self._clock()
            behind_s = self._pace.came(now_s, self.system.now_ns)
            return BREATH_S if behind_s > STEP_S else max(0.0, STEP_S - (now_s - began_s))


# -- its sources -------------------------------------------------------------------------------------------------------


class _Played:
    """A source whose time is that of a simulation."""

    simulation: Simulation

    def play(self) -> None:
        """Go on, with all sources of the simulation."""
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


class SimulatedWorldSource(_Played, WorldSource):
    """A world of a simulation."""

    def __init__(
        self, simulation: Simulation, world: World, *, name: str, address: str, types: Collection[type]
    ) -> None:
        super().__init__(world, name=name, address=address, types=types)
        self.simulation = simulation

    def _played(self) -> Mapping[str, Any]:
        return self.simulation.fields()


class SimulatedBusSource(_Played):
    """A bus that a simulation feeds: its events have the times of the simulation."""

    def __init__(self, simulation: Simulation, bus: Bus, *, name: str, address: str) -> None:
        self.name = name
        self.simulation = simulation
        self._source = BusSource(bus, name=name, address=address, types=simulation.system.types)

    def rows(self, wanted: Collection[str]) -> Tables:
        """The present rows of tables."""
        self._source.name = self.name  # Studio may give it another one
        found = dict(self._source.rows(wanted))
        row = found.get("sources", {}).get(self.name)
        if isinstance(row, SourceRow):
            time_ms = self.simulation.system.now_ns // 1_000_000
            rows: dict[str, Row] = {
                self.name: msgspec.structs.replace(row, time_ms=time_ms, **self.simulation.fields())
            }
            found["sources"] = rows
        return found

    def types(self) -> Collection[type]:
        """The types of the simulation."""
        return self._source.types()

    def counts(self) -> Mapping[str, int]:
        """How many events of each type there were."""
        return self._source.counts()

    def tap(self, receive: Receive) -> Callable[[], None]:
        """Call a function with each event from now on."""
        return self._source.tap(lambda _, event, publisher: receive(self.simulation.system.now_ns, event, publisher))

    def publish(self, event: Event) -> None:
        """Publish an event."""
        self._source.publish(event)

    def close(self) -> None:
        """End the simulation, which closes the bus."""
        super().close()
        self._source.close()


# -- opening -----------------------------------------------------------------------------------------------------------


def open_simulation(text: str) -> list[Source]:
    """Run what the text behind `sim:` names; its sources, of which each ends the simulation when it is closed.

    Raises:
        BusError: Nothing is named so, or it cannot be simulated; the message says what could be meant.
    """
    simulation = Simulation(find_system(text), address=f"sim:{text}")
    simulation.open()
    return simulation.sources


def find_system(text: str) -> SimulatedSystem:
    """The system that a text names; BusError lists what there is."""
    known: list[str] = []
    for name, maker in _makers():
        if (system := maker(text)) is not None:
            return system
        known.append(f"{name}: {(maker.__doc__ or '').strip().splitlines()[0]}")
    raise BusError(f"sim:{text}: nothing that can be simulated is called so; there is\n  " + "\n  ".join(known))


def _makers() -> Iterator[tuple[str, SimulationMaker]]:
    """What can make a system, with a name: Genus itself, and what packages add, which is loaded as it is asked for."""
    yield "system file", make_scenario
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            yield entry.name, entry.load()
        except (ImportError, AttributeError) as problem:
            raise BusError(f"the simulations of {entry.value} cannot be loaded: {problem}") from problem
