"""How the command ends: its exit codes, and one line on standard error for whatever went wrong.

An error is said in the words of whoever raised it; a stack trace helps nobody at a terminal, so it is shown only if
GENUS_TRACEBACK is set.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from genus._extras import install_command
from genus.errors import GenusError

# Ctrl-C and SIGTERM, for commands that go on until they are told to stop.


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that files are finished and sockets removed."""
    stop = threading.Event()
    with _handling(lambda number, frame: stop.set()):
        yield stop


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one interrupts."""
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with _handling(handle):
        yield stop


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block has ended: what it opens is then in the hands of who will close it."""
    told: list[int] = []
    with _handling(lambda number, frame: told.append(number)):
        yield
    if told:
        signal.raise_signal(told[0])


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
LONGEST = 1000
"""So many letters of a message are shown: some quote what they could not read."""
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
}
"""Which extra brings a package."""


def end_by(problem: BaseException) -> NoReturn:
    """Say what went wrong in one line and end with the exit code that belongs to it."""
    match problem:
        case click.UsageError():
            _end(_with_help(problem), WRONG_USAGE)
        case click.ClickException():
            _end(problem.format_message(), problem.exit_code)
        case click.Abort() | KeyboardInterrupt():
            sys.exit(INTERRUPTED)
        case BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: nothing to say
            sys.exit(FAILED)
        case ModuleNotFoundError():
            _end(_missing(problem), FAILED)
        case GenusError() | OSError() | ImportError():
            _end(str(problem), FAILED)
        case _:
            _end(f"this should not have happened: {_named(problem)} (set {TRACEBACK}=1 to see where)", FAILED)


def _with_help(problem: click.UsageError) -> str:
    said = problem.format_message()
    ends = "" if said.endswith((".", "?", "!")) else "."
    return said if problem.ctx is None else f"{said}{ends} See `{problem.ctx.command_path} --help`"


def _missing(problem: ModuleNotFoundError) -> str:
    package = (problem.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    return f"this needs {package}, which is not installed: {install_command(extra)}" if extra else str(problem)


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
    """A text of several lines as one; of one that points at a column, without the line that points.

    >>> one_line("Choose from:\\n\\tbash,\\n\\tzsh"), one_line("no type (column 1)\\n  Lop\\n  ^")
    ('Choose from: bash, zsh', 'no type (column 1): Lop')
    """
    *before, shown, pointer = ["", "", *text.splitlines()]
    if pointer.strip() == "^":
        text = "\n".join(before) + f": {shown}"
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."


def _stdout_is_lost() -> bool:
    """Whether what was printed cannot be written: then Python would complain once more on its way out."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False
