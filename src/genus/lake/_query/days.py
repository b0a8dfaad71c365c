"""The days whose events can match a predicate on `time`.

The day of an event, which is in the paths of files, is that of its time in UTC, or of its recording if it has no time.
So days are skipped only if no event without a time can match. For each part of a predicate there are two sets of days:
those with times for which it may be true, and those for which it may be false; both may contain too many.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._covering import needed_attributes
from genus.filters._expression import DURATION_UNITS
from genus.model import TimeType
from genus.targets._intervals import Interval, Times, attribute_of, intervals, merge_intervals

TIME = "time"
_EPOCH = date(1970, 1, 1).toordinal()
FIRST, LAST = date.min.toordinal(), date.max.toordinal()


@dataclass(frozen=True, slots=True)
class DaySet:
    """Days as closed intervals of ordinals of the calendar, ascending, and whether events without a time belong."""

    spans: tuple[Interval, ...]
    timeless: bool

    def __and__(self, other: "DaySet") -> "DaySet":
        neither = merge_intervals((*_other_days(self.spans), *_other_days(other.spans)))
        return DaySet(_other_days(neither), self.timeless and other.timeless)

    def __or__(self, other: "DaySet") -> "DaySet":
        return DaySet(tuple(merge_intervals((*self.spans, *other.spans))), self.timeless or other.timeless)

    def limits(self) -> tuple[Interval, ...] | None:
        """The days whose events can belong; None if any day's can."""
        return None if self.timeless or self.spans == EVERY.spans else self.spans


EVERY = DaySet(((FIRST, LAST),), True)
TIMED = DaySet(((FIRST, LAST),), False)
TIMELESS = DaySet((), True)


def matching_days(subscription: Subscription) -> tuple[Interval, ...] | None:
    """The days whose events can match, as ordinals of `date`; None if any day's can.

    >>> from genus import Event, Subscription
    >>> asked = Subscription.parse("Event where not @2026-05-02T00:00:00Z <= time and time >= @2026-05-01T06:00:00Z")
    >>> [tuple(map(date.fromordinal, span)) for span in matching_days(asked)]
    [(datetime.date(2026, 5, 1), datetime.date(2026, 5, 1))]
    """
    found = EVERY if subscription.where is None else _days(subscription.where).true
    if TIME in subscription.has:
        found &= TIMED
    if TIME in subscription.lacks:
        found &= TIMELESS
    return found.limits()


def is_within(day: int, spans: Iterable[Interval] | None) -> bool:
    """Whether a day is in one of some intervals; None stands for every day."""
    return spans is None or any(low <= day <= high for low, high in spans)


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """The days for which a predicate may be true, and may be false."""

    true: DaySet
    false: DaySet


def _days(predicate: x.Predicate) -> _Outcomes:
    match predicate:
        case x.And(operands):
            return _combine([_days(each) for each in operands], DaySet.__and__, DaySet.__or__)
        case x.Or(operands):
            return _combine([_days(each) for each in operands], DaySet.__or__, DaySet.__and__)
        case x.Not(operand):
            inner = _days(operand)
            return _Outcomes(inner.false, inner.true)
        case x.Present(x.AttributeRef(name)) if name == TIME:
            return _Outcomes(TIMED, TIMELESS)
        case x.Compare("!=", left, right):
            return _days(x.Not(x.Compare("==", left, right)))
    return _days_of_test(predicate)


def _combine(
    parts: list[_Outcomes], true: Callable[[DaySet, DaySet], DaySet], false: Callable[[DaySet, DaySet], DaySet]
) -> _Outcomes:
    first, *others = parts
    for each in others:
        first = _Outcomes(true(first.true, each.true), false(first.false, each.false))
    return first


def _days_of_test(test: x.Predicate) -> _Outcomes:
    """The days of a comparison; one that needs `time` is neither true nor false without it."""
    attribute = attribute_of(test)
    if attribute is not None and attribute.name == TIME and isinstance(attribute.type, TimeType):
        domain = Times()
        found = intervals(test, domain)
        if found is not None:
            others = _complement(found, domain.low, domain.high)
            return _Outcomes(DaySet(_as_days(found), False), DaySet(_as_days(others), False))
    return _Outcomes(TIMED, TIMED) if TIME in needed_attributes(test) else _Outcomes(EVERY, EVERY)


def _as_days(times: Iterable[Interval]) -> tuple[Interval, ...]:
    """The days of intervals of microseconds."""
    days = ((max(_day(low), FIRST), min(_day(high), LAST)) for low, high in times)
    return tuple(merge_intervals(days))


def _day(micros: int) -> int:
    return micros // DURATION_UNITS["d"] + _EPOCH


def _other_days(spans: Iterable[Interval]) -> tuple[Interval, ...]:
    return _complement(spans, FIRST, LAST)


def _complement(spans: Iterable[Interval], low: int, high: int) -> tuple[Interval, ...]:
    """What is between ascending disjoint intervals.

    >>> _complement([(1, 2), (5, 9)], 0, 9)
    ((0, 0), (3, 4))
    """
    bounds = [low - 1, *(end for span in spans for end in span), high + 1]
    gaps = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple((after + 1, before - 1) for after, before in gaps if after + 1 <= before - 1)
