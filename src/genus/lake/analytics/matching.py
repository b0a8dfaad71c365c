"""The rule by which lefts and rights become pairs, over plain columns; it knows neither Spark nor Arrow.

Rows come ordered by key and time, at one instant rights before lefts. So a left is never paired with a right of the
same instant, and an event that is both is first a right, and then waits as a left.
"""

from collections import deque
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Rows: TypeAlias = npt.NDArray[np.int64]
Marks: TypeAlias = npt.NDArray[np.bool_]


class Matched(NamedTuple):
    """Row numbers: the two sides of each pair, and the lefts that still waited when their key ended."""

    left: Rows
    right: Rows
    open: Rows


def match_first(starts: Marks, at: Rows, is_right: Marks, within: int) -> Matched:
    """Pair each right with the oldest left that waits: first come, first served.

    >>> starts, is_right = np.array([True, False, False, False]), np.array([False, False, True, False])
    >>> [rows.tolist() for rows in match_first(starts, np.array([10, 20, 30, 40]), is_right, within=25)]
    [[0], [2], [1, 3]]
    """
    queue: deque[tuple[int, int]] = deque()
    left: list[int] = []
    right: list[int] = []
    open: list[tuple[int, int]] = []
    for row, (start, now, taking) in enumerate(zip(starts.tolist(), at.tolist(), is_right.tolist(), strict=True)):
        if start:
            open += queue
            queue.clear()
        while queue and now - queue[0][1] > within:
            queue.popleft()
        if not taking:
            queue.append((row, now))
        elif queue:
            left.append(queue.popleft()[0])
            right.append(row)
    open += queue
    return Matched(_rows(left), _rows(right), _rows([row for row, _ in open]))


def match_last(starts: Marks, at: Rows, is_right: Marks, within: int) -> Matched:
    """Pair each right with the left just before it, if nothing else lies between: neighbours.

    That is to take the youngest left that waits, where those before it stop waiting, as they do if nothing overtakes.
    """
    pairs = np.zeros(len(at), np.bool_)
    pairs[1:] = is_right[1:] & ~is_right[:-1] & ~starts[1:] & (at[1:] - at[:-1] <= within)
    right = np.flatnonzero(pairs)
    ends = np.ones(len(at), np.bool_)
    ends[:-1] = starts[1:]
    return Matched(right - 1, right, np.flatnonzero(ends & ~is_right))


def _rows(numbers: list[int]) -> Rows:
    return np.array(numbers, np.int64)
