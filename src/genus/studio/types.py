"""What Studio shows and is shown: sources, layouts, and the rows of its tables, as a page and `/api/TABLE` have them.

A row is plain data that JSON can carry. Times are milliseconds since 1970 in the source's own time, spans are in the
unit that the name ends with, and None is what is not known. The key of a row is unique in its table and stays the same
for as long as the row is about the same thing; it begins with the name of the source and a bar.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

import msgspec

from genus.studio._layout import Alert, Layout, PlotLayout
from genus.studio._source import (
    AskedSource,
    EventSource,
    FrameSpan,
    PlayedSource,
    PublishingSource,
    Receive,
    Row,
    SimulatedSystem,
    SimulationMaker,
    SlotSpan,
    Source,
    Tables,
    TimedSource,
    Timeline,
    TimelineSource,
    WaitingSource,
)

__all__ = [
    "Alert",
    "AlertRow",
    "AskedSource",
    "AttributeCell",
    "ChannelRow",
    "EventSource",
    "FrameSpan",
    "GatewayRow",
    "LakeCommitRow",
    "LakeFollowerRow",
    "LakeTableRow",
    "Layout",
    "NodeRow",
    "PlayedSource",
    "PlotLayout",
    "ProblemRow",
    "PublishingSource",
    "Receive",
    "Row",
    "SimulatedSystem",
    "SimulationMaker",
    "SlotSpan",
    "Source",
    "SourceRow",
    "SubscriptionRow",
    "Tables",
    "TimedSource",
    "Timeline",
    "TimelineSource",
    "TypeChangeRow",
    "TypeRow",
    "WaitingSource",
]


State: TypeAlias = Literal["live", "playing", "paused", "ended", "failed"]
Health: TypeAlias = Literal["fine", "degraded", "wrong", "silent", "nobody", "unknown"]
"""`fine` only where events or participants were seen and nothing is wrong; `silent`: no data; `nobody`: nobody is
there who could send; `unknown`: it cannot be seen from here."""


class SourceRow(Row, frozen=True, kw_only=True):
    """`sources`: what Studio looks at. The key is the name."""

    history: ClassVar[tuple[str, ...]] = ("rates",)

    kind: Literal["bus", "can", "world", "recording", "lake", "gateway"]
    address: str
    state: State = "live"
    note: str = ""
    """What a person should know of it, such as why it failed."""
    health: Health = "unknown"
    why: str = ""
    """A sentence that gives the reason for its health; empty where it is fine."""
    health_since_ms: float | None = None
    """Since when, by Studio's clock."""
    part_of: str = ""
    """Another source that has its events as well, such as the gateway of which it is a side; Studio fills it in. Sums
    over sources leave such a source out, so that each event counts once."""
    time_ms: float | None = None
    """The time on it."""
    counts_from_zero: bool = False
    """Whether its times are counted from 0, as a simulation's may be: they are spans, and no dates."""
    events: int = 0
    rate: float = 0.0
    lost: int = 0
    """Events that are known to be lost, dropped or rejected here."""
    corrupted: int = 0
    """Frames that were corrupted on a CAN bus, and sent again."""
    late: int = 0
    """Deadlines that were missed, and events that expired."""
    nodes: int | None = None
    load: float | None = None
    """The share of time in which a CAN bus is busy."""
    begin_ms: float | None = None
    """A recording or a simulation: when it begins and ends, and how fast it is played."""
    end_ms: float | None = None
    speed: float | None = None
    player: str = ""
    """What plays it: sources of one player are played, paused and sped up together."""
    can_seek: bool = False
    can_publish: bool = False
    has_events: bool = True
    """Whether the views Events and Plot can ask it; False for a source without `tap`."""
    has_timeline: bool = False
    """Whether the view of the CAN bus can draw it."""
    rates: tuple[float, ...] = ()
    """The rate of each of the last 60 seconds, the oldest first; Studio fills it in."""


class ProblemRow(Row, frozen=True, kw_only=True):
    """`problems`: what is wrong now."""

    severity: Literal["bad", "warn"]
    source: str
    what: str
    count: int | None = None
    since_ms: float
    view: str
    """The view that has more, such as `channels`."""
    of: str = ""
    """The key of the row there."""


class AlertRow(Row, frozen=True, kw_only=True):
    """`alerts`: a subscription that Studio keeps, whose matches are problems."""

    name: str
    text: str
    severity: Literal["bad", "warn"]
    sources: tuple[str, ...] = ()
    """The sources that it is for; all if empty."""
    origin: Literal["file", "page"] = "page"
    is_active: bool = False
    """Whether events matched lately."""
    matched: int = 0
    unseen: int = 0
    """Events that came faster than they could be tested."""
    last_ms: float | None = None
    """When the last event matched, by Studio's clock."""
    problem: str = ""
    """Why it does not run, such as a type that is not known yet."""


class AttributeCell(msgspec.Struct, frozen=True):
    """An attribute that a type declares itself."""

    name: str
    bit: int
    type: str
    required: bool
    unit: str | None = None


class TypeRow(Row, frozen=True, kw_only=True):
    """`types`: the event types and kinds of all sources.

    The key is the name; of a class of one source that contradicts the one of this name, `NAME (SOURCE)`.
    """

    name: str = ""
    """The name, where the key has the source as well."""
    source: str = ""
    """The only source that has it so; empty for a type of all sources."""
    parents: tuple[str, ...]
    kind: bool
    family: str | None
    doc: str = ""
    code: str
    factors: tuple[str, ...] = ()
    """The primes of the code, from the root down."""
    etag: int | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    """Value and mask of the event tags of the type and all below it, of 14 bits."""
    attributes: tuple[AttributeCell, ...] = ()
    vector: tuple[str, ...] = ()
    """The attributes of the family, in the order of their bits."""
    deprecated: str | None = None
    events: int = 0
    rate: float = 0.0
    last: str = ""
    last_ms: float | None = None


class TypeChangeRow(Row, frozen=True, kw_only=True):
    """`type_changes`: what changed in the catalog, or was declared, since Studio was opened."""

    at_ms: float
    type: str
    what: str


class ChannelRow(Row, frozen=True, kw_only=True):
    """`channels`: a type as one publisher publishes it, or all of them where the medium does not tell."""

    history: ClassVar[tuple[str, ...]] = ("rates",)

    source: str
    type: str
    publisher: str = ""
    qos: str = ""
    """As text: `hard:10ms`, `soft:20ms:100ms`, `none`; empty if it is not known."""
    is_heard: bool = True
    """False: it was announced by others, and nothing here subscribes to all of its events: they may not be seen."""
    health: Health = "unknown"
    health_since_ms: float | None = None
    """Since when, by Studio's clock."""
    events: int = 0
    last_ms: float | None = None
    """When the last event came, in the source's time, to a second; None if none came yet, or if that is not known."""
    rate: float = 0.0
    jitter_ms: float | None = None
    """Standard deviation of the time between two events."""
    latency_ms: float | None = None
    """Mean time from publishing to arrival."""
    worst_latency_ms: float | None = None
    bound_ms: float | None = None
    """The latency that the plan promises at most."""
    missed: int | None = None
    expired: int | None = None
    lost: int | None = None
    rates: tuple[float, ...] = ()
    """The rate of each of the last 60 seconds, the oldest first."""


class SubscriptionRow(Row, frozen=True, kw_only=True):
    """`subscriptions`: what somebody asked for."""

    source: str
    owner: str = ""
    """The participant or node that asked, or the name of the handler in this process."""
    text: str
    delivered: int | None = None
    rate: float | None = None
    failed: int | None = None
    error: str = ""
    """The last error of the handler."""
    dropped: int | None = None
    waiting: int | None = None
    capacity: int | None = None
    health: Health = "unknown"
    why: str = ""


class NodeRow(Row, frozen=True, kw_only=True):
    """`nodes`: who takes part: nodes of a CAN bus, participants of a network."""

    source: str
    name: str
    number: int | None = None
    uid: str = ""
    host: str = ""
    pid: int | None = None
    program: str = ""
    state: str = "up"
    """`up`, `gone`, `closed`, `down`, `starting`, `error passive`, `bus off`, `not synchronised`, `standing by`."""
    is_well: bool = True
    """False makes the state a problem."""
    health: Health = "unknown"
    why: str = ""
    role: str = ""
    offset_us: float | None = None
    """How far its clock is off the time of the bus, which the time master has; known in a simulation only."""
    precision_us: float | None = None
    """A bound on how far its clock is off the time of the bus."""
    heard_ms: float | None = None
    """When something was last received from it."""
    interests: tuple[str, ...] = ()
    filters: tuple[tuple[int, int], ...] = ()
    """Value and mask of its acceptance filters, of 29 bits."""


class GatewayRow(Row, frozen=True, kw_only=True):
    """`gateways`: a side of a gateway."""

    source: str
    side: str
    address: str = ""
    is_active: bool = True
    is_connected: bool = True
    asked: int = 0
    refused: int = 0
    waiting: int = 0
    heard: int = 0
    unwanted: int = 0
    duplicates: int = 0
    out_of_scope: int = 0
    wanted: int = 0
    crossed: int = 0
    lost: int = 0
    spooled: int = 0
    limited: int = 0
    rate: float = 0.0
    """Events a second that cross to this side."""
    health: Health = "unknown"


class LakeTableRow(Row, frozen=True, kw_only=True):
    """`lake_tables`: a table of a lake."""

    source: str
    table: str
    events: int
    files: int
    bytes: int
    first_ms: float | None = None
    last_ms: float | None = None
    types: tuple[str, ...] = ()


class LakeCommitRow(Row, frozen=True, kw_only=True):
    """`lake_commits`: one of the last commits of a lake."""

    source: str
    version: int
    at_ms: float | None
    what: str
    events: int | None = None
    note: str = ""


class LakeFollowerRow(Row, frozen=True, kw_only=True):
    """`lake_followers`: a stream, an inbox or a derived table of a lake, and how far it has come."""

    source: str
    name: str
    kind: Literal["stream", "inbox", "derived"]
    version: int | None = None
    behind: int | None = None
    """Commits that it has not taken yet."""
    events: int | None = None
    note: str = ""


TABLES: Mapping[str, type[Row]] = {
    "sources": SourceRow,
    "problems": ProblemRow,
    "alerts": AlertRow,
    "types": TypeRow,
    "type_changes": TypeChangeRow,
    "channels": ChannelRow,
    "subscriptions": SubscriptionRow,
    "nodes": NodeRow,
    "gateways": GatewayRow,
    "lake_tables": LakeTableRow,
    "lake_commits": LakeCommitRow,
    "lake_followers": LakeFollowerRow,
}
"""All tables, by name."""
