"""SYSTEM.toml: the file in which a system is described, read into a `System`."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self, cast

import msgspec

from genus.bus._qos import nanoseconds
from genus.can._plan.system import LONGEST_EVENT, QOS_CLASSES, Bus, Channel, QosClass, System
from genus.can._wire.frame import ETAG_MASK, FIRST_NODE, LAST_NODE
from genus.can._wire.length import Timing
from genus.can._wire.payload import Layout
from genus.catalog import Catalog
from genus.catalog._declare import types_in
from genus.codes._hierarchy import load_module
from genus.errors import BusError, GenusError, PlanError
from genus.model import Event, attributes, name_of

# Tables of a TOML file, read with care: what is wrong is said with its file, table and key, and what was meant.


_BITRATE_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}


class Table:
    """One table and where it stands; each reader gives the value of a key or the default where there is none.

    >>> table = Table("city.toml: [bus]", {"gap": "20us"}, ("gap", "bitrate"))
    >>> table.span("gap"), table.span("precision", 5000)
    (20000, 5000)
    >>> Table("city.toml: [bus]", {"bitrat": 1}, ("gap", "bitrate"))
    Traceback (most recent call last):
    genus.errors.PlanError: city.toml: [bus]: unknown key 'bitrat'; did you mean 'bitrate'?
    """

    def __init__(self, place: str, entries: object, known: Collection[str] | None = None) -> None:
        if not isinstance(entries, Mapping):
            raise PlanError(f"{place}: must be a table, not {_shown(entries)}")
        self.place = place
        self.entries: Mapping[str, object] = entries
        for key in entries if known is not None else ():
            if key not in (known or ()):
                raise PlanError(f"{place}: unknown key {key!r}; {_meant(key, known or ())}")

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise the error that says what is wrong with a key."""
        raise PlanError(f"{self.place}: {key} {why}")

    def require(self, *keys: str) -> None:
        """Refuse the table if it lacks one of some keys."""
        for key in keys:
            if key not in self.entries:
                self.refuse(key, "is missing")

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text that is not empty."""
        value = self.entries.get(key, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(key, f"must be a text, not {_shown(value)}")
        return value

    def one_of(self, key: str, choices: Collection[str]) -> str:
        """One of some texts."""
        value = self.text(key)
        if value is None or value not in choices:
            self.refuse(key, f"is {_shown(value)}; {_meant(str(value), choices)}")
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.entries.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(key, f"is {_shown(value)}; it must be a whole number from {low} to {high}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"is {_shown(value)}; it must be true or false")
        return value

    def span(self, key: str, default: int | None = None, *, zero: bool = False) -> int | None:
        """A length of time in nanoseconds, written as in `10ms`."""
        value = self.entries.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(key, f"is {_shown(value)}; write a time with its unit, such as '10ms'")
        try:
            found = nanoseconds(value, key)
        except BusError as problem:
            raise PlanError(f"{self.place}: {problem}") from None
        if found == 0 and not zero:
            self.refuse(key, "is zero")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of different texts."""
        value = self.entries.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
            self.refuse(key, f"must be a list of texts, not {_shown(value)}")
        if len(set(value)) < len(value):
            self.refuse(key, f"names {next(each for each in value if value.count(each) > 1)!r} twice")
        return tuple(value)

    def bitrate(self, key: str) -> int | None:
        """Bits per second: a number, or a text such as `500k`, `1Mbit/s`."""
        value = self.entries.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, str):
            number = value.strip().removesuffix("/s").removesuffix("bit").strip()
            unit = number[-1:] if number[-1:] in ("k", "M") else ""
            try:
                return round(float(number.removesuffix(unit)) * _BITRATE_UNITS[unit])
            except (ValueError, OverflowError):
                pass
        self.refuse(key, f"is {_shown(value)}; write bits per second, such as 500_000 or '500k' or '1Mbit/s'")


def _meant(word: str, known: Collection[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


# The event types of a system: from a module, the sizes and event tags of the channels that carry them.


class EventTypes:
    """The event types that a system file may name; empty if it names no module."""

    def __init__(self, classes: dict[str, type[Event]], catalog: Catalog | None) -> None:
        self._classes = classes
        self._catalog = catalog

    @classmethod
    def load(cls, module: str | None, folder: Path, table: Table) -> Self:
        """Those of a module, by its dotted name or by the path of its file."""
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
        """The event tag of a type, as a new catalog gives it."""
        assert self._catalog is not None
        return self._catalog.etag(event)

    def own_size(self, event: str, table: Table) -> int | None:
        """The most bytes of an event with all attributes of its own; None if they may have any length."""
        return self._layout(event, table).largest_carrying()

    def size(self, event: str, table: Table) -> int:
        """The most bytes of an event with all attributes of its own, and those of the context that it `carries`."""
        layout = self._layout(event, table)
        known = {attribute.name for attribute in attributes(self._classes[event])}
        carried = table.texts("carries")
        if unknown := next((name for name in carried if name not in known), None):
            table.refuse("carries", f"names {unknown!r}, which {event} does not have")
        largest = layout.largest_carrying(carried)
        if largest is None:
            table.refuse("size", f"is missing, and {event} has texts, bytes or opaque values of any length")
        return largest

    def _layout(self, event: str, table: Table) -> Layout:
        assert self._catalog is not None
        if event not in self._classes:
            close = get_close_matches(event, self._classes, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(self._classes)}"
            table.refuse("event", f"is {event!r}, which the module of types does not declare; {hint}")
        return Layout.of(self._classes[event], self._catalog.vector(event), self._catalog.tagged_attributes(event))


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
