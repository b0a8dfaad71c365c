"""The event types of a system: from a module, the sizes and event tags of the channels that carry them."""

from difflib import get_close_matches
from pathlib import Path
from typing import Self

from genus.can.plan.tables import Table
from genus.can.wire.payload import Layout
from genus.catalog import Catalog
from genus.catalog.sources import types_in
from genus.codes.hierarchy import load_module
from genus.errors import GenusError
from genus.model import Event, attributes, name_of


class EventTypes:
    """The event types that a system file may name; empty if it names no module."""

    def __init__(self, classes: dict[str, type[Event]], catalog: Catalog | None) -> None:
        self._classes = classes
        self._catalog = catalog

    @classmethod
    def load(cls, module: str | None, folder: Path, table: Table) -> Self:
        """Those of a module, by its dotted name or by the path of its file."""
        if module is None:
            return cls({}, None)
        try:
            found = types_in(load_module(folder / module if module.endswith(".py") else module))
            catalog = Catalog()
            catalog.register(*found)
        except GenusError as problem:
            table.refuse("types", f"cannot be used: {problem}")
        events = {name_of(each): each for each in found if issubclass(each, Event)}
        if not events:
            table.refuse("types", f"is {module!r}, which declares no event types")
        return cls(events, catalog)

    def __bool__(self) -> bool:
        return bool(self._classes)

    def etag(self, event: str) -> int:
        """The event tag of a type, as a new catalog gives it."""
        assert self._catalog is not None
        return self._catalog.etag(event)

    def own_size(self, event: str, table: Table) -> int | None:
        """The most bytes of an event with all attributes of its own; None if they may have any length."""
        return self._layout(event, table).largest_carrying()

    def size(self, event: str, table: Table) -> int:
        """The most bytes of an event with all attributes of its own, and those of the context that it `carries`."""
        layout = self._layout(event, table)
        known = {attribute.name for attribute in attributes(self._classes[event])}
        carried = table.texts("carries")
        if unknown := next((name for name in carried if name not in known), None):
            table.refuse("carries", f"names {unknown!r}, which {event} does not have")
        largest = layout.largest_carrying(carried)
        if largest is None:
            table.refuse("size", f"is missing, and {event} has texts, bytes or opaque values of any length")
        return largest

    def _layout(self, event: str, table: Table) -> Layout:
        assert self._catalog is not None
        if event not in self._classes:
            close = get_close_matches(event, self._classes, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(self._classes)}"
            table.refuse("event", f"is {event!r}, which the module of types does not declare; {hint}")
        return Layout.of(self._classes[event], self._catalog.vector(event), self._catalog.tagged(event))
