"""The sieve, the n-th prime and the primality test agree."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.balanced_trees import nth_prime
from genus.codes._scheme import is_prime, position, prime_at


def test_the_sieve_grows_without_a_gap() -> None:
    found = [prime_at(place) for place in range(3000)]
    assert found == [n for n in range(found[-1] + 1) if n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))]


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 564, 565, 3000])
def test_the_nth_prime_is_the_sieves(n: int) -> None:
    assert nth_prime(n) == prime_at(n - 1)


def test_is_prime_agrees_with_the_sieve() -> None:
    found = {prime_at(place) for place in range(2000)}
    assert all(is_prime(n) == (n in found) for n in range(-2, max(found) + 1))
    assert not is_prime(1 << 89)


def test_primes_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        nth_prime(0)


@pytest.mark.parametrize("prime", [2, 3, 8191, 1_048_573, 1_048_583, 2**61 - 1])
def test_a_prime_has_one_position(prime: int) -> None:
    """Also beyond the sieve, where a position is given to a prime that is asked for, whatever its size."""
    assert prime_at(position(prime)) == prime
    assert position(prime) == position(prime) < 100_000


def test_positions_after_the_sieve_go_on_with_primes_that_have_none() -> None:
    position(1_048_589)
    places = range(position(1_048_573), position(1_048_573) + 8)
    found = [prime_at(place) for place in places]
    assert len(set(found)) == len(found)
    assert all(map(is_prime, found))
    assert {1_048_583, 1_048_589} <= set(found)


def test_threads_that_ask_for_primes_at_once_agree() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(prime_at, [30_000 + place % 40 for place in range(400)]))
    assert found == [nth_prime(30_001 + place % 40) for place in range(400)]
