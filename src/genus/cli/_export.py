"""`genus export`: the events of a recording as a file for other programs."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from genus.bus import read_recording
from genus.bus.types import Recorded, Recording
from genus.cli._bus import SUBSCRIPTION, report_skipped, why_none
from genus.cli._events import TYPES, as_text, load_all
from genus.cli._exit import DAMAGED
from genus.cli._groups import appearing, counted, sized
from genus.filters import Subscription
from genus.model import Event, attributes, is_event_type, micros_of_time, name_of, subtypes, vector

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 10_000
"""Rows of a group in a Parquet file."""
FORMS = ("mcap", "jsonl", "parquet", "cloudevents")


@click.command()
@TYPES
@click.argument("recording", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@SUBSCRIPTION
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    metavar="FORMAT",
    help=f"{', '.join(FORMS)} [by the ending of OUT].",
)
def export(types: tuple[str, ...], recording: Path, out: Path, subscription: str, form: str | None) -> None:
    """Write the events of a recording to a file for other programs.

    Those that match SUBSCRIPTION (default: all). OUT appears when it is complete. Its ending says its form:

    \b
    .mcap               for Foxglove and its kin: JSON messages, a topic and a JSON schema for each type
    .parquet            for pandas, DuckDB, Spark: one table, a column for each attribute
    .jsonl              one JSON object a line, as `genus replay --print --json` prints it
    .cloudevents.jsonl  CloudEvents 1.0, one JSON object a line

    MCAP and Parquet have the times of recording, too. Damaged parts are skipped and reported; the exit code is then 3.

    \b
    genus export -t examples/traffic.py loops.genus loops.mcap
    genus export -t examples/traffic.py loops.genus trucks.parquet "Loop where category = 'truck'"
    """
    chosen = form or form_of(out)
    if out.exists() and out.samefile(recording):
        raise click.UsageError(f"{out} is the recording itself; choose another name")
    loaded = load_all(types)
    asked = Subscription.parse(subscription, [*loaded, Event])
    source = read_recording(recording, [cls for cls in loaded if is_event_type(cls)])
    classes = [cls for each in loaded for cls in subtypes(each) if name_of(cls) in source.index().types]
    with appearing(out) as part:
        with _progress(source) as count:
            events = count(each for each in source if asked.matches(each.event))
            written = WRITERS[chosen](part, events, list(dict.fromkeys(classes)))
        if source.problems and not source.events:
            raise click.ClickException(why_none(source, types))
    report_skipped(source)
    total = counted(source.events + source.problems.total(), "event")
    click.echo(f"exported {written:,} of {total}, {sized(out.stat().st_size)} in {out}", err=True)
    if source.damage:
        sys.exit(DAMAGED)


def form_of(out: Path) -> str:
    """Return the form that the ending of a file names; UsageError if it names none.

    >>> form_of(Path("a.MCAP")), form_of(Path("a.cloudevents.jsonl")), form_of(Path("a.jsonl"))
    ('mcap', 'cloudevents', 'jsonl')
    """
    name = out.name.lower()
    if name.endswith(".cloudevents.jsonl"):
        return "cloudevents"
    ending = out.suffix.lower().removeprefix(".")
    if ending not in FORMS:
        raise click.UsageError(
            f"the ending of {out.name} names no form; use .mcap, .parquet, .jsonl, .cloudevents.jsonl, or give --format"
        )
    return ending


@contextmanager
def _progress(source: Recording) -> Iterator[Callable[[Iterable[Recorded]], Iterator[Recorded]]]:
    """Show on a terminal how much of a recording was read."""
    console = Console(stderr=True)
    columns = TextColumn("exporting"), BarColumn(), TextColumn("{task.completed:,.0f} events"), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=source.index().events)

        def count(events: Iterable[Recorded]) -> Iterator[Recorded]:
            for each in events:
                yield each
                progress.update(task, completed=source.events)

        yield count


# -- forms -------------------------------------------------------------------------------------------------------------


def write_jsonl(path: Path, events: Iterator[Recorded], classes: list[type]) -> int:
    """Write a JSON object a line."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for written, each in enumerate(events, 1):  # noqa: B007
            file.write(as_text(each.event, as_json=True) + "\n")
    return written


def write_cloudevents(path: Path, events: Iterator[Recorded], classes: list[type]) -> int:
    """Write a CloudEvent a line."""
    from genus.net import write_cloudevents as write

    return write(path, (each.event for each in events))


def write_mcap(path: Path, events: Iterator[Recorded], classes: list[type]) -> int:
    """Write JSON messages with a JSON schema for each type; a message was logged when its event was recorded."""
    from mcap.writer import Writer

    written, channels = 0, dict[type, int]()
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start(profile="", library="genus")
        for each in events:
            cls, event = type(each.event), each.event
            if cls not in channels:
                schema = writer.register_schema(name_of(cls), "jsonschema", msgspec.json.encode(json_schema(cls)))
                channels[cls] = writer.register_channel(name_of(cls), "json", schema)
            logged, said = each.at_us * 1000, each.at_us if event.time is None else micros_of_time(event.time)
            if logged < 0 or said < 0:
                raise click.ClickException("MCAP has no times before 1970; export other events, or to another form")
            writer.add_message(channels[cls], logged, msgspec.json.encode(event), said * 1000, sequence=written)
            written += 1
        writer.finish()  # type: ignore[no-untyped-call]
    return written


def json_schema(cls: type) -> dict[str, Any]:
    """The JSON schema of the events of a type, with its properties at the top, where readers of MCAP expect them.

    >>> from genus import Event, Maybe
    >>> class Lamp(Event):
    ...     watts: Maybe[float] = None
    ...     number: int
    >>> found = json_schema(Lamp)
    >>> found["properties"]["number"]["type"], found["required"]
    ('integer', ['number'])
    """
    found = msgspec.json.schema(cls, schema_hook=lambda _: {})
    parts: dict[str, Any] = found.pop("$defs")
    own = parts.pop(found["$ref"].rpartition("/")[2])
    required = [each.name for each in attributes(cls) if not each.optional]
    return {**own, "required": required, **({"$defs": parts} if parts else {})}


def write_parquet(path: Path, events: Iterator[Recorded], classes: list[type]) -> int:
    """Write a table: the type, the time of recording, and a column for each attribute of the types in the recording.

    An attribute that has other types in other families has a column for each, such as `Loop.position`.
    """
    import pyarrow.parquet as pq

    columns = TableColumns(classes)
    written = 0
    with pq.ParquetWriter(path, columns.schema, compression="zstd") as writer:
        while chunk := list(islice(events, CHUNK)):
            writer.write_table(columns.table(chunk))
            written += len(chunk)
    return written


class TableColumns:
    """The columns of a table of events of several types."""

    def __init__(self, classes: list[type]) -> None:
        import pyarrow as pa

        from genus.targets.arrow import arrow_schema

        schemas = {cls: arrow_schema(cls) for cls in classes}
        kinds: dict[str, set[Any]] = {}
        for schema in schemas.values():
            for field in schema:
                kinds.setdefault(field.name, set()).add(field.type)
        self._names = {
            cls: [each.name if len(kinds[each.name]) == 1 else f"{vector(cls).scope}.{each.name}" for each in schema]
            for cls, schema in schemas.items()
        }
        named = {name: kind for cls in classes for name, kind in zip(self._names[cls], schemas[cls].types, strict=True)}
        first = {"_type": pa.string(), "_recorded": pa.timestamp("us", tz="UTC")}
        self.schema = pa.schema(list((first | named).items()))

    def table(self, chunk: list[Recorded]) -> "pa.Table":
        """Return the rows of some events, in their order."""
        import pyarrow as pa

        from genus.targets.arrow import to_batch

        rows: dict[type, list[int]] = {}
        for row, each in enumerate(chunk):
            rows.setdefault(type(each.event), []).append(row)
        parts = []
        for cls, own in rows.items():
            batch = to_batch([chunk[row].event for row in own], cls)
            parts.append(pa.table(dict(zip(self._names[cls], batch.columns, strict=True))))
        order = [row for own in rows.values() for row in own]
        places = sorted(range(len(order)), key=order.__getitem__)
        table = pa.concat_tables(parts, promote_options="default").take(places)
        recorded = pa.array([each.at_us for each in chunk], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        table = table.append_column("_recorded", recorded)
        absent = [each for each in self.schema if each.name not in table.column_names]
        for each in absent:
            table = table.append_column(each.name, pa.nulls(len(chunk), each.type))
        return table.select(self.schema.names)


WRITERS: dict[str, Callable[[Path, Iterator[Recorded], list[type]], int]] = {
    "mcap": write_mcap,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
    "cloudevents": write_cloudevents,
}
