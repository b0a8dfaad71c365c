"""Frames of other makers on a planned bus: read from a system file, and compared with the identifiers of Genus.

Frames of two senders must never have the same identifier, so each identifier that a channel or the middleware may have
is compared with those of the others. Their frames also compete for the bus: slots have time for those that win over a
hard frame; one that can win over a soft event counts as long as it can; any other delays an event by one frame at most.
A frame of 11 bits wins over those of 29 bits with the same leading bits.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from genus._toml import TomlTable, show
from genus.can._j1939 import TRANSFER_CONTROL, TRANSFER_DATA, J1939Id
from genus.can._j1939_transfer import PRIORITY as TRANSFER_PRIORITY
from genus.can._plan.system import ChannelSpec, ForeignFrame, System, read_bitrate
from genus.can._wire.frame import (
    BROKER_NODE,
    CLASSIC_BYTES,
    FD_BYTES,
    FIRST_NODE,
    ID_MASK,
    LAST_NODE,
    NODE_SHIFT,
    PRIORITY_SHIFT,
    RESERVED_ETAGS,
    STANDARD_ID_MASK,
    Priority,
)
from genus.errors import DbcError, PlanError
from genus.model.internal import format_nanoseconds

if TYPE_CHECKING:
    from genus.can._dbc import MessageLayout


class PlanTable(TomlTable):
    error = PlanError

    def bitrate(self, key: str) -> int | None:
        """Bits per second: a number, or a text such as `500k`, `1Mbit/s`, `83.333k`; rounded to whole bits."""
        value = self.entries.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, float) and isfinite(value):
            return round(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return read_bitrate(value)
        self.refuse(key, f"is {show(value)}; write bits per second, such as 500_000 or '500k' or '1Mbit/s'")


class Collision(msgspec.Struct, frozen=True):
    """An identifier that both Genus and another maker's frame may have, and what to change."""

    foreign: str
    identifier: int
    user: str
    """The channel, or the part of the middleware."""
    advice: str

    def __str__(self) -> str:
        return f"{self.foreign} and {self.user} both use {self.identifier:#010x}; {self.advice}"


class _Identifiers(msgspec.Struct, frozen=True):
    """Identifiers that a part of Genus may have: all of these priorities and event tags, of one node or of all."""

    user: str
    node: int | None
    priorities: range
    etags: range
    advice: str = ""

    def common_with(self, frame: ForeignFrame) -> int | None:
        """Return the first identifier that a frame may have too."""
        if not frame.extended:
            return None
        first = max(self.priorities.start, frame.first >> PRIORITY_SHIFT)
        for priority in range(first, min(self.priorities.stop, (frame.last >> PRIORITY_SHIFT) + 1)):
            for node in range(BROKER_NODE + 1) if self.node is None else (self.node,):
                base = priority << PRIORITY_SHIFT | node << NODE_SHIFT
                low, high = max(frame.first, base | self.etags.start), min(frame.last, base | self.etags.stop - 1)
                if low <= high:
                    return low
        return None


def find_collisions(system: System) -> tuple[Collision, ...]:
    """Return the identifiers of a system that frames of others have too, each with what to change."""
    return tuple(_collisions(system, _identifiers(system)))


def _collisions(system: System, used: Iterable[_Identifiers]) -> Iterator[Collision]:
    for part in used:
        for frame in system.foreign:
            identifier = part.common_with(frame)
            if identifier is not None:
                yield Collision(frame.name, identifier, part.user, part.advice or _advise_number(system, part))


def _identifiers(system: System) -> Iterator[_Identifiers]:
    for channel in system.channels:
        yield _of_channel(channel)
    if system.bus.middleware:
        for name, number in system.nodes.items():
            yield _of_node(name, number)
        system_band = range(Priority.SYSTEM, Priority.SYSTEM + 1)
        etags = range(RESERVED_ETAGS)
        yield _Identifiers("the broker", BROKER_NODE, system_band, etags, "change the foreign identifier")
        yield _Identifiers(
            "configuration and binding",
            None,
            range(Priority.PROTOCOL, Priority.PROTOCOL + 1),
            etags,
            "change the foreign identifier, or run without a broker, and write middleware = false",
        )


def _of_channel(channel: ChannelSpec) -> _Identifiers:
    bands = {
        "hard": range(Priority.HARD, Priority.HARD + 1),
        "soft": range(Priority.SOFT_FIRST, Priority.SOFT_LAST + 1),
        "none": range(Priority.NONE + channel.priority, Priority.NONE + channel.priority + 1),
    }
    etags = range(channel.etag, channel.etag + (1 << channel.tagged))
    return _Identifiers(f"channel {channel.name!r}", channel.number, bands[channel.qos_class], etags)


def _of_node(name: str, number: int) -> _Identifiers:
    band = range(Priority.SYSTEM, Priority.SYSTEM + 1)
    return _Identifiers(f"the middleware of node {name!r}", number, band, range(RESERVED_ETAGS))


def _advise_number(system: System, part: _Identifiers) -> str:
    """Another number for the node of a part of Genus, with which nothing of that node collides."""
    name = next(name for name, number in system.nodes.items() if number == part.node)
    mine = [_of_channel(channel) for channel in system.channels if channel.number == part.node]
    mine += [_of_node(name, part.node or 0)] if system.bus.middleware else []
    for number in range(FIRST_NODE, LAST_NODE + 1):
        moved = [msgspec.structs.replace(each, node=number) for each in mine]
        is_free = number not in system.nodes.values()
        if is_free and all(each.common_with(frame) is None for each in moved for frame in system.foreign):
            return f"give node {name!r} another number: [nodes] {name} = {number}"
    return "no number of its node avoids that: change the foreign identifier, or the channel's class"


def unbounded_winners(system: System) -> list[ForeignFrame]:
    """Return the frames of others that win over a hard frame, and of which it is not known how often they come."""
    last = max((channel.id for channel in system.hard), default=-1)
    return [frame for frame in system.foreign if frame.rank < last and frame.period_ns is None]


def describe_unbounded(winners: Sequence[ForeignFrame]) -> str:
    """Why hard channels are refused, and what to change."""
    names = ", ".join(frame.name for frame in winners[:3]) + (" and others" if len(winners) > 3 else "")
    return (
        f"{names} can win over a hard frame, and it is not known how often: write the shortest time between two frames "
        f"(period of [[foreign]], foreign_interval of [bus]), or use identifiers from {1 << PRIORITY_SHIFT:#010x} on, "
        "or 11-bit ones from 0x008 on"
    )


_KEYS = ("name", "id", "size", "fd", "period", "jitter")


def read_foreign_frames(root: PlanTable, bus: PlanTable, folder: Path, *, fd: bool) -> tuple[ForeignFrame, ...]:
    """Return the frames that a system file names; PlanError if one cannot be read, or is CAN FD on a classic bus.

    Paths of databases are relative to a folder.
    """
    found = (*_read_reserved(bus), *_read_databases(bus, folder), *_read_foreign(root))
    if not fd and (longer := next((frame.name for frame in found if frame.fd), None)):
        bus.refuse("data_bitrate", f"is missing, but {longer} is a CAN FD frame, which no classic bus carries")
    return found


def foreign_entries(frame: ForeignFrame) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of the table that describes a frame."""
    yield "name", frame.name
    yield "id", frame.text
    yield "size", frame.size
    yield "fd", frame.fd
    yield "period", None if frame.period_ns is None else format_nanoseconds(frame.period_ns)
    yield "jitter", format_nanoseconds(frame.jitter_ns)


def _read_reserved(table: PlanTable) -> Iterator[ForeignFrame]:
    for text in table.texts("reserved"):
        yield ForeignFrame(name=f"reserved {text}", **_read_identifiers(table, "reserved", text))


def _read_databases(table: PlanTable, folder: Path) -> Iterator[ForeignFrame]:
    interval = table.span("foreign_interval")
    for text in table.texts("databases"):
        from genus.can._dbc import load_dbc  # it needs cantools, which is an extra

        try:
            database = load_dbc(folder / text, reuse=True)
        except DbcError as problem:
            table.refuse("databases", f"has {text!r}, which cannot be used: {problem}")
        if not database.messages:
            table.refuse("databases", f"has {text!r}, which has no messages")
        for message in database.messages:
            is_long = message.j1939 and message.length > CLASSIC_BYTES
            yield _parts_of(message, text, interval) if is_long else _frame_of(message, text, interval)


def _frame_of(message: "MessageLayout", file: str, interval_ns: int | None) -> ForeignFrame:
    """Return the frames of a message; a J1939 message may come from any source, and some go to any destination."""
    varies = 0 if not message.j1939 else 0xFF if message.frame_id >> 16 & 0xFF >= 240 else 0xFFFF
    return ForeignFrame(
        name=f"{message.type_name} of {file}",
        first=message.frame_id & ~varies,
        last=message.frame_id | varies,
        extended=message.extended,
        size=min(message.length, FD_BYTES if message.fd else CLASSIC_BYTES),
        fd=message.fd,
        period_ns=message.cycle_time_ms * 1_000_000 if message.cycle_time_ms else interval_ns,
    )


def _parts_of(message: "MessageLayout", file: str, interval_ns: int | None) -> ForeignFrame:
    """Return the frames of a J1939 message that is longer than a frame: an announcement, and packets of seven bytes."""
    whole = _frame_of(message, file, interval_ns)
    first, last = (J1939Id(TRANSFER_PRIORITY, pgn, 0, 0).pack() for pgn in (TRANSFER_DATA, TRANSFER_CONTROL))
    period_ns = None if whole.period_ns is None else whole.period_ns // (1 + -(-message.length // 7))
    return msgspec.structs.replace(
        whole, name=f"parts of {whole.name}", first=first, last=last | 0xFFFF, size=CLASSIC_BYTES, period_ns=period_ns
    )


def _read_foreign(root: PlanTable) -> Iterator[ForeignFrame]:
    for table in root.tables("foreign", _KEYS):
        table.require("id")
        identifiers = cast(str, table.text("id"))
        is_fd = table.flag("fd", False)
        yield ForeignFrame(
            name=table.text("name") or identifiers,
            size=table.integer("size", CLASSIC_BYTES, 0, FD_BYTES if is_fd else CLASSIC_BYTES),
            fd=is_fd,
            period_ns=table.span("period"),
            jitter_ns=cast(int, table.span("jitter", 0, zero=True)),
            **_read_identifiers(table, "id", identifiers),
        )


def _read_identifiers(table: PlanTable, key: str, text: str) -> dict[str, Any]:
    try:
        first, last, extended = parse_identifiers(text)
    except PlanError as problem:
        raise PlanError(f"{table.location}: {key}: {problem}") from None
    return {"first": first, "last": last, "extended": extended}


def parse_identifiers(text: str) -> tuple[int, int, bool]:
    """Return the first and last identifier of `0x100` or `0x100-0x1FF`, and whether they have 29 bits.

    Identifiers are hexadecimal. As in logs, those of up to three digits have 11 bits, and those of more have 29.
    PlanError if it is none.

    >>> parse_identifiers("0x100-0x1FF"), parse_identifiers("18FEF100")
    ((256, 511, False), (419361024, 419361024, True))
    """
    first, dash, last = (part.strip() for part in text.partition("-"))
    try:
        low, long = _parse_identifier(first)
        high, also_long = _parse_identifier(last) if dash else (low, long)
    except ValueError:
        raise PlanError(
            f"{text!r} is no identifier; write for example '0x100', '0x18FEF100' or '0x100-0x1FF'"
        ) from None
    bits, most = (29, ID_MASK) if long else (11, STANDARD_ID_MASK)
    if long != also_long:
        raise PlanError(f"{text!r} mixes identifiers of 11 bits (up to three digits) and 29; write both ends alike")
    if high > most:
        raise PlanError(f"{text!r} is too large; identifiers of {bits} bits end at {most:#x}")
    if high < low:
        raise PlanError(f"{text!r} ends before it begins; write '{last}-{first}'")
    return low, high, long


def _parse_identifier(text: str) -> tuple[int, bool]:
    digits = text.lower().removeprefix("0x")
    return int(digits, 16), len(digits) > 3
