"""Where the event tags of a bus come from: a catalog in memory, or a catalog file that several programs share."""

import os
from pathlib import Path
from typing import Protocol

from genus.catalog import Catalog


class EtagSource(Protocol):
    """Gives event tags to types that have none yet, the same to everybody on a bus."""

    def give(self, catalog: Catalog, name: str) -> Catalog:
        """Return the catalog in which a type has an event tag; EtagsExhausted if there is none left for it."""

    def reread(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the event tags that others were given meanwhile."""


class MemoryEtags:
    """Event tags of a catalog in memory, which all who use it share."""

    def give(self, catalog: Catalog, name: str) -> Catalog:
        """Return the same catalog, in which the type has an event tag."""
        catalog.give_etags(name)
        return catalog

    def reread(self, catalog: Catalog) -> Catalog:
        """Return the same catalog."""
        return catalog


class FileEtags:
    """State: event tags of a catalog file, given under its lock, and when it was last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._changed()

    def give(self, catalog: Catalog, name: str) -> Catalog:
        """Return the catalog of the file, in which the type has an event tag."""
        return Catalog.update_etags(self._path, name)[0]

    def reread(self, catalog: Catalog) -> Catalog:
        """Return the catalog of the file, if it was changed since the last time; else the same one."""
        changed = self._changed()
        if changed is None or changed == self._seen:
            return catalog
        found = Catalog.load(self._path)
        self._seen = changed
        return found

    def _changed(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino
