"""The long run of topics: random systems of types, on zenoh's own matcher and by the rules of MQTT and NATS."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from genus import Event, Subscription
from genus.catalog import Catalog
from genus.filters._subscription import rebuild
from genus.filters.types import AllOf
from genus.model import is_event_type, vector
from genus.targets import topics
from genus.targets.topics import MQTT, NATS, ZENOH, Dialect, TopicFilter
from tests.generators import Generator

from ..catalog.declaring import event_type, kind
from .topic_matchers import EACH, MATCHERS, Matcher

DIALECTS = {dialect.name: dialect for dialect in (ZENOH, MQTT, NATS)}
FIELDS: dict[str, Any] = {"number": int, "real": float, "text": str, "flag": bool}
SHARE_OF_KINDS = 0.12
"""The share of types that take on a kind of their own, beyond what they inherit."""


class System(NamedTuple):
    """The types of a catalog, and subscriptions and events for them."""

    catalog: Catalog
    subscriptions: list[Subscription]
    events: list[Event]


def random_types(rng: random.Random, name: str) -> list[type]:
    """Kinds, some below others; families with and without tagged attributes; and pure classes of kinds."""
    kinds: list[type] = []
    for number in range(rng.randint(2, 4)):
        kinds.append(kind(f"{name}Kind{number}", *(rng.sample(kinds, 1) if kinds and rng.random() < 0.3 else [])))
    made: list[type] = [*kinds]
    for family in range(rng.randint(3, 6)):
        made += random_family(rng, f"{name}F{family}", kinds)
    chosen = rng.choice(kinds)
    return [*made, *(event_type(f"{name}Pure{number}", Event, chosen) for number in range(rng.choice([0, 0, 1, 2])))]


def random_family(rng: random.Random, name: str, kinds: Sequence[type]) -> list[type]:
    fields = {f"{each}": note | None for each, note in FIELDS.items() if rng.random() < 0.7}
    tagged = rng.sample([*fields, "place", "source", "time"], rng.choice([0, 1, 2, 3]))
    made = [event_type(name, Event, *random_kinds(rng, Event, kinds), fields=fields, tagged=tagged)]
    for number in range(rng.randint(2, 12)):
        base = rng.choice(made)
        extra: dict[str, Any] = {f"x{number}": rng.choice([*FIELDS.values()]) | None} if rng.random() < 0.5 else {}
        made.append(event_type(f"{name}T{number}", base, *random_kinds(rng, base, kinds), fields=extra))
    return made


def random_kinds(rng: random.Random, base: type, kinds: Sequence[type]) -> list[type]:
    new = [each for each in kinds if not issubclass(base, each)]
    return rng.sample(new, 1) if new and rng.random() < SHARE_OF_KINDS else []


def random_subscription(rng: random.Random, generator: Generator, types: Sequence[type]) -> Subscription:
    """A subscription to any one of the types, a kind like any other, or to several at once."""
    kinds = [cls for cls in types if not is_event_type(cls)]
    asked: Any = rng.choice([*types, Event])
    if several := rng.random() < 0.05:
        asked = AllOf((asked, *rng.sample(kinds, rng.choice([1, 2]))))
    scope = next((cls for cls in asked.types if is_event_type(cls)), asked.types[0]) if several else asked
    names = [attribute.name for attribute in vector(scope)]
    has, lacks = rng.sample(names, rng.choice([0, 0, 1, 2])), rng.sample(names, rng.choice([0, 0, 1]))
    where = generator.predicate(scope, 2) if rng.random() < 0.4 else None
    return rebuild(
        asked,
        exact=not several and rng.random() < 0.2,
        has=has,
        lacks=[each for each in lacks if each not in has],
        where=where,
    )


def random_system(seed: int, size: int) -> System:
    rng, generator = random.Random(seed), Generator(seed)
    types = random_types(rng, f"S{seed}")
    catalog = Catalog()
    catalog.register(*types)
    classes: list[Any] = [cls for cls in types if is_event_type(cls)]
    events = [generator.event(rng.choice(classes)) if rng.random() < 0.98 else Event() for _ in range(size)]
    return System(catalog, [random_subscription(rng, generator, types) for _ in range(size)], events)


class Tally:
    """State: what was counted over all systems."""

    def __init__(self) -> None:
        self.pairs = self.subscriptions = self.patterns = self.most = 0
        self.with_residual = self.matched = self.accepted = 0

    def __str__(self) -> str:
        return (
            f"{self.pairs:,} pairs, {self.patterns / self.subscriptions:.3f} patterns per subscription, at most "
            f"{self.most}; {self.with_residual / self.subscriptions:.1%} of the subscriptions leave a residual, and "
            f"{(self.accepted - self.matched) / self.pairs:.2%} of the pairs are accepted but do not match"
        )


def check_system(system: System, dialect: Dialect, matches: Matcher, with_catalog: bool, tally: Tally) -> None:
    catalog = system.catalog if with_catalog else None
    keys = [topics.key_of(event, dialect, "city") for event in system.events]
    for subscription in system.subscriptions:
        made = topics.compile(subscription, dialect, "city", catalog)
        tally.subscriptions += bool(made.patterns)  # one that cannot match would make the average look better
        tally.patterns += len(made.patterns)
        tally.most = max(tally.most, len(made.patterns))
        tally.with_residual += bool(made.patterns) and made.residual is not None
        for event, passed in zip(system.events, delivered(made, keys, matches), strict=True):
            right = subscription.matches(event)
            answer = passed and (made.residual is None or made.residual.matches(event))
            assert answer is right, f"{dialect.name} says {answer}: {event!r}\n{made.explain()}"
            tally.matched += right
            tally.accepted += passed
    tally.pairs += len(keys) * len(system.subscriptions)


def delivered(made: TopicFilter, keys: Sequence[str], matches: Matcher) -> Iterator[bool]:
    """Whether the network delivers an event, of each key."""
    known: dict[str, bool] = {}
    for key in keys:
        if key not in known:
            known[key] = any(matches(pattern, key) for pattern in made.patterns)
        yield known[key]


def sweep(name: str, systems: int, size: int) -> Tally:
    tally = Tally()
    for seed in range(systems):
        check_system(random_system(seed, size), DIALECTS[name], MATCHERS[name], bool(seed % 4), tally)
    return tally


def check_tally(tally: Tally) -> None:
    """The patterns are few, and test enough for the run to say something."""
    print(tally)
    assert tally.patterns / tally.subscriptions <= 1.1
    assert tally.most > 3
    assert tally.matched > tally.pairs * 0.01
    assert tally.accepted < tally.pairs * 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_nothing_is_wrong_in_many_random_systems(name: str) -> None:
    check_tally(sweep(name, systems=30, size=20))


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_nothing_is_wrong_in_a_million_pairs(name: str) -> None:
    """Kinds and several types at once included; every fourth system is compiled without a catalog."""
    tally = sweep(name, systems=160, size=80)
    assert tally.pairs >= 1_000_000
    check_tally(tally)
