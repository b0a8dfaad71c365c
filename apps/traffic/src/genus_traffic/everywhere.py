"""One subscription, asked in every place it can run: the answers must be equal."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from genus import Event
from genus.bus import read_recording, replay
from genus.targets import SubscriptionIndex, arrow, python
from genus_traffic.subscribers import SUBSCRIPTIONS
from genus_traffic.types import TYPES


def answers_in_process(events: Sequence[Event], landing: Path) -> dict[str, dict[str, int]]:
    """How many events each subscription matches, by place and then by subscriber."""
    return {
        "python": _in_generated_code(events),
        "arrow": _in_columns(events),
        "index": _in_the_index(events),
        "replay": _in_recordings(landing),
    }


def by_subscriber(places: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The same answers by subscriber and then by place; a place that was not asked says nothing."""
    return {
        name: {place: answers[name] for place, answers in places.items() if name in answers} for name in SUBSCRIPTIONS
    }


def _in_generated_code(events: Iterable[Event]) -> dict[str, int]:
    compiled = {name: python.compile(subscription) for name, subscription in SUBSCRIPTIONS.items()}
    got = Counter(name for event in events for name, matches in compiled.items() if matches(event))
    return {name: got[name] for name in SUBSCRIPTIONS}


def _in_columns(events: Iterable[Event]) -> dict[str, int]:
    families: dict[type, list[Event]] = {}
    for event in events:
        families.setdefault(_family(type(event)), []).append(event)
    batches = [arrow.to_batch(members, family) for family, members in families.items()]
    compiled = {name: arrow.compile(subscription) for name, subscription in SUBSCRIPTIONS.items()}
    return {name: sum(each.filter(batch).num_rows for batch in batches) for name, each in compiled.items()}


def _family(cls: type) -> type:
    """The type below `Event` that a class descends from."""
    return next(base for base in cls.__mro__ if Event in base.__bases__)


def _in_the_index(events: Iterable[Event]) -> dict[str, int]:
    index = SubscriptionIndex()
    names = {index.add(subscription): name for name, subscription in SUBSCRIPTIONS.items()}
    got = Counter(names[int(handle)] for event in events for handle in index.match(event))
    return {name: got[name] for name in SUBSCRIPTIONS}


def _in_recordings(landing: Path) -> dict[str, int]:
    files = sorted(landing.glob("*.genus"))
    return {
        name: sum(replay(read_recording(file, TYPES), lambda _: None, subscription) for file in files)
        for name, subscription in SUBSCRIPTIONS.items()
    }
