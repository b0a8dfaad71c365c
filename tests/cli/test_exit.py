"""Signals end commands that wait."""

import os
import signal
import threading

from genus.cli._exit import stopped_by_signals


def test_a_signal_ends_a_wait_though_a_library_made_it_restart_system_calls() -> None:
    with stopped_by_signals() as stop:
        signal.siginterrupt(signal.SIGINT, False)
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()
        assert stop.wait(60)


def test_a_wait_ends_after_its_timeout() -> None:
    with stopped_by_signals() as stop:
        assert not stop.wait(0.01)
        stop.set()
        assert stop.wait()
