"""The mailbox of an `ipc:` bus: packets that arrived and wait for the thread that delivers them.

The thread that reads connections never waits for a handler: it puts packets here. One other thread delivers them, and
all other calls that the receiver gets: first those that do not wait for packets (tokens, losses), and the leaving of a
process after all that it sent.
"""

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from genus.bus.types import Overflow
from genus.net._mailbox import Call, Mailbox
from genus.net._problems import ReceiverFailures

_MAX_AT_ONCE: Final = 64


class NumberedKey:
    """A key that another process told, under its number there."""

    __slots__ = ("key", "number", "owner")

    def __init__(self, owner: object, number: int, key: str) -> None:
        self.owner, self.number, self.key = owner, number, key


Item: TypeAlias = tuple[NumberedKey, bytes, bytes]
"""The key of a packet, its envelope and its payload."""


class DeliveringMailbox(Mailbox[Item]):
    """State: packets and calls, and the thread that delivers them; which packets were lost.

    `on_room` is called when reading was paused, and may go on. So few packets are taken together that a call does not
    wait for long.
    """

    def __init__(self, capacity: int, overflow: Overflow, on_room: Call) -> None:
        super().__init__(capacity, overflow, max(1, min(_MAX_AT_ONCE, capacity // 16)))
        self._on_room = on_room
        self._lost: Counter[NumberedKey] = Counter()
        self.received = 0
        self.failures = ReceiverFailures()

    def deliver(self, deliver: Callable[[str, bytes, bytes], None]) -> None:
        """Begin to call a function with each packet."""
        self.start(partial(self._run, deliver), "genus-ipc-deliver")

    def put(self, packets: list[Item], kept: int = 0) -> bool:
        """Add packets, and count them."""
        self.received += len(packets)
        return super().put(packets, kept)

    def _lose(self, packets: list[Item]) -> None:
        super()._lose(packets)
        self._lost.update([key for key, _, _ in packets])

    @property
    def has_lost(self) -> bool:
        """Whether packets were dropped since the last call of `take_lost`."""
        return bool(self._lost)

    def take_lost(self) -> "Counter[NumberedKey]":
        """Return the packets that were dropped since the last call."""
        with self._lock:
            lost, self._lost = self._lost, Counter()
            return lost

    def call_and_wait(self, function: Call, timeout: float) -> None:
        """Call a function first, and wait until it was called, if the thread of the mailbox is another one."""
        self.call_first(function)
        if self.thread is not None and self.thread.is_alive() and not self.is_own_thread:
            called = threading.Event()
            self.call_first(called.set)
            called.wait(timeout)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self, deliver: Callable[[str, bytes, bytes], None]) -> None:
        while (batch := self.take()) is not None:
            for item in batch:
                if self._first_calls:
                    self.run_calls()
                if isinstance(item, tuple):
                    try:
                        deliver(item[0].key, item[1], item[2])
                    except Exception as problem:  # the other packets are delivered all the same
                        self.failures.note("ipc", problem)
                else:
                    self.guarded(item)
                if self._is_closed:
                    return
            if self.is_paused and self.may_read_on():
                self._on_room()

    def run_calls(self) -> None:
        """Make the calls that go before packets."""
        while self._first_calls:
            self.guarded(self._first_calls.popleft())

    def guarded(self, call: Call) -> None:
        """Call a function of the receiver; if it raises, that is counted."""
        try:
            call()
        except Exception as problem:  # a handler of tokens or losses must not end the delivery of packets
            self.failures.note("ipc", problem)
