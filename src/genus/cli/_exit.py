"""Exit codes, signals, and errors as one line on standard error.

The line is the message of the exception; GENUS_TRACEBACK=1 shows the stack trace too.
"""

import math
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from genus._extras import install_command
from genus.errors import GenusError, SubscriptionWarning

POLL_S = 0.25


class StopEvent(threading.Event):
    """An event to wait for until a signal sets it.

    Python handles a signal when the main thread next runs, which is at once unless a library has set a signal handler
    of its own that restarts system calls, as polars does. So waiting wakes up now and then.
    """

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; returns whether it is set."""
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while not super().wait(max(0.0, min(POLL_S, ends - time.monotonic()))) and time.monotonic() < ends:
            pass
        return self.is_set()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that files are finished and sockets removed."""
    stop = StopEvent()
    with _handling(lambda number, frame: _set_aside(stop)):
        yield stop


def _set_aside(stop: threading.Event) -> None:
    """Set an event in a thread of its own: this one may be within `stop.wait`, which holds the event's lock."""
    threading.Thread(target=stop.set, daemon=True).start()


@contextmanager
def stopped_gracefully() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one interrupts."""
    stop = StopEvent()
    received: list[int] = []

    def handle(number: int, frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        _set_aside(stop)

    with _handling(handle):
        yield stop


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block has ended, so that what it opens is closed."""
    received: list[int] = []
    with _handling(lambda number, frame: received.append(number)):
        yield
    if received:
        signal.raise_signal(received[0])


@contextmanager
def report_if_interrupted(describe: Callable[[], str]) -> Iterator[None]:
    """If Ctrl-C or SIGTERM interrupts the block, print what was kept; the command ends as interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"interrupted; {describe()}", err=True)
        raise


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print the warning of a subscription that can never match as one line, without the place in the code."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if isinstance(message, SubscriptionWarning):
                click.echo(f"genus: warning: {one_line(str(message))}", err=True)
            else:
                show(message, category, *place, **options)

        warnings.simplefilter("default", SubscriptionWarning)
        warnings.showwarning = show_line
        yield


@contextmanager
def _handling(handle: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


FAILED, WRONG_USAGE, DAMAGED, INTERRUPTED = 1, 2, 3, 130
"""Exit codes: it could not be done or the answer is no; wrong usage; damage was found; Ctrl-C or SIGTERM."""
MAX_LENGTH = 1000
"""Longest message shown, in characters: some quote the input that could not be read."""
TRACEBACK = "GENUS_TRACEBACK"
_EXTRAS = {
    "pyspark": "lake",
    "pandas": "lake",
    "can": "can",
    "cantools": "can",
    "msgpack": "can",
    "pyarrow": "arrow",
    "numpy": "index",
    "matplotlib": "plot",
    "mcap": "mcap",
    "zenoh": "zenoh",
    "mqtt5": "mqtt",
    "google": "sparkplug",
    "aiocoap": "coap",
    "cbor2": "coap",
    "prometheus_client": "metrics",
    "starlette": "studio",
    "uvicorn": "studio",
}
"""Which extra brings a package."""


def open_closed_streams() -> None:
    """Open standard streams that the caller has closed (`>&-`): nothing is read, and what is printed is discarded.

    In this order each gets its own number, so that no file or socket of the command gets that of standard output, to
    which libraries and child processes write.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def end_by(problem: BaseException) -> NoReturn:
    """Print the error as one line and exit with its code."""
    match problem:
        case click.UsageError():
            _end(_with_help(problem), WRONG_USAGE)
        case click.ClickException():
            _end(problem.format_message(), problem.exit_code)
        case click.Abort() | KeyboardInterrupt():
            sys.exit(INTERRUPTED)
        case BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
            sys.exit(FAILED)
        case ModuleNotFoundError():
            _end(_missing(problem), FAILED)
        case OSError(filename=str(name), strerror=str(why)) if not isinstance(problem, GenusError):
            _end(f"{name}: {why}", FAILED)
        case GenusError() | OSError() | ImportError():
            _end(str(problem), FAILED)
        case _:
            _end(f"internal error: {_named(problem)} (set {TRACEBACK}=1 to see where)", FAILED)


def _with_help(problem: click.UsageError) -> str:
    message = problem.format_message()
    ends = "" if message.endswith((".", "?", "!")) else "."
    return message if problem.ctx is None else f"{message}{ends} See `{problem.ctx.command_path} --help`"


def _missing(problem: ModuleNotFoundError) -> str:
    package = (problem.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    shown = "protobuf" if package == "google" else package
    return f"this needs {shown}, which is not installed: {install_command(extra)}" if extra else str(problem)


def _named(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"


def _end(why: str, status: int) -> NoReturn:
    if os.environ.get(TRACEBACK):
        traceback.print_exc()
    click.echo(f"genus: {one_line(why)}", err=True)
    if _stdout_is_lost():
        os._exit(status)
    sys.exit(status)


def one_line(text: str) -> str:
    """Return a text of several lines as one; of one that points at a column, without the line that points.

    >>> one_line("Choose from:\\n\\tbash,\\n\\tzsh"), one_line("no type (column 1)\\n  Lop\\n  ^")
    ('Choose from: bash, zsh', 'no type (column 1): Lop')
    """
    *before, shown, pointer = ["", "", *text.splitlines()]
    if pointer.strip() == "^":
        text = "\n".join(before) + f": {shown}"
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]}..."


def _stdout_is_lost() -> bool:
    """Return whether standard output cannot be written, in which case Python would print a second error at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False
