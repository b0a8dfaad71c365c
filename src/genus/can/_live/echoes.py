"""`EchoFilter`: recognises own frames that come back although nobody waits for them."""

from collections import deque

from genus.can._wire.frame import Frame

ECHO_TIMEOUT_NS = 1_000_000_000
"""A frame that is received later than this after an equal one was sent is not its echo."""


class EchoFilter:
    """State: recognises own frames that an interface returns, each once, within a second after sending.

    If another node sends a frame with our number and our data, one more copy arrives than was sent: that one is not
    recognised as an echo.

    >>> echoes, frame = EchoFilter(), Frame(0x21_6010, b"hi")
    >>> echoes.expect(frame, 0)
    >>> echoes.recognise(frame, 5), echoes.recognise(frame, 6)
    (True, False)
    """

    def __init__(self) -> None:
        self._sent: deque[tuple[int, tuple[int, bytes]]] = deque()
        self._expected: dict[tuple[int, bytes], int] = {}
        self._returned: dict[tuple[int, bytes], int] = {}

    def expect(self, frame: Frame, now: int) -> None:
        """Expect the echo of a frame that is about to be sent."""
        self._drop_old(now)
        key = _key(frame)
        self._sent.append((now, key))
        self._expected[key] = self._expected.get(key, 0) + 1

    def recognise(self, frame: Frame, now: int) -> bool:
        """Whether a received frame is the echo of one that was sent."""
        if not self._sent:
            return False
        self._drop_old(now)
        key = _key(frame)
        if not self._expected.get(key):
            return False
        _decrement(self._expected, key)
        self._returned[key] = self._returned.get(key, 0) + 1
        return True

    def _drop_old(self, now: int) -> None:
        while self._sent and now - self._sent[0][0] > ECHO_TIMEOUT_NS:
            _, key = self._sent.popleft()
            _decrement(self._returned if key in self._returned else self._expected, key)


def _key(frame: Frame) -> tuple[int, bytes]:
    return frame.id if frame.extended else ~frame.id, frame.data


def _decrement(counts: dict[tuple[int, bytes], int], key: tuple[int, bytes]) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]
