"""Payloads longer than a frame: split into segments by the sender, reassembled by every receiver.

After Cyphal/CAN: each frame ends with a tail byte (first frame, last frame, toggle, 5-bit number), and a transfer of
several frames ends with a CRC-16/CCITT-FALSE. Unlike in Cyphal, the number is the transfer id in the first frame only,
and one more in each following frame. The toggle alone does not detect a lost pair of frames, nor two frames that are
exchanged around a third; then only the CRC would protect the receiver, and let one wrong payload in 65,536 pass.

The data lengths of CAN FD beyond 8 bytes have gaps. So in a transfer whose first frame is longer than 8 bytes, 0x80 and
as many zeros as the last frame needs follow the payload (before the CRC, which covers them). The receiver removes them:
it gets exactly the payload, at the cost of one byte.
"""

from binascii import crc_hqx
from collections import Counter

from genus.can._wire.frame import CLASSIC_BYTES, ETAG_MASK, FD_BYTES, NODE_MASK, Frame, padded_size

FIRST, LAST, TOGGLE, NUMBER_MASK = 0x80, 0x40, 0x20, 0x1F
"""The fields of the tail byte."""

CRC_START = 0xFFFF

_SENDER_MASK = NODE_MASK | ETAG_MASK
_PADDING = b"\x80"


def split_payload(payload: bytes, transfer_id: int, capacity: int = CLASSIC_BYTES) -> list[bytes]:
    """Return the data of the frames that carry a payload; `Reassembler` restores it from them.

    `capacity` is the most data bytes of a frame: 8, or 64 with CAN FD; ValueError for any other. Of `transfer_id` five
    bits count; it must not be the same twice in a row for the same payload.

    >>> [data.hex() for data in split_payload(b"short", 3)]
    ['73686f7274e3']
    >>> [data.hex(" ") for data in split_payload(b"eight by", 31)]
    ['65 69 67 68 74 20 62 bf', '79 6c f2 40']
    """
    _check_capacity(capacity)
    number = transfer_id & NUMBER_MASK
    if _fits_one_frame(len(payload), capacity):
        return [payload + _padding(len(payload), 0, capacity) + bytes((FIRST | LAST | TOGGLE | number,))]
    content = payload + _padding(len(payload), 2, capacity)
    content += crc_hqx(content, CRC_START).to_bytes(2, "big")
    step = capacity - 1
    tail = FIRST | TOGGLE | number
    frames = []
    for start in range(0, len(content) - step, step):
        frames.append(content[start : start + step] + bytes((tail,)))
        tail = _next_tail(tail)
    frames.append(content[len(frames) * step :] + bytes((tail | LAST,)))
    return frames


def frame_sizes(size: int, capacity: int = CLASSIC_BYTES) -> list[int]:
    """Return the data lengths of the frames that carry a payload of `size` bytes.

    >>> frame_sizes(12), frame_sizes(64, FD_BYTES)
    ([8, 8], [64, 5])
    """
    _check_capacity(capacity)
    if _fits_one_frame(size, capacity):
        return [size + len(_padding(size, 0, capacity)) + 1]
    content = size + len(_padding(size, 2, capacity)) + 2
    full = (content - 1) // (capacity - 1)
    return [capacity] * full + [content - full * (capacity - 1) + 1]


def _check_capacity(capacity: int) -> None:
    if capacity not in (CLASSIC_BYTES, FD_BYTES):
        raise ValueError(f"a frame carries {CLASSIC_BYTES} bytes, or {FD_BYTES} with CAN FD, not {capacity}")


def _fits_one_frame(size: int, capacity: int) -> bool:
    return size < CLASSIC_BYTES or size + 2 <= capacity


def _padding(size: int, crc: int, capacity: int) -> bytes:
    """Return the bytes between a payload and a CRC of `crc` bytes that give the last frame a valid length."""
    if capacity == CLASSIC_BYTES or size < CLASSIC_BYTES:
        return b""
    last = (size + crc) % (capacity - 1) + 2  # the bytes in the last frame, with 0x80 and the tail byte
    return _PADDING + bytes(padded_size(last) - last)


def _next_tail(tail: int) -> int:
    return ~tail & TOGGLE | tail + 1 & NUMBER_MASK


class _Transfer:
    """State: what was received of one sender's transfer; `parts` is None between transfers, or after one was lost."""

    __slots__ = ("at", "expected", "last", "lost", "parts", "room", "size")

    def __init__(self, at: int) -> None:
        self.at = at
        self.last = b""
        self.lost = False
        self.parts: list[bytes] | None = None
        self.expected = self.size = self.room = 0

    def begin(self, data: bytes, tail: int, room: int) -> None:
        self.parts = [data[:-1]]
        self.expected, self.size, self.room = _next_tail(tail), len(data), room - len(data)

    def end(self, *, lost: bool) -> None:
        self.parts, self.lost = None, lost


class Reassembler:
    """Reassembles payloads from segments, one transfer at a time of each sender and event tag.

    It never raises and never gives a wrong payload. A transfer is lost if its next frame does not come within
    `timeout_ns`, or if it has more than `max_bytes` in all its frames. At most `max_transfers` pairs of sender and
    event tag are remembered; the oldest are forgotten first. `counts` has the number of dropped frames and transfers
    by reason.

    A frame that equals the one before it from the same sender, within the timeout, is a duplicate: a controller repeats
    a frame that only some receivers accepted. So a sender must not use a transfer id twice in a row for the same
    payload.

    >>> reassembler = Reassembler(timeout_ns=1_000_000)
    >>> frames = [Frame(0x0021_6010, data) for data in split_payload(b"longer than a frame", 7)]
    >>> [reassembler.receive(frame, now=0) for frame in frames]
    [None, None, b'longer than a frame']
    """

    def __init__(self, timeout_ns: int, *, max_bytes: int = 16_384, max_transfers: int = 1_024) -> None:
        self.counts: Counter[str] = Counter()
        self._timeout_ns = timeout_ns
        self._max_bytes = max_bytes
        self._max_transfers = max_transfers
        self._transfers: dict[int, _Transfer] = {}

    def __len__(self) -> int:
        """How many transfers are incomplete."""
        return sum(transfer.parts is not None for transfer in self._transfers.values())

    def receive(self, frame: Frame, now: int) -> bytes | None:
        """Return the payload that a frame completes, if any; `now` is a reading of any clock, in nanoseconds."""
        data = frame.data
        if not data:
            self.counts["empty frame"] += 1
            return None
        transfer = self._transfers.get(frame.id & _SENDER_MASK)
        if transfer is None:
            transfer = self._remember(frame.id & _SENDER_MASK, now)
        elif now - transfer.at > self._timeout_ns:
            self._drop_late(transfer)
        elif data == transfer.last:
            self.counts["duplicate"] += 1
            return None
        transfer.last, transfer.at = data, now
        return self._receive_first(transfer, data) if data[-1] & FIRST else self._receive_next(transfer, data)

    def expire(self, now: int) -> None:
        """Forget senders without a frame within the timeout."""
        silent = [key for key, transfer in self._transfers.items() if now - transfer.at > self._timeout_ns]
        for key in silent:
            self._drop_late(self._transfers.pop(key))

    def _receive_first(self, transfer: _Transfer, data: bytes) -> bytes | None:
        tail, size = data[-1], len(data)
        if transfer.parts is not None:
            self.counts["missing end"] += 1
        transfer.end(lost=False)
        if not tail & TOGGLE:
            self._lose(transfer, "wrong toggle")
        elif tail & LAST:
            return data[:-1] if size <= CLASSIC_BYTES else self._remove_padding(data[:-1])
        elif size not in (CLASSIC_BYTES, FD_BYTES):
            self._lose(transfer, "wrong length")
        else:
            transfer.begin(data, tail, self._max_bytes)
        return None

    def _receive_next(self, transfer: _Transfer, data: bytes) -> bytes | None:
        tail, parts = data[-1], transfer.parts
        transfer.room -= len(data)
        if parts is None or tail & (TOGGLE | NUMBER_MASK) != transfer.expected or transfer.room < 0:
            self._lose(transfer, _loss_reason(transfer, tail))
        elif len(data) != transfer.size and (len(data) > transfer.size or not tail & LAST):
            self._lose(transfer, "wrong length")
        else:
            parts.append(data[:-1])
            transfer.expected = _next_tail(tail)
            return self._complete(transfer, parts) if tail & LAST else None
        return None

    def _complete(self, transfer: _Transfer, parts: list[bytes]) -> bytes | None:
        transfer.end(lost=False)
        content = b"".join(parts)
        if crc_hqx(content, CRC_START):  # the CRC over data followed by its CRC is 0
            self.counts["wrong crc"] += 1
            return None
        return self._remove_padding(content[:-2]) if transfer.size > CLASSIC_BYTES else content[:-2]

    def _remove_padding(self, content: bytes) -> bytes | None:
        payload = content.rstrip(b"\0")
        if payload.endswith(_PADDING):
            return payload[:-1]
        self.counts["wrong padding"] += 1
        return None

    def _lose(self, transfer: _Transfer, reason: str) -> None:
        transfer.end(lost=True)
        self.counts[reason] += 1

    def _remember(self, key: int, now: int) -> _Transfer:
        if len(self._transfers) >= self._max_transfers:
            forgotten = self._transfers.pop(next(iter(self._transfers)))
            if forgotten.parts is not None:
                self.counts["crowded out"] += 1
        transfer = self._transfers[key] = _Transfer(now)
        return transfer

    def _drop_late(self, transfer: _Transfer) -> None:
        if transfer.parts is not None:
            self.counts["timed out"] += 1
        transfer.end(lost=False)


def _loss_reason(transfer: _Transfer, tail: int) -> str:
    """The reason why a frame does not continue a transfer; later frames of a lost transfer have another reason."""
    if transfer.parts is None:
        return "rest of a lost transfer" if transfer.lost else "missing start"
    if (tail ^ transfer.expected) & NUMBER_MASK:
        return "missing frame"
    return "wrong toggle" if (tail ^ transfer.expected) & TOGGLE else "too long"
