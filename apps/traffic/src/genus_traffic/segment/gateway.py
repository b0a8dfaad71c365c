"""`Gateway`: hands on what happens on a site's segment, with the site's name."""

from collections.abc import Callable

import msgspec

from genus.filters import Subscription
from genus.model import Event
from genus_traffic.types import Roadside


class Arrival(msgspec.Struct, frozen=True):
    """An event, and when it came: true time, in microseconds since 1970."""

    at_us: int
    event: Event


class Gateway:
    """State: what left a segment, in the order in which it was received there."""

    SUBSCRIPTION = Subscription(Roadside)

    def __init__(self, site: str, clock: Callable[[], int]) -> None:
        self.passed: list[Arrival] = []
        self._site = site
        self._clock = clock

    def pass_on(self, event: Event) -> None:
        """Hand an event on: from here on, its source is the site."""
        self.passed.append(Arrival(self._clock(), msgspec.structs.replace(event, source=self._site)))
