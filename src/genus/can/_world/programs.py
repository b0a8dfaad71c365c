"""Blocking programs in virtual time: one thread runs at a time, and time passes only while all programs wait.

All callbacks of the simulation run in worker threads, while the thread that called `run` waits. A callback that blocks
(an `inbox.get()`, a `bus.sleep()`) keeps its thread until its condition holds or its time has passed; another worker
goes on with the simulation meanwhile. Which thread runs is decided by virtual time alone, so a run is repeatable.
Coroutines run in an event loop of asyncio whose sleeps and timeouts wait for the simulation.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeAlias, TypeVarTuple, Unpack

from genus.can._sim.scheduler import Scheduler
from genus.errors import BusError

Condition: TypeAlias = Callable[[], bool]
FOREVER = 1 << 62


class ProgramEnded(BaseException):
    """Raised in a program of the simulator where it waits, to end it.

    It is not an `Exception`, so that a program which handles errors and tries again ends too.
    """


class WorldClosed(ProgramEnded):
    """The world was closed while a program waited in it."""


class NodeDown(ProgramEnded):
    """The node of a program is down. It ends the program; when the node restarts, the program starts again."""


class _Waiter:
    def __init__(self, condition: Condition, until_ns: int, program: object) -> None:
        self.condition = condition
        self.until_ns = until_ns
        self.program = program
        self.turn = threading.Semaphore(0)
        self.error: ProgramEnded | None = None


class _Worker(threading.Thread):
    """A thread that runs the simulation whenever it is its turn."""

    def __init__(self, run: Callable[["_Worker"], None]) -> None:
        super().__init__(name="genus-sim", daemon=True)
        self.turn = threading.Semaphore(0)
        self._run = run

    def run(self) -> None:
        self._run(self)


class ProgramRunner:
    """State: who runs a simulation, who waits in it, and how far it is to go."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._workers: set[threading.Thread] = set()
        self._idle: list[_Worker] = []
        self._waiters: list[_Waiter] = []
        self._caller = threading.Semaphore(0)
        self._is_running = threading.Lock()
        self._until_ns = 0
        self._condition: Condition | None = None
        self._error: BaseException | None = None
        self._closing = False
        self._local = threading.local()

    # -- from outside ------------------------------------------------------------------------------------------------

    def run(self, until_ns: int, condition: Condition | None = None) -> bool:
        """Let virtual time pass until an instant, or until a condition holds; returns whether it holds.

        Called from a program within the simulation, it blocks that program only.
        """
        if getattr(self._local, "is_checking", False):
            raise BusError("a condition of run(until=...) or of a wait must not wait itself")
        if self.is_inside:
            return self._park(condition or _never, until_ns)
        if self._closing:
            raise BusError("the simulation is closed")
        if not self._is_running.acquire(blocking=False):
            raise BusError("the simulation runs in another thread; start programs in it with World.start")
        try:
            self._until_ns, self._condition, self._error = until_ns, condition, None
            self._hand_over()
        finally:
            self._is_running.release()
        if self._error is not None:
            raise self._error
        return condition is not None and condition()

    @property
    def is_inside(self) -> bool:
        """Whether this thread runs a program within the simulation."""
        return threading.current_thread() in self._workers

    def close(self) -> None:
        """End the programs that wait, one after the other, and all threads."""
        self._closing = True
        while self._waiters:
            self._waiters.pop(0).turn.release()
            self._caller.acquire()
        for worker in self._idle:
            worker.turn.release()
            worker.join()
        self._idle.clear()

    @property
    def program(self) -> object:
        """The program that runs in this thread; None outside of programs."""
        return getattr(self._local, "program", None)

    def run_program(self, program: object, function: Callable[[], object]) -> None:
        self._local.program = program
        try:
            function()
        finally:
            self._local.program = None

    def abort(self, program: object, error: ProgramEnded) -> None:
        """Raise an error in a program where it waits."""
        for waiter in self._waiters:
            if waiter.program is program:
                waiter.error = error

    def _hand_over(self) -> None:
        """Let a worker run until it reports back; Ctrl-C ends it after the present callback."""
        self._idle_worker().turn.release()
        try:
            self._caller.acquire()
        except KeyboardInterrupt:
            self._condition = _always
            self._scheduler.paused = True
            self._caller.acquire()
            raise

    def _idle_worker(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        worker = _Worker(self._work)
        self._workers.add(worker)
        worker.start()
        return worker

    # -- in the worker threads ---------------------------------------------------------------------------------------

    def _work(self, worker: _Worker) -> None:
        while True:
            worker.turn.acquire()
            if self._closing:
                return
            try:
                next_turn = self._advance()
            except ProgramEnded:
                next_turn = self._caller if self._closing else worker.turn
            except BaseException as problem:
                if not self._closing:
                    self._error = problem
                next_turn = self._caller
            if next_turn is not worker.turn:
                self._idle.append(worker)
            next_turn.release()

    def _advance(self) -> threading.Semaphore:
        """Run the simulation; returns whose turn it is then: the caller's, or that of a program that waited."""
        scheduler = self._scheduler
        while not self._closing:
            for waiter in self._waiters:
                if waiter.error is not None or self._check(waiter.condition) or waiter.until_ns <= scheduler.now:
                    self._waiters.remove(waiter)
                    scheduler.paused = True  # its thread may return into `advance`, which must not run on blindly
                    return waiter.turn
            if self._condition is not None and self._check(self._condition):
                return self._caller
            if not self._proceed():
                return self._caller
        return self._caller

    def _check(self, condition: Condition) -> bool:
        """Return whether a condition holds; it cannot wait, because time does not pass meanwhile."""
        self._local.is_checking = True
        try:
            return condition()
        finally:
            self._local.is_checking = False

    def _proceed(self) -> bool:
        """Make a callback, or many if no condition has to be checked in between; False at the end."""
        scheduler = self._scheduler
        if self._condition is None and not self._waiters:
            scheduler.until, scheduler.paused = self._until_ns, False
            if not scheduler.advance():
                return True
            scheduler.now = max(scheduler.now, self._until_ns)
            return False
        limit = min([self._until_ns, *(waiter.until_ns for waiter in self._waiters)])
        if scheduler.step(limit):
            return True
        scheduler.now = max(scheduler.now, limit)
        return limit < self._until_ns or any(waiter.until_ns <= limit for waiter in self._waiters)

    def _park(self, condition: Condition, until_ns: int) -> bool:
        """Block the program of this thread, and let another worker run the simulation meanwhile."""
        if condition():
            return True
        waiter = _Waiter(condition, until_ns, self.program)
        if not self._closing:
            self._waiters.append(waiter)
            self._idle_worker().turn.release()
            waiter.turn.acquire()
        if self._closing:
            raise WorldClosed("the world was closed while this program waited")
        if waiter.error is not None:
            raise waiter.error
        return condition()


def _never() -> bool:
    return False


def _always() -> bool:
    return True


# -- coroutines --------------------------------------------------------------------------------------------------------

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
        """Do the same from a handler of the simulation."""
        self._is_woken = True
        return super().call_soon_threadsafe(callback, *args, context=context)

    def take_woken(self) -> bool:
        """Return whether something is to be done in this loop since the last call."""
        woken, self._is_woken = self._is_woken, False
        return woken

    @property
    def is_woken(self) -> bool:
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
