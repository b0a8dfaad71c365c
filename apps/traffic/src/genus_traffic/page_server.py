"""A report shown by a small web server of this machine's own, until Ctrl-C."""

import errno
import os
from contextlib import AbstractContextManager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import click

ADDRESS = "127.0.0.1"


class Page(AbstractContextManager["Page"]):
    """State: a port that is taken before a long run, so that one in use is known at once; None for no port."""

    def __init__(self, server: ThreadingHTTPServer | None) -> None:
        self.server = server

    @classmethod
    def at(cls, port: int | None) -> "Page":
        """Take a port of this machine; 0 is any that is free."""
        if port is None:
            return cls(None)
        try:
            return cls(ThreadingHTTPServer((ADDRESS, port), _Quiet))
        except OSError as problem:
            why = "is in use" if problem.errno == errno.EADDRINUSE else f"cannot be had: {problem.strerror}"
            raise click.ClickException(f"port {port} {why}; choose another one by --serve, or 0 for any") from None

    def show(self, report: Path) -> None:
        """Serve a report until Ctrl-C."""
        if self.server is None:
            return
        self.server.RequestHandlerClass = partial(_Quiet, report=report)
        click.echo(f"showing it at http://{ADDRESS}:{self.server.server_port}/ until Ctrl-C", err=True)
        with suppress(KeyboardInterrupt):  # the way to end it
            self.server.serve_forever()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.server is not None:
            self.server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    """Answers every question with the report, and says nothing about it."""

    def __init__(self, *given: object, report: Path | None = None) -> None:
        self._report = report
        super().__init__(*given)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        """The report, whatever was asked for; nothing while there is none."""
        return str(self._report or os.devnull)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
