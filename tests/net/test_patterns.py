"""The patterns of a participant: the index against a test of each pair, and what is subscribed to after any changes."""

import random
import time

import pytest

from genus.net._link.patterns import PatternIndex, Patterns
from genus.targets.topics import MQTT, NATS, ZENOH, Dialect
from tests.net.memory_network import MemoryNetwork

CHUNKS = ("a", "b", "@c", "ab")


def random_pattern(chance: random.Random, dialect: Dialect, root: str = "") -> str:
    some = [*CHUNKS, dialect.one, dialect.one, *(["a" + dialect.part, dialect.part + "b"] if dialect.part else [])]
    chunks = [root] * bool(root) + [chance.choice(some) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.5:
        chunks.insert(chance.randint(1, len(chunks)) if not dialect.rest_ends else len(chunks), dialect.rest)
    return dialect.join(chunks)


@pytest.mark.parametrize("dialect", [ZENOH, MQTT, NATS], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("seed", range(2))
def test_the_index_finds_what_a_test_of_each_pair_finds(dialect: Dialect, seed: int) -> None:
    chance = random.Random(seed)
    index, among = PatternIndex(dialect), dict.fromkeys(random_pattern(chance, dialect) for _ in range(70))
    for pattern in among:
        index.add(pattern)
    found = 0
    for _ in range(70):
        if among and chance.random() < 0.3:
            gone = chance.choice(list(among))
            del among[gone]
            index.discard(gone)
        asked = chance.choice([*among, random_pattern(chance, dialect)])
        if (stranger := random_pattern(chance, dialect)) not in among:
            index.discard(stranger)
        including = {each for each in among if dialect.includes(each, asked)}
        included = {each for each in among if dialect.includes(asked, each)}
        assert set(index.including(asked)) == including
        assert set(index.included_in(asked)) == included
        found += len(including) + len(included)
    assert found > 300
    for pattern in among:
        index.discard(pattern)
    assert not index._root.following


@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_wanted_is_subscribed_to_once(dialect: Dialect, seed: int) -> None:
    chance = random.Random(seed)
    transport = MemoryNetwork(dialect).transport()
    patterns = Patterns(transport, "city", lambda: 0.0)
    wanted: list[str] = []
    for _ in range(100):
        if wanted and chance.random() < 0.45:
            wanted.remove(pattern := chance.choice(wanted))
            patterns.remove([pattern])
        else:
            wanted.append(random_pattern(chance, dialect, "city"))
            patterns.add(wanted[-1:])
        subscribed = [each for each in transport.patterns if each.startswith("city/")]
        assert sorted(subscribed) == sorted(patterns)
        assert len(transport.patterns) == 2 * len(subscribed)
        assert set(subscribed) <= set(wanted)
        assert all(any(dialect.includes(wide, each) for wide in subscribed) for each in wanted)
        assert not any(dialect.includes(one, two) for one in subscribed for two in subscribed if one is not two)
    patterns.remove(wanted)
    assert transport.patterns == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [ZENOH, MQTT], ids=lambda dialect: dialect.name)
def test_five_hundred_types_take_a_moment(dialect: Dialect) -> None:
    patterns = Patterns(MemoryNetwork(dialect).transport(), "city", lambda: 0.0)
    begin = time.process_time()
    for number in range(500):
        patterns.add([dialect.join(["city", "Base", dialect.one, f"T{number}", dialect.rest])])
    patterns.add([dialect.join(["city", dialect.rest])])
    assert len(list(patterns)) == 1
    patterns.remove([dialect.join(["city", dialect.rest])])
    assert len(list(patterns)) == 500
    assert time.process_time() - begin < 5  # about 0.3 s; 12 s with a test of each pair
