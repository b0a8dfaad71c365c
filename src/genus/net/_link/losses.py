"""Losses and lateness: noticed by receivers, told to both ends; and packets of types that are not known yet.

A gap in the numbers of a sender shows a loss with the next packet of the key. So that the last packets are missed too,
senders tell their newest numbers in beats. Packets of an unknown type wait until it is stated, or have waited enough.
"""

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeAlias

from genus.bus.types import ProblemHandler
from genus.errors import Reasons
from genus.net._link.foreign import ForeignLoss
from genus.net._link.incoming import IncomingKey, IncomingKeys, SoftTimes
from genus.net._link.messages import Beat, Loss, control_key, decode_message, encode_message, send_once
from genus.net._link.outgoing import OutgoingKeys
from genus.net._transport import EventsLate, EventsLost, EventsUnread, Transport

HOLD_S = 1.0
"""How long packets of an unknown type wait for its statement."""
MAX_HELD, MAX_HELD_BYTES = 1000, 8 << 20
"""The most packets that wait, and their size; beyond, all are delivered with what is known."""

HeldKey: TypeAlias = tuple[IncomingKeys, str]
"""What reads the packets of some keys, and one of these keys."""
Read: TypeAlias = Callable[[IncomingKey | str], None]
"""Is called with what reads the packets of a key, or with the reason why they cannot be read."""


class HeldPackets:
    """State: what came for keys of unknown types, in its order.

    The lock is held while a key is released, so that what comes meanwhile is read after it.
    """

    def __init__(self, now: Callable[[], float], log: logging.Logger) -> None:
        self._now, self._log = now, log
        self._lock = threading.RLock()
        self._waiting: dict[HeldKey, list[tuple[Read, int]]] = {}
        self._since: dict[HeldKey, float] = {}
        self._count = self._bytes = 0

    def read(self, incoming: IncomingKeys, key: str, envelope: bytes, payload: bytes) -> None:
        """Read a packet, now or when its type has been stated; count it if it cannot be read."""

        def read(known: IncomingKey | str) -> None:
            if isinstance(known, str):
                incoming.counts.reject(known, key, payload)
            else:
                known.read(envelope, payload)

        self.read_with(incoming, key, read, len(payload))

    def read_with(self, incoming: IncomingKeys, key: str, read: Read, size: int = 0) -> None:
        """Call a function with what reads the packets of a key, now or when its type has been stated."""
        known: IncomingKey | str | None = incoming.get(key)
        if known is None:
            with self._lock:
                if (incoming, key) in self._waiting or incoming.is_unknown(key):
                    self._add((incoming, key), read, size)
                    if self._is_full:
                        self._release(list(self._since))
                    return
                known = incoming.find(key)
        read(known)

    def hold(self, incoming: IncomingKeys, key: str, read: Read, size: int) -> bool:
        """Call a function when more was stated about types, or after a short time; whether there is room for that."""
        with self._lock:
            if not self._is_full:
                self._add((incoming, key), read, size)
                return True
            return False

    def _add(self, key: HeldKey, read: Read, size: int) -> None:
        self._since.setdefault(key, self._now())
        self._waiting.setdefault(key, []).append((read, size))
        self._count, self._bytes = self._count + 1, self._bytes + size

    @property
    def _is_full(self) -> bool:
        return self._count > MAX_HELD or self._bytes > MAX_HELD_BYTES

    def release_known(self) -> None:
        """Read what waits for types that are known by now."""
        with self._lock:
            keys = list(self._since)
        self._release([(incoming, key) for incoming, key in keys if not incoming.is_unknown(key)], waits=True)

    @property
    def has_old(self) -> bool:
        return bool(self._old())

    def _old(self) -> list[HeldKey]:
        with self._lock:
            return [key for key, since in self._since.items() if since <= self._now() - HOLD_S]

    def release_old(self) -> None:
        """Read what has waited enough, with what is known."""
        self._release(self._old())

    def _release(self, keys: Iterable[HeldKey], *, waits: bool = False) -> None:
        """Read what waits for some keys, in its order and before anything that comes meanwhile."""
        for incoming, key in keys:
            with self._lock:
                held = self._waiting.pop((incoming, key), None)
                if held is None:
                    continue
                del self._since[incoming, key]
                self._count, self._bytes = self._count - len(held), self._bytes - sum(size for _, size in held)
                known = incoming.get(key) or incoming.make(key)
                if not isinstance(known, str):
                    known.waits = waits
                for read, _ in held:
                    try:
                        read(known)
                    except Exception:
                        incoming.counts.rejections.add("an error of this program, which is in the log", key)
                        self._log.exception("a packet of %r could not be read", key)
                incoming.put(key, known)


BEAT_S = 0.5
BEATS_MORE = 2
"""How often the newest number of a key is told again, so that one beat may be lost."""
BEAT_KEYS = 1000
"""The largest number of keys in one beat."""
SETTLE_S = 1.0
"""How long a gap may be filled before it is a loss."""
SETTLE_RELIABLE_S = 5.0
"""The same where lost packets are sent again."""
REPORT_S = 10.0
"""How far a drop of the transport and the report of it by a receiver may be apart; after that it is told twice."""
GONE_S = 30.0
"""How long a gateway that took over tells how far the one before it came."""
MAX_HEARD = 10_000
"""The largest number of senders whose last beat is remembered."""
MAX_LATE = 10_000
"""The largest number of keys and senders whose lateness is remembered until it is told."""
JOIN_S = 3.0
"""A receiver that has subscribed for this long must have got all packets of a key."""
BEATS_TO_ALL = 3
"""How many beats tell all keys after a participant has appeared, which may take time to hear the first of them."""
MAX_WAITING = 10_000
"""The largest number of problems that wait to be told; the oldest make room."""

DeliveryProblem = EventsLost | EventsLate | EventsUnread
_NUMBER = re.compile(r"\d+")
log = logging.getLogger("genus.net")


class LateEvents:
    """State: events that came after their deadline since the last report, by key and sender."""

    def __init__(self, time_us: Callable[[], int]) -> None:
        self._time_us = time_us
        self._late: dict[tuple[str, bytes], tuple[int, int, int]] = {}
        self._lock = threading.Lock()
        self.late = self.expired = 0

    def is_on_time(self, key: str, sender: bytes, times: SoftTimes) -> bool:
        """Note the lateness of an event; returns whether it has not expired."""
        age_us = self._time_us() - times.published_us
        is_expired = bool(times.expires_us) and age_us > times.expires_us
        if age_us > times.deadline_us:
            with self._lock:
                count, worst, expired = self._late.get((key, sender), (0, 0, 0))
                if count or len(self._late) < MAX_LATE:
                    worst = max(worst, age_us - times.deadline_us)
                    self._late[key, sender] = count + 1, worst, expired + is_expired
                self.late += 1
                self.expired += is_expired
        return not is_expired

    def take(self) -> dict[tuple[str, bytes], tuple[int, int, int]]:
        """Since the last call, for each key and sender: the number late, the worst lateness, the number expired."""
        with self._lock:
            taken, self._late = self._late, {}
            return taken


class ProblemOwner(Protocol):
    """Who is to be told of problems: the subscriptions and channels of a link."""

    uid: bytes
    now: Callable[[], float]
    time_us: Callable[[], int]
    transport: Transport
    realm: str
    held: HeldPackets

    @property
    def turn(self) -> int:
        """Return the number of subscriptions that were made so far."""

    def subscribed_since(self, key: str) -> float | None:
        """When this participant first subscribed to a key; None if it does not."""

    def listeners_of(self, key: str) -> list[ProblemHandler]:
        """Return the problem handlers of the subscriptions to a key."""

    def publishers_of(self, *types: str) -> list[ProblemHandler]:
        """Return the problem handlers of the channels of some types."""


class Losses:
    """State: what is missing of others, and what others miss of this participant."""

    def __init__(self, owner: ProblemOwner, incoming: IncomingKeys, outgoing: OutgoingKeys, late: LateEvents) -> None:
        self._owner, self._incoming, self._outgoing, self._late = owner, incoming, outgoing, late
        self._problems = ProblemQueue()
        self._hex = owner.uid.hex()
        self._beat_again: dict[str, int] = {}
        """Keys that are told again, and how often."""
        self._beat_key = control_key(owner.realm, "beat")
        self._is_beat_dropped = False
        self._beats_to_all = False
        self._counts = Reasons()
        self._balances: dict[str, tuple[int, float]] = {}
        """By key: packets that the transport dropped and receivers have not reported yet, or the reverse (negative)."""
        self._gone: dict[bytes, float] = {}
        """Senders that are gone, and until when this one tells how far they came."""
        self._heard: dict[bytes, float] = {}
        """When the last beat of each sender came."""
        self._lock = threading.Lock()

    # -- at the receiver ---------------------------------------------------------------------------------------------

    def on_beat(self, payload: bytes) -> None:
        """A sender's newest numbers arrived: what did not arrive until them is missing."""
        beat = decode_message(Beat, payload)
        if beat is None or len(beat.sender) != len(self._owner.uid):
            self._reject("a beat that cannot be read", payload)
        elif beat.sender != self._owner.uid:
            self._hear(beat.sender)
            for key, (before, newest) in beat.numbers.items():
                self._compare(beat.sender, key, before, newest, beat.began_us.get(key))

    def _hear(self, sender: bytes) -> None:
        if len(self._heard) >= MAX_HEARD and sender not in self._heard:
            self._heard.clear()
        self._heard[sender] = self._owner.now()

    def heard_ago(self, sender: bytes) -> float | None:
        """Return how many seconds ago a sender said that it had sent something; None if it did not yet."""
        at = self._heard.get(sender)
        return None if at is None else self._owner.now() - at

    def _compare(self, sender: bytes, key: str, before: int, newest: int, began_us: int | None) -> None:
        if self._owner.subscribed_since(key) is not None:
            compare = partial(self._compare_key, sender, before, newest, began_us)
            self._owner.held.read_with(self._incoming, key, compare)

    def _compare_key(
        self, sender: bytes, before: int, newest: int, began_us: int | None, known: IncomingKey | str
    ) -> None:
        since = None if isinstance(known, str) else self._owner.subscribed_since(known.key)
        if since is None or isinstance(known, str):
            return
        now = self._owner.now()
        numbers = known.numbers.get(sender)
        if numbers is not None and known.has_been_interrupted(numbers):
            numbers.begin_again(self._owner.turn)
        since_us = self._owner.time_us() - (now - since) * 1e6
        if known.counts_all or (began_us is not None and began_us > since_us + JOIN_S * 1e6):
            numbers = numbers or known.start(sender, 0, is_accounted=True)
            numbers.account_from(0)
        elif numbers is None and before != newest and now - since > JOIN_S:
            numbers = known.start(sender, before, is_accounted=True)
        if numbers is not None:
            numbers.claim(before, newest, now)

    def settle(self, after_s: float) -> None:
        """Count what has been missing for so long as lost, and tell both ends."""
        before = self._owner.now() - after_s
        for known in self._incoming:
            for sender, numbers in list(known.numbers.items()):
                if numbers.has_missing and (lost := numbers.settle(before)):
                    self._lose(known.key, sender, lost)

    def _lose(self, key: str, sender: bytes, count: int) -> None:
        self._count("lost", count)
        problem = EventsLost(self._incoming.type_in(key), count, sender.hex(), self._hex, "they did not arrive")
        self._problems.add(problem, self._owner.listeners_of(key))
        self._send("lost", sender.hex(), Loss(self._hex, key, count))

    def lose_foreign(self, loss: ForeignLoss, handlers: list[ProblemHandler]) -> None:
        """Count and tell events of another system that did not arrive, or were not sent to it."""
        self._count(f"dropped: {loss.reason}" if loss.is_own else "lost", loss.count)
        ends = (self._hex, loss.sender) if loss.is_own else (loss.sender, self._hex)
        self._problems.add(EventsLost(" or ".join(sorted(loss.types)), loss.count, *ends, loss.reason), handlers)

    def report(self, sender: bytes, key: str, count: int) -> None:
        """Tell a sender that packets of it were lost by this participant, a gateway."""
        if sender == self._owner.uid:
            self.dropped(key, count, "a gateway could not send it")
        else:
            self._send("lost", sender.hex(), Loss(self._hex, key, count))

    def report_lateness(self) -> None:
        """Tell both ends of what came after its deadline."""
        for (key, sender), (count, worst, expired) in self._late.take().items():
            problem = EventsLate(self._incoming.type_in(key), count, worst, expired, sender.hex(), self._hex)
            self._problems.add(problem, self._owner.listeners_of(key))
            self._send("late", sender.hex(), Loss(self._hex, key, count, worst, expired))

    # -- at the sender -----------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Tell the newest numbers of the keys that were used; and twice more, as a beat holds if another one follows.

        As long as the transport drops beats, those keys are told again: a receiver that does not take its packets now
        must learn of all that it missed when it does.
        """
        self._beat_gone()
        told = self._outgoing.beat()
        if self._beats_to_all:
            self._beats_to_all = False
            self._beat_again = dict.fromkeys(self._outgoing.keys(), BEATS_TO_ALL)
        again = self._outgoing.newest(key for key in self._beat_again if key not in told)
        self._send_beat(self._owner.uid, told | again)
        spent = not self._is_beat_dropped
        left = {key: self._beat_again[key] - spent for key in again} | dict.fromkeys(told, BEATS_MORE)
        self._beat_again = {key: count for key, count in left.items() if count}
        self._is_beat_dropped = False

    def beat_to_all(self) -> None:
        """Tell the numbers of all keys soon: one that has come back may have missed the last packets and beats."""
        self._beats_to_all = True

    def beat_for(self, senders: Iterable[bytes]) -> None:
        """Tell for some time how far other senders came, as it was seen here: they are gone and cannot do so."""
        self._gone |= dict.fromkeys(senders, self._owner.now() + GONE_S)
        self._beat_gone()

    def _beat_gone(self) -> None:
        self._gone = {sender: until for sender, until in self._gone.items() if self._owner.now() < until}
        for sender in self._gone:
            seen = [(known.key, numbers.last) for known in self._incoming if (numbers := known.numbers.get(sender))]
            self._send_beat(sender, {key: (last, last) for key, last in seen})

    def _send_beat(self, sender: bytes, numbers: dict[str, tuple[int, int]]) -> None:
        told = list(numbers.items())
        for start in range(0, len(told), BEAT_KEYS):
            part = dict(told[start : start + BEAT_KEYS])
            began = self._outgoing.began(part) if sender == self._owner.uid else {}
            base_us = self._owner.time_us() - self._owner.now() * 1e6
            self._send("beat", None, Beat(sender, part, {key: int(base_us + at * 1e6) for key, at in began.items()}))

    def on_loss(self, payload: bytes) -> None:
        """A receiver did not get packets of this sender."""
        loss = self._read_report(payload)
        if loss is None:
            return
        self._count("lost by receivers", loss.count)
        if untold := self._untold(loss.key, loss.count, -1):
            type_ = self._incoming.type_in(loss.key)
            problem = EventsLost(type_, untold, self._hex, loss.receiver[:16], "they did not arrive")
            self._problems.add(problem, self._owner.publishers_of(type_))

    def _untold(self, key: str, count: int, sign: int) -> int:
        """How many packets were not told to publishers yet: a drop of the transport (1) is reported by receivers (-1),
        too, before it or after it."""
        with self._lock:
            balance, until = self._balances.pop(key, (0, 0.0))
            if self._owner.now() >= until:
                balance = 0
            if balance + sign * count:
                self._balances[key] = balance + sign * count, self._owner.now() + REPORT_S
            return count - min(count, max(0, -sign * balance))

    def on_late(self, payload: bytes) -> None:
        """A receiver got packets of this sender after their deadline."""
        loss = self._read_report(payload)
        if loss is not None:
            self._count("late at receivers", loss.count)
            type_ = self._incoming.type_in(loss.key)
            problem = EventsLate(type_, loss.count, loss.worst_us, loss.expired, self._hex, loss.receiver[:16])
            self._problems.add(problem, self._owner.publishers_of(type_))

    def _read_report(self, payload: bytes) -> Loss | None:
        loss: Loss | None = decode_message(Loss, payload)
        if loss is None or not 0 < loss.count < 2**32 or not self._outgoing.has(loss.key):
            self._reject("a report that cannot be read", payload)
            return None
        return loss

    def dropped(self, key: str, count: int, reason: str) -> None:
        """The transport did not send packets."""
        self._count(f"dropped: {reason}", count)
        self._is_beat_dropped = self._is_beat_dropped or key == self._beat_key
        type_ = self._incoming.type_in(key)
        if type_ == "?":
            return  # a control packet: nobody misses it
        if untold := self._untold(key, count, 1):
            self._problems.add(EventsLost(type_, untold, self._hex, "", reason), self._owner.publishers_of(type_))

    # -- both --------------------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Call the problem handlers, also with what could not be read."""
        for key, reason, count in self._incoming.counts.take_untold():
            unread = EventsUnread(self._incoming.type_in(key), count, reason)
            self._problems.add(unread, self._owner.listeners_of(key))
        self._problems.tell()

    def refuse_type(self, type_: str, reason: str, handlers: Iterable[ProblemHandler]) -> None:
        """Tell that what another participant states about a type contradicts this program."""
        self._problems.add(EventsUnread(type_, 0, reason), handlers)

    def counts(self) -> dict[str, int]:
        """Numbers of events that were lost or late, by what is known about it."""
        with self._lock:
            return dict(self._counts)

    def _count(self, name: str, count: int) -> None:
        with self._lock:
            self._counts[name] += count

    def _reject(self, reason: str, payload: bytes) -> None:
        self._incoming.counts.rejections.add(reason, payload=payload)

    def _send(self, what: str, uid: str | None, message: Any) -> None:
        chunks = (what,) if uid is None else (what, uid)
        send_once(self._owner.transport, control_key(self._owner.realm, *chunks), encode_message(message))


class ProblemQueue:
    """State: problems that are still to be told. They are told by the link's own thread, never under a lock.

    The log has each reason once for each type: those of events that cannot be read, and of problems without a handler.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[DeliveryProblem, list[ProblemHandler]]] = deque(maxlen=MAX_WAITING)
        self._logged = Reasons()

    def add(self, problem: DeliveryProblem, handlers: Iterable[ProblemHandler]) -> None:
        """Tell handlers of a problem, or the log if there are none."""
        self._waiting.append((problem, list(handlers)))

    def tell(self) -> None:
        while self._waiting:
            problem, handlers = self._waiting.popleft()
            for handler in handlers:
                self._call(handler, problem)
            if isinstance(problem, EventsUnread) or not handlers:
                self._log_once(problem)

    def _call(self, handler: ProblemHandler, problem: DeliveryProblem) -> None:
        try:
            handler(problem)
        except Exception:
            log.exception("a problem handler failed on %r", problem)

    def _log_once(self, problem: DeliveryProblem) -> None:
        reason = "late" if isinstance(problem, EventsLate) else problem.reason
        if isinstance(problem, EventsLost):
            reason = reason.partition(":")[0]  # what the other side says may be anything
        if self._logged.add(f"{problem.type}: {_NUMBER.sub('', reason)}"):
            log.warning("%s; further ones are counted only", problem)
