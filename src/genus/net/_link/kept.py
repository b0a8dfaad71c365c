"""Last values that this process has received or published, for those of its subscribers that come later."""

import threading

from genus.bus._qos import Keep
from genus.filters import Subscription
from genus.model import Event
from genus.net._link.patterns import Patterns
from genus.net._relay import Arrival

MOST_KEPT = 100_000
"""The largest number of last values that are remembered; the oldest is forgotten for a new one."""
_NONE = "\\-"


def kept_value(event: Event, keep: Keep) -> str:
    """The value under which an event is kept: that of the attributes that the channel names; no two share one."""
    return ",".join(_part(getattr(event, name)) for name in keep.by)


def _part(value: object) -> str:
    return _NONE if value is None else str(value).replace("\\", "\\\\").replace(",", "\\,")


class KeptEvents:
    """State: the newest event of each key of last values, as long as the key is subscribed to or published here."""

    def __init__(self, patterns: Patterns, uid: bytes) -> None:
        self._patterns, self._uid = patterns, uid
        self._kept: dict[str, Arrival] = {}
        self._lock = threading.Lock()

    def keep(self, key: str, arrival: Arrival) -> None:
        """Keep an event as the newest of its key."""
        with self._lock:
            if key not in self._kept and len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = arrival

    def forget(self, key: str) -> None:
        """Keep no event of a key."""
        with self._lock:
            self._kept.pop(key, None)

    def drop_unsubscribed(self) -> list[str]:
        """Forget the events of others whose keys are no longer subscribed to, as newer ones do not arrive; the keys."""
        with self._lock:
            keys = [key for key, arrival in self._kept.items() if arrival.origin.uid != self._uid]
        gone = [key for key in keys if not self._patterns.matches_last(key)]
        for key in gone:
            self.forget(key)
        return gone

    def of_others(self, subscription: Subscription) -> list[Arrival]:
        """The newest events of others that a subscription matches."""
        return [arrival for arrival in self.all(subscription) if arrival.origin.uid != self._uid]

    def all(self, subscription: Subscription) -> list[Arrival]:
        """The newest events that a subscription matches."""
        with self._lock:
            arrivals = list(self._kept.values())
        return [arrival for arrival in arrivals if subscription.matches(arrival.event)]
