"""A web server on this machine that shows one report until Ctrl-C."""

import errno
import os
from contextlib import AbstractContextManager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

import click

ADDRESS = "127.0.0.1"


class ReportServer(AbstractContextManager["ReportServer"]):
    """State: a port of this machine, opened before a long run so that one in use is reported at once."""

    def __init__(self, server: ThreadingHTTPServer | None) -> None:
        self.server = server
        """None if no report is to be shown."""

    @classmethod
    def open(cls, port: int | None) -> "ReportServer":
        """Bind a port; 0 is any free one, None shows no report."""
        if port is None:
            return cls(None)
        try:
            return cls(ThreadingHTTPServer((ADDRESS, port), _ReportHandler))
        except OSError as problem:
            why = "is in use" if problem.errno == errno.EADDRINUSE else f"cannot be opened: {problem.strerror}"
            raise click.ClickException(f"port {port} {why}; choose another one by --serve, or 0 for any") from None

    def show(self, report: Path) -> None:
        """Serve a report until Ctrl-C."""
        if self.server is None:
            return
        self.server.RequestHandlerClass = partial(_ReportHandler, report=report)
        click.echo(f"showing it at http://{ADDRESS}:{self.server.server_port}/ until Ctrl-C", err=True)
        with suppress(KeyboardInterrupt):
            self.server.serve_forever()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.server is not None:
            self.server.server_close()


class _ReportHandler(SimpleHTTPRequestHandler):
    """Answers every request with the report, and logs nothing."""

    def __init__(self, *given: object, report: Path | None = None) -> None:
        self._report = report
        super().__init__(*given)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        """The report for every path; an empty page while there is none."""
        return str(self._report or os.devnull)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
