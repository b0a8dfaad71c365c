"""The planner of what is read for a subscription: families, types, columns and, by the ledger alone, parts of tables.

By default the columns are the attributes of the subscribed type, so that they do not change when a subtype is
registered; of a kind, which several families may have, those that every event has. With subtypes, they are the
attributes of all types whose events can match.

The folder of a part says the day of its events, and a shape their type and which attributes they carry. So parts
without matches are left out. A subscription to types and attributes is counted without opening a file, and so is a
predicate on `time` for the days that it includes or excludes as a whole.

A *zone* is a set of rows of which only bounds of the attributes are known: a row group of a Parquet file, with the
bounds in its statistics, or the events of one day. The possible outcomes of a predicate there are a set that may be too
large: if true is not among them, no row matches, and if it is the only one, every row does. Values are compared as
Parquet statistics have them: times and durations in microseconds, text in UTF-8.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import cache, reduce
from typing import Any, NamedTuple, TypeAlias

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.catalog.types import TypeEntry
from genus.errors import LakeError
from genus.filters import Subscription
from genus.filters.internal import COMPARE, DURATION_UNITS, OPPOSITE, as_test, needed_attributes
from genus.lake._tables.commits import DAY, OWN_COLUMNS, Part, find_case_twins
from genus.lake._tables.lake_catalog import attribute_names, family_name, matching_types
from genus.lake._tables.state import LedgerState
from genus.model import Event, attributes, is_event_type, micros_of_duration, micros_of_time
from genus.model.internal import hidden_names
from genus.model.types import Attribute, FloatType, Vector

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


# -- tables, columns and parts -----------------------------------------------------------------------------------------


ADDED = (*OWN_COLUMNS, DAY)
"""The columns that Genus adds, which come last."""
_EPOCH = date(1970, 1, 1)
_DAY_US = DURATION_UNITS["d"]
_TIME = "time"


class SelectedTable(NamedTuple):
    vector: Vector
    types: tuple[str, ...]
    """The types that can match."""
    columns: dict[str, Attribute]
    """The attributes of the result that this family has, by the names of their columns."""
    parts: list[Part]
    """The parts with events of days that can match."""

    def expressions(self, name: Callable[[Attribute], str]) -> dict[str, str]:
        """Each column in SQL; NULL if the family has an attribute of another type than is meant."""
        return {
            column: f"`{name(each)}`" if each in self.vector else "CAST(NULL AS STRING)"
            for column, each in self.columns.items()
        }


def select_tables(
    subscription: Subscription,
    catalog: Catalog,
    state: LedgerState,
    *,
    subtypes: bool = False,
    parts: Iterable[Part] | None = None,
) -> dict[str, SelectedTable]:
    """Return what is read of each family in a state of a lake; one without types if no type conforms.

    With `subtypes`, the columns are the attributes of all types that can match. `parts` are those that are read, by
    default all of the state.
    """
    entries, can_match = catalog.entries, day_test(subscription)
    unregistered = [shape for name in state.shape_counts if name not in entries for _, shape in state.shapes_of[name]]
    families = matching_types(subscription, catalog, unregistered)
    named = subtype_columns(families, catalog) if subtypes else {}
    own = {name: name for name in attribute_columns(subscription)}
    given = None if parts is None else list(parts)
    selected = {}
    for family, types in (families or {family_of(subscription, catalog): []}).items():
        vector = catalog.vector(family)
        there = state.table(family) if given is None else [part for part in given if part.table == family]
        hidden = frozenset() if subtypes else hidden_names(vector, subscription.vector)
        columns: dict[str, Attribute] = {}
        for name, column in named.get(family, own).items():
            if (found := (subscription.vector if column in hidden else vector).get(name)) is None:
                raise LakeError(f"the lake's catalog has no attribute {name!r} of {family}; register its type")
            columns[column] = found
        kept = [part for part in there if can_match(part.day)] if types else []
        selected[family] = SelectedTable(vector, tuple(types), columns, kept)
    return selected


# -- columns -----------------------------------------------------------------------------------------------------------


def family_of(subscription: Subscription, catalog: Catalog) -> str:
    """Return the family that the attributes of a subscription belong to; `Event` for a kind."""
    cls = subscription.type
    return family_name(cls, catalog) if is_event_type(cls) else "Event"


def attribute_columns(subscription: Subscription) -> list[str]:
    """Return the attributes of the subscribed type; of a kind, those that every event has."""
    cls = subscription.type
    return [attribute.name for attribute in attributes(cls if is_event_type(cls) else Event)]


def subtype_columns(families: Mapping[str, Iterable[str]], catalog: Catalog) -> dict[str, dict[str, str]]:
    """By family, the attributes of some of its types in vector order, each with the name of its column.

    An attribute that families have with different types, units or cases has a column for each of them, such as
    `Loop_speed` for `speed` of the family Loop. LakeError if another attribute has that name.

    >>> from genus import Event, Kind
    >>> class Weighed(Kind): ...
    >>> class Crate(Event, Weighed):
    ...     weight: int
    >>> class Barrel(Event, Weighed):
    ...     weight: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Crate, Barrel)
    >>> for family, columns in subtype_columns({"Crate": ["Crate"], "Barrel": ["Barrel"]}, catalog).items():
    ...     print(family, list(columns.values()))
    Crate ['time', 'source', 'place', 'deadline', 'expires', 'Crate_weight']
    Barrel ['time', 'source', 'place', 'deadline', 'expires', 'Barrel_weight']
    """
    found: dict[str, list[Attribute]] = {}
    forms: dict[str, set[tuple[object, ...]]] = {}
    for family, types in families.items():
        names = set(_names(types, catalog, catalog.entries))
        found[family] = [each for each in catalog.vector(family) if each.name in names]
        for each in found[family]:
            forms.setdefault(each.name.lower(), set()).add((each.name, each.type, each.unit))
    named: dict[str, dict[str, str]] = {}
    for family, listed in found.items():
        prefix = f"{family.replace('.', '_')}_"
        named[family] = {
            each.name: (prefix if len(forms[each.name.lower()]) > 1 else "") + each.name for each in listed
        }
    _check_distinct(named, forms)
    return named


def _names(types: Iterable[str], catalog: Catalog, entries: Mapping[str, TypeEntry]) -> Iterator[str]:
    """Yield the attributes of some types; all of the family if the catalog lacks a type."""
    for name in types:
        if name in entries:
            yield from attribute_names(name, entries)
        else:
            yield from (each.name for family in catalog.families.values() for each in family)


def _check_distinct(named: Mapping[str, Mapping[str, str]], forms: Mapping[str, object]) -> None:
    made = {column for columns in named.values() for name, column in columns.items() if column != name}
    every = {column for columns in named.values() for column in columns.values()}
    taken = sorted(column for column in made if column.lower() in forms)
    if taken or (twins := find_case_twins(every)):
        raise LakeError(
            f"two attributes would have the column {taken[0] if taken else twins}; read the families one by one"
        )


# -- parts -------------------------------------------------------------------------------------------------------------


def day_test(subscription: Subscription) -> Callable[[date | None], bool]:
    """A test whether events in parts of a day can match; those without a time are under the day of their recording.

    >>> from genus import Subscription
    >>> can_match = day_test(Subscription.parse("Event where time >= @2026-05-01T06:00:00Z"))
    >>> can_match(date(2026, 4, 30)), can_match(date(2026, 5, 1))
    (False, True)
    """
    where = subscription.where
    timeless = _TIME not in subscription.has and outcomes(where, {_TIME: ABSENT}) & TRUE
    timed = _TIME not in subscription.lacks
    return cache(lambda day: bool(timeless or (timed and outcomes(where, {_TIME: _times_of(day)}) & TRUE)))


def _times_of(day: date | None) -> Values:
    if day is None:
        return PRESENT
    start = (day - _EPOCH).days * _DAY_US
    return Values(start, start + _DAY_US - 1, may_be_absent=False)


CountedPart: TypeAlias = tuple[Part, int | None]
"""A part that can have matches, and the number of matching rows; None if the ledger does not say."""


def count_parts(subscription: Subscription, table: SelectedTable, state: LedgerState) -> list[CountedPart]:
    """Return the parts of a table that can have matches, by their shapes."""
    counts = _PartCounts(subscription, table, state)
    return [(part, rows) for part in table.parts if (rows := counts.count(part)) != 0]


class _PartCounts:
    """Counts the matching rows of parts of one family by their shapes."""

    def __init__(self, subscription: Subscription, table: SelectedTable, state: LedgerState) -> None:
        self._where, self._shapes, vector = subscription.where, state.shapes, table.vector
        bits = {attribute.name: 1 << bit for bit, attribute in enumerate(vector)}
        bits |= dict.fromkeys(hidden_names(vector, subscription.vector), 1 << len(vector))  # no shape has this bit
        self._tested = {name: bits[name] for name in _tested_attributes(subscription.where) if name in bits}
        has, lacks = (sum(bits[name] for name in set(names)) for names in (subscription.has, subscription.lacks))
        listed = [each for name in table.types for each in state.shapes_of.get(name, ())]
        self._is_complete = all(shape.presence is not None for _, shape in listed)
        """Whether all shapes of the types are listed; a type with very many is listed once, without presence bits."""
        relevant = sum(self._tested.values())
        self._carried = {
            number: found & relevant
            for number, found in ((number, shape.bits) for number, shape in listed if shape.presence is not None)
            if found & has == has and not found & lacks
        }
        """Of each shape that can match: which of the tested attributes its events carry."""
        self._outcomes = cache(self._find_outcomes)

    def count(self, part: Part) -> int | None:
        """Return the number of matching rows; None if the ledger does not say."""
        shapes = part.shapes
        if shapes is None or not (self._is_complete or all(number in self._shapes for number in shapes)):
            return None
        rows = 0
        for number in shapes.keys() & self._carried.keys():
            found = self._outcomes(self._carried[number], part.day)
            if found == TRUE:
                rows += shapes[number]
            elif found & TRUE:
                return None
        return rows

    def _find_outcomes(self, carried: int, day: date | None) -> int:
        """The possible outcomes of the predicate for events of a day that carry some of the tested attributes."""
        zone = {name: PRESENT if carried & bit else ABSENT for name, bit in self._tested.items()}
        if zone.get(_TIME) is PRESENT:
            zone[_TIME] = _times_of(day)
        return outcomes(self._where, zone)


def _tested_attributes(where: x.Predicate | None) -> list[str]:
    nodes = where.walk() if where is not None else ()
    return list(dict.fromkeys(node.name for node in nodes if isinstance(node, x.AttributeRef)))
