"""Links: how a bus reaches other processes, the clock that it takes its time from, and qualities of service.

A quality of service is what a channel promises about time. A medium that cannot keep a promise refuses the channel.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, Span, format_span, nanoseconds


class _Quality(msgspec.Struct, frozen=True, eq=False):
    """What the three qualities of service share: they are equal by meaning, however their times are written."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._meaning() == other._meaning()

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct has an inequality of its own

    def __hash__(self) -> int:
        return hash(self._meaning())

    def _meaning(self) -> tuple[object, ...]:
        values = ((field, getattr(self, field)) for field in self.__struct_fields__)
        return tuple(nanoseconds(value) if field in _SPANS and value is not None else value for field, value in values)


_SPANS = frozenset({"period", "deadline", "expires"})
"""The fields of a quality of service that are spans."""


class Hard(_Quality, frozen=True):
    """Hard real time: one event per period, delivered exactly at its deadline even if `omissions` attempts fail.

    The channel needs a slot in the calendar that `genus can plan` makes. A periodic channel (the default) has an event
    in every slot, and its subscribers are told of a slot without one. With `sporadic` a slot may stay empty, and
    `period` is the minimum time between two events: publishing sooner is refused.

    >>> Hard("10ms"), Hard("50ms", omissions=2, sporadic=True)
    (Hard(period='10ms', omissions=1, sporadic=False), Hard(period='50ms', omissions=2, sporadic=True))
    """

    period: Span
    omissions: int = 1
    sporadic: bool = False

    def __post_init__(self) -> None:
        nanoseconds(self.period, "period", zero=False)
        if self.omissions < 0:
            raise BusError(f"omissions is {self.omissions}; it must be 0 or more")


class Soft(_Quality, frozen=True):
    """Soft real time: earliest deadline first; `deadline` and `expires` count from publishing.

    An event that was not sent by its deadline is reported and still sent; one that was not sent when it expires is
    reported and dropped. Without `expires` an event stays valid. An event's own attributes `deadline` and `expires`
    override the channel's. `period`, the minimum time between two events, is used for planning only.

    >>> Soft("20ms") == Soft(0.02)
    True
    """

    deadline: Span
    expires: Span | None = None
    period: Span | None = None

    def __post_init__(self) -> None:
        nanoseconds(self.deadline, "deadline", zero=False)
        _positive(expires=self.expires, period=self.period)
        if self.expires is not None and nanoseconds(self.expires) < nanoseconds(self.deadline):
            raise BusError(f"expires is {self.expires}, before the deadline of {self.deadline}")


class BestEffort(_Quality, frozen=True):
    """No real time: fixed priority below everything that has a deadline; 0 is normal, 1 is bulk.

    With `period`, the last event that was published is sent again every period until the channel is cancelled. That is
    for the cyclic messages of a database on a CAN bus; other media refuse it.
    """

    priority: int = 0
    period: Span | None = None

    def __post_init__(self) -> None:
        _positive(period=self.period)
        if self.priority not in (0, 1):
            raise BusError(f"priority is {self.priority}; it must be 0 (normal) or 1 (bulk)")


class Keep(msgspec.Struct, frozen=True):
    """What a channel with `keep=True` keeps: the newest event of each combination of values of the attributes `by`."""

    by: tuple[str, ...] = ("source",)


def keep_of(keep: bool, keep_by: str | Iterable[str] | None) -> Keep | None:
    """Return what the arguments of a channel ask to keep; BusError if `keep` is neither True nor False."""
    if not isinstance(keep, bool):
        raise BusError(f"keep={keep!r}: write keep=True to keep the newest event of each key, or keep=False")
    if not keep and keep_by is not None:
        raise BusError(f"keep_by={keep_by!r} needs keep=True")
    if not keep:
        return None
    return Keep() if keep_by is None else Keep((keep_by,) if isinstance(keep_by, str) else tuple(keep_by))


QoS: TypeAlias = Hard | Soft | BestEffort
"""A quality of service of an event channel."""


QOS_FORMS = "hard:PERIOD[:OMISSIONS][:sporadic], soft:DEADLINE[:EXPIRES], none[:PRIORITY][:PERIOD]"
"""The text forms of a quality of service."""


def parse_qos(text: str) -> QoS:
    """Return a quality of service as text; BusError if it cannot be read.

    The forms are `hard:PERIOD[:OMISSIONS][:sporadic]`, `soft:DEADLINE[:EXPIRES]` and
    `none[:PRIORITY][:PERIOD]`.

    >>> parse_qos("soft:20ms:100ms"), parse_qos("none")
    (Soft(deadline='20ms', expires='100ms', period=None), BestEffort(priority=0, period=None))
    >>> parse_qos("hard:50ms:sporadic")
    Hard(period='50ms', omissions=1, sporadic=True)
    >>> parse_qos("soft")
    Traceback (most recent call last):
    genus.errors.BusError: 'soft' lacks its deadline; write for example soft:20ms
    """
    kind, *parts = (part.strip() for part in text.split(":"))
    sporadic = kind == "hard" and parts[-1:] == ["sporadic"]
    match kind, parts[:-1] if sporadic else parts:
        case "hard", [period]:
            return Hard(period=period, sporadic=sporadic)
        case "hard", [period, omissions] if omissions.isdecimal():
            return Hard(period=period, omissions=int(omissions), sporadic=sporadic)
        case "soft", [deadline]:
            return Soft(deadline=deadline)
        case "soft", [deadline, expires]:
            return Soft(deadline=deadline, expires=expires)
        case "none", []:
            return BestEffort()
        case "none", [priority] if priority.isdecimal():
            return BestEffort(priority=int(priority))
        case "none", [period]:
            return BestEffort(period=period)
        case "none", [priority, period] if priority.isdecimal():
            return BestEffort(priority=int(priority), period=period)
        case (("hard" | "soft"), []):
            lacking = (
                "period; write for example hard:10ms" if kind == "hard" else "deadline; write for example soft:20ms"
            )
            raise BusError(f"{text!r} lacks its {lacking}")
    raise BusError(f"{text!r} is none of {QOS_FORMS}")


def format_qos(qos: QoS) -> str:
    """Return the text of a quality of service, which `parse_qos` reads; the period of a `Soft` is not part of it.

    >>> format_qos(Hard("10ms")), format_qos(Soft("20ms", expires="1s")), format_qos(BestEffort(priority=1))
    ('hard:10ms', 'soft:20ms:1s', 'none:1')
    >>> format_qos(Hard("10ms", omissions=2, sporadic=True)), format_qos(BestEffort(period="1s"))
    ('hard:10ms:2:sporadic', 'none:1s')
    """
    match qos:
        case Hard():
            parts = ["hard", _short(qos.period), str(qos.omissions) if qos.omissions != 1 else ""]
            parts.append("sporadic" if qos.sporadic else "")
        case Soft():
            parts = ["soft", _short(qos.deadline), _short(qos.expires)]
        case _:
            parts = ["none", str(qos.priority or ""), _short(qos.period)]
    return ":".join(part for part in parts if part)


def _short(span: Span | None) -> str:
    return "" if span is None else format_span(span)


def qos_of(quality: object) -> QoS:
    """Return the quality of service that an argument means: one of the three classes, or its text; BusError for others.

    >>> qos_of("none:1"), qos_of(BestEffort())
    (BestEffort(priority=1, period=None), BestEffort(priority=0, period=None))
    >>> qos_of(42)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genus.errors.BusError: 42 is not a quality of service; give Hard(...), Soft(...) or BestEffort(...), or a text: ...
    """
    if isinstance(quality, str):
        return parse_qos(quality)
    if isinstance(quality, Hard | Soft | BestEffort):
        return quality
    raise BusError(
        f"{quality!r} is not a quality of service; give Hard(...), Soft(...) or BestEffort(...), or a text: {QOS_FORMS}"
    )


def _positive(**spans: Span | None) -> None:
    for what, span in spans.items():
        if span is not None:
            nanoseconds(span, what, zero=False)


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
