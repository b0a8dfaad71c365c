"""SYSTEM.toml: the file in which a system is described, read into a `System`."""

import tomllib
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from genus.can.plan.system import LONGEST_EVENT, QOS_CLASSES, Bus, Channel, QosClass, System
from genus.can.plan.tables import Table
from genus.can.plan.types import EventTypes
from genus.can.wire.identifier import ETAG_MASK, FIRST_NODE, LAST_NODE
from genus.can.wire.length import Timing
from genus.errors import BusError, PlanError

FIRST_ETAG = 128
"""The first event tag that is not the middleware's own."""

_BUS_KEYS = ("bitrate", "data_bitrate", "gap", "precision", "error_interval", "types", "middleware", "sync_period")
_BUS_SPANS = ("gap", "precision", "error_interval", "sync_period")
_COMMON_KEYS = ("name", "event", "node", "class", "period", "size", "carries", "segmented", "subscribers")
_CLASS_KEYS = {
    "hard": ("omissions",),
    "soft": ("deadline", "expires", "jitter"),
    "none": ("deadline", "jitter", "priority"),
}
_CHANNEL_KEYS = tuple(dict.fromkeys((*_COMMON_KEYS, *(key for keys in _CLASS_KEYS.values() for key in keys))))


class _Draft(NamedTuple):
    """A channel as it was read, before nodes and events have numbers."""

    table: Table
    channel: Channel
    typed: bool


def load_system(path: str | Path) -> System:
    """The system described in a file; PlanError says what is wrong with it and where."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except OSError as problem:
        raise PlanError(f"{path}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise PlanError(f"{path}: is not UTF-8 text") from problem
    return parse_system(text, str(path))


def parse_system(text: str, source: str = "system") -> System:
    """The system a text describes; a relative path to event types counts from the folder of `source`.

    >>> system = parse_system('''
    ... [bus]
    ... bitrate = "1Mbit/s"
    ... [[channel]]
    ... name = "occupancy"
    ... node = "loop-1"
    ... class = "hard"
    ... period = "10ms"
    ... size = 8
    ... ''')
    >>> [(channel.name, hex(channel.id), channel.frame_ns) for channel in system.channels]
    [('occupancy', '0x4080', 160000)]
    """
    try:
        root = Table(source, tomllib.loads(text), ("bus", "channel", "nodes"))
    except tomllib.TOMLDecodeError as problem:
        raise PlanError(f"{source}: {problem}") from None
    root.require("bus")
    table = Table(f"{source}: [bus]", root.entries["bus"], _BUS_KEYS)
    bus = _read_bus(table)
    types = EventTypes.load(table.text("types"), Path(source).parent, table)
    drafts = list(_read_channels(root, types))
    nodes = _number_nodes(Table(f"{source}: [nodes]", root.entries.get("nodes", {})), drafts)
    channels = tuple(channel.on(bus) for channel in _number_channels(drafts, nodes, types))
    return System(bus, channels, nodes, source)


def _read_bus(table: Table) -> Bus:
    table.require("bitrate")
    rates = table.bitrate("bitrate"), table.bitrate("data_bitrate")
    spans = {f"{key}_ns": table.span(key, zero=key == "precision") for key in _BUS_SPANS}
    given: dict[str, Any] = {name: span for name, span in spans.items() if span is not None}
    middleware = table.flag("middleware", True)
    try:
        return Bus(timing=Timing(*cast(tuple[int, int | None], rates)), middleware=middleware, **given)
    except (BusError, PlanError) as problem:
        raise PlanError(f"{table.place}: {problem}") from None


def _read_channels(root: Table, types: EventTypes) -> Iterator[_Draft]:
    tables = root.entries.get("channel", [])
    if not isinstance(tables, list):
        root.refuse("channel", "must be a list of tables; write [[channel]]")
    seen: dict[str, int] = {}
    for number, entries in enumerate(tables, 1):
        table = Table(f"{root.place}: [[channel]] {number}", entries, _CHANNEL_KEYS)
        name = table.text("name") or table.text("event")
        if name is None:
            table.refuse("name", "is missing, and there is no event to take it from")
        table.place += f" {name!r}"
        if name in seen:
            table.refuse("name", f"is that of channel {seen[name]} already; give each publisher's channel its own")
        seen[name] = number
        yield _read_channel(table, name, types)


def _read_channel(table: Table, name: str, types: EventTypes) -> _Draft:
    table.require("node", "class", "period")
    qos_class = cast(QosClass, table.one_of("class", QOS_CLASSES))
    for key in table.entries:
        if key not in _COMMON_KEYS and key not in _CLASS_KEYS[qos_class]:
            owners = " and ".join(each for each, keys in _CLASS_KEYS.items() if key in keys)
            table.refuse(key, f"is for {owners} channels, and this one is {qos_class!r}")
    event = table.text("event")
    channel = Channel(
        name=name,
        event=event or name,
        node=cast(str, table.text("node")),
        number=0,
        etag=0,
        qos_class=qos_class,
        period_ns=cast(int, table.span("period")),
        omissions=table.integer("omissions", 1 if qos_class == "hard" else 0, 0, 15),
        deadline_ns=table.span("deadline"),
        expires_ns=table.span("expires"),
        jitter_ns=cast(int, table.span("jitter", 0, zero=True)),
        priority=table.integer("priority", 0, 0, 1),
        size=_size(table, event, types),
        segmented=table.flag("segmented", False),
        subscribers=table.texts("subscribers"),
    )
    _check_deadline(table, channel)
    return _Draft(table, channel, event is not None and bool(types))


def _check_deadline(table: Table, channel: Channel) -> None:
    if channel.qos_class == "soft":
        table.require("deadline")
    if channel.expires_ns is not None and channel.expires_ns < (channel.deadline_ns or 0):
        table.refuse("expires", "lies before the deadline")


def _size(table: Table, event: str | None, types: EventTypes) -> int:
    """What the file says, or what the event type does."""
    if "size" in table:
        if "carries" in table:
            table.refuse("carries", "says how large events are, and so does size; leave out one")
        size = table.integer("size", 0, 0, LONGEST_EVENT)
        needed = types.own_size(event, table) if event is not None and types else None
        if needed is not None and size < needed:
            table.refuse("size", f"is {size}, but a {event} takes up to {needed} bytes; leave it out")
        return size
    if event is None or not types:
        table.refuse("size", "is missing, and there is no event type to take it from ([bus] types, and event)")
    return types.size(event, table)


def _number_nodes(given: Table, drafts: list[_Draft]) -> dict[str, int]:
    """Node numbers: those that are given, and the free ones from 1 on in the order in which names appear."""
    numbers = {name: given.integer(name, 0, FIRST_NODE, LAST_NODE) for name in given.entries}
    if len(set(numbers.values())) < len(numbers):
        twice = next(name for name, number in numbers.items() if list(numbers.values()).count(number) > 1)
        given.refuse(twice, f"has the number {numbers[twice]}, which another node has too")
    named = [draft.channel.node for draft in drafts]
    named += [name for draft in drafts for name in draft.channel.subscribers]
    free = (number for number in range(FIRST_NODE, LAST_NODE + 1) if number not in set(given.entries.values()))
    for name in named:
        if name not in numbers:
            number = next(free, None)
            if number is None:
                given.refuse(name, f"finds no number: a bus has at most {LAST_NODE} nodes")
            numbers[name] = number
    return numbers


def _number_channels(drafts: list[_Draft], nodes: Mapping[str, int], types: EventTypes) -> Iterator[Channel]:
    """Event tags: the catalog's for typed channels; else one per event from 128 on, in the order they appear."""
    tags = {draft.channel.event: types.etag(draft.channel.event) for draft in drafts if draft.typed}
    taken = set(tags.values())
    free = (tag for tag in count(FIRST_ETAG) if tag not in taken)
    publishers: dict[tuple[str, str], str] = {}
    for table, channel, _ in drafts:
        etag = tags[channel.event] if channel.event in tags else tags.setdefault(channel.event, next(free))
        if etag > ETAG_MASK:
            table.refuse("event", "finds no event tag: all are given")
        other = publishers.setdefault((channel.node, channel.event), channel.name)
        if other != channel.name:
            table.refuse("event", f"is published by {channel.node} on {other!r} already")
        yield msgspec.structs.replace(channel, number=nodes[channel.node], etag=etag)
