"""An asyncio event loop in virtual time: `asyncio.sleep`, timeouts and async handlers wait for the simulation."""

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple, Unpack

from genus.errors import BusError

Ts = TypeVarTuple("Ts")
Run = Callable[[float | None, Callable[[], bool]], None]
"""`run(seconds, condition)`: let virtual time pass, for so long at most (None: without limit)."""


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is virtual time: instead of sleeping it runs the simulation."""

    def __init__(self, now: Callable[[], float], run: Run) -> None:
        self._now = now
        self._is_woken = False
        super().__init__(_VirtualSelector(self, run))

    def time(self) -> float:
        """Virtual time in seconds."""
        return self._now()

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function in the next iteration, and stop running the simulation."""
        self._is_woken = True
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same from a handler of the simulation."""
        self._is_woken = True
        return super().call_soon_threadsafe(callback, *args, context=context)

    def take_woken(self) -> bool:
        """Whether something is to be done in this loop since the last call."""
        woken, self._is_woken = self._is_woken, False
        return woken

    @property
    def is_woken(self) -> bool:
        """Whether something is to be done in this loop."""
        return self._is_woken


class _VirtualSelector(selectors.DefaultSelector):
    """Runs the simulation instead of waiting for files."""

    def __init__(self, loop: VirtualEventLoop, run: Run) -> None:
        super().__init__()
        self._loop = loop
        self._run = run

    def select(self, timeout: float | None = None) -> Any:
        """Let virtual time pass until the timeout, or until the loop has something to do."""
        if not self._loop.take_woken() and (timeout is None or timeout > 0):
            self._run(timeout, lambda: self._loop.is_woken)
            if timeout is None and not self._loop.is_woken:
                raise BusError("the program waits for something that cannot happen: no event is left in the simulation")
        self._loop.take_woken()
        return super().select(0)
