"""Round trips: how long a question takes to other participants, and how far their clocks are from this one."""

import threading
import time

from genus.net._link.contract import ROUND_TRIPS, Measured
from genus.net._link.control import Ping, Pong, control_key, decode_message, encode_message, is_uid
from genus.net._transport import URGENT, Sending, Transport

ANSWER_S = 0.5
"""How long an answer may take."""
MOST_ANSWERS = 1000
"""How many answers to one question are taken."""
_START_NS = time.time_ns() - time.monotonic_ns()


def steady_us() -> int:
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
        """Answer a question for the time."""
        ping = decode_message(Ping, payload)
        if ping is None or not is_uid(ping.asker) or ping.asker == self._uid:
            return
        sender = self._transport.sender(control_key(self._realm, "pong", ping.asker), Sending(URGENT, waits=False))
        sender.put(encode_message(Pong(self._uid, ping.asked_us, steady_us())), b"")
        sender.close()

    def on_pong(self, payload: bytes) -> None:
        """Take an answer, if it is one to the question that is open."""
        pong = decode_message(Pong, payload)
        with self._answered:
            if pong is not None and pong.asked_us == self._asked_us and len(self._answers) < MOST_ANSWERS:
                self._answers.append((steady_us(), pong))
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
        """The length of a round trip and the difference of the clocks, of the first answer."""
        with self._answered:
            asked_us = self._asked_us = steady_us()
            self._ping.put(encode_message(Ping(self._uid, asked_us)), b"")
            self._answered.wait_for(lambda: bool(self._answers), ANSWER_S)
            answers, self._answers, self._asked_us = self._answers, [], None
        return [(at - asked_us, pong.answered_us - (asked_us + at) // 2) for at, pong in answers]
