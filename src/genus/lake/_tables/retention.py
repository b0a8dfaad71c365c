"""Retention: how long the events of each type are kept, as a policy that is stored in the ledger of a lake."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.model import Span, duration, name_of

KEEP = "keep"
"""The note with the policy of a lake."""


def time_before(age: Span, now: datetime | None) -> datetime:
    """The time that lies an age before now."""
    now = now or datetime.now(UTC)
    if now.tzinfo is None:
        raise LakeError(f"now={now} has no time zone; give one, such as UTC")
    try:
        return now - duration(age, "older_than", zero=False)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def policy_text(policy: Mapping[str | type, Span], catalog: Catalog) -> str:
    """A policy as it is stored; NotRegistered if the catalog lacks a type."""
    found: dict[str, float] = {}
    for what, age in policy.items():
        name = what if isinstance(what, str) else name_of(what)
        catalog.code(name)
        found[name] = duration(age, f"the age of {name}", zero=False).total_seconds()
    return msgspec.json.encode(found).decode()


def read_policy(text: str) -> dict[str, timedelta]:
    """A stored policy."""
    return {name: timedelta(seconds=age) for name, age in msgspec.json.decode(text, type=dict[str, float]).items()}
