"""Which events were seen before, by the numbers that their origins gave them.

Numbers count the events of an origin that have the same type, presence of tagged attributes and, if they are kept on
their network, the same key: as gateways and other networks do.
"""

from collections import OrderedDict
from functools import lru_cache
from zlib import crc32

from genus.model import Event, name_of, tagged_attributes
from genus.net._envelope import Origin
from genus.net._link.numbers import OriginNumbers
from genus.net._relay import Arrival

MOST_ORIGINS = 65_536
"""Origins and types that are remembered; of more, those that were silent the longest are forgotten."""


class KeyedOrigin(Origin, frozen=True, gc=False):
    """The origin of an event that is kept elsewhere under a key, whose number counts those of the key."""

    key: int = 0


def origin_of(arrival: Arrival) -> Origin:
    """The origin of an event of another network, with what its number counts."""
    origin = arrival.origin
    if arrival.kept is None:
        return origin
    return KeyedOrigin(origin.uid, origin.number, origin.hops, crc32(arrival.kept.encode()))


@lru_cache(4096)
def _naming(cls: type) -> tuple[str, tuple[str, ...]]:
    return name_of(cls), tuple(tagged_attributes(cls))


class SeenEvents:
    """State: the events that were seen, per origin and what its numbers count; the last 1,024 are recognised."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[tuple[object, ...], OriginNumbers] = OrderedDict()

    def is_new(self, event: Event, origin: Origin) -> bool:
        """Whether an event was not seen before; it is from now on."""
        name, tagged = _naming(type(event))
        bits = tuple(getattr(event, each) is not None for each in tagged)
        line = (origin.uid, name, bits, origin.key if isinstance(origin, KeyedOrigin) else None)
        known = self._numbers.get(line)
        if known is not None:
            self._numbers.move_to_end(line)
            return known.is_new(origin.number)
        self._numbers[line] = OriginNumbers(origin.number)
        if len(self._numbers) > MOST_ORIGINS:
            self._numbers.popitem(last=False)
        return True
