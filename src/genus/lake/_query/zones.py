"""What a predicate can be on the rows of a zone, of which only bounds of the attributes are known.

A zone is a row group of a Parquet file, with the bounds in its statistics, or the events of one day. The possible
outcomes are a set that may be too large: if true is not among them, no row matches, and if it is the only one, every
row does. Values are compared as Parquet statistics have them: times and durations in microseconds, text in UTF-8.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import reduce
from typing import Any, NamedTuple

import genus.filters.internal as x
from genus.filters.internal import COMPARE, OPPOSITE, as_test, needed_attributes
from genus.model import micros_of_duration, micros_of_time
from genus.model.types import FloatType

FALSE, UNKNOWN, TRUE = 1, 2, 4
EVERY = FALSE | UNKNOWN | TRUE


class Values(NamedTuple):
    """What is known of an attribute in a zone; None for a bound that is not known."""

    low: Any = None
    high: Any = None
    may_be_present: bool = True
    may_be_absent: bool = True


ANY = Values()
ABSENT = Values(may_be_present=False)
PRESENT = Values(may_be_absent=False)
Zone = Mapping[str, Values]
"""The attributes of which something is known, by name."""


def outcomes(predicate: x.Predicate | None, zone: Zone) -> int:
    """Return the possible outcomes, as a sum of FALSE, UNKNOWN and TRUE; without a predicate, every row matches.

    >>> from genus import Event, Subscription
    >>> class Hoist(Event):
    ...     load: int
    >>> asked = Subscription.parse("Hoist where not load < 5", [Hoist])
    >>> outcomes(asked.where, {"load": Values(1, 3, may_be_absent=False)}) == FALSE
    True
    """
    match predicate:
        case None:
            return TRUE
        case x.And(operands):
            return reduce(_both, (outcomes(each, zone) for each in operands))
        case x.Or(operands):
            return _negated(reduce(_both, (_negated(outcomes(each, zone)) for each in operands)))
        case x.Not(operand):
            return _negated(outcomes(operand, zone))
        case x.Present(x.AttributeRef(name)):
            known = zone.get(name, ANY)
            return TRUE * known.may_be_present | FALSE * known.may_be_absent
    return _outcomes_of_test(predicate, zone)


def _negated(found: int) -> int:
    return (found & UNKNOWN) | TRUE * bool(found & FALSE) | FALSE * bool(found & TRUE)


def _both(first: int, second: int) -> int:
    """Return the outcomes of a conjunction of two parts."""
    unknown = (first & UNKNOWN and second & (UNKNOWN | TRUE)) or (second & UNKNOWN and first & TRUE)
    return (first & second & TRUE) | ((first | second) & FALSE) | UNKNOWN * bool(unknown)


def _outcomes_of_test(test: x.Predicate, zone: Zone) -> int:
    """Return the outcomes of a comparison, which is unknown if an attribute that it needs is absent."""
    read = [zone.get(name, ANY) for name in needed_attributes(test)]
    if not all(known.may_be_present for known in read):
        return UNKNOWN
    match as_test(test):
        case (x.AttributeRef(name, type_), op, constant):
            may_be_nan = isinstance(type_, FloatType)  # NaN is in no statistics
            found = _compared(zone.get(name, ANY), op, constant)
            return found | UNKNOWN * (may_be_nan or any(known.may_be_absent for known in read))
        case (x.ToFloat(x.AttributeRef(name)), op, constant):
            known = zone.get(name, ANY)
            bounds = known._replace(low=_as_float(known.low), high=_as_float(known.high))
            return _compared(bounds, op, constant) | UNKNOWN
    return EVERY


def _as_float(bound: Any) -> float | None:
    return None if bound is None else float(bound)


def _compared(known: Values, op: str, constant: Any) -> int:
    """Return whether a value between the bounds can pass a test, and whether one can fail it."""
    low, high = known.low, known.high
    if op == "in":
        keys = [key_of(each) for each in constant]
        passes = any(_may_be(low, high, "==", key) for key in keys)
        return TRUE * passes | FALSE * (low is None or low != high or low not in keys)
    if op not in OPPOSITE:
        return TRUE | FALSE
    key = key_of(constant)
    return TRUE * _may_be(low, high, op, key) | FALSE * _may_be(low, high, OPPOSITE[op], key)


def _may_be(low: Any, high: Any, op: str, key: Any) -> bool:
    match op:
        case "<" | "<=":
            return low is None or COMPARE[op](low, key)
        case ">" | ">=":
            return high is None or COMPARE[op](high, key)
        case "==":
            return (low is None or low <= key) and (high is None or key <= high)
    return low is None or high is None or not low == high == key


def key_of(constant: Any) -> Any:
    """A constant as statistics have it.

    >>> key_of("é"), key_of(timedelta(seconds=1)), key_of(2.5)
    (b'\\xc3\\xa9', 1000000, 2.5)
    """
    match constant:
        case str():
            return constant.encode("utf-8", "surrogatepass")
        case datetime():
            return micros_of_time(constant)
        case timedelta():
            return micros_of_duration(constant)
    return constant
