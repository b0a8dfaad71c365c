"""A node's way from subjects to event tags, and its announcements: the binding protocol (COSMIC, FAMOUSO).

A request is one frame, the reply two, which must both fit a request of this node. Requests may be repeated at will:
the same subject always has the same tag. A few are on the way at a time; the others wait their turn, so that a bus
full of nodes that start together is not flooded with repetitions. For the same reason a node that has just got its
number waits until others have theirs.
"""

from collections.abc import Callable

import msgspec

from genus.can._protocol.messages import (
    Announce,
    GetEtag,
    Heartbeat,
    Nibble,
    Prefix,
    QosClass,
    Supply,
    SupplyHalf,
    parse,
)
from genus.can._protocol.notices import (
    BIND_ATTEMPTS,
    BIND_RETRY,
    CONFIGURATION_PAUSE,
    DEFENCE_PAUSE,
    LONGEST_POLITENESS,
    Bound,
    ClassConflict,
    Notice,
    Refused,
    Unanswered,
)
from genus.can._wire.frame import Frame

WINDOW = 4
"""Requests of one node that wait for a reply at a time."""


class _Request:
    """State: a subject that was asked for and has no tag yet."""

    __slots__ = ("attempts", "frame", "retry_at", "state", "told")

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.told: Notice | None = None
        self.await_turn()

    def await_turn(self) -> None:
        self.attempts = 0
        self.retry_at: int | None = None
        self.state = "waiting"


class Binding:
    """State: what a node asked the broker for, and what it announced.

    `send` queues a frame by its identifier, `withdraw` takes one back that is still queued, `tell` gets notices.
    Nothing is sent until the node has a number: see `join`.
    """

    def __init__(
        self,
        *,
        send: Callable[[Frame], None],
        withdraw: Callable[[Frame], None],
        tell: Callable[[Notice], None],
    ) -> None:
        self._send, self._withdraw, self._tell = send, withdraw, tell
        self._node: int | None = None
        self._requests: dict[int, _Request] = {}
        self._announced: dict[int, Announce] = {}
        self._first_halves: dict[int, SupplyHalf] = {}
        self._broker: tuple[int, int] | None = None
        self._announced_at: int | None = None
        self._polite_until = self._quiet_at = 0

    def join(self, node: int, now: int) -> None:
        """The node has this number: announce again what was announced, and soon ask for what is wanted."""
        self.leave()
        self._node = node
        self._polite_until, self._quiet_at = now + LONGEST_POLITENESS, now + CONFIGURATION_PAUSE
        self._announce_all()

    def leave(self) -> None:
        """The node has no number: ask for nothing, but keep in mind what is wanted."""
        self._node = None
        for request in self._requests.values():
            self._take_back(request)
            if request.state == "asked":
                request.await_turn()

    def bind(self, subject: int, now: int) -> None:
        """Ask for the tag of a subject; a notice tells. Asking again while waiting changes nothing."""
        known = self._requests.get(subject)
        if known is None:
            self._requests[subject] = _Request()
        elif known.state in ("unanswered", "refused"):
            known.await_turn()
        self._ask_more(now)

    def forget(self, subject: int, now: int) -> None:
        """Want the tag of a subject no more, and no longer stand by what was announced of it."""
        request = self._requests.pop(subject, None)
        if request is not None:
            self._take_back(request)
        self._announced.pop(subject, None)
        self._first_halves.pop(subject, None)
        self._ask_more(now)

    def announce(
        self,
        subject: int,
        etag: int,
        qos_class: QosClass,
        *,
        segmented: bool,
        size: int,
        span_us: int = 0,
    ) -> None:
        """Tell all nodes class and contract of a channel, now and whenever a broker begins to serve.

        If the channel's first publisher announced another class, a `ClassConflict` follows.
        """
        announcement = Announce(self._node or 0, etag, qos_class, segmented, size, span_us)
        self._announced[subject] = announcement
        if self._node is not None:
            self._send(announcement.frame())

    def receive(self, frame: Frame, now: int) -> None:
        """A frame was heard."""
        match parse(frame):
            case SupplyHalf() as half if half.to == self._node:
                self._heard_half(half, now)
            case Heartbeat() as heartbeat:
                self._heard_broker(heartbeat, now)
            case Nibble() | Prefix():
                self._quiet_at = min(now + CONFIGURATION_PAUSE, self._polite_until)

    @property
    def wake_at(self) -> int | None:
        """When the next request is to be repeated."""
        if not self._requests or self._node is None:
            return None
        times = [request.retry_at for request in self._requests.values() if request.retry_at is not None]
        if len(times) < WINDOW and any(request.state == "waiting" for request in self._requests.values()):
            times.append(self._quiet_at)
        return min(times, default=None)

    def wake(self, now: int) -> None:
        """Repeat what is due, or give it up."""
        for subject, request in list(self._requests.items()):
            if request.retry_at is not None and request.retry_at <= now:
                self._repeat(subject, request, now)
        self._ask_more(now)

    # -- asking ------------------------------------------------------------------------------------------------------

    def _ask_more(self, now: int) -> None:
        if self._node is None or now < self._quiet_at:
            return
        asked = sum(request.state == "asked" for request in self._requests.values())
        waiting = [item for item in self._requests.items() if item[1].state == "waiting"]
        for subject, request in waiting[: max(0, WINDOW - asked)]:
            request.state = "asked"
            self._ask(subject, request, now)

    def _ask(self, subject: int, request: _Request, now: int) -> None:
        assert self._node is not None
        self._take_back(request)
        request.frame = GetEtag(self._node, subject).frame()
        request.retry_at = now + (BIND_RETRY << request.attempts)
        request.attempts += 1
        self._send(request.frame)

    def _repeat(self, subject: int, request: _Request, now: int) -> None:
        if request.attempts < BIND_ATTEMPTS:
            return self._ask(subject, request, now)
        self._give_up(request, "unanswered", Unanswered("binding", subject))

    def _give_up(self, request: _Request, state: str, notice: Notice) -> None:
        """Leave a request until a broker is heard; the same outcome twice is told once."""
        self._take_back(request)
        request.state, request.retry_at = state, None
        if request.told != notice:
            request.told = notice
            self._tell(notice)

    def _take_back(self, request: _Request) -> None:
        if request.frame is not None:
            self._withdraw(request.frame)
            request.frame = None

    # -- hearing -----------------------------------------------------------------------------------------------------

    def _heard_half(self, half: SupplyHalf, now: int) -> None:
        """Keep a first half for every subject it fits; a second half completes the one that both fit."""
        for subject in {**self._requests, **self._announced}:
            if half.part == 0 and half.half == subject >> 32:
                self._first_halves[subject] = half
            elif half.part == 1 and half.half == subject & 0xFFFF_FFFF:
                first = self._first_halves.pop(subject, None)
                supply = None if first is None else Supply.join(first, half)
                if supply is not None:
                    self._supplied(supply, now)

    def _supplied(self, supply: Supply, now: int) -> None:
        announced = self._announced.get(supply.subject)
        if announced is not None and supply.etag and supply.qos_class is not QosClass.UNANNOUNCED:
            recorded = (supply.qos_class, supply.segmented)
            if recorded != (announced.qos_class, announced.segmented):
                self._tell(ClassConflict(supply.subject, announced.qos_class, *recorded))
        if supply.subject in self._requests:
            self._settle(supply)
            self._ask_more(now)

    def _settle(self, supply: Supply) -> None:
        if supply.reason is not None:
            refused = Refused(supply.subject, supply.reason)
            return self._give_up(self._requests[supply.subject], "refused", refused)
        self._take_back(self._requests.pop(supply.subject))
        flags = (supply.qos_class, supply.segmented, supply.width, supply.deprecated)
        self._tell(Bound(supply.subject, supply.etag, *flags))

    def _heard_broker(self, heard: Heartbeat, now: int) -> None:
        """A broker is there: ask again for what was not answered; if its catalog is new, for what was refused."""
        before, self._broker = self._broker, (heard.epoch, heard.digest)
        for request in self._requests.values():
            again = request.state == "unanswered" or (request.state == "refused" and before != self._broker)
            if again:
                request.await_turn()
        started = heard.roll_call or (before is not None and before[0] != heard.epoch)
        if started and (self._announced_at is None or now - self._announced_at >= DEFENCE_PAUSE):
            self._announced_at = now
            self._announce_all()
        self._ask_more(now)

    def _announce_all(self) -> None:
        if self._node is None:
            return
        for subject, announcement in self._announced.items():
            renewed = msgspec.structs.replace(announcement, node=self._node)
            self._announced[subject] = renewed
            self._send(renewed.frame())


# The broker's side of the binding protocol: one reply after the other, each of two frames.


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
