"""`genus pub`, `sub`, `record` and `replay`: events on a bus and in recordings."""

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from genus.bus import Bus, Inbox, Link, open_bus, read_recording, record_to_folder, shown_address
from genus.bus import record as start_recording
from genus.bus import replay as replay_events
from genus.bus.types import FolderRecorder, Recorder, Recording
from genus.cli._completion import complete_bus
from genus.cli._events import (
    BUS_TYPES,
    TYPES,
    as_text,
    asked_of,
    complete_types,
    event_type,
    lines_of_json,
    load_all,
    load_for,
    make_event,
    pairs,
)
from genus.cli._exit import DAMAGED, INTERRUPTED, report_if_interrupted, stopped_by_signals, undisturbed
from genus.cli._groups import FOR, METRICS, SpanParam, counted, serve
from genus.errors import RecordingError
from genus.filters import Subscription
from genus.model import Event, is_event_type

BUS = click.option(
    "--bus",
    "address",
    default="ipc:",
    show_default=True,
    metavar="BUS",
    shell_complete=complete_bus,
    help="ipc:NAME, between processes of this machine; zenoh:..., mqtt[s]://HOST, coap://HOST, or can:INTERFACE?...",
)
SUBSCRIPTION = click.argument("subscription", default="Event", shell_complete=complete_types)
TICK_S = 0.1
"""How often to check whether to stop."""


@click.command()
@BUS_TYPES
@BUS
@click.argument("type_name", metavar="TYPE", shell_complete=complete_types)
@click.argument("values", nargs=-1, metavar="[ATTRIBUTE=VALUE]...")
@click.option("--stdin", "lines", is_flag=True, help="Read one JSON object of attributes a line instead of VALUES.")
@METRICS
def pub(
    types: tuple[str, ...],
    address: str,
    type_name: str,
    values: tuple[str, ...],
    lines: bool,
    metrics: str | None,
) -> None:
    """Publish events.

    One of TYPE with the given attributes, or one for each line of JSON. Times are ISO with a zone, or `now`; durations
    are like 20ms or 1.5s.

    \b
    genus pub -t examples/traffic.py Loop lane=2 place=A8/km31 time=now
    echo '{"lane": 2}' | genus pub -t examples/traffic.py Loop --stdin
    """
    if lines and values:
        raise click.UsageError("give ATTRIBUTE=VALUE or --stdin, not both")
    cls = event_type(type_name, load_for(types, address))
    with ExitStack() as stack:
        with undisturbed():
            bus = stack.enter_context(open_bus(shared(address)))
        serve(stack, bus, metrics)
        reach = Reach(bus)
        with report_if_interrupted(lambda: f"published {counted(reach.published, 'event')} before"):
            _publish_all(reach, cls, lines_of_json() if lines else [pairs(values)], lines)
        reach.report(f"published {counted(reach.published, 'event')}")


def _publish_all(reach: "Reach", cls: type[Event], all_given: Iterable[dict[str, Any]], lines: bool) -> None:
    for number, given in enumerate(all_given, 1):
        try:
            reach.publish(make_event(cls, given))
        except click.ClickException as problem:
            where = f"line {number}: " if lines else ""
            before = f" ({reach.published} published before)" if reach.published else ""
            raise click.ClickException(f"{where}{problem.message}{before}") from None


@click.command()
@BUS_TYPES
@BUS
@SUBSCRIPTION
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after so many events.")
@click.option(
    "--timeout", type=SpanParam(may_be_zero=True), help="Stop when none came for so long, like 10s; exit code 1 then."
)
@FOR
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@METRICS
def sub(
    types: tuple[str, ...],
    address: str,
    subscription: str,
    limit: int | None,
    timeout: float | None,
    lasts: float | None,
    as_json: bool,
    metrics: str | None,
) -> None:
    """Print events as they arrive.

    SUBSCRIPTION is like "Loop has place where speed > 30"; without it all events are printed. Types that -t does not
    name are those that others state on the bus. Ctrl-C ends it.

    \b
    genus sub -t examples/traffic.py "Loop where lane > 1"
    """
    loaded = load_for(types, address, stated=True)
    with stopped_by_signals() as stop, open_bus(shared(address)) as bus, ExitStack() as stack:
        asked = asked_of(bus, subscription, loaded)
        inbox = bus.inbox(asked, capacity=10_000)
        serve(stack, bus, metrics)
        click.echo(f"listening on {shown_address(address)} for {asked}", err=True)
        printed = 0
        try:
            for event in islice(_events(inbox, stop, timeout, lasts), limit):
                click.echo(as_text(event, as_json))
                printed += 1
        finally:
            click.echo(f"printed {counted(printed, 'event')}", err=True)
            say_losses(bus.traffic().link, inbox.counters.dropped)


def _events(inbox: Inbox[Any], stop: threading.Event, timeout: float | None, lasts: float | None) -> Iterator[Event]:
    """Events as they arrive, until `stop` is set or the time is over; ClickException if none arrives for too long."""
    last = time.monotonic()
    ends = math.inf if lasts is None else last + lasts
    while not stop.is_set() and time.monotonic() < ends:
        try:
            yield inbox.get(timeout=TICK_S)
        except TimeoutError:
            if timeout is not None and time.monotonic() - last >= timeout:
                raise click.ClickException(f"no event within {timeout:g} s") from None
        else:
            last = time.monotonic()


def shared(address: str) -> str:
    """An address by which other processes can be reached; UsageError for `local:`."""
    if address.startswith("local:"):
        raise click.UsageError("local: stays within this command, so no other process gets the events; use ipc:")
    return address


PATIENCE_S = 0.5
"""How long the first event waits for somebody who wants it: participants of a network find each other in that time."""


class Reach:
    """State: publishes on a bus and counts the other processes that subscribed to what was published."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.published = 0
        self._reached: set[str] = set()
        self._knows_others = False
        """Whether the medium tells who subscribed."""

    def publish(self, event: Event) -> None:
        """Publish an event."""
        link = self._bus.link
        if link is not None:  # before: a subscriber that has all it waits for may leave at once
            if not self.published:
                _await_interest(link, event)
            if (others := link.wanted_by(event)) is not None:
                self._knows_others = True
                self._reached.update(others)
        self._bus.publish(event)
        self.published += 1

    def report(self, done: str) -> None:
        """Print what was done and how many processes subscribed to it; ClickException if events were dropped."""
        reached = f"; reached {counted(len(self._reached), 'process', 'processes')}" if self._reached else ""
        if self._knows_others:
            reached = reached or "; no other process subscribed"
        click.echo(done + reached, err=True)
        counters = self._bus.traffic().link
        if lost := [f"{key}: {count}" for key, count in losses_of(counters).items() if key.startswith("dropped")]:
            raise click.ClickException("; ".join(lost))


def _await_interest(link: Link, event: Event) -> None:
    """Wait until somebody wants an event, for a short time."""
    changed = threading.Event()
    end = link.on_interest(changed.set)
    until = time.monotonic() + PATIENCE_S
    while _is_unwanted(link, event) and (left := until - time.monotonic()) > 0:
        changed.wait(min(left, TICK_S / 4))
        changed.clear()
    end()


def _is_unwanted(link: Link, event: Event) -> bool:
    """Return whether nobody wants an event, as far as the medium can know."""
    wanted = link.wanted_by(event)
    return wanted is not None and not wanted


LOSSES = ("lost", "late", "expired", "dropped", "rejected", "not read", "delivered as")
"""First words of the counters of links that tell of losses, of whole events or of values."""


def losses_of(link: Mapping[str, int]) -> dict[str, int]:
    """Return the counters of a link that tell of losses."""
    return {key: count for key, count in link.items() if count and key.startswith(LOSSES)}


def say_losses(link: Mapping[str, int], dropped: int) -> None:
    """Print how many events were lost or could not be read, by reason."""
    losses = losses_of(link)
    if dropped:
        losses["dropped: printing too slow"] = dropped
    for what, count in losses.items():
        click.echo(f"genus: {what}: {count}", err=True)


MAX_REASONS = 10
UNKNOWN_TYPE = "unknown type"
"""First words of the reason for an event whose type is not declared."""
RECORD_TICK_S = 0.2
"""How often it is checked whether to stop recording, and shown how many events are in the file."""


@click.command()
@BUS_TYPES
@BUS
@click.argument("file", type=click.Path(path_type=Path))
@SUBSCRIPTION
@click.option("--append", is_flag=True, help="Add to a recording that exists.")
@click.option("--flush", type=SpanParam(), help="How long events wait in memory at most; a kill loses these [200ms].")
@click.option("--compress", type=click.Choice(["zstd"]), help="Compress the file.")
@FOR
@click.option("--landing", is_flag=True, help="FILE is a folder: write many small files to it, for streams to read.")
@click.option("--every", type=SpanParam(), help="With --landing: start a new file this often [5s].")
@click.option(
    "--max-events", type=click.IntRange(1), metavar="N", help="With --landing: most events in a file [100000]."
)
@click.option("--name", help="With --landing: first part of file names [events].")
@click.option(
    "--invalid",
    type=click.Choice(["raise", "count"]),
    default="count",
    show_default=True,
    help="What to do with events that could not be read back: end with an error, or count them. They are not written.",
)
@METRICS
def record(
    types: tuple[str, ...],
    address: str,
    file: Path,
    subscription: str,
    append: bool,
    flush: float | None,
    compress: Literal["zstd"] | None,
    lasts: float | None,
    landing: bool,
    invalid: str,
    metrics: str | None,
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
    loaded = load_for(types, address, stated=True)
    with ExitStack() as stack:
        stop = stack.enter_context(stopped_by_signals())
        stack.enter_context(_without_log("recording ended"))
        bus = stack.enter_context(open_bus(shared(address)))
        asked = asked_of(bus, subscription, loaded)
        options: dict[str, Any] = {"compress": compress, "invalid": "count"}
        options |= {} if flush is None else {"flush": flush}
        recorder = (
            record_to_folder(bus, file, asked, **given, **options)
            if landing
            else start_recording(bus, file, asked, append=append, **options)
        )
        try:
            serve(stack, bus, metrics)
            click.echo(f"recording {asked} from {shown_address(address)} to {file}", err=True)
            _wait(recorder, stop, lasts, f"recording {asked} to {file}", ends_if_invalid=invalid == "raise")
            say_losses(bus.traffic().link, 0)
        finally:
            _finish(recorder)
    files = f" ({counted(recorder.landed, 'file')})" if isinstance(recorder, FolderRecorder) else ""
    refused = f", {counted(recorder.refused.total, 'event')} refused" if recorder.refused else ""
    where = f"added to {file}" if append else f"in {file}"
    click.echo(f"{counted(recorder.written, 'event')} {where}{files}{refused}", err=True)
    for reason, found in recorder.refused.items():
        click.echo(f"genus: refused {found.count}: {reason} (last: {found.last})", err=True)
    if recorder.refused and invalid == "raise":
        raise click.ClickException("recording ended with an event that could not be read back; --invalid count goes on")
    if recorder.lost:
        raise click.ClickException(f"{counted(recorder.lost, 'event')} lost: {file} could not be written")


@contextmanager
def _without_log(text: str) -> Iterator[None]:
    """Leave out log lines with a text: the command says the same itself."""

    def is_other(entry: logging.LogRecord) -> bool:
        return text not in entry.getMessage()

    log = logging.getLogger("genus.bus")
    log.addFilter(is_other)
    try:
        yield
    finally:
        log.removeFilter(is_other)


def _finish(recorder: Recorder | FolderRecorder) -> None:
    """Close the recording; ClickException that says what was kept if it could not be written to the end."""
    try:
        recorder.close()
    except RecordingError as problem:
        kept = f"{counted(recorder.written, 'event')} written before, {recorder.lost:,} lost"
        raise click.ClickException(f"{problem}; recording ended ({kept})") from None


def _wait(
    recorder: Recorder | FolderRecorder, stop: threading.Event, lasts: float | None, what: str, ends_if_invalid: bool
) -> None:
    """Wait until `stop` is set, the time is over or the file cannot be written; show how much was recorded.

    With `ends_if_invalid`, also until an event is refused because it could not be read back.
    """
    ends = math.inf if lasts is None else time.monotonic() + lasts
    with Console(stderr=True).status(what) as status:
        while (left := ends - time.monotonic()) > 0 and not stop.wait(min(RECORD_TICK_S, left)):
            if ends_if_invalid and recorder.refused:
                return
            if isinstance(recorder, Recorder) and recorder.problem is not None:
                return
            status.update(f"{what}: {counted(recorder.written, 'event')} (Ctrl-C ends it)")


def _check_recording(file: Path, append: bool, landing: bool, given: dict[str, Any]) -> None:
    if given and not landing:
        raise click.UsageError(f"{', '.join(f'--{option}' for option in given)}: only with --landing")
    if append and landing:
        raise click.UsageError("give --append or --landing, not both: files are always added to a landing folder")
    if file.is_dir() and not landing:
        raise click.UsageError(f"{file} is a folder; to write many files into it, give --landing")


@click.command()
@TYPES
@BUS
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@SUBSCRIPTION
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="1 keeps the original intervals, 2 is twice as fast [as fast as possible].",
)
@click.option("--print", "printing", is_flag=True, help="Print the events instead of publishing them.")
@click.option("--json", "as_json", is_flag=True, help="With --print: one JSON object a line.")
@METRICS
def replay(
    types: tuple[str, ...],
    address: str,
    file: Path,
    subscription: str,
    speed: float | None,
    printing: bool,
    as_json: bool,
    metrics: str | None,
) -> None:
    """Publish or print the events of a recording.

    Those that match SUBSCRIPTION (default: all). Damaged parts are skipped and reported; the exit code is then 3.

    \b
    genus replay -t examples/traffic.py loops.genus "Loop where lane > 1" --print
    genus replay -t examples/traffic.py loops.genus --speed 10
    """
    if as_json and not printing:
        raise click.UsageError("--json goes with --print")
    loaded = load_all(types)
    asked = Subscription.parse(subscription, [*loaded, Event])
    recording = read_recording(file, [cls for cls in loaded if is_event_type(cls)])
    with (
        stopped_by_signals() as stop,
        open_bus("local:" if printing else shared(address)) as bus,
        ExitStack() as stack,
    ):
        serve(stack, bus, metrics)
        reach = Reach(bus)
        publish = (lambda event: click.echo(as_text(event, as_json))) if printing else reach.publish
        with _progress(printing) as advance:
            played = _replay(recording, publish, advance, stop, asked, speed)
        report_skipped(recording)
        total = counted(recording.events + recording.problems.total(), "event")
        interrupted = f"replayed {counted(played, 'event')} before it was interrupted"
        done = interrupted if stop.is_set() else f"replayed {played:,} of {total}"
        click.echo(done, err=True) if printing else reach.report(done)
    if stop.is_set():
        sys.exit(INTERRUPTED)
    if recording.damage:
        sys.exit(DAMAGED)
    if recording.problems and not recording.events:
        raise click.ClickException(why_none(recording, types))


def _replay(
    recording: Recording,
    publish: Callable[[Event], object],
    advance: Callable[[], object],
    stop: threading.Event,
    asked: Subscription,
    speed: float | None,
) -> int:
    """Publish the events until the end or until `stop` is set; returns how many."""
    played = 0

    def handle(event: Event) -> None:
        nonlocal played
        if stop.is_set():
            raise KeyboardInterrupt
        publish(event)
        advance()
        played += 1

    with suppress(KeyboardInterrupt), _without_log(" not read: "):
        replay_events(recording, handle, asked, speed=speed, sleep=stop.wait)
    return played


def why_none(recording: Recording, types: Iterable[str]) -> str:
    """Why no event of a recording could be replayed: the types are unknown, or their values cannot be read."""
    unknown = sum(times for reason, times in recording.problems.items() if reason.startswith(UNKNOWN_TYPE))
    if unknown == recording.problems.total():
        return f"none of the events in {recording.path} is of the types in {', '.join(types)}"
    (reason, _), *_ = recording.problems.most_common(1)
    return f"none of the events in {recording.path} can be read as the types in {', '.join(types)}: {reason}"


@contextmanager
def _progress(printing: bool) -> Iterator[Callable[[], object]]:
    """Show the number of events on a terminal, unless the events are printed there."""
    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("replaying: {task.completed:,.0f} events"), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=printing or not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda: progress.advance(task)


def report_skipped(recording: Recording) -> None:
    """Print what could not be read of a recording."""
    for line in recording.damage:
        click.echo(f"genus: {line}", err=True)
    for reason, times in recording.problems.most_common(MAX_REASONS):
        click.echo(f"genus: skipped {times}: {reason}", err=True)
    if len(recording.problems) > MAX_REASONS:
        click.echo(f"genus: and {len(recording.problems) - MAX_REASONS} more reasons", err=True)
    for line in recording.unread.lines():
        click.echo(f"genus: {line}", err=True)
