"""`genus can plan`: compute the calendar of a system, and for every channel whether its guarantee holds."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from genus.can import (
    ChannelSpec,
    System,
    draw_plan,
    format_bitrate,
    format_bound,
    format_dbc,
    load_system,
)
from genus.can import plan as make_plan
from genus.can.types import MAX_ADVISED, Plan, Verdict
from genus.cli._groups import counted, wide_console

OUTPUT = click.Path(dir_okay=False, path_type=Path)
_NAMES = {"hard": "hard", "soft": "soft", "none": "none", "system": "middleware", "foreign": "foreign frames"}


@click.command("plan")
@click.argument("source", metavar="SYSTEM.toml", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--png", type=OUTPUT, help="Draw the cycle to this file.")
@click.option("--svg", type=OUTPUT, help="The same as a vector graphic.")
@click.option("--calendar", type=OUTPUT, help="Write the calendar to this file, for nodes to keep.")
@click.option("--write-dbc", "dbc", type=OUTPUT, help="Write a DBC file of the channels, for other tools.")
def plan(
    source: Path, as_json: bool, png: Path | None, svg: Path | None, calendar: Path | None, dbc: Path | None
) -> None:
    """Plan a system: which guarantees hold, and why others do not.

    Hard slots, soft deadlines and fixed priorities on one bus. Exit code 0 if every channel is admitted and no
    identifier collides with those of other makers, 1 if not.

    \b
    genus can plan examples/crossing.toml --calendar calendar.json
    """
    found = make_plan(load_system(source))
    show_warnings(found)
    for picture, suffix in ((png, ".png"), (svg, ".svg")):
        if picture is not None:
            draw_plan(found, picture if picture.suffix else picture.with_suffix(suffix))
    if calendar is not None and found.ok:
        found.calendar.save(calendar)
    if dbc is not None and found.ok:
        dbc.write_text(format_dbc(found.system), "utf-8")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(_as_json(found)), indent=2).decode())
    else:
        _show(found)
    if not found.ok:
        click.echo(_refusal(found, [path for path in (calendar, dbc) if path is not None]), err=True)
        sys.exit(1)


def show_warnings(found: Plan) -> None:
    """Print the warnings of a plan to standard error."""
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)


def _refusal(found: Plan, unwritten: list[Path]) -> str:
    names = ", ".join(verdict.channel for verdict in found.refused)
    parts = [f"{len(found.refused)} of {len(found.verdicts)} channels are not admitted: {names}"] if names else []
    if found.collisions:
        parts.append(f"{counted(len(found.collisions), 'identifier')} of other makers' frames would be used twice")
    return "; ".join([*parts, *(f"{path} was not written" for path in unwritten)])


def _show(found: Plan) -> None:
    console = wide_console()
    console.print(_headline(found.system))
    console.print(_verdicts(found))
    for line in (*_advice(found), *_foreign(found)):
        console.print(line)
    console.print(_load(found))
    if found.calendar.slots:
        _show_cycle(console, found)


def _headline(system: System) -> str:
    timing = system.bus.timing
    data = f", data at {format_bitrate(timing.data_bitrate)}" if timing.data_bitrate else ""
    counts = f"{counted(len(system.channels), 'channel')}, {counted(len(system.nodes), 'node')}"
    return f"{system.source}: {format_bitrate(timing.bitrate)}{data}, {counts}"


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column(first, overflow="fold")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _verdicts(found: Plan) -> Table:
    table = _table("channel", "node", "class", "every", "bytes", "response", "deadline", "verdict")
    for channel, verdict in zip(found.system.channels, found.verdicts, strict=True):
        table.add_row(*_row(channel, verdict), Text("ok", "green") if verdict.ok else Text("refused", "bold red"))
    return table


def _row(channel: ChannelSpec, verdict: Verdict) -> tuple[str, ...]:
    size = str(channel.size) if channel.frames == 1 else f"{channel.size} in {channel.frames}"
    times = format_bound(verdict.response_ns), format_bound(verdict.deadline_ns)
    return channel.name, str(channel.number), channel.qos_class, format_bound(channel.period_ns), size, *times


def _advice(found: Plan) -> Iterator[Text]:
    nothing = "no change of this channel alone helps (periods that divide each other leave more room)"
    bus = found.system.bus
    says_it = bool(found.system.foreign) or 2 * bus.clock_error_ns > bus.gap_ns
    for position, verdict in enumerate(found.refused):
        change = " or ".join(advice.text for advice in verdict.advice) or nothing
        is_said = says_it and not verdict.advice
        hint = f" Change: {change}." if position < MAX_ADVISED and not is_said else ""
        yield Text.assemble((verdict.channel, "bold"), f": {verdict.reason}.{hint}")
    if found.advice:
        yield Text(f"All: {'; or '.join(advice.text for advice in found.advice)}.")


def _foreign(found: Plan) -> Iterator[Text]:
    for collision in found.collisions:
        yield Text.assemble(("collision", "bold red"), f": {collision}.")
    if found.uncounted:
        shown = ", ".join(found.uncounted[:3]) + (", ..." if len(found.uncounted) > 3 else "")
        what = counted(len(found.uncounted), "foreign message has", "foreign messages have")
        yield Text(
            f"{what} no cycle time, and the load leaves that out ({shown}); [bus] foreign_interval gives one to "
            "messages of databases, and a [[foreign]] table to reserved identifiers."
        )


def _load(found: Plan) -> Table:
    table = _table("bus load", "used", "with all failures", "reserved")
    for share in found.load.shares:
        reserved = f"{share.reserved:.1%}" if share.reserved else ""
        table.add_row(_NAMES[share.qos_class], f"{share.used:.1%}", f"{share.worst:.1%}", reserved)
    table.add_row("all", f"{found.load.used:.1%}", f"{found.load.worst:.1%}", "", style="bold")
    return table


def _show_cycle(console: Console, found: Plan) -> None:
    names = max(len(slot.channel) for slot in found.calendar.slots)
    width = max(20, min(100, console.width - names - 3))
    cycle = format_bound(found.calendar.cycle_ns)
    console.print(f"cycle of {cycle}: {found.calendar.legend}", highlight=False)
    for name, line in found.calendar.lines(width):
        console.print(f"{name:<{names}}  {line}", highlight=False)


def _as_json(found: Plan) -> dict[str, object]:
    return {
        "ok": found.ok,
        "verdicts": found.verdicts,
        "advice": found.advice,
        "warnings": found.warnings,
        "load": found.load.shares,
        "middleware_response_ns": found.middleware_response_ns,
        "cycle_ns": found.calendar.cycle_ns,
        "slots": found.calendar.slots,
        "collisions": found.collisions,
        "uncounted": found.uncounted,
    }
