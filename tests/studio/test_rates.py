"""Rates of counters: time is an input."""

from genus.studio._figures import KEEP_S, Rates


def test_the_rate_is_that_of_the_last_second() -> None:
    rates = Rates()
    for step in range(51):
        rates.note("a", step * 5 if step <= 20 else 100, step * 0.05)
    assert rates.rate("a") == 0.0
    for step in range(1, 41):
        rates.note("a", 100 + step, 2.5 + step * 0.05)
    assert 19 <= rates.rate("a") <= 21


def test_a_history_has_the_last_sixty_seconds() -> None:
    rates = Rates()
    for second in range(100):
        rates.note("a", second * second, float(second))
    history = rates.history("a")
    assert len(history) == 60
    assert history[-1] == 99 * 99 - 98 * 98


def test_seconds_in_which_nobody_looked_share_what_was_counted() -> None:
    rates = Rates()
    rates.note("a", 0, 0.0)
    rates.note("a", 50, 5.0)
    assert rates.history("a") == (10.0,) * 5


def test_a_counter_or_a_time_that_goes_back_is_no_rate() -> None:
    rates = Rates()
    rates.note("a", 1000, 10.0)
    rates.note("a", 3, 11.0)
    assert rates.rate("a") == 0.0
    rates.note("a", 13, 5.0)
    rates.note("a", 23, 6.0)
    assert rates.rate("a") == 10.0
    rates.restart()
    rates.note("a", 9999, 100.0)
    rates.note("a", 10004, 101.0)
    assert rates.rate("a") == 5.0
    assert max(rates.history("a")) == 10.0


def test_a_first_event_at_once_is_no_rate_of_thousands() -> None:
    rates = Rates()
    rates.note("a", 0, 0.0)
    rates.note("a", 1, 0.0001)
    assert rates.rate("a") == 2.0


def test_a_key_that_is_not_noted_is_forgotten() -> None:
    rates = Rates()
    rates.note("old", 1, 0.0)
    rates.note("new", 1, KEEP_S + 1)
    assert list(rates) == ["new"]
    assert rates.rate("old") == 0.0
