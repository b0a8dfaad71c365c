"""Links: how a bus reaches other processes, and the clock that it takes its time from."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from genus.bus._qos import Keep, QoS
from genus.filters import Subscription
from genus.model import Event

TroubleHandler: TypeAlias = Callable[[Any], object]
"""A function that gets what a medium could not keep; each medium documents its own troubles."""

WaitFor: TypeAlias = Callable[[Callable[[], bool], float | None], bool]
"""`wait_for(condition, timeout)`: block until the condition holds or so many seconds have passed; whether it holds."""


class Delivery(Protocol):
    """Takes the events that a link received: call it with an event. Never raises; errors are logged."""

    def __call__(self, event: Event) -> None:
        """Give an event of any class to those who subscribed to it."""

    def for_class(self, cls: type) -> Callable[[Event], None]:
        """The same for events of exactly one class: quicker, and valid for as long as the link is."""


class Link(Protocol):
    """A connection to other processes: sends what is published here, delivers what was published there.

    `register_link` makes a kind of link known to `open_bus`.
    """

    def open(self, deliver: Delivery) -> None:
        """Start calling `deliver` with events that others published."""

    def send(self, event: Event) -> None:
        """Send an event that was published here."""

    def close(self) -> None:
        """Stop and release all resources."""

    def counters(self) -> Mapping[str, int]:
        """Numbers of events sent, received, dropped and rejected."""


class Publisher(Protocol):
    """Handle for publishing one event type with a quality of service."""

    def publish(self, event: Any) -> None:
        """Publish an event of the type."""

    def withdraw(self) -> None:
        """Publish no more."""


@runtime_checkable
class KeepingPublisher(Publisher, Protocol):
    """A publisher whose newest events are kept for later subscribers, and can be removed."""

    def forget(self, event: Any) -> None:
        """Keep an event, the newest of its key, no more."""

    def forget_key(self, values: Sequence[object]) -> None:
        """Keep no event any more whose key has these values, in the order of `keep_by`, whoever published it."""


@runtime_checkable
class ListeningLink(Link, Protocol):
    """A link that is informed of subscriptions."""

    def listen(self, subscription: Subscription, on_trouble: TroubleHandler | None) -> Callable[[], None]:
        """Receive what a subscription matches; returns a function that ends it."""


@runtime_checkable
class ChannelLink(ListeningLink, Protocol):
    """A link whose medium keeps deadlines and filters what it receives."""

    def announce(
        self,
        cls: type,
        qos: QoS,
        on_trouble: TroubleHandler | None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> Publisher:
        """Prepare to publish a type with a quality of service; BusError with the reason if it cannot be kept.

        With `keep`, the newest event of each key is kept for those who subscribe later; the publisher gives its own
        bus the very object that it was called with, as `KeepingLink` says.
        """


@runtime_checkable
class RepeatingLink(ChannelLink, Protocol):
    """A link that sends the last event of a channel again every period, where its quality of service says so."""

    def repeats(self, cls: type) -> bool:
        """Whether it does that for a type."""


@runtime_checkable
class TypedLink(Link, Protocol):
    """A link whose medium has event types of its own, such as those of a database."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The classes of these types and kinds, by name."""


@runtime_checkable
class KeepingLink(ListeningLink, Protocol):
    """A link that knows last values: the newest event of each key of the channels that keep one.

    A new subscriber gets what `last_values` gives, which is called after `listen`, and what `deliver` is called with.
    So that it gets each event once, and never an older one after a newer one of the same key:

    * an event is made known to `last_values` before `deliver` is called with it, and both give the same object;
    * events of a key are delivered in their order, each by a call that has returned before the next is made known;
    * `deliver` is called without a lock that `last_values` needs.
    """

    def last_values(self, subscription: Subscription) -> list[Event]:
        """The kept events of others that this process knows and that a subscription matches."""


@runtime_checkable
class InterestLink(Link, Protocol):
    """A link that knows what other participants subscribed to."""

    def wanted_by(self, event: Event) -> Collection[str] | None:
        """The participants that subscribed to an event, by name; None if the medium cannot know."""

    def on_wants(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each change of what others want; returns a function that ends it.

        The function may call `wanted_by`, so no lock is held that this needs.
        """


@runtime_checkable
class ParticipantLink(Link, Protocol):
    """A link whose medium identifies the participants; numbers of requests are then made of that, and not random."""

    @property
    def participant(self) -> int | None:
        """The uid of this participant, 64 bits; None while it has none."""


@runtime_checkable
class BatchLink(Link, Protocol):
    """A link that sends many events at once quicker than one by one."""

    def send_all(self, events: Sequence[Event]) -> None:
        """Send events that were published here, in their order."""


@runtime_checkable
class SharingLink(Link, Protocol):
    """A link over which consumers in several processes can share events: each goes to one of them."""

    def share(
        self,
        subscription: Subscription,
        deliver: Callable[[Event], bool],
        on_trouble: Callable[[], list[TroubleHandler]],
    ) -> Callable[[], None] | None:
        """Call a function with the share of this process of what a subscription matches, also of its own events.

        The others are those that share an equal subscription. The function may get events of the right types that do
        not match, and returns False for an event that is lost, as nobody takes it. `on_trouble` gives the handlers of
        troubles that there are. Returns a function that ends it; None if the medium cannot share.
        """


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Do not make the call."""


class Clock(Protocol):
    """Where a bus takes its time from: the system's clock, a synchronised one, or a simulator's virtual time."""

    wait_for: WaitFor | None
    """Blocks a program in this clock's time; None if real time passes by itself."""

    def time_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""

    def sleep(self, seconds: float) -> None:
        """Block until so much time has passed."""

    def call_at(self, time_ns: int, function: Callable[[], object]) -> Timer:
        """Call a function at a time of this clock, or at once if that is past."""

    def close(self) -> None:
        """Make no more calls."""


@runtime_checkable
class PreciseClock(Clock, Protocol):
    """A clock that knows how far it may be off."""

    def precision_ns(self) -> int | None:
        """A bound on the error of `time_ns`; None while there is none."""


class SlotTimes(msgspec.Struct, frozen=True):
    """When the slots of a hard channel are, in the bus's time: they start `offset_ns` after multiples of the period."""

    period_ns: int
    offset_ns: int
    length_ns: int
    """From the start, when the event is taken, to the deadline, when it is delivered."""


@runtime_checkable
class SlotPublisher(Publisher, Protocol):
    """A publisher whose events may go in slots of a calendar."""

    @property
    def slot(self) -> SlotTimes | None:
        """Its slots; None if it has none."""


@runtime_checkable
class ClockLink(Link, Protocol):
    """A link that has a clock of its own."""

    @property
    def clock(self) -> Clock:
        """The clock of the medium as this participant knows it."""
