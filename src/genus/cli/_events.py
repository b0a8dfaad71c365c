"""Event types named on the command line, and events as text: `lane=2 time=now`, lines of JSON.

A type is declared in a Python module, given by its dotted name, or in a `.py` file; or by a file that describes the
frames of a CAN bus, such as a `.dbc` file.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from genus.bus import Bus, parse_event
from genus.catalog import types_in
from genus.cli._completion import complete_files, quietly
from genus.cli._groups import ParamType
from genus.codes import load_module
from genus.errors import EventError, HierarchyError, SyntaxProblem, did_you_mean
from genus.filters import Subscription
from genus.model import Event, is_event_type, name_of

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

GENUS_TYPES = "GENUS_TYPES"
DATABASES = (".dbc", ".arxml", ".kcd", ".sym", ".cdd")
"""The endings of files whose messages, or diagnostic data, are types."""


class ModuleOrFile(ParamType[str]):
    """The name of a Python module, or a file, which must be there: its ending shows that it is one."""

    name = "MODULE_OR_FILE"
    _FILES = (".py", ".csv", *DATABASES)
    _file = click.Path(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse a file that is not there."""
        return str(self._file.convert(value, param, ctx) if value.lower().endswith(self._FILES) else value)


def types_option(*, required: bool) -> Callable[[Decorated], Decorated]:
    """Return the option that says where event types are declared."""
    return click.option(
        "-t",
        "--types",
        "types",
        multiple=True,
        required=required,
        type=ModuleOrFile(),
        envvar=GENUS_TYPES,
        metavar="MODULE_OR_FILE",
        shell_complete=complete_files,
        help="A Python module or .py file that declares event types, or a .dbc, .arxml, .kcd, .sym or .cdd file; "
        f"repeat it, or set {GENUS_TYPES} (space-separated).",
    )


TYPES = types_option(required=True)
BUS_TYPES = types_option(required=False)
"""The same for commands on a bus: an address may name a database, which declares types too."""

J1939_OPTIONS = (
    click.option(
        "--j1939/--no-j1939",
        default=None,
        help="Whether messages with 29-bit identifiers are J1939 messages [as the DBC file says].",
    ),
    click.option("--nmea2000", is_flag=True, help="They are, and long ones come in the fast packets of NMEA 2000."),
)
"""Options of commands that read a DBC file."""


def takes_j1939(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about J1939 to a command."""
    for option in reversed(J1939_OPTIONS):
        command = option(command)
    return command


LOG_FORMATS = (
    "log", "candump", "asc", "trc", "busmaster", "kvaser", "pp2can", "canboat", "ikonvert", "yacht devices",
    "actisense", "usb-can", "brackets", "labelled", "crtd", "csv", "hash", "slcan", "table", "bare", "plain", "blf",
    "mf4", "sqlite", "pcap",
)  # fmt: skip
"""The formats of CAN logs; repeated here because `genus.can` needs extras, and `genus.lake` imports pyspark."""
_NO_LOGS = ("genus", "recording", "json", "jsonl", "ndjson", "csv", "tsv", "parquet")
LAKE_FORMATS = tuple(dict.fromkeys((*_NO_LOGS, *LOG_FORMATS)))
"""The formats of files that a lake ingests."""

LOG_OPTIONS = (
    click.option(
        "--log-columns",
        "columns",
        metavar="COLUMNS",
        help='The columns of a text log, such as "time:ms, id:hex, -, length, data"; - is a column to ignore.',
    ),
    click.option(
        "--time-unit",
        type=click.Choice(["s", "ms", "100us", "us", "ns"]),
        help="What the times of a CAN log count, if it does not say it.",
    ),
)
"""Options of commands that read CAN logs."""


def takes_log_columns(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about the columns of a log to a command."""
    for option in reversed(LOG_OPTIONS):
        command = option(command)
    return command


def load_types(source: str) -> list[type]:
    """Return the event types and kinds of a module or file, or of the messages of a DBC file or the like.

    A `.py` file is run, except for its `if __name__ == "__main__"` part; it can import from its own folder and from the
    current one.
    """
    if source.lower().endswith(DATABASES):
        return _load_dbc(source)
    folders = [os.getcwd(), *([str(Path(source).resolve().parent)] if source.endswith(".py") else [])]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    try:
        found = types_in(load_module(source))
    except HierarchyError as problem:
        raise click.ClickException(str(problem)) from problem
    if not found:
        raise click.ClickException(f"{source}: declares no event types; define classes that derive from Event or Kind")
    return found


def _load_dbc(source: str) -> list[type]:
    from genus.can import load_dbc  # python-can and cantools are extras

    found = load_dbc(source, reuse=True)
    if not found.types:
        raise click.ClickException(f"{source}: has no messages")
    return [found.kind, *found.types.values()]


def load_all(sources: Iterable[str]) -> list[type]:
    """Return the event types and kinds of several modules and files, each once."""
    return list(dict.fromkeys(cls for source in sources for cls in load_types(source)))


STATING = ("ipc:", "zenoh:", "mqtt:", "mqtts:")
"""Buses on which participants state their types, so that a command can do without -t."""
STATED_S = 2.0
"""How long a subscription waits for types that others state."""


def asked_of(bus: Bus, text: str, loaded: Iterable[type]) -> Subscription:
    """Return the subscription of a text; its types may be those that others state on the bus within a short time."""
    until = time.monotonic() + STATED_S
    while True:
        try:
            return Subscription.parse(text, [*loaded, *bus.types.values(), Event])
        except SyntaxProblem as problem:
            is_unknown = "no event type is called" in str(problem) or "has no attribute" in str(problem)
            if not is_unknown or bus.link is None or time.monotonic() >= until:
                raise
        bus.sleep(0.05)


def load_for(sources: Iterable[str], address: str, *, stated: bool = False) -> list[type]:
    """Return the event types and kinds of modules and files, and of the databases that the address of a CAN bus names.

    UsageError if there are none, unless those that others state on the bus may do.
    """
    loaded = load_all(sources)
    if address.startswith("can:") and "database=" in address:
        from genus.can import address_types  # python-can and cantools are extras

        loaded += [cls for cls in address_types(address).values() if cls not in loaded]
    if not loaded and not (stated and address.startswith(STATING)):
        or_database = (
            " On a CAN bus, database=FILE in the address gives types, too." if address.startswith("can:") else ""
        )
        raise click.UsageError(f"Missing option '-t' / '--types'.{or_database}", click.get_current_context())
    return loaded


@quietly
def complete_types(ctx: click.Context) -> list[str]:
    """Return the types that -t or GENUS_TYPES name."""
    sources = ctx.params.get("types") or os.environ.get(GENUS_TYPES, "").split()
    return sorted(name_of(cls) for cls in load_all(sources))


def make_event(cls: type[Event], given: dict[str, Any]) -> Event:
    """Return an event from attribute values as text or JSON; ClickException names the attribute that is wrong."""
    try:
        return parse_event(cls, given)
    except EventError as problem:
        raise click.ClickException(str(problem)) from None


def as_text(event: Event, as_json: bool) -> str:
    """An event as a line: like its constructor call with ISO times, or in JSON, where NaN and infinity are strings."""
    if not as_json:
        values = ((name, getattr(event, name)) for name in event.__struct_fields__)
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in values if value is not None)
        return f"{name_of(type(event))}({shown})"
    return json.dumps({"type": name_of(type(event)), **_finite(msgspec.to_builtins(event))}, ensure_ascii=False)


def _shown(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else repr(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value


def event_type(name: str, types: list[type]) -> type[Event]:
    """Return the event type with this name; ClickException if there is none."""
    found = [cls for cls in types if name_of(cls) == name and is_event_type(cls)]
    if len(found) == 1:
        return found[0]
    known = sorted(name_of(cls) for cls in types if is_event_type(cls))
    if kinds := [cls for cls in types if name_of(cls) == name]:
        having = [name_of(cls) for cls in types if is_event_type(cls) and issubclass(cls, kinds[0])]
        raise click.ClickException(
            f"{name} is a kind and has no events of its own; its event types: {', '.join(having) or 'none'}"
        )
    raise click.ClickException(f"no event type is called {name}; {did_you_mean(name, known)}known: {', '.join(known)}")


def pairs(texts: tuple[str, ...]) -> dict[str, Any]:
    """Attributes and their values from arguments like `lane=2`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in found:
            wrong = "is given twice" if equals else "is not of the form ATTRIBUTE=VALUE"
            raise click.UsageError(f"{name if equals else text!r} {wrong}")
        found[name] = value
    return found


def lines_of_json() -> Iterator[dict[str, Any]]:
    """Yield the JSON objects on standard input, one per line, without their `type`."""
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                found = json.loads(line)
            except ValueError as problem:
                raise click.ClickException(f"line {number} is not JSON: {problem}") from None
            if not isinstance(found, dict):
                raise click.ClickException(f"line {number} is not a JSON object of attributes")
            yield {key: value for key, value in found.items() if key != "type"}
