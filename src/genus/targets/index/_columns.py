"""The constants of many subscriptions of one form, in columns, so that one operation tests them all.

Numbers are an array. Text, bytes, bools and choices are codes: a test is made once for each distinct value, or by a
look-up, and then taken for all rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.filters.internal import COMPARE, TEXT, matcher

Flags: TypeAlias = npt.NDArray[np.bool_]


class GrowingArray:
    """State: an array that grows by appending rows, with a quarter more room each time it is full."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._room: npt.NDArray[Any] = np.empty(0, dtype)
        self.values: npt.NDArray[Any] = self._room

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        """The bytes allocated, with the room to grow."""
        return self._room.nbytes

    def append(self, value: Any) -> None:
        """Append one value."""
        used = len(self.values)
        if used == len(self._room):
            room = np.empty(max(16, used * 5 // 4), self._room.dtype)
            room[:used] = self.values
            self._room = room
        self._room[used] = value
        self.values = self._room[: used + 1]

    def replace_by_last(self, row: int) -> None:
        """Remove a row; the last one takes its place."""
        self.values[row] = self.values[-1]
        self.values = self.values[:-1]


class NumberColumn(GrowingArray):
    """State: constants that are numbers; times and durations are microseconds."""

    def __init__(self, is_float: bool) -> None:
        super().__init__(np.float64 if is_float else np.int64)
        self.uniform: float | None = None
        """The constant of all rows, if it has always been the same."""

    def append(self, value: Any) -> None:
        """Append one constant."""
        if not len(self):
            self.uniform = value
        elif value != self.uniform:
            self.uniform = None
        super().append(value)


class CodedColumn:
    """State: constants that are no numbers, as codes of the distinct values."""

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}
        self._rows = GrowingArray(np.int32)
        self._lengths: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_uniform(self) -> bool:
        """Whether all rows have the same constant."""
        return len(self.codes) == 1

    @property
    def nbytes(self) -> int:
        """The bytes of the codes."""
        return self._rows.nbytes

    def append(self, value: Any) -> None:
        """Append one constant."""
        self._rows.append(self._code(value))

    def replace_by_last(self, row: int) -> None:
        """Remove a row; the last one takes its place. Values that no row has are dropped when they are most."""
        self._rows.replace_by_last(row)
        if len(self.codes) > 2 * len(self) + 64:
            values, old = list(self.codes), self._rows.values
            self.codes, self._lengths = {}, Counter()
            old[:] = [self._code(values[code]) for code in old.tolist()]

    def _code(self, value: Any) -> int:
        code = self.codes.setdefault(value, len(self.codes))
        if code == len(self.codes) - 1 and isinstance(value, Sized):
            self._lengths[len(value)] += 1
        return code

    def compare(self, op: str, value: Any) -> Flags:
        """Return whether `value op constant` is true, for each row."""
        if op in ("==", "!="):
            code = self.codes.get(value, -1)
            rows: Flags = self._rows.values == code if op == "==" else self._rows.values != code
            return rows
        return self._take(constant for constant in self.codes if COMPARE[op](value, constant))

    def find_parts(self, op: str, text: str) -> Flags:
        """Return whether a text test of the constant is true, for each row."""
        return self._take(matching_parts(op, text, self.codes, self._lengths))

    def _take(self, matching: Iterable[Any]) -> Flags:
        hits = np.zeros(len(self.codes), np.bool_)
        for constant in matching:
            hits[self.codes[constant]] = True
        rows: Flags = hits[self._rows.values]
        return rows


def passes(op: str, text: str, part: str) -> bool:
    """Return whether a text passes a text test; a pattern is compiled when it is first used.

    >>> passes("endswith", "A8", "8"), passes("like", "A8", "_8%")
    (True, True)
    """
    return matcher(part)(text) is not None if op == "like" else TEXT[op](text, part)


def matching_parts(op: str, text: str, parts: Mapping[str, Any], lengths: Mapping[int, int]) -> Iterator[str]:
    """Those of many parts for which a text test is true, each once; `lengths` counts the parts by length.

    The pieces of the text are looked up among the parts, unless there are fewer parts than pieces.

    >>> parts = {"ab": 1, "b": 2, "c": 3}
    >>> sorted(matching_parts("contains", "abab", parts, {1: 2, 2: 1}))
    ['ab', 'b']
    """
    fitting = [length for length, count in lengths.items() if count and length <= len(text)]
    pieces = sum(len(text) - length + 1 for length in fitting) if op == "contains" else len(fitting)
    if op not in _PIECES or pieces > 2 * len(parts):
        return (part for part in parts if passes(op, text, part))
    return (piece for length in fitting for piece in _PIECES[op](text, length) if piece in parts)


_PIECES: dict[str, Callable[[str, int], Iterable[str]]] = {
    "startswith": lambda text, length: (text[:length],),
    "endswith": lambda text, length: (text[len(text) - length :],),
    "contains": lambda text, length: {text[i : i + length] for i in range(len(text) - length + 1)},
}
