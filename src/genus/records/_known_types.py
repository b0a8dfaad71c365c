"""The event types that records may have: what a mapping and its readers must know of them.

The lake knows types from a catalog, a bus from classes.
"""

from collections.abc import Iterable
from typing import Protocol

from genus.model import Event, attributes, is_event_type, name_of, subtypes, vector
from genus.model.types import Attribute, Vector


class RecordType(Protocol):
    """An event type: its name, its own and inherited attributes, those that every event has, and its family's vector.

    The lake knows types from a catalog, a bus from classes.
    """

    name: str
    attributes: tuple[Attribute, ...]
    required: tuple[str, ...]
    vector: Vector


def own_attributes(type_: RecordType) -> tuple[str, ...]:
    """Return the names of the attributes that say what happened: all but those that every event may carry."""
    return tuple(each.name for each in type_.attributes if each.name not in CONTEXT)


CONTEXT = frozenset(each.name for each in attributes(Event))


class KnownTypes(Protocol):
    """Event types by name."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all event types."""

    def plan(self, name: str) -> RecordType | None:
        """Return the type of a name; None if it is not known, or is a kind."""


class DeclaredType:
    """An event type that is known by its class."""

    def __init__(self, cls: type[Event]) -> None:
        known = vector(cls)
        self.cls = cls
        self.name = name_of(cls)
        in_family = {each.name: each.names for each in known}  # a base class may have it from before it was renamed
        self.attributes = tuple(each.with_names(in_family.get(each.name, ())) for each in attributes(cls))
        self.required = tuple(each.name for each in self.attributes if not each.optional)
        self.vector = known


class DeclaredTypes:
    """The given event types and their subtypes, or all that are declared when a name is looked up.

    Of several classes with one name, the one that was declared last is meant.
    """

    def __init__(self, types: Iterable[type] | None = None) -> None:
        self._given = None if types is None else [cls for root in types for cls in subtypes(root)]
        self._plans: dict[str, DeclaredType] = {}
        self._by_name: dict[str, type[Event]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name_of(cls) for cls in self._classes()))

    def plan(self, name: str) -> DeclaredType | None:
        if name not in self._plans:
            if name not in self._by_name:
                self._by_name = {name_of(cls): cls for cls in self._classes()}
            if name not in self._by_name:
                return None
            self._plans[name] = DeclaredType(self._by_name[name])
        return self._plans[name]

    def _classes(self) -> list[type[Event]]:
        known = self._given if self._given is not None else list(subtypes(Event))
        return [cls for cls in known if is_event_type(cls)]
