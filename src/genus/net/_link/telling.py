"""Telling users what a network could not keep: to trouble handlers, or to the log."""

import logging
from collections import deque
from collections.abc import Callable, Iterable

from genus.bus._link import TroubleHandler
from genus.net._troubles import EventsLate, EventsLost, EventsUnread

log = logging.getLogger("genus.net")
LOG_EVERY_S = 5.0
MOST_WAITING = 10_000

MOST_LOGGED = 200
"""The largest number of reasons for unread events that are logged."""

Trouble = EventsLost | EventsLate | EventsUnread


class Tellings:
    """State: troubles that are still to be told. They are told by the link's own thread, never under a lock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._waiting: deque[tuple[Trouble, list[TroubleHandler]]] = deque(maxlen=MOST_WAITING)
        self._logged: dict[tuple[type, str], float] = {}
        self._reasons: dict[tuple[str, str], None] = {}
        self._now = now

    def add(self, trouble: Trouble, handlers: Iterable[TroubleHandler]) -> None:
        """Tell handlers of a trouble, or the log if there are none."""
        self._waiting.append((trouble, list(handlers)))

    def tell(self) -> None:
        """Call the handlers."""
        while self._waiting:
            trouble, handlers = self._waiting.popleft()
            for handler in handlers:
                self._call(handler, trouble)
            if isinstance(trouble, EventsUnread):
                self._log_once(trouble)
            elif not handlers:
                self._log(trouble)

    def _call(self, handler: TroubleHandler, trouble: Trouble) -> None:
        try:
            handler(trouble)
        except Exception:
            log.exception("a trouble handler failed on %r", trouble)

    def _log_once(self, trouble: EventsUnread) -> None:
        """Log each reason for which events cannot be read once, also if a handler is told."""
        reason = trouble.type, trouble.reason
        if reason not in self._reasons and len(self._reasons) < MOST_LOGGED:
            self._reasons[reason] = None
            log.warning("%r", trouble)

    def _log(self, trouble: Trouble) -> None:
        """Log a trouble, at most one of each kind and type in some seconds; all are counted."""
        kind = type(trouble), trouble.type
        now = self._now()
        if now - self._logged.get(kind, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged[kind] = now
            log.warning("%r", trouble)
