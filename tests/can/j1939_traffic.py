"""Generated J1939 traffic: long messages of many nodes, interleaved, with losses, and what a listener must make of it.

Every conversation, of a source and a destination, runs in virtual time with the state machines of both nodes; frames
may be lost on the way to a node, which then asks for them again. The frames of all conversations are merged by time,
and the listener may lose some, too. `is_expected` knows to which message each frame belongs, which no listener does.
"""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from genus.can._j1939 import (
    ABORT,
    ANSWER_GAP_US,
    BAM,
    BROADCAST_GAP_US,
    CTS,
    END,
    GLOBAL_ADDRESS,
    RTS,
    TRANSFER_DATA,
    J1939Id,
    is_pdu1,
    pgn_of,
)
from genus.can._j1939_transfer import J1939Broadcast, J1939Frame, J1939Receiver, J1939Transfer

PGNS = (65226, 65240, 64965, 61184, 0xD900, 0x1F805)
FRAME_US = (500, 20_000)
"""The time until the next frame of a conversation: on a busy bus others are between."""


@dataclass
class SentMessage:
    """A message that a node sent, and its frames as they were on the bus."""

    frame_id: int
    data: bytes
    destination: int
    frames: "list[BusFrame]" = field(default_factory=list)
    arrived: bool = False
    """Whether the receiver has it."""


class BusFrame(NamedTuple):
    """A frame on the bus."""

    at_us: int
    frame: J1939Frame
    message: SentMessage


class Traffic:
    """A source of conversations; the same for the same seed."""

    def __init__(self, seed: int, *, node_loss: float = 0.0, listener_loss: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.node_loss, self.listener_loss = node_loss, listener_loss
        self.messages: list[SentMessage] = []

    def frames(self, count: int, pairs: int) -> Iterator[BusFrame]:
        """The frames of `count` messages of some pairs of nodes that reach the listener, in the order of the bus."""
        each = [self._conversation(pair, -(-count // pairs)) for pair in range(pairs)]
        merged = heapq.merge(*each, key=lambda one: one.at_us)
        return (one for one in merged if self.random.random() >= self.listener_loss)

    def _conversation(self, pair: int, count: int) -> list[BusFrame]:
        source, destination = 1 + pair // 16, GLOBAL_ADDRESS if pair % 16 == 0 else 100 + pair % 16
        found: list[BusFrame] = []
        at_us = self.random.randrange(1_000_000)
        for _ in range(count):
            message = self._message(source, destination)
            run = self._broadcast if destination == GLOBAL_ADDRESS else self._transfer
            run(message, at_us)
            found += message.frames
            at_us = message.frames[-1].at_us + self._pause()
        return found

    def _pause(self) -> int:
        """Where announcements may be lost, messages are apart, as else two could look like one."""
        return (ANSWER_GAP_US if self.listener_loss else 0) + self.random.randrange(1, 400_000)

    def _message(self, source: int, destination: int) -> SentMessage:
        size = self.random.choice((9, 14, 15, self.random.randint(9, 60), self.random.randint(9, 120)))
        size = self.random.choice((1785, self.random.randint(200, 1785))) if self.random.random() < 0.01 else size
        pgn = self.random.choice(PGNS)
        frame_id = J1939Id(7, pgn, source, destination if is_pdu1(pgn) else None).pack()
        message = SentMessage(frame_id, self.random.randbytes(size), destination)
        self.messages.append(message)
        return message

    def _broadcast(self, message: SentMessage, at_us: int) -> None:
        sender = J1939Broadcast(pgn_of(message.frame_id), message.data, message.frame_id & 0xFF)
        pace = self.random.choice((10_000, 50_000, 200_000))
        message.frames += [BusFrame(when, frame, message) for when, frame in sender.frames(at_us, pace)]
        message.arrived = True

    def _transfer(self, message: SentMessage, at_us: int) -> None:
        source, destination = message.frame_id & 0xFF, message.destination
        sender = J1939Transfer(pgn_of(message.frame_id), message.data, source, destination)
        receiver = J1939Receiver(destination, window=self.random.choice((1, 3, 16, 255)))
        waiting = sender.start(at_us)
        while waiting or sender.is_open:
            if not waiting:
                at_us = min(when for when in (sender.wakes_us, receiver.wakes_us) if when is not None)
                waiting = [*receiver.wake(at_us), *sender.wake(at_us)]
                continue
            frame = waiting.pop(0)
            at_us += self.random.randrange(*FRAME_US)
            message.frames.append(BusFrame(at_us, frame, message))
            if self.random.random() >= self.node_loss:
                waiting += receiver.receive(*frame, at_us) + sender.receive(*frame, at_us)
        message.arrived = any(found.data == message.data for found in receiver.messages)


def is_expected(message: SentMessage, seen: list[BusFrame]) -> bool:
    """Whether a listener who got these frames of a message has all of it, and in time."""
    gap = BROADCAST_GAP_US if message.destination == GLOBAL_ADDRESS else ANSWER_GAP_US
    numbers: set[int] = set()
    last_us = None
    for at_us, (frame_id, data), _ in seen:
        if pgn_of(frame_id) != TRANSFER_DATA and data[0] in (RTS, BAM):
            last_us = at_us
        elif last_us is None or at_us - last_us > gap:
            return False
        elif pgn_of(frame_id) == TRANSFER_DATA:
            last_us = at_us
            numbers.add(data[0])
            if len(numbers) == -(-len(message.data) // 7):
                return True
        elif data[0] == CTS:
            last_us = at_us
        elif data[0] in (END, ABORT):
            return False
    return False
