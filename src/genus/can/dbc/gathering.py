"""Frames that were read one by one, as columns."""

from collections.abc import Sequence

import numpy as np

from genus.can.dbc.columns import EXTENDED, Frames
from genus.can.dbc.seen import Logged


def gathered(logged: Sequence[tuple[int, Logged]]) -> Frames:
    """Frames of a log, each with its position, as columns.

    >>> from genus.can.wire.frame import Frame
    >>> frames = gathered([(0, Logged(5, "can0", Frame(0x123, b"hi", extended=False)))])
    >>> frames.data.tolist(), frames.channels
    ([[104, 105, 0, 0, 0, 0, 0, 0]], ('can0',))
    """
    seen = [each.frame for _, each in logged]
    width = 8 if all(len(frame.data) <= 8 for frame in seen) else 64
    channels = {name: number for number, name in enumerate(dict.fromkeys(each.channel for _, each in logged))}
    return Frames(
        np.array([each.at_us for _, each in logged], np.int64),
        np.array([frame.id | EXTENDED * frame.extended for frame in seen], np.uint32),
        np.array([len(frame.data) for frame in seen], np.uint8),
        np.frombuffer(b"".join(frame.data.ljust(width, b"\0") for frame in seen), np.uint8).reshape(-1, width),
        np.array([position for position, _ in logged], np.int64),
        np.array([channels[each.channel] for _, each in logged], np.int32),
        tuple(channels),
    )


def joined(parts: Sequence[Frames]) -> Frames:
    """Frames of several parts, with data of one width, as one."""
    if len(parts) == 1:
        return parts[0]
    channels = {name: number for number, name in enumerate(dict.fromkeys(n for part in parts for n in part.channels))}
    renumbered = [np.array([channels[name] for name in part.channels], np.int32)[part.channel] for part in parts]
    return Frames(
        np.concatenate([part.at_us for part in parts]),
        np.concatenate([part.identifier for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.data for part in parts]),
        np.concatenate([part.position for part in parts]),
        np.concatenate(renumbered),
        tuple(channels),
    )
