"""Waiting for what other threads and processes bring about, and time that passes without waiting."""

import time
from collections.abc import Callable

import pytest

from genus.net._link import channels


def wait_for(condition: Callable[[], object], what: str = "it took too long", seconds: float = 60) -> None:
    """Wait until a condition holds; the test fails if it does not for a long time, which a busy machine may take."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.005)


def pass_time(patch: pytest.MonkeyPatch, milliseconds: float) -> None:
    """Let the clock by which events of soft channels are late go on at once, until the test ends."""
    patch.setattr(channels, "_START_NS", channels._START_NS + int(milliseconds * 1e6))
