"""Who hears a frame: by filters, less those who miss it, and sometimes later than it was sent."""

from collections.abc import Iterable

from genus.can.sim.controller import Controller, Ear
from genus.can.sim.verdict import Ruling
from genus.can.wire.frame import Frame

_KEPT = 1 << 16
"""For how many identifiers of a sender it is remembered who hears them."""


class Audience:
    """State: the controllers of a bus, who of them hears what, and frames that are held back."""

    def __init__(self, controllers: Iterable[Controller]) -> None:
        self._controllers = controllers
        self.late: dict[tuple[int, int], tuple[Frame, list[Controller]]] = {}
        """Frames that come after the next one of their sender and event tag."""

    def forget(self) -> None:
        """Somebody came, went or changed filters."""
        for controller in self._controllers:
            controller.ears.clear()

    def of(self, sender: Controller, frame: Frame) -> tuple[tuple[Ear, ...], tuple[int, ...]]:
        """Whom to call with a frame of this sender, and the numbers of all who hear it; kept for the next time."""
        key = frame.id if frame.extended else ~frame.id
        return sender.ears.get(key) or self._find(sender, frame, key)

    def _find(self, sender: Controller, frame: Frame, key: int) -> tuple[tuple[Ear, ...], tuple[int, ...]]:
        if len(sender.ears) >= _KEPT:
            sender.ears.clear()
        listening = self._listening([sender], frame)
        hooks = tuple(each.hear for each in listening if each.hear is not None)
        found = sender.ears[key] = hooks, tuple(each.number for each in listening)
        return found

    def split(
        self, senders: list[Controller], frame: Frame, ruling: Ruling
    ) -> tuple[list[Controller], tuple[int, ...]]:
        """Who hears the frame, and the numbers of those who miss it."""
        ears = self._listening(senders, frame) if ruling.is_delivered else []
        heard = [each for each in ears if each.number not in ruling.deaf]
        return heard, tuple(each.number for each in ears if each.number in ruling.deaf)

    def deliver(self, sender: Controller, frame: Frame, heard: list[Controller], now: int, *, late: bool) -> None:
        """Hand a frame over, or hold it back; then the one that was held back before it."""
        key = sender.number, frame.etag
        held = self.late.pop(key, None)
        if late:
            self.late[key] = frame, heard
        else:
            _hand_over(frame, heard, now)
        if held is not None:
            _hand_over(*held, now)

    def _listening(self, senders: list[Controller], frame: Frame) -> list[Controller]:
        return [each for each in self._controllers if not each.off and each not in senders and each.passes(frame)]


def _hand_over(frame: Frame, ears: list[Controller], now: int) -> None:
    for each in ears:
        if each.hear is not None and each.bus is not None:
            each.hear(frame, now)
