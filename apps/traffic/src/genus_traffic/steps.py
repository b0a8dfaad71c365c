"""The steps of a run: how long each took, how much it did, and its progress while it runs."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

from genus_traffic.results import Stage

Progress: TypeAlias = Callable[[float], object]
"""Called with how much of a step is done, up to 1."""
Display: TypeAlias = Callable[[str], AbstractContextManager[Progress]]
"""Displays the step of a name while it runs."""


def no_display(_: str) -> AbstractContextManager[Progress]:
    """Display nothing."""
    return nullcontext(lambda _: None)


class Step:
    """State: a step while it runs."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.amount = 0
        """How much was done; the block sets it."""


class Steps:
    """State: the finished steps."""

    def __init__(self, display: Display = no_display) -> None:
        self.stages: list[Stage] = []
        self._display = display

    @contextmanager
    def step(self, name: str, what: str) -> Iterator[Step]:
        """Time and display the block as a step; `what` is counted in it, such as events."""
        began = time.perf_counter()
        with self._display(name) as progress:
            step = Step(progress)
            yield step
        seconds = time.perf_counter() - began
        self.stages.append(Stage(name=name, seconds=seconds, amount=step.amount, what=what))
