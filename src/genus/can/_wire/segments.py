"""Events longer than a frame: cut into segments by the sender, put together again by every receiver.

After Cyphal/CAN: each frame ends with a tail byte (first frame, last frame, toggle, 5-bit number), and a transfer of
several frames ends with a CRC-16/CCITT-FALSE. Unlike there, the number is the transfer's in its first frame only and
one more in each that follows. A lost pair of frames, or two that changed places around a third, leave the toggles in
order, and then the CRC alone would stand between a receiver and one wrong payload in 65,536; the number tells at once.

The data lengths of CAN FD beyond 8 bytes have gaps. A transfer whose first frame is longer than 8 bytes therefore has
0x80 and as many zeros as its last frame needs after the payload (before the CRC, which covers them), and the receiver
takes them off: it gets exactly what was sent, at the price of one byte.
"""

from binascii import crc_hqx
from collections import Counter

from genus.can._wire.frame import ETAG_MASK, NODE_MASK, Frame
from genus.can._wire.length import padded_size

FIRST, LAST, TOGGLE, NUMBER_MASK = 0x80, 0x40, 0x20, 0x1F
"""The fields of the tail byte."""

CRC_START = 0xFFFF
CLASSIC, FD = 8, 64
"""The two capacities of a frame, in bytes of data."""

_SENDER_MASK = NODE_MASK | ETAG_MASK
_PADDING = b"\x80"


def split(payload: bytes, transfer_id: int, capacity: int = CLASSIC) -> list[bytes]:
    """The data of the frames that carry a payload; the receiver must know nothing but that they are segments.

    >>> [data.hex() for data in split(b"short", 3)]
    ['73686f7274e3']
    >>> [data.hex(" ") for data in split(b"eight by", 31)]
    ['65 69 67 68 74 20 62 bf', '79 6c f2 40']
    """
    _refuse_capacity(capacity)
    number = transfer_id & NUMBER_MASK
    if _single(len(payload), capacity):
        return [payload + _filling(len(payload), 0, capacity) + bytes((FIRST | LAST | TOGGLE | number,))]
    content = payload + _filling(len(payload), 2, capacity)
    content += crc_hqx(content, CRC_START).to_bytes(2, "big")
    step = capacity - 1
    tail = FIRST | TOGGLE | number
    frames = []
    for start in range(0, len(content) - step, step):
        frames.append(content[start : start + step] + bytes((tail,)))
        tail = _following(tail)
    frames.append(content[len(frames) * step :] + bytes((tail | LAST,)))
    return frames


def frame_sizes(size: int, capacity: int = CLASSIC) -> list[int]:
    """The data lengths of the frames that carry a payload of `size` bytes.

    >>> frame_sizes(12), frame_sizes(64, FD)
    ([8, 8], [64, 5])
    """
    _refuse_capacity(capacity)
    if _single(size, capacity):
        return [size + len(_filling(size, 0, capacity)) + 1]
    content = size + len(_filling(size, 2, capacity)) + 2
    full = (content - 1) // (capacity - 1)
    return [capacity] * full + [content - full * (capacity - 1) + 1]


def _refuse_capacity(capacity: int) -> None:
    if capacity not in (CLASSIC, FD):
        raise ValueError(f"a frame carries {CLASSIC} bytes, or {FD} with CAN FD, not {capacity}")


def _single(size: int, capacity: int) -> bool:
    """Whether a payload and its tail byte fit one frame; beyond 8 bytes there is padding too."""
    return size < CLASSIC or size + 2 <= capacity


def _filling(size: int, crc: int, capacity: int) -> bytes:
    """What stands between a payload and a CRC of so many bytes, for the last frame to have a length there is."""
    if capacity == CLASSIC or size < CLASSIC:
        return b""
    last = (size + crc) % (capacity - 1) + 2  # what is left for it, with the byte 0x80 and the tail byte
    return _PADDING + bytes(padded_size(last) - last)


def _following(tail: int) -> int:
    """The tail byte of the next frame, as long as it is not the last."""
    return ~tail & TOGGLE | tail + 1 & NUMBER_MASK


class _Transfer:
    """State: what came so far of one sender's transfer; `parts` is None between transfers, or when one is lost."""

    __slots__ = ("at", "expected", "last", "lost", "parts", "room", "size")

    def __init__(self, at: int) -> None:
        self.at = at
        self.last = b""
        self.lost = False
        self.parts: list[bytes] | None = None
        self.expected = self.size = self.room = 0

    def begin(self, data: bytes, tail: int, room: int) -> None:
        """Take the first frame of several."""
        self.parts = [data[:-1]]
        self.expected, self.size, self.room = _following(tail), len(data), room - len(data)

    def end(self, *, lost: bool) -> None:
        """Nothing more is wanted but the next first frame."""
        self.parts, self.lost = None, lost


class Reassembler:
    """Puts transfers together, one at a time of each sender and event tag; never raises, never gives a wrong payload.

    A sender that is silent for longer than `timeout_ns` within a transfer has lost it. No transfer may have more than
    `longest` bytes in all its frames, and no more than `at_once` senders and tags are remembered; those met first are
    forgotten first. `counts` says what was dropped, how often and why.

    A frame that is the same as the one before it from the same sender, within the time-out, is its duplicate: a
    controller repeats a frame that only some receivers understood. So a sender must not use a transfer id twice in a
    row for the same payload.

    >>> whole = Reassembler(timeout_ns=1_000_000)
    >>> frames = [Frame(0x0021_6010, data) for data in split(b"longer than a frame", 7)]
    >>> [whole.receive(frame, now=0) for frame in frames]
    [None, None, b'longer than a frame']
    """

    def __init__(self, timeout_ns: int, *, longest: int = 16_384, at_once: int = 1_024) -> None:
        self.counts: Counter[str] = Counter()
        self._timeout_ns = timeout_ns
        self._longest = longest
        self._at_once = at_once
        self._transfers: dict[int, _Transfer] = {}

    def __len__(self) -> int:
        """How many transfers are under way."""
        return sum(transfer.parts is not None for transfer in self._transfers.values())

    def receive(self, frame: Frame, now: int) -> bytes | None:
        """The payload that a frame completes, if it does."""
        data = frame.data
        if not data:
            self.counts["empty frame"] += 1
            return None
        transfer = self._transfers.get(frame.id & _SENDER_MASK)
        if transfer is None:
            transfer = self._remember(frame.id & _SENDER_MASK, now)
        elif now - transfer.at > self._timeout_ns:
            self._time_out(transfer)
        elif data == transfer.last:
            self.counts["duplicate"] += 1
            return None
        transfer.last, transfer.at = data, now
        return self._first(transfer, data) if data[-1] & FIRST else self._next(transfer, data)

    def expire(self, now: int) -> None:
        """Forget senders that have been silent for longer than the time-out."""
        silent = [key for key, transfer in self._transfers.items() if now - transfer.at > self._timeout_ns]
        for key in silent:
            self._time_out(self._transfers.pop(key))

    def _first(self, transfer: _Transfer, data: bytes) -> bytes | None:
        tail, size = data[-1], len(data)
        if transfer.parts is not None:
            self.counts["missing end"] += 1
        transfer.end(lost=False)
        if not tail & TOGGLE:
            self._lose(transfer, "wrong toggle")
        elif tail & LAST:
            return data[:-1] if size <= CLASSIC else self._without_padding(data[:-1])
        elif size not in (CLASSIC, FD):
            self._lose(transfer, "wrong length")
        else:
            transfer.begin(data, tail, self._longest)
        return None

    def _next(self, transfer: _Transfer, data: bytes) -> bytes | None:
        tail, parts = data[-1], transfer.parts
        transfer.room -= len(data)
        if parts is None or tail & (TOGGLE | NUMBER_MASK) != transfer.expected or transfer.room < 0:
            self._lose(transfer, _why_lost(transfer, tail))
        elif len(data) != transfer.size and (len(data) > transfer.size or not tail & LAST):
            self._lose(transfer, "wrong length")
        else:
            parts.append(data[:-1])
            transfer.expected = _following(tail)
            return self._completed(transfer, parts) if tail & LAST else None
        return None

    def _completed(self, transfer: _Transfer, parts: list[bytes]) -> bytes | None:
        transfer.end(lost=False)
        content = b"".join(parts)
        if crc_hqx(content, CRC_START):  # over what ends with its own CRC, it is 0
            self.counts["wrong crc"] += 1
            return None
        return self._without_padding(content[:-2]) if transfer.size > CLASSIC else content[:-2]

    def _without_padding(self, content: bytes) -> bytes | None:
        payload = content.rstrip(b"\0")
        if payload.endswith(_PADDING):
            return payload[:-1]
        self.counts["wrong padding"] += 1
        return None

    def _lose(self, transfer: _Transfer, reason: str) -> None:
        transfer.end(lost=True)
        self.counts[reason] += 1

    def _remember(self, key: int, now: int) -> _Transfer:
        if len(self._transfers) >= self._at_once:
            forgotten = self._transfers.pop(next(iter(self._transfers)))
            if forgotten.parts is not None:
                self.counts["crowded out"] += 1
        transfer = self._transfers[key] = _Transfer(now)
        return transfer

    def _time_out(self, transfer: _Transfer) -> None:
        if transfer.parts is not None:
            self.counts["timed out"] += 1
        transfer.end(lost=False)


def _why_lost(transfer: _Transfer, tail: int) -> str:
    """The reason by which a frame is counted that does not continue a transfer; a lost one is counted once by its."""
    if transfer.parts is None:
        return "rest of a lost transfer" if transfer.lost else "missing start"
    if (tail ^ transfer.expected) & NUMBER_MASK:
        return "missing frame"
    return "wrong toggle" if (tail ^ transfer.expected) & TOGGLE else "too long"
