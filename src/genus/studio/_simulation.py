"""`sim:...`: what can be simulated, how packages add their own, and `Simulation`, which runs it paced to real time.

A package adds simulations by an entry point of the group `genus.simulations`: a function that is called with the text
behind `sim:`, and returns a system, or None if the text is not for it. Each world and each bus of a system is a source.
They stop and go together, and have its time. A simulation that is played again makes new worlds and buses, which its
sources then follow, with whoever taps them.
"""

import threading
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from genus.bus import Bus
from genus.can import PreparedSystem, Scenario, World, load_system, parse_fault
from genus.can.types import Clocks, Pattern, ScenarioRun
from genus.errors import BusError, did_you_mean
from genus.model import Span, seconds
from genus.studio._bus_source import BusSource
from genus.studio._figures import three_digits
from genus.studio._source import SimulatedSystem, SimulationMaker, Source
from genus.studio._world_source import WorldSource
from genus.studio.types import SourceRow, State

T = TypeVar("T")
Options = TypeVar("Options", bound=msgspec.Struct)

ENTRY_POINTS = "genus.simulations"
"""The group of entry points by which packages add simulations."""
FRAMES = 20_000
"""How many frames of a simulation are kept, to be drawn."""
STEP_S = 0.02
"""How often time is moved on, in real time: quick enough for the eye, and little work."""
CHUNK_NS = 50_000_000
"""Most virtual time that passes at once, so that a simulation that cannot keep up is stopped quickly too."""
BREATH_S = 0.0005
"""A pause after each chunk of a simulation that cannot keep up: others get a turn."""
MAX_BEHIND_S = 0.25
"""What a simulation is behind by more, in real time, it does not catch up."""
MEASURED_S = 1.0
"""Over this real time is measured how fast it is."""
SLOW = 0.95
"""It is too slow if it reaches less than this share of the speed."""
SLOWEST, FASTEST = 0.01, 100.0
CLOSE_S = 1.0


def parse_simulation(text: str, options: type[Options]) -> tuple[str, Options]:
    """Return the text behind `sim:` as a name and options, `NAME?option=value&...`; BusError names what is wrong.

    >>> class Speed(msgspec.Struct):
    ...     kmh: float = 50.0
    ...     cars: tuple[str, ...] = ()
    >>> parse_simulation("road?kmh=30&cars=a&cars=b", Speed)
    ('road', Speed(kmh=30.0, cars=('a', 'b')))
    >>> parse_simulation("road?kmh=fast", Speed)
    Traceback (most recent call last):
    genus.errors.BusError: sim:road?kmh=fast: kmh is 'fast': Expected `float`, got `str`
    """
    name, _, query = text.partition("?")
    fields = {field.name: field for field in msgspec.structs.fields(options)}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BusError(f"sim:{text}: write options as name=value, joined by &") from None
    given: dict[str, list[str]] = {}
    for key, value in pairs:
        if key not in fields:
            raise BusError(f"sim:{text}: {key} is no option; {did_you_mean(key, fields)}known are {', '.join(fields)}")
        given.setdefault(key, []).append(value)
    return name, options(**{key: _option(text, fields[key], values) for key, values in given.items()})


def _option(text: str, field: msgspec.structs.FieldInfo, values: list[str]) -> object:
    """Return the value of an option: the last one that was given, or all if it is a tuple."""
    given = values if isinstance(field.default, tuple) else values[-1]
    if field.type in (Span, Span | None):
        return seconds(values[-1], f"sim:{text}: {field.name}", error=BusError)
    try:
        return msgspec.convert(given, field.type, strict=False)
    except msgspec.ValidationError as problem:
        raise BusError(f"sim:{text}: {field.name} is {values[-1]!r}: {problem}") from None


# -- system files ------------------------------------------------------------------------------------------------------


class ScenarioOptions(msgspec.Struct, frozen=True):
    """What can be said of a system file that is simulated, as of `genus can sim`."""

    duration: Span = 3600.0
    seed: int = 1
    faults: tuple[str, ...] = ()
    pattern: Pattern = "periodic"
    clocks: Clocks = "real"
    broker: bool = False
    guards: bool = False


class ScenarioSystem:
    """State: a system file with synthetic programs, as `genus can sim` runs it."""

    buses: Mapping[str, Bus] = {}

    def __init__(self, path: Path, options: ScenarioOptions) -> None:
        found = path.stat()
        prepared = _prepare(path, found.st_mtime_ns, found.st_size)
        system = prepared.typed.system
        self._run = ScenarioRun(
            Scenario(
                prepared=prepared,
                seed=options.seed,
                duration=options.duration,
                faults=tuple(parse_fault(text, system.nodes) for text in options.faults),
                pattern=options.pattern,
                clocks=options.clocks,
                broker=options.broker,
                guards=options.guards,
                traced=FRAMES,
            )
        )
        self.worlds = {path.stem: self._run.world}
        self.types: Collection[type] = tuple(each.cls for each in prepared.typed.stand_ins.values())

    @property
    def begin_ns(self) -> int:
        return self._run.world.start_ns + self._run.began_ns

    @property
    def end_ns(self) -> int | None:
        return self._run.world.start_ns + self._run.ends_ns if self._run.ends_ns else None

    @property
    def now_ns(self) -> int:
        return self._run.world.time_ns

    def start(self) -> Iterator[str]:
        yield "synchronising clocks and binding channels"
        self._run.start()

    def advance(self, until_ns: int) -> None:
        self._run.world.run_ns(max(0, until_ns - self.now_ns))

    def close(self) -> None:
        self._run.world.close()


@lru_cache(maxsize=16)
def _prepare(path: Path, mtime_ns: int, size: int) -> PreparedSystem:
    """Return the plan and the types of a file: they stay the same while it does, also when it is played again."""
    return PreparedSystem.of(load_system(path))


def make_scenario(text: str) -> SimulatedSystem | None:
    """Return a system file, such as `examples/crossing.toml?faults=errors p=0.05`, with synthetic programs."""
    path = Path(text.partition("?")[0])
    if path.suffix != ".toml" or not path.is_file():
        return None
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise BusError(f"sim:{text}: {path} cannot be read: {problem}") from problem
    if not content.keys() & {"bus", "channel"}:
        return None
    return ScenarioSystem(path, parse_simulation(text, ScenarioOptions)[1])


# -- running -----------------------------------------------------------------------------------------------------------


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
        """Return the virtual time that it should be."""
        return self._virtual_ns + round((real_s - self._real_s) * self.speed * 1e9)

    def came(self, real_s: float, virtual_ns: int) -> float:
        """Virtual time has come so far; returns how much it is behind, in real time."""
        behind_s = (self.due_ns(real_s) - virtual_ns) / self.speed / 1e9
        if behind_s > MAX_BEHIND_S:
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
            name: SimulatedWorldSource(self, world, name=name, address=address) for name, world in system.worlds.items()
        }
        whole = next(iter(self._worlds.values()), None)
        self._buses = {
            name: SimulatedBusSource(self, bus, name=name, address=address, part_of=whole)
            for name, bus in system.buses.items()
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
        """Return the fields of the rows of its sources that tell how it runs."""
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
        """Return what a step returns; what it raises ends the system, which may be played again."""
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


# -- sources -----------------------------------------------------------------------------------------------------------


class _Played:
    """A source whose time is that of a simulation: it is played, paused and closed with all others of it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.play, self.pause, self.set_speed = simulation.play, simulation.pause, simulation.set_speed
        self.seek, self.close = simulation.seek, simulation.close

    @property
    def is_running(self) -> bool:
        """Whether time goes on."""
        return self.simulation.state == "playing"


class SimulatedWorldSource(_Played, WorldSource):
    """A world of a simulation."""

    def __init__(self, simulation: Simulation, world: World, **options: Any) -> None:
        WorldSource.__init__(self, world, types=simulation.system.types, **options)
        _Played.__init__(self, simulation)

    def _source(self, *arguments: Any) -> SourceRow:
        return msgspec.structs.replace(super()._source(*arguments), **self.simulation.fields())


class SimulatedBusSource(_Played, BusSource):
    """A bus that a simulation feeds, from its worlds if it has some; it is measured in the time of the simulation."""

    def __init__(self, simulation: Simulation, bus: Bus, **options: Any) -> None:
        types = simulation.system.types
        BusSource.__init__(self, bus, types=types, time_ns=lambda: simulation.system.now_ns, **options)
        _Played.__init__(self, simulation)

    def rates_of(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        for name, number in counts.items():
            self._rates.note(f"type {name}", number, self.simulation.system.now_ns / 1e9)
        return {name: self._rate(f"type {name}") for name in counts}

    def _row(self, *arguments: Any) -> SourceRow:
        return msgspec.structs.replace(super()._row(*arguments), **self.simulation.fields())


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
    """Return the system that a text names; BusError lists what there is."""
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
