"""The playback of recorded events: where it is, and what is due. A machine: time is an argument, in seconds."""

from collections.abc import Callable, Iterator

from genus.bus.types import Recorded
from genus.errors import BusError
from genus.studio._rows import State

FASTEST, SLOWEST = 1e6, 1e-3
"""Limits of the speed."""


class Playback:
    """State: the position in a recording, in microseconds since 1970, its speed, and the events to come.

    Events are in the order of the recording: one with an earlier time than the one before it is due at once. If the
    events cannot be taken as fast as they are due, the position waits for them.

    Args:
        read: Gives the events from a time on, or all.
    """

    def __init__(self, read: Callable[[int | None], Iterator[Recorded]]) -> None:
        self.state: State = "paused"
        self.speed = 1.0
        self._read = read
        self._events: Iterator[Recorded] | None = None
        self._start_us: int | None = None
        """Where reading begins; None for the beginning."""
        self._next: Recorded | None = None
        self._position_us: int | None = None
        """The position at the time `_since`; None before the first event was read."""
        self._since = 0.0

    # -- what a person does ------------------------------------------------------------------------------------------

    def play(self, now: float) -> None:
        """Go on; from the beginning if it has ended, or failed."""
        if self.state in ("ended", "failed"):
            self._begin(None)
        if self.state != "playing":
            self.state, self._since = "playing", now

    def pause(self, now: float) -> None:
        """Stop, unless it has ended."""
        if self.state == "playing":
            self._move(now)
            self.state = "paused"

    def set_speed(self, speed: float, now: float) -> None:
        """Let time pass so many times as fast as in reality; BusError if the number makes no sense."""
        if not SLOWEST <= speed <= FASTEST:  # also false for what is not a number
            raise BusError(f"a recording cannot be played at speed {speed:g}; give a number from 0.001 to 1000000")
        self._move(now)
        self.speed = float(speed)

    def seek(self, time_us: int, now: float) -> None:
        """Go on from a time; one that had ended is played, one that is paused stays so."""
        self._begin(time_us)
        self._position_us, self._since = time_us, now
        if self.state in ("ended", "failed"):
            self.state = "playing"

    def fail(self) -> None:
        """Stop for good: the recording cannot be read."""
        self._events, self._next, self.state = None, None, "failed"

    # -- what a driver does ------------------------------------------------------------------------------------------

    def take(self, now: float, most: int) -> list[Recorded]:
        """Return the next events that are due, at most so many; ends if there are none to come."""
        found: list[Recorded] = []
        while self.state == "playing" and len(found) < most:
            if self._next is None and not self._advance(now):
                break
            if self._next is None or self._next.at_us > self._due_us(now):
                break
            found.append(self._next)
            self._next = None
        if found and (len(found) == most or self.state == "ended"):  # behind, perhaps: time goes on from here
            self._position_us, self._since = max(self._position_us or found[-1].at_us, found[-1].at_us), now
        return found

    def wait_s(self, now: float) -> float | None:
        """After how many seconds the next event is due; None if none is: while it is paused or has ended."""
        if self.state != "playing":
            return None
        if self._next is None:
            return 0.0
        return max(0.0, (self._next.at_us - self._due_us(now)) / 1e6 / self.speed)

    @property
    def next_us(self) -> int | None:
        """The time of the next event, if it was read."""
        return None if self._next is None else self._next.at_us

    def position_us(self, now: float) -> int | None:
        """Return the time on the recording; None before its first event was read."""
        if self._position_us is None or self._next is None or self.state != "playing":
            return self._position_us
        return max(self._position_us, min(self._due_us(now), self._next.at_us))

    # -- within ------------------------------------------------------------------------------------------------------

    def _begin(self, time_us: int | None) -> None:
        self._events, self._next, self._start_us, self._position_us = None, None, time_us, None

    def _advance(self, now: float) -> bool:
        """Read the next event; False if there is none, which is the end."""
        if self._events is None:
            self._events = self._read(self._start_us)
        self._next = next(self._events, None)
        if self._next is None:
            self.state = "ended"
            return False
        if self._position_us is None:
            self._position_us, self._since = self._next.at_us, now
        return True

    def _due_us(self, now: float) -> int:
        """Return the time up to which events are due."""
        if self._position_us is None:
            return 0
        return self._position_us + round((now - self._since) * 1e6 * self.speed)

    def _move(self, now: float) -> None:
        """Make the present position the one that time goes on from."""
        self._position_us, self._since = self.position_us(now), now
