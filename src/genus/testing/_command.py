"""Runs the `genus` command within this process, as a shell would: starting Python takes longer than most commands."""

import io
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    returncode: object
    stdout: str
    stderr: str


def run_command(*arguments: str, given: str = "") -> CommandResult:
    """Run `genus` with some arguments and `given` as standard input.

    Commands that other packages add by entry points are run as well.

    >>> run_command("--version").returncode
    0
    """
    from genus.cli import main

    out, err = io.StringIO(), io.StringIO()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    around: dict[str, Any] = {"argv": ["genus", *arguments], "stdin": io.StringIO(given), "path": list(sys.path)}
    try:
        with patch.multiple(sys, **around), redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        return CommandResult(ended.code, out.getvalue(), err.getvalue())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    raise AssertionError("the command returned without an exit code")
