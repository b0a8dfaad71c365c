"""Last values that this process has received or published, for those of its subscribers that come later."""

import threading
from collections.abc import Iterable

from genus.bus.types import Keep
from genus.filters import Subscription
from genus.model import Event
from genus.net._link.patterns import Patterns
from genus.net._relay import Arrival

MAX_KEPT = 100_000
"""The largest number of last values that are remembered; the oldest is forgotten for a new one."""
_NONE = "\\-"


def kept_value(event: Event, keep: Keep) -> str:
    """The value under which an event is kept: that of the attributes that the channel names; no two share one."""
    return kept_text(getattr(event, name) for name in keep.by)


def kept_text(values: Iterable[object]) -> str:
    """Return the values of the attributes of a key as one text."""
    return ",".join(map(_part, values))


def _part(value: object) -> str:
    return _NONE if value is None else str(value).replace("\\", "\\\\").replace(",", "\\,")


class KeptEvents:
    """State: the newest event of each key of last values, as long as the key is subscribed to or sent from here."""

    def __init__(self, patterns: Patterns, uid: bytes) -> None:
        self._patterns, self._uid = patterns, uid
        self._kept: dict[str, Arrival] = {}
        self._sent: set[str] = set()
        """Keys whose newest event was published or forwarded here: they need no subscription."""
        self._key_of: dict[tuple[type, str | None], str] = {}
        """The key of the newest event of each type and value: it differs if other tagged attributes are present."""
        self._lock = threading.Lock()

    def keep(self, key: str, arrival: Arrival) -> bool:
        """Keep an event that arrived, as the newest of its key; not, and False, if the key is not subscribed to.

        Such a packet was on its way when the subscription ended: newer ones will not arrive.
        """
        with self._lock:
            if (key not in self._kept or key in self._sent) and not self._patterns.matches_last(key):
                return False
            self._sent.discard(key)
            self._put(key, arrival)
            return True

    def is_older(self, key: str, arrival: Arrival) -> bool:
        """Return whether an event is older, by its time, than the one that is kept, which is of another publisher."""
        known = self._kept.get(self._key_of.get((type(arrival.event), arrival.kept), key))
        if known is None or known.origin.uid == arrival.origin.uid:
            return False
        time, newest = arrival.event.time, known.event.time
        return time is not None and newest is not None and time < newest

    def keep_sent(self, key: str, arrival: Arrival) -> None:
        """Keep an event that was published or forwarded here, as the newest of its key."""
        with self._lock:
            self._sent.add(key)
            self._put(key, arrival)

    def _put(self, key: str, arrival: Arrival) -> None:
        if key not in self._kept and len(self._kept) >= MAX_KEPT:
            self._remove(next(iter(self._kept)))
        name = (type(arrival.event), arrival.kept)
        before = self._key_of.get(name, key)
        if before != key:
            self._remove(before)
        self._kept[key], self._key_of[name] = arrival, key

    def _remove(self, key: str) -> Arrival | None:
        self._sent.discard(key)
        arrival = self._kept.pop(key, None)
        if arrival is not None:
            self._key_of.pop((type(arrival.event), arrival.kept), None)
        return arrival

    def forget(self, key: str) -> Arrival | None:
        """Keep no event of a key; returns the one that was kept."""
        with self._lock:
            return self._remove(key)

    def drop_unsubscribed(self) -> list[str]:
        """Forget events that arrived and whose keys are no longer subscribed to, as newer ones do not; the keys."""
        with self._lock:
            arrived = self._kept.keys() - self._sent
            gone = [key for key in arrived if not self._patterns.matches_last(key)]
            for key in gone:
                self._remove(key)
        return gone

    def of_others(self, subscription: Subscription) -> list[Arrival]:
        """Return the newest events of others that a subscription matches."""
        return [arrival for arrival in self.all(subscription) if arrival.origin.uid != self._uid]

    def all(self, subscription: Subscription) -> list[Arrival]:
        """Return the newest events that a subscription matches."""
        with self._lock:
            arrivals = list(self._kept.values())
        return [arrival for arrival in arrivals if subscription.matches(arrival.event)]
