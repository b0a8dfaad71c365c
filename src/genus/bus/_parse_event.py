"""Events from values as a person types them: `lane=2 time=now`."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from genus.errors import EventError, did_you_mean
from genus.filters.internal import DURATION_UNITS
from genus.model import Event, attributes, check, name_of
from genus.model.types import ChoiceType, DurationType, TimeType

E = TypeVar("E", bound=Event)


def parse_event(cls: type[E], given: Mapping[str, Any]) -> E:
    """An event from the values of its attributes as text or as JSON has them.

    Times are written in ISO 8601 or as `now`, lengths of time like `500ms`, bytes in base 64.

    Raises:
        EventError: An attribute is unknown, missing, or has a value that it may not have; the message names it.

    >>> from genus import Event
    >>> class Lamp(Event):
    ...     on: bool
    ...     level: int
    >>> parse_event(Lamp, {"on": "true", "level": "3"})
    Lamp(on=True, level=3)
    >>> parse_event(Lamp, {"on": "true", "level": "high"})
    Traceback (most recent call last):
    genus.errors.EventError: not a Lamp: level: Expected `int`, got `str`
    """
    known = {attribute.name: attribute.type for attribute in attributes(cls)}
    if strangers := sorted(set(given) - set(known)):
        hint = f"{did_you_mean(strangers[0], known)}it has {', '.join(known)}"
        raise EventError(f"{name_of(cls)} has no attribute {', '.join(strangers)}; {hint}")
    try:
        event = msgspec.convert(
            {name: _value(name, value, known[name]) for name, value in given.items()}, cls, strict=False
        )
        check(event)
    except (msgspec.MsgspecError, ValueError, TypeError) as problem:
        what = re.sub(r"(.*) - at `\$\.(\w+)`", r"\2: \1", str(problem))
        raise EventError(f"not a {name_of(cls)}: {what}") from None
    return event


def _value(name: str, value: Any, type_: object) -> Any:
    if isinstance(type_, ChoiceType) and value is not None and str(value) not in map(str, type_.values):
        hint = did_you_mean(str(value), map(str, type_.values))
        raise ValueError(f"{name} cannot be {value!r}; {hint}it is one of {', '.join(map(repr, type_.values))}")
    if isinstance(type_, TimeType):
        return datetime.now(UTC) if value == "now" else _time(value)
    if isinstance(type_, DurationType) and isinstance(value, str):
        found = re.fullmatch(r"(-?\d+(?:\.\d+)?)(us|ms|s|min|h|d)", value)
        if found:
            return timedelta(microseconds=float(found[1]) * DURATION_UNITS[found[2]])
    return value


def _time(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a time: write it like 2026-11-15T10:00:00Z, or now") from None
