"""`Webhook`: tells another server of alerts, by a POST of JSON, from a thread of its own.

Nothing is queued without a bound: of each alert only the last message waits. What is not taken is tried again with
growing pauses and given up after a while. Redirections are not followed, and the address comes from whoever starts
Studio, never from a page.
"""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from genus.errors import BusError
from genus.studio._texts import encode

TIMEOUT_S = 5.0
"""How long a request may take in all."""
SPACING_S = 1.0
"""At least this long from one request to the next."""
PAUSES_S = (2.0, 5.0, 10.0, 30.0)
"""How long to wait after a failure, and after each further one; the last is for all others."""
GIVE_UP_S = 600.0
"""How long a message is tried."""


class Failing(NamedTuple):
    """That messages are not taken: since when, why the last one was not, and how many were given up."""

    since: float
    why: str
    lost: int


class _Waiting(NamedTuple):
    message: Callable[[], Mapping[str, Any]]
    since: float


class Webhook:
    """State: the messages that wait, at most one for each key, and whether the last one was taken.

    Args:
        url: Where messages go, `http://...` or `https://...`; BusError if it is none.
        pauses: How long to wait after each failure in a row, in seconds.
        spacing: How long to wait at least between two requests, in seconds.
        give_up: How long a message is tried, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        pauses: Sequence[float] = PAUSES_S,
        spacing: float = SPACING_S,
        give_up: float = GIVE_UP_S,
    ) -> None:
        self._url = parse_url(url)
        self.shown = f"{self._url.scheme}://{self._url.netloc}"
        """The address without what may be secret in it."""
        self.failing: Failing | None = None
        self._pauses, self._spacing, self._give_up = pauses, spacing, give_up
        self._waiting: dict[str, _Waiting] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def tell(self, key: str, message: Callable[[], Mapping[str, Any]]) -> None:
        """Send what a function gives as JSON, soon; replaces the message of this key that waits."""
        with self._changed:
            self._waiting[key] = _Waiting(message, time.monotonic())
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="genus-webhook", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Send nothing more; a request that is on its way is not waited for."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while (found := self._next()) is not None:
            key, waiting = found
            why = self._post(encode(waiting.message()))
            failures = 0 if why is None else failures + 1
            self._note(key, waiting, why)
            self._pause(self._pauses[min(failures, len(self._pauses)) - 1] if failures else self._spacing)

    def _next(self) -> tuple[str, _Waiting] | None:
        """Return the message that waits longest; None when it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            return None if self._is_closed else next(iter(self._waiting.items()))

    def _note(self, key: str, waiting: _Waiting, why: str | None) -> None:
        """Forget a message that was taken or is too old, unless another one has replaced it."""
        before = self.failing
        is_lost = why is not None and time.monotonic() - waiting.since >= self._give_up
        with self._changed:
            if (why is None or is_lost) and self._waiting.get(key) is waiting:
                del self._waiting[key]
        if why is None:
            self.failing = None
        else:
            since, lost = (time.time(), 0) if before is None else (before.since, before.lost)
            self.failing = Failing(since, why, lost + is_lost)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)

    def _post(self, content: bytes) -> str | None:
        """Why the server did not take it; None if it did."""
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=TIMEOUT_S)
        watch = threading.Timer(TIMEOUT_S, _shut, [connection])  # the timeout of a socket is for each byte anew
        watch.daemon, ends = True, time.monotonic() + TIMEOUT_S
        watch.start()
        path = f"{self._url.path or '/'}{'?' if self._url.query else ''}{self._url.query}"
        try:
            connection.request("POST", path, content, {"Content-Type": "application/json", "User-Agent": "genus"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, UnicodeError) as problem:  # of a name that no server can have
            if isinstance(problem, TimeoutError) or time.monotonic() >= ends:
                return f"no answer within {TIMEOUT_S:g} s"
            return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        finally:
            watch.cancel()
            connection.close()
        return None if 200 <= status < 300 else f"it answered {status}"


def _shut(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # it is not open yet, or no more
        connection.sock.shutdown(socket.SHUT_RDWR)


def parse_url(url: str) -> SplitResult:
    """Return the parts of the address of a webhook; BusError says what is wrong with it, without what may be secret."""
    try:
        found = urlsplit(url)
        found.port  # noqa: B018 - raises if it is no number
    except ValueError as problem:
        raise BusError(f"webhook is no address: {problem}") from None
    if found.scheme not in ("http", "https") or not found.hostname:
        raise BusError("webhook is no address of a server; write http://HOST/... or https://HOST/...")
    if found.username is not None or not url.isascii() or not url.isprintable() or " " in url:
        raise BusError("webhook has a user, a password or characters that an address cannot have")
    return found
