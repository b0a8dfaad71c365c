"""Records of JSON as columns of events.

Lines are decoded to dictionaries, and from there on all is columns: the values of a field of all records of a type are
turned into an attribute's column at once. Only what does not fit is looked at one by one.
"""

import json
import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from genus.lake._ingest.cast import Read
from genus.lake._ingest.format import Chunk, Columns, DeadLetter, Split, Types
from genus.lake._ingest.mapping import Field, FieldPath, Mapping, path_text
from genus.lake._ingest.record_assembly import Faults, Node, Positions, Reading, shown
from genus.lake._ingest.text_lines import Lines, byte_ranges, changed_us, is_compressed, open_text, read_lines
from genus.lake._ingest.values import convert_json

_NAME = re.compile(rb'"[ \t\r\n]*:')
_COLON, _QUOTE, _BLANK = b':" '

ENVELOPE = (Field(("time",), "time"), Field(("source",), "source"))
"""What of a CloudEvent's envelope is an attribute, where its data do not say it themselves."""

Record = dict[str, Any]
_decode = msgspec.json.Decoder().decode


class RecordReader:
    """Turns lines of JSON into columns; knows how to read each type by the time it has met it."""

    def __init__(self, mapping: Mapping, cloud_events: bool | None, types: Types, changed_us: int) -> None:
        self._types, self._changed_us = types, changed_us
        self._asked = cloud_events
        self._mapping = mapping
        self._envelope = cloud_mapping(mapping)
        paths = [self._envelope.inside, mapping.inside, *(field.path[:-1] for field in mapping.all_fields)]
        self._containers = {path[0] for path in paths if path}
        self._readings: dict[tuple[bool, str | int], Reading | str] = {}

    def read(self, piece: Lines) -> Iterator[Chunk]:
        """The events of some lines, type by type, and then what is no event."""
        piece, faults = _without_blanks(piece), Faults()
        records = _decoded(piece.lines, faults)
        _find_doubles(piece.lines, records, self._containers, faults)
        for (is_cloud, name), rows in self._groups(records, faults).items():
            reading = self._reading(is_cloud, name)
            if isinstance(reading, str):
                faults.add(rows, lambda _, reason=reading: reason)  # type: ignore[misc]
            else:
                yield self._columns(reading, rows, records, piece.offsets, faults)
        if faults.reasons:
            yield [
                DeadLetter.of(int(piece.offsets[row]), reason, piece.lines[row])
                for row, reason in sorted(faults.reasons.items())
            ]

    def _columns(
        self, reading: Reading, rows: list[int], records: list[Record], offsets: Positions, faults: Faults
    ) -> Columns:
        is_all = len(rows) == len(records)
        own = Faults()
        gathered = Gathering(reading, own).of(records if is_all else [records[row] for row in rows])
        reads: list[Read] = []
        for number, (wanted, values) in enumerate(zip(reading.wanted, gathered, strict=True)):
            reads.append(convert_json(values, wanted.type, wanted.field.spelling))
            own.mask(reads[-1].wrong, lambda row, n=number, v=values: reading.wrong(n, v[row]))  # type: ignore[misc]
        columns = reading.assemble(reads, own, offsets if is_all else offsets[rows], self._changed_us)
        for row, reason in own.reasons.items():
            faults.reasons[rows[row]] = reason
        return columns

    def _groups(self, records: list[Record], faults: Faults) -> dict[tuple[bool, str | int], list[int]]:
        """The rows of each name of a type, as a plain record and as a CloudEvent."""
        cloud = self._cloud_rows(records, faults)
        good = [row for row in range(len(records)) if row not in faults.reasons]
        groups: dict[tuple[bool, str | int], list[int]] = {}
        for is_cloud, mapping in ((False, self._mapping), (True, self._envelope)):
            rows = [row for row in good if (row in cloud) is is_cloud]
            for row, name in zip(rows, _names(mapping, [records[row] for row in rows]), strict=True):
                if type(name) is str or type(name) is int:
                    groups.setdefault((is_cloud, name), []).append(row)
                else:
                    faults.reasons[row] = _nameless(mapping, name)
        return groups

    def _cloud_rows(self, records: list[Record], faults: Faults) -> set[int]:
        """The rows that are CloudEvents; of a version that is not known, they are faults."""
        if self._asked is False:
            return set()
        cloud = {row for row, record in enumerate(records) if self._asked or "specversion" in record}
        for row in cloud:
            if (version := records[row].get("specversion")) != "1.0":
                faults.reasons.setdefault(row, f"specversion is {shown(version)}; CloudEvents 1.0 are read")
        return cloud

    def _reading(self, is_cloud: bool, name: str | int) -> Reading | str:
        key = is_cloud, name
        if key not in self._readings:
            self._readings[key] = self._made(is_cloud, str(name))
        return self._readings[key]

    def _made(self, is_cloud: bool, name: str) -> Reading | str:
        mapping = self._envelope if is_cloud else self._mapping
        type_ = mapping.naming.fixed or mapping.naming.type_of(name)
        plan = None if type_ is None else self._types.plan(type_)
        if plan is None:
            return f"unknown type {shown(name)}" + (f" ({type_})" if type_ not in (None, name) else "")
        return _cloud_reading(mapping, Reading(mapping, plan, ENVELOPE)) if is_cloud else Reading(mapping, plan)


def cloud_mapping(mapping: Mapping) -> Mapping:
    """A mapping as it is for CloudEvents: attributes are in `data`, and `type` says the type, if nothing else does."""
    return msgspec.structs.replace(mapping, inside=mapping.inside or ("data",))


def _cloud_reading(mapping: Mapping, reading: Reading) -> Reading:
    """A reading that passes over the rest of the envelope, but not of the data."""
    tree = reading.tree
    tree.takes_rest = True
    tree.at(mapping.inside)
    binary = tree.at(("data_base64",))
    if not binary.wanted and not binary.is_ignored:
        binary.refused = "data_base64 holds binary data, which no mapping gives to an attribute"
    return reading


def _names(mapping: Mapping, records: list[Record]) -> list[Any]:
    """What each record calls its type; anything but text or an integer is no name."""
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


def _nameless(mapping: Mapping, name: object) -> str:
    fields = " and ".join(repr(path_text(path)) for path in mapping.naming.fields)
    return f"no type: {fields} {'is missing' if name is None else f'is {shown(name)}'}"


# -- lines -------------------------------------------------------------------------------------------------------------


def _without_blanks(piece: Lines) -> Lines:
    if all(piece.lines):
        return piece
    kept = np.array([bool(line.strip()) for line in piece.lines], np.bool_)
    return Lines([line for line in piece.lines if line.strip()], piece.offsets[kept])


def _decoded(lines: list[bytes], faults: Faults) -> list[Record]:
    """The objects that lines are; an empty one where a line is none."""
    try:
        records = list(map(_decode, lines))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        records = [_decoded_one(row, line, faults) for row, line in enumerate(lines)]
    if set(map(type, records)) <= {dict}:
        return records
    strange = [row for row, record in enumerate(records) if type(record) is not dict]
    faults.add(strange, lambda row: f"not an object: {shown(records[row])}")
    return [record if type(record) is dict else {} for record in records]


def _decoded_one(row: int, line: bytes, faults: Faults) -> Any:
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        what = "not UTF-8" if isinstance(problem, UnicodeError) else "not JSON"
        faults.reasons[row] = f"{what}: {problem}"
        return {}


def _find_doubles(lines: list[bytes], records: list[Record], containers: set[str], faults: Faults) -> None:
    """Lines that name a field twice, of which the decoder keeps the last.

    A line has as many names as `":`, give or take those in texts and with spaces between: where the decoded record has
    as many there is no doubt, and the few others are decoded again with care.
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
        if row not in faults.reasons and counts[row] != _size(records[row]):
            _find_double(row, lines[row], faults)


def _name_counts(lines: list[bytes]) -> npt.NDArray[np.int64]:
    text = np.frombuffer(b"\n".join(lines), np.uint8)
    colons = np.flatnonzero(text == _COLON)
    before = text[colons - 1]
    if (before <= _BLANK).any():
        return np.array([len(_NAME.findall(line)) for line in lines], np.int64)
    ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
    return np.diff(np.searchsorted(colons[before == _QUOTE], ends), prepend=0)


def _size(record: Record) -> int:
    """How many names there are in an object and all that is in it."""
    size = len(record)
    waiting = [value for value in record.values() if type(value) is dict or type(value) is list]
    while waiting:
        inside = waiting.pop()
        size += len(inside) if type(inside) is dict else 0
        values = inside.values() if type(inside) is dict else inside
        waiting += [value for value in values if type(value) is dict or type(value) is list]
    return size


def _find_double(row: int, line: bytes, faults: Faults) -> None:
    try:
        json.loads(line, object_pairs_hook=_refuse_doubles)
    except (ValueError, RecursionError) as problem:
        faults.reasons[row] = str(problem)


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> Record:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = list(map(itemgetter(0), pairs))
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return made


# -- fields ------------------------------------------------------------------------------------------------------------


class Gathering:
    """Collects the values of each wanted field from records of one type."""

    def __init__(self, reading: Reading, faults: Faults) -> None:
        self._reading, self._faults = reading, faults
        self._found: list[list[Any]] = [[] for _ in reading.wanted]

    def of(self, records: list[Record]) -> list[list[Any]]:
        """The values of all wanted fields, None where there is none."""
        self._visit(self._reading.tree, records, ())
        return self._found

    def _visit(self, node: Node, records: list[Record], path: FieldPath) -> None:
        for key in set().union(*records) - node.children.keys() if not node.takes_rest else ():
            self._refuse(records, key, self._reading.outside((*path, key)))
        for key, child in node.children.items():
            if child.refused:
                self._refuse(records, key, child.refused)
            elif child.wanted or child.children:
                self._enter(child, [record.get(key) for record in records], (*path, key))

    def _refuse(self, records: list[Record], key: str, reason: str) -> None:
        rows = [row for row, record in enumerate(records) if record.get(key) is not None]
        self._faults.add(rows, lambda _: reason)

    def _enter(self, node: Node, values: list[Any], path: FieldPath) -> None:
        for number in node.wanted:
            self._found[number] = values
        if not node.children and (node.wanted or node.is_ignored):
            return
        if set(map(type, values)) != {dict}:
            values = self._objects(node, values, path)
        self._visit(node, values, path)

    def _objects(self, node: Node, values: list[Any], path: FieldPath) -> list[Record]:
        if not node.wanted and not node.is_ignored:
            strange = [row for row, value in enumerate(values) if value is not None and type(value) is not dict]
            reason = f"the field {path_text(path)!r} is no object"
            self._faults.add(strange, lambda _: reason)
        return [value if type(value) is dict else {} for value in values]


# JSON: one event per line, plain or as a CloudEvent; and files that are one array of events.
#
# Files of lines are cut into ranges of bytes; an array is read whole, and whatever can be found of a damaged one.


ARRAY_LIMIT = 256 * 1024 * 1024
"""A file that is one array is read whole, so it must not be larger; one with an event per line may be of any size."""
_ITEMS = 50_000
_SPACE = b" \t\r\n"

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonLines(msgspec.Struct, frozen=True):
    """JSON with one event per line (.jsonl, .ndjson, .json, each also with .gz), or one array of events.

    `cloud_events` says whether records are CloudEvents; None: those with `specversion` are.
    """

    mapping: Mapping = Mapping()
    cloud_events: bool | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return "json"

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Ranges of bytes; a compressed file, and one that is an array, is not cut."""
        if not is_compressed(path) and _is_array(path) and size <= ARRAY_LIMIT:
            return [Split(path, 0, size)]
        return byte_ranges(path, size, target)

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events of a range."""
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
    except (OSError, EOFError):  # what is damaged is told by reading it
        return False
    return start.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE).startswith(b"[")


def read_array(split: Split) -> Iterator[Lines | list[DeadLetter]]:
    """The items of an array, each at its index; of a damaged array, those that can be found, each at its offset."""
    content, damage = _content(split.path)
    try:
        items = [bytes(item) for item in _items(content.removeprefix(b"\xef\xbb\xbf"))] if damage is None else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        items = None
    if items is None:
        yield from _salvaged(content)
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


def _salvaged(content: bytes) -> Iterator[Lines | list[DeadLetter]]:
    """Whatever is an object in a damaged array; from where there is none, to the end of the line, is a dead letter."""
    text = content.decode("latin-1")  # one character per byte: the place of one is that of the other
    scan = json.JSONDecoder(strict=False).raw_decode
    found: list[tuple[bytes, int]] = []
    letters: list[DeadLetter] = []
    place = _next(text, text.find("[") + 1)
    while place < len(text):
        try:
            if text[place] != "{":
                raise ValueError("no object")
            _, end = scan(text, place)
            found.append((content[place:end], place))
        except (ValueError, RecursionError):
            end = text.find("\n", place) % (len(text) + 1)
            if content[place:end].strip(_SPACE + b"]"):
                letters.append(DeadLetter.of(place, "not JSON, in a damaged array", content[place:end]))
        place = _next(text, end)
    yield Lines([item for item, _ in found], np.array([at for _, at in found], np.int64))
    yield letters


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in ", \t\r\n":
        place += 1
    return place
