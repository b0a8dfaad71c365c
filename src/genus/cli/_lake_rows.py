"""Rows on the terminal, as JSON lines or in a file, with few of them in memory at a time.

They come from a frame of Spark or, without Spark, from the lake's files.
"""

import base64
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from genus.cli._exit import report_if_interrupted
from genus.cli._groups import appearing, counted, plain_table, sized, wide_console
from genus.cli._lake import working
from genus.errors import LakeError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from rich.table import Table

    from genus.lake.types import LocalEvents

SHOWN = 20
"""So many rows are printed unless more are asked for."""
ENDINGS = (".parquet", ".csv", ".json", ".jsonl", ".ndjson")
_ADDRESS = ("subscriber", "subscription")
_TYPE = "_type"

ROW_OPTIONS = (
    click.option("--limit", type=click.IntRange(1), metavar="N", help=f"How many rows at most [{SHOWN} in a table]."),
    click.option("--columns", metavar="A,B,...", help="Only these columns; * are all, those of Genus' own too."),
    click.option("--count", "only_count", is_flag=True, help="Only print the number of rows."),
    click.option(
        "-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to a .parquet, .csv or .jsonl file."
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON object a line; absent attributes are left out."),
)


class Asked(msgspec.Struct, frozen=True):
    """Which rows and columns are wanted, and where."""

    limit: int | None
    columns: str | None
    only_count: bool
    out: Path | None
    as_json: bool

    def __post_init__(self) -> None:
        if self.out is not None and self.out.suffix not in ENDINGS:
            raise click.UsageError(f"--out {self.out}: the ending is none of {', '.join(ENDINGS)}")
        if self.out is not None and (self.only_count or self.as_json):
            raise click.UsageError("--out writes the rows to a file; leave out --count and --json, which print")


def takes_rows(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for rows, columns and output to a command."""
    for option in reversed(ROW_OPTIONS):
        command = option(command)
    return command


# -- where rows come from ----------------------------------------------------------------------------------------------


class Rows(Protocol):
    """Rows of some columns."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""

    @property
    def schema(self) -> "pa.Schema":
        """Their types."""

    def select(self, columns: list[str]) -> "Rows":
        """Return the same rows with some of the columns."""

    def limit(self, most: int) -> "Rows":
        """So many of the rows at most."""

    def count(self) -> int:
        """Return how many there are."""

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Return the rows in Arrow batches."""

    def working(self, text: str) -> AbstractContextManager[None]:
        """Shows how far the work has come while the block runs."""


class SparkRows:
    """The rows of a frame."""

    def __init__(self, frame: "DataFrame") -> None:
        self._frame = frame
        self.columns: list[str] = frame.columns

    @property
    def schema(self) -> "pa.Schema":
        """The types of the columns; all may be absent, for Spark does not say the same of every batch."""
        import pyarrow as pa

        return pa.schema([field.with_nullable(True) for field in self._frame.limit(0).toArrow().schema])

    def select(self, columns: list[str]) -> "SparkRows":
        """Return the same rows with some of the columns."""
        return SparkRows(self._frame.select(*(f"`{name.replace('`', '``')}`" for name in columns)))

    def limit(self, most: int) -> "SparkRows":
        """So many of the rows at most."""
        return SparkRows(self._frame.limit(most))

    def count(self) -> int:
        """Return how many there are."""
        return self._frame.count()

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Return the rows in Arrow batches, one partition after another."""
        return batches(self._frame)

    def working(self, text: str) -> AbstractContextManager[None]:
        """Return a spinner that counts the tasks of Spark."""
        return working(self._frame.sparkSession, text)


class LocalRows:
    """The rows of events that are read without Spark."""

    def __init__(self, events: "LocalEvents", most: int | None = None) -> None:
        self._events = events
        self._most = most
        self.columns = events.columns

    @property
    def schema(self) -> "pa.Schema":
        """The types of the columns."""
        return self._events.schema

    def select(self, columns: list[str]) -> "LocalRows":
        """Return the same rows with some of the columns."""
        return LocalRows(self._events.select(columns), self._most)

    def limit(self, most: int) -> "LocalRows":
        """So many of the rows at most."""
        return LocalRows(self._events, most)

    def count(self) -> int:
        """Return how many there are."""
        found = self._events.count()
        return found if self._most is None else min(found, self._most)

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Yield the rows in Arrow batches."""
        left = self._most
        with closing(self._events.batches()) as found:
            for batch in found:
                yield batch if left is None else batch.slice(0, left)
                if left is not None and (left := left - batch.num_rows) <= 0:
                    return

    def working(self, text: str) -> AbstractContextManager[None]:
        """Nothing: small questions are answered before one could read it."""
        return nullcontext()


def give(frame: "DataFrame", asked: Asked) -> int:
    """Count, print or write the rows of a frame, as asked; how many there were."""
    return give_rows(SparkRows(frame), asked)


def give_rows(rows: Rows, asked: Asked) -> int:
    """Count, print or write rows, as asked; how many there were."""
    limited = rows if asked.limit is None else rows.limit(asked.limit)
    if asked.only_count:
        return _count(limited, asked.as_json)
    if asked.out is not None:
        return _write(_chosen(limited, asked.columns), asked.out)
    if asked.as_json:
        return _print(_chosen(limited, asked.columns))
    return _show(_chosen(rows, asked.columns), asked.limit or SHOWN, asked.columns is None)


def _count(rows: Rows, as_json: bool) -> int:
    with rows.working("counting"):
        number = rows.count()
    click.echo(msgspec.json.encode({"count": number}).decode() if as_json else number)
    return number


def _print(rows: Rows) -> int:
    printed = 0
    for batch in rows.batches():
        click.echo(json_lines(batch), nl=False)
        printed += batch.num_rows
    return printed


def _chosen(rows: Rows, columns: str | None) -> Rows:
    """Return the named columns; by default the type, the attributes and the subscriber."""
    if columns == "*":
        return rows
    if columns is None:
        first = [name for name in (*_ADDRESS, _TYPE) if name in rows.columns]
        return rows.select([*first, *(n for n in rows.columns if n not in first and not n.startswith("_"))])
    names = [name.strip() for name in columns.split(",")]
    if unknown := [name for name in names if name not in rows.columns]:
        raise LakeError(f"there is no column {unknown[0]!r}; there are {', '.join(rows.columns)}")
    return rows.select(names)


# -- in batches --------------------------------------------------------------------------------------------------------


def batches(frame: "DataFrame") -> Iterator["pa.RecordBatch"]:
    """Yield the rows in Arrow batches, one partition after another.

    `mapInArrow` takes names of columns as expressions, and `avg(3.6 * speed)` is one that names no column.
    """
    import pyarrow as pa

    plain = frame.toDF(*(f"c{number}" for number, _ in enumerate(frame.columns)))
    for row in plain.mapInArrow(_packed, "batch binary").toLocalIterator(prefetchPartitions=True):
        for batch in pa.ipc.open_stream(bytes(row[0])):
            yield pa.RecordBatch.from_arrays(batch.columns, names=frame.columns)


def _packed(found: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """In a task: each batch as a value of its own, for Spark hands rows to the driver, not batches."""
    import pyarrow as pa

    for batch in found:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["batch"])


def json_lines(batch: "pa.RecordBatch") -> bytes:
    """Return a batch as JSON, one object a line; numbers that JSON has no form for are texts: "NaN", "Infinity"."""
    rows = batch.to_pylist()
    for column, field in zip(batch.columns, batch.schema, strict=True):
        if str(field.type) in ("float", "double") and not _is_finite(column):
            for row in rows:
                row[field.name] = _in_json(row[field.name])
    return b"".join(
        msgspec.json.encode({name: it for name, it in row.items() if it is not None}) + b"\n" for row in rows
    )


def _is_finite(column: "pa.Array") -> bool:
    import pyarrow.compute as pc

    return pc.all(pc.is_finite(column)).as_py() is not False


def _in_json(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# -- on the terminal ---------------------------------------------------------------------------------------------------


def _show(given: Rows, limit: int, hide_empty: bool) -> int:
    import pyarrow as pa

    with given.working("reading"):
        found = pa.Table.from_batches(given.limit(limit + 1).batches(), given.schema)
    rows = found.slice(0, limit)
    names = [name for name in rows.column_names if not hide_empty or rows.column(name).null_count < rows.num_rows]
    texts = [{name: shown(value) for name, value in row.items()} for row in rows.select(names).to_pylist()]
    console = wide_console()
    widths = [max(len(name), *(len(row[name]) for row in texts)) + 2 for name in names] if texts else []
    if sum(widths) > 2 * console.width:
        click.echo("\n\n".join(_record(row) for row in texts))
    elif texts:
        console.print(_table(texts, [field.name for field in rows.schema if _is_number(str(field.type))]))
    number = counted(rows.num_rows, "row")
    click.echo(f"{number} of more; --limit shows more, --count counts" if found.num_rows > limit else number, err=True)
    return int(rows.num_rows)


def _table(texts: list[dict[str, str]], numbers: list[str]) -> "Table":
    from rich.text import Text

    table = plain_table(*texts[0], numbers=numbers)
    for row in texts:
        table.add_row(*map(Text, row.values()))
    return table


def _record(row: dict[str, str]) -> str:
    """A row that is too wide for a line, with a line for each value."""
    widest = max(map(len, row))
    return "\n".join(f"{name:<{widest}}  {text}" for name, text in row.items() if text)


def _is_number(type_: str) -> bool:
    return type_.startswith(("int", "float", "double", "decimal"))


def shown(value: Any) -> str:
    """Return a value as a person reads it; nothing where it is absent."""
    match value:
        case None:
            return ""
        case datetime():
            return value.isoformat(" ").removesuffix("+00:00")
        case timedelta():
            return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + " s"
        case bytes():
            return value.hex(" ")
        case float():
            return f"{value:.6g}" if abs(value) < 1e6 else repr(value)
    return str(value)


# -- in a file ---------------------------------------------------------------------------------------------------------


class Sink(Protocol):
    """Something that takes batches of one schema."""

    def write_batch(self, batch: "pa.RecordBatch") -> object:
        """Take a batch."""

    def close(self) -> object:
        """Finish."""


def _write(rows: Rows, path: Path) -> int:
    """Write to a temporary file and rename it when it is complete."""
    written = 0
    with (
        report_if_interrupted(lambda: f"{path} was not written"),
        appearing(path) as made,
        closing(_sink(made, path.suffix, rows)) as sink,
        rows.working(f"writing {path}"),
    ):
        for batch in rows.batches():
            sink.write_batch(batch)
            written += batch.num_rows
    click.echo(f"{counted(written, 'row')}, {sized(path.stat().st_size)} in {path}", err=True)
    return written


def _sink(path: Path, ending: str, rows: Rows) -> Sink:
    if ending not in (".parquet", ".csv"):
        return _JsonSink(path)
    if ending == ".csv":
        return _CsvSink(path, rows.schema)
    import pyarrow.parquet as pq

    sink: Sink = pq.ParquetWriter(path, rows.schema, compression="zstd")
    return sink


class _JsonSink:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write_batch(self, batch: "pa.RecordBatch") -> None:
        self._file.write(json_lines(batch))

    def close(self) -> None:
        self._file.close()


class _CsvSink:
    """Durations are written in seconds, bytes in base64, lists, maps and structs as JSON: CSV has no form for them."""

    def __init__(self, path: Path, schema: "pa.Schema") -> None:
        import pyarrow as pa
        import pyarrow.csv as csv

        empty = as_texts(pa.RecordBatch.from_pylist([], schema))
        self._writer = csv.CSVWriter(path, empty.schema)

    def write_batch(self, batch: "pa.RecordBatch") -> None:
        self._writer.write_batch(as_texts(batch))

    def close(self) -> None:
        self._writer.close()


def as_texts(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """A batch without the types that CSV has no form for."""
    import pyarrow as pa

    columns = [_as_text(column, str(column.type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _as_text(column: "pa.Array", type_: str) -> "pa.Array":
    import pyarrow as pa
    import pyarrow.compute as pc

    if type_.startswith("duration"):
        return pc.divide(pc.cast(pc.cast(column, pa.duration("us")), pa.int64()).cast(pa.float64()), 1e6)
    if type_ == "binary":
        texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_nested(column.type):
        texts = [None if value is None else msgspec.json.encode(value).decode() for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column
