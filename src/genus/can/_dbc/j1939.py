"""What is special about the J1939 messages of a database: how frames find them, long ones, and those of every bus.

A J1939 message is known by its parameter group; priority, source and destination of the identifier in the file are
only examples. If several messages have one group, the addresses decide, the source before the destination:

1. messages with the source of the frame; else those from the null address (254), which any node may send; else all;
2. of these, messages with the destination of the frame; else those to all nodes (255); else all of these;
3. if one is left, or all that are left have the same signals, it is the first of them; otherwise the frame is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from genus.can._dbc.layout import MessageLayout, NameAllocator, SignalLayout
from genus.can._j1939 import (
    ADDRESS_CLAIMED,
    GLOBAL_ADDRESS,
    NAME_FIELDS,
    NULL_ADDRESS,
    REQUEST,
    TRANSFER_CONTROL,
    TRANSFER_DATA,
    ClaimedNames,
    FastPackets,
    Incomplete,
    J1939Id,
    J1939Reassembler,
    LongMessage,
    destination_of,
    pgn_of,
)
from genus.errors import Reasons

J1939_WORDS = frozenset({"destination", "priority", "pgn", "sender"})
"""The attributes that types of J1939 messages have besides those of `Event`."""


class AmbiguousGroup(msgspec.Struct, frozen=True):
    pgn: int

    @property
    def reason(self) -> str:
        return f"several messages of PGN {self.pgn}, none for these addresses"


class GroupIndex:
    """Finds the J1939 messages of frames; a message is given by its position in the file."""

    def __init__(self, messages: Sequence[MessageLayout]) -> None:
        self._messages = messages
        self._groups: dict[int, list[int]] = {}
        for number, message in enumerate(messages):
            if message.j1939:
                self._groups.setdefault(message.pgn, []).append(number)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def find(self, frame_id: int) -> int | AmbiguousGroup | None:
        pgn = pgn_of(frame_id)
        found = self._groups.get(pgn)
        if found is None:
            return None
        if len(found) == 1:
            return found[0]
        left = _prefer(found, [self._source(each) for each in found], frame_id & 0xFF, NULL_ADDRESS)
        left = _prefer(left, [self._destination(each) for each in left], destination_of(frame_id), GLOBAL_ADDRESS)
        first, *others = (self._messages[each] for each in left)
        return left[0] if all(_has_same_signals(first, each) for each in others) else AmbiguousGroup(pgn)

    def problems(self) -> Iterator[str]:
        """Yield what is to be said of groups with several messages: which one frames from other addresses become."""
        for pgn, numbers in self._groups.items():
            if len(numbers) < 2:
                continue
            names = " and ".join(self._messages[each].type_name for each in numbers)
            strange = J1939Id(0, pgn, GLOBAL_ADDRESS).pack()  # no node has this source
            found = self.find(strange)
            if isinstance(found, int):
                yield f"{names}: have PGN {pgn}; frames from other sources are {self._messages[found].type_name}"
            elif found is not None:
                yield f"{names}: have PGN {pgn} and different signals; frames from other sources are not decoded"

    def _source(self, number: int) -> int | None:
        return self._messages[number].frame_id & 0xFF

    def _destination(self, number: int) -> int | None:
        return destination_of(self._messages[number].frame_id)


def _prefer(numbers: list[int], addresses: Sequence[int | None], wanted: int | None, general: int) -> list[int]:
    """Return those with the wanted address; else those with the general one; else all."""
    for address in (wanted, general):
        if found := [number for number, each in zip(numbers, addresses, strict=True) if each == address]:
            return found
    return numbers


def _has_same_signals(one: MessageLayout, other: MessageLayout) -> bool:
    """Return whether frames of two messages have the same values, whatever the types are called."""
    return one.length == other.length and _bits(one) == _bits(other)


def _bits(message: MessageLayout) -> list[SignalLayout]:
    return [msgspec.structs.replace(signal, enumeration=None, comment=None) for signal in message.signals]


# -- messages of every bus ---------------------------------------------------------------------------------------------


def standard_messages(known: Iterable[MessageLayout], types: NameAllocator) -> Iterator[MessageLayout]:
    """Yield the messages that every J1939 bus has, if the file does not have them: address claims and requests."""
    groups = {message.pgn for message in known if message.j1939}
    for message in (_address_claimed(), _pgn_requested()):
        if message.pgn not in groups:
            yield msgspec.structs.replace(message, type_name=types.allocate(message.name))


def _address_claimed() -> MessageLayout:
    signals, shift = [_signal("name", 0, 64)], 0
    for name, bits in NAME_FIELDS:
        if name != "reserved":
            signals.append(_signal(name, shift, bits))
        shift += bits
    comment = "A controller claims the address `source`; `name` is its NAME of 64 bits."
    return _standard("AddressClaimed", ADDRESS_CLAIMED, 8, signals, comment)


def _pgn_requested() -> MessageLayout:
    comment = "A node asks for the parameter group `requested_pgn`."
    return _standard("PgnRequested", REQUEST, 3, [_signal("requested_pgn", 0, 24)], comment)


def _signal(name: str, shift: int, bits: int) -> SignalLayout:
    return SignalLayout(name, name, shift, bits, shift, big_endian=False, signed=False, is_float=False)


def _standard(name: str, pgn: int, length: int, signals: list[SignalLayout], comment: str) -> MessageLayout:
    frame_id = J1939Id(6, pgn, NULL_ADDRESS, GLOBAL_ADDRESS).pack()
    return MessageLayout(name, name, frame_id, True, length, tuple(signals), j1939=True, comment=comment, standard=True)


# -- files that do not say it ------------------------------------------------------------------------------------------

_WELL_KNOWN: Final = frozenset(
    {0, 256, 59392, 59904, 60160, 60416, 60928, 61184, 61440, 61441, 61442, 61443, 61444, 61445, 61449, 61450}
    | {64892, 64933, 64946, 64948, 64965, 65110, 65128, 65131, 65132, 65164, 65170, 65198, 65207, 65213, 65215}
    | {65217, 65226, 65227, 65237, 65244, 65247, 65248, *range(65251, 65273), 65276}
)
"""Parameter groups that many J1939 buses have: torque control, engine, brakes, transmission, hours, diagnosis."""


def j1939_hint(messages: Sequence[MessageLayout]) -> str | None:
    """Return what to say of a file with 29-bit identifiers that looks like one of a J1939 bus; None if it does not.

    The highest priority, 0, is left out: no usual group has it, and other systems have small identifiers.
    """
    extended = [message for message in messages if message.extended]
    known = [message for message in extended if message.pgn in _WELL_KNOWN and message.frame_id >> 26]
    if any(message.j1939 for message in messages) or not known or 2 * len(known) < len(extended):
        return None
    return (
        f"{len(known)} of {len(extended)} messages with 29-bit identifiers have parameter groups of J1939, such as "
        f"{known[0].type_name} (PGN {known[0].pgn}); if it is a J1939 bus, load it with j1939=True (--j1939)"
    )


# -- long messages -----------------------------------------------------------------------------------------------------

INCOMPLETE = "long message incomplete: "
"""What is before the reason why a message is lost."""


class LongMessages:
    """State: the long messages in progress on each channel, and the controllers that claimed addresses there.

    >>> bus = LongMessages([])
    >>> bus.receive(None, 0x1CEC_FF03, bytes([32, 9, 0, 2, 255, 0xCA, 0xFE, 0]), 0)
    >>> bus.receive(None, 0x1CEB_FF03, b"\\1abcdefg", 50_000)
    >>> bus.receive(None, 0x1CEB_FF03, b"\\2hi\\xff\\xff\\xff\\xff\\xff", 100_000).data
    b'abcdefghi'
    """

    def __init__(
        self, messages: Iterable[MessageLayout], on_incomplete: Callable[[Incomplete], object] | None = None
    ) -> None:
        self.counts = Reasons()
        """How many messages are incomplete, and how many frames belong to none, by reason."""
        self.messages = 0
        """How many messages were put together."""
        self.names: dict[str | None, ClaimedNames] = {}
        """The names of controllers by channel and address."""
        self._on_incomplete = on_incomplete
        self._fast_pgns = frozenset(message.pgn for message in messages if message.fast)
        self._pgns = {TRANSFER_CONTROL, TRANSFER_DATA} | self._fast_pgns
        self._buses: dict[str | None, tuple[J1939Reassembler, FastPackets]] = {}

    @property
    def pgns(self) -> frozenset[int]:
        """The parameter groups whose frames are parts of messages."""
        return frozenset(self._pgns)

    def is_part(self, frame_id: int) -> bool:
        """Return whether frames with an identifier of 29 bits are parts of messages."""
        return pgn_of(frame_id) in self._pgns

    def is_fast(self, frame_id: int) -> bool:
        """Return whether frames with an identifier of 29 bits are fast packets, which are no messages by themselves."""
        return pgn_of(frame_id) in self._fast_pgns

    def receive(
        self, channel: str | None, frame_id: int, data: bytes, now_us: int, mark: object = None
    ) -> LongMessage | None:
        """Take a frame with an identifier of 29 bits; returns the message that it completes, if it does.

        `mark` is given back with messages that are incomplete. Frames that are no parts are ignored.
        """
        pgn = pgn_of(frame_id)
        if pgn not in self._pgns:
            return None
        transport, fast = self._buses.get(channel) or self._open(channel)
        found = (fast if pgn in self._fast_pgns else transport).receive(frame_id, data, now_us, mark)
        self.messages += found is not None
        return found

    def claim(self, channel: str | None, frame_id: int, data: bytes) -> None:
        """Note the name of a controller; frames other than address claims are ignored."""
        if channel not in self.names:
            self.names[channel] = ClaimedNames()
        self.names[channel].receive(frame_id, data)

    def expire(self, now_us: int) -> None:
        """Give up messages of which nothing came for too long."""
        for bus in self._buses.values():
            for each in bus:
                each.expire(now_us)

    def close(self) -> None:
        """Give up all messages in progress."""
        for bus in self._buses.values():
            for each in bus:
                each.close()

    def _open(self, channel: str | None) -> tuple[J1939Reassembler, FastPackets]:
        bus = J1939Reassembler(self._lose), FastPackets(self._fast_pgns, self._lose)
        self._buses[channel] = bus
        return bus

    def _lose(self, incomplete: Incomplete) -> None:
        self.counts[incomplete.reason] += 1
        if self._on_incomplete is not None:
            self._on_incomplete(incomplete)
