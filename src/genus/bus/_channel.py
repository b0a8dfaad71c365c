"""`EventChannel`: publishing one event type with a quality of service."""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from genus.bus._clock import LateStart, PeriodicTask
from genus.bus._last_values import LastValuePublisher
from genus.bus._link import ProblemHandler, Publisher, SlotTimes
from genus.bus._qos import Keep, QoS
from genus.errors import BusError
from genus.model import Span, is_event_type, is_type, name_of, nanoseconds, vector

T = TypeVar("T")


class ChannelOwner(Protocol):
    """What a channel needs of its bus."""

    def _announce(
        self,
        cls: type,
        qos: QoS,
        on_problem: ProblemHandler | None = None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> Publisher:
        """Prepare to publish a type with a quality of service."""

    def every(
        self,
        period: Span,
        function: Callable[[], object],
        *,
        offset: Span | None = None,
        tolerance: Span = "1ms",
        on_late: Callable[[LateStart], object] | None = None,
    ) -> PeriodicTask:
        """Call a function once per period of the bus's time."""


class EventChannel(Generic[T]):
    """One event type that is published with a quality of service; made by `bus.channel(type, qos)`.

    Entering its `with` block announces it, so that everything that takes time (a node number, the catalog, a slot) is
    done before the first event; leaving the block withdraws the announcement. Without a `with` block, call
    `announce()` and `cancel()`.

    >>> from genus import Event, open_bus
    >>> class Valve(Event):
    ...     open: bool
    >>> with open_bus("local:") as bus, bus.channel(Valve) as valves:
    ...     listener = bus.subscribe(Valve, print)
    ...     valves.publish(Valve(open=True))
    Valve(open=True)
    """

    def __init__(
        self,
        bus: ChannelOwner,
        type: type[T],
        qos: QoS,
        keep: Keep | None = None,
        on_problem: ProblemHandler | None = None,
        carries: str | Iterable[str] = (),
    ) -> None:
        if not is_type(type):
            raise BusError(f"{type!r} is neither an event type nor a kind, so it has no channel")
        self.type = type
        self.qos = qos
        self.keep = keep
        self._on_problem = on_problem
        self._carries = (carries,) if isinstance(carries, str) else tuple(carries)
        self._bus = bus
        self._publisher: Publisher | None = None

    def __repr__(self) -> str:
        kept = "" if self.keep is None else f", kept by {', '.join(self.keep.by)}"
        return f"<EventChannel of {name_of(self.type)}, {self.qos}{kept}>"

    def __enter__(self) -> "EventChannel[T]":
        self.announce()
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def announce(self) -> None:
        """Get ready to publish, as entering the `with` block does; a second call does nothing.

        Raises:
            BusError: The medium cannot keep the quality of service; the message has the reason.
        """
        if self._publisher is not None:
            return
        if not is_event_type(self.type):
            raise BusError(
                f"{self!r} cannot be announced: {name_of(self.type)} is a kind, which has no events of its own"
            )
        for name in self._carries:
            vector(self.type).find(name)
        self._publisher = self._bus._announce(self.type, self.qos, self._on_problem, self._carries, self.keep)

    def publish(self, event: T) -> None:
        """Publish an event of exactly this type; a subtype has a channel of its own."""
        if self._publisher is None:
            raise BusError(f"{self!r} was not announced; publish within `with bus.channel(...) as channel:`")
        if type(event) is not self.type:
            raise BusError(f"{self!r} cannot publish {describe_unfit(event)}; a channel carries one type")
        self._publisher.publish(event)

    @property
    def is_announced(self) -> bool:
        """Whether it can publish now."""
        return self._publisher is not None

    @property
    def slot(self) -> SlotTimes | None:
        """When the slots of a hard channel are that is announced; None for others."""
        return None if self._publisher is None else self._publisher.slot

    def every_slot(
        self,
        function: Callable[[], object],
        *,
        lead: Span = "1ms",
        tolerance: Span = "1ms",
        on_late: Callable[[LateStart], object] | None = None,
    ) -> PeriodicTask:
        """Call a function shortly before each slot of a hard channel, so that what it publishes is sent in it.

        Args:
            function: Is called without arguments, in a thread of the bus.
            lead: How long before the start of the slot it is called.
            tolerance: How late a call may be before it counts as late.
            on_late: Is called with a `LateStart`, as by `bus.every`.

        Returns:
            The task, which `cancel()` ends.

        Raises:
            BusError: The channel was not announced, has no slots, or the lead is not shorter than its period.
        """
        slot = self.slot
        if slot is None:
            why = "was not announced" if self._publisher is None else "has no slots; only hard channels have some"
            raise BusError(f"{self!r} {why}")
        lead_ns = nanoseconds(lead, "lead")
        if lead_ns >= slot.period_ns:
            raise BusError(f"lead is {lead}, not shorter than the period of {slot.period_ns} ns")
        offset = f"{(slot.offset_ns - lead_ns) % slot.period_ns}ns"
        return self._bus.every(f"{slot.period_ns}ns", function, offset=offset, tolerance=tolerance, on_late=on_late)

    def forget(self, **key: object) -> int:
        """Keep last values no more: those with the given values, or all of this bus; returns how many it had.

        >>> from genus import Event, Subscription, open_bus
        >>> class Gate(Event):
        ...     open: bool
        >>> with open_bus() as bus, bus.channel(Gate, keep=True) as gates:
        ...     for source in ("north", "south"):
        ...         gates.publish(Gate(open=True, source=source))
        ...     gates.forget(source="north")
        ...     bus.last_values(Subscription(Gate))
        1
        [Gate(source='south', open=True)]
        """
        if not isinstance(self._publisher, LastValuePublisher):
            why = "was not announced" if self.keep is not None else "keeps no last values; give it keep=True"
            raise BusError(f"{self!r} {why}")
        return self._publisher.forget_where(key)

    def cancel(self) -> None:
        """Withdraw the announcement; what was published before is still sent, and last values are still kept.

        A second call does nothing.
        """
        if self._publisher is not None:
            self._publisher.withdraw()
            self._publisher = None


def describe_unfit(event: object) -> str:
    """Return how a message names something that cannot be published.

    >>> from genus import Event
    >>> describe_unfit(Event), describe_unfit(Event()), describe_unfit(3)
    ('Event itself, which is a class (create an event: Event(...))', 'an Event', 'an int')
    """
    if isinstance(event, type):
        return f"{event.__name__} itself, which is a class (create an event: {event.__name__}(...))"
    name = type(event).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
