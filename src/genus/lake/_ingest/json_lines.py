"""JSON files: one event per line, plain or as a CloudEvent, or one array of events.

Lines are decoded to dictionaries; then the values of a field of all records of a type are converted to an attribute's
column at once. Records that are not taken so are read one by one. Files of lines are cut into ranges of bytes. An array
is read as a whole; of a damaged array, the objects that can be found are read.
"""

import json
from collections.abc import Iterator
from operator import methodcaller
from typing import Any

import msgspec
import numpy as np

from genus.lake._ingest.format import (
    Chunk,
    Columns,
    DeadLetter,
    Lines,
    Split,
    Types,
    byte_ranges,
    changed_us,
    is_compressed,
    open_text,
    read_lines,
)
from genus.lake._ingest.tabular import Positions, RecordsReader, Row, TypeColumns
from genus.lake._ingest.values import Mask, convert_json
from genus.records import Mapping
from genus.records.internal import FieldNode, MappedReader, cloud_mapping, count_fields, count_names, decode_json

Record = dict[str, Any]
_decode = msgspec.json.Decoder().decode


class LineReader(RecordsReader):
    def __init__(self, mapping: Mapping, types: Types, changed_us: int) -> None:
        super().__init__(mapping, types, changed_us, MappedReader(mapping, types))
        paths = [cloud_mapping(mapping).inside, mapping.inside, *(field.path[:-1] for field in mapping.all_fields)]
        self._containers = {path[0] for path in paths if path}

    def read(self, piece: Lines) -> Iterator[Chunk]:
        """Yield the events of some lines, type by type, then the dead letters."""
        if not all(piece.lines):
            piece = piece.take([row for row, line in enumerate(piece.lines) if line.strip()])
        lines, offsets, letters = piece
        records, good = _decode_lines(lines)
        _find_duplicates(lines, records, self._containers, good)
        for (is_cloud, name), rows in self._groups(records, good).items():
            columns = self.type_columns(str(name), is_cloud=is_cloud)
            if columns is None:
                good[rows] = False
            elif len(rows) == len(records):
                yield _events(columns, records, good, offsets)
            else:
                own = np.ones(len(rows), np.bool_)
                yield _events(columns, [records[row] for row in rows], own, offsets[rows])
                good[rows] = own
        if not good.all():
            odd = np.flatnonzero(~good).tolist()
            yield from self.read_alone(Row(int(offsets[row]), decode_json(lines[row], None), lines[row]) for row in odd)
        if letters:
            yield letters

    def _groups(self, records: list[Record], good: Mask) -> dict[tuple[bool, str | int], list[int]]:
        """Return the rows of each type name, separately for CloudEvents and plain records."""
        groups: dict[tuple[bool, str | int], list[int]] = {}
        for row in np.flatnonzero(good).tolist():
            record = records[row]
            is_cloud = "specversion" in record
            name = self._single.name_of[is_cloud](record)
            if (type(name) is str or type(name) is int) and not (is_cloud and record["specversion"] != "1.0"):
                groups.setdefault((is_cloud, name), []).append(row)
            else:
                good[row] = False
        return groups


def _events(columns: TypeColumns, records: list[Record], good: Mask, offsets: Positions) -> Columns:
    """Return the events of records of one type; rows that are read alone are set not to be good."""
    plan = columns.plan
    gathered: list[list[Any]] = [[]] * len(plan.wanted)
    _gather(plan.tree, records, gathered, good)
    converted = [
        convert_json(values, wanted.type, wanted.field.value_format)
        for wanted, values in zip(plan.wanted, gathered, strict=True)
    ]
    return columns.assemble(converted, good, offsets)


def _gather(node: FieldNode, records: list[Record], found: list[list[Any]], good: Mask) -> None:
    """Collect the values of each wanted field, None where a record has none."""
    for key in set().union(*records) - node.children.keys() if not node.takes_rest else ():
        good[[row for row, record in enumerate(records) if record.get(key) is not None]] = False
    for key, child in node.children.items():
        if not (child.wanted or child.children or child.refused):
            continue
        values: list[Any] = [record.get(key) for record in records]
        for number in child.wanted:
            found[number] = values
        if child.refused:
            good[[row for row, value in enumerate(values) if value is not None]] = False
        elif child.children or not child.wanted:
            if set(map(type, values)) != {dict}:
                if not child.wanted and not child.is_ignored:
                    odd = [row for row, value in enumerate(values) if value is not None and type(value) is not dict]
                    good[odd] = False
                values = [value if type(value) is dict else {} for value in values]
            _gather(child, values, found, good)


# -- lines -------------------------------------------------------------------------------------------------------------


def _decode_lines(lines: list[bytes]) -> tuple[list[Record], Mask]:
    """Decode each line to an object; an empty one where a line is none, which the mask tells."""
    try:
        records = list(map(_decode, lines))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        records = [decode_json(line, None, last_counts=True) for line in lines]
    if set(map(type, records)) <= {dict}:
        return records, np.ones(len(records), np.bool_)
    good = np.array([type(record) is dict for record in records])
    return [record if type(record) is dict else {} for record in records], good


def _find_duplicates(lines: list[bytes], records: list[Record], containers: set[str], good: Mask) -> None:
    """Set lines that may have a field twice not to be good; the decoder silently keeps the last one.

    The number of fields in a line is about the number of `":` in it. Where the decoded record has as many fields, there
    are no duplicates.
    """
    text = b"\n".join(lines)
    count = count_names if any(blank in text for blank in (b" :", b"\t:", b"\r:")) else methodcaller("count", b'":')
    counts = np.fromiter(map(count, lines), np.int64, len(lines))
    sizes = np.fromiter(map(len, records), np.int64, len(records))
    for key in containers:
        if (counts != sizes).any():
            inside = (record.get(key) for record in records)
            sizes += np.fromiter((len(each) if type(each) is dict else 0 for each in inside), np.int64, len(records))
    for row in np.flatnonzero(counts != sizes).tolist():
        good[row] &= counts[row] == count_fields(records[row])


# -- the format --------------------------------------------------------------------------------------------------------


ARRAY_LIMIT = 256 * 1024 * 1024
"""Size limit of a file that is one array, which is read as a whole."""
_ITEMS = 50_000
_SPACE = b" \t\r\n"

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonLines(msgspec.Struct, frozen=True):
    """JSON with one event per line (.jsonl, .ndjson, .json, each also with .gz), or one array of events.

    Records with `specversion` are CloudEvents.
    """

    mapping: Mapping = Mapping()

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        if not is_compressed(path) and _is_array(path) and size <= ARRAY_LIMIT:
            return [Split(path, 0, size)]
        return byte_ranges(path, size, target)

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        reader = LineReader(self.mapping, types, changed_us(split.path))
        is_whole = is_compressed(split.path) or split.end - split.start <= ARRAY_LIMIT
        is_array = split.start == 0 and is_whole and _is_array(split.path)
        for piece in read_array(split) if is_array else read_lines(split):
            yield from reader.read(piece)


# -- arrays ------------------------------------------------------------------------------------------------------------


def _is_array(path: str) -> bool:
    try:
        with open_text(path) as stream:
            start = stream.read(1024)
    except (OSError, EOFError):  # reading the file reports the damage
        return False
    return start.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE).startswith(b"[")


def read_array(split: Split) -> Iterator[Lines]:
    """The items of an array with their indexes; of a damaged array, the objects found in it with their offsets."""
    content, damage = _content(split.path)
    try:
        items = [bytes(item) for item in _items(content.removeprefix(b"\xef\xbb\xbf"))] if damage is None else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        items = None
    if items is None:
        yield _salvage(content)
        items = []
    for start in range(0, len(items), _ITEMS):
        part = items[start : start + _ITEMS]
        yield Lines(part, np.arange(start, start + len(part), dtype=np.int64), [])
    if damage is not None:
        yield Lines.of([], [DeadLetter.of(len(content), damage, b"")])


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


def _salvage(content: bytes) -> Lines:
    """Return the objects in a damaged array; the rest of a line without one is a dead letter."""
    text = content.decode("latin-1")  # one character per byte, so that their positions are equal
    scan = json.JSONDecoder(strict=False).raw_decode
    found: list[tuple[bytes, int]] = []
    letters: list[DeadLetter] = []
    position = text.find("[") + 1
    while position < len(text):
        if text[position] in ", \t\r\n":
            position += 1
            continue
        try:
            if text[position] != "{":
                raise ValueError("not an object")
            _, end = scan(text, position)
            found.append((content[position:end], position))
        except (ValueError, RecursionError):
            end = text.find("\n", position) % (len(text) + 1)
            if content[position:end].strip(_SPACE + b"]"):
                letters.append(DeadLetter.of(position, "not JSON, in a damaged array", content[position:end]))
        position = end
    return Lines.of(found, letters)
