"""Merging: the fewest subscriptions that cover many, for binding tables and acceptance filters.

Three steps. What another subscription covers is dropped. Subscriptions that ask for the same attributes and say the
same are merged upwards, to the highest types whose classes are all wanted, or nearly all if an excess is allowed.
Those left on one type are joined into one by `or`, which accepts nothing more.
"""

from collections.abc import Iterable, Sequence

import msgspec

from genus.filters._covering import conjuncts, covers
from genus.filters._expression import And, Attribute, Not, Or, Predicate, Present
from genus.filters._subscription import AllOf, Subscription
from genus.model import name_of, parents


class Merged(msgspec.Struct, frozen=True):
    """A subscription that stands for several, and the classes it accepts that none of them asked for."""

    subscription: Subscription
    members: tuple[Subscription, ...]
    excess: tuple[type, ...] = ()


class Bindings(msgspec.Struct, frozen=True):
    """How many entries a binding table needs: one per class, one per subscription, and merged."""

    per_class: int
    per_type: int
    merged: tuple[Merged, ...]

    @property
    def saved(self) -> float:
        """The share of the per-class entries that types make unnecessary."""
        return 1 - len(self.merged) / self.per_class if self.per_class else 0.0


def bindings(subscriptions: Iterable[Subscription]) -> Bindings:
    """What a binding table costs without super-types, with them, and merged (LooCI's question).

    >>> from genus import Event, Kind, Subscription
    >>> class Sensor(Kind): ...
    >>> class Door(Event, Sensor):
    ...     open: bool
    >>> class Window(Event, Sensor):
    ...     open: bool
    >>> table = bindings([Subscription(Sensor)])
    >>> table.per_class, table.per_type, len(table.merged)
    (2, 1, 1)
    """
    wanted = list(dict.fromkeys(subscriptions))
    return Bindings(sum(len(one.classes()) for one in wanted), len(wanted), tuple(merge(wanted)))


def merge(subscriptions: Iterable[Subscription], *, excess: int = 0) -> list[Merged]:
    """The fewest subscriptions that together cover all, each accepting at most `excess` classes nobody asked for.

    Fewest is exact on a tree of types; where kinds overlap, the largest gain is taken first. An event class that
    nobody can publish yet may be declared later: below a merged type it will be accepted, as below any type.
    """
    wanted = [Merged(one, (one,)) for one in dict.fromkeys(subscriptions)]
    raised = [one for group in _grouped(_uncovered(wanted)) for one in _raise_types(group, excess)]
    return _join_alternatives(_uncovered(raised))


def _uncovered(merged: list[Merged]) -> list[Merged]:
    """Those no other one covers, each standing for what it covers."""
    kept: list[Merged] = []
    for one in merged:
        host = next((place for place, other in enumerate(kept) if covers(other.subscription, one.subscription)), None)
        if host is not None:
            kept[host] = _absorbing(kept[host], [one])
            continue
        covered = [other for other in kept if covers(one.subscription, other.subscription)]
        kept = [other for other in kept if other not in covered] + [_absorbing(one, covered)]
    return kept


def _absorbing(host: Merged, others: list[Merged]) -> Merged:
    members = dict.fromkeys(member for one in (host, *others) for member in one.members)
    return Merged(host.subscription, tuple(members), host.excess)


def _grouped(merged: list[Merged]) -> list[list[Merged]]:
    """Grouped by all they ask besides the type."""
    groups: dict[object, list[Merged]] = {}
    for one in merged:
        key = (one.subscription.has, one.subscription.lacks, one.subscription.where)
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _raise_types(group: list[Merged], excess: int) -> list[Merged]:
    """Replace several types by one above them while that takes in no more unwanted classes than allowed."""
    wanted = {cls for one in group for cls in one.subscription.classes()}
    candidates = _candidates(group, wanted, excess) if len(group) > 1 else []
    remaining, chosen = list(group), []
    for candidate, classes in candidates:
        inside = [one for one in remaining if covers(candidate, one.subscription)]
        if len(inside) > 1:
            remaining = [one for one in remaining if one not in inside]
            members = tuple(member for one in inside for member in one.members)
            chosen.append(Merged(candidate, members, tuple(sorted(classes - wanted, key=name_of))))
    return [*chosen, *remaining]


def _candidates(group: list[Merged], wanted: set[type], excess: int) -> list[tuple[Subscription, frozenset[type]]]:
    """Subscriptions to higher types that stay within the excess, the one with most classes first."""
    found = []
    for cls in _ancestors(one.subscription.type for one in group):
        higher = _retyped(group[0].subscription, cls)
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


def _retyped(subscription: Subscription, cls: type) -> Subscription | None:
    """The same question asked of another type, if that type knows the attributes."""
    from genus.errors import SubscriptionError

    try:
        return Subscription(cls, has=subscription.has, lacks=subscription.lacks, where=subscription.where)
    except SubscriptionError:
        return None


def _join_alternatives(merged: Sequence[Merged]) -> list[Merged]:
    """One subscription per type: what is common is asked of all, the rest are alternatives."""
    by_type: dict[object, list[Merged]] = {}
    for one in merged:
        by_type.setdefault((one.subscription.types, one.subscription.exact), []).append(one)
    return [group[0] if len(group) == 1 else _joined(group) for group in by_type.values()]


def _joined(group: list[Merged]) -> Merged:
    first = group[0].subscription
    has = set(first.has).intersection(*(one.subscription.has for one in group))
    lacks = set(first.lacks).intersection(*(one.subscription.lacks for one in group))
    options = [_rest(one.subscription, has, lacks) for one in group]
    where = None if None in options else Or(tuple(option for option in options if option is not None))
    joined = Subscription(AllOf(first.types), exact=first.exact, has=has, lacks=lacks, where=where)
    members = tuple(member for one in group for member in one.members)
    return Merged(joined, members, tuple(dict.fromkeys(cls for one in group for cls in one.excess)))


def _rest(subscription: Subscription, has: set[str], lacks: set[str]) -> Predicate | None:
    """What a subscription asks beyond the common attributes, as one predicate."""
    present = [Present(Attribute(name)) for name in subscription.has if name not in has]
    absent = [Not(Present(Attribute(name))) for name in subscription.lacks if name not in lacks]
    parts = (*present, *absent, *conjuncts(subscription.where))
    return And(parts) if len(parts) > 1 else parts[0] if parts else None
