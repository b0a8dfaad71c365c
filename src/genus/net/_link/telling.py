"""Telling users what a network could not keep: to trouble handlers, or to the log."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from genus.bus._link import TroubleHandler
from genus.net._troubles import EventsLate, EventsLost

log = logging.getLogger("genus.net")
LOG_EVERY_S = 5.0
MOST_WAITING = 10_000

Trouble = EventsLost | EventsLate


class Tellings:
    """State: troubles that are still to be told. They are told by the link's own thread, never under a lock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._waiting: deque[tuple[Trouble, list[TroubleHandler]]] = deque(maxlen=MOST_WAITING)
        self._logged: dict[tuple[type, str], float] = {}
        self._now = now
        self._lock = threading.Lock()

    def add(self, trouble: Trouble, handlers: Iterable[TroubleHandler]) -> None:
        """Tell handlers of a trouble, or the log if there are none."""
        self._waiting.append((trouble, list(handlers)))

    def tell(self) -> None:
        """Call the handlers."""
        while self._waiting:
            trouble, handlers = self._waiting.popleft()
            for handler in handlers:
                self._call(handler, trouble)
            if not handlers:
                self._log(trouble)

    def _call(self, handler: TroubleHandler, trouble: Trouble) -> None:
        try:
            handler(trouble)
        except Exception:
            log.exception("a trouble handler failed on %r", trouble)

    def _log(self, trouble: Trouble) -> None:
        """Log a trouble, at most one of each kind and type in some seconds; all are counted."""
        kind = type(trouble), trouble.type
        now = self._now()
        if now - self._logged.get(kind, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged[kind] = now
            log.warning("%r", trouble)
