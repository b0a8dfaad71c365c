"""The steps of a run: what takes how long, and how far it has come."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from genus_traffic.results import Stage

Progress: TypeAlias = Callable[[float], object]
"""Is told how much of a step is done, up to 1."""
Show: TypeAlias = Callable[[str], AbstractContextManager[Progress]]
"""Shows a step of some name while it runs."""


def shown_to_nobody(_: str) -> AbstractContextManager[Progress]:
    """For runs that nobody watches."""
    return nullcontext(lambda _: None)


class Step:
    """State: a step while it runs; it is told how far it has come and what it has done."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.amount = 0


class Steps:
    """State: the steps so far."""

    def __init__(self, show: Show = shown_to_nobody) -> None:
        self.stages: list[Stage] = []
        self._show = show

    @contextmanager
    def step(self, name: str, what: str) -> Iterator[Step]:
        """Take the time of a step, and show it; `what` it counts, such as events."""
        began = time.perf_counter()
        with self._show(name) as progress:
            step = Step(progress)
            yield step
        seconds = time.perf_counter() - began
        self.stages.append(Stage(name=name, seconds=seconds, amount=step.amount, what=what))
