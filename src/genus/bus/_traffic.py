"""Counters of a bus."""

from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from genus.bus._listener import Counters
from genus.filters import Subscription


class Traffic(msgspec.Struct, frozen=True):
    """Counters of a bus: events published per type, deliveries per subscription, of the link, and of requests."""

    published: Mapping[str, int]
    subscriptions: Mapping[str, Counters]
    link: Mapping[str, int]
    requests: Mapping[str, int] = {}


class SubscriptionCounters(Mapping[str, Counters]):
    """The counters of each subscription, by its text; those with the same text are added up.

    The texts are made when they are first read, as that takes longer than counting.
    """

    def __init__(self, counted: list[tuple[Subscription, Counters]]) -> None:
        self._counted = counted

    @cached_property
    def _by_text(self) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        for subscription, counters in self._counted:
            text = str(subscription)
            found[text] = found[text] + counters if text in found else counters
        return found

    def largest(self, most: int) -> tuple[dict[str, Counters], list[Counters]]:
        """Return the subscriptions with the most events, with their texts, and the counters of the others without."""
        ordered = sorted(self._counted, key=lambda counted: -(counted[1].delivered + counted[1].dropped))
        return SubscriptionCounters(ordered[:most])._by_text, [counters for _, counters in ordered[most:]]

    def __getitem__(self, text: str) -> Counters:
        return self._by_text[text]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_text)

    def __len__(self) -> int:
        return len(self._by_text)

    def __repr__(self) -> str:
        return repr(self._by_text)
