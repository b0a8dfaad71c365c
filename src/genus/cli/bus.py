"""`genus pub`, `sub`, `record` and `replay`: a bus from the command line."""

import json
import math
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from genus.bus import Bus, open_bus
from genus.bus.landing import FolderRecorder, record_to_folder
from genus.bus.recording import Recorder, read_recording
from genus.bus.recording import record as start_recording
from genus.bus.recording import replay as replay_events
from genus.cli.loading import TYPES, load_all
from genus.filters import Subscription
from genus.filters.text import UNITS
from genus.model import DurationType, Event, TimeType, attributes, check, is_event_type, name_of

BUS = click.option("--bus", "address", default="ipc:", show_default=True, help="ipc:NAME or can:INTERFACE?...")
SUBSCRIPTION = click.argument("subscription", default="Event")
MOST_REASONS = 10
DAMAGED = 3
"""Exit code of a replay that had to pass over damage."""


@click.command()
@TYPES
@BUS
@click.argument("type_name", metavar="TYPE")
@click.argument("values", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option("--stdin", "lines", is_flag=True, help="Read one JSON object of attributes a line instead of VALUES.")
def pub(types: tuple[str, ...], address: str, type_name: str, values: tuple[str, ...], lines: bool) -> None:
    """Publish an event of TYPE.

    Times are ISO with a zone, or `now`; durations are like 20ms or 1.5s.

    \b
    genus pub -t examples/traffic.py Loop lane=2 place=A8/km31 time=now
    """
    if lines and values:
        raise click.UsageError("give ATTRIBUTE=VALUE or --stdin, not both")
    cls = event_type(type_name, load_all(types))
    with open_bus(_shared(address)) as bus:
        count = 0
        for number, given in enumerate(lines_of_json() if lines else [_pairs(values)], 1):
            try:
                bus.publish(make_event(cls, given))
            except click.ClickException as problem:
                place = f"line {number}: " if lines else ""
                before = f" ({count} published before)" if count else ""
                raise click.ClickException(f"{place}{problem.message}{before}") from None
            count += 1
        _say_reached(f"published {_counted(count, 'event')}", bus.traffic().link)


@click.command()
@TYPES
@BUS
@SUBSCRIPTION
@click.option("--count", type=click.IntRange(1), help="Stop after so many events.")
@click.option("--timeout", type=click.FloatRange(0), help="Stop when none came for so many seconds (exit code 1).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def sub(
    types: tuple[str, ...], address: str, subscription: str, count: int | None, timeout: float | None, as_json: bool
) -> None:
    """Print events as they come. SUBSCRIPTION is like "Loop has place where speed > 30"; default: all.

    \b
    genus sub -t examples/traffic.py "Loop where lane > 1"
    """
    asked = Subscription.parse(subscription, [*load_all(types), Event])
    with stopped_by_signals() as stop, open_bus(_shared(address)) as bus:
        inbox = bus.inbox(asked, capacity=10_000)
        seen = 0
        click.echo(f"listening on {address} for {asked}", err=True)
        waited = 0.0
        while not stop.is_set() and (count is None or seen < count):
            try:
                event = inbox.get(timeout=0.1)
            except TimeoutError:
                waited += 0.1
                if timeout is not None and waited >= timeout:
                    _say_losses(bus.traffic().link, inbox.counters.dropped)
                    raise click.ClickException(f"no event within {timeout} s") from None
                continue
            waited = 0.0
            seen += 1
            click.echo(as_text(event, as_json))
        _say_losses(bus.traffic().link, inbox.counters.dropped)


@click.command()
@TYPES
@BUS
@click.argument("file", type=click.Path(path_type=Path))
@SUBSCRIPTION
@click.option("--append", is_flag=True, help="Go on writing to a recording that exists.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@click.option("--landing", is_flag=True, help="FILE is a folder: write many small files to it, for streams to read.")
@click.option(
    "--every", type=click.FloatRange(0, min_open=True), help="With --landing: seconds to a file [default: 5]."
)
@click.option("--most", type=click.IntRange(1), help="With --landing: events to a file [default: 100000].")
@click.option("--name", help="With --landing: how the files' names begin [default: events].")
def record(
    types: tuple[str, ...],
    address: str,
    file: Path,
    subscription: str,
    append: bool,
    seconds: float | None,
    landing: bool,
    **sizes: Any,
) -> None:
    """Write the events that match SUBSCRIPTION (default: all) to FILE, until Ctrl-C.

    \b
    genus record -t examples/traffic.py loops.genus "Loop has place"
    genus record -t examples/traffic.py landing/ --landing --every 5
    """
    given = {option: size for option, size in sizes.items() if size is not None}
    _check_recording(file, append, landing, given)
    asked = Subscription.parse(subscription, [*load_all(types), Event])
    console = Console(stderr=True)
    with (
        stopped_by_signals() as stop,
        open_bus(_shared(address)) as bus,
        _recorder(bus, file, asked, append, landing, given) as recorder,
    ):
        click.echo(f"recording {asked} from {address} to {file}", err=True)
        with console.status("recording") as status:
            passed = 0.0
            while not stop.wait(0.2) and (seconds is None or passed < seconds):
                passed += 0.2
                if isinstance(recorder, Recorder):
                    recorder.writer.flush()
                status.update(f"recording {asked} to {file}: {recorder.written:,} events (Ctrl-C ends it)")
        _say_losses(bus.traffic().link, 0)
    files = f" ({_counted(recorder.landed, 'file')})" if isinstance(recorder, FolderRecorder) else ""
    click.echo(f"{_counted(recorder.written, 'event')} in {file}{files}", err=True)


def _check_recording(file: Path, append: bool, landing: bool, given: dict[str, Any]) -> None:
    if given and not landing:
        raise click.UsageError(f"{', '.join(f'--{option}' for option in given)}: only with --landing")
    if append and landing:
        raise click.UsageError("give --append or --landing: a landing folder is always gone on with")
    if file.is_dir() and not landing:
        raise click.UsageError(f"{file} is a folder; to write many files into it, give --landing")


def _recorder(
    bus: Bus, file: Path, asked: Subscription, append: bool, landing: bool, given: dict[str, Any]
) -> Recorder | FolderRecorder:
    return record_to_folder(bus, file, asked, **given) if landing else start_recording(bus, file, asked, append=append)


@click.command()
@TYPES
@BUS
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@SUBSCRIPTION
@click.option("--speed", type=click.FloatRange(0, min_open=True), help="1 is the original time; default: at once.")
@click.option("--print", "printing", is_flag=True, help="Print the events instead of publishing them.")
@click.option("--json", "as_json", is_flag=True, help="With --print: one JSON object a line.")
def replay(
    types: tuple[str, ...],
    address: str,
    file: Path,
    subscription: str,
    speed: float | None,
    printing: bool,
    as_json: bool,
) -> None:
    """Publish the events of a recording that match SUBSCRIPTION (default: all).

    Damage is passed over and said; the exit code is then 3.
    """
    if as_json and not printing:
        raise click.UsageError("--json goes with --print")
    loaded = load_all(types)
    asked = Subscription.parse(subscription, [*loaded, Event])
    recording = read_recording(file, [cls for cls in loaded if is_event_type(cls)])
    with stopped_by_signals() as stop, open_bus("local:" if printing else _shared(address)) as bus:
        target: Callable[[Event], object] = bus.publish
        if printing:
            target = lambda event: click.echo(as_text(event, as_json))  # noqa: E731
        with Progress(console=Console(stderr=True), disable=printing, transient=True) as progress:
            task = progress.add_task("replaying", total=None)

            def publish(event: Event) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt
                target(event)
                progress.advance(task)

            count = replay_events(recording, publish, asked, speed=speed, sleep=stop.wait)
        link = bus.traffic().link
    for line in recording.damage:
        click.echo(f"genus: {line}", err=True)
    for reason, times in recording.problems.most_common(MOST_REASONS):
        click.echo(f"genus: passed over {times}: {reason}", err=True)
    if len(recording.problems) > MOST_REASONS:
        click.echo(f"genus: and {len(recording.problems) - MOST_REASONS} reasons more", err=True)
    found = recording.events + recording.problems.total()
    said = f"replayed {count} of {_counted(found, 'event')}"
    click.echo(said, err=True) if printing else _say_reached(said, link)
    if recording.damage:
        sys.exit(DAMAGED)
    if recording.problems and not recording.events:
        raise click.ClickException(f"none of the events in {file} is of the types in {', '.join(types)}")


def make_event(cls: type[Event], given: dict[str, Any]) -> Event:
    """An event from attribute values as a person writes them."""
    known = {attribute.name: attribute.type for attribute in attributes(cls)}
    if strangers := set(given) - set(known):
        names = ", ".join(sorted(strangers))
        raise click.ClickException(f"{name_of(cls)} has no attribute {names}; it has {', '.join(known)}")
    try:
        event = msgspec.convert({name: _plain(value, known[name]) for name, value in given.items()}, cls, strict=False)
        check(event)
    except (msgspec.MsgspecError, ValueError, TypeError) as problem:
        what = re.sub(r"(.*) - at `\$\.(\w+)`", r"\2: \1", str(problem))
        raise click.ClickException(f"not a {name_of(cls)}: {what}") from None
    return event


def _plain(value: Any, type_: object) -> Any:
    if isinstance(type_, TimeType):
        return datetime.now(UTC) if value == "now" else _time(value)
    if isinstance(type_, DurationType) and isinstance(value, str):
        found = re.fullmatch(r"(-?\d+(?:\.\d+)?)(us|ms|s|min|h|d)", value)
        if found:
            return float(found[1]) * UNITS[found[2]] / 1e6
    return value


def _time(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a time: write it like 2026-11-15T10:00:00Z, or now") from None


def as_text(event: Event, as_json: bool) -> str:
    """An event as a line; in JSON, numbers that it has no form for are texts: "NaN", "Infinity"."""
    if not as_json:
        return repr(event)
    return json.dumps({"type": name_of(type(event)), **_finite(msgspec.to_builtins(event))}, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value


def event_type(name: str, types: list[type]) -> type[Event]:
    """The event type of a name among some."""
    found = [cls for cls in types if name_of(cls) == name and is_event_type(cls)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(name_of(cls) for cls in types if is_event_type(cls)))
    raise click.ClickException(f"no event type is called {name}; known: {known}")


def _pairs(texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in found:
            wrong = "is given twice" if equals else "is not of the form ATTRIBUTE=VALUE"
            raise click.UsageError(f"{name if equals else text!r} {wrong}")
        found[name] = value
    return found


def _shared(address: str) -> str:
    if address.startswith("local:"):
        raise click.UsageError("local: reaches nobody outside this command; use ipc:")
    return address


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def lines_of_json() -> Iterator[dict[str, Any]]:
    """The JSON objects on standard input, one a line."""
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                found = json.loads(line)
            except ValueError as problem:
                raise click.ClickException(f"line {number} is not JSON: {problem}") from None
            if not isinstance(found, dict):
                raise click.ClickException(f"line {number} is not a JSON object of attributes")
            yield {key: value for key, value in found.items() if key != "type"}


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that files are finished and sockets removed."""
    stop = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say_reached(what: str, link: Any) -> None:
    """Say how many processes got it; events that were dropped on the way are a failure."""
    reached = link.get("processes reached", 0)
    whom = f"reached {_counted(reached, 'process').replace('processs', 'processes')}" if reached else "nobody listened"
    click.echo(f"{what}; {whom}", err=True)
    if lost := {key: count for key, count in link.items() if key.startswith("dropped")}:
        raise click.ClickException("; ".join(f"{key}: {count}" for key, count in lost.items()))


def _say_losses(link: Any, dropped: int) -> None:
    losses = {key: count for key, count in link.items() if key.startswith(("dropped", "rejected"))}
    if dropped:
        losses["dropped: printing too slow"] = dropped
    for what, count in losses.items():
        click.echo(f"genus: {what}: {count}", err=True)
