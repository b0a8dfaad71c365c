"""`genus can types` and `genus can decode`: event types from a DBC file or the like, and CAN logs as their events.

python-can and cantools are extras, so what needs them is imported when a command runs.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from genus.bus import RecordingWriter
from genus.cli._events import LOG_FORMATS, as_text, takes_j1939, takes_log_columns
from genus.cli._exit import report_if_interrupted
from genus.cli._groups import counted, meant, wide_console
from genus.filters import Subscription
from genus.model import Event, attributes
from genus.model.types import Attribute

if TYPE_CHECKING:
    from genus.can import Decoding
    from genus.can.types import CanLog, Dbc, MessageLayout

PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
OUT = click.Path(dir_okay=False, path_type=Path)
TRUNCATED = click.option(
    "--truncated",
    is_flag=True,
    help="Decode frames that are shorter than their message as far as they reach; every attribute may be absent.",
)
MAX_ROWS = 20
"""So many unknown identifiers and places are shown; the rest is counted."""


@click.command(name="types")
@click.argument("file", type=PATH)
@click.argument("names", nargs=-1, metavar="[TYPE]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the bits of every signal, instead of a table.")
@click.option(
    "--python",
    "module",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write a Python module that declares the types to this file (- is the screen).",
)
@TRUNCATED
@takes_j1939
def types_(
    file: Path,
    names: tuple[str, ...],
    as_json: bool,
    module: Path | None,
    truncated: bool,
    j1939: bool | None,
    nmea2000: bool,
) -> None:
    """Show the event types that the messages of a database become.

    It may be a DBC, ARXML, KCD or SYM file; a CDD file has diagnostic data instead of messages. A large file is listed
    in short; name the TYPEs to see in full. What was repaired, names that had to be changed and errors in the file are
    listed at the end.

    \b
    genus can types car.dbc
    genus can types car.dbc --python car.py
    """
    from genus.can import load_dbc, python_source

    if as_json and module:
        raise click.UsageError("give --json or --python, not both")
    dbc = load_dbc(file, truncated=truncated, j1939=j1939, nmea2000=nmea2000)
    if module is not None:
        with click.open_file(str(module), "w", encoding="utf-8") as target:
            target.write(python_source(dbc))
    elif as_json:
        click.echo(json.dumps(_as_json(dbc), indent=2, ensure_ascii=False))
    else:
        _show_types(dbc, names)
    if not as_json:
        _say_remarks(dbc)


def _show_types(dbc: "Dbc", names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in dbc.types]
    if unknown:
        raise click.ClickException(f"the file has no type {', '.join(unknown)}")
    messages = (*dbc.all_messages, *dbc.dids)
    if names or len(messages) <= MAX_ROWS:
        chosen = [message for message in messages if not names or message.type_name in names]
        wide_console().print(_type_table(dbc, chosen))
    else:
        wide_console().print(_overview(dbc))


def _overview(dbc: "Dbc") -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title=f"{dbc.kind.__name__} (kind of all)")
    for heading in ("type", "frame", "bytes", "attributes"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "type" else "right")
    for message in (*dbc.all_messages, *dbc.dids):
        count = sum(1 for _ in _own(dbc, message))
        table.add_row(message.type_name, _frame(message), str(message.length), str(count))
    table.caption = "name types to see their attributes"
    return table


def _type_table(dbc: "Dbc", messages: "Sequence[MessageLayout]") -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, title=f"{dbc.kind.__name__} (kind of all)")
    table.add_column("type", no_wrap=True)
    table.add_column("frame", no_wrap=True, justify="right")
    table.add_column("bytes", justify="right")
    table.add_column(escape("attribute: type [unit]"), overflow="fold")
    for message in messages:
        shown = escape(", ".join(map(_spell, _own(dbc, message))))
        table.add_row(message.type_name, _frame(message), str(message.length), shown)
    return table


def _own(dbc: "Dbc", message: "MessageLayout") -> Iterator[Attribute]:
    inherited = set(attributes(Event))
    return (each for each in attributes(dbc.types[message.type_name]) if each not in inherited)


def _spell(attribute: Attribute) -> str:
    return f"{attribute} [{attribute.unit}]" if attribute.unit else str(attribute)


def _frame(message: "MessageLayout") -> str:
    """Return the identifier as logs write it: eight digits if it is extended."""
    if message.diagnostic:
        return f"DID {message.frame_id:04X}"
    return f"{message.frame_id:0{8 if message.extended else 3}X}"


def _as_json(dbc: "Dbc") -> dict[str, Any]:
    return {
        "kind": dbc.kind.__name__,
        "types": [_message_as_json(message) for message in (*dbc.all_messages, *dbc.dids)],
        "repairs": list(dbc.repairs),
        "renamed": dict(dbc.renamed),
        "problems": list(dbc.problems),
    }


def _message_as_json(message: "MessageLayout") -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(message)
    for layout, signal in zip(message.signals, found["signals"], strict=True):
        signal["type"] = layout.annotation
        signal["choices"] = {str(value): label for value, label in layout.choices}
        signal["selected_by"] = sorted(layout.selected_by)
        signal["selects"] = None if layout.selects is None else sorted(layout.selects)
    return found


def _say_remarks(dbc: "Dbc") -> None:
    for repair in dbc.repairs:
        click.echo(f"repaired: {repair}", err=True)
    for wanted, name in dbc.renamed.items():
        click.echo(f"renamed: {wanted} is {name}", err=True)
    for problem in dbc.problems:
        click.echo(f"problem: {problem}", err=True)


def _mention_remarks(dbc: "Dbc", file: Path) -> None:
    """Say that there are repairs and problems; a file may have hundreds, so only one problem is shown at once."""
    if len(dbc.problems) == 1:
        click.echo(f"genus: {file}: {dbc.problems[0]}", err=True)
    several = len(dbc.problems) if len(dbc.problems) > 1 else 0
    counts = [counted(count, what) for count, what in ((len(dbc.repairs), "repair"), (several, "problem")) if count]
    if counts:
        click.echo(f"genus: {file}: {' and '.join(counts)}; `genus can types {file}` lists them", err=True)


@click.command()
@click.argument("log", type=click.Path(path_type=Path))
@click.option(
    "--dbc", "database", required=True, type=PATH, metavar="FILE", help="The DBC file of the bus (or ARXML, KCD, SYM)."
)
@click.option("-o", "--out", "output", type=OUT, metavar="FILE", help="Write a recording to this file.")
@click.option("--append", is_flag=True, help="Go on writing to a recording that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the events, one JSON object a line.")
@click.option(
    "-s", "--subscribe", "text", metavar="SUBSCRIPTION", help='Only events that match, like "Speed where kmh > 30".'
)
@click.option("--channel", metavar="NAME", help="Only frames of this channel of the log, like can0.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(LOG_FORMATS),
    metavar="FORMAT",
    help="The log's format, such as log, asc or csv, if its content does not show it.",
)
@takes_log_columns
@takes_j1939
@TRUNCATED
def decode(
    log: Path,
    database: Path,
    output: Path | None,
    append: bool,
    as_json: bool,
    text: str | None,
    channel: str | None,
    format_: str | None,
    columns: str | None,
    time_unit: str | None,
    j1939: bool | None,
    nmea2000: bool,
    truncated: bool,
) -> None:
    """Decode the frames of a CAN log to events.

    The log may be in any format that published logs have (candump, ASC, BLF, TRC, CSV, MF4 and others), also
    compressed; its content shows which. What it is taken for, and what is doubtful, is said first.
    Frames that are not events, and damaged parts of the log, are skipped and counted by reason.

    \b
    genus can decode --dbc car.dbc drive.log -o drive.genus
    genus replay -t car.dbc drive.genus --print
    """
    from genus.can import Decoding, load_dbc, read_log

    if append and output is None:
        raise click.UsageError("--append goes with --out")
    dbc = load_dbc(database, truncated=truncated, j1939=j1939, nmea2000=nmea2000)
    _mention_remarks(dbc, database)
    asked = Subscription.parse(text, [dbc.kind, *dbc.types.values(), Event]) if text else None
    opened = read_log(log, format_, columns=columns, time_unit=time_unit)
    for line in str(opened.detected).splitlines():
        click.echo(f"genus: {log}: {line}", err=True)
    decoding = Decoding(dbc, opened, asked, channel)
    written = 0
    with (
        report_if_interrupted(lambda: counted(written, "event") + (f" in {output}" if output else "")),
        _writing(output, append) as write,
        _progress(decoding.log) as advance,
    ):
        for recorded in decoding:
            write(recorded.event, recorded.at_us)
            if as_json:
                click.echo(as_text(recorded.event, as_json))
            if written % 1000 == 0:
                advance()
            written += 1
    _show_problems(decoding.log)
    wide_console(stderr=as_json).print(_summary(decoding))
    if not decoding.frames:
        raise click.ClickException(f"{log}: not one frame was found; is it a CAN log, and the format right?")
    there = {name for name, _ in decoding.origins if name}
    if channel is not None and channel not in there:
        raise click.ClickException(f"{log}: no frame is of channel {channel!r}; {meant(channel, sorted(there))}")


@contextmanager
def _writing(output: Path | None, append: bool) -> Iterator[Callable[[Event, int], object]]:
    if output is None:
        yield lambda event, at_us: None
    else:
        with RecordingWriter(output, append=append) as writer:
            yield writer.write


@contextmanager
def _progress(log: "CanLog") -> Iterator[Callable[[], None]]:
    """Show progress through the log on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"decoding {log.path.name}", total=log.size)
        yield lambda: bar.update(task, completed=log.position)


def _show_problems(log: "CanLog") -> None:
    for problem in log.problems[:MAX_ROWS]:
        click.echo(f"genus: {log.path}: {problem}", err=True)
    if len(log.problems) > MAX_ROWS:
        click.echo(f"genus: {log.path}: and more; all are counted below", err=True)


def _summary(decoding: "Decoding") -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("")
    table.add_column("count", justify="right")
    table.add_row("frames", f"{decoding.frames:,}")
    for (channel, direction), count in sorted(decoding.origins.items(), key=str):
        if channel or direction:
            origin = " ".join(filter(None, (channel and f"channel {channel}", direction)))
            table.add_row(f"  {escape(origin)}", f"{count:,}")
    table.add_row("events", f"{decoding.events.total():,}")
    if decoding.unwanted:
        table.add_row("  not asked for", f"{decoding.unwanted:,}")
    if decoding.parts or decoding.long_messages:
        table.add_row("parts of long messages", f"{decoding.parts:,}")
        table.add_row("  messages", f"{decoding.long_messages:,}")
    _add_rows(table, "long messages incomplete", decoding.incomplete)
    _add_rows(table, "rejected", decoding.rejected)
    _add_rows(table, "unknown identifiers", decoding.unknown_ids)
    _add_rows(table, "skipped in the log", decoding.skipped)
    return table


def _add_rows(table: Table, title: str, counts: Mapping[str, int]) -> None:
    if not counts:
        return
    table.add_section()
    table.add_row(title, f"{sum(counts.values()):,}")
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    for reason, count in ranked[:MAX_ROWS]:
        table.add_row(f"  {escape(reason)}", f"{count:,}")
    if rest := ranked[MAX_ROWS:]:
        table.add_row(f"  {len(rest)} more", f"{sum(count for _, count in rest):,}")
