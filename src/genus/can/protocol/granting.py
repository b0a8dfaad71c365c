"""The broker's side of the configuration protocol: one uid at a time, nibble by nibble.

It takes turns with the nodes: a nibble counts only for the stage asked for, and not while the broker's own frame waits,
for then it was not sent in answer to it. So what losers of an earlier arbitration send too late does no harm. If no
node goes on, everybody is asked to begin anew.
"""

from collections.abc import Callable

from genus.can.protocol.messages import FIRST_STAGE, NIBBLE_BITS, Granted, Nibble, Prefix, Restart
from genus.can.protocol.timing import STAGE_TIMEOUT
from genus.can.wire.frame import Frame


class Granting:
    """State: the nibbles of the uid that is being asked for.

    `post` sends a frame; `grant` gives the number for a uid, 0 if there is none, None if it cannot be granted now.
    """

    def __init__(self, post: Callable[[Frame], None], grant: Callable[[int, int], int | None]) -> None:
        self._post, self._grant = post, grant
        self._is_open = False
        self._reply: Frame | None = None
        self._begin()

    def _begin(self) -> None:
        self._awaited, self._prefix = FIRST_STAGE, 0
        self.wake_at: int | None = None
        """When the stage is given up."""

    def open(self) -> None:
        """Ask nodes without a number to begin."""
        self.close()
        self._is_open = True
        self._say(Restart().frame())

    def close(self) -> None:
        """Listen to nobody."""
        self._is_open, self._reply = False, None
        self._begin()

    def hear(self, nibble: Nibble, now: int) -> bool:
        """A node sent a nibble; False if it comes too late, or too early."""
        if not self._is_open or self._reply is not None or nibble.stage != self._awaited:
            return False
        self.wake_at = None
        self._prefix |= nibble.nibble << NIBBLE_BITS * nibble.stage
        if nibble.stage == 0:
            self._finish(now)
        else:
            self._awaited -= 1
            self._say(Prefix(nibble.stage, self._prefix).frame())
        return True

    def sent(self, frame: Frame, now: int) -> None:
        """A frame went through; if it asked for a stage, the answer has so much time."""
        if frame == self._reply:
            self._reply = None
            self.wake_at = None if self._awaited == FIRST_STAGE else now + STAGE_TIMEOUT

    def wake(self, now: int) -> None:
        """Nobody went on: ask everybody to begin anew."""
        if self.wake_at is not None and now >= self.wake_at:
            self._begin()
            self._say(Restart().frame())

    def _finish(self, now: int) -> None:
        uid = self._prefix
        self._begin()
        number = self._grant(uid, now) if uid else None
        self._say(Restart().frame() if number is None else Granted(uid, number).frame())

    def _say(self, frame: Frame) -> None:
        self._reply = frame
        self._post(frame)
