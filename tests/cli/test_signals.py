"""Ctrl-C and SIGTERM end a command, whatever its main thread does at that moment."""

import signal

import pytest

from genus.cli._exit import stopped_by_signals, stopped_gracefully


@pytest.mark.parametrize("stopped", [stopped_by_signals, stopped_gracefully])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_wait_does_not_block(stopped: object, number: signal.Signals) -> None:
    """`Event.wait` holds the lock that `Event.set` needs."""
    with stopped() as stop:  # type: ignore[operator]
        with stop._cond:
            signal.raise_signal(number)
        assert stop.wait(60)


def test_a_second_signal_interrupts() -> None:
    with stopped_gracefully() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(60)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
