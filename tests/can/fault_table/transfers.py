"""Transfers of 50 bytes over a bus that loses, duplicates and swaps their frames."""

from collections.abc import Iterator
from math import sqrt
from random import Random

import msgspec

from genus.can._wire.frame import Frame
from genus.can._wire.segments import Reassembler, split_payload

SIZE = 50
IDENTIFIER = 0x1FC0_6010
SECOND = 1_000_000_000


class TransferCounts(msgspec.Struct, frozen=True):
    """How many transfers were sent, delivered, and delivered with a wrong payload."""

    sent: int
    delivered: int
    wrong: int
    share: float | None
    """The expected share of transfers without lost frames; None if it cannot be computed."""

    @property
    def as_expected(self) -> bool:
        """Whether the expected share was delivered, within four sigma."""
        if self.share is None:
            return self.delivered > 0
        sigma = sqrt(self.share * (1 - self.share) / self.sent)
        return abs(self.delivered / self.sent - self.share) <= 4 * sigma


def deliver_transfers(
    transfers: int, seed: int, *, loss: float = 0.0, duplicated: float = 0.0, swapped: float = 0.0
) -> TransferCounts:
    """Send transfers one after the other to one receiver, with random faults.

    >>> deliver_transfers(500, 1, duplicated=0.1)
    TransferCounts(sent=500, delivered=500, wrong=0, share=1.0)
    """
    random = Random(f"{seed}/{loss}/{duplicated}/{swapped}")
    receiver = Reassembler(SECOND)
    delivered = wrong = 0
    for number in range(transfers):
        payload = number.to_bytes(4, "big") + random.randbytes(SIZE - 4)
        for frame in _faulty_frames(payload, number, random, loss, duplicated, swapped):
            received = receiver.receive(frame, 0)
            if received is not None:
                delivered += 1
                wrong += received != payload
    frames = len(split_payload(bytes(SIZE), 0))
    return TransferCounts(transfers, delivered, wrong, None if swapped else (1 - loss) ** frames)


def _faulty_frames(
    payload: bytes, number: int, random: Random, loss: float, duplicated: float, swapped: float
) -> Iterator[Frame]:
    frames = [Frame(IDENTIFIER, data) for data in split_payload(payload, number)]
    for index in range(len(frames) - 1):
        if random.random() < swapped:
            frames[index], frames[index + 1] = frames[index + 1], frames[index]
    for frame in frames:
        if random.random() >= loss:
            yield frame
            if random.random() < duplicated:
                yield frame
