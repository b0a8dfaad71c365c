"""A system: one bus, the nodes on it and the channels they publish on, with all numbers worked out.

Everything that planning and simulation need follows from these: what identifier a channel's frames have, how many an
event takes and how long each of them keeps the bus at most. Times are nanoseconds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from json import dumps
from typing import Any, Literal, Self, TypeAlias

import msgspec

from genus.bus._qos import Hard, NonReal, QoS, Soft
from genus.can._wire.frame import Identifier, Priority
from genus.can._wire.length import Timing, padded_size
from genus.can._wire.segments import CLASSIC, FD, frame_sizes
from genus.errors import PlanError

QosClass: TypeAlias = Literal["hard", "soft", "none"]
QOS_CLASSES: tuple[QosClass, ...] = ("hard", "soft", "none")

LONGEST_EVENT = 4096
"""The longest event that is planned for, in bytes."""


class Bus(msgspec.Struct, frozen=True, kw_only=True):
    """The medium: its bit rates, and what is assumed of clocks and of errors.

    >>> bus = Bus(timing=Timing(1_000_000))
    >>> bus.longest_frame_ns, bus.error_ns, bus.capacity
    (160000, 31000, 8)
    """

    timing: Timing
    gap_ns: int = 20_000
    """What separates two hard slots, so that they do not meet where clocks differ."""
    precision_ns: int = 5_000
    """How far the clock of any node is from the bus's time, at most."""
    error_interval_ns: int | None = None
    """The least time between two bus errors that hit soft and other traffic; None for no such errors."""
    middleware: bool = True
    """Whether clock synchronisation, claims and reports are on the bus."""
    sync_period_ns: int = 20_000_000

    def __post_init__(self) -> None:
        if self.gap_ns < 2 * self.precision_ns:
            raise PlanError(
                f"gap is {self.gap_ns} ns, less than twice the precision of {self.precision_ns} ns: slots could meet"
            )

    @property
    def fd(self) -> bool:
        """Whether events travel in CAN FD frames."""
        return self.timing.data_bitrate is not None

    @property
    def capacity(self) -> int:
        """The most data bytes of a frame."""
        return FD if self.fd else CLASSIC

    @property
    def error_ns(self) -> int:
        """How long an error keeps the bus, after the frame that it hit."""
        return self.timing.error_ns

    @property
    def level_ns(self) -> int:
        """How much nearer a deadline is with each level of soft priority: the longest event frame."""
        return self.frame_ns(self.capacity)

    @property
    def longest_frame_ns(self) -> int:
        """The longest frame of any kind; on CAN FD the middleware still speaks in classic frames."""
        return max(self.level_ns, self.timing.worst_case_ns(CLASSIC))

    def frame_ns(self, size: int) -> int:
        """How long an event frame with `size` data bytes takes at most."""
        return self.timing.worst_case_ns(size, fd=self.fd)

    def sizes_of(self, size: int, segmented: bool = False) -> tuple[int, ...]:
        """The data lengths of the frames of an event; it is cut into segments where one frame cannot hold it."""
        if segmented or size > self.capacity:
            return tuple(frame_sizes(size, self.capacity))
        return (padded_size(size) if self.fd else size,)


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """What one node publishes of one kind of event, and with which quality of service."""

    name: str
    event: str
    """The event type's name, or the channel's own where there are no types."""
    node: str
    number: int
    """The node's number on the bus."""
    etag: int
    qos_class: QosClass
    period_ns: int
    """Hard: the period; soft and none: the least time between two events, but for the jitter."""
    omissions: int = 0
    deadline_ns: int | None = None
    expires_ns: int | None = None
    jitter_ns: int = 0
    priority: int = 0
    size: int
    segmented: bool = False
    """Whether events go in segments though they may fit a frame."""
    subscribers: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    """The data lengths of an event's frames."""
    times: tuple[int, ...] = ()
    """How long each of them takes at most."""

    def on(self, bus: Bus) -> Self:
        """The same channel with its frames worked out for a bus."""
        sizes = bus.sizes_of(self.size, self.segmented)
        return msgspec.structs.replace(self, sizes=sizes, times=tuple(bus.frame_ns(size) for size in sizes))

    @property
    def raw(self) -> bool:
        """Whether the data of its only frame are the event, without a tail byte."""
        return not self.segmented and len(self.sizes) == 1

    @property
    def id(self) -> int:
        """The identifier of its frames; that of a soft channel at its most urgent."""
        priority = {
            "hard": Priority.HARD,
            "soft": Priority.SOFT_FIRST,
            "none": Priority.NONE if self.priority == 0 else Priority.BULK,
        }[self.qos_class]
        return Identifier(priority, self.number, self.etag).pack()

    @property
    def frames(self) -> int:
        """How many frames an event takes."""
        return len(self.times)

    @property
    def frame_ns(self) -> int:
        """The longest of its frames."""
        return max(self.times)

    @property
    def last_ns(self) -> int:
        """The last of its frames."""
        return self.times[-1]

    @property
    def event_ns(self) -> int:
        """The bus time of an event without errors."""
        return sum(self.times)

    @property
    def qos(self) -> QoS:
        """The contract with which a node announces the channel."""
        period = f"{self.period_ns}ns"
        if self.qos_class == "hard":
            return Hard(period=period, omissions=self.omissions)
        if self.qos_class == "soft":
            expires = None if self.expires_ns is None else f"{self.expires_ns}ns"
            return Soft(deadline=f"{self.deadline_ns}ns", expires=expires, period=period)
        return NonReal(priority=self.priority)


class System(msgspec.Struct, frozen=True):
    """A bus with its channels, in the order of the file, and the numbers of its nodes."""

    bus: Bus
    channels: tuple[Channel, ...]
    nodes: Mapping[str, int]
    source: str = "system"
    """Where it was read, for messages."""

    @property
    def hard(self) -> tuple[Channel, ...]:
        """The channels that need slots."""
        return self.of_class("hard")

    @property
    def soft(self) -> tuple[Channel, ...]:
        """The channels sent by deadline."""
        return self.of_class("soft")

    @property
    def none(self) -> tuple[Channel, ...]:
        """The channels sent by fixed priority."""
        return self.of_class("none")

    def of_class(self, qos_class: QosClass) -> tuple[Channel, ...]:
        """The channels of one class."""
        return tuple(channel for channel in self.channels if channel.qos_class == qos_class)

    def channel(self, name: str) -> Channel:
        """The channel of a name."""
        found = next((channel for channel in self.channels if channel.name == name), None)
        if found is None:
            raise PlanError(f"{self.source} has no channel {name!r}")
        return found

    def changed(self, name: str, **changes: Any) -> Self:
        """The system with one channel otherwise; its frames are worked out anew."""
        self.channel(name)
        return msgspec.structs.replace(
            self,
            channels=tuple(
                msgspec.structs.replace(each, **changes).on(self.bus) if each.name == name else each
                for each in self.channels
            ),
        )

    def on(self, bus: Bus) -> Self:
        """The same channels on another bus."""
        return msgspec.structs.replace(self, bus=bus, channels=tuple(channel.on(bus) for channel in self.channels))


# Systems and times as text: what SYSTEM.toml would say.


_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
_BARE_KEY = re.compile("[A-Za-z0-9_-]+")


def spell_span(span_ns: int) -> str:
    """A length of time, exactly, as a system file has it.

    >>> spell_span(562_000), spell_span(1_234_567), spell_span(20_000_000), spell_span(0)
    ('562us', '1.234567ms', '20ms', '0ns')
    """
    scale, unit = next((scale, unit) for scale, unit in _UNITS if abs(span_ns) >= scale or scale == 1)
    whole, rest = divmod(abs(span_ns), scale)
    digits = str(rest).zfill(len(str(scale)) - 1).rstrip("0") if rest else ""
    return f"{'-' if span_ns < 0 else ''}{whole}{'.' if digits else ''}{digits}{unit}"


def format_span(span_ns: int | None) -> str:
    """A length of time for people: three decimals at most, rounded up, as it is a bound.

    >>> format_span(1_234_567), format_span(20_000_000), format_span(None)
    ('1.235 ms', '20 ms', '—')
    """
    if span_ns is None:
        return "—"
    scale, unit = next((scale, unit) for scale, unit in _UNITS if abs(span_ns) >= scale or scale == 1)
    thousandths = -(-span_ns * 1000 // scale)
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + f" {unit}"


def format_bitrate(bitrate: int) -> str:
    """Bits per second for people.

    >>> format_bitrate(1_000_000), format_bitrate(500_000)
    ('1 Mbit/s', '500 kbit/s')
    """
    return f"{bitrate / 1_000_000:g} Mbit/s" if bitrate >= 1_000_000 else f"{bitrate / 1_000:g} kbit/s"


def spell_system(system: System) -> str:
    """The text of a system file that describes a system; sizes are written out, types are not needed."""
    lines = ["[bus]", *_entries(_bus(system.bus)), "", "[nodes]", *_entries(system.nodes.items())]
    for channel in system.channels:
        lines += ["", "[[channel]]", *_entries(_channel(channel))]
    return "\n".join(lines) + "\n"


def _bus(bus: Bus) -> Iterator[tuple[str, object]]:
    yield "bitrate", bus.timing.bitrate
    yield "data_bitrate", bus.timing.data_bitrate
    yield "gap", spell_span(bus.gap_ns)
    yield "precision", spell_span(bus.precision_ns)
    yield "error_interval", _optional(bus.error_interval_ns)
    yield "middleware", bus.middleware
    yield "sync_period", spell_span(bus.sync_period_ns)


def _channel(channel: Channel) -> Iterator[tuple[str, object]]:
    yield "name", channel.name
    yield "event", channel.event
    yield "node", channel.node
    yield "class", channel.qos_class
    yield "period", spell_span(channel.period_ns)
    if channel.qos_class == "hard":
        yield "omissions", channel.omissions
    else:
        yield "deadline", _optional(channel.deadline_ns)
        yield "expires", _optional(channel.expires_ns)
        yield "jitter", spell_span(channel.jitter_ns)
    if channel.qos_class == "none":
        yield "priority", channel.priority
    yield "size", channel.size
    yield "segmented", channel.segmented
    yield "subscribers", list(channel.subscribers)


def _optional(span_ns: int | None) -> str | None:
    return None if span_ns is None else spell_span(span_ns)


def _entries(pairs: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Lines of a table; numbers, flags, texts and lists are written in TOML as in JSON, but for one character."""
    for key, value in pairs:
        if value is not None:
            shown = key if _BARE_KEY.fullmatch(key) else dumps(key, ensure_ascii=False)
            yield f"{shown} = {dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
