"""Many subscriptions: files with one a line, and merging, the fewest that cover all of them.

A line has a subscription, with or without the name of its subscriber: `ann: Tide where level > 3`. Merging has three
steps. Subscriptions that another covers are dropped. Those with the same attributes and predicate are replaced by one
on a higher type if all its classes are wanted, or nearly all if an excess is allowed. Those left on one type are joined
into one by `or`, which accepts nothing more.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from genus.errors import SubscriptionError
from genus.filters._covering import conjuncts, covers
from genus.filters._expression import And, AttributeRef, Not, Or, Predicate, Present
from genus.filters._subscription import AllOf, Subscription, rebuild
from genus.model import name_of, parents


class MergedSubscription(msgspec.Struct, frozen=True):
    """A subscription that replaces several (`members`), and the classes it accepts in excess of them."""

    subscription: Subscription
    members: tuple[Subscription, ...]
    excess: tuple[type, ...] = ()


def merge(subscriptions: Iterable[Subscription], *, excess: int = 0) -> list[MergedSubscription]:
    """Return the fewest subscriptions that together cover all, each accepting at most `excess` classes in addition.

    The number is minimal on a tree of types; where kinds overlap, the largest gain is taken first. Only classes that
    are declared are counted: one declared later below a merged type is accepted, as below any type.
    """
    wanted = [MergedSubscription(one, (one,)) for one in dict.fromkeys(subscriptions)]
    raised = [one for group in _group(_drop_covered(wanted)) for one in _raise_types(group, excess)]
    return _join_alternatives(_drop_covered(raised))


def _drop_covered(merged: list[MergedSubscription]) -> list[MergedSubscription]:
    """Return those that no other one covers, each with the members of those it covers."""
    kept: list[MergedSubscription] = []
    for one in merged:
        host = next(
            (position for position, other in enumerate(kept) if covers(other.subscription, one.subscription)), None
        )
        if host is not None:
            kept[host] = _absorb(kept[host], [one])
            continue
        covered = [other for other in kept if covers(one.subscription, other.subscription)]
        kept = [other for other in kept if other not in covered] + [_absorb(one, covered)]
    return kept


def _absorb(host: MergedSubscription, others: list[MergedSubscription]) -> MergedSubscription:
    members = dict.fromkeys(member for one in (host, *others) for member in one.members)
    return MergedSubscription(host.subscription, tuple(members), host.excess)


def _group(merged: list[MergedSubscription]) -> list[list[MergedSubscription]]:
    """Groups with the same attributes and predicate."""
    groups: dict[object, list[MergedSubscription]] = {}
    for one in merged:
        key = (one.subscription.has, one.subscription.lacks, one.subscription.where)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _raise_types(group: list[MergedSubscription], excess: int) -> list[MergedSubscription]:
    """Replace several types by one above them while that accepts no more unwanted classes than allowed."""
    wanted = {cls for one in group for cls in one.subscription.classes()}
    candidates = _candidates(group, wanted, excess) if len(group) > 1 else []
    remaining, chosen = list(group), []
    for candidate, classes in candidates:
        inside = [one for one in remaining if covers(candidate, one.subscription)]
        if len(inside) > 1:
            remaining = [one for one in remaining if one not in inside]
            members = tuple(member for one in inside for member in one.members)
            chosen.append(MergedSubscription(candidate, members, tuple(sorted(classes - wanted, key=name_of))))
    return [*chosen, *remaining]


def _candidates(
    group: list[MergedSubscription], wanted: set[type], excess: int
) -> list[tuple[Subscription, frozenset[type]]]:
    """Subscriptions to higher types that stay within the excess, the one with most classes first."""
    found = []
    for cls in _ancestors(one.subscription.type for one in group):
        higher = _with_type(group[0].subscription, cls)
        classes = frozenset(higher.classes()) if higher is not None else frozenset()
        if higher is not None and len(classes - wanted) <= excess:
            found.append((higher, classes))
    return sorted(found, key=lambda pair: (-len(pair[1]), name_of(pair[0].type)))


def _ancestors(types: Iterable[type]) -> list[type]:
    seen: dict[type, None] = {}
    stack = [parent for cls in types for parent in parents(cls)]
    while stack:
        cls = stack.pop()
        if cls not in seen:
            seen[cls] = None
            stack.extend(parents(cls))
    return list(seen)


def _with_type(subscription: Subscription, cls: type) -> Subscription | None:
    """Return the same subscription to another type; None if that type does not have the attributes."""
    try:
        return rebuild(cls, has=subscription.has, lacks=subscription.lacks, where=subscription.where)
    except SubscriptionError:
        return None


def _join_alternatives(merged: Sequence[MergedSubscription]) -> list[MergedSubscription]:
    """One subscription per type: common attributes are required, the rest are alternatives."""
    by_type: dict[object, list[MergedSubscription]] = {}
    for one in merged:
        by_type.setdefault((one.subscription.types, one.subscription.exact), []).append(one)
    return [group[0] if len(group) == 1 else _join(group) for group in by_type.values()]


def _join(group: list[MergedSubscription]) -> MergedSubscription:
    first = group[0].subscription
    has = set(first.has).intersection(*(one.subscription.has for one in group))
    lacks = set(first.lacks).intersection(*(one.subscription.lacks for one in group))
    options = [_rest(one.subscription, has, lacks) for one in group]
    where = None if None in options else Or(tuple(option for option in options if option is not None))
    joined = rebuild(AllOf(first.types), exact=first.exact, has=has, lacks=lacks, where=where)
    members = tuple(member for one in group for member in one.members)
    return MergedSubscription(joined, members, tuple(dict.fromkeys(cls for one in group for cls in one.excess)))


def _rest(subscription: Subscription, has: set[str], lacks: set[str]) -> Predicate | None:
    """Return what a subscription requires beyond the common attributes, as one predicate."""
    present = [Present(AttributeRef(name)) for name in subscription.has if name not in has]
    absent = [Not(Present(AttributeRef(name))) for name in subscription.lacks if name not in lacks]
    parts = (*present, *absent, *conjuncts(subscription.where))
    return And(parts) if len(parts) > 1 else parts[0] if parts else None


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
