"""Floor division and remainder of arrays of numpy, as Python computes them on numbers: `//` and `%`.

The quotient is rounded down and the remainder has the sign of the divisor. Of floats, the remainder is `fmod`, which is
exact, and one addition where its sign differs from the divisor's; these are the steps of Python itself, so that all
results are equal bit by bit.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from genus.model.internal import INT64_MIN

Array = npt.NDArray[Any]


def floor_division(op: str, left: Any, right: Any) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the results of `//` or `%` on arrays or numbers, all int64 or all float64, and which of them are known.

    >>> values, known = floor_division("%", np.array([7, -7, 7]), np.array([-3, 3, 0]))
    >>> values[known].tolist(), known.tolist()
    ([-2, 2], [True, True, False])
    """
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype == np.float64 or b.dtype == np.float64:
        return _divide_floats(op, a.astype(np.float64), b.astype(np.float64))
    return _divide_integers(op, a, b)


def _divide_integers(op: str, a: Array, b: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the smallest integer divided by -1 has no quotient in 64 bits; its remainder is 0."""
    overflows = (a == INT64_MIN) & (b == -1)
    known = (b != 0) & ~overflows if op == "//" else b != 0
    divisor = np.where((b != 0) & ~overflows, b, 1)
    return (np.floor_divide if op == "//" else np.remainder)(a, divisor), np.broadcast_to(known, divisor.shape)


def _divide_floats(op: str, a: Array, b: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    with np.errstate(all="ignore"):
        remainder = np.fmod(a, b)
        differs = (remainder != 0) & ((remainder < 0) != (b < 0))
        if op == "%":
            result = np.where(differs, remainder + b, remainder)
        else:
            quotient = (a - remainder) / b
            quotient = np.where(differs, quotient - 1.0, quotient)
            whole = np.floor(quotient)
            result = np.where(quotient - whole > 0.5, whole + 1.0, whole)
        return result, (b != 0) & (result == result)
