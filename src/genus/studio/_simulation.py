"""`Simulation`: runs the worlds of a system in a thread, paced to real time; each world is a source of its own."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, TypeVar

from genus.errors import BusError
from genus.studio._rows import State
from genus.studio._simulated_sources import SimulatedBusSource, SimulatedWorldSource
from genus.studio._simulated_system import ENTRY_POINTS, SimulatedSystem, SimulationMaker, make_scenario
from genus.studio._source import Source
from genus.studio._texts import three_digits

T = TypeVar("T")

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
        make: Makes the system again, to play it once more when it has ended; without it, it cannot be.
        address: What it was opened by.
        clock: Replaces `time.monotonic`.
    """

    def __init__(
        self,
        system: SimulatedSystem,
        *,
        make: Callable[[], SimulatedSystem] | None = None,
        address: str = "sim:",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.system = system
        self.player = f"{address} {next(_NUMBERS)}"
        """Its name among all that plays something."""
        self.state: State = "playing"
        self.note = "starting"
        self._worlds = {
            name: SimulatedWorldSource(self, world, name=name, address=address, types=system.types)
            for name, world in system.worlds.items()
        }
        self._buses = {
            name: SimulatedBusSource(self, bus, name=name, address=address) for name, bus in system.buses.items()
        }
        self._make, self._clock = make, clock
        self._pace = Pace()
        self._is_again = self._is_closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def sources(self) -> list[Source]:
        """Its worlds and buses; they stay the same when it is played again."""
        return [*self._worlds.values(), *self._buses.values()]

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
        """Go on; from the beginning if it has ended or failed, BusError if it cannot be made again."""
        with self._changed:
            if self.state in ("ended", "failed"):
                if self._make is None:
                    raise BusError(f"the simulation has {self.state}; open it again to see it from the beginning")
                self._is_again, self.note = True, "starting again"
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
            self._attempt(self.start)
            while not self._is_closing:
                wait_s = self._attempt(self.turn)
                with self._changed:
                    if wait_s is None:
                        self._changed.wait_for(lambda: self._is_closing or self.state == "playing")
                    elif not self._is_closing:
                        self._changed.wait(wait_s)
        finally:
            self.system.close()

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """What a step returns; what it raises ends the system, which may be played again."""
        try:
            return step()
        except Exception as problem:
            with self._changed:
                self.state, self.note = "failed", str(problem) or type(problem).__name__
            self.system.close()
            return None

    def _begin_again(self, make: Callable[[], SimulatedSystem]) -> None:
        """Make the system anew; its sources show that one from now on."""
        self._is_again = False
        self.system.close()  # first, as worlds have names
        system = make()
        if system.worlds.keys() != self._worlds.keys() or system.buses.keys() != self._buses.keys():
            system.close()
            raise BusError("the simulation has other worlds now; open it again")
        with self._changed:
            self.system = system
            for name, world in system.worlds.items():
                self._worlds[name].follow(world)
            for name, bus in system.buses.items():
                self._buses[name].follow(bus)
        self.start()

    def start(self) -> None:
        """Get the system ready."""
        for step in self.system.start():
            self.note = step
            if self._is_closing:
                return
        with self._changed:
            self.note = ""
            self._restart()

    def turn(self) -> float | None:
        """Let the time pass that is due, but not too much at once.

        Returns:
            How long to wait before the next turn, in seconds; None: until something is changed.
        """
        if self._is_again and self._make is not None:
            self._begin_again(self._make)
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


# -- opening -----------------------------------------------------------------------------------------------------------


def open_simulation(text: str) -> list[Source]:
    """Run what the text behind `sim:` names; its sources, of which each ends the simulation when it is closed.

    Raises:
        BusError: Nothing is named so, or it cannot be simulated; the message says what could be meant.
    """
    simulation = Simulation(find_system(text), make=partial(find_system, text), address=f"sim:{text}")
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
