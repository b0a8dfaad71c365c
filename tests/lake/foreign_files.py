"""Files of other systems for tests of formats: writers that are independent of Genus, and reading back."""

import base64
import io
import json
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from genus import Catalog, Event
from genus.lake._ingest.format import Columns, DeadLetter, Format, Types
from genus.lake._ingest.sources import FormatChooser
from genus.model import attributes, name_of
from genus.records import Mapping
from genus.targets.arrow import to_batch

MICROSECOND = timedelta(microseconds=1)


def types_for(*classes: type) -> Types:
    """The types of a catalog with some classes, as a task knows them."""
    catalog = Catalog()
    catalog.register(*classes)
    return Types(Catalog.parse(catalog.text()))


class Found:
    """Everything that a format reads from a file."""

    def __init__(self, format: Format, path: Path, types: Types, target: int = 1 << 30) -> None:
        self.splits = format.splits(str(path), path.stat().st_size, target)
        chunks = [chunk for split in self.splits for chunk in format.read(split, types)]
        self.columns = [chunk for chunk in chunks if isinstance(chunk, Columns)]
        self.letters = sorted(
            (letter for chunk in chunks if isinstance(chunk, list) for letter in chunk), key=lambda each: each.position
        )
        for columns in self.columns:
            columns.batch.validate(full=True)

    def rows(self) -> list[dict[str, Any]]:
        """Every event with its type, in the order of the file, without absent attributes."""
        found = [{"_type": each.type, **row} for each in self.columns for row in plain_rows(each.batch)]
        positions = [row["_position"] for row in found] + [letter.position for letter in self.letters]
        assert len(set(positions)) == len(positions), "a position is there twice"
        return sorted(found, key=lambda row: int(row["_position"]))

    def events(self) -> list[dict[str, Any]]:
        """The events without the columns that Genus adds."""
        return [{name: value for name, value in row.items() if name not in ADDED} for row in self.rows()]

    @property
    def reasons(self) -> list[str]:
        return [letter.reason for letter in self.letters]

    def letter(self) -> DeadLetter:
        """The only dead letter."""
        assert len(self.letters) == 1, self.letters
        return self.letters[0]


ADDED = ("_position", "_recorded")


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as Python values, times and durations as integers of microseconds, floats so that NaN equals itself."""
    columns = [_plain(column).to_pylist() for column in batch.columns]
    rows = zip(*columns, strict=True) if columns else []
    return [
        {
            name: repr(value) if isinstance(value, float) else value
            for name, value in zip(batch.schema.names, row, strict=True)
            if value is not None
        }
        for row in rows
    ]


def _plain(column: pa.Array) -> pa.Array:
    is_moment = pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type)
    return column.cast(pa.int64()) if is_moment else column


def expected(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The expected rows of some events, made by the Arrow target."""
    return [plain_rows(to_batch([event]))[0] for event in events]


def stored(folder: Path) -> pa.Table:
    """All rows of the Parquet files below a folder."""
    files = sorted(folder.rglob("*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


# -- writers -----------------------------------------------------------------------------------------------------------


def iso_time(moment: datetime) -> str:
    """ISO 8601 has no seconds in zones, which local mean times of old have."""
    offset = moment.utcoffset() or timedelta(0)
    return (moment.astimezone(UTC) if offset.seconds % 60 else moment).isoformat()


def iso_span(span: timedelta) -> str:
    micros = span // MICROSECOND
    whole, part = divmod(abs(micros), 10**6)
    return f"{'-' if micros < 0 else ''}PT{whole}.{part:06}S"


def json_value(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case datetime():
            return iso_time(value)
        case timedelta():
            return iso_span(value)
        case bytes():
            return base64.b64encode(value).decode()
        case float() if value != value or value in (float("inf"), float("-inf")):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


def record_of(event: Event) -> dict[str, Any]:
    values = {a.name: getattr(event, a.name) for a in attributes(type(event))}
    return {name: json_value(value) for name, value in values.items() if value is not None}


def json_line(event: Event, draw: random.Random) -> str:
    """An event as a line, its fields in any order and with any spaces, now and then with a null."""
    fields = list({"type": name_of(type(event)), **record_of(event)}.items())
    draw.shuffle(fields)
    absent = [a.name for a in attributes(type(event)) if getattr(event, a.name) is None]
    if absent and draw.random() < 0.3:
        fields.append((draw.choice(absent), None))
    separators = draw.choice([(",", ":"), (", ", ": "), (" ,", " : ")])
    return json.dumps(dict(fields), separators=separators, ensure_ascii=draw.random() < 0.5)


def csv_cell(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value)
    plain = json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def csv_text(events: Sequence[Event], delimiter: str = ",") -> str:
    """Events as CSV with a column for every attribute of any."""
    names = list(dict.fromkeys(a.name for event in events for a in attributes(type(event))))
    out = io.StringIO(newline="")
    rows = [{"type": name_of(type(event)), **_cells(event)} for event in events]
    for row in [{name: name for name in ("type", *names)}, *rows]:
        cells = [row.get(name) for name in ("type", *names)]
        out.write(delimiter.join("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in cells) + "\n")
    return out.getvalue()


def _cells(event: Event) -> dict[str, str]:
    values = {a.name: getattr(event, a.name) for a in attributes(type(event))}
    return {name: csv_cell(value) for name, value in values.items() if value is not None}


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def format_for(path: str, mapping: Mapping | None = None) -> Format:
    """The format that an ingest would choose."""
    return FormatChooser(None, mapping, None)(path)
