"""What the ledger alone says about a subscription: which parts have matches, and how many, by the rows of each shape.

A shape says the type of its events and which attributes they carry, and the folder of a part says the day of their
times. So a subscription to types and attributes is counted without opening a file, and so is a predicate on `time` for
the days that it includes or excludes as a whole.
"""

from collections.abc import Mapping
from datetime import date
from functools import cache

import genus.filters._expression as x
from genus.filters import Subscription
from genus.filters._expression import DURATION_UNITS
from genus.lake._local.zones import ABSENT, PRESENT, TRUE, Values, outcomes
from genus.lake._tables.commits import Part
from genus.lake._tables.state import LedgerState
from genus.model import Vector
from genus.model._vector import hidden_names

_EPOCH = date(1970, 1, 1)
_DAY_US = DURATION_UNITS["d"]


class PartCounts:
    """Counts the matching rows of parts of one family by their shapes; `types` are the types that can match."""

    def __init__(self, subscription: Subscription, vector: Vector, types: frozenset[str], state: LedgerState) -> None:
        self._where = subscription.where
        self._shapes = state.shapes
        bits = {attribute.name: 1 << bit for bit, attribute in enumerate(vector)}
        bits |= dict.fromkeys(hidden_names(vector, subscription.vector), 1 << len(vector))  # no shape has this bit
        self._tested = {name: bits[name] for name in tested_attributes(subscription.where) if name in bits}
        has, lacks = (sum(bits[name] for name in set(names)) for names in (subscription.has, subscription.lacks))
        listed = [each for name in types for each in state.shapes_of.get(name, ())]
        self._is_complete = all(shape.tag is not None for _, shape in listed)
        """Whether all shapes of the types are listed; a type with very many is listed once, without presence bits."""
        relevant = sum(self._tested.values())
        self._carried = {
            number: found & relevant
            for number, found in ((number, shape.bits) for number, shape in listed if shape.tag is not None)
            if found & has == has and not found & lacks
        }
        """Of each shape that can match: which of the tested attributes its events carry."""
        self._outcomes = cache(self._find_outcomes)

    def count(self, part: Part) -> int | None:
        """The number of matching rows; None if the ledger does not say."""
        if part.shapes is None or not (self._is_complete or self._has_all(part.shapes)):
            return None
        day, rows = part.day, 0
        for number in part.shapes.keys() & self._carried.keys():
            found = self._outcomes(self._carried[number], day)
            if found == TRUE:
                rows += part.shapes[number]
            elif found & TRUE:
                return None
        return rows

    def _has_all(self, numbers: Mapping[int, int]) -> bool:
        return all(number in self._shapes for number in numbers)

    def _find_outcomes(self, carried: int, day: date | None) -> int:
        """The possible outcomes of the predicate for events of a day that carry some of the tested attributes."""
        zone = {name: PRESENT if carried & bit else ABSENT for name, bit in self._tested.items()}
        if day is not None and zone.get("time") is PRESENT:
            start = (day - _EPOCH).days * _DAY_US
            zone["time"] = Values(start, start + _DAY_US - 1, may_be_absent=False)
        return outcomes(self._where, zone)


def tested_attributes(where: x.Predicate | None) -> list[str]:
    """The attributes that a predicate reads."""
    nodes = where.walk() if where is not None else ()
    return list(dict.fromkeys(node.name for node in nodes if isinstance(node, x.AttributeRef)))
