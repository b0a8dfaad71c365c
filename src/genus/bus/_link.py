"""Links: how a bus reaches other processes, and the clock that it takes its time from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from genus.bus._qos import Keep, QoS
from genus.filters import Subscription
from genus.model import Event

ProblemHandler: TypeAlias = Callable[[Any], object]
"""A function that gets what a medium could not keep; each medium documents its own problems."""

WaitFor: TypeAlias = Callable[[Callable[[], bool], float | None], bool]
"""`wait_for(condition, timeout)`: block until the condition holds or so many seconds have passed; whether it holds."""


class Delivery(Protocol):
    """Takes the events that a link received: call it with an event. Never raises; errors are logged."""

    def __call__(self, event: Event) -> None:
        """Give an event of any class to those who subscribed to it."""

    def for_class(self, cls: type) -> Callable[[Event], None]:
        """Return the same for events of exactly one class: quicker, and valid for as long as the link is."""


class Capabilities(msgspec.Struct, frozen=True):
    """What has to be known of a link before it is used; each is named as the method that a link with it overrides."""

    send_all: bool = False
    """It sends many events at once: all of them or, if one is not valid, none."""
    last_values: bool = False
    """It knows the kept events of others, so that new subscribers have to catch up."""
    tap: bool = False
    """Gateways can follow its events by the numbers of their senders, as on a CAN bus."""


class Link(ABC):
    """A connection to other processes: sends what is published here, delivers what was published there.

    Derive from it and implement `open`, `send`, `close` and `counters`. All else has a default that is right for a
    medium without that ability; override what yours can do. A link that overrides a method named in `Capabilities`
    also states it: `capabilities = Capabilities(send_all=True)`. `register_link` makes a kind of link known to
    `open_bus`.
    """

    capabilities: ClassVar[Capabilities] = Capabilities()

    def __init_subclass__(cls) -> None:
        """Raise TypeError if a link states a capability without its method, or has the method and does not state it."""
        names = Capabilities.__struct_fields__
        own = [name for name in names if getattr(cls, name) is not getattr(Link, name)]
        stated = [name for name in names if getattr(cls.capabilities, name)]
        if own != stated:
            raise TypeError(
                f"{cls.__name__} states the capabilities {', '.join(stated) or 'none'}, but of their methods it has "
                f"{', '.join(own) or 'none'}; state what it has: "
                f"capabilities = Capabilities({', '.join(f'{name}=True' for name in own)})"
            )

    @abstractmethod
    def open(self, deliver: Delivery) -> None:
        """Start calling `deliver` with events that others published."""

    @abstractmethod
    def send(self, event: Event) -> None:
        """Send an event that was published here."""

    @abstractmethod
    def close(self) -> None:
        """Stop and release all resources."""

    @abstractmethod
    def counters(self) -> Mapping[str, int]:
        """Return the numbers of events sent, received, dropped and rejected."""

    def stop_receiving(self) -> None:
        """Leave what was not delivered to the medium, if that keeps it: the bus is closing and delivers no more."""
        return

    def send_all(self, events: Sequence[Event]) -> None:
        """Send events that were published here, in their order; override it if many at once are quicker."""
        for event in events:
            self.send(event)

    # -- subscriptions and channels ----------------------------------------------------------------------------------

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        """Receive what a subscription matches; returns a function that ends it. By default all is received."""
        return end_nothing

    def share(
        self,
        subscription: Subscription,
        deliver: Callable[[Event], bool],
        on_problem: Callable[[], list[ProblemHandler]],
    ) -> Callable[[], None] | None:
        """Call a function with the share of this process of what a subscription matches, also of its own events.

        Each event goes to one of the consumers in all processes that share an equal subscription. The function may get
        events of the right types that do not match, and returns False for an event that is lost, as nobody takes it.
        `on_problem` gives the problem handlers that there are. Returns a function that ends it; None, as by
        default, if the medium cannot share.
        """
        return None

    def announce(
        self,
        cls: type,
        qos: QoS,
        on_problem: ProblemHandler | None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> "Publisher | None":
        """Prepare to publish a type with a quality of service; BusError with the reason if it cannot be kept.

        With `keep`, the newest event of each key is kept for those who subscribe later; the publisher gives its own
        bus the very object that it was called with, as `last_values` says. None, as by default, if the medium has no
        channels: the bus then sends by `send`, and refuses deadlines and `keep`.
        """
        return None

    def repeats(self, cls: type) -> bool:
        """Return whether the last event of a type is sent again every period, where its quality of service says so."""
        return False

    def last_values(self, subscription: Subscription) -> list[Event]:
        """Return the kept events of others that this process knows and that a subscription matches.

        A new subscriber gets what this gives, which is called after `listen`, and what `deliver` is called with. So
        that it gets each event once, and never an older one after a newer one of the same key:

        * an event is made known here before `deliver` is called with it, and both give the same object;
        * events of a key are delivered in their order, each by a call that has returned before the next is made known;
        * `deliver` is called without a lock that `last_values` needs.
        """
        return []

    # -- what the medium knows ---------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether the medium can be reached now; True where it cannot be lost."""
        return True

    @property
    def types(self) -> Mapping[str, Any]:
        """The classes of the types and kinds that the medium brings, such as those of a database, by name."""
        return {}

    @property
    def clock(self) -> "Clock | None":
        """The clock of the medium as this participant knows it, once open; None if it has none."""
        return None

    @property
    def participant(self) -> int | None:
        """The uid of this participant, 64 bits; None while it has none. Numbers of requests are made of it."""
        return None

    def wanted_by(self, event: Event) -> Collection[str] | None:
        """Return the names of the participants that subscribed to an event; None if the medium cannot know."""
        return None

    def asked_of(self, cls: type[Event]) -> list[str]:
        """Return the subscriptions of others to a type, as text, whatever else they ask; none if it cannot know."""
        return []

    @property
    def interest_delay_s(self) -> float | None:
        """How long it may take now until what others want is known here; None if that is not known."""
        return None

    def on_interest(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change of what others want; returns a function that ends it.

        The function may call `wanted_by`, so no lock is held that this needs.
        """
        return end_nothing

    # -- for gateways to a medium whose senders have numbers ---------------------------------------------------------

    @property
    def node_number(self) -> int | None:
        """The number of this node; None until it has one."""
        return None

    def tap(self, receive: Callable[[Event, int | None], object]) -> Callable[[], None]:
        """Call a function with each event and the number of the node that sent it, None if this one did."""
        return end_nothing

    def pass_on(self, event: Event) -> None:
        """Send an event of another network: those who tap this link do not get it."""
        self.send(event)


def end_nothing() -> None:
    """End what was not begun."""


class Publisher:
    """Handle for publishing one event type with a quality of service; derive from it and implement `publish`."""

    def publish(self, event: Any, /) -> None:
        """Publish an event of the type."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """Publish no more."""

    def forget(self, event: Any) -> None:
        """Keep an event, the newest of its key, no more; only called with `keep`."""

    def forget_key(self, values: Sequence[object]) -> None:
        """Keep no event any more whose key has these values, in the order of `keep_by`, whoever published it."""

    @property
    def slot(self) -> "SlotTimes | None":
        """When the slots of a calendar are that its events go in; None if it has none."""
        return None


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Do not make the call."""


class Clock(Protocol):
    """Where a bus takes its time from: the system's clock, a synchronised one, or a simulator's virtual time."""

    wait_for: WaitFor | None
    """Blocks a program in this clock's time; None if real time passes by itself."""

    def time_ns(self) -> int:
        """Return the nanoseconds since 1970, UTC."""

    def precision_ns(self) -> int | None:
        """Return a bound on the error of `time_ns`; None while there is none."""

    def sleep(self, seconds: float) -> None:
        """Block until so much time has passed."""

    def call_at(self, time_ns: int, function: Callable[[], object]) -> Timer:
        """Call a function at a time of this clock, or at once if that is past."""

    def close(self) -> None:
        """Make no more calls."""


class SlotTimes(msgspec.Struct, frozen=True):
    """When the slots of a hard channel are, in the bus's time: they start `offset_ns` after multiples of the period."""

    period_ns: int
    offset_ns: int
    length_ns: int
    """From the start, when the event is taken, to the deadline, when it is delivered."""
