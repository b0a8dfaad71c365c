"""Prime numbers: a sieve of Eratosthenes over odd numbers that doubles when it runs out, and bit sets of primes.

A set of primes is an integer with the bits of their *positions*; `position` and `prime_at` convert. The union of two
sets and the smallest prime outside a set are then one or two operations on integers.

`nth_prime` counts in the sieve without making a list, so the two-millionth prime takes 20 MB for a moment instead of
80 MB permanently. `is_prime` is the Miller-Rabin test with the first four prime bases, which is exact below 3.2e9
(Jaeschke, "On strong pseudoprimes to several bases", 1993), or thirteen, which is exact below 3.3e24 (Sorenson and
Webster, "Strong pseudoprimes to twelve prime bases", 2015).
"""

from functools import cache
from itertools import compress, count
from math import isqrt, log
from threading import Lock

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_EXACT_BY_FOUR_BELOW = 3_215_031_751
_EXACT_BELOW = 3_317_044_064_679_887_385_961_981
_SMALL = 1 << 12
_SIEVE_END = 1 << 20

_placed: list[int] = []
_positions: dict[int, int] = {}
_sieved = 0
_placing = Lock()
_later = count(_SIEVE_END + 1, 2)


def prime_at(position: int) -> int:
    """Return the prime that a bit stands for in bit sets of primes, counted from zero; the inverse of `position`.

    >>> [prime_at(place) for place in range(8)]
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    while position >= len(_placed):
        with _placing:
            _sieve_more() if _sieved < _SIEVE_END else _place(_next_unplaced())
    return _placed[position]


def position(prime: int) -> int:
    """Return the bit that stands for a prime in bit sets of primes.

    Primes below 2**20 are placed in their order, later ones in the order in which they are first asked for: a large
    prime in a stored code needs neither a sieve nor a bit set of its size.

    >>> position(2), position(3), position(104_729)
    (0, 1, 9999)
    """
    while (found := _positions.get(prime)) is None:
        with _placing:
            if _sieved < _SIEVE_END:
                _sieve_more()
            elif prime not in _positions:
                _place(prime)
    return found


def lowest_outside(bits: int) -> int:
    """Return the lowest bit that is not in a bit set.

    >>> lowest_outside(0b1011) == 0b100
    True
    """
    return ~bits & (bits + 1)


def lowest_bits_outside(bits: int, number: int) -> int:
    """So many of the lowest bits that are not in a bit set.

    >>> lowest_bits_outside(0b1011, 2) == 0b10100
    True
    """
    filled = bits
    for _ in range(number):
        filled |= lowest_outside(filled)
    return filled ^ bits


def _next_unplaced() -> int:
    return next(number for number in _later if number not in _positions and is_prime(number))


def _place(*primes: int) -> None:
    for prime in primes:
        _placed.append(prime)
        _positions[prime] = len(_placed) - 1


@cache
def nth_prime(n: int) -> int:
    """Return the n-th prime, counted from one.

    >>> nth_prime(1), nth_prime(8), nth_prime(100_000)
    (2, 19, 1299709)
    """
    if n < 1:
        raise ValueError(f"primes are counted from 1, not from {n}")
    if n == 1:
        return 2
    return 2 * _nth_set(_odd_sieve(_bound(n)), n - 1) + 1


def is_prime(number: int) -> bool:
    """Return whether a number is prime; numbers too large for an exact answer count as not prime.

    >>> [n for n in range(30) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    >>> is_prime(3_215_031_751)
    False
    """
    if number < 2 or number >= _EXACT_BELOW:
        return False
    bases = _BASES[:4] if number < _EXACT_BY_FOUR_BELOW else _BASES
    return number in _BASES or all(_is_probable_prime(number, base) for base in bases)


def _is_probable_prime(number: int, base: int) -> bool:
    if number % base == 0:
        return False
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    power = pow(base, (number - 1) >> twos, number)
    return power == 1 or any(pow(power, 1 << i, number) == number - 1 for i in range(twos))


def _sieve_more() -> None:
    global _sieved
    start, end = _sieved, max(_SMALL, 2 * _sieved)
    odds = _odd_sieve(end)
    _place(*([2] if start == 0 else []), *compress(range(start + 1, end, 2), odds[start // 2 :]))
    _sieved = end


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
    """Return an even number above the n-th prime (Rosser and Schoenfeld, 1962)."""
    return 2 * int(n * (log(n) + log(log(n))) / 2 + 1) if n >= 6 else 14


def _nth_set(flags: bytearray, n: int) -> int:
    """Return the position of the n-th set byte: whole chunks are counted, only the last is searched."""
    start, chunk = 0, 1 << 12
    while (inside := flags.count(1, start, start + chunk)) < n:
        n -= inside
        start += chunk
    for _ in range(n):
        start = flags.index(1, start) + 1
    return start - 1
