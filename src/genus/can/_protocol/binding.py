"""The binding protocol (COSMIC, FAMOUSO): from subjects to event tags, and the announcements of channels.

A request is one frame, the reply two, which must both fit a request of the node. Requests may be repeated: the same
subject always has the same event tag. A node sends only a few requests at a time, so that a bus with many nodes that
start together is not flooded with repetitions. For the same reason a node that has just got its number waits until
other nodes have theirs.
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
    parse_message,
)
from genus.can._protocol.notices import (
    BIND_ATTEMPTS,
    BIND_QUIET_TIME,
    BIND_RETRY,
    DEFENCE_INTERVAL,
    MAX_BIND_DELAY,
    BindingRefused,
    Bound,
    ClassConflict,
    Notice,
    RequestUnanswered,
)
from genus.can._wire.frame import Frame

WINDOW = 4
"""The most requests of one node that wait for a reply at a time."""
MAX_PER_NODE = 16
"""The most requests of one node that wait at the broker; the node repeats those that are dropped."""


class _Request:
    """State: a subject without an event tag; `state` is waiting, asked, unanswered or refused."""

    __slots__ = ("attempts", "frame", "reported", "retry_at", "state")

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.reported: Notice | None = None
        self.wait()

    def wait(self) -> None:
        self.attempts = 0
        self.retry_at: int | None = None
        self.state = "waiting"


class BindingClient:
    """State: the subjects that a node needs event tags for, and the channels it announced.

    `send` queues a frame by its identifier, `withdraw` removes one that is still queued, `notify` gets notices. Nothing
    is sent until the node has a number: see `join`.
    """

    def __init__(
        self,
        *,
        send: Callable[[Frame], None],
        withdraw: Callable[[Frame], None],
        notify: Callable[[Notice], None],
    ) -> None:
        self._send, self._withdraw, self._notify = send, withdraw, notify
        self._node: int | None = None
        self._requests: dict[int, _Request] = {}
        self._announced: dict[int, Announce] = {}
        self._first_halves: dict[int, SupplyHalf] = {}
        self._broker: tuple[int, int] | None = None
        self._announced_at: int | None = None
        self._delay_until = self._quiet_at = 0

    def join(self, node: int, now: int) -> None:
        """The node has this number: repeat all announcements, and soon send the waiting requests."""
        self.leave()
        self._node = node
        self._delay_until, self._quiet_at = now + MAX_BIND_DELAY, now + BIND_QUIET_TIME
        self._announce_all()

    def leave(self) -> None:
        """The node has no number: send nothing, but keep the requests."""
        self._node = None
        for request in self._requests.values():
            self._withdraw_frame(request)
            if request.state == "asked":
                request.wait()

    def bind(self, subject: int, now: int) -> None:
        """Ask for the event tag of a subject; a notice has the result. A subject that waits already is asked once."""
        known = self._requests.get(subject)
        if known is None:
            self._requests[subject] = _Request()
        elif known.state in ("unanswered", "refused"):
            known.wait()
        self._ask_more(now)

    def forget(self, subject: int, now: int) -> None:
        request = self._requests.pop(subject, None)
        if request is not None:
            self._withdraw_frame(request)
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
        """Announce QoS class and contract of a channel, now and whenever a broker starts.

        If the channel's first publisher announced another class, a `ClassConflict` follows.
        """
        announcement = Announce(self._node or 0, etag, qos_class, segmented, size, span_us)
        self._announced[subject] = announcement
        if self._node is not None:
            self._send(announcement.frame())

    def receive(self, frame: Frame, now: int) -> None:
        match parse_message(frame):
            case SupplyHalf() as half if half.to == self._node:
                self._on_half(half, now)
            case Heartbeat() as heartbeat:
                self._on_heartbeat(heartbeat, now)
            case Nibble() | Prefix():
                self._quiet_at = min(now + BIND_QUIET_TIME, self._delay_until)

    @property
    def wake_at(self) -> int | None:
        if not self._requests or self._node is None:
            return None
        times = [request.retry_at for request in self._requests.values() if request.retry_at is not None]
        if len(times) < WINDOW and any(request.state == "waiting" for request in self._requests.values()):
            times.append(self._quiet_at)
        return min(times, default=None)

    def wake(self, now: int) -> None:
        for subject, request in list(self._requests.items()):
            if request.retry_at is not None and request.retry_at <= now:
                self._repeat(subject, request, now)
        self._ask_more(now)

    # -- requests ----------------------------------------------------------------------------------------------------

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
        self._withdraw_frame(request)
        request.frame = GetEtag(self._node, subject).frame()
        request.retry_at = now + (BIND_RETRY << request.attempts)
        request.attempts += 1
        self._send(request.frame)

    def _repeat(self, subject: int, request: _Request, now: int) -> None:
        if request.attempts < BIND_ATTEMPTS:
            return self._ask(subject, request, now)
        self._give_up(request, "unanswered", RequestUnanswered("binding", subject))

    def _give_up(self, request: _Request, state: str, notice: Notice) -> None:
        """Stop a request until the next heartbeat of a broker; the same outcome is reported only once."""
        self._withdraw_frame(request)
        request.state, request.retry_at = state, None
        if request.reported != notice:
            request.reported = notice
            self._notify(notice)

    def _withdraw_frame(self, request: _Request) -> None:
        if request.frame is not None:
            self._withdraw(request.frame)
            request.frame = None

    # -- received messages -------------------------------------------------------------------------------------------

    def _on_half(self, half: SupplyHalf, now: int) -> None:
        """Keep a first half for every subject it fits; a second half completes the subject that both fit."""
        for subject in {**self._requests, **self._announced}:
            if half.part == 0 and half.half == subject >> 32:
                self._first_halves[subject] = half
            elif half.part == 1 and half.half == subject & 0xFFFF_FFFF:
                first = self._first_halves.pop(subject, None)
                supply = None if first is None else Supply.join(first, half)
                if supply is not None:
                    self._on_supply(supply, now)

    def _on_supply(self, supply: Supply, now: int) -> None:
        announced = self._announced.get(supply.subject)
        if announced is not None and supply.etag and supply.qos_class is not QosClass.UNANNOUNCED:
            recorded = (supply.qos_class, supply.segmented)
            if recorded != (announced.qos_class, announced.segmented):
                self._notify(ClassConflict(supply.subject, announced.qos_class, *recorded))
        if supply.subject in self._requests:
            self._complete(supply)
            self._ask_more(now)

    def _complete(self, supply: Supply) -> None:
        if supply.reason is not None:
            refused = BindingRefused(supply.subject, supply.reason)
            return self._give_up(self._requests[supply.subject], "refused", refused)
        self._withdraw_frame(self._requests.pop(supply.subject))
        flags = (supply.qos_class, supply.segmented, supply.width, supply.deprecated)
        self._notify(Bound(supply.subject, supply.etag, *flags))

    def _on_heartbeat(self, heartbeat: Heartbeat, now: int) -> None:
        """A broker is present: repeat unanswered requests, and refused ones if its catalog is new."""
        before, self._broker = self._broker, (heartbeat.epoch, heartbeat.digest)
        for request in self._requests.values():
            again = request.state == "unanswered" or (request.state == "refused" and before != self._broker)
            if again:
                request.wait()
        started = heartbeat.roll_call or (before is not None and before[0] != heartbeat.epoch)
        if started and (self._announced_at is None or now - self._announced_at >= DEFENCE_INTERVAL):
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


class BindingServer:
    """State: the requests that wait at the broker; it sends one reply of two frames after the other.

    `send` queues a frame; `supply` gives the reply for a subject, None if there can be none now.
    """

    def __init__(self, send: Callable[[Frame], None], supply: Callable[[int], Supply | None]) -> None:
        self._send, self._supply = send, supply
        self._waiting: dict[tuple[int, int], None] = {}
        self._last_half: Frame | None = None

    def ask(self, node: int, subject: int) -> bool:
        """Queue a request of a node, unless it waits already; False if the node has too many."""
        if (node, subject) not in self._waiting:
            if sum(asker == node for asker, _ in self._waiting) >= MAX_PER_NODE:
                return False
            self._waiting[node, subject] = None
        self._reply()
        return True

    def sent(self, frame: Frame) -> None:
        """A frame was sent; after the second half of a reply the next one follows."""
        if frame == self._last_half:
            self._last_half = None
            self._reply()

    def clear(self) -> None:
        self._waiting.clear()
        self._last_half = None

    def _reply(self) -> None:
        while self._waiting and self._last_half is None:
            node, subject = next(iter(self._waiting))
            del self._waiting[node, subject]
            supply = self._supply(subject)
            if supply is not None:
                first, self._last_half = supply.frames(node)
                self._send(first)
                self._send(self._last_half)
