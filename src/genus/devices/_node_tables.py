"""The tables of a CAN node in C: channels, slots, subjects and blocks, from a catalog and a plan."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from genus.bus import BestEffort, Hard, Soft
from genus.bus.internal import qos_of
from genus.bus.types import QoS
from genus.can import BusSpec, ChannelSpec, PayloadCodec, Timing
from genus.can.internal import (
    CLASSIC_BYTES,
    FD_BYTES,
    PROTOCOL_FILTER,
    TxChannel,
    class_of,
    padded_size,
    signed_subject,
    subject_uid,
)
from genus.can.types import Plan, Slot
from genus.catalog import Catalog
from genus.devices._program import Program
from genus.devices.types import NodeFeature
from genus.errors import BusError, DeviceError, SpanError
from genus.filters import Subscription
from genus.model import Event, attributes, name_of, nanoseconds
from genus.targets.can import Pair, fit_bank
from genus.targets.internal import registered_types

MAX_ROWS = 254
"""The largest number of rows in a table of the node in C."""
NODE_FEATURES: tuple[NodeFeature, ...] = ("segmentation", "calendar")


class DeviceChannel(msgspec.Struct, frozen=True):
    """A channel that a device publishes: the type, its quality of service, and which attributes of `Event` it carries.

    The quality of service may be its text, such as `soft:20ms`. A hard channel needs a slot of a plan.

    >>> DeviceChannel("Lamp", "soft:20ms", carries=("place",)).qos
    'soft:20ms'
    """

    type: type | str
    qos: QoS | str = BestEffort()
    carries: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.type if isinstance(self.type, str) else name_of(self.type)


class ChannelRow(msgspec.Struct, frozen=True):
    """A channel as the node in C has it."""

    name: str
    subject: int
    etag: int
    width: int
    qos_class: int
    is_bulk: bool
    largest: int
    digest: int
    layout: bytes
    span_ns: int
    expires_ns: int


class SlotRow(msgspec.Struct, frozen=True):
    """A slot that the node sends in (its channel's number) or receives in (None)."""

    slot: Slot
    channel: int | None
    etag: int


class BlockRow(msgspec.Struct, frozen=True):
    """Event tags that the node wants, and how many of their low bits are presence bits."""

    value: int
    mask: int
    width: int


class NodeTables(msgspec.Struct, frozen=True):
    """Everything that a node in C must know, besides its uid."""

    number: int
    timing: Timing
    sync_period_ns: int
    """How often clocks are synchronised."""
    channels: tuple[ChannelRow, ...]
    slots: tuple[SlotRow, ...]
    subjects: tuple[tuple[str, int], ...]
    blocks: tuple[BlockRow, ...]
    known: tuple[tuple[str, int, int], ...]
    """Name, event tag and the leading 24 bits of the subject of each class."""
    filters: tuple[Pair, ...]
    """The acceptance filters of the controller, with that of the middleware's messages."""
    hard_bytes: int = 0
    """The longest payload in a slot that the node sends or receives in."""
    without: frozenset[NodeFeature] = frozenset()
    """Features that are left out."""

    @property
    def data_bytes(self) -> int:
        """The most data of an event's frame."""
        return FD_BYTES if self.timing.data_bitrate else CLASSIC_BYTES


def check_station(plan: Plan, station: str) -> None:
    """Raise DeviceError if a plan has no such station."""
    if station not in _stations(plan):
        raise DeviceError(f"the plan has no station {station!r}; it has {', '.join(sorted(_stations(plan)))}")


def channels_of(plan: Plan, station: str) -> list[DeviceChannel]:
    return [DeviceChannel(spec.event, _qos_of(spec), spec.carries) for spec in _own(plan, station)]


def _own(plan: Plan, station: str) -> list[ChannelSpec]:
    return [spec for spec in plan.system.channels if spec.node == station]


def _qos_of(spec: ChannelSpec) -> QoS:
    match spec.qos_class:
        case "hard":
            return Hard(f"{spec.period_ns}ns", spec.omissions, spec.sporadic)
        case "soft":
            expires = None if spec.expires_ns is None else f"{spec.expires_ns}ns"
            return Soft(f"{spec.deadline_ns or spec.period_ns}ns", expires)
    return BestEffort(priority=spec.priority)


def make_tables(
    program: Program,
    catalog: Catalog,
    subscriptions: Sequence[Subscription],
    channels: Iterable[DeviceChannel],
    plan: Plan | None,
    station: str | None,
    bitrate: int,
    banks: int | None,
    without: Collection[NodeFeature] = (),
) -> NodeTables:
    """Return the tables of a node.

    DeviceError if the plan lacks the station, a hard channel does not fit a slot of it, or what is left out is needed.
    """
    _check_plan(plan, station)
    if unknown := sorted(set(without) - set(NODE_FEATURES)):
        known = ", ".join(NODE_FEATURES)
        raise DeviceError(
            f"a node cannot do without {unknown[0]!r}; it can without {known} and, by late = 0, late types"
        )
    bus = BusSpec(timing=Timing(bitrate)) if plan is None else plan.system.bus
    rows = tuple(_channel_row(each, program, catalog, bus) for each in channels)
    if twice := [name for name, count in Counter(row.name for row in rows).items() if count > 1]:
        raise DeviceError(f"{twice[0]} has more than one channel; a node publishes a type on one")
    own = [] if plan is None or station is None else _own(plan, station)
    _check_sizes(rows, own)
    slots = tuple(_slot_rows(rows, program, catalog, plan, station, bus))
    made = NodeTables(
        number=min((spec.number for spec in own), default=0),
        timing=bus.timing,
        sync_period_ns=bus.sync_period_ns,
        channels=rows,
        slots=slots,
        subjects=tuple(dict.fromkeys((name, subject_uid(name)) for name in _subscribed(subscriptions, catalog))),
        blocks=tuple(dict.fromkeys(_block_rows(subscriptions, catalog))),
        known=tuple((each.name, each.etag, signed_subject(subject_uid(each.name))) for each in program.classes),
        filters=_filters(program, catalog, subscriptions, banks),
        hard_bytes=max((_slot_bytes(each, rows, plan, bus) for each in slots), default=0),
        without=frozenset(without),
    )
    _check_counts(made)
    _check_without(made, program, catalog, plan)
    return made


def unneeded_features(made: NodeTables, program: Program, catalog: Catalog, plan: Plan | None) -> frozenset[str]:
    """Return the features that a node has and could do without."""
    found = {"late"} if program.learns else set[str]()
    for feature in set(NODE_FEATURES) - made.without:
        with suppress(DeviceError):
            _check_without(msgspec.structs.replace(made, without=frozenset({feature})), program, catalog, plan)
            found.add(feature)
    return frozenset(found)


def _check_without(tables: NodeTables, program: Program, catalog: Catalog, plan: Plan | None) -> None:
    """Raise DeviceError if a feature is left out that a channel or a subscription needs."""
    if "calendar" in tables.without and tables.slots:
        slot = tables.slots[0].slot
        verb = "received" if tables.slots[0].channel is None else "sent"
        raise DeviceError(f"{slot.event} is {verb} in a slot, so the node cannot do without the calendar")
    if "segmentation" in tables.without:
        sent = ((row.name, row.largest or None) for row in tables.channels)
        for name, size in (*sent, *_received_sizes(program, catalog, plan)):
            if size is None or size > tables.data_bytes:
                how = "of any length" if size is None else f"of up to {size} bytes"
                raise DeviceError(
                    f"{name} has events {how}, and a frame has {tables.data_bytes}, so the node cannot do without "
                    "segmentation"
                )


def _received_sizes(program: Program, catalog: Catalog, plan: Plan | None) -> Iterator[tuple[str, int | None]]:
    """Yield the longest events of received types: those of the plan, or with all attributes of their own."""
    wanted = [each.name for each in program.classes if any(program.wanted(each))]
    if plan is not None:
        yield from ((spec.event, spec.size) for spec in plan.system.channels if spec.event in wanted)
        return
    for name in wanted:
        codec = PayloadCodec.of(catalog.declare(name), catalog.vector(name), catalog.tagged_attributes(name))
        yield name, codec.max_size_carrying()


def _check_plan(plan: Plan | None, station: str | None) -> None:
    if plan is None and station is not None:
        raise DeviceError(f"station {station!r} is one of a plan; give the plan, too")
    if plan is not None and not plan.ok:
        names = ", ".join(verdict.channel for verdict in plan.refused) or "identifiers that other makers use"
        raise DeviceError(f"the plan is refused ({names}); see `genus can plan`, and make one that is admitted")


def _check_counts(tables: NodeTables) -> None:
    """The node in C counts the rows of its tables in one byte."""
    for name in ("channels", "slots", "subjects", "blocks", "known"):
        count = len(getattr(tables, name))
        if count > MAX_ROWS:
            what = "types" if name == "known" else name
            raise DeviceError(f"the node would have {count} {what}, and may have {MAX_ROWS}; subscribe to fewer types")


def _slot_bytes(row: SlotRow, rows: Sequence[ChannelRow], plan: Plan | None, bus: BusSpec) -> int:
    """Return the longest payload that is sent or received in a slot, with the padding of a CAN FD frame."""
    if row.channel is not None:
        return rows[row.channel].largest
    size = 0 if plan is None else plan.system.channel(row.slot.channel).size
    return padded_size(size) if bus.fd and size <= bus.capacity else size


def _filters(
    program: Program, catalog: Catalog, subscriptions: Sequence[Subscription], banks: int | None
) -> tuple[Pair, ...]:
    if banks is None or not subscriptions:
        return (Pair(*PROTOCOL_FILTER), *program.filters)
    return fit_bank(subscriptions, catalog, banks=banks, always=(PROTOCOL_FILTER,)).pairs


def _check_sizes(rows: Iterable[ChannelRow], specs: Iterable[ChannelSpec]) -> None:
    """Raise DeviceError if a plan has less room for the events of a channel than they may take."""
    sizes = {spec.event: spec.size for spec in specs}
    for row in rows:
        if row.name in sizes and row.largest > sizes[row.name]:
            raise DeviceError(
                f"the plan has size = {sizes[row.name]} for {row.name}, whose events take up to {row.largest} bytes"
            )


def _stations(plan: Plan) -> set[str]:
    specs = plan.system.channels
    return {*(spec.node for spec in specs), *(name for spec in specs for name in spec.subscribers)}


def _channel_row(channel: DeviceChannel, program: Program, catalog: Catalog, bus: BusSpec) -> ChannelRow:
    if channel.name not in program.published:
        raise DeviceError(f"{channel.name} is not published by {program.name}; add it to what is published")
    context = [each.name for each in attributes(Event)]
    if others := [name for name in channel.carries if name not in context]:
        raise DeviceError(
            f"{channel.name} carries its own attributes in any case; name those of {', '.join(context)} that it "
            f"carries, not {', '.join(others)}"
        )
    try:
        qos = qos_of(channel.qos)
    except (BusError, SpanError) as problem:
        raise DeviceError(f"{channel.name}: {problem}") from problem
    made = TxChannel(catalog.declare(channel.name), qos, channel.carries, bus.capacity, fd=bus.fd)
    made.use(catalog)
    assert made.wire_layout is not None
    return ChannelRow(
        name=channel.name,
        subject=made.uid,
        etag=made.etag,
        width=len(catalog.tagged_attributes(channel.name)),
        qos_class=class_of(qos),
        is_bulk=qos == BestEffort(priority=1),
        largest=made.largest or 0,
        digest=made.wire_layout.sign(0).digest,
        layout=made.wire_layout.pack(),
        span_ns=nanoseconds(qos.period) if isinstance(qos, Hard) else made.deadline_ns,
        expires_ns=made.expires_ns or 0,
    )


def _slot_rows(
    rows: Sequence[ChannelRow],
    program: Program,
    catalog: Catalog,
    plan: Plan | None,
    station: str | None,
    bus: BusSpec,
) -> Iterator[SlotRow]:
    """Yield the node's own slots, and those of types that it receives."""
    slots = () if plan is None else plan.calendar.slots
    own = {slot.event: slot for slot in slots if slot.node == station}
    for number, row in enumerate(rows):
        if row.qos_class == class_of(Hard("1ms")):
            if plan is None:
                raise DeviceError(f"{row.name} is hard: it needs a plan of the bus, and the name of this station in it")
            if row.name not in own:
                raise DeviceError(f"{row.name} is hard, but the plan has no slot for it at the station {station!r}")
            _check_slot(row, own[row.name], bus)
            yield SlotRow(own[row.name], number, row.etag)
    wanted = {each.name for each in program.classes if any(program.wanted(each))}
    for slot in slots:
        if slot.node != station and slot.event in wanted:
            yield SlotRow(slot, None, catalog.etag(slot.event))


def _check_slot(row: ChannelRow, slot: Slot, bus: BusSpec) -> None:
    """DeviceError if a hard channel is not what its slot was planned for."""
    if row.span_ns != slot.period_ns:
        wrong = f"its period is {row.span_ns} ns, and {slot.period_ns} ns in the plan"
    elif not row.largest:
        wrong = "its events have no largest size; publish a type without texts of any length, or not hard"
    elif len(bus.frame_sizes(row.largest)) > slot.frames:
        wrong = f"its events have up to {row.largest} bytes, too many for {slot.frames} frame(s) of its slot"
    else:
        return
    raise DeviceError(f"{row.name} is hard, but {wrong}")


def _subscribed(subscriptions: Iterable[Subscription], catalog: Catalog) -> Iterator[str]:
    """Yield the highest types on the bus that subscriptions accept."""
    for asked in subscriptions:
        yield from (name for name in registered_types(asked, catalog)[0] if catalog.has_etag(name))


def _block_rows(subscriptions: Iterable[Subscription], catalog: Catalog) -> Iterator[BlockRow]:
    for asked in subscriptions:
        for name in _subscribed([asked], catalog):
            width = len(catalog.tagged_attributes(name))
            for block in (catalog.own_etags(name),) if asked.exact else catalog.filters(name):
                yield BlockRow(block.value, block.mask, width)
