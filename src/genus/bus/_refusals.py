"""Events that a recorder does not write because they could not be read back: counted, and raised to publishers."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from genus.bus._bus import Bus
from genus.bus._codec import encoding_problem
from genus.bus._listener import Listener
from genus.errors import BusError, EventError, Reasons
from genus.filters import Subscription
from genus.filters.types import AllOf
from genus.model import Event

WhenInvalid: TypeAlias = Literal["raise", "count"]
"""What a recorder does with an event that could not be read back: the publisher gets EventError, or it is counted."""


class Refused(msgspec.Struct, frozen=True):
    """Events that were refused for one reason: how many, and the message about the last one."""

    count: int
    last: str


class Refusals(Mapping[str, Refused]):
    """Events that a recorder refused, by reason; the reasons name type, attribute and what its value must be."""

    def __init__(self, invalid: WhenInvalid) -> None:
        if invalid not in ("raise", "count"):
            raise BusError(f"invalid={invalid!r} is none of raise, count")
        self.invalid: WhenInvalid = invalid
        self._counts, self._last = Reasons(), dict[str, str]()
        self._lock = threading.Lock()

    def __getitem__(self, reason: str) -> Refused:
        return Refused(self._counts[reason], self._last[reason])

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._last))

    def __len__(self) -> int:
        return len(self._last)

    @property
    def total(self) -> int:
        """How many events were refused in all."""
        return self._counts.total()

    def add(self, reason: str, message: str) -> None:
        """Count an event that was refused, with the message about it."""
        with self._lock:
            reason = self._counts.counted_as(reason)
            self._counts[reason] += 1
            self._last[reason] = message


class RecordingListener(Listener[Any]):
    """A listener that refuses events which cannot be recorded; with `raise`, the publisher gets the error."""

    def __init__(
        self, bus: Bus, subscription: Subscription, write: Callable[[Event], object], refused: Refusals
    ) -> None:
        super().__init__(bus, subscription, write)
        self.refuses = refused.invalid == "raise"
        self._refused = refused

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        """Count an event that cannot be recorded; returns the error if the publisher is to get it."""
        if not isinstance(problem, EventError):
            return super().failed(event, problem)
        self._refused.add(encoding_problem(event), str(problem))
        return problem if self.refuses else None


def subscribe_recorder(
    bus: Bus, subscription: Subscription, write: Callable[[Event], object], refused: Refusals
) -> Listener[Any]:
    """Call the function of a recorder that writes events, which may raise EventError."""
    listener = RecordingListener(bus, subscription, write, refused)
    return bus.collection(AllOf[Any](subscription.types)).add_listener(listener)
