"""Patterns of `like`: `%` stands for any text, also the empty one, and `_` for one character.

A character is a Unicode code point, and a newline is one as any other. An escape character before `%`, `_` or itself
stands for that character; anywhere else it is refused, as databases disagree on what it means there. A pattern is kept
in one form: the escape character is a backslash, and in a run of wildcards `_` comes first and `%` once, as `%_%` and
`_%` mean the same.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import msgspec

from genus.errors import SubscriptionError

ANY, ONE, ESCAPE = "%", "_", "\\"
MAX_PATTERN = 1000
"""The most characters of a pattern. The regular expressions of Java and RE2 have limits in the tens of thousands."""


class Pattern(msgspec.Struct, frozen=True):
    """A pattern as the segments between its `%`; in a segment, None is any one character."""

    segments: tuple[tuple[str | None, ...], ...]

    @property
    def text(self) -> str:
        """The pattern in its one form.

        >>> read_pattern("a%_!_", "!").text
        'a_%\\\\_'
        """
        return ANY.join("".join(map(_write, segment)) for segment in self.segments)

    def as_plain_test(self) -> tuple[str, str] | None:
        """Return the operator and the constant of an equal test without wildcards, else None.

        >>> read_pattern("A8%").as_plain_test()
        ('startswith', 'A8')
        """
        if any(None in segment for segment in self.segments):
            return None
        match ["".join(map(str, segment)) for segment in self.segments]:
            case [whole]:
                return "==", whole
            case [start, ""]:
                return "startswith", start
            case ["", end]:
                return "endswith", end
            case ["", part, ""]:
                return "contains", part
        return None

    def matches(self, text: str) -> bool:
        """Whether a text is like the pattern: each segment is looked for from the left, the last one at the end."""
        first, *others = self.segments
        if not others:
            return len(text) == len(first) and _fits(first, text, 0)
        *middle, last = others
        at, end = len(first), len(text) - len(last)
        if at > end or not _fits(first, text, 0) or not _fits(last, text, end):
            return False
        for segment in middle:
            found = next((i for i in range(at, end - len(segment) + 1) if _fits(segment, text, i)), None)
            if found is None:
                return False
            at = found + len(segment)
        return True

    def regex(self, *, backtracks: bool = True) -> str:
        """Return a regular expression for the whole text, without anchors; `.` must match a newline too.

        For an engine that backtracks, as those of Python and Java do, each segment is an atomic group: the leftmost
        place of a segment is never worse than a later one, so no time is spent on others.
        """
        first, *others = self.segments
        if not others:
            return _segment_regex(first)
        *middle, last = others
        inner = (f"(?>.*?{_segment_regex(one)})" if backtracks else f".*?{_segment_regex(one)}" for one in middle)
        return f"{_segment_regex(first)}{''.join(inner)}.*{_segment_regex(last)}"


def _fits(segment: tuple[str | None, ...], text: str, at: int) -> bool:
    return all(wanted in (None, letter) for wanted, letter in zip(segment, text[at : at + len(segment)], strict=True))


def _write(letter: str | None) -> str:
    return ONE if letter is None else ESCAPE + letter if letter in (ANY, ONE, ESCAPE) else letter


def _segment_regex(segment: tuple[str | None, ...]) -> str:
    return "".join("." if letter is None else re.escape(letter) for letter in segment)


def read_pattern(text: str, escape: str = ESCAPE) -> Pattern:
    """Read a pattern; SubscriptionError if its escape character is used where it has no meaning.

    >>> read_pattern("50!%", "!").segments
    (('5', '0', '%'),)
    >>> read_pattern("50!", "!")
    Traceback (most recent call last):
    genus.errors.SubscriptionError: the pattern '50!' ends with its escape character; write '!!' for one
    """
    if not isinstance(escape, str) or len(escape) != 1 or escape in (ANY, ONE):
        raise SubscriptionError(f"escape may not be {escape!r}: write one character other than % and _, such as '!'")
    if len(text) > MAX_PATTERN:
        raise SubscriptionError(f"a pattern of like has at most {MAX_PATTERN} characters, not {len(text)}")
    segments: list[list[str | None]] = [[]]
    for wildcard, letter in _letters(text, escape):
        if wildcard == ANY and (segments[-1] or len(segments) == 1):
            segments.append([])
        elif wildcard == ONE:
            _add_one(segments)
        elif not wildcard:
            segments[-1].append(letter)
    return Pattern(tuple(map(tuple, segments)))


def _add_one(segments: list[list[str | None]]) -> None:
    """Add `_`, before a `%` that it follows."""
    follows_any = len(segments) > 1 and not segments[-1]
    segments[-2 if follows_any else -1].append(None)


def _letters(text: str, escape: str) -> Iterator[tuple[str, str]]:
    """Yield the wildcards of a pattern, and its other letters with "" for the wildcard."""
    letters = iter(text)
    for letter in letters:
        if letter != escape:
            yield (letter if letter in (ANY, ONE) else ""), letter
            continue
        following = next(letters, "")
        if not following:
            raise SubscriptionError(
                f"the pattern {text!r} ends with its escape character; write {escape * 2!r} for one"
            )
        if following not in (ANY, ONE, escape):
            raise SubscriptionError(
                f"the pattern {text!r} has the escape character before {following!r}; it stands only before %, _ and "
                f"itself, so write {escape * 2!r} for {escape!r}"
            )
        yield "", following


@lru_cache(maxsize=65536)
def matcher(pattern: str) -> Callable[[str], object]:
    """A function that gives None for a text that is not like the pattern; TypeError if it is given no text.

    >>> matcher("A%_")("A8") is not None, matcher("A%_")("A") is not None
    (True, False)
    """
    return re.compile(read_pattern(pattern).regex(), re.DOTALL).fullmatch


def is_like(text: str, pattern: str) -> bool:
    """Return whether a text is like a pattern, by the definition."""
    return read_pattern(pattern).matches(text)
