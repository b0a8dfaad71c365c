"""Expiry: which events the policy of a lake removes."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from genus.catalog import Catalog
from genus.filters import Subscription
from genus.lake._query.removal import RemovalRule
from genus.lake._tables.lake_catalog import matching_types
from genus.lake._tables.retention import time_before
from genus.lake._tables.shapes import Shape


def policy_rules(
    policy: Mapping[str, timedelta], catalog: Catalog, shapes: Iterable[Shape], now: datetime | None
) -> list[RemovalRule]:
    """What a policy removes; each type is kept as long as the entry of the nearest of its supertypes says.

    Of entries that are equally near, the shortest one counts.
    """
    known = list(shapes)
    wanted = {name: Subscription(catalog.declare(name)) for name in policy}
    entries_of: dict[tuple[str, str], list[str]] = {}
    for name, subscription in wanted.items():
        for family, types in matching_types(subscription, catalog, known).items():
            for each in types:
                entries_of.setdefault((family, each), []).append(name)
    types_of: dict[str, dict[str, list[str]]] = {}
    for (family, each), names in entries_of.items():
        entry = min(_nearest(names, catalog), key=policy.__getitem__)
        types_of.setdefault(entry, {}).setdefault(family, []).append(each)
    return [RemovalRule(wanted[name], types, time_before(policy[name], now)) for name, types in types_of.items()]


def _nearest(names: list[str], catalog: Catalog) -> list[str]:
    """The types that are no supertypes of others among them."""
    codes = {name: catalog.code(name) for name in names}
    return [name for name in names if not any(codes[other] % codes[name] == 0 for other in names if other != name)]
