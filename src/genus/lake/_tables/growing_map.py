"""`GrowingMap`: an immutable mapping of which a slightly larger copy costs little, however large it is."""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

RECENT = 1024
"""Changes that are kept apart from the large dictionary; a change copies at most this many entries."""


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
        self._recent: dict[K, V | None] = {}
        """None stands for a key that was removed; no value is None."""
        self._count = len(self._base)

    def changed(self, added: Mapping[K, V], removed: Iterable[K] = ()) -> "GrowingMap[K, V]":
        gone = dict.fromkeys(key for key in removed if key in self)
        if not added and not gone:
            return self
        recent: dict[K, Any] = {**self._recent, **gone, **added}
        if len(recent) > RECENT:
            merged = {**self._base, **recent}  # a copy, because iterating takes many times longer
            for key in [key for key, value in recent.items() if value is None]:
                del merged[key]
            return GrowingMap(merged)
        made = GrowingMap(self._base)
        made._recent = recent
        known = sum(key in self and key not in gone for key in added) if self._count else 0
        made._count = self._count - len(gone) + len(added) - known
        return made

    def __getitem__(self, key: K) -> V:
        found = self._recent.get(key)
        if found is not None:
            return found
        if key in self._recent:  # it was removed
            raise KeyError(key)
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        return self._recent[key] is not None if key in self._recent else key in self._base

    def __iter__(self) -> Iterator[K]:
        if not self._recent:
            return iter(self._base)
        new = [key for key, value in self._recent.items() if value is not None]
        return chain((key for key in self._base if key not in self._recent), new)

    def items(self) -> ItemsView[K, V]:
        """Return the entries; those of the large dictionary itself if there are no others, which is faster."""
        return super().items() if self._recent else self._base.items()

    def values(self) -> ValuesView[V]:
        return super().values() if self._recent else self._base.values()

    def __len__(self) -> int:
        return self._count
