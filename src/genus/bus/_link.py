"""Links: how a bus reaches other processes, and the clock that it takes its time from."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from genus.bus._qos import QoS
from genus.filters import Subscription
from genus.model import Event

TroubleHandler: TypeAlias = Callable[[Any], object]
"""A function that gets what a medium could not keep; each medium documents its own troubles."""

WaitFor: TypeAlias = Callable[[Callable[[], bool], float | None], bool]
"""`wait_for(condition, timeout)`: block until the condition holds or so many seconds have passed; whether it holds."""


class Link(Protocol):
    """A connection to other processes: sends what is published here, delivers what was published there.

    `register_link` makes a kind of link known to `open_bus`.
    """

    def open(self, deliver: Callable[[Event], None]) -> None:
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
class ListeningLink(Link, Protocol):
    """A link that is informed of subscriptions."""

    def listen(self, subscription: Subscription, on_trouble: TroubleHandler | None) -> Callable[[], None]:
        """Receive what a subscription matches; returns a function that ends it."""


@runtime_checkable
class ChannelLink(ListeningLink, Protocol):
    """A link whose medium keeps deadlines and filters what it receives."""

    def announce(
        self, cls: type, qos: QoS, on_trouble: TroubleHandler | None, carries: tuple[str, ...] = ()
    ) -> Publisher:
        """Prepare to publish a type with a quality of service; BusError with the reason if it cannot be kept."""


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
class ClockLink(Link, Protocol):
    """A link that has a clock of its own."""

    @property
    def clock(self) -> Clock:
        """The clock of the medium as this participant knows it."""
