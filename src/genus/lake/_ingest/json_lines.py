"""JSON files: one event per line, plain or as a CloudEvent, or one array of events.

Lines are decoded to dictionaries; then the values of a field of all records of a type are converted to an attribute's
column at once. Only faulty records are handled one by one. Files of lines are cut into ranges of bytes. An array is
read as a whole; of a damaged array, the objects that can be found are read.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Split, Types
from genus.lake._ingest.record_assembly import Positions, RecordAssembler, RecordFaults, assembler_for
from genus.lake._ingest.safe_cast import CastColumn
from genus.lake._ingest.text_lines import Lines, byte_ranges, changed_us, is_compressed, open_text, read_lines
from genus.lake._ingest.values import convert_json
from genus.records._fields import ENVELOPE, FieldNode, cloud_mapping, describe_no_type, describe_version, show_value
from genus.records._mapping import FieldPath, Mapping, format_path
from genus.records._payload import field_count, find_duplicate

_NAME = re.compile(rb'"[ \t\r\n]*:')
_COLON, _QUOTE, _BLANK = b':" '

Record = dict[str, Any]
_decode = msgspec.json.Decoder().decode


class RecordReader:
    """Reads events from lines of JSON. State: an assembler for each type name that occurred."""

    def __init__(self, mapping: Mapping, cloud_events: bool | None, types: Types, changed_us: int) -> None:
        self._types, self._changed_us = types, changed_us
        self._asked = cloud_events
        self._mapping = mapping
        self._envelope = cloud_mapping(mapping)
        paths = [self._envelope.inside, mapping.inside, *(field.path[:-1] for field in mapping.all_fields)]
        self._containers = {path[0] for path in paths if path}
        self._assemblers: dict[tuple[bool, str | int], RecordAssembler | str] = {}

    def read(self, piece: Lines) -> Iterator[Chunk]:
        """The events of some lines, type by type, then the dead letters."""
        piece, faults = _without_blanks(piece), RecordFaults()
        records = _decode_lines(piece.lines, faults)
        _find_duplicates(piece.lines, records, self._containers, faults)
        for (is_cloud, name), rows in self._groups(records, faults).items():
            assembler = self._assembler(is_cloud, name)
            if isinstance(assembler, str):
                faults.add(rows, lambda _, reason=assembler: reason)  # type: ignore[misc]
            else:
                yield self._columns(assembler, rows, records, piece.offsets, faults)
        if faults.reasons:
            yield [
                DeadLetter.of(int(piece.offsets[row]), reason, piece.lines[row])
                for row, reason in sorted(faults.reasons.items())
            ]

    def _columns(
        self,
        assembler: RecordAssembler,
        rows: list[int],
        records: list[Record],
        offsets: Positions,
        faults: RecordFaults,
    ) -> Columns:
        is_all = len(rows) == len(records)
        own = RecordFaults()
        gathered = FieldGatherer(assembler, own).gather(records if is_all else [records[row] for row in rows])
        converted: list[CastColumn] = []
        for number, (wanted, values) in enumerate(zip(assembler.wanted, gathered, strict=True)):
            converted.append(convert_json(values, wanted.type, wanted.field.value_format))
            own.mask(
                converted[-1].wrong,
                lambda row, n=number, v=values: assembler.describe_wrong(n, v[row]),  # type: ignore[misc]
            )
        columns = assembler.assemble(converted, own, offsets if is_all else offsets[rows], self._changed_us)
        for row, reason in own.reasons.items():
            faults.reasons[rows[row]] = reason
        return columns

    def _groups(self, records: list[Record], faults: RecordFaults) -> dict[tuple[bool, str | int], list[int]]:
        """The rows of each type name, separately for CloudEvents and plain records."""
        cloud = self._cloud_rows(records, faults)
        good = [row for row in range(len(records)) if row not in faults.reasons]
        groups: dict[tuple[bool, str | int], list[int]] = {}
        for is_cloud, mapping in ((False, self._mapping), (True, self._envelope)):
            rows = [row for row in good if (row in cloud) is is_cloud]
            for row, name in zip(rows, _names(mapping, [records[row] for row in rows]), strict=True):
                if type(name) is str or type(name) is int:
                    groups.setdefault((is_cloud, name), []).append(row)
                else:
                    faults.reasons[row] = describe_no_type(mapping, name)
        return groups

    def _cloud_rows(self, records: list[Record], faults: RecordFaults) -> set[int]:
        """The rows that are CloudEvents; those of an unknown version are added to the faults."""
        if self._asked is False:
            return set()
        cloud = {row for row, record in enumerate(records) if self._asked or "specversion" in record}
        for row in cloud:
            if (version := records[row].get("specversion")) != "1.0":
                faults.reasons.setdefault(row, describe_version(version))
        return cloud

    def _assembler(self, is_cloud: bool, name: str | int) -> RecordAssembler | str:
        key = is_cloud, name
        if key not in self._assemblers:
            self._assemblers[key] = self._make_assembler(is_cloud, str(name))
        return self._assemblers[key]

    def _make_assembler(self, is_cloud: bool, name: str) -> RecordAssembler | str:
        if not is_cloud:
            return assembler_for(name, self._mapping, self._types)
        assembler = assembler_for(name, self._envelope, self._types, ENVELOPE)
        if isinstance(assembler, RecordAssembler):
            assembler.ignore_envelope(self._envelope)
        return assembler


def _names(mapping: Mapping, records: list[Record]) -> list[Any]:
    """The type name in each record; valid names are text or integers."""
    naming = mapping.naming
    if naming.fixed:
        return [naming.fixed] * len(records)
    columns = [[part] * len(records) if isinstance(part, str) else _at(records, part) for part in naming.parts]
    if len(columns) == 1:
        return columns[0]
    return ["".join(map(str, parts)) if _are_named(parts) else None for parts in zip(*columns, strict=True)]


def _are_named(parts: tuple[Any, ...]) -> bool:
    return all(type(part) is str or type(part) is int for part in parts)


def _at(values: list[Any], path: FieldPath) -> list[Any]:
    for key in path:
        values = [value.get(key) if type(value) is dict else None for value in values]
    return values


# -- lines -------------------------------------------------------------------------------------------------------------


def _without_blanks(piece: Lines) -> Lines:
    if all(piece.lines):
        return piece
    kept = np.array([bool(line.strip()) for line in piece.lines], np.bool_)
    return Lines([line for line in piece.lines if line.strip()], piece.offsets[kept])


def _decode_lines(lines: list[bytes], faults: RecordFaults) -> list[Record]:
    """Decode each line to an object; an empty one, and a fault, where a line is not an object."""
    try:
        records = list(map(_decode, lines))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        records = [_decode_line(row, line, faults) for row, line in enumerate(lines)]
    if set(map(type, records)) <= {dict}:
        return records
    strange = [row for row, record in enumerate(records) if type(record) is not dict]
    faults.add(strange, lambda row: f"not an object: {show_value(records[row])}")
    return [record if type(record) is dict else {} for record in records]


def _decode_line(row: int, line: bytes, faults: RecordFaults) -> Any:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        what = "not UTF-8" if isinstance(problem, UnicodeError) else "not JSON"
        faults.reasons[row] = f"{what}: {problem}"
        return {}


def _find_duplicates(lines: list[bytes], records: list[Record], containers: set[str], faults: RecordFaults) -> None:
    """Add lines that have a field twice to the faults; the decoder silently keeps the last one.

    The number of fields in a line is about the number of `":` in it. Where the decoded record has as many fields, there
    are no duplicates; the few other lines are decoded again by a decoder that finds them.
    """
    if not lines:
        return
    counts = _name_counts(lines)
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    for key in containers:
        if (counts != sizes).any():
            inside = (record.get(key) for record in records)
            sizes += np.fromiter((len(each) if type(each) is dict else 0 for each in inside), np.int64, len(records))
    for row in np.flatnonzero(counts != sizes).tolist():
        if row not in faults.reasons and counts[row] != field_count(records[row]):
            faults.reasons.update({row: reason} if (reason := find_duplicate(lines[row])) else {})


def _name_counts(lines: list[bytes]) -> npt.NDArray[np.int64]:
    text = np.frombuffer(b"\n".join(lines), np.uint8)
    colons = np.flatnonzero(text == _COLON)
    before = text[colons - 1]
    if (before <= _BLANK).any():
        return np.array([len(_NAME.findall(line)) for line in lines], np.int64)
    ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
    return np.diff(np.searchsorted(colons[before == _QUOTE], ends), prepend=0)


# -- fields ------------------------------------------------------------------------------------------------------------


class FieldGatherer:
    """Collects the values of each wanted field from records of one type."""

    def __init__(self, assembler: RecordAssembler, faults: RecordFaults) -> None:
        self._assembler, self._faults = assembler, faults
        self._found: list[list[Any]] = [[] for _ in assembler.wanted]

    def gather(self, records: list[Record]) -> list[list[Any]]:
        """The values of all wanted fields, None where a record has no value."""
        self._visit(self._assembler.tree, records, ())
        return self._found

    def _visit(self, node: FieldNode, records: list[Record], path: FieldPath) -> None:
        for key in set().union(*records) - node.children.keys() if not node.takes_rest else ():
            self._refuse(records, key, self._assembler.describe_unknown((*path, key)))
        for key, child in node.children.items():
            if child.refused:
                self._refuse(records, key, child.refused)
            elif child.wanted or child.children:
                self._enter(child, [record.get(key) for record in records], (*path, key))

    def _refuse(self, records: list[Record], key: str, reason: str) -> None:
        rows = [row for row, record in enumerate(records) if record.get(key) is not None]
        self._faults.add(rows, lambda _: reason)

    def _enter(self, node: FieldNode, values: list[Any], path: FieldPath) -> None:
        for number in node.wanted:
            self._found[number] = values
        if not node.children and (node.wanted or node.is_ignored):
            return
        if set(map(type, values)) != {dict}:
            values = self._objects(node, values, path)
        self._visit(node, values, path)

    def _objects(self, node: FieldNode, values: list[Any], path: FieldPath) -> list[Record]:
        if not node.wanted and not node.is_ignored:
            strange = [row for row, value in enumerate(values) if value is not None and type(value) is not dict]
            reason = f"the field {format_path(path)!r} is not an object"
            self._faults.add(strange, lambda _: reason)
        return [value if type(value) is dict else {} for value in values]


# -- the format --------------------------------------------------------------------------------------------------------


ARRAY_LIMIT = 256 * 1024 * 1024
"""Size limit of a file that is one array, which is read as a whole."""
_ITEMS = 50_000
_SPACE = b" \t\r\n"

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonLines(msgspec.Struct, frozen=True):
    """JSON with one event per line (.jsonl, .ndjson, .json, each also with .gz), or one array of events.

    `cloud_events` says whether records are CloudEvents; if None, those with `specversion` are.
    """

    mapping: Mapping = Mapping()
    cloud_events: bool | None = None

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Ranges of bytes; compressed files and arrays are one split."""
        if not is_compressed(path) and _is_array(path) and size <= ARRAY_LIMIT:
            return [Split(path, 0, size)]
        return byte_ranges(path, size, target)

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events and dead letters of a range."""
        reader = RecordReader(self.mapping, self.cloud_events, types, changed_us(split.path))
        is_whole = is_compressed(split.path) or split.end - split.start <= ARRAY_LIMIT
        pieces = read_array(split) if split.start == 0 and is_whole and _is_array(split.path) else read_lines(split)
        for piece in pieces:
            if isinstance(piece, list):
                yield piece
            else:
                yield from reader.read(piece)


# -- arrays ------------------------------------------------------------------------------------------------------------


def _is_array(path: str) -> bool:
    try:
        with open_text(path) as stream:
            start = stream.read(1024)
    except (OSError, EOFError):  # reading the file reports the damage
        return False
    return start.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE).startswith(b"[")


def read_array(split: Split) -> Iterator[Lines | list[DeadLetter]]:
    """The items of an array with their indexes; of a damaged array, the objects found in it with their offsets."""
    content, damage = _content(split.path)
    try:
        items = [bytes(item) for item in _items(content.removeprefix(b"\xef\xbb\xbf"))] if damage is None else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        items = None
    if items is None:
        yield from _salvage(content)
    else:
        for start in range(0, len(items), _ITEMS):
            part = items[start : start + _ITEMS]
            yield Lines(part, np.arange(start, start + len(part), dtype=np.int64))
    if damage is not None:
        yield [DeadLetter.of(len(content), damage, b"")]


def _content(path: str) -> tuple[bytes, str | None]:
    made: list[bytes] = []
    try:
        with open_text(path) as stream:
            while (piece := stream.read(1 << 20)) and sum(map(len, made)) <= ARRAY_LIMIT:
                made.append(piece)
    except (OSError, EOFError) as problem:
        return b"".join(made), f"the file is damaged here: {problem}"
    too_large = f"an array of more than {ARRAY_LIMIT >> 20} MiB; write one event per line"
    return b"".join(made), too_large if piece else None


def _salvage(content: bytes) -> Iterator[Lines | list[DeadLetter]]:
    """The objects in a damaged array; the rest of a line without one is a dead letter."""
    text = content.decode("latin-1")  # one character per byte, so that their positions are equal
    scan = json.JSONDecoder(strict=False).raw_decode
    found: list[tuple[bytes, int]] = []
    letters: list[DeadLetter] = []
    position = _next(text, text.find("[") + 1)
    while position < len(text):
        try:
            if text[position] != "{":
                raise ValueError("not an object")
            _, end = scan(text, position)
            found.append((content[position:end], position))
        except (ValueError, RecursionError):
            end = text.find("\n", position) % (len(text) + 1)
            if content[position:end].strip(_SPACE + b"]"):
                letters.append(DeadLetter.of(position, "not JSON, in a damaged array", content[position:end]))
        position = _next(text, end)
    yield Lines([item for item, _ in found], np.array([at for _, at in found], np.int64))
    yield letters


def _next(text: str, position: int) -> int:
    while position < len(text) and text[position] in ", \t\r\n":
        position += 1
    return position
