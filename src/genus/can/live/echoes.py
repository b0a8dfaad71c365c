"""Own frames that an interface hands back: expected once each, and recognised."""

from collections import deque

from genus.can.wire.frame import Frame

ECHO_NS = 1_000_000_000
"""A frame that comes back later than this is somebody else's."""


class Echoes:
    """State: the frames sent within the last second that have not come back.

    A frame of somebody else under our number and with our data is told from an echo by coming once too often.

    >>> echoes, frame = Echoes(), Frame(0x21_6010, b"hi")
    >>> echoes.expect(frame, 0)
    >>> echoes.recognise(frame, 5), echoes.recognise(frame, 6)
    (True, False)
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[int, tuple[int, bytes]]] = deque()
        self._awaited: dict[tuple[int, bytes], int] = {}
        self._returned: dict[tuple[int, bytes], int] = {}

    def expect(self, frame: Frame, now: int) -> None:
        """A frame is about to be sent."""
        self._forget(now)
        key = (frame.id, frame.data)
        self._sent.append((now, key))
        self._awaited[key] = self._awaited.get(key, 0) + 1

    def recognise(self, frame: Frame, now: int) -> bool:
        """Whether a received frame is one of ours that had not come back yet."""
        self._forget(now)
        key = (frame.id, frame.data)
        if not self._awaited.get(key):
            return False
        self._take(self._awaited, key)
        self._returned[key] = self._returned.get(key, 0) + 1
        return True

    def _forget(self, now: int) -> None:
        while self._sent and now - self._sent[0][0] > ECHO_NS:
            _, key = self._sent.popleft()
            self._take(self._returned if key in self._returned else self._awaited, key)

    @staticmethod
    def _take(counts: dict[tuple[int, bytes], int], key: tuple[int, bytes]) -> None:
        if counts[key] > 1:
            counts[key] -= 1
        else:
            del counts[key]
