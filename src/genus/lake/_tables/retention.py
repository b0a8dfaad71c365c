"""Retention: how long the events of each type are kept, as a policy that is stored in the ledger of a lake."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec

from genus.catalog import Catalog
from genus.errors import LakeError
from genus.model import name_of

KEEP = "keep"
"""The note with the policy of a lake."""

Age: TypeAlias = timedelta | float | str
"""A timedelta, a number of days, or a text such as `"90 days"`."""

_DAYS = {"hour": 1 / 24, "day": 1, "week": 7, "year": 365}
_AGE = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(_DAYS)})s?")


def parse_age(age: Age) -> timedelta:
    """A length of time given as such, as a number of days or as text; a year has 365 days.

    >>> parse_age("90 days"), parse_age(0.5), parse_age("2 weeks")
    (datetime.timedelta(days=90), datetime.timedelta(seconds=43200), datetime.timedelta(days=14))
    """
    if isinstance(age, bool):
        raise LakeError(f"{age} is not a length of time; give a timedelta, a number of days or text like '90 days'")
    if isinstance(age, str):
        if (found := _AGE.fullmatch(age.strip())) is None:
            raise LakeError(f"{age!r} is not a length of time; write it like '90 days', '12 hours' or '2 years'")
        age = float(found[1]) * _DAYS[found[2]]
    try:
        length = age if isinstance(age, timedelta) else timedelta(days=age)
    except (OverflowError, ValueError) as problem:
        raise LakeError(f"{age} days are not a length of time: {problem}") from problem
    if length <= timedelta():
        raise LakeError(f"events cannot be kept for {length}; give a length of time above zero")
    return length


def time_before(age: Age, now: datetime | None) -> datetime:
    """The time that lies an age before now."""
    now = now or datetime.now(UTC)
    if now.tzinfo is None:
        raise LakeError(f"now={now} has no time zone; give one, such as UTC")
    try:
        return now - parse_age(age)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def policy_text(policy: Mapping[str | type, Age], catalog: Catalog) -> str:
    """A policy as it is stored; NotRegistered if the catalog lacks a type."""
    found: dict[str, float] = {}
    for what, age in policy.items():
        name = what if isinstance(what, str) else name_of(what)
        catalog.code(name)
        found[name] = parse_age(age).total_seconds()
    return msgspec.json.encode(found).decode()


def read_policy(text: str) -> dict[str, timedelta]:
    """A stored policy."""
    return {name: timedelta(seconds=age) for name, age in msgspec.json.decode(text, type=dict[str, float]).items()}
