"""What a node knows of its controller's errors, and whether it can promise its hard events with them.

A controller that is error passive is suspended for 8 bits after each of its frames, in which another station may begin
one, so an event could be too late for a slot that is not planned for that. By the policy `stop` a node therefore
promises nothing from the warning of its controller on, which comes several failures before; if a slot allows more
failures than that, it is longer. Events are still sent, as long as a frame that starts can end within the slot.
"""

from collections.abc import Callable

from genus.can._node.context import Context
from genus.can._plan.calendar import Slot
from genus.can._wire.frame import Frame, Identifier, Priority, ProtocolEtag

PAUSE_FRAMES = 1
"""How long to wait after an empty report that was sent, in longest frames."""
FIRST_RETRY_FRAMES, LAST_RETRY_FRAMES = 4, 32
"""How long to wait after one that failed; twice as long after each further one, up to the last."""


class ErrorState:
    """State: whether the controller is error passive (or has raised its warning), and whether it is off the bus."""

    __slots__ = ("is_off", "is_passive")

    def __init__(self) -> None:
        self.is_passive = False
        self.is_off = False

    def allows(self, slot: Slot) -> bool:
        """Whether an event in a slot that starts now is promised: the slot has time for all failures it allows."""
        return not self.is_off and (not self.is_passive or slot.error_passive != "stop")


class ErrorRecovery:
    """State: sends empty reports with the lowest priority while the controller has too many errors.

    Each frame that is sent lowers the controller's error counter. A node that sends little but hard events would else
    not recover for minutes; so it does on an idle bus before its next slot. Receivers ignore an empty report. There are
    pauses between them, so that a station that is off the bus finds the idle time it needs to come back; one that fails
    is repeated later and later, because the bus may be disturbed for a while.
    """

    def __init__(self, context: Context, is_needed: Callable[[], bool]) -> None:
        self._context = context
        self._is_needed = is_needed
        self._frame: Frame | None = None
        self._retry_frames = FIRST_RETRY_FRAMES
        self.wake_at: int | None = None

    def start(self) -> None:
        """Begin to recover, unless that is under way."""
        if self._frame is None and self.wake_at is None:
            self._send()

    def stop(self) -> None:
        """What was queued is gone."""
        self._frame, self.wake_at = None, None

    def frame_failed(self, frame: Frame) -> None:
        """A frame was corrupted: if it is an empty report, send another one later."""
        if frame is self._frame:
            self._context.queue.remove_frame(frame)
            self._pause(self._retry_frames)
            self._retry_frames = min(2 * self._retry_frames, LAST_RETRY_FRAMES)

    def wake(self, now: int) -> None:
        """The pause is over."""
        if self.wake_at is not None and self.wake_at <= now:
            self.wake_at = None
            self._send()

    def _send(self) -> None:
        if self._is_needed():
            queue = self._context.queue
            self._frame = Frame(Identifier(Priority.BULK, queue.number, ProtocolEtag.REPORT).pack())
            queue.add_frame(self._frame, self._sent)

    def _sent(self, now: int) -> None:
        self._retry_frames = FIRST_RETRY_FRAMES
        self._pause(PAUSE_FRAMES)

    def _pause(self, frames: int) -> None:
        self._frame = None
        if self._is_needed():
            self.wake_at = self._context.now + frames * self._context.queue.level_ns
