"""What Studio looks at: the interface of a source. Each kind is a module `_<kind>_source`."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from genus.filters import Subscription
from genus.model import Event

if TYPE_CHECKING:
    from genus.bus import Bus
    from genus.can import World

from genus.bus import Bus

T = TypeVar("T")

Receive: TypeAlias = "Callable[[int, Event, str | None], None]"
"""Is called with the time in nanoseconds since 1970 in the source's time, an event, and who published it, if known."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table."""

    history: ClassVar[tuple[str, ...]] = ()
    """Fields that are sent with a snapshot only, as a page continues them itself."""


Rows: TypeAlias = Mapping[str, Row]
"""The rows of a table, by key."""
Tables: TypeAlias = Mapping[str, Rows]
"""The rows of some tables, by the table's name."""


@runtime_checkable
class Source(Protocol):
    """Something that Studio shows: a bus, a world, a recording, a lake or a gateway.

    `rows` is called by one thread of Studio, up to 20 times a second, and `open` and `close` once. The others are
    called from any thread.
    """

    name: str
    """Its name in all tables; unique in a Studio."""

    def rows(self, wanted: Collection[str]) -> Tables:
        """Return the present rows of those of the wanted tables that it has, `sources` among them. Does not block."""

    def types(self) -> Collection[type]:
        """Return the event types and kinds that it knows, which texts of subscriptions may name."""

    def counts(self) -> Mapping[str, int]:
        """Return how many events of each type there were so far, by the type's name."""

    def close(self) -> None:
        """Release what it holds; a bus that the user opened stays open."""


@runtime_checkable
class EventSource(Source, Protocol):
    """A source whose events can be seen as they come."""

    def tap(self, receive: Receive) -> Callable[[], None]:
        """Call a function with each event from now on; returns a function that ends it.

        The function is quick and never raises. Without a tap, nothing is done for an event.
        """


@runtime_checkable
class PublishingSource(Source, Protocol):
    """A source on which events can be published."""

    def publish(self, event: Event) -> None:
        """Publish an event; a GenusError says why it cannot be."""


@runtime_checkable
class PlayedSource(Source, Protocol):
    """A source with a time of its own that can be stopped: a recording, a simulation."""

    def play(self) -> None:
        """Go on."""

    def pause(self) -> None:
        """Stop."""

    def set_speed(self, speed: float) -> None:
        """Let time pass so many times as fast as in reality."""

    def seek(self, time_ms: float) -> None:
        """Go on from a time; BusError if this source cannot."""


@runtime_checkable
class WaitingSource(Source, Protocol):
    """A source that begins when somebody looks, such as a recording."""

    def looked_at(self) -> None:
        """The first page looks, or the first one again after there was none."""


@runtime_checkable
class TimedSource(Source, Protocol):
    """A source whose rates are of a time of its own, such as a recording: a hundred a second, however fast it plays."""

    def rates_of(self, counts: Mapping[str, int]) -> Mapping[str, float]:
        """Return how many events of each type there are in a second of its time; 0 while that stands still.

        Args:
            counts: What `counts` has returned now.
        """


@runtime_checkable
class LeapingSource(Source, Protocol):
    """A source whose events may leave out a time: it was set to another one, or was not connected for a while."""

    leaps: int
    """Is counted up before the first event after such a time."""


class FrameSpan(NamedTuple):
    """A frame on a CAN bus. Times are microseconds of the source's time."""

    start_us: float
    end_us: float
    node: str
    channel: str
    kind: str
    """`hard`, `soft`, `none` or `system`."""
    identifier: int
    ok: bool
    """False: it was corrupted, and is sent again."""
    priority: int
    deadline_us: float | None = None
    """Until when it should have been sent, if that is known."""
    waited_us: float | None = None
    """How long it waited for the bus before it began, if that is known."""
    beaten: Sequence[str] = ()
    """The channels that lost the arbitration against it, if that is known."""


class SlotSpan(NamedTuple):
    """A slot of the calendar; the event is delivered at its end."""

    start_us: float
    end_us: float
    channel: str


class Timeline(NamedTuple):
    """A span of the time of a CAN bus."""

    start_us: float
    end_us: float
    frames: Sequence[FrameSpan]
    slots: Sequence[SlotSpan]
    load: float
    """The share of the span in which the bus was busy."""


@runtime_checkable
class TimelineSource(Source, Protocol):
    """A source that has a CAN bus."""

    def timeline(self, start_us: float | None, span_us: float) -> Timeline:
        """Return the frames from a time on; of the last `span_us` without one."""


@runtime_checkable
class AskedSource(Source, Protocol):
    """A source that holds events and is asked for them, such as a lake."""

    def ask(self, subscription: Subscription, most: int) -> Sequence[Mapping[str, Any]]:
        """Return the first events that match, each as its values by name, with `type`; may take seconds."""


class SimulatedSystem(Protocol):
    """Worlds that run together, and buses besides; one thread starts, advances and closes it.

    All times are nanoseconds since 1970, in the time that is simulated.
    """

    @property
    def worlds(self) -> "Mapping[str, World]":
        """Its worlds, by the name of their source on the page."""

    @property
    def buses(self) -> "Mapping[str, Bus]":
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


def is_part(source: Source) -> bool:
    """Return whether another source has the events of a source as well, which then names it as `part_of`."""
    return getattr(source, "part_of", None) is not None


class Failures:
    """State: what sources raised when they were last asked; the others are shown nevertheless."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], str] = {}

    def ask(self, source: Source, what: str, read: Callable[[], T], otherwise: T) -> T:
        """Return what a function of a source returns; `otherwise` if it raises, which is logged when it begins to."""
        try:
            found = read()
        except Exception as problem:  # of a source of a user's own, or of the link of a bus
            if (source.name, what) not in self._texts:
                logging.getLogger("genus.studio").exception("%s: its %s cannot be read", source.name, what)
            self._texts[source.name, what] = f"{what} cannot be read: {type(problem).__name__}: {problem}"
            return otherwise
        self._texts.pop((source.name, what), None)
        return found

    def text(self, source: Source) -> str:
        """Return what is wrong with a source now; empty if nothing is."""
        return "; ".join(text for (name, _), text in self._texts.items() if name == source.name)
