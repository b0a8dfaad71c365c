"""`EventChannel`: one event type with a quality of service, to announce, publish on and subscribe to."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from genus.bus._collection import CAPACITY
from genus.bus._listener import Handler, Inbox, Listener
from genus.bus._qos import QoS
from genus.bus._queue import WhenFull
from genus.errors import BusError
from genus.filters import AttributeNames, Predicate, Subscription, Term
from genus.model import is_event_type, is_type, name_of, vector

if TYPE_CHECKING:
    from genus.bus._bus import Bus, Outlet

T = TypeVar("T")

TroubleHandler: TypeAlias = Callable[[Any], object]
"""A function of what a medium could not keep; see the medium's own list of troubles."""


class EventChannel(Generic[T]):
    """One event type with a quality of service; made by `bus.channel(type, qos)`.

    A publisher announces before it publishes, so that everything that takes time is done by then. Leaving its `with`
    block cancels what it announced and subscribed to.

    >>> from genus import Event, open_bus
    >>> class Valve(Event):
    ...     open: bool
    >>> with open_bus("local:") as bus, bus.channel(Valve) as valves:
    ...     listener = valves.subscribe(print)
    ...     valves.announce()
    ...     valves.publish(Valve(open=True))
    Valve(open=True)
    """

    def __init__(self, bus: "Bus", type: type[T], qos: QoS) -> None:
        if not is_type(type):
            raise BusError(f"{type!r} is neither an event type nor a kind, so it has no channel")
        self.bus = bus
        self.type = type
        self.qos = qos
        self._outlet: Outlet | None = None
        self._listeners: dict[Listener[T], None] = {}

    def __repr__(self) -> str:
        return f"<EventChannel of {name_of(self.type)}, {self.qos}>"

    def __enter__(self) -> "EventChannel[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def announce(self, on_trouble: TroubleHandler | None = None, *, carries: str | Iterable[str] = ()) -> None:
        """Get leave to publish; a contract the medium cannot keep is refused here, with the reason.

        `carries` names the context attributes (`time`, `place`, ...) that the events will have besides the type's own:
        on a medium of small frames they decide how many each event takes.
        `on_trouble` is told later of what could not be kept: deadlines missed, events expired or not sent.
        """
        if self._outlet is not None:
            raise BusError(f"{self!r} is announced already")
        if not is_event_type(self.type):
            raise BusError(
                f"{self!r} cannot be announced: {name_of(self.type)} is a kind, which has no events of its own"
            )
        names = (carries,) if isinstance(carries, str) else tuple(carries)
        for name in names:
            vector(self.type).find(name)
        self._outlet = self.bus.outlet(self.type, self.qos, on_trouble, names)

    def publish(self, event: T) -> None:
        """Publish an event of exactly this type."""
        if self._outlet is None:
            raise BusError(f"{self!r} was not announced; call announce() before the first publish()")
        if type(event) is not self.type:
            raise BusError(f"{self!r} cannot publish a {type(event).__name__}; a channel carries one type")
        self._outlet.publish(event)

    def subscribe(
        self,
        handler: Handler[T],
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        capacity: int = CAPACITY,
        full: WhenFull = "drop_oldest",
        on_trouble: TroubleHandler | None = None,
    ) -> Listener[T]:
        """Call a handler with every event that matches, subtypes included; a coroutine function has a queue.

        `on_trouble` is told of periodic events that did not come and of events that were lost.
        """
        subscription = Subscription(self.type, exact=exact, has=has, lacks=lacks, where=where)
        listener = self.bus.collection(self.type).listen(subscription, handler, capacity, full)
        return self._keep(listener, on_trouble)

    def inbox(
        self,
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        capacity: int = CAPACITY,
        full: WhenFull = "drop_oldest",
        on_trouble: TroubleHandler | None = None,
    ) -> Inbox[T]:
        """Keep matching events until they are taken; bounded, `full` being the policy."""
        subscription = Subscription(self.type, exact=exact, has=has, lacks=lacks, where=where)
        inbox = self.bus.collection(self.type).keep(subscription, capacity, full)
        self._keep(inbox, on_trouble)
        return inbox

    def cancel(self) -> None:
        """Publish no more and cancel every subscription made from here; cancelling twice does no harm."""
        if self._outlet is not None:
            self._outlet.withdraw()
            self._outlet = None
        for listener in list(self._listeners):
            listener.cancel()

    def _keep(self, listener: Listener[T], on_trouble: TroubleHandler | None) -> Listener[T]:
        self._listeners[listener] = None
        ends = ExitStack()
        ends.callback(listener.on_cancel)
        ends.callback(self._listeners.pop, listener, None)
        if on_trouble is not None:
            ends.callback(self.bus.hear(listener.subscription, on_trouble))
        listener.on_cancel = ends.close
        return listener
