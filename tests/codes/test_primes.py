"""The sieve, the n-th prime and the primality test agree."""

from itertools import islice

import pytest

from genus.codes._primes import is_prime, nth_prime, primes


def test_the_sieve_grows_without_a_gap() -> None:
    found = list(islice(primes(), 3000))
    assert found == [n for n in range(found[-1] + 1) if n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))]


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 564, 565, 3000])
def test_the_nth_prime_is_the_sieves(n: int) -> None:
    assert nth_prime(n) == next(islice(primes(), n - 1, None))


def test_is_prime_agrees_with_the_sieve() -> None:
    found = set(islice(primes(), 2000))
    assert all(is_prime(n) == (n in found) for n in range(-2, max(found) + 1))
    assert not is_prime(1 << 89)


def test_primes_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        nth_prime(0)
