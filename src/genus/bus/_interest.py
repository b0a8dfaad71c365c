"""Subscriptions of the processes on an `ipc:` bus, in a file beside each socket.

They do not decide who gets an event: every process gets all. A publisher reads them to say how many processes
subscribed to what it published.
"""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from genus.errors import GenusError
from genus.filters import Subscription
from genus.filters._subscription import parse_again
from genus.model import Event, Kind

SUFFIX = ".subscriptions"
MAX_LISTED = 200
"""A process with more subscriptions than this lists `Event`, which matches everything."""


class InterestFile:
    """State: the subscriptions of this process, and the file that lists them, one a line."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path.with_name(socket_path.name + SUFFIX)
        self._texts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_removed = False

    def add(self, subscription: Subscription) -> Callable[[], None]:
        """List a subscription; returns a function that removes it."""
        text = str(subscription)
        self._change(text, 1)
        return lambda: self._change(text, -1)

    def _change(self, text: str, by: int) -> None:
        with self._lock:
            count = self._texts[text] = self._texts[text] + by
            if not count:
                del self._texts[text]
            is_new, is_gone = by > 0 and count == by, not count
            listed_all = len(self._texts) - is_new + is_gone <= MAX_LISTED
            if (is_new or is_gone) and not self._is_removed and (listed_all or len(self._texts) <= MAX_LISTED):
                self._write(list(self._texts) if len(self._texts) <= MAX_LISTED else ["Event"])

    def _write(self, lines: list[str]) -> None:
        draft = self._path.with_name(self._path.name + ".new")
        with contextlib.suppress(OSError):  # a full disk costs the count, not the events
            draft.write_text("\n".join(lines), encoding="utf-8")
            os.replace(draft, self._path)

    def remove(self) -> None:
        """Remove the file, and write it no more."""
        with self._lock:
            self._is_removed = True
        remove_interest(self._path.with_name(self._path.name.removesuffix(SUFFIX)))


def remove_interest(socket_path: Path) -> None:
    """Remove the list of a process that has left."""
    for suffix in (SUFFIX, SUFFIX + ".new"):
        socket_path.with_name(socket_path.name + suffix).unlink(missing_ok=True)


class PeerInterests:
    """State: the subscriptions of other processes, read again when their files change."""

    def __init__(self) -> None:
        self._read: dict[tuple[Path, type], tuple[int, list[Subscription]]] = {}

    def is_wanted(self, event: Event, socket_path: Path) -> bool:
        """Whether the process with this socket subscribed to an event."""
        path, cls = socket_path.with_name(socket_path.name + SUFFIX), type(event)
        try:
            changed_at = path.stat().st_mtime_ns
            if self._read.get((path, cls), (-1,))[0] != changed_at:
                self._read[path, cls] = changed_at, _parse(path.read_text(encoding="utf-8"), cls)
        except OSError:
            return False
        return any(subscription.matches(event) for subscription in self._read[path, cls][1])


def _parse(lines: str, cls: type[Event]) -> list[Subscription]:
    """The subscriptions of a file that name the class or its supertypes only; others cannot match its events."""
    types = [each for each in cls.__mro__ if issubclass(each, Event | Kind) and each is not Kind]
    found = []
    for line in lines.split("\n"):  # a text may have other line separators in it
        with contextlib.suppress(GenusError):
            found.append(parse_again(line, types))
    return found
