"""The columns of the events that a subscription selects.

By default they are the attributes of the subscribed type, so that they do not change when a subtype is registered; of a
kind, which several families may have, those that every event has. With subtypes, they are the attributes of all types
whose events can match.
"""

from collections.abc import Iterable, Iterator, Mapping

from genus.catalog import Catalog, TypeEntry
from genus.errors import LakeError
from genus.filters import Subscription
from genus.lake._tables.lake_catalog import attribute_names, family_name
from genus.lake._tables.names import DAY, OWN_COLUMNS, find_case_twins
from genus.model import Attribute, Event, attributes, is_event_type

ADDED = (*OWN_COLUMNS, DAY)
"""The columns that Genus adds, which come last."""


def family_of(subscription: Subscription, catalog: Catalog) -> str:
    """The family that the attributes of a subscription belong to; `Event` for a kind."""
    cls = subscription.type
    return family_name(cls, catalog) if is_event_type(cls) else "Event"


def attribute_columns(subscription: Subscription) -> list[str]:
    """The attributes of the subscribed type; of a kind, those that every event has."""
    cls = subscription.type
    return [attribute.name for attribute in attributes(cls if is_event_type(cls) else Event)]


def result_columns(subscription: Subscription) -> list[str]:
    """The attributes of the subscribed type, then the columns that Genus adds."""
    return [*attribute_columns(subscription), *ADDED]


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
    entries = catalog.entries
    found = {
        family: [each for each in catalog.vector(family) if each.name in set(_names(types, catalog, entries))]
        for family, types in families.items()
    }
    forms: dict[str, set[tuple[object, ...]]] = {}
    for each in (each for listed in found.values() for each in listed):
        forms.setdefault(each.name.lower(), set()).add((each.name, each.type, each.unit))
    named = {
        family: {each.name: _column(family, each, len(forms[each.name.lower()]) > 1) for each in listed}
        for family, listed in found.items()
    }
    _check_distinct(named, forms)
    return named


def _names(types: Iterable[str], catalog: Catalog, entries: Mapping[str, TypeEntry]) -> Iterator[str]:
    """The attributes of some types; all of the family if the catalog lacks a type."""
    for name in types:
        if name in entries:
            yield from attribute_names(name, entries)
        else:
            yield from (each.name for family in catalog.families.values() for each in family)


def _column(family: str, attribute: Attribute, is_ambiguous: bool) -> str:
    return f"{family.replace('.', '_')}_{attribute.name}" if is_ambiguous else attribute.name


def _check_distinct(named: Mapping[str, Mapping[str, str]], forms: Mapping[str, object]) -> None:
    made = {column for columns in named.values() for name, column in columns.items() if column != name}
    every = {column for columns in named.values() for column in columns.values()}
    taken = sorted(column for column in made if column.lower() in forms)
    if taken or (twins := find_case_twins(every)):
        raise LakeError(
            f"two attributes would have the column {taken[0] if taken else twins}; read the families one by one"
        )
