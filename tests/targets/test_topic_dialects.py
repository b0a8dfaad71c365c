"""Dialects: keys and patterns by the rules of zenoh, MQTT and NATS, and any text as one chunk."""

import itertools
import random
from collections.abc import Sequence
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.targets.topics import MQTT, NATS, ZENOH, Dialect
from tests.examples import examples

from .topic_matchers import EACH, MATCHERS, key_expression, needs_zenoh

DIALECTS = {dialect.name: dialect for dialect in (ZENOH, MQTT, NATS)}
each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)


@pytest.mark.parametrize(
    ("dialect", "pattern", "yes", "no"),
    [
        (ZENOH, "a/*", ["a/b"], ["a", "a/b/c", "a/@b", "b/a"]),
        (ZENOH, "a/**", ["a", "a/b", "a/b/c"], ["ab", "a/@b", "a/b/@c", "@a"]),
        (ZENOH, "**", ["a", "a/b"], ["@a", "a/@b/c"]),
        (ZENOH, "**/b/**", ["b", "a/b", "a/b/b/c"], ["a", "@a/b", "a/b/@c"]),
        (ZENOH, "@a/**", ["@a", "@a/b"], ["a", "@b", "@a/@b"]),
        (ZENOH, "a/*/**/@c/**/b", ["a/b/@c/b", "a/b/c/@c/x/b"], ["a/@c/b", "a/b/@c/@c/b", "a/b/c/b"]),
        (ZENOH, "a$*c/b", ["ac/b", "abc/b"], ["ab/b", "a/c/b", "abcd/b"]),
        (ZENOH, "$*", ["a"], ["@a", "a/b"]),
        (MQTT, "a/+", ["a/b", "a/"], ["a", "a/b/c"]),
        (MQTT, "a/#", ["a", "a/", "a/b", "a/b/c"], ["ab", "b"]),
        (MQTT, "#", ["a", "/", "a/b"], ["$SYS", "$SYS/a"]),
        (MQTT, "+/a", ["b/a", "/a"], ["$SYS/a"]),
        (MQTT, "$SYS/#", ["$SYS", "$SYS/a"], ["a"]),
        (MQTT, "a/+/$b", ["a/$x/$b"], ["a/b"]),
        (NATS, "a.*", ["a.b"], ["a", "a.b.c"]),
        (NATS, "a.>", ["a.b", "a.b.c"], ["a", "b.a"]),
        (NATS, ">", ["a", "a.b", "$SYS.a"], []),
        (NATS, "a.b*", ["a.b*"], ["a.bc"]),
    ],
)
def test_the_rules_of_each_system(dialect: Dialect, pattern: str, yes: list[str], no: list[str]) -> None:
    assert [key for key in (*yes, *no) if dialect.matches(pattern, key)] == yes


@pytest.mark.parametrize(
    ("dialect", "wrong"),
    [
        *((ZENOH, text) for text in ("", "/a", "a/", "a//b", "a*", "a/***", "a$b", "a/$", "a#", "a?", "\ud800")),
        *((MQTT, text) for text in ("", "#/a", "a#", "a+/b", "a/#/b", "a\0", "\ud800")),
        *((NATS, text) for text in ("", ".a", "a.", "a..b", ">.a", "a b", "a\tb", "\ud800")),
    ],
)
def test_texts_that_are_no_patterns_match_nothing(dialect: Dialect, wrong: str) -> None:
    assert not dialect.is_pattern(wrong)
    assert not dialect.is_key(wrong)
    assert not dialect.matches(wrong, "a")
    assert not dialect.matches(wrong, wrong)
    assert not dialect.matches("**" if dialect is ZENOH else dialect.rest, wrong)
    assert not dialect.includes(wrong, "a")
    assert not dialect.includes("a", wrong)


@each_dialect
def test_wildcards_are_patterns_and_no_keys(dialect: Dialect) -> None:
    for text in (dialect.one, dialect.rest, dialect.join(["a", dialect.rest])):
        assert dialect.is_pattern(text)
        assert not dialect.is_key(text)
        assert not dialect.matches(dialect.rest, text)


CHUNKS = {
    "zenoh": (["a", "b", "ab", "bab", "@a", "@b"], ["a", "b", "@a", "*", "**", "a$*", "$*b", "$*a$*b$*"]),
    "mqtt": (["a", "b", "", "$a"], ["a", "b", "", "$a", "+"]),
    "nats": (["a", "b", "$a", "_"], ["a", "b", "_", "*"]),
}


def random_key(dialect: Dialect, rng: random.Random) -> str:
    while not dialect.is_key(key := dialect.join(rng.choices(CHUNKS[dialect.name][0], k=rng.randint(1, 5)))):
        pass
    return key


def random_pattern(dialect: Dialect, rng: random.Random) -> str:
    chunks = rng.choices(CHUNKS[dialect.name][1], k=rng.randint(1, 5))
    end = [dialect.rest] if dialect.rest_ends and rng.random() < 0.4 else []
    pattern = dialect.join([*chunks, *end])
    if dialect is ZENOH:
        return str(import_module("zenoh").KeyExpr.autocanonize(pattern))
    return pattern if dialect.is_pattern(pattern) else random_pattern(dialect, rng)


@pytest.mark.parametrize("name", EACH)
def test_matching_agrees_with_the_system_itself(name: str) -> None:
    rng, dialect, matched = random.Random(name), DIALECTS[name], 0
    for _ in range(6_000):
        pattern, key = random_pattern(dialect, rng), random_key(dialect, rng)
        answer = MATCHERS[name](pattern, key)
        assert dialect.matches(pattern, key) is answer, (pattern, key)
        matched += answer
    assert matched > 200


def short_texts(dialect: Dialect, chunks: Sequence[str], longest: int) -> list[str]:
    counts = range(1, longest + 1)
    return [dialect.join(each) for count in counts for each in itertools.product(chunks, repeat=count)]


@each_dialect
def test_a_pattern_includes_another_if_all_keys_say_so(dialect: Dialect) -> None:
    """All short patterns, and all keys that are long enough to tell them apart."""
    special = {"zenoh": "@a", "mqtt": "$a", "nats": "_"}[dialect.name]
    written = short_texts(dialect, ["a", special, dialect.one, dialect.rest], 3)
    patterns = [pattern for pattern in written if dialect.is_pattern(pattern)]
    keys = short_texts(dialect, ["a", special, "z"], 4)
    matched = {pattern: {key for key in keys if dialect.matches(pattern, key)} for pattern in patterns}
    for wide, narrow in itertools.product(patterns, repeat=2):
        assert dialect.includes(wide, narrow) is (matched[wide] >= matched[narrow]), (wide, narrow)


@needs_zenoh
def test_what_zenoh_includes_is_included() -> None:
    """zenoh decides by chunks in order and finds less: it says no to `*/**` and `**/a`."""
    rng, found = random.Random(5), 0
    for _ in range(8_000):
        wide, narrow = random_pattern(ZENOH, rng), random_pattern(ZENOH, rng)
        if key_expression(wide).includes(key_expression(narrow)):
            assert ZENOH.includes(wide, narrow), (wide, narrow)
            found += 1
    assert found > 200
    assert ZENOH.includes("*/**", "**/a")


def test_hidden_keys_are_included_by_no_wildcard_at_the_root() -> None:
    assert not MQTT.includes("#", "$SYS/a")
    assert not MQTT.includes("+/a", "$SYS/a")
    assert MQTT.includes("#", "+/a")
    assert MQTT.includes("a/#", "a/$SYS")
    assert not ZENOH.includes("a/**", "a/@b")
    assert ZENOH.includes("a/@b/**", "a/@b")


@each_dialect
def test_included_patterns(dialect: Dialect) -> None:
    one, rest = dialect.one, dialect.rest
    loops, exact, everything = ["c", one, "L", rest], ["c", one, "L", dialect.end or one], ["c", rest]
    order = [dialect.join(each) for each in (everything, loops, exact)]
    for wide in range(3):
        for narrow in range(3):
            assert dialect.includes(order[wide], order[narrow]) is (wide <= narrow)


# -- any text as a chunk -----------------------------------------------------------------------------------------------

TEXTS = st.text() | st.text(alphabet="a_~-/.+#*$?@>% 0é\ud800\0")


@each_dialect
@given(text=TEXTS)
@examples(400)
def test_any_text_is_one_chunk_and_comes_back(dialect: Dialect, text: str) -> None:
    chunk = dialect.escape(text)
    assert dialect.is_key(chunk)
    assert dialect.split(chunk) == [chunk]
    assert chunk.isascii()
    assert chunk != dialect.end
    assert not chunk.startswith(("@", "$", "="))
    assert dialect.matches(dialect.one, chunk)
    assert dialect.unescape(chunk) == text
    if name := dialect.unescape(text):
        assert dialect.escape(name) == text


@given(one=TEXTS, other=TEXTS)
@examples(200)
def test_different_texts_are_different_chunks(one: str, other: str) -> None:
    assert (ZENOH.escape(one) == ZENOH.escape(other)) is (one == other)


@pytest.mark.parametrize("wrong", ["", "_", "a.b", "a b", "~", "~6", "~6g", "~61", "~e9", "~C3", "a~", "~FF~FE", "é"])
def test_chunks_that_no_text_has(wrong: str) -> None:
    """Only one chunk stands for a text; `~` is the one of the empty text."""
    assert ZENOH.unescape(wrong) == ("" if wrong == "~" else None)
