"""`Machine`: the interface between protocol code without I/O and its driver, the simulator or the live host.

A driver calls a machine with what happened and when, in nanoseconds by the machine's own clock. After every such call
it calls `take` and handles the outputs in order; it calls `wake` when `wake_at` has come.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from genus.can._wire.frame import Frame

TIME_TRIGGERED, EVENT_TRIGGERED, FOREIGN = MAILBOXES = 0, 1, 2
"""The transmit mailboxes of a machine: for hard real time, for everything else of Genus, and for frames of databases.

Of the frames in the mailboxes the one that would win on the bus is sent first (`arbitration_key`).
"""


class Load(msgspec.Struct, frozen=True, gc=False):
    """Put a frame into a transmit mailbox, in place of what was there; None empties it.

    A frame of this mailbox that is on the wire, or that a driver has `taken`, is not stopped. If it is sent, `sent` is
    called and the new frame is next; if it fails, it is not repeated.
    """

    mailbox: int
    frame: Frame | None


class Accept(msgspec.Struct, frozen=True):
    """Set the acceptance filters: (value, mask) pairs over identifiers of 29 bits, and over those of 11 bits."""

    filters: tuple[tuple[int, int], ...]
    standard: tuple[tuple[int, int], ...] = ()
    """For identifiers of 11 bits; without any, no frame with such an identifier is received."""


class Call(msgspec.Struct, frozen=True):
    """Call a user's handler."""

    handler: Callable[..., object]
    arguments: tuple[Any, ...] = ()


Output: TypeAlias = Load | Accept | Call


class Machine(Protocol):
    """Protocol code that a driver runs; all times are readings of its own clock, in nanoseconds."""

    def receive(self, frame: Frame, now: int) -> None:
        """A frame of another node that passed the acceptance filters has ended."""

    def sent(self, frame: Frame, now: int) -> None:
        """A frame of this machine was sent; its mailbox is empty, or has the frame that was loaded meanwhile."""

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this machine was corrupted; the controller repeats it unless the mailbox is loaded again."""

    def lost(self, now: int) -> None:
        """A frame that won arbitration against this machine's has ended; the next arbitration follows.

        Also after an error frame while a frame of this machine waits: all stations take part in error signalling.
        """

    def taken(self, frame: Frame, now: int) -> None:
        """A driver with a queue of its own took a frame, which cannot be changed or stopped any more.

        The mailbox is free for the next frame, which stays in it until `sent` or `unconfirmed`. A driver without a
        queue, as the simulator's, does not call this.
        """

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        """A driver has not confirmed a frame in time.

        Nothing else of its mailbox is sent until it is confirmed, or `gone`: then the frame is given to the driver
        again, unless the mailbox is loaded. Without `maybe_sent` the driver knows that it was not sent.
        """

    def error_passive(self, now: int, passive: bool) -> None:
        """The controller became error passive, or is error active again.

        A driver says so as early as it can: when the transmit error counter reaches the warning limit of 96, if the
        controller reports that, and else above 127.
        """

    def bus_off(self, now: int) -> None:
        """The controller went off the bus after too many errors; the mailboxes are empty."""

    def bus_on(self, now: int) -> None:
        """The controller is back on the bus."""

    @property
    def wake_at(self) -> int | None:
        """When to call `wake`, by the machine's own clock; None if no timer is set."""

    def wake(self, now: int) -> None:
        """The time `wake_at` has come."""

    def take(self) -> list[Output]:
        """Remove and return the outputs since the last call, in the order in which to handle them."""
