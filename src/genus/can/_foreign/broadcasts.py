"""J1939 messages that are longer than a frame, sent to all nodes (BAM): one after the other, at the pace of J1939.

A node may have one broadcast on its way at a time. Messages to one node need its answers (RTS, CTS) and are refused.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from genus.can._dbc import MessageLayout
from genus.can._j1939.identifier import GLOBAL_ADDRESS, J1939Id
from genus.can._j1939.transfer import BROADCAST_PACE_US, J1939Broadcast, J1939Frame, count_packets
from genus.can._node.tx_queue import TxQueue
from genus.can._wire.frame import CLASSIC_BYTES, Frame
from genus.errors import EventError


class _Waiting(NamedTuple):
    """A message that is to be sent, and what to call when its last frame was sent, or may have been."""

    broadcast: J1939Broadcast
    done: Callable[[int], None]
    unknown: Callable[[], None]


class Broadcasts:
    """State: the long messages that wait, and the frames of the one that is being sent, with their times."""

    def __init__(self, queue: TxQueue) -> None:
        self._queue = queue
        self._waiting: deque[_Waiting] = deque()
        self._frames: deque[tuple[int, J1939Frame]] = deque()
        self._free_at = 0
        """When the next message may begin."""

    def __len__(self) -> int:
        return len(self._waiting)

    def check(self, frame: Frame, layout: MessageLayout) -> None:
        """EventError if a message is long and for one node."""
        if len(frame.data) <= CLASSIC_BYTES or frame.fd:
            return
        destination = J1939Id.unpack(frame.id).destination
        if destination not in (None, GLOBAL_ADDRESS):
            raise EventError(
                f"{layout.type_name}.destination is {destination}, but messages of more than 8 bytes are sent to all "
                "nodes only; publish it with destination=255"
            )

    def add(
        self,
        frame: Frame,
        layout: MessageLayout,
        done: Callable[[int], None],
        unknown: Callable[[], None],
        now: int,
    ) -> None:
        """Send a message, after those that wait."""
        known = J1939Id.unpack(frame.id)
        self._waiting.append(_Waiting(J1939Broadcast(layout.pgn, frame.data, known.source), done, unknown))
        self._go_on(now)

    @property
    def left_ns(self) -> int:
        """How long those that wait take at the pace of J1939, on a bus that has time for them."""
        begun = len(self._frames)
        packets = sum(count_packets(len(each.broadcast.data)) + 1 for each in list(self._waiting)[bool(begun) :])
        return (begun + packets) * BROADCAST_PACE_US * 1000

    @property
    def wake_at(self) -> int | None:
        """When the next frame is due."""
        if self._frames:
            return self._frames[0][0] * 1000
        return self._free_at if self._waiting else None

    def wake(self, now: int) -> None:
        """Queue the frames that are due."""
        self._go_on(now)

    def _go_on(self, now: int) -> None:
        while True:
            if not self._frames:
                if not self._waiting or now < self._free_at:
                    return
                self._frames = deque(self._waiting[0].broadcast.frames(now // 1000))
            at, part = self._frames[0]
            if at * 1000 > now:
                return
            self._frames.popleft()
            done, unknown = None, _go_on_without
            if not self._frames:
                _, done, unknown = self._waiting.popleft()
                self._free_at = now + BROADCAST_PACE_US * 1000
            self._queue.add_frame(Frame(part.frame_id, part.data), done, on_unknown=unknown)


def _go_on_without() -> None:
    """A part that was not confirmed is not sent again: receivers would take it for one too many."""
