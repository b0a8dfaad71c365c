"""`genus record` and `replay`: the events of a bus in files, and back on the bus."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from genus.bus import Bus, open_bus
from genus.bus._folder_recorder import FolderRecorder, record_to_folder
from genus.bus._listener import Inbox
from genus.bus._recording import Recorder, Recording, read_recording
from genus.bus._recording import record as start_recording
from genus.bus._recording import replay as replay_events
from genus.cli._completion import complete_bus, complete_types
from genus.cli._events import TYPES, as_text, event_type, lines_of_json, load_all, make_event, pairs
from genus.cli._exit import DAMAGED, stopped_by_signals, undisturbed
from genus.cli._format import FOR, Span, counted
from genus.filters import Subscription
from genus.model import Event, is_event_type

# `genus pub` and `sub`: a bus from the command line.


BUS = click.option(
    "--bus",
    "address",
    default="ipc:",
    show_default=True,
    metavar="BUS",
    shell_complete=complete_bus,
    help="ipc:NAME, between processes of this machine, or can:INTERFACE?...",
)
SUBSCRIPTION = click.argument("subscription", default="Event", shell_complete=complete_types)
TICK_S = 0.1
"""So often it is looked whether to stop."""


@click.command()
@TYPES
@BUS
@click.argument("type_name", metavar="TYPE", shell_complete=complete_types)
@click.argument("values", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option("--stdin", "lines", is_flag=True, help="Read one JSON object of attributes a line instead of VALUES.")
def pub(types: tuple[str, ...], address: str, type_name: str, values: tuple[str, ...], lines: bool) -> None:
    """Publish events.

    One of TYPE with the given attributes, or one for each line of JSON. Times are ISO with a zone, or `now`; durations
    are like 20ms or 1.5s.

    \b
    genus pub -t examples/traffic.py Loop lane=2 place=A8/km31 time=now
    echo '{"lane": 2}' | genus pub -t examples/traffic.py Loop --stdin
    """
    if lines and values:
        raise click.UsageError("give ATTRIBUTE=VALUE or --stdin, not both")
    cls = event_type(type_name, load_all(types))
    with ExitStack() as stack:
        with undisturbed():
            bus = stack.enter_context(open_bus(shared(address)))
        count = _publish_all(bus, cls, lines_of_json() if lines else [pairs(values)], lines)
        say_reached(f"published {counted(count, 'event')}", bus.traffic().link)


def _publish_all(bus: Bus, cls: type[Event], all_given: Iterable[dict[str, Any]], lines: bool) -> int:
    count = 0
    for number, given in enumerate(all_given, 1):
        try:
            bus.publish(make_event(cls, given))
        except click.ClickException as problem:
            place = f"line {number}: " if lines else ""
            before = f" ({count} published before)" if count else ""
            raise click.ClickException(f"{place}{problem.message}{before}") from None
        count += 1
    return count


@click.command()
@TYPES
@BUS
@SUBSCRIPTION
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after so many events.")
@click.option(
    "--timeout", type=Span(may_be_zero=True), help="Stop when none came for so long, like 10s; exit code 1 then."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def sub(
    types: tuple[str, ...], address: str, subscription: str, count: int | None, timeout: float | None, as_json: bool
) -> None:
    """Print events as they come.

    SUBSCRIPTION is like "Loop has place where speed > 30"; without it all events are printed. Ctrl-C ends it.

    \b
    genus sub -t examples/traffic.py "Loop where lane > 1"
    """
    asked = Subscription.parse(subscription, [*load_all(types), Event])
    with stopped_by_signals() as stop, open_bus(shared(address)) as bus:
        inbox = bus.inbox(asked, capacity=10_000)
        click.echo(f"listening on {address} for {asked}", err=True)
        try:
            for event in islice(_events(inbox, stop, timeout), count):
                click.echo(as_text(event, as_json))
        finally:
            say_losses(bus.traffic().link, inbox.counters.dropped)


def _events(inbox: Inbox[Any], stop: threading.Event, timeout: float | None) -> Iterator[Event]:
    """What comes, until it is told to stop; nothing for too long is a failure."""
    last = time.monotonic()
    while not stop.is_set():
        try:
            yield inbox.get(timeout=TICK_S)
        except TimeoutError:
            if timeout is not None and time.monotonic() - last >= timeout:
                raise click.ClickException(f"no event within {timeout:g} s") from None
        else:
            last = time.monotonic()


def shared(address: str) -> str:
    """An address by which other processes can be reached."""
    if address.startswith("local:"):
        raise click.UsageError("local: reaches nobody outside this command; use ipc:")
    return address


def say_reached(what: str, link: Any) -> None:
    """Say how many processes got it; events that were dropped on the way are a failure."""
    reached = link.get("processes reached", 0)
    whom = f"reached {counted(reached, 'process', 'processes')}" if reached else "nobody listened"
    click.echo(f"{what}; {whom}", err=True)
    if lost := {key: count for key, count in link.items() if key.startswith("dropped")}:
        raise click.ClickException("; ".join(f"{key}: {count}" for key, count in lost.items()))


def say_losses(link: Any, dropped: int) -> None:
    """Say what was lost on the way or could not be read."""
    losses = {key: count for key, count in link.items() if key.startswith(("dropped", "rejected"))}
    if dropped:
        losses["dropped: printing too slow"] = dropped
    for what, count in losses.items():
        click.echo(f"genus: {what}: {count}", err=True)


MOST_REASONS = 10
RECORD_TICK_S = 0.2
"""So often a recording is flushed, and it is looked whether to stop."""


@click.command()
@TYPES
@BUS
@click.argument("file", type=click.Path(path_type=Path))
@SUBSCRIPTION
@click.option("--append", is_flag=True, help="Go on writing to a recording that exists.")
@FOR
@click.option("--landing", is_flag=True, help="FILE is a folder: write many small files to it, for streams to read.")
@click.option("--every", type=Span(), help="With --landing: a file at least so often [5s].")
@click.option("--most", type=click.IntRange(1), metavar="N", help="With --landing: events to a file [100000].")
@click.option("--name", help="With --landing: how the files' names begin [events].")
def record(
    types: tuple[str, ...],
    address: str,
    file: Path,
    subscription: str,
    append: bool,
    lasts: float | None,
    landing: bool,
    **sizes: Any,
) -> None:
    """Write events to a file, or to a folder for streams.

    Those that match SUBSCRIPTION (default: all), until Ctrl-C.

    \b
    genus record -t examples/traffic.py loops.genus "Loop has place"
    genus record -t examples/traffic.py landing/ --landing --every 5s
    """
    given = {option: size for option, size in sizes.items() if size is not None}
    _check_recording(file, append, landing, given)
    asked = Subscription.parse(subscription, [*load_all(types), Event])
    with (
        stopped_by_signals() as stop,
        open_bus(shared(address)) as bus,
        _recorder(bus, file, asked, append, landing, given) as recorder,
    ):
        click.echo(f"recording {asked} from {address} to {file}", err=True)
        _wait(recorder, stop, lasts, f"recording {asked} to {file}")
        say_losses(bus.traffic().link, 0)
    files = f" ({counted(recorder.landed, 'file')})" if isinstance(recorder, FolderRecorder) else ""
    click.echo(f"{counted(recorder.written, 'event')} in {file}{files}", err=True)


def _wait(recorder: Recorder | FolderRecorder, stop: threading.Event, lasts: float | None, what: str) -> None:
    """Let it record, and say how much it has, until it is told to stop or its time is over."""
    ends = math.inf if lasts is None else time.monotonic() + lasts
    with Console(stderr=True).status(what) as status:
        while (left := ends - time.monotonic()) > 0 and not stop.wait(min(RECORD_TICK_S, left)):
            if isinstance(recorder, Recorder):
                recorder.writer.flush()
            status.update(f"{what}: {counted(recorder.written, 'event')} (Ctrl-C ends it)")


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
@click.option(
    "--speed", type=click.FloatRange(0, min_open=True), metavar="X", help="1 is the original time [as fast as it goes]."
)
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
    """Publish or print the events of a recording.

    Those that match SUBSCRIPTION (default: all). Damage is passed over and said; the exit code is then 3.

    \b
    genus replay -t examples/traffic.py loops.genus "Loop where lane > 1" --print
    genus replay -t examples/traffic.py loops.genus --speed 10
    """
    if as_json and not printing:
        raise click.UsageError("--json goes with --print")
    loaded = load_all(types)
    asked = Subscription.parse(subscription, [*loaded, Event])
    recording = read_recording(file, [cls for cls in loaded if is_event_type(cls)])
    with stopped_by_signals() as stop, open_bus("local:" if printing else shared(address)) as bus:
        publish = (lambda event: click.echo(as_text(event, as_json))) if printing else bus.publish
        with _progress(printing) as advance:
            count = replay_events(recording, _each(publish, advance, stop), asked, speed=speed, sleep=stop.wait)
        link = bus.traffic().link
    _say_passed_over(recording)
    said = f"replayed {count} of {counted(recording.events + recording.problems.total(), 'event')}"
    click.echo(said, err=True) if printing else say_reached(said, link)
    if recording.damage:
        sys.exit(DAMAGED)
    if recording.problems and not recording.events:
        raise click.ClickException(f"none of the events in {file} is of the types in {', '.join(types)}")


def _each(
    publish: Callable[[Event], object], advance: Callable[[], object], stop: threading.Event
) -> Callable[[Event], None]:
    """What is done with each event, until it is told to stop."""

    def handle(event: Event) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        publish(event)
        advance()

    return handle


@contextmanager
def _progress(printing: bool) -> Iterator[Callable[[], object]]:
    """A count of events on a terminal, if they are not printed there."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("replaying: {task.completed:,.0f} events"), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=printing or not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda: progress.advance(task)


def _say_passed_over(recording: Recording) -> None:
    for line in recording.damage:
        click.echo(f"genus: {line}", err=True)
    for reason, times in recording.problems.most_common(MOST_REASONS):
        click.echo(f"genus: passed over {times}: {reason}", err=True)
    if len(recording.problems) > MOST_REASONS:
        click.echo(f"genus: and {len(recording.problems) - MOST_REASONS} reasons more", err=True)
