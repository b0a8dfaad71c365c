"""What the parts of a node share while it handles one input: the time, the transmit queue, and outputs."""

from collections.abc import Callable
from typing import Any

from genus.can._machine import EVENT_TRIGGERED, TIME_TRIGGERED, Accept, Call, Load, Output
from genus.can._node.tx_queue import TxQueue
from genus.can._wire.frame import Frame
from genus.can._wire.length import Timing


class Context:
    """State: the reading of the node's clock, which `Node` sets once per input, and the outputs of that input."""

    def __init__(self, timing: Timing) -> None:
        self.now = 0
        self.fd = timing.data_bitrate is not None
        frame_ns = [timing.worst_case_ns(size, fd=self.fd) for size in range(65 if self.fd else 9)]
        self.queue = TxQueue(frame_ns, frame_ns[-1])
        self._outputs: list[Output] = []

    def take(self) -> list[Output]:
        """Load the most urgent frame, and hand over all outputs."""
        if self.queue.update(self.now):
            self._outputs.append(Load(EVENT_TRIGGERED, self.queue.loaded))
        outputs, self._outputs = self._outputs, []
        return outputs

    def load_hard(self, frame: Frame | None) -> None:
        """Load a frame of the calendar."""
        self._outputs.append(Load(TIME_TRIGGERED, frame))

    def call(self, handler: Callable[..., object], *arguments: Any) -> None:
        """Call a handler of the program."""
        self._outputs.append(Call(handler, arguments))

    def accept(self, filters: tuple[tuple[int, int], ...]) -> None:
        """Set the acceptance filters."""
        self._outputs.append(Accept(filters))

    def clear(self) -> None:
        """Drop everything that waits to be sent."""
        self.queue.clear()
        self._outputs += [Load(EVENT_TRIGGERED, None), Load(TIME_TRIGGERED, None)]
