"""Channels: the contract at `announce`, by what a network can keep and by measured round trips, and the publisher."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import msgspec

from genus.bus import Hard, Publisher, Soft
from genus.bus.types import Keep, ProblemHandler, QoS
from genus.errors import BusError
from genus.model import Event, name_of, nanoseconds
from genus.net._envelope import SOFT_TIMES
from genus.net._link.messages import Ping, Pong, control_key, decode_message, encode_message, is_uid, send_once
from genus.net._link.outgoing import Outgoing
from genus.net._transport import BULK, NORMAL, SOFT, URGENT, Abilities, Sending, Transport

ROUND_TRIPS = 20
URGENT_US = 10_000
"""A deadline of at most this makes a channel urgent."""
ANSWER_S = 0.5
"""How long an answer may take."""
MAX_ANSWERS = 1000
"""How many answers to one question are taken."""
_START_NS = time.time_ns() - time.monotonic_ns()
_MAX_DEADLINE_US = 2**32 - 1
Published: TypeAlias = Callable[[Event, int, str, str | None], None]


class Measured(msgspec.Struct, frozen=True):
    """Round trips to other participants, and how far their clocks may differ from this one; in microseconds."""

    round_trips_us: Sequence[int]
    clock_bound_us: int

    @property
    def p99_us(self) -> int:
        """The 99th percentile of the round trips: with few, the longest."""
        ordered = sorted(self.round_trips_us)
        return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def sending_of(qos: QoS, reliable: bool, keep: Keep | None) -> Sending:
    if isinstance(qos, Soft):
        deadline_us = nanoseconds(qos.deadline) // 1000
        expires_s = nanoseconds(qos.expires) / 1e9 if qos.expires is not None else None
        priority = URGENT if deadline_us <= URGENT_US else SOFT
        return Sending(priority, reliable, keep is not None, expires_s)
    bulk = not isinstance(qos, Hard) and qos.priority == 1
    return Sending(BULK if bulk else NORMAL, reliable, keep is not None)


def check_abilities(cls: type, qos: QoS, keep: Keep | None, medium: str, abilities: Abilities) -> None:
    """BusError with the reason if a medium cannot keep a quality of service, whatever its speed."""
    if isinstance(qos, Hard):
        refuse(
            cls, qos, f"{medium} has no calendar of slots, so it keeps no hard deadline", "Soft(...) and BestEffort()"
        )
    if keep is not None and not abilities.keeps:
        why = abilities.why.get("keeps", f"{medium} keeps no last values")
        refuse(cls, qos, why, f"{type(qos).__name__}(...) without keep=True")


def check_measured(cls: type, qos: Soft, measured: Measured, medium: str) -> None:
    """BusError with the reason if a deadline is too short for the round trips or clocks that were measured."""
    deadline_us = nanoseconds(qos.deadline) // 1000
    least_ms = 2 * measured.p99_us / 1000
    if 2 * measured.p99_us > deadline_us:
        took = f"round trips on {medium} take up to {measured.p99_us / 1000:.3g} ms"
        refuse(cls, qos, took, f"Soft(deadline='{_rounded_up(least_ms)}ms')")
    if qos.expires is None:
        return
    room_us = nanoseconds(qos.expires) // 1000 - deadline_us
    if 2 * measured.clock_bound_us > room_us:
        bound_ms = measured.clock_bound_us / 1000
        could = f"expires at least {_rounded_up(2 * bound_ms)} ms after the deadline"
        refuse(cls, qos, f"clocks of participants may differ by {bound_ms:.3g} ms", could)


def refuse(cls: type, qos: QoS, reason: str, could: str) -> NoReturn:
    """Refuse a channel with the reason and what could be kept."""
    raise BusError(f"{name_of(cls)} cannot be announced with {qos}: {reason}; it could keep {could}")


def _rounded_up(milliseconds: float) -> int:
    return int(milliseconds) + 1


def monotonic_utc_us() -> int:
    """Microseconds since 1970 by a clock that is never set: the system's time at the start of the process went on.

    So a system clock that is set makes no events of soft channels late.
    """
    return (_START_NS + time.monotonic_ns()) // 1000


class RoundTrips:
    """State: answers that are awaited."""

    def __init__(self, transport: Transport, realm: str, uid: str) -> None:
        self._transport, self._realm, self._uid = transport, realm, uid
        self._ping = transport.sender(control_key(realm, "ping"), Sending(URGENT, waits=False))
        self._measuring = threading.Lock()
        self._answered = threading.Condition()
        self._asked_us: int | None = None
        """The question that is open, if there is one."""
        self._answers: list[tuple[int, Pong]] = []

    def on_ping(self, payload: bytes) -> None:
        ping = decode_message(Ping, payload)
        if ping is None or not is_uid(ping.asker) or ping.asker == self._uid:
            return
        pong = encode_message(Pong(self._uid, ping.asked_us, monotonic_utc_us()))
        send_once(self._transport, control_key(self._realm, "pong", ping.asker), pong, Sending(URGENT, waits=False))

    def on_pong(self, payload: bytes) -> None:
        """Take an answer, if it is one to the question that is open."""
        pong = decode_message(Pong, payload)
        with self._answered:
            if pong is not None and pong.asked_us == self._asked_us and len(self._answers) < MAX_ANSWERS:
                self._answers.append((monotonic_utc_us(), pong))
                self._answered.notify()

    def measure(self, times: int = ROUND_TRIPS) -> Measured | None:
        """Ask for the time so many times; None if nobody answers. Not to be called by the thread that receives."""
        with self._measuring:
            found = self._ask()
            for _ in range(times - 1) if found else ():
                found += self._ask()
        if not found:
            return None
        trips = [trip for trip, _ in found]
        bound = min(trip // 2 + abs(offset) for trip, offset in found)
        return Measured(trips, bound)

    def _ask(self) -> list[tuple[int, int]]:
        """Return the length of a round trip and the difference of the clocks, of the first answer."""
        with self._answered:
            asked_us = self._asked_us = monotonic_utc_us()
            self._ping.put(encode_message(Ping(self._uid, asked_us)), b"")
            self._answered.wait_for(lambda: bool(self._answers), ANSWER_S)
            answers, self._answers, self._asked_us = self._answers, [], None
        return [(at - asked_us, pong.answered_us - (asked_us + at) // 2) for at, pong in answers]


class NetPublisher(Publisher):
    """Handle for publishing one type on a network.

    `published` is called with each event that was sent, its number, and key and value under which it is kept.
    """

    def __init__(
        self,
        outgoing: Outgoing,
        qos: QoS,
        on_problem: ProblemHandler | None,
        published: Published,
        end: Callable[["NetPublisher"], object],
    ) -> None:
        self.type, self.on_problem = outgoing.type, on_problem
        self._outgoing, self._published, self._end = outgoing, published, end
        self._soft = qos if isinstance(qos, Soft) else None

    def publish(self, event: Any) -> None:
        """Send an event, and give it to this bus's own subscribers."""
        number = self._outgoing.send(event, self._times(event) if self._soft is not None else b"")
        kept = self._outgoing.kept_value(event)
        self._published(event, number, "" if kept is None else self._outgoing.kept_key(event, kept), kept)

    def _times(self, event: Event) -> bytes:
        """The time of publishing, the deadline and the expiry, after it; the event's own override the channel's."""
        assert self._soft is not None
        now_us = monotonic_utc_us()
        deadline_us = nanoseconds(self._soft.deadline) // 1000
        expires_us = nanoseconds(self._soft.expires) // 1000 if self._soft.expires is not None else 0
        if event.deadline is not None:
            deadline_us = max(0, int(event.deadline.timestamp() * 1e6) - time.time_ns() // 1000)
        if event.expires is not None:
            expires_us = max(1, int(event.expires.timestamp() * 1e6) - time.time_ns() // 1000)
        return SOFT_TIMES.pack(now_us, min(deadline_us, _MAX_DEADLINE_US), expires_us)

    def forget(self, event: Any) -> None:
        """Keep an event, the newest of its key, no more."""
        self._outgoing.forget(event)

    def forget_key(self, values: Sequence[object]) -> None:
        """Keep no event any more whose key has these values, whoever published it."""
        self._outgoing.forget_key(values)

    def withdraw(self) -> None:
        """Publish no more."""
        self._end(self)
