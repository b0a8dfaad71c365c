"""The command as a shell runs it, but in this process: a start of Python costs more than most commands."""

import io
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from genus.cli import main


class Done(NamedTuple):
    """How a command ended and what it said."""

    returncode: object
    stdout: str
    stderr: str


def genus(*arguments: str, given: str = "") -> Done:
    """Run the command to its end."""
    out, err = io.StringIO(), io.StringIO()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    around: dict[str, Any] = {"argv": ["genus", *arguments], "stdin": io.StringIO(given), "path": list(sys.path)}
    try:
        with patch.multiple(sys, **around), redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        return Done(ended.code, out.getvalue(), err.getvalue())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise AssertionError("a command ends by an exit code")
