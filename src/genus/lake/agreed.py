"""The catalog of a lake: one file beside its data, in the form that buses and brokers use too."""

import os
from collections.abc import Sequence
from types import ModuleType

from genus.catalog import Catalog, Registered
from genus.errors import CatalogDamaged, LakeDamaged, LakeError
from genus.lake.columns import check_names
from genus.lake.files import Files, local_path

CATALOG = "catalog.json"


class Agreed:
    """Reads the catalog again when it was changed, and registers types with it."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = f"{path}/{CATALOG}"
        self._files = files
        self._text = ""
        self._catalog = Catalog()

    @property
    def text(self) -> str:
        """What the file holds by now."""
        content = self._files.read(self.path)
        if content is None:
            raise LakeDamaged(f"{self.path} is missing: a lake cannot be read without its catalog")
        try:
            return content.decode()
        except UnicodeDecodeError as problem:
            raise LakeDamaged(f"{self.path}: not UTF-8 text") from problem

    @property
    def catalog(self) -> Catalog:
        """The catalog by now; not to be changed, `register` does that."""
        text = self.text
        if text != self._text:
            self._catalog, self._text = self._parsed(text), text
        return self._catalog

    def _parsed(self, text: str) -> Catalog:
        """A catalog that knows its types by the classes that were registered here before."""
        try:
            parsed = Catalog.parse(text)
        except CatalogDamaged as problem:
            raise LakeDamaged(f"{self.path}: {problem}") from problem
        parsed.recognise(*(self._catalog.declare(name) for name in self._catalog.types if name in parsed))
        return parsed

    def register(self, what: Sequence[type | ModuleType]) -> Registered:
        """Add types to the file; CatalogConflict, and nothing changed, if any contradicts what is there."""
        draft = Catalog() if self._files.read(self.path) is None else Catalog.parse(self.text)
        added = draft.register(*what)
        for vector in draft.families.values():
            check_names(vector)
        if (local := local_path(self.path)) is not None:
            _make_folder(os.path.dirname(local))
            Catalog.update(self.path, *what)
        elif added or self._files.read(self.path) is None:
            self._files.replace(self.path, draft.text().encode())
        self._catalog.recognise(*(each for each in what if isinstance(each, type)))
        return added


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as problem:
        raise LakeError(f"cannot make {path}: {problem.strerror or problem}") from problem
