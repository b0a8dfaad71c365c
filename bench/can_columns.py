"""Random CAN frames in columns, eight messages of a car each as often, and logs of candump with them."""

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from genus.can._dbc import load_dbc
from genus.can._logs.frames import FrameColumns
from genus.lake._ingest.can_logs import CanLogs

START_US = 1_700_000_000_000_000
SPACING_US = 100

CAR = """VERSION ""
BU_: Engine Body
BO_ 256 Drive: 8 Engine
 SG_ speed : 0|12@1+ (0.1,0) [0|409] "km/h" Body
 SG_ gear : 12|3@1+ (1,0) [0|7] "" Body
 SG_ rpm : 16|16@1+ (0.25,0) [0|16383] "1/min" Body
 SG_ torque : 32|16@1- (0.5,0) [0|0] "Nm" Body
BO_ 257 Wheels: 8 Body
 SG_ front_left : 0|16@1+ (0.01,0) [0|655] "km/h" Engine
 SG_ front_right : 16|16@1+ (0.01,0) [0|655] "km/h" Engine
 SG_ rear_left : 32|16@1+ (0.01,0) [0|655] "km/h" Engine
 SG_ rear_right : 48|16@1+ (0.01,0) [0|655] "km/h" Engine
BO_ 258 Battery: 8 Body
 SG_ volts : 7|16@0+ (0.001,0) [0|65] "V" Engine
 SG_ amperes : 23|16@0- (0.1,0) [0|0] "A" Engine
 SG_ charge : 39|8@0+ (0.5,0) [0|100] "%" Engine
BO_ 259 Doors: 2 Body
 SG_ front : 0|2@1+ (1,0) [0|3] "" Engine
 SG_ rear : 2|2@1+ (1,0) [0|3] "" Engine
BO_ 260 Climate: 8 Body
 SG_ page M : 0|1@1+ (1,0) [0|1] "" Engine
 SG_ inside m0 : 8|8@1- (0.5,10) [0|0] "C" Engine
 SG_ outside m1 : 8|8@1- (0.5,10) [0|0] "C" Engine
BO_ 261 Steering: 4 Body
 SG_ angle : 7|16@0- (0.1,0) [0|0] "deg" Engine
 SG_ rate : 23|16@0- (0.1,0) [0|0] "deg/s" Engine
BO_ 262 Odometer: 8 Body
 SG_ total : 0|32@1+ (1,0) [0|0] "m" Engine
 SG_ trip : 32|32@1+ (1,0) [0|0] "m" Engine
BO_ 263 Brake: 3 Body
 SG_ pressure : 0|12@1+ (0.1,0) [0|409] "bar" Engine
 SG_ pedal : 12|1@1+ (1,0) [0|1] "" Engine
VAL_ 256 gear 0 "P" 1 "R" 2 "N" 3 "D" ;
VAL_ 259 front 0 "closed" 1 "open" ;
VAL_ 259 rear 0 "closed" 1 "open" ;
"""
_LENGTHS = {0x100: 8, 0x101: 8, 0x102: 8, 0x103: 2, 0x104: 8, 0x105: 4, 0x106: 8, 0x107: 3}


def car(folder: Path) -> Path:
    """The DBC file of the benchmark."""
    path = folder / "car.dbc"
    path.write_text(CAR)
    return path


def random_frames(lengths: dict[int, int], count: int, seed: int = 4) -> FrameColumns:
    """Frames of standard identifiers with random data, equally spaced in time."""
    rng = np.random.default_rng(seed)
    which = rng.integers(len(lengths), size=count)
    numbers = np.arange(count, dtype=np.int64)
    return FrameColumns(
        START_US + SPACING_US * numbers,
        np.array(list(lengths), np.uint32)[which],
        np.array(list(lengths.values()), np.uint8)[which],
        rng.integers(256, size=(count, 8), dtype=np.uint8),
        numbers,
        np.zeros(count, np.int32),
        ("can0",),
        np.zeros(count, np.int8),
    )


def candump_text(frames: FrameColumns) -> bytes:
    """What `candump -L` writes of frames with standard identifiers, on a channel of four letters."""
    lines = np.zeros((len(frames.at_us), 46), np.uint8)
    lines[:] = np.frombuffer(b"(0000000000.000000) can0 000#" + b"0" * 16 + b"\n", np.uint8)
    _decimal(lines[:, 1:11], frames.at_us // 1_000_000)
    _decimal(lines[:, 12:18], frames.at_us % 1_000_000)
    _hexadecimal(lines[:, 25:28], frames.identifier.astype(np.int64))
    _hexadecimal(lines[:, 29:45], frames.data.view(">u8")[:, 0])
    behind = np.arange(46) - 29 >= 2 * frames.length.astype(np.int64)[:, np.newaxis]
    behind[:, 45] = False
    return lines[~behind].tobytes()


def _decimal(text: npt.NDArray[np.uint8], numbers: npt.NDArray[np.int64]) -> None:
    for place in range(text.shape[1]):
        text[:, -1 - place] += (numbers // 10**place % 10).astype(np.uint8)


def _hexadecimal(text: npt.NDArray[np.uint8], numbers: npt.NDArray[np.int64 | np.uint64]) -> None:
    digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    for place in range(text.shape[1]):
        text[:, -1 - place] = digits[(numbers >> 4 * place & 15).astype(np.intp)]


def write_log(path: Path, count: int) -> int:
    """A candump log of so many frames; gives how many."""
    with path.open("wb") as file:
        for start in range(0, count, 1 << 20):
            frames = random_frames(_LENGTHS, min(1 << 20, count - start), seed=start)
            file.write(candump_text(frames._replace(at_us=frames.at_us + SPACING_US * start)))
    return count


def car_logs(_path: str) -> CanLogs:
    """The format of such logs, whatever they are called."""
    with tempfile.TemporaryDirectory() as folder:
        return CanLogs.of(load_dbc(car(Path(folder))), "log")


def car_types() -> tuple[type, ...]:
    """The event types of such logs."""
    with tempfile.TemporaryDirectory() as folder:
        return load_dbc(car(Path(folder))).all_types
