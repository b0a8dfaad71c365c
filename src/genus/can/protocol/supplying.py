"""The broker's side of the binding protocol: one reply after the other, each of two frames."""

from collections.abc import Callable

from genus.can.protocol.messages import Supply
from genus.can.wire.frame import Frame

MOST_PER_NODE = 16
"""Requests of one node that may wait; it repeats what is dropped."""


class Supplying:
    """State: who waits for a reply.

    `post` sends a frame; `supply` gives the reply for a subject, None if there can be none now.
    """

    def __init__(self, post: Callable[[Frame], None], supply: Callable[[int], Supply | None]) -> None:
        self._post, self._supply = post, supply
        self._waiting: dict[tuple[int, int], None] = {}
        self._last_half: Frame | None = None

    def ask(self, node: int, subject: int) -> bool:
        """Reply to a node in turn; a request that waits already is the same one. False if it has too many."""
        if (node, subject) not in self._waiting:
            if sum(asker == node for asker, _ in self._waiting) >= MOST_PER_NODE:
                return False
            self._waiting[node, subject] = None
        self._reply()
        return True

    def sent(self, frame: Frame) -> None:
        """A frame went through; if it ended a reply, the next is due."""
        if frame == self._last_half:
            self._last_half = None
            self._reply()

    def clear(self) -> None:
        """Reply to nobody."""
        self._waiting.clear()
        self._last_half = None

    def _reply(self) -> None:
        while self._waiting and self._last_half is None:
            node, subject = next(iter(self._waiting))
            del self._waiting[node, subject]
            supply = self._supply(subject)
            if supply is not None:
                first, self._last_half = supply.frames(node)
                self._post(first)
                self._post(self._last_half)
