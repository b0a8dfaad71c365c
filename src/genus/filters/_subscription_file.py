"""Files of subscriptions: one a line, with or without the name of its subscriber.

# the harbour's
ann: Tide where level > 3
Tide has place
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from genus.errors import SubscriptionError
from genus.filters._subscription import Subscription

Parse = Callable[[str], Subscription]


def read_subscriptions(
    source: str | os.PathLike[str] | Iterable[str],
    parse: Parse = Subscription.parse,
    on_error: Callable[[SubscriptionError], object] | None = None,
) -> list[tuple[str, Subscription]]:
    """Read the subscriptions of a text file, or of lines, each with its subscriber.

    A line reads `subscriber: Loop has place where speed > 30`. Without a subscriber, the text of the subscription is
    its name. Empty lines and lines that begin with # are skipped.

    Args:
        source: The path of a file, or lines.
        parse: Reads one subscription; by default its types are looked up among all declared.
        on_error: Called with the error of each line that cannot be read; the other lines are returned.

    Raises:
        SubscriptionError: A line cannot be read; the message names it. Not with `on_error`. Also for a file that cannot
            be opened.

    >>> from genus import Event
    >>> class EbbTide(Event):
    ...     level: float
    >>> read_subscriptions(["ann: EbbTide where level > 3", "# both", "EbbTide"])
    [('ann', Subscription('EbbTide where level > 3.0')), ('EbbTide', Subscription('EbbTide'))]
    """
    name, lines = read_lines(source)
    found = []
    for number, line in significant(lines):
        try:
            found.append(_read_line(line, f"{name} {number}", parse))
        except SubscriptionError as problem:
            if on_error is None:
                raise
            on_error(problem)
    return found


def check_text(line: str) -> None:
    if any("\ud800" <= sign <= "\udfff" for sign in line):
        raise SubscriptionError("not UTF-8 text")


def read_lines(source: str | os.PathLike[str] | Iterable[str]) -> tuple[str, Iterable[str]]:
    """Return what lines are called in messages, and the lines."""
    if not isinstance(source, str | os.PathLike):
        return "line", source
    path = os.fspath(source)
    try:
        return f"{path}, line", Path(path).read_bytes().decode("utf-8-sig", "surrogateescape").split("\n")
    except OSError as problem:
        raise SubscriptionError(f"cannot read {path}: {problem.strerror or problem}") from problem


def significant(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Return the lines that are neither empty nor comments, with their numbers."""
    stripped = ((number, line.strip()) for number, line in enumerate(lines, 1))
    return ((number, line) for number, line in stripped if line and not line.startswith("#"))


def _read_line(line: str, where: str, parse: Parse) -> tuple[str, Subscription]:
    """A colon may end the name of a subscriber, or be part of a time or a text in the subscription."""
    before, colon, rest = line.partition(":")
    try:
        check_text(line)
        if colon and not before.strip():
            raise SubscriptionError(f"{line!r} names no subscriber before the colon")
        if not colon:
            return _named("", parse(line))
        try:
            return _named(before.strip(), parse(rest.strip()))
        except SubscriptionError:
            if not _may_be_subscription(before):
                raise
            return _named("", parse(line))
    except SubscriptionError as problem:
        raise SubscriptionError(f"{where}: {problem}") from problem


def _may_be_subscription(before_colon: str) -> bool:
    return " where " in before_colon


def _named(subscriber: str, subscription: Subscription) -> tuple[str, Subscription]:
    return subscriber or str(subscription), subscription
