"""How a network writes keys and patterns: zenoh's key expressions, MQTT's topics and NATS's subjects.

A pattern is an automaton over chunks: its state is the set of positions that the chunks so far can have reached, kept
as the bits of an integer. Matching runs a key through it. `includes` runs all keys of the narrow pattern through the
automaton of the wide one, with one chunk for all that neither pattern names; that is exact, as wildcards tell chunks
apart in no other way.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
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
        """A key or pattern of its chunks.

        >>> NATS.join(["city", "Loop", "_"])
        'city.Loop._'
        """
        return self.separator.join(chunks)

    def split(self, key: str) -> list[str]:
        """The chunks of a key or pattern."""
        return key.split(self.separator)

    def matches(self, pattern: str, key: str) -> bool:
        """Whether a key matches a pattern by the rules of the system; False if one of them is not valid.

        >>> MQTT.matches("#", "$SYS/uptime"), MQTT.matches("city/#", "city")
        (False, True)
        """
        automaton = _parse(self, pattern)
        if automaton is None or not self.is_key(key):
            return False
        state = automaton.start
        for number, chunk in enumerate(key.split(self.separator)):
            state = automaton.step(state, chunk, self._is_wild(chunk, number))
        return automaton.is_end(state)

    def includes(self, wide: str, narrow: str) -> bool:
        """Whether every key that matches `narrow` matches `wide`; False if one of them is not valid.

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
            if inner.is_end(here) and not outer.is_end(there):
                return False
            new = set(_next_states(self, inner, outer, here, there, 1)) - seen
            seen |= new
            todo += new
        return True

    def is_key(self, text: str) -> bool:
        """Whether a text is a valid key: no wildcard, and no empty chunk unless the system allows it.

        >>> ZENOH.is_key("city/Loop"), ZENOH.is_key("city//Loop"), MQTT.is_key("city/+")
        (True, False, False)
        """
        return (
            text != ""
            and _is_encodable(text)
            and all(self._is_key_chunk(chunk) for chunk in text.split(self.separator))
        )

    def is_pattern(self, text: str) -> bool:
        """Whether a text is a valid pattern; every key is one.

        >>> MQTT.is_pattern("city/#"), MQTT.is_pattern("#/city"), NATS.is_pattern("city.>")
        (True, False, True)
        """
        return _parse(self, text) is not None

    def escape(self, text: str) -> str:
        """Any text as one chunk, the same in all dialects: letters, digits, `_` and `-` stay, others become codes.

        The chunk is never empty, and never just `_`; different texts have different chunks.

        >>> ZENOH.escape("traffic.Loop"), ZENOH.escape("A8/km 31"), ZENOH.escape("")
        ('traffic~2ELoop', 'A8~2Fkm~2031', '~')
        """
        if PLAIN.fullmatch(text) and text != "_":
            return text
        if text in ("", "_"):
            return "~5F" if text else NOTHING
        return _ODD_BYTE.sub(lambda odd: b"~%02X" % odd[0][0], text.encode("utf-8", "surrogatepass")).decode("ascii")

    def unescape(self, chunk: str) -> str | None:
        """The text of a chunk that `escape` made; None of any other.

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

    def _is_key_chunk(self, chunk: str) -> bool:
        return (self.empty_chunks if not chunk else not any(sign in chunk for sign in self.special)) and (
            chunk not in (self.one, self.rest)
        )

    def _is_wild(self, chunk: str, number: int) -> bool:
        """Whether wildcards can match a chunk of a key, in this place."""
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


class _Token(NamedTuple):
    """One chunk of a pattern: a text, one chunk, any number of chunks, or a chunk with wildcards inside."""

    text: str
    one: bool = False
    rest: bool = False
    inside: re.Pattern[str] | None = None

    def takes(self, chunk: str, wild: bool) -> bool:
        if self.one or self.rest:
            return wild
        return chunk == self.text or (self.inside is not None and wild and self.inside.fullmatch(chunk) is not None)


class _Automaton(NamedTuple):
    """The tokens of a pattern; bit n of a state is set if the first n tokens can match the chunks so far."""

    tokens: tuple[_Token, ...]

    @property
    def start(self) -> int:
        return self._close(1)

    def is_end(self, state: int) -> bool:
        return bool(state >> len(self.tokens))

    def step(self, state: int, chunk: str, wild: bool) -> int:
        after = 0
        for number, token in enumerate(self.tokens):
            if state >> number & 1 and token.takes(chunk, wild):
                after |= 1 << number + (not token.rest)
        return self._close(after)

    def _close(self, state: int) -> int:
        """A token for any number of chunks can be passed without one."""
        for number, token in enumerate(self.tokens):
            if token.rest and state >> number & 1:
                state |= 2 << number
        return state


@lru_cache(maxsize=4096)
def _parse(dialect: Dialect, pattern: str) -> _Automaton | None:
    """The automaton of a pattern; None if it is not valid."""
    chunks = dialect.split(pattern)
    tokens: list[_Token] = []
    for number, chunk in enumerate(chunks):
        if chunk == dialect.rest:
            if dialect.rest_ends and number < len(chunks) - 1:
                return None
            tokens += [_Token(dialect.one, one=True)] * dialect.rest_least
            tokens.append(_Token(chunk, rest=True))
        elif (token := _read_token(dialect, chunk)) is not None:
            tokens.append(token)
        else:
            return None
    return _Automaton(tuple(tokens)) if pattern and _is_encodable(pattern) else None


def _read_token(dialect: Dialect, chunk: str) -> _Token | None:
    if chunk == dialect.one:
        return _Token(chunk, one=True)
    if not dialect.part or dialect.part not in chunk:
        return _Token(chunk) if dialect._is_key_chunk(chunk) else None
    parts = chunk.split(dialect.part)
    if any(sign in part for part in parts for sign in dialect.special):
        return None
    return _Token(chunk, inside=re.compile(".*".join(map(re.escape, parts)), re.DOTALL))


def _next_states(
    dialect: Dialect, inner: _Automaton, outer: _Automaton, here: int, there: int, number: int
) -> Iterator[tuple[int, int]]:
    """The states of both patterns after each chunk that they tell apart and the inner one can take."""
    for chunk in _alphabet((*inner.tokens, *outer.tokens)):
        wild = dialect._is_wild(chunk, number)
        if after := inner.step(here, chunk, wild):
            yield after, outer.step(there, chunk, wild)


def _alphabet(tokens: Sequence[_Token]) -> set[str]:
    """The chunks that patterns name, and one that they do not; a chunk with wildcards inside stands for its texts."""
    return {token.text for token in tokens if not (token.one or token.rest)} | {UNNAMED}


def _is_encodable(text: str) -> bool:
    """Whether UTF-8 has a form of a text, as it has not of half a surrogate pair."""
    return text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)
