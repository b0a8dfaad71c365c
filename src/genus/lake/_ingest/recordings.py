"""Recordings as a source: the files that `genus.bus` writes, and older ones with frames.

Blocks and frames are found by the readers of `genus.bus`. A file of blocks is cut at them: a block states the units of
its types, so a split needs nothing of those before it. An older file is one split, as a packet in it may contain what
looks like frames, and units are stated once. The position of an event is that of its block plus its place in it, or
that of its frame; a damaged part between blocks has the position of its last byte, so that all differ.

A struct is made of each type in the catalog, by which msgspec decodes and checks the attributes of an event in one
step. Durations, opaque values and the range of times are checked as columns. Values of other units than the catalog's
are converted one by one by the functions of the bus, which give the same bits. Values are checked as the bus does, and
more strictly, because a catalog has no defaults and a table no unknown columns: an attribute or a value that the type
does not have, and a required attribute that is missing, make a dead letter, which has the whole event. It is ingested
whole once the catalog has grown; a row without the value would have to be found and replaced then.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Union

import msgspec
import numpy as np
import pyarrow as pa

from genus.bus.internal import (
    BLOCKS,
    HEADER,
    UNITS_OF,
    Convert,
    FileBytes,
    Frame,
    FrameFormat,
    Octets,
    ReadBlock,
    block_at,
    converter,
    decode_units,
    events_in,
    find_format,
    frames_in,
    index_of,
    packet_of,
    unwrap_map,
)
from genus.catalog.internal import annotation
from genus.errors import EventError
from genus.lake._ingest.format import RAW_LIMIT, Chunk, Columns, DeadLetter, Split, TypePlan, Types
from genus.lake._ingest.values import CastColumn, read_values, valid_rows
from genus.lake._tables.commits import POSITION, RECORDED
from genus.lake._tables.files import open_input
from genus.lake._tables.part_writer import FIRST_US, INSTANT, LAST_US, stored_type
from genus.model import Int64
from genus.model.internal import decoder_annotation, int_range
from genus.model.types import Attribute, AttributeType, ChoiceType, DurationType, IntType, OpaqueType, TimeType
from genus.records.internal import ValueFormat

RUN = 10_000
"""Events that are decoded together, about."""

_open_packet = msgspec.msgpack.Decoder(tuple[str, Int64, msgspec.Raw]).decode


class Recordings(msgspec.Struct, frozen=True):
    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Cut a file at blocks that are at least `target` bytes apart; an older file is not cut."""
        cuts = [0]
        if size > target:
            with open_input(path) as file:
                data = FileBytes(file, path)
                for offset in index_of(data)[0].offsets if find_format(data) is BLOCKS else ():
                    if offset >= cuts[-1] + target and block_at(data, offset) is not None:
                        cuts.append(offset)
        return [Split(path, start, end) for start, end in pairwise([*cuts, size])]

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        with open_input(split.path) as file:
            data = FileBytes(file, split.path)
            form = find_format(data)
            if form is None:
                yield [DeadLetter.of(0, f"not a recording: it does not begin with {HEADER!r}", data[:RAW_LIMIT])]
                return
            waiting = _WaitingEvents(types)
            if isinstance(form, FrameFormat):
                yield from _read_frames(data, form, waiting)
            else:
                yield from _read_blocks(data, split.start, split.end, waiting)
            yield from waiting.flush()


# -- blocks and frames -------------------------------------------------------------------------------------------------


class StoredRun(NamedTuple):
    """Events of one type as they are stored, with the units of their values, their times and their positions."""

    units: Mapping[str, str]
    maps: list[bytes | msgspec.Raw]
    recorded: list[int]
    positions: list[int]


class _WaitingEvents:
    """State: events that wait until enough can be decoded together, by type."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._runs: dict[str, StoredRun] = {}
        self._count = 0

    def add(self, name: str, run: StoredRun) -> Iterator[Chunk]:
        if name in self._runs and self._runs[name].units != run.units:
            yield from _decode_run(self._types, name, self._runs.pop(name))
        held = self._runs.setdefault(name, StoredRun(run.units, [], [], []))
        held.maps.extend(run.maps)
        held.recorded.extend(run.recorded)
        held.positions.extend(run.positions)
        self._count += len(run.maps)
        if self._count >= RUN:
            yield from self.flush()

    def flush(self) -> Iterator[Chunk]:
        runs, self._runs, self._count = self._runs, {}, 0
        for name, run in runs.items():
            yield from _decode_run(self._types, name, run)


def _read_frames(data: Octets, form: FrameFormat, waiting: _WaitingEvents) -> Iterator[Chunk]:
    """Yield the events of the frames of an older file, and its damaged parts; units hold from where they are stated."""
    units: dict[str, Mapping[str, str]] = {}
    for found in frames_in(data, form):
        if isinstance(found, Frame):
            try:
                name, recorded, attributes = _open_packet(found.packet)
            except Exception:  # msgspec's errors, UnicodeDecodeError
                yield [DeadLetter.of(found.start, "not a packet", found.packet)]
                continue
            if name.startswith(UNITS_OF) and (stated := decode_units(attributes)) is not None:
                units[name.removeprefix(UNITS_OF)] = stated
            else:
                yield from waiting.add(name, StoredRun(units.get(name, {}), [attributes], [recorded], [found.start]))
        elif found.end > found.start:
            loss = f"{found.end - found.start} bytes skipped"
            yield [_damaged(data, found.start, found.end, found.start, loss, found.end == len(data))]


def _read_blocks(data: Octets, start: int, end: int, waiting: _WaitingEvents) -> Iterator[Chunk]:
    """Yield the events of the blocks that begin in a range, and its damaged parts."""
    for found in events_in(data, start):
        first = found.block.start if isinstance(found, ReadBlock) else found.start
        if first >= end > start:
            break
        if isinstance(found, ReadBlock):
            block, stored = found
            for number, group in enumerate(stored.groups):
                places = stored.places(number)
                kept = [places[row] for row in group.rows]
                times, positions = [stored.times[each] for each in kept], [first + each for each in kept]
                run = StoredRun(group.group.units, group.take_maps(), times, positions)
                yield from waiting.add(group.group.name, run)
            if stored.lost:
                stop, loss = min(block.end, len(data)), f"{stored.lost} of {block.head.events} events lost"
                yield [_damaged(data, first, stop, stop - 1, loss, block.end > len(data))]
        elif (stop := min(found.end, end)) > first:
            yield [_damaged(data, first, stop, stop - 1, f"{stop - first} bytes skipped", found.end == len(data))]


def _damaged(data: Octets, start: int, end: int, position: int, loss: str, is_at_end: bool) -> DeadLetter:
    raw = data[start : min(end, start + RAW_LIMIT)]
    return DeadLetter.of(position, f"{'cut short' if is_at_end else 'damaged'}: {loss}", raw)


# -- events of one type ------------------------------------------------------------------------------------------------


def _decode_run(types: Types, name: str, run: StoredRun) -> Iterator[Chunk]:
    """Yield the events of a run as columns, then dead letters for those that are none."""
    reader = _type_reader(types, name)
    if reader is None:
        wrong = dict.fromkeys(range(len(run.maps)), f"unknown type {name}")
    else:
        batch, reasons = reader.read(run)
        wrong = {row: f"not a {name}: {reason}" for row, reason in sorted(reasons.items())}
        if batch.num_rows:
            yield Columns(name, batch)
    if wrong:
        yield [
            DeadLetter.of(run.positions[row], reason, packet_of(name, run.recorded[row], msgspec.Raw(run.maps[row])))
            for row, reason in wrong.items()
        ]


@lru_cache(maxsize=1024)
def _type_reader(types: Types, name: str) -> "TypeReader | None":
    plan = types.plan(name)
    return None if plan is None else TypeReader(plan)


class TypeReader:
    def __init__(self, plan: TypePlan) -> None:
        self._plan = plan
        self._decode = msgspec.msgpack.Decoder(_struct(plan)).decode
        self._known = {name: each for each in plan.attributes for name in (each.name, *each.former)}

    def read(self, run: StoredRun) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the columns of a run, and the rows that are not events with the reasons."""
        decoded, wrong = self._decode_all(run.maps)
        rows = np.flatnonzero([each is not None for each in decoded])
        bodies = decoded if not wrong else [each for each in decoded if each is not None]
        converters = self._converters(run.units)
        found: dict[str, pa.Array] = {}
        for attribute in self._plan.attributes:
            values, unconverted = _values_of(attribute, bodies, converters)
            column = _convert(values, attribute.type)
            reason = f"{attribute.name} {_CHECKED_AS_COLUMN.get(type(attribute.type), 'is missing')}"
            is_missing = attribute.name in self._plan.required and column.column.null_count > 0
            mask = ~valid_rows(column.column) if is_missing else column.wrong
            wrong |= dict.fromkeys(rows[mask].tolist(), reason)
            wrong |= {int(rows[at]): problem for at, problem in unconverted.items()}
            if column.column.null_count < len(bodies):
                found[attribute.name] = column.column
        recorded = np.array(run.recorded, np.int64)[rows]
        outside = (recorded < FIRST_US) | (recorded > LAST_US)
        wrong |= dict.fromkeys(rows[outside].tolist(), f"the time of recording {_CHECKED_AS_COLUMN[TimeType]}")
        found[POSITION] = pa.array(np.array(run.positions, np.int64)[rows])
        found[RECORDED] = pa.array(recorded).cast(INSTANT)
        batch = pa.RecordBatch.from_pydict(found)
        return batch.filter(pa.array(~np.isin(rows, list(wrong)))) if wrong else batch, wrong

    def _decode_all(self, maps: Sequence[bytes | msgspec.Raw]) -> tuple[list[Any], dict[int, str]]:
        """Return a struct of each event, None for those that cannot be decoded, and the reasons of these."""
        done: list[Any] = []
        wrong: dict[int, str] = {}
        rest = iter(maps)
        while len(done) < len(maps):
            try:
                done.extend(map(self._decode, rest))  # keeps the results before one that fails
            except Exception as problem:  # msgspec's errors, UnicodeDecodeError, OverflowError, RecursionError
                found = self._decode_kept(maps[len(done)])
                if found is None:
                    wrong[len(done)] = str(problem)
                done.append(found)
        return done, wrong

    def _decode_kept(self, body: bytes | msgspec.Raw) -> Any:
        """The struct of an event with values that its recorder could not read and kept; None if it is no event."""
        try:
            bare = unwrap_map(self._plan.name, self._known, body)
            return None if bare is None else self._decode(bare)
        except Exception:  # as above; and a value that cannot be converted
            return None

    def _converters(self, units: Mapping[str, str]) -> dict[str, Convert]:
        """Functions that convert the values of attributes whose units are not those of the catalog, by stored name."""
        return {
            name: converter(self._plan.name, self._known[name], unit)
            for name, unit in units.items()
            if name in self._known and self._known[name].unit not in (None, unit)
        }


_CHECKED_AS_COLUMN: Mapping[type, str] = {
    TimeType: "must be a time with a zone, in the years 1 to 9999 of UTC",
    DurationType: "must be a duration of 64 bits of microseconds",
    OpaqueType: "must be present and representable in JSON",
}


def _annotation(attribute: Attribute) -> Any:
    """The annotation that msgspec checks a value by, as in a declared class, but for a choice, which is one value."""
    if isinstance(attribute.type, ChoiceType):
        return Literal[attribute.type.values]
    present = msgspec.structs.replace(attribute, optional=False)
    return decoder_annotation(present, annotation(present, required=True))


def _struct(plan: TypePlan) -> type[msgspec.Struct]:
    """Return a struct with the attributes of a type, also by their former names, that accepts no others."""
    fields: list[Any] = []
    for attribute in plan.attributes:
        note = _annotation(attribute)
        if attribute.name in plan.required and not attribute.former:
            fields.append((attribute.name, note))
        else:
            fields += [(name, Union[note, None], None) for name in (attribute.name, *attribute.former)]  # noqa: UP007
    return msgspec.defstruct("Body", fields, kw_only=True, frozen=True, gc=False, forbid_unknown_fields=True)


def _convert(values: list[Any], type_: AttributeType) -> CastColumn:
    if isinstance(type_, DurationType | OpaqueType):
        return read_values(values, type_, ValueFormat())
    column = pa.array(values, stored_type(type_))
    if not isinstance(type_, TimeType) or column.null_count == len(column):
        return CastColumn.good(column)
    micros = column.cast(pa.int64()).fill_null(0).to_numpy()
    return CastColumn(column, (micros < FIRST_US) | (micros > LAST_US))  # text with a zone may be just outside


def _values_of(
    attribute: Attribute, bodies: Sequence[Any], converters: Mapping[str, Convert]
) -> tuple[list[Any], dict[int, str]]:
    """Return the values of an attribute, under a former name where it has none otherwise, in the units of the catalog.

    Also the rows with a value that cannot be converted, or does not fit after it, with the reasons.
    """
    values, wrong = list(map(attrgetter(attribute.name), bodies)), dict[int, str]()
    if not attribute.former and attribute.name not in converters:
        return values, wrong
    whole = int_range(attribute.type.bits, attribute.type.signed) if isinstance(attribute.type, IntType) else None
    for row, body in enumerate(bodies):
        for name in (attribute.name, *attribute.former):
            if (value := getattr(body, name)) is None:
                continue
            try:
                value = converters[name](value) if name in converters else value
            except EventError as problem:
                value, wrong[row] = None, str(problem)
            if whole is not None and type(value) is int and not whole[0] <= value <= whole[1]:
                value, wrong[row] = None, f"{attribute.name} does not fit after its conversion to {attribute.unit}"
            values[row] = value
            break
    return values, wrong
