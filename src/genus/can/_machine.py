"""What protocol code looks like from outside: time and frames in, frames and notices out, no I/O within.

A machine is told what happened and when, by its own clock in nanoseconds; what it wants done waits in `take`. The
simulator and the live driver run the same machines. After every input a driver calls `take` and does what it finds,
in order, and calls `wake` when `wake_at` has come.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from genus.can._wire.frame import Frame

TIME_TRIGGERED, EVENT_TRIGGERED = 0, 1
"""The two transmit mailboxes a machine uses: hard real time, and everything else."""


class Load(msgspec.Struct, frozen=True, gc=False):
    """Put a frame into a transmit mailbox, in place of what was there; None empties it.

    A frame that is on the wire just then is not stopped. If it goes through, `sent` says so, and the new frame is next;
    if it fails, it is not repeated.
    """

    mailbox: int
    frame: Frame | None


class Accept(msgspec.Struct, frozen=True):
    """Set the acceptance filters: (value, mask) pairs over the 29-bit identifier."""

    filters: tuple[tuple[int, int], ...]


class Call(msgspec.Struct, frozen=True):
    """Call a user's handler."""

    handler: Callable[..., object]
    arguments: tuple[Any, ...] = ()


Output: TypeAlias = Load | Accept | Call


class Machine(Protocol):
    """Protocol code under a driver; all times are readings of its own clock, in nanoseconds."""

    def receive(self, frame: Frame, now: int) -> None:
        """A frame of another node that passed the acceptance filters has ended."""

    def sent(self, frame: Frame, now: int) -> None:
        """A frame of this machine has gone through; its mailbox is empty, or holds what was loaded meanwhile."""

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this machine was corrupted; the controller repeats it unless the mailbox is loaded anew."""

    def lost(self, now: int) -> None:
        """Another frame won the bus and has ended: a chance to change the mailboxes before the next arbitration."""

    def bus_off(self, now: int) -> None:
        """The controller went off the bus after too many errors; the mailboxes are empty."""

    def bus_on(self, now: int) -> None:
        """The controller is back on the bus."""

    @property
    def wake_at(self) -> int | None:
        """When the machine wants to be woken, by its own clock."""

    def wake(self, now: int) -> None:
        """The time asked for has come."""

    def take(self) -> list[Output]:
        """What is to be done, in order; the list is the caller's."""
