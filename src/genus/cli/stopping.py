"""Ctrl-C and SIGTERM, for commands that go on until they are told to stop."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
