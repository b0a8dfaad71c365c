"""Transfers of 50 bytes over a bus that loses, doubles and swaps their frames."""

from collections.abc import Iterator
from math import sqrt
from random import Random

import msgspec

from genus.can._wire.frame import Frame
from genus.can._wire.segments import Reassembler, split_payload

SIZE = 50
IDENTIFIER = 0x1FC0_6010
SECOND = 1_000_000_000


class Delivered(msgspec.Struct, frozen=True):
    """What came of some transfers."""

    sent: int
    delivered: int
    wrong: int
    share: float | None
    """The part of them that has all its frames, if that can be computed."""

    @property
    def as_expected(self) -> bool:
        """Whether as many were delivered as have all their frames, within four sigma."""
        if self.share is None:
            return self.delivered > 0
        sigma = sqrt(self.share * (1 - self.share) / self.sent)
        return abs(self.delivered / self.sent - self.share) <= 4 * sigma


def deliver_transfers(
    transfers: int, seed: int, *, loss: float = 0.0, doubled: float = 0.0, swapped: float = 0.0
) -> Delivered:
    """Send transfers one after the other to one receiver.

    >>> deliver_transfers(500, 1, doubled=0.1)
    Delivered(sent=500, delivered=500, wrong=0, share=1.0)
    """
    random = Random(f"{seed}/{loss}/{doubled}/{swapped}")
    receiver = Reassembler(SECOND)
    delivered = wrong = 0
    for number in range(transfers):
        payload = number.to_bytes(4, "big") + random.randbytes(SIZE - 4)
        for frame in _faulty(payload, number, random, loss, doubled, swapped):
            received = receiver.receive(frame, 0)
            if received is not None:
                delivered += 1
                wrong += received != payload
    frames = len(split_payload(bytes(SIZE), 0))
    return Delivered(transfers, delivered, wrong, None if swapped else (1 - loss) ** frames)


def _faulty(
    payload: bytes, number: int, random: Random, loss: float, doubled: float, swapped: float
) -> Iterator[Frame]:
    frames = [Frame(IDENTIFIER, data) for data in split_payload(payload, number)]
    for place in range(len(frames) - 1):
        if random.random() < swapped:
            frames[place], frames[place + 1] = frames[place + 1], frames[place]
    for frame in frames:
        if random.random() >= loss:
            yield frame
            if random.random() < doubled:
                yield frame
