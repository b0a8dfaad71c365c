"""`GrowingMap`: an immutable mapping of which a slightly larger copy costs little, however large it is."""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

RECENT = 1024
"""Changes that are kept apart from the large dictionary; a change copies at most this many entries."""


class _Gone:
    """Stands for a key that was removed."""


_GONE: Final = _Gone()


class GrowingMap(Mapping[K, V]):
    """An immutable mapping: a large dictionary that its copies share, and a small one with recent changes.

    >>> one = GrowingMap({"a": 1, "b": 2})
    >>> two = one.changed({"c": 3}, ["a"])
    >>> dict(one), dict(two), len(two)
    ({'a': 1, 'b': 2}, {'b': 2, 'c': 3}, 2)
    """

    __slots__ = ("_base", "_count", "_recent")

    def __init__(self, base: dict[K, V] | None = None) -> None:
        self._base: dict[K, V] = {} if base is None else base
        self._recent: dict[K, V | _Gone] = {}
        self._count = len(self._base)

    def changed(self, added: Mapping[K, V], removed: Iterable[K] = ()) -> "GrowingMap[K, V]":
        gone = {key: _GONE for key in removed if key in self}
        if not added and not gone:
            return self
        made: GrowingMap[K, V] = GrowingMap.__new__(GrowingMap)
        made._base = self._base
        known = sum(key in self and key not in gone for key in added) if self._count else 0
        made._count = self._count - len(gone) + len(added) - known
        made._recent = {**self._recent, **gone, **added}
        if len(made._recent) > RECENT:
            made._base, made._recent = made._merged(), {}
        return made

    def _merged(self) -> dict[K, V]:
        """All entries in one dictionary; made by a copy, because iterating takes many times longer."""
        merged: dict[K, Any] = {**self._base, **self._recent}
        for key in [key for key, value in self._recent.items() if value is _GONE]:
            del merged[key]
        return merged

    def __getitem__(self, key: K) -> V:
        found = self._recent.get(key)
        if found is None:
            return self._base[key]
        if isinstance(found, _Gone):
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        found = self._recent.get(key)  # type: ignore[arg-type]
        return key in self._base if found is None else found is not _GONE

    def __iter__(self) -> Iterator[K]:
        if not self._recent:
            return iter(self._base)
        return self._iterate()

    def items(self) -> ItemsView[K, V]:
        """The entries; those of the large dictionary itself if there are no others, which is faster."""
        return super().items() if self._recent else self._base.items()

    def values(self) -> ValuesView[V]:
        return super().values() if self._recent else self._base.values()

    def _iterate(self) -> Iterator[K]:
        yield from (key for key in self._base if key not in self._recent)
        yield from (key for key, value in self._recent.items() if value is not _GONE)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"GrowingMap({dict(self)!r})"
