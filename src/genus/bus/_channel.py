"""`EventChannel`: publishing one event type with a quality of service; and the method `publish` of collections.

`publish` is one function for the whole life of the collection, whose code is replaced. Publishing to one handler takes
as long as a few calls of Python functions, so that a step in between would show. Two tricks avoid it, which are all
here and in `targets.dispatch.embed`:

* Each collection has a class of its own, with a function `publish` of its own: Python calls a method of a class quicker
  than a function in an attribute of the object.
* The function stays, and its `__code__` becomes the generated code of the first class that is published; other classes
  have functions in `publishers`. So `p = collection.publish` is as quick as any other way to call it, whether it was
  taken before the first event, before a change of subscriptions, or later. Generated code has all that it uses as
  constants, its counter included, as a function's globals and outer variables cannot be replaced with its code. A
  thread that is in old code goes on with what was current when it began, and counts there.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from genus.bus._clock import LateStart, PeriodicTask
from genus.bus._last_values import LastValuePublisher
from genus.bus._link import Keep, ProblemHandler, Publisher, QoS, SlotTimes
from genus.errors import BusError
from genus.model import Event, Span, is_event_type, is_type, name_of, nanoseconds, vector
from genus.model.internal import retyped_attributes

if TYPE_CHECKING:
    from genus.targets.dispatch import Deliver, Prepare

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


class PublishMethod:
    """State: the function `publish` of one collection."""

    def __init__(self, like: FunctionType) -> None:
        """Make a function that does what another one does, with its name and docstring."""
        self.function = FunctionType(like.__code__, like.__globals__, like.__name__)
        self.function.__qualname__, self.function.__doc__ = like.__qualname__, like.__doc__
        self._first_code = like.__code__

    def use(self, code: CodeType) -> None:
        """Run generated code from the next call on."""
        self.function.__code__ = code

    def reset(self) -> None:
        """Run the first code from the next call on."""
        self.function.__code__ = self._first_code


def new_class(base: type, publish: Any) -> "tuple[type, PublishMethod]":
    """Return a subclass with a function `publish` of its own, which does what that of the base does, and its method."""
    method = PublishMethod(publish)
    names = {"__doc__": base.__doc__, "__module__": base.__module__, "publish": method.function}
    return type(base.__name__, (base,), names), method


def stamp_with(source: str | None, now: Callable[[], datetime] | None) -> "Prepare | None":
    """Return a function that returns an event with the source and the time of publishing, where it has none.

    Types whose `source` is a number get none: the source of a bus is text.
    """
    if source is None and now is None:
        return None

    def stamp(event: Event) -> Event:
        missing: dict[str, Any] = {}
        if source is not None and event.source is None and "source" not in retyped_attributes(type(event)):
            missing["source"] = source
        if now is not None and event.time is None:
            missing["time"] = now()
        return replace(event, **missing) if missing else event

    return stamp


def in_turn(stamp: "Prepare | None", *steps: "Deliver | None") -> "Prepare | None":
    """All that happens to an event before it is delivered; None if nothing does."""
    needed = [step for step in steps if step is not None]
    if stamp is None and not needed:
        return None
    if stamp is None and len(needed) == 1:
        return _only(needed[0])

    def prepare(event: Event) -> Event:
        if stamp is not None:
            event = stamp(event)
        for step in needed:
            step(event)
        return event

    return prepare


def _only(step: "Deliver") -> "Prepare":
    def prepare(event: Event) -> Event:
        step(event)
        return event

    return prepare


class BatchOwner(Protocol):
    """What publishing a batch needs of its bus."""

    @property
    def _preparing(self) -> "Callable[[Any], Event] | None":
        """The function that stamps and checks events before they are sent; None if nothing is done."""

    def _send_all(self, events: Sequence[Event]) -> None:
        """Send events to other processes."""


def publish_each(publish: Callable[[T], object], events: Iterable[T]) -> int:
    """Publish events one after the other; an error says where it stopped. Returns their number."""
    number = -1
    for number, event in enumerate(events):
        try:
            publish(event)
        except Exception as problem:
            problem.add_note(f"publish_all stopped at event {number}, {event!r}; those before it were published")
            raise
    return number + 1


def publish_at_once(bus: BatchOwner, deliver_of: "Callable[[Any], Deliver]", events: Iterable[Any]) -> int:
    """Check all events, send all to other processes, and then deliver all here; returns their number.

    Nothing is published if one cannot be. If a queue here is full, the error is raised when all are delivered.
    """
    prepare = bus._preparing
    prepared: list[Event] = []
    delivers: dict[type, Deliver] = {}
    for number, event in enumerate(events):
        try:
            if event.__class__ not in delivers:
                delivers[event.__class__] = deliver_of(event)
            prepared.append(event if prepare is None else prepare(event))
        except Exception as problem:
            problem.add_note(f"publish_all refused event {number}, {event!r}; none was published")
            raise
    bus._send_all(prepared)
    _deliver_all(delivers, prepared)
    return len(prepared)


def _deliver_all(delivers: "dict[type, Deliver]", events: list[Event]) -> None:
    first: Exception | None = None
    for number, event in enumerate(events):
        try:
            delivers[event.__class__](event)
        except Exception as problem:
            if first is None:
                problem.add_note(f"publish_all failed at event {number}, {event!r}; all {len(events)} were sent")
                first = problem
    if first is not None:
        raise first
