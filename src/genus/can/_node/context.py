"""What the parts of a node share while it deals with one input: the time, the queue, and what is to be done."""

from collections.abc import Callable
from typing import Any

from genus.can._machine import EVENT_TRIGGERED, TIME_TRIGGERED, Accept, Call, Load, Output
from genus.can._node.tx_queue import Outbox
from genus.can._wire.frame import Frame
from genus.can._wire.length import Timing


class Desk:
    """State: the reading of the node's clock, its event-triggered frames, and outputs that wait to be taken."""

    def __init__(self, timing: Timing) -> None:
        self.now = 0
        fd = timing.data_bitrate is not None
        frames_ns = [timing.worst_case_ns(size, fd=fd) for size in range(65 if fd else 9)]
        self.outbox = Outbox(self._load_event, frames_ns.__getitem__, frames_ns[-1])
        self._outputs: list[Output] = []

    def take(self) -> list[Output]:
        """What is to be done, in order."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def post(self, frame: Frame) -> None:
        """Send a frame of a protocol, by its identifier."""
        self.outbox.post(frame, self.now)

    def withdraw(self, frame: Frame) -> None:
        """Send it no more, if it still waits."""
        self.outbox.withdraw(frame, self.now)

    def load_hard(self, frame: Frame | None) -> None:
        """Send a frame of the calendar."""
        self._outputs.append(Load(TIME_TRIGGERED, frame))

    def call(self, handler: Callable[..., object], *arguments: Any) -> None:
        """Call a handler of the program."""
        self._outputs.append(Call(handler, arguments))

    def accept(self, filters: tuple[tuple[int, int], ...]) -> None:
        """Set the acceptance filters."""
        self._outputs.append(Accept(filters))

    def clear(self) -> None:
        """Send nothing of what waits."""
        self.outbox.clear()
        self._outputs += [Load(EVENT_TRIGGERED, None), Load(TIME_TRIGGERED, None)]

    def _load_event(self, frame: Frame | None) -> None:
        self._outputs.append(Load(EVENT_TRIGGERED, frame))
