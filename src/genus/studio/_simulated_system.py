"""What `sim:...` runs: the interface of a simulated system, how packages add their own, and system files as one.

A package adds simulations by an entry point of the group `genus.simulations`: a function that is called with the text
behind `sim:`, and returns a system, or None if the text is not for it.
"""

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec

from genus.bus import Bus
from genus.can import Clocks, Pattern, PreparedSystem, Scenario, ScenarioRun, World, load_system, parse_fault
from genus.errors import BusError, did_you_mean
from genus.model import Span, seconds

ENTRY_POINTS = "genus.simulations"
"""The group of entry points by which packages add simulations."""
FRAMES = 20_000
"""How many frames of a simulation are kept, to be drawn."""

Options = TypeVar("Options", bound=msgspec.Struct)


class SimulatedSystem(Protocol):
    """Worlds that run together, and buses besides; one thread starts, advances and closes it.

    All times are nanoseconds since 1970, in the time that is simulated.
    """

    @property
    def worlds(self) -> Mapping[str, World]:
        """Its worlds, by the name of their source on the page."""

    @property
    def buses(self) -> Mapping[str, Bus]:
        """Buses that are fed by the simulation, by name."""

    @property
    def types(self) -> Collection[type]:
        """Its event types and kinds."""

    @property
    def begin_ns(self) -> int:
        """When it begins."""

    @property
    def end_ns(self) -> int | None:
        """When it ends; None if that is not known."""

    @property
    def now_ns(self) -> int:
        """How far it has come."""

    def start(self) -> Iterator[str]:
        """Get ready, step by step; gives before each step what is done in it, for people."""

    def advance(self, until_ns: int) -> None:
        """Let time pass until then; an error ends the simulation, and is shown."""

    def close(self) -> None:
        """Release everything; a second call does nothing."""


SimulationMaker: TypeAlias = Callable[[str], SimulatedSystem | None]
"""Makes a system of the text behind `sim:`; None if that is not for it, BusError if something is wrong with it.

It is called with the same text again, after the system is closed, when one that has ended is played again. The first
line of its docstring is shown to people who look for what can be simulated.
"""


def parse_simulation(text: str, options: type[Options]) -> tuple[str, Options]:
    """The text behind `sim:` as a name and options, `NAME?option=value&...`; BusError names what is wrong.

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
    """The value of an option: the last one that was given, or all if it is a tuple."""
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
        """When programs begin to publish."""
        return self._run.world.start_ns + self._run.began_ns

    @property
    def end_ns(self) -> int | None:
        """When they end."""
        return self._run.world.start_ns + self._run.ends_ns if self._run.ends_ns else None

    @property
    def now_ns(self) -> int:
        """How far it has come."""
        return self._run.world.time_ns

    def start(self) -> Iterator[str]:
        """Power on."""
        yield "synchronising clocks and binding channels"
        self._run.start()

    def advance(self, until_ns: int) -> None:
        """Let time pass."""
        self._run.world.run_ns(max(0, until_ns - self.now_ns))

    def close(self) -> None:
        """End all programs."""
        self._run.world.close()


@lru_cache(maxsize=16)
def _prepare(path: Path, mtime_ns: int, size: int) -> PreparedSystem:
    """The plan and the types of a file: they stay the same while it does, also when it is played again."""
    return PreparedSystem.of(load_system(path))


def make_scenario(text: str) -> SimulatedSystem | None:
    """A system file, such as `examples/crossing.toml?faults=errors p=0.05`, with synthetic programs."""
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
