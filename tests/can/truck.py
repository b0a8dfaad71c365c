"""A small J1939 bus: its DBC file, and logs of it in which every frame is labelled with what was sent."""

import random
from typing import NamedTuple

from genus.can._j1939 import GLOBAL_ADDRESS, J1939Id
from genus.can._j1939_transfer import J1939Broadcast, J1939Receiver, J1939Transfer

TSC1, EEC1, VIN, DM1 = 0, 61444, 65260, 65226
MARKED = """BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN","reserved","J1939PG";
BA_DEF_DEF_ "VFrameFormat" "J1939PG";
"""


def dbc_id(priority: int, pgn: int, source: int, destination: int | None = None) -> int:
    """An identifier as a DBC file has it."""
    return J1939Id(priority, pgn, source, destination).pack() | 0x8000_0000


MESSAGES = f"""VERSION ""
BU_: Engine Cruise Brakes
BO_ {dbc_id(3, TSC1, 0x0B, 0)} TSC1: 8 Brakes
 SG_ mode : 0|2@1+ (1,0) [0|3] "" Engine
 SG_ speed : 8|16@1+ (0.125,0) [0|8031] "rpm" Engine
 SG_ torque : 24|8@1+ (1,-125) [-125|125] "%" Engine
BO_ {dbc_id(3, EEC1, 0)} EEC1: 8 Engine
 SG_ priority : 0|4@1+ (1,0) [0|15] "" Brakes
 SG_ rpm : 24|16@1+ (0.125,0) [0|8031] "rpm" Brakes
BO_ {dbc_id(6, VIN, 0xFE)} VehicleIdentification: 17 Vector__XXX
 SG_ first : 0|64@1+ (1,0) [0|0] "" Brakes
 SG_ middle : 64|32@1+ (1,0) [0|0] "" Brakes
 SG_ last : 135|8@0+ (1,0) [0|0] "" Brakes
BO_ 256 Local: 2 Cruise
 SG_ level : 0|16@1- (0.5,0) [0|0] "m" Brakes
"""
TRUCK = MESSAGES + MARKED + 'BA_ "VFrameFormat" BO_ 256 0;\n'


class Label(NamedTuple):
    """What was sent: the parameter group (None for a frame of 11 bits), addresses, priority and data."""

    pgn: int | None
    source: int
    destination: int | None
    priority: int
    data: bytes


class Line(NamedTuple):
    """A frame of a log, and the message that it completes, if it does."""

    at_us: int
    frame_id: int
    extended: bool
    data: bytes
    label: Label | None


def traffic(seed: int, count: int) -> list[Line]:
    """Frames and long messages of several nodes, interleaved, in the order of the bus; nothing is lost."""
    rnd = random.Random(seed)
    lines: list[Line] = []
    free: dict[tuple[int, int], int] = {}
    """When the last long message of a source to a destination ended."""
    for number in range(count):
        at_us = 1_700_000_000_000_000 + number * 50_000 + rnd.randrange(50_000)
        source, destination, priority = rnd.choice((0, 3, 11, 17)), rnd.choice((0, 3, 15, 255)), rnd.randrange(8)
        kind = rnd.randrange(7)
        if kind < 3:
            pgn, data = rnd.choice((TSC1, TSC1, EEC1)), rnd.randbytes(8)
            to = destination if pgn == TSC1 else None
            frame_id = J1939Id(priority, pgn, source, to).pack()
            lines.append(Line(at_us, frame_id, True, data, Label(pgn, source, to, priority, data)))
        elif kind == 3:
            data = rnd.randbytes(8)
            lines.append(Line(at_us, 256, False, data, Label(None, 0, None, 0, data)))
        else:
            pgn, data = rnd.choice((VIN, VIN, TSC1, 65300)), rnd.randbytes(rnd.choice((9, 17, 18, 40)))
            key = source, 255 if destination == source else destination
            at_us = max(at_us, free.get(key, 0) + 1)
            lines += (frames := _long(rnd, at_us, pgn, *key, data))
            free[key] = frames[-1].at_us
    return sorted(lines, key=lambda line: line.at_us)


def _long(rnd: random.Random, at_us: int, pgn: int, source: int, destination: int, data: bytes) -> list[Line]:
    """The frames of a long message, spread over some time, the last one labelled."""
    if destination == GLOBAL_ADDRESS:
        frames = [frame for _, frame in J1939Broadcast(pgn, data, source).frames(0)]
    else:
        frames, sender, receiver = [], J1939Transfer(pgn, data, source, destination), J1939Receiver(destination)
        waiting = sender.start(0)
        while waiting:
            frames.append(waiting.pop(0))
            waiting += receiver.receive(*frames[-1], 0) + sender.receive(*frames[-1], 0)
    label = Label(pgn, source, destination if pgn == TSC1 else None, 7, data)
    step = rnd.randrange(1_000, 30_000)
    last = max(number for number, frame in enumerate(frames) if frame.frame_id >> 16 & 0xFF == 0xEB)
    return [
        Line(at_us + number * step, *frame[:1], True, frame.data, label if number == last else None)
        for number, frame in enumerate(frames)
    ]


def candump(lines: list[Line], channel: str = "can0") -> str:
    """The log of some frames."""
    return "".join(
        f"({line.at_us // 10**6}.{line.at_us % 10**6:06}) {channel} "
        f"{line.frame_id:0{8 if line.extended else 3}X}#{line.data.hex().upper()}\n"
        for line in lines
    )
