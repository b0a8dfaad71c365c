"""Values of an event that this process cannot read, kept with it so that they can be recorded and forwarded.

A value of an enumeration that the class here does not have, a number that is too wide for its attribute, an attribute
that the class does not have: the event arrives without the value (docs/semantics.md, "Values that cannot be read"),
and encoders write it back as it came, so that a newer reader gets the event whole.

The values are msgpack under the names of attributes, in a slot of the event that is no field of the struct: it costs 8
bytes, and equality, hashing and `repr` do not see it. (A dictionary or weak references would need events that the
garbage collector tracks, which makes decoding of many a half slower.) Reading an empty slot raises, which is slow, so
`unread_types` says which classes ever had one.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

NOTHING_UNREAD: Mapping[str, msgspec.Raw] = {}

unread_types: set[type] = set()
"""Classes with events whose values could not be read; while it is empty, an encoder need not ask further."""


class UnreadSlot:
    """The place of values that could not be read; a base of `Event`."""

    __slots__ = ("_unread",)


_set = UnreadSlot._unread.__set__  # type: ignore[attr-defined]


def keep_unread(event: UnreadSlot, values: Mapping[str, msgspec.Raw]) -> None:
    """Keep values in msgpack with an event; its attributes of these names are None."""
    _set(event, {name: value.copy() for name, value in values.items()})  # the packet need not be kept for them
    unread_types.add(type(event))


def unread_values(event: UnreadSlot) -> Mapping[str, msgspec.Raw]:
    """Return the values of an event that could not be read, in msgpack, by the names of their attributes.

    >>> from genus import Event
    >>> unread_values(Event(place="A8"))
    {}
    """
    if type(event) not in unread_types:
        return NOTHING_UNREAD
    found: Mapping[str, msgspec.Raw] = getattr(event, "_unread", NOTHING_UNREAD)
    return found


def with_unread(event: UnreadSlot) -> Any:
    """Return what an encoder of msgpack writes for an event: the event itself, or a map with the values not read."""
    unread = unread_values(event)
    if not unread:
        return event
    fields = type(event).__struct_fields__  # type: ignore[attr-defined]
    present = {name: value for name in fields if (value := getattr(event, name)) is not None}
    return present | dict(unread)
