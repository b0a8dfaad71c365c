"""The few frames a broker wants to send, of which the one with the lowest identifier is in the mailbox."""

from bisect import insort
from random import Random

from genus.can.machine import EVENT_TRIGGERED, Load, Output
from genus.can.protocol.timing import COLLISION_PAUSE, FAILURES_BEFORE_PAUSE
from genus.can.wire.frame import Frame


class Outgoing:
    """State: frames in the order of their identifiers, equal ones in the order they came; no frame is in it twice.

    What the driver is to do is appended to `outputs`.
    """

    def __init__(self, outputs: list[Output], random: Random) -> None:
        self._outputs = outputs
        self._random = random
        self._waiting: list[Frame] = []
        self._loaded: Frame | None = None
        self._failures = 0
        self.wake_at: int | None = None
        """When a pause ends."""

    def __contains__(self, frame: Frame) -> bool:
        return frame in self._waiting

    def post(self, frame: Frame) -> None:
        """Send a frame in turn, unless it waits already."""
        if frame not in self._waiting:
            insort(self._waiting, frame, key=lambda each: each.id)
            self._load()

    def sent(self, frame: Frame) -> None:
        """A frame went through."""
        self._failures = 0
        if frame == self._loaded:
            self._loaded = None
        if frame in self._waiting:
            self._waiting.remove(frame)
        self._load()

    def failed(self, now: int) -> None:
        """A frame was corrupted: it is repeated, after a random pause if it may have met that of another broker."""
        self._failures += 1
        if self._failures >= FAILURES_BEFORE_PAUSE:
            self._failures = 0
            self.wake_at = now + 1 + self._random.randrange(COLLISION_PAUSE)
            self._load()

    def wake(self, now: int) -> None:
        """Go on after a pause."""
        if self.wake_at is not None and now >= self.wake_at:
            self.wake_at = None
            self._load()

    def clear(self) -> None:
        """Send nothing of it any more."""
        self._waiting.clear()
        self.wake_at = None
        self._load()

    def emptied(self) -> None:
        """The controller lost what was in the mailbox, and nothing of it is wanted any more."""
        self._loaded = None
        self.clear()

    def _load(self) -> None:
        first = self._waiting[0] if self._waiting and self.wake_at is None else None
        if first is not self._loaded:
            self._loaded = first
            self._outputs.append(Load(EVENT_TRIGGERED, first))
