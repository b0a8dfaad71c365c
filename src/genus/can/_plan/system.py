"""A system: one bus, the nodes on it and the event channels they publish on; and bounds and bit rates as text.

Planning and simulation derive from these the identifiers of a channel's frames, how many frames an event takes, and the
longest duration of each. Times are in nanoseconds.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, Self, TypeAlias

import msgspec

from genus.bus import BestEffort, Hard, Soft
from genus.bus.types import QoS
from genus.can._protocol.clock_model import SYNC_PERIOD_NS, ClockAssumptions, expected_precision
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, Identifier, Priority, Timing, padded_size
from genus.can._wire.segments import frame_sizes
from genus.errors import PlanError

_TIME_UNITS = (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))
_BITRATE_UNITS = {"M": 1_000_000, "k": 1_000, "": 1}
_BITRATE = re.compile(r"(\d[\d_]{0,20}(?:\.\d{0,20})?)\s*([kKM]?)\s*(?:(?:bit|b)(?:/s|ps)|bit|Bd)?")


def format_bound(bound_ns: int | None) -> str:
    """Return a bound of time for display: three decimals at most, rounded up; `—` for None.

    `genus.model.format_span` gives a length of time exactly, as files have it.

    >>> format_bound(1_234_567), format_bound(20_000_000), format_bound(None)
    ('1.235 ms', '20 ms', '—')
    """
    if bound_ns is None:
        return "—"
    unit, scale = next((unit, scale) for unit, scale in _TIME_UNITS if abs(bound_ns) >= scale or scale == 1)
    thousandths = -(-bound_ns * 1000 // scale)
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + f" {unit}"


def read_bitrate(text: str) -> int:
    """Bits per second of a text such as `500k` or `83.333 kbit/s`, rounded; ValueError if it is none.

    >>> read_bitrate("500k"), read_bitrate("0.25 Mbit/s"), read_bitrate("125000"), read_bitrate("83.333k")
    (500000, 250000, 125000, 83333)
    """
    found = _BITRATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no bit rate; write bits per second, such as 500k, 1Mbit/s or 83333")
    number, unit = found.groups()
    return round(Decimal(number.replace("_", "")) * _BITRATE_UNITS["k" if unit == "K" else unit])


def format_bitrate(bitrate: int) -> str:
    """Bits per second for display.

    >>> format_bitrate(1_000_000), format_bitrate(500_000), format_bitrate(83_333)
    ('1 Mbit/s', '500 kbit/s', '83.333 kbit/s')
    """
    unit = "M" if bitrate >= _BITRATE_UNITS["M"] else "k"
    return f"{bitrate / _BITRATE_UNITS[unit]:g} {unit}bit/s"


QosName: TypeAlias = Literal["hard", "soft", "none"]
"""A QoS class by its name in system files."""
QOS_NAMES: tuple[QosName, ...] = ("hard", "soft", "none")

ErrorPassivePolicy: TypeAlias = Literal["stop", "plan"]
"""What a bus does about error passive nodes: hard events lose their promise (`stop`), or slots are longer (`plan`)."""
ERROR_PASSIVE_POLICIES: tuple[ErrorPassivePolicy, ...] = ("stop", "plan")

MAX_EVENT = 4096
"""The longest event that can be planned, in bytes."""


class BusSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A bus: its bit rates, and what is assumed of clocks, errors and controllers.

    PlanError if the gap is too short for the clocks, or a node cannot be on a CAN FD bus.

    >>> bus = BusSpec(timing=Timing(1_000_000))
    >>> bus.longest_frame_ns, bus.error_ns, bus.capacity
    (160000, 31000, 8)
    """

    timing: Timing
    gap_ns: int = 20_000
    """The gap between two hard slots, so that they do not overlap if clocks differ."""
    precision_ns: int = 5_000
    """The largest difference between the clock of any node and the time of the bus."""
    error_interval_ns: int | None = None
    """The least time between two bus errors that affect soft and other traffic; None for no such errors."""
    error_passive: ErrorPassivePolicy = "stop"
    """`stop`: a node near the error passive state reports that its hard events are not promised, and sends them as far
    as their slots have time. `plan`: slots have time for the frames that others send while a sender is suspended. Leave
    it at `stop` unless stations are often error passive: `plan` reserves much time."""
    classic_nodes: tuple[str, ...] | None = None
    """The nodes whose controllers know only classic CAN: they destroy every CAN FD frame. None: not known."""
    middleware: bool = True
    """Whether the frames of clock synchronisation, claims and reports are on the bus."""
    sync_period_ns: int = SYNC_PERIOD_NS

    def __post_init__(self) -> None:
        if self.gap_ns < 2 * self.precision_ns:
            raise PlanError(
                f"gap is {self.gap_ns} ns, less than twice the precision of {self.precision_ns} ns: slots could overlap"
            )
        if self.fd and self.classic_nodes:
            raise PlanError(
                f"classic_nodes has {self.classic_nodes[0]!r}, whose controller would destroy every CAN FD frame; "
                "leave out data_bitrate, give it a controller that knows CAN FD, or a classic bus and a gateway"
            )

    @property
    def fd(self) -> bool:
        """Whether events are sent in CAN FD frames."""
        return self.timing.data_bitrate is not None

    @property
    def capacity(self) -> int:
        """The most data bytes of a frame."""
        return FD_BYTES if self.fd else CLASSIC_BYTES

    @property
    def error_ns(self) -> int:
        """The longest time that the signalling of an error takes, after the frame that it hit."""
        return self.timing.error_ns

    @property
    def clock_error_ns(self) -> int:
        """What the analysis counts on: `precision_ns`, or what synchronisation over the bus keeps if that is worse."""
        if not self.middleware:
            return self.precision_ns
        assumed = ClockAssumptions(bit_ns=self.timing.bit_ns)
        return max(self.precision_ns, expected_precision(assumed, self.sync_period_ns))

    @property
    def level_ns(self) -> int:
        """The time that one level of soft priority stands for: the longest duration of an event frame."""
        return self.frame_ns(self.capacity)

    @property
    def longest_frame_ns(self) -> int:
        """The longest duration of any frame; the middleware uses classic frames on CAN FD too."""
        return max(self.level_ns, self.timing.worst_case_ns(CLASSIC_BYTES))

    def frame_ns(self, size: int) -> int:
        """Return the longest duration of an event frame with `size` data bytes."""
        return self.timing.worst_case_ns(size, fd=self.fd)

    def frame_sizes(self, size: int, segmented: bool = False) -> tuple[int, ...]:
        """Return the data lengths of the frames of an event, which is segmented if it does not fit one frame."""
        if segmented or size > self.capacity:
            return tuple(frame_sizes(size, self.capacity))
        return (padded_size(size) if self.fd else size,)


class ForeignFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Frames of another maker on the bus: identifiers that Genus must not use, and how often they come.

    >>> frame = ForeignFrame(name="Drive", first=0x100, last=0x100, extended=False, period_ns=10_000_000)
    >>> frame.rank < 0x100 << 18, frame.text
    (True, '0x100')
    """

    name: str
    first: int
    last: int
    """The last identifier, if it may have several."""
    extended: bool
    size: int = CLASSIC_BYTES
    fd: bool = False
    period_ns: int | None = None
    """The least time between two frames; None if it is not known, and they are not counted."""
    jitter_ns: int = 0

    @property
    def rank(self) -> float:
        """Its priority among 29-bit identifiers: one of 11 bits wins over those with the same leading bits."""
        return self.first if self.extended else (self.first << 18) - 0.5

    def time_ns(self, bus: BusSpec) -> int:
        """Return the longest duration of a frame."""
        return bus.timing.worst_case_ns(self.size, fd=self.fd, extended=self.extended)

    @property
    def text(self) -> str:
        """The identifiers as a system file has them."""
        digits = 8 if self.extended else 3
        last = "" if self.last == self.first else f"-0x{self.last:0{digits}X}"
        return f"0x{self.first:0{digits}X}{last}"


class ChannelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An event channel of a plan: one event type that one node publishes, with its quality of service."""

    name: str
    event: str
    """The name of the event type, or of the channel if there are no types."""
    node: str
    number: int
    """The node's number on the bus."""
    etag: int
    qos_class: QosName
    period_ns: int
    """Hard: the period; soft and none: the least time between two events, apart from the jitter."""
    omissions: int = 0
    sporadic: bool = False
    """Whether slots of a hard channel may stay empty; then the period is the least time between two events."""
    deadline_ns: int | None = None
    expires_ns: int | None = None
    jitter_ns: int = 0
    priority: int = 0
    size: int
    segmented: bool = False
    """Whether events are segmented even if they fit one frame."""
    tagged: int = 0
    """How many bits of the event tag say which attributes are present."""
    carries: tuple[str, ...] = ()
    """The attributes of `Event` that its events carry, where the size was computed from that."""
    subscribers: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    """The data lengths of an event's frames."""
    times: tuple[int, ...] = ()
    """The longest duration of each of these frames."""

    def on_bus(self, bus: BusSpec) -> Self:
        """Return the same channel, with the frames it has on a bus."""
        sizes = bus.frame_sizes(self.size, self.segmented)
        return msgspec.structs.replace(self, sizes=sizes, times=tuple(bus.frame_ns(size) for size in sizes))

    @property
    def raw(self) -> bool:
        """Whether its only frame holds the payload without a tail byte."""
        return not self.segmented and len(self.sizes) == 1

    @property
    def id(self) -> int:
        """The identifier of its frames; for a soft channel the one with the highest priority."""
        priority = {
            "hard": Priority.HARD,
            "soft": Priority.SOFT_FIRST,
            "none": Priority.NONE if self.priority == 0 else Priority.BULK,
        }[self.qos_class]
        return Identifier(priority, self.number, self.etag).pack()

    @property
    def frames(self) -> int:
        """The number of frames of an event."""
        return len(self.times)

    @property
    def frame_ns(self) -> int:
        """The duration of the longest frame."""
        return max(self.times)

    @property
    def last_ns(self) -> int:
        """The duration of the last frame."""
        return self.times[-1]

    @property
    def event_ns(self) -> int:
        """The bus time of an event if no frame fails."""
        return sum(self.times)

    @property
    def qos(self) -> QoS:
        """The quality of service with which a node announces the channel."""
        period = f"{self.period_ns}ns"
        if self.qos_class == "hard":
            return Hard(period=period, omissions=self.omissions, sporadic=self.sporadic)
        if self.qos_class == "soft":
            expires = None if self.expires_ns is None else f"{self.expires_ns}ns"
            return Soft(deadline=f"{self.deadline_ns}ns", expires=expires, period=period)
        return BestEffort(priority=self.priority)


class System(msgspec.Struct, frozen=True):
    """A bus with its event channels, in the order of the file, and the numbers of its nodes."""

    bus: BusSpec
    channels: tuple[ChannelSpec, ...]
    nodes: Mapping[str, int]
    source: str = "system"
    """The name of the file, for messages."""
    warnings: tuple[str, ...] = ()
    """What is allowed in the file but probably wrong, each as a sentence."""
    foreign: tuple[ForeignFrame, ...] = ()
    """The frames of other makers on the bus, and reserved identifiers."""
    types: str | None = None
    """The module of the event types as the file names it."""
    sizes_without: Mapping[str, Mapping[str, int]] = {}
    """By optional attribute, the sizes in bytes of channels whose events would take fewer frames without it."""

    @property
    def hard(self) -> tuple[ChannelSpec, ...]:
        """The hard channels, which need slots."""
        return self.of_class("hard")

    @property
    def soft(self) -> tuple[ChannelSpec, ...]:
        """The soft channels, sent by deadline."""
        return self.of_class("soft")

    @property
    def none(self) -> tuple[ChannelSpec, ...]:
        """The channels without real time, sent by fixed priority."""
        return self.of_class("none")

    def of_class(self, qos_class: QosName) -> tuple[ChannelSpec, ...]:
        """Return the channels of one QoS class."""
        return tuple(channel for channel in self.channels if channel.qos_class == qos_class)

    def channel(self, name: str) -> ChannelSpec:
        """Return the channel with a name; PlanError if there is none."""
        found = next((channel for channel in self.channels if channel.name == name), None)
        if found is None:
            raise PlanError(f"{self.source} has no channel {name!r}")
        return found

    def with_channel(self, name: str, **changes: Any) -> Self:
        """The system with some fields of one channel changed; PlanError if there is no such channel."""
        self.channel(name)
        return msgspec.structs.replace(
            self,
            channels=tuple(
                msgspec.structs.replace(each, **changes).on_bus(self.bus) if each.name == name else each
                for each in self.channels
            ),
        )

    def on_bus(self, bus: BusSpec) -> Self:
        """Return the same channels on another bus."""
        return msgspec.structs.replace(self, bus=bus, channels=tuple(channel.on_bus(bus) for channel in self.channels))
