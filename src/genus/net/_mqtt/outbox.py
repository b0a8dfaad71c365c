"""The bounded queue of packets that wait to be sent, with its policies."""

import threading
import time
from typing import Final

from genus.bus._queue import WhenFull
from genus.errors import QueueFull
from genus.net._mqtt.machine import ClientMachine
from genus.net._mqtt.notices import Undelivered
from genus.net._mqtt.wire import Outgoing

MOST_BYTES: Final = 128 * 1024 * 1024
LONGEST_WAIT_S: Final = 10.0
QUEUE_FULL: Final = "the queue of packets to send was full"


class Outbox:
    """State: how many bytes wait in the queues of a machine, and who waits for room. All calls hold `lock`.

    With the policy `block` a sender waits for room; if there is none for ten seconds, as the connection is down, the
    packet is dropped, and further ones are at once until there is room again.
    """

    def __init__(self, machine: ClientMachine, capacity: int, full: WhenFull, lock: threading.Lock) -> None:
        self._machine = machine
        self._capacity = capacity
        self._full = full
        self._room = threading.Condition(lock)
        self._waiters = 0
        self._is_patient = True
        self._is_closed = False

    @property
    def is_full(self) -> bool:
        """Whether no packet fits: by number, or by bytes."""
        machine = self._machine
        return len(machine.waiting) + len(machine.urgent) >= self._capacity or machine.waiting_bytes >= MOST_BYTES

    def make_room(self, item: Outgoing, dropped: list[Undelivered]) -> bool:
        """Apply the policy; appends what is dropped and returns whether the new packet fits. QueueFull if `raise`."""
        if self._full == "raise":
            raise QueueFull(f"{QUEUE_FULL}: {self._capacity} packets")
        if self._full == "drop_oldest":
            while self.is_full:
                dropped.append(Undelivered(self._machine.drop_oldest()[0], QUEUE_FULL))
            return True
        if self._full == "block" and self._wait():
            return True
        dropped.append(Undelivered(item[0], QUEUE_FULL))
        return False

    def _wait(self) -> bool:
        give_up_at = time.monotonic() + LONGEST_WAIT_S
        while self.is_full and not self._is_closed:
            left = give_up_at - time.monotonic()
            if left <= 0 or not self._is_patient:
                self._is_patient = self._machine.is_connected
                return False
            self._waiters += 1
            self._room.wait(left)
            self._waiters -= 1
        return not self.is_full

    def taken(self) -> None:
        """Packets were taken out: wake those that wait once half of the queue is empty, so that it fills in bursts."""
        if (self._waiters or not self._is_patient) and len(self._machine.waiting) <= self._capacity // 2:
            self._is_patient = True
            self._room.notify_all()

    def close(self) -> None:
        """Let nobody wait any more."""
        self._is_closed = True
        self._room.notify_all()
