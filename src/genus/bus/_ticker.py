"""Calls at an interval, in the time of a bus: by a thread, or by the simulator's clock."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeAlias

from genus.bus._bus import Bus
from genus.bus._delivery import log


class Ticker(Protocol):
    """Calls a function at an interval until it is stopped."""

    def stop(self) -> None:
        """Make no more calls; returns when none is in progress."""


MakeTicker: TypeAlias = Callable[[Callable[[], None], float], Ticker]
"""Starts to call a function at an interval of seconds."""


def start_ticker(bus: Bus, call: Callable[[], None], seconds: float) -> Ticker:
    """Call a function at an interval of the bus's own time, if it has one as in the simulator, or else of the clock."""
    return Ticking(call, seconds) if bus.wait_for is None else BusTicker(bus, call, seconds)


class BusTicker:
    """Calls a function at an interval of a bus's own time."""

    def __init__(self, bus: Bus, call: Callable[[], None], seconds: float) -> None:
        self._timer = bus.every(timedelta(seconds=seconds), call)

    def stop(self) -> None:
        """Make no more calls."""
        self._timer.cancel()


class Ticking:
    """A thread that calls a function at an interval; a function that raises is called again, and logged once."""

    def __init__(self, call: Callable[[], None], seconds: float) -> None:
        self._call, self._seconds = call, seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="genus recorder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        failing = False
        while not self._stopped.wait(self._seconds):
            try:
                self._call()
                failing = False
            except OSError as problem:
                if not failing:
                    log().error("a recording cannot be written and is tried again: %s", problem)
                failing = True

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()
