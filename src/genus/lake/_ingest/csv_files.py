"""CSV files; the position of an event is the byte offset of its row.

Only quoted values can contain line ends. So a file is cut into ranges of bytes if it has no quotes at all, which is
checked, or if the mapping says `newlines = false`. Where values may contain line ends, two lines with an odd number of
quotes, and all lines between them, are one row. If they are not a valid row, the first line is a dead letter and the
others are read on their own. So is it if one of the lines between them is a row by itself, unless the mapping says
`newlines = true`: a stray quote would otherwise swallow all rows up to the next one.

A quoted value is quoted as a whole, and quotes in it are doubled. A row with other quotes is a dead letter: what it
means would have to be guessed.
"""

import csv
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from genus.errors import LakeError
from genus.lake._ingest.format import (
    LINE_LIMIT,
    Chunk,
    DeadLetter,
    Lines,
    Split,
    Types,
    byte_ranges,
    changed_us,
    is_compressed,
    read_lines,
)
from genus.lake._ingest.tabular import TableReader
from genus.lake._tables.files import open_input
from genus.records import Mapping
from genus.records.internal import CsvFormat, column_name

UNCLOSED = "a quote is not closed"
STRAY = (
    "a quote is inside a value; quotes enclose a whole value and are doubled in it, or the mapping says that there are "
    'none: [csv] quote = ""'
)
_PIECE = 1 << 22


class Csv(msgspec.Struct, frozen=True):
    """CSV with one row per event; the first row has the column names, unless the mapping gives them."""

    mapping: Mapping = Mapping()
    delimiter: str = ","

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Ranges of bytes if no value can contain a line end, otherwise one split."""
        return byte_ranges(path, size, size if _may_span(path, self.mapping.csv) else target)

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        form = self.mapping.csv
        names = list(form.columns) or self._header(split)
        if isinstance(names, DeadLetter):
            yield from [[names]] if split.start == 0 else []
            return
        table = TableReader(self.mapping, types, changed_us(split.path), as_text=True)
        absent = ["", *(value if isinstance(value, str) else repr(value) for value in self.mapping.absent)]
        parser = RowParser(names, self.delimiter, form.quote, absent)
        lines = _without_header(read_lines(split)) if not form.columns and split.start == 0 else read_lines(split)
        for rows in LineJoiner(parser.row, form).rows(lines) if form.quote else lines:
            columns, offsets, letters = parser.parse(rows)
            yield from table.read(columns, offsets)
            yield from [letters] if letters else []

    def check_named(self, path: str, types: Types) -> None:
        """Raise LakeError if no row of a file can have a type, because its header lacks a column that names it."""
        names = list(self.mapping.csv.columns) or self._header(Split(path, 0, 1, gzipped=is_compressed(path)))
        wanted = [column_name(each) for each in self.mapping.naming.fields]
        if isinstance(names, DeadLetter) or not (missing := [name for name in wanted if name not in names]):
            return
        alike = max(types.names, key=lambda name: (len({*names} & {*types.declared(name)}), name != "Event"))
        other = next((name for name in names if name not in types.declared(alike)), "column")
        raise LakeError(
            f"{path}: its rows have no type: the header has no column {missing[0]!r}, but {', '.join(names)}. Give a "
            f'mapping (mapping=, --mapping), a TOML file with a line like `type.is = "{alike}"`, and for columns that '
            f'are not named like their attributes, below `[attributes]`, lines like `"{other}" = "attribute"`'
        )

    def _header(self, split: Split) -> list[str] | DeadLetter:
        """Return the column names in the first line that is not blank; a dead letter if they cannot be read."""
        for piece in read_lines(msgspec.structs.replace(split, start=0, end=1)):
            for line in filter(bytes.strip, piece.lines):
                return self._names(line)
            if piece.letters:
                return piece.letters[0]
        return DeadLetter.of(0, "no header", b"")

    def _names(self, line: bytes) -> list[str] | DeadLetter:
        quote = self.mapping.csv.quote
        quoting = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
        try:
            text = line.decode("utf-8").rstrip("\r")
            names = next(csv.reader([text], delimiter=self.delimiter, strict=True, **quoting))
        except (UnicodeDecodeError, csv.Error) as problem:
            return DeadLetter.of(0, f"the header cannot be read: {problem}", line)
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            return DeadLetter.of(0, f"the header names {', '.join(map(repr, duplicates))} more than once", line)
        return list(names)


def _may_span(path: str, form: CsvFormat) -> bool:
    """Return whether values may contain line ends, by the mapping, or because the file has quotes."""
    if not form.quote or form.newlines is not None or is_compressed(path):
        return bool(form.quote) and form.newlines is not False
    with open_input(path) as file:
        return any(form.quote.encode() in piece for piece in iter(partial(file.read, _PIECE), b""))


def _without_header(pieces: Iterator[Lines]) -> Iterator[Lines]:
    for piece in pieces:
        first = next((row for row, line in enumerate(piece.lines) if line.strip()), len(piece.lines))
        yield piece.after(first)
        if first < len(piece.lines):
            break
    yield from pieces


class LineJoiner:
    """Joins the lines of rows whose values have line ends. State: the lines after a quote that is still open."""

    def __init__(self, row: re.Pattern[bytes], form: CsvFormat) -> None:
        self._row, self._quote, self._newlines = row, form.quote.encode(), form.newlines
        self._open = Lines.of([], [])

    def rows(self, pieces: Iterator[Lines]) -> Iterator[Lines]:
        """Yield the rows of lines, and dead letters for lines with a quote that is not closed."""
        for piece in pieces:
            lines, offsets, _ = self._open
            joined = Lines([*lines, *piece.lines], np.concatenate([offsets, piece.offsets]), piece.letters)
            yield self._join(joined if lines else piece)
            while sum(map(len, self._open.lines)) > LINE_LIMIT:
                yield self._give_up()
        while self._open.lines:
            yield self._give_up()

    def _give_up(self) -> Lines:
        """Make the line that opened a quote a dead letter, and read the lines after it again."""
        letter = DeadLetter.of(int(self._open.offsets[0]), UNCLOSED, self._open.lines[0])
        return self._join(self._open.after(0)._replace(letters=[letter]))

    def _join(self, piece: Lines) -> Lines:
        """Return the rows of lines; those with an odd number of quotes open or close a value."""
        self._open = Lines.of([], [])
        lines, offsets, given = piece
        odd = [row for row, line in enumerate(lines) if line.count(self._quote) % 2]
        if not odd:
            return piece
        rows: list[tuple[bytes, int]] = []
        letters = [*given]
        done, opened = 0, None
        for row in (*odd, len(lines)):
            if opened is not None:
                if row == len(lines) and not self._swallows(lines[opened + 1 :]):
                    break
                joined = b"\n".join(lines[opened : row + 1])
                if row < len(lines) and not self._swallows(lines[opened + 1 : row]) and self._row.fullmatch(joined):
                    rows.append((joined, int(offsets[opened])))
                    done, opened = row + 1, None
                    continue
                letters.append(DeadLetter.of(int(offsets[opened]), UNCLOSED, lines[opened]))
                done = opened + 1
            rows += zip(lines[done:row], offsets[done:row].tolist(), strict=True)
            done, opened = row, row if row < len(lines) else None
        if opened is not None:
            self._open = Lines(lines[opened:], offsets[opened:], [])
        return Lines.of(rows, letters)

    def _swallows(self, lines: list[bytes]) -> bool:
        """Return whether lines after an open quote cannot be part of its value."""
        if self._newlines is not None:
            return not self._newlines
        return any(line.strip() and self._row.fullmatch(line) for line in lines)


class RowParser:
    def __init__(self, names: list[str], delimiter: str, quote: str, absent: list[str]) -> None:
        self._names, self._delimiter, self._quote = names, delimiter, quote
        self.row = _row_pattern(rf"{{{len(names) - 1}}}".encode(), delimiter.encode(), quote.encode())
        self._any_row = _row_pattern(b"*+", delimiter.encode(), quote.encode())
        self._no_rows = pa.schema([(name, pa.string()) for name in names]).empty_table()
        self._convert = arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=absent,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def parse(self, rows: Lines) -> tuple[dict[str, pa.Array], Any, list[DeadLetter]]:
        """Return the columns of rows and the offset of each row; rows that do not fit become dead letters."""
        letters = [*rows.letters]
        rows = self._well_formed(rows, letters)
        parts = list(self._parts(rows, letters)) if rows.lines else []
        table = pa.concat_tables([self._no_rows, *(table for table, _ in parts)])
        columns = {name: table.column(name).combine_chunks() for name in self._names}
        return columns, np.concatenate([np.zeros(0, np.int64), *(offsets for _, offsets in parts)]), letters

    def _well_formed(self, rows: Lines, letters: list[DeadLetter]) -> Lines:
        """Return the rows without blank ones and without those with stray quotes, which become dead letters.

        A stray quote would make Arrow read several rows as one.
        """
        mark, is_row = self._quote.encode(), self._any_row.fullmatch
        stray = [row for row, line in enumerate(rows.lines) if mark and mark in line and not is_row(line)]
        letters += [DeadLetter.of(int(rows.offsets[row]), STRAY, rows.lines[row]) for row in stray]
        left_out = {*stray, *(row for row, line in enumerate(rows.lines) if not line.strip())}
        return rows.take([row for row in range(len(rows.lines)) if row not in left_out]) if left_out else rows

    def _parts(self, rows: Lines, letters: list[DeadLetter]) -> Iterator[tuple[pa.Table, Any]]:
        """Parse rows as a whole; if that fails, by halves, until the bad rows are alone."""
        table, refused = self._parse(rows.lines)
        if table is not None and table.num_rows + len(refused) == len(rows.lines):
            for row, reason in refused.items():
                letters.append(DeadLetter.of(int(rows.offsets[row]), reason, rows.lines[row]))
            yield table, np.delete(rows.offsets, list(refused))
        elif len(rows.lines) == 1:
            letters.append(DeadLetter.of(int(rows.offsets[0]), _problem(rows.lines[0]), rows.lines[0]))
        else:
            half = len(rows.lines) // 2
            yield from self._parts(rows.take(list(range(half))), letters)
            yield from self._parts(rows.after(half - 1), letters)

    def _parse(self, lines: list[bytes]) -> tuple[pa.Table | None, dict[int, str]]:
        """The columns of lines, and the reasons for lines with too few or too many; None if Arrow refuses them all."""
        refused: dict[int, str] = {}

        def refuse(row: Any) -> str:
            refused[row.number - 1] = f"{row.actual_columns} columns instead of {row.expected_columns}"
            return "skip"

        text = b"\n".join([*lines, b""])
        read = arrow_csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(text) + 1)
        parse = arrow_csv.ParseOptions(
            delimiter=self._delimiter,
            quote_char=self._quote or False,
            newlines_in_values=True,
            invalid_row_handler=refuse,
        )
        try:
            text.decode("utf-8")  # Arrow cannot pass rows to the function above that are not UTF-8
            return arrow_csv.read_csv(pa.BufferReader(text), read, parse, self._convert), refused
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None, refused


def _problem(line: bytes) -> str:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as problem:
        return f"not UTF-8: {problem}"
    return "not a row of CSV"


def _row_pattern(more: bytes, delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    """Return a pattern for a row with one value and `more` others, in which quotes enclose whole values."""
    end, open_ = re.escape(delimiter), re.escape(quote)
    value = b"(?:Q[^Q]*+(?>(?:QQ[^Q]*+)*)Q|[^QE\\r\\n]*+)" if quote else b"[^E\\r\\n]*+"
    value = value.replace(b"Q", open_).replace(b"E", end)
    return re.compile(value + b"(?:" + end + value + b")" + more + rb"\r?")
