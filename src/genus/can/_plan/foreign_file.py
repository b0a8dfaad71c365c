"""The frames of other makers in a system file: databases, reserved identifiers, and tables of single messages."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from genus.can._j1939.identifier import TRANSFER_CONTROL, TRANSFER_DATA, J1939Id
from genus.can._j1939.transfer import PRIORITY as TRANSFER_PRIORITY
from genus.can._plan.system import ForeignFrame
from genus.can._plan.toml_table import PlanTable
from genus.can._wire.frame import CLASSIC_BYTES, FD_BYTES, ID_MASK, STANDARD_ID_MASK
from genus.errors import DbcError, PlanError
from genus.model.internal import format_nanoseconds

if TYPE_CHECKING:
    from genus.can._dbc import MessageLayout

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
        yield ForeignFrame(name=f"reserved {text}", **_identifiers(table, "reserved", text))


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
            **_identifiers(table, "id", identifiers),
        )


def _identifiers(table: PlanTable, key: str, text: str) -> dict[str, Any]:
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
