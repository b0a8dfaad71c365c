"""How a network writes keys and patterns: zenoh's key expressions, MQTT's topics and NATS's subjects.

A pattern is an automaton over chunks: its state is the set of positions that the chunks so far can have reached, kept
as the bits of an integer. Matching runs a key through it. `includes` runs all keys of the narrow pattern through the
automaton of the wide one, with one chunk for all that neither pattern names; that is exact, as wildcards tell chunks
apart in no other way.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9_-]|~[0-9A-F]{2})+")
_ODD_BYTE = re.compile(rb"[^A-Za-z0-9_-]")
_CODE = re.compile(rb"~([0-9A-F]{2})")
NOTHING = "~"
"""The chunk of the empty text."""
UNNAMED = "\0"
"""A chunk that no pattern names."""


class Dialect(msgspec.Struct, frozen=True, cache_hash=True):
    """How a system of topics writes keys and patterns, and which keys match a pattern; ZENOH, MQTT and NATS are given.

    `one` is the wildcard for one chunk. `rest` is the one for any number of chunks, and at least `rest_least`; if
    `rest_ends`, it can only be the last chunk. `part` is a wildcard inside a chunk, if there is one. `end` is a chunk
    at the end of every key of an event, where `rest` does not match zero chunks. Wildcards match no chunk that begins
    with `verbatim`, and in the first chunk none that begins with `hidden`.

    >>> ZENOH.matches("city/*/Loop/**", "city/1/Loop"), NATS.matches("city.*.Loop.>", "city.1.Loop")
    (True, False)
    """

    name: str
    separator: str
    one: str
    rest: str
    rest_least: int = 0
    rest_ends: bool = True
    part: str = ""
    end: str = ""
    verbatim: str = ""
    hidden: str = ""
    special: str = ""
    empty_chunks: bool = False

    def join(self, chunks: Iterable[str]) -> str:
        """Join chunks to a key or pattern.

        >>> NATS.join(["city", "Loop", "_"])
        'city.Loop._'
        """
        return self.separator.join(chunks)

    def split(self, key: str) -> list[str]:
        """Return the chunks of a key or pattern."""
        return key.split(self.separator)

    def matches(self, pattern: str, key: str) -> bool:
        """Return whether a key matches a pattern by the rules of the system; False if one of them is not valid.

        >>> MQTT.matches("#", "$SYS/uptime"), MQTT.matches("city/#", "city")
        (False, True)
        """
        automaton = _parse(self, pattern)
        if automaton is None or not self.is_key(key):
            return False
        state = automaton.start
        for number, chunk in enumerate(key.split(self.separator)):
            state = automaton.step(state, chunk, self._is_wild(chunk, number))
        return bool(state & automaton.end)

    def includes(self, wide: str, narrow: str) -> bool:
        """Return whether every key that matches `narrow` matches `wide`; False if one of them is not valid.

        It is exact but for `part`: with a wildcard inside a chunk, False may mean that it could not be decided.

        >>> ZENOH.includes("city/**", "city/*/Loop"), ZENOH.includes("city/*/Loop", "city/**")
        (True, False)
        """
        outer, inner = _parse(self, wide), _parse(self, narrow)
        if outer is None or inner is None:
            return False
        seen = set(_next_states(self, inner, outer, inner.start, outer.start, 0))
        todo = list(seen)
        while todo:
            here, there = todo.pop()
            if here & inner.end and not there & outer.end:
                return False
            new = set(_next_states(self, inner, outer, here, there, 1)) - seen
            seen |= new
            todo += new
        return True

    def is_key(self, text: str) -> bool:
        """Return whether a text is a valid key: no wildcard, and no empty chunk unless the system allows it.

        >>> ZENOH.is_key("city/Loop"), ZENOH.is_key("city//Loop"), MQTT.is_key("city/+")
        (True, False, False)
        """
        return _key_expression(self).fullmatch(text) is not None

    def is_pattern(self, text: str) -> bool:
        """Return whether a text is a valid pattern; every key is one.

        >>> MQTT.is_pattern("city/#"), MQTT.is_pattern("#/city"), NATS.is_pattern("city.>")
        (True, False, True)
        """
        return _parse(self, text) is not None

    def escape(self, text: str) -> str:
        """Write any text as one chunk, the same in all dialects: letters, digits, `_` and `-` stay.

        Other signs become codes. The chunk is never empty, and never just `_`; different texts have different chunks.

        >>> ZENOH.escape("traffic.Loop"), ZENOH.escape("A8/km 31"), ZENOH.escape("")
        ('traffic~2ELoop', 'A8~2Fkm~2031', '~')
        """
        if PLAIN.fullmatch(text) and text != "_":
            return text
        if text in ("", "_"):
            return "~5F" if text else NOTHING
        return _ODD_BYTE.sub(lambda odd: b"~%02X" % odd[0][0], text.encode("utf-8", "surrogatepass")).decode("ascii")

    def unescape(self, chunk: str) -> str | None:
        """Return the text of a chunk that `escape` made; None of any other.

        >>> ZENOH.unescape("traffic~2ELoop"), ZENOH.unescape("traffic.Loop"), ZENOH.unescape("traffic~61")
        ('traffic.Loop', None, None)
        """
        if chunk == NOTHING:
            return ""
        if not _ESCAPED.fullmatch(chunk):
            return None
        try:
            raw = _CODE.sub(lambda code: bytes([int(code[1], 16)]), chunk.encode("ascii"))
            text = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return None
        return text if self.escape(text) == chunk else None

    def _is_wild(self, chunk: str, number: int) -> bool:
        """Return whether wildcards can match a chunk of a key, in this place."""
        if self.verbatim and chunk.startswith(self.verbatim):
            return False
        return number > 0 or not self.hidden or not chunk.startswith(self.hidden)


ZENOH: Final = Dialect("zenoh", "/", "*", "**", rest_ends=False, part="$*", verbatim="@", special="*$#?\0")
"""zenoh's key expressions: `*`, `**` for zero or more chunks anywhere, and chunks beginning with `@` are verbatim."""

MQTT: Final = Dialect("mqtt", "/", "+", "#", hidden="$", special="+#\0", empty_chunks=True)
"""MQTT's topics: `+`, `#` for zero or more levels at the end; wildcards at the root do not match `$...`."""

NATS: Final = Dialect("nats", ".", "*", ">", rest_least=1, end="_", special=" \t\r\n\0")
"""NATS's subjects: `*`, and `>` for one or more tokens at the end, so that keys of events end with `_`."""


# -- patterns as automata ----------------------------------------------------------------------------------------------


class _Automaton(NamedTuple):
    """A pattern; bit n of a state is set if the first n tokens of the pattern can match the chunks so far.

    The fields are sets of tokens in the same form: by the text that they are, those with wildcards inside, those that
    take any chunk, and of these the ones that take any number of chunks. `end` is the bit of the whole pattern.
    """

    texts: Mapping[str, int]
    inside: Sequence[tuple[re.Pattern[str], int]]
    wild: int
    rest: int
    end: int

    @property
    def start(self) -> int:
        return self._close(1)

    def step(self, state: int, chunk: str, wild: bool) -> int:
        taken = self.texts.get(chunk, 0)
        if wild:
            taken |= self.wild
            for form, bit in self.inside:
                taken |= bit if form.fullmatch(chunk) else 0
        taken &= state
        return self._close(taken & self.rest | (taken & ~self.rest) << 1)

    def _close(self, state: int) -> int:
        """A token for any number of chunks can be passed without one; several may follow each other."""
        while (passed := state | (state & self.rest) << 1) != state:
            state = passed
        return state


@lru_cache(maxsize=4096)
def _parse(dialect: Dialect, pattern: str) -> _Automaton | None:
    tokens = list(_tokens(dialect, pattern))
    if not pattern or not all(_is_token(dialect, token) for token in tokens):
        return None
    if dialect.rest_ends and dialect.rest in tokens[:-1]:
        return None
    parts = {token for token in tokens if dialect.part and dialect.part in token}
    return _Automaton(
        {token: _bits(tokens, token) for token in tokens if token not in (dialect.one, dialect.rest)},
        [(_part_expression(dialect, token), _bits(tokens, token)) for token in parts],
        _bits(tokens, dialect.one, dialect.rest),
        _bits(tokens, dialect.rest),
        1 << len(tokens),
    )


def _tokens(dialect: Dialect, pattern: str) -> Iterator[str]:
    """Yield the chunks of a pattern, with the chunks that the last wildcard needs at least."""
    for chunk in pattern.split(dialect.separator):
        if chunk == dialect.rest:
            yield from [dialect.one] * dialect.rest_least
        yield chunk


def _bits(tokens: Sequence[str], *wanted: str) -> int:
    return sum(1 << number for number, token in enumerate(tokens) if token in wanted)


def _is_token(dialect: Dialect, chunk: str) -> bool:
    """Return whether a chunk can be part of a pattern: a text, a wildcard, or a text with wildcards inside."""
    if not chunk or chunk in (dialect.one, dialect.rest):
        return bool(chunk) or dialect.empty_chunks
    plain = chunk.replace(dialect.part, "") if dialect.part else chunk
    return not plain or _key_expression(dialect).fullmatch(plain) is not None


def _part_expression(dialect: Dialect, chunk: str) -> re.Pattern[str]:
    """Return a chunk with wildcards inside; its parts are found from the left, without trying other places for them."""
    first, *middle, last = map(re.escape, chunk.split(dialect.part))
    return re.compile(f"{first}{''.join(f'(?>.*?{part})' for part in middle)}.*{last}", re.DOTALL)


@lru_cache(maxsize=64)
def _key_expression(dialect: Dialect) -> re.Pattern[str]:
    """What keys look like: no special sign, no chunk that is a wildcard, no half of a surrogate pair, not empty."""
    separator = re.escape(dialect.separator)
    wildcard = rf"(?!(?:{re.escape(dialect.one)}|{re.escape(dialect.rest)})(?:{separator}|\Z))"
    signs = rf"[^{separator}{re.escape(dialect.special)}\ud800-\udfff]{'*' if dialect.empty_chunks else '+'}"
    return re.compile(rf"(?!\Z){wildcard}{signs}(?:{separator}{wildcard}{signs})*")


def _next_states(
    dialect: Dialect, inner: _Automaton, outer: _Automaton, here: int, there: int, number: int
) -> Iterator[tuple[int, int]]:
    """Yield the states of both patterns after each chunk that they tell apart and the inner one can take.

    A chunk with wildcards inside stands for all its texts.
    """
    for chunk in {*inner.texts, *outer.texts, UNNAMED}:
        wild = dialect._is_wild(chunk, number)
        if after := inner.step(here, chunk, wild):
            yield after, outer.step(there, chunk, wild)
