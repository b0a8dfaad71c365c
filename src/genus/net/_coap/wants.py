"""From what was asked of a server back to the subscription it was made of, for gateways and `wanted_by`."""

from collections.abc import Iterable
from typing import Any

from genus.errors import GenusError
from genus.filters import AllOf, Subscription
from genus.filters._subscription import rebuild
from genus.model import Event
from genus.net._coap.agreed import Agreement
from genus.targets.coap import QueryFilter


def subscription_of(filter: QueryFilter, agreement: Agreement) -> Subscription[Any]:
    """The subscription of a test; one that cannot be said exactly is wider, never narrower."""
    types = _types(filter.code, agreement)
    vector = agreement.catalog.vector(filter.asked)
    where = " and ".join(f"({text})" for text in filter.texts) or None
    exact = filter.exact and len(types) == 1
    try:
        has, lacks = (vector.names_of(mask & (1 << len(vector)) - 1) for mask in (filter.has, filter.lacks))
        return rebuild(AllOf(types), exact=exact, has=has, lacks=lacks, where=where)
    except (GenusError, RecursionError):
        return rebuild(AllOf(types))


def _types(code: int, agreement: Agreement) -> tuple[type, ...]:
    """The types whose codes divide a code: what conforms to all of them is below it."""
    entries = agreement.catalog.entries.values()
    exactly = [entry.name for entry in entries if entry.code == code]
    names: Iterable[str] = exactly or [entry.name for entry in entries if code % entry.code == 0]
    types = tuple(agreement.class_of(name) for name in names)
    try:
        return rebuild(AllOf(types)).types if types else (Event,)
    except GenusError:  # types that exclude each other: nothing is below
        return (Event,)
