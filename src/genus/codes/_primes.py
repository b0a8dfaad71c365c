"""Prime numbers: a sieve of Eratosthenes over odd numbers that doubles when it runs out.

`nth_prime` counts in the sieve without making a list, so the two-millionth prime takes 20 MB for a moment instead of
80 MB permanently. `is_prime` is the Miller-Rabin test with the first thirteen prime bases, which is proved exact below
3.3e24 (Sorenson and Webster, "Strong pseudoprimes to twelve prime bases", 2015).
"""

from collections.abc import Iterator
from functools import cache
from itertools import compress
from math import isqrt, log

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_EXACT_BELOW = 3_317_044_064_679_887_385_961_981
_SMALL = 1 << 12

_found: list[int] = []
_limit = 0


def primes() -> Iterator[int]:
    """All primes in order, without end.

    >>> from itertools import islice
    >>> list(islice(primes(), 8))
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    position = 0
    while True:
        if position == len(_found):
            _grow()
        yield _found[position]
        position += 1


@cache
def nth_prime(n: int) -> int:
    """The n-th prime, counted from one.

    >>> nth_prime(1), nth_prime(8), nth_prime(100_000)
    (2, 19, 1299709)
    """
    if n < 1:
        raise ValueError(f"primes are counted from 1, not from {n}")
    if n == 1:
        return 2
    return 2 * _nth_set(_odd_sieve(_bound(n)), n - 1) + 1


def is_prime(number: int) -> bool:
    """Whether a number is prime; numbers too large for an exact answer count as not prime.

    >>> [n for n in range(30) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    >>> is_prime(3_215_031_751)
    False
    """
    if number < 2 or number >= _EXACT_BELOW:
        return False
    return number in _BASES or all(_is_probable_prime(number, base) for base in _BASES)


def _is_probable_prime(number: int, base: int) -> bool:
    if number % base == 0:
        return False
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    power = pow(base, (number - 1) >> twos, number)
    return power == 1 or any(pow(power, 1 << i, number) == number - 1 for i in range(twos))


def _grow() -> None:
    global _limit
    start, _limit = _limit, max(_SMALL, 2 * _limit)
    odds = _odd_sieve(_limit)
    if start == 0:
        _found.append(2)
    _found.extend(compress(range(start + 1, _limit, 2), odds[start // 2 :]))


def _odd_sieve(limit: int) -> bytearray:
    """One byte for each odd number below an even limit: entry i says whether 2*i + 1 is prime."""
    odds = bytearray(b"\x01") * (limit // 2)
    odds[0] = 0
    for i in range(1, isqrt(limit) // 2 + 1):
        if odds[i]:
            first, step = 2 * i * (i + 1), 2 * i + 1
            odds[first::step] = bytes(len(range(first, len(odds), step)))
    return odds


def _bound(n: int) -> int:
    """An even number above the n-th prime (Rosser and Schoenfeld, 1962)."""
    return 2 * int(n * (log(n) + log(log(n))) / 2 + 1) if n >= 6 else 14


def _nth_set(flags: bytearray, n: int) -> int:
    """The position of the n-th set byte: whole chunks are counted, only the last is searched."""
    start, chunk = 0, 1 << 12
    while (inside := flags.count(1, start, start + chunk)) < n:
        n -= inside
        start += chunk
    for _ in range(n):
        start = flags.index(1, start) + 1
    return start - 1
