"""Cross-check of subscriptions: count the matching events on every target; all counts must be equal."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from genus import Event, read_recording, replay
from genus.targets import SubscriptionIndex, arrow, python
from genus_traffic.subscribers import SUBSCRIPTIONS
from genus_traffic.types import TYPES


def matches_by_target(events: Sequence[Event], landing: Path) -> dict[str, dict[str, int]]:
    """How many events each subscription matches, by target and then by subscriber.

    Args:
        events: What arrived at the city's centre.
        landing: The folder with the recordings of the same events.
    """
    return {
        "python": _count_in_python(events),
        "arrow": _count_in_arrow(events),
        "index": _count_in_index(events),
        "replay": _count_in_recordings(landing),
    }


def by_subscriber(targets: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The same counts by subscriber and then by target, without targets on which a subscription did not run."""
    return {
        name: {target: counts[name] for target, counts in targets.items() if name in counts} for name in SUBSCRIPTIONS
    }


def _count_in_python(events: Iterable[Event]) -> dict[str, int]:
    compiled = {name: python.compile(subscription) for name, subscription in SUBSCRIPTIONS.items()}
    counts = Counter(name for event in events for name, matches in compiled.items() if matches(event))
    return {name: counts[name] for name in SUBSCRIPTIONS}


def _count_in_arrow(events: Iterable[Event]) -> dict[str, int]:
    families: dict[type, list[Event]] = {}
    for event in events:
        families.setdefault(_family(type(event)), []).append(event)
    batches = [arrow.to_batch(members, family) for family, members in families.items()]
    compiled = {name: arrow.compile(subscription) for name, subscription in SUBSCRIPTIONS.items()}
    return {name: sum(each.filter(batch).num_rows for batch in batches) for name, each in compiled.items()}


def _family(cls: type) -> type:
    """The direct subtype of `Event` that a class descends from."""
    return next(base for base in cls.__mro__ if Event in base.__bases__)


def _count_in_index(events: Iterable[Event]) -> dict[str, int]:
    index = SubscriptionIndex()
    names = {index.add(subscription): name for name, subscription in SUBSCRIPTIONS.items()}
    counts = Counter(names[int(handle)] for event in events for handle in index.match(event))
    return {name: counts[name] for name in SUBSCRIPTIONS}


def _count_in_recordings(landing: Path) -> dict[str, int]:
    files = sorted(landing.glob("*.genus"))
    return {
        name: sum(replay(read_recording(file, TYPES), lambda _: None, subscription) for file in files)
        for name, subscription in SUBSCRIPTIONS.items()
    }
