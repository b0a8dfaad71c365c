"""SYSTEM.toml, the file that describes a system: read into a `System`, and written."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import count
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import msgspec

from genus.can._plan.foreign import PlanTable, foreign_entries, read_foreign_frames
from genus.can._plan.system import (
    ERROR_PASSIVE_POLICIES,
    MAX_EVENT,
    QOS_NAMES,
    BusSpec,
    ChannelSpec,
    QosName,
    System,
)
from genus.can._wire.frame import ETAG_MASK, FIRST_NODE, LAST_NODE, Timing
from genus.can._wire.payload import PayloadCodec
from genus.catalog import Catalog, types_in
from genus.codes import load_module
from genus.errors import BusError, GenusError, PlanError
from genus.model import Event, attributes, name_of
from genus.model.internal import format_nanoseconds


class EventTypes:
    """The event types of the module that a system file names: sizes and event tags; empty if it names none."""

    def __init__(self, classes: dict[str, type[Event]], catalog: Catalog | None) -> None:
        self._classes = classes
        self._catalog = catalog

    @classmethod
    def load(cls, module: str | None, folder: Path, table: PlanTable) -> Self:
        if module is None:
            return cls({}, None)
        try:
            found = types_in(load_module(folder / module if module.endswith(".py") else module))
            catalog = Catalog()
            catalog.register(*found)
        except GenusError as problem:
            table.refuse("types", f"cannot be used: {problem}")
        events = {name_of(each): each for each in found if issubclass(each, Event)}
        if not events:
            table.refuse("types", f"is {module!r}, which declares no event types")
        return cls(events, catalog)

    def __bool__(self) -> bool:
        return bool(self._classes)

    def etag(self, event: str) -> int:
        """The event tag that a new catalog gives to a type; EtagsExhausted if there are too many types for a bus."""
        assert self._catalog is not None
        self._catalog.give_etags(event)
        return self._catalog.etag(event)

    def tagged(self, event: str) -> int:
        """Return how many bits of its event tag say which attributes are present."""
        assert self._catalog is not None
        return len(self._catalog.tagged_attributes(event))

    def codec(self, event: str) -> PayloadCodec | None:
        """Return how events of a type are written to frames; None if the module does not declare it."""
        if self._catalog is None or event not in self._classes:
            return None
        return PayloadCodec.of(
            self._classes[event], self._catalog.vector(event), self._catalog.tagged_attributes(event)
        )

    def own_size(self, event: str, table: PlanTable) -> int | None:
        """Return the most bytes of an event with all attributes of its own; None if it is not bounded."""
        return self._codec(event, table).max_size_carrying()

    def size(self, event: str, table: PlanTable) -> int:
        """Return the most bytes of an event with all attributes of its own, and those of `Event` that it `carries`."""
        codec = self._codec(event, table)
        known = {attribute.name for attribute in attributes(self._classes[event])}
        carries = table.texts("carries")
        if unknown := next((name for name in carries if name not in known), None):
            table.refuse("carries", f"names {unknown!r}, which {event} does not have")
        size = codec.max_size_carrying(carries)
        if size is None:
            table.refuse("size", f"is missing, and {event} has texts, bytes or opaque values of any length")
        return size

    def sizes_without(self, event: str, size: int, carries: Iterable[str] = ()) -> Iterator[tuple[str, int]]:
        """Yield the sizes without each optional attribute that makes an event of this size longer, the newest first."""
        codec = self.codec(event)
        if codec is None or codec.max_size_carrying(carries) != size:
            return
        context = {attribute.name for attribute in attributes(Event)} - set(carries)
        for field in reversed(codec.fields):
            less = codec.without(field.name).max_size_carrying(carries)
            if not field.required and field.name not in context and less is not None and less < size:
                yield field.name, less

    def _codec(self, event: str, table: PlanTable) -> PayloadCodec:
        assert self._catalog is not None
        if event not in self._classes:
            close = get_close_matches(event, self._classes, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(self._classes)}"
            table.refuse("event", f"is {event!r}, which the module of types does not declare; {hint}")
        codec = self.codec(event)
        assert codec is not None
        return codec


_DIGITS = re.compile(r"\d+")
_SIMILAR = 0.82
"""How similar two names are if one of them is probably misspelled: `senser` and `sensor`, not `north` and `south`."""

FIRST_ETAG = 128
"""The first event tag that is not reserved for the middleware."""

_BUS_SPANS = ("gap", "precision", "error_interval", "sync_period")
_BUS_KEYS = (
    *("bitrate", "data_bitrate", *_BUS_SPANS, "types", "middleware", "error_passive"),
    *("reserved", "databases", "foreign_interval", "classic_nodes"),
)
_FRAME_FORMS = {
    "fd": "is said by data_bitrate: with it all events are in CAN FD frames; leave fd out",
    "xl": "is not there: Genus has no frames, frame lengths or analysis of CAN XL; CAN FD (data_bitrate) has 64 bytes",
}
"""Keys of [bus] that one may expect, and what to write instead."""
_COMMON_KEYS = ("name", "event", "node", "class", "period", "size", "carries", "segmented", "subscribers")
_CLASS_KEYS = {
    "hard": ("omissions", "sporadic"),
    "soft": ("deadline", "expires", "jitter"),
    "none": ("deadline", "jitter", "priority"),
}
_CHANNEL_KEYS = tuple(dict.fromkeys((*_COMMON_KEYS, *(key for keys in _CLASS_KEYS.values() for key in keys))))


class _ChannelDraft(NamedTuple):
    """A channel as it was read, before node numbers and event tags are assigned."""

    table: PlanTable
    channel: ChannelSpec
    typed: bool
    """Whether its event is a type of the module."""


def load_system(path: str | Path) -> System:
    """Read the system that a TOML file describes; PlanError names the key that is wrong."""
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except OSError as problem:
        raise PlanError(f"{path}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise PlanError(f"{path}: is not UTF-8 text") from problem
    return parse_system(text, str(path))


def parse_system(text: str, source: str = "system") -> System:
    """Read the system that a TOML text describes; PlanError names the key that is wrong.

    `source` is the name of the file for messages; a relative path to event types is resolved from its folder.

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
        root = PlanTable(source, tomllib.loads(text), ("bus", "channel", "nodes", "foreign"))
    except tomllib.TOMLDecodeError as problem:
        raise PlanError(f"{source}: {problem}") from None
    root.require("bus")
    table = _bus_table(f"{source}: [bus]", root.entries["bus"])
    bus = _read_bus(table)
    types = EventTypes.load(table.text("types"), Path(source).parent, table)
    drafts = list(_read_channels(root, types))
    given = PlanTable(f"{source}: [nodes]", root.entries.get("nodes", {}))
    nodes = _number_nodes(given, drafts)
    channels = tuple(channel.on_bus(bus) for channel in _number_channels(drafts, nodes, types))
    doubts = _doubtful_subscribers(drafts, given)
    empty = f"{source}: there are no channels to plan; write a [[channel]] table for every publisher"
    return System(
        bus,
        channels,
        nodes,
        source,
        warnings=tuple(doubts) if channels else (empty,),
        foreign=read_foreign_frames(root, table, Path(source).parent, fd=bus.fd),
        types=table.text("types"),
        sizes_without=_sizes_without(channels, types, bus),
    )


def _sizes_without(channels: Iterable[ChannelSpec], types: EventTypes, bus: BusSpec) -> dict[str, dict[str, int]]:
    """By optional attribute, the sizes of channels whose events would take fewer frames without it."""
    found: dict[str, dict[str, int]] = {}
    for channel in channels:
        for attribute, size in types.sizes_without(channel.event, channel.size, channel.carries):
            if len(bus.frame_sizes(size, channel.segmented)) < channel.frames:
                found.setdefault(attribute, {})[channel.name] = size
    return found


def _read_bus(table: PlanTable) -> BusSpec:
    table.require("bitrate")
    rates = table.bitrate("bitrate"), table.bitrate("data_bitrate")
    spans = {f"{key}_ns": table.span(key, zero=key == "precision") for key in _BUS_SPANS}
    given: dict[str, Any] = {name: span for name, span in spans.items() if span is not None}
    given["middleware"] = table.flag("middleware", True)
    if "error_passive" in table:
        given["error_passive"] = table.one_of("error_passive", ERROR_PASSIVE_POLICIES)
    if "classic_nodes" in table:
        given["classic_nodes"] = table.texts("classic_nodes")
    try:
        return BusSpec(timing=Timing(*cast(tuple[int, int | None], rates)), **given)
    except (BusError, PlanError) as problem:
        raise PlanError(f"{table.location}: {problem}") from None


def _read_channels(root: PlanTable, types: EventTypes) -> Iterator[_ChannelDraft]:
    seen: dict[str, int] = {}
    for number, table in enumerate(root.tables("channel", _CHANNEL_KEYS), 1):
        name = table.text("name") or table.text("event")
        if name is None:
            table.refuse("name", "is missing, and there is no event to take it from")
        table.location += f" {name!r}"
        if name in seen:
            table.refuse("name", f"is already the name of channel {seen[name]}; give each publisher's channel its own")
        seen[name] = number
        yield _read_channel(table, name, types)


def _bus_table(location: str, entries: object) -> PlanTable:
    table = PlanTable(location, entries)
    for key, why in _FRAME_FORMS.items():
        if key in table:
            table.refuse(key, why)
    return PlanTable(location, entries, _BUS_KEYS)


def _read_channel(table: PlanTable, name: str, types: EventTypes) -> _ChannelDraft:
    table.require("node", "class", "period")
    qos_class = cast(QosName, table.one_of("class", QOS_NAMES))
    for key in table.entries:
        if key not in _COMMON_KEYS and key not in _CLASS_KEYS[qos_class]:
            owners = " and ".join(each for each, keys in _CLASS_KEYS.items() if key in keys)
            table.refuse(key, f"is for {owners} channels, and this one is {qos_class!r}")
    event = table.text("event")
    channel = ChannelSpec(
        name=name,
        event=event or name,
        node=cast(str, table.text("node")),
        number=0,
        etag=0,
        qos_class=qos_class,
        period_ns=cast(int, table.span("period")),
        omissions=table.integer("omissions", 1 if qos_class == "hard" else 0, 0, 15),
        sporadic=table.flag("sporadic", False),
        deadline_ns=table.span("deadline"),
        expires_ns=table.span("expires"),
        jitter_ns=cast(int, table.span("jitter", 0, zero=True)),
        priority=table.integer("priority", 0, 0, 1),
        size=_size(table, event, types),
        segmented=table.flag("segmented", False),
        subscribers=table.texts("subscribers"),
        carries=table.texts("carries"),
    )
    _check_deadline(table, channel)
    return _ChannelDraft(table, channel, event is not None and bool(types))


def _check_deadline(table: PlanTable, channel: ChannelSpec) -> None:
    if channel.qos_class == "soft":
        table.require("deadline")
    if channel.expires_ns is not None and channel.expires_ns < (channel.deadline_ns or 0):
        table.refuse("expires", "is before the deadline")


def _size(table: PlanTable, event: str | None, types: EventTypes) -> int:
    """Return the size in the file, or else the size of the event type."""
    if "size" in table:
        if "carries" in table:
            table.refuse("carries", "cannot be given together with size: both say how large events are; leave out one")
        size = table.integer("size", 0, 0, MAX_EVENT)
        needed = types.own_size(event, table) if event is not None and types else None
        if needed is not None and size < needed:
            assert event is not None
            grown = (
                f", and {less} without {name}" for name, less in types.sizes_without(event, needed) if less <= size
            )
            why = f"is {size}, but a {event} takes up to {needed} bytes{next(grown, '')}"
            table.refuse("size", f"{why}; leave out the size, and plan again")
        return size
    if event is None or not types:
        table.refuse("size", "is missing, and there is no event type to take it from ([bus] types, and event)")
    return types.size(event, table)


def _number_nodes(given: PlanTable, drafts: list[_ChannelDraft]) -> dict[str, int]:
    """Node numbers: those that are given, and for other names the free ones from 1 on, in their order."""
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
                given.refuse(name, f"gets no number: a bus has at most {LAST_NODE} nodes")
            numbers[name] = number
    return numbers


def _doubtful_subscribers(drafts: list[_ChannelDraft], given: PlanTable) -> Iterator[str]:
    """Warnings about subscribers that are probably misspelled: they publish nothing, and [nodes] does not list them.

    A node may only subscribe. Such a name is doubtful if it is much like another one, or if there is a list of nodes.
    """
    known = dict.fromkeys((*given.entries, *(draft.channel.node for draft in drafts)))
    uses = Counter(name for draft in drafts for name in draft.channel.subscribers if name not in known)
    for table, channel, _ in drafts:
        for name in (name for name in channel.subscribers if name in uses):
            likely = _find_similar(name, (*known, *(other for other in uses if uses[other] > uses[name])))
            if likely is not None or given.entries:
                hint = f"did you mean {likely!r}?" if likely else "list it there if it only subscribes"
                what = f"subscribers names {name!r}, which publishes nothing and is not in [nodes]"
                yield f"{table.location}: {what}; {hint}"


def _find_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the name that was probably meant; names that differ in numbers only are different nodes."""
    others = [other for other in known if _DIGITS.sub("", other) != _DIGITS.sub("", name)]
    return next(iter(get_close_matches(name, others, n=1, cutoff=_SIMILAR)), None)


def _number_channels(drafts: list[_ChannelDraft], nodes: Mapping[str, int], types: EventTypes) -> Iterator[ChannelSpec]:
    """Channels with event tags: the catalog's for typed channels, else one per event from 128 on, in their order."""
    tags = {draft.channel.event: types.etag(draft.channel.event) for draft in drafts if draft.typed}
    taken = set(tags.values())
    free = (tag for tag in count(FIRST_ETAG) if tag not in taken)
    publishers: dict[tuple[str, str], str] = {}
    for table, channel, typed in drafts:
        etag = tags[channel.event] if channel.event in tags else tags.setdefault(channel.event, next(free))
        if etag > ETAG_MASK:
            table.refuse("event", "gets no event tag: all are taken")
        other = publishers.setdefault((channel.node, channel.event), channel.name)
        if other != channel.name:
            table.refuse("event", f"is already published by {channel.node} on {other!r}")
        tagged = types.tagged(channel.event) if typed else 0
        yield msgspec.structs.replace(channel, number=nodes[channel.node], etag=etag, tagged=tagged)


# -- writing -----------------------------------------------------------------------------------------------------------

_BARE_KEY = re.compile("[A-Za-z0-9_-]+")


def format_system(system: System) -> str:
    """The text of a system file that describes a system; it has the sizes of events and needs no module of types."""
    lines = ["[bus]", *_lines(_bus_entries(system.bus)), "", "[nodes]", *_lines(system.nodes.items())]
    for channel in system.channels:
        lines += ["", "[[channel]]", *_lines(_channel_entries(channel))]
    for frame in system.foreign:
        lines += ["", "[[foreign]]", *_lines(foreign_entries(frame))]
    return "\n".join(lines) + "\n"


def _bus_entries(bus: BusSpec) -> Iterator[tuple[str, object]]:
    yield "bitrate", bus.timing.bitrate
    yield "data_bitrate", bus.timing.data_bitrate
    yield "gap", format_nanoseconds(bus.gap_ns)
    yield "precision", format_nanoseconds(bus.precision_ns)
    yield "error_interval", _write_optional(bus.error_interval_ns)
    yield "error_passive", bus.error_passive
    yield "middleware", bus.middleware
    yield "sync_period", format_nanoseconds(bus.sync_period_ns)
    yield "classic_nodes", None if bus.classic_nodes is None else list(bus.classic_nodes)


def _channel_entries(channel: ChannelSpec) -> Iterator[tuple[str, object]]:
    yield "name", channel.name
    yield "event", channel.event
    yield "node", channel.node
    yield "class", channel.qos_class
    yield "period", format_nanoseconds(channel.period_ns)
    if channel.qos_class == "hard":
        yield "omissions", channel.omissions
        yield "sporadic", channel.sporadic or None
    else:
        yield "deadline", _write_optional(channel.deadline_ns)
        yield "expires", _write_optional(channel.expires_ns)
        yield "jitter", format_nanoseconds(channel.jitter_ns)
    if channel.qos_class == "none":
        yield "priority", channel.priority
    yield "size", channel.size
    yield "segmented", channel.segmented
    yield "subscribers", list(channel.subscribers)


def _write_optional(span_ns: int | None) -> str | None:
    return None if span_ns is None else format_nanoseconds(span_ns)


def _lines(pairs: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Lines of a table; TOML writes numbers, booleans, texts and lists as JSON does, except for one character."""
    for key, value in pairs:
        if value is not None:
            shown = key if _BARE_KEY.fullmatch(key) else dumps(key, ensure_ascii=False)
            yield f"{shown} = {dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
