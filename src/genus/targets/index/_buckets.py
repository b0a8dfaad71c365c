"""Buckets: the subscriptions that one key selects, or none, tested by profile and form.

A small bucket is a list of entries that are tested one after the other. In a large one the entries are grouped by
profile and form; a group with many rows has its constants in columns, which are tested at once.
"""

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from genus.model import Event
from genus.targets.index._forms import Column, Form

I = TypeVar("I")  # noqa: E741 - an item: what the index stores for a subscription

MAX_LISTED = 8
"""A bucket with more entries than this groups them."""
MIN_ROWS = 12
"""A group with fewer rows than this tests them one after the other. By measurement: `python -m bench.engine`."""


class Entry(NamedTuple, Generic[I]):
    """A subscription in a bucket: its item, the number of its profile, and what is left to test."""

    item: I
    profile: int
    form: Form | None
    constants: tuple[Any, ...]


class Bucket(Generic[I]):
    """State: entries, as a list while they are few."""

    __slots__ = ("_groups", "_listed")

    def __init__(self) -> None:
        self._listed: list[Entry[I]] = []
        self._groups: dict[tuple[int, Form | None], Group[I]] | None = None

    def __len__(self) -> int:
        return len(self._listed) + sum(map(len, (self._groups or {}).values()))

    def __iter__(self) -> Iterator[tuple[I, int]]:
        yield from ((entry.item, entry.profile) for entry in self._listed)
        for (profile, _), group in (self._groups or {}).items():
            yield from ((item, profile) for item in group.items)

    @property
    def is_large(self) -> bool:
        """Whether the entries are grouped."""
        return self._groups is not None

    def add(self, entry: Entry[I]) -> None:
        """Add an entry."""
        if self._groups is None:
            self._listed.append(entry)
            if len(self._listed) > MAX_LISTED:
                listed, self._listed, self._groups = self._listed, [], {}
                for one in listed:
                    self._add_to_group(one)
        else:
            self._add_to_group(entry)

    def remove(self, entry: Entry[I]) -> bool:
        """Remove an entry; returns whether the bucket is empty now."""
        if self._groups is None:
            position = next(i for i, one in enumerate(self._listed) if one.item == entry.item)
            del self._listed[position]
            return not self._listed
        group = self._groups[entry.profile, entry.form]
        group.remove(entry.item)
        if not len(group):
            del self._groups[entry.profile, entry.form]
        return not self._groups

    def select(self, event: Event, accepted: list[bool], found: list[I]) -> None:
        """Append the items that match; `accepted` says which profiles the event has."""
        if self._groups is None:
            for item, profile, form, constants in self._listed:
                if accepted[profile] and (form is None or form.test(event, constants) is True):
                    found.append(item)
        else:
            for (profile, _), group in self._groups.items():
                if accepted[profile]:
                    group.select(event, found)

    def _add_to_group(self, entry: Entry[I]) -> None:
        assert self._groups is not None
        key = entry.profile, entry.form
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(entry.form)
        group.add(entry)


class Group(Generic[I]):
    """State: entries of one profile and form."""

    __slots__ = ("_columns", "_form", "_row_of", "_rows", "items")

    def __init__(self, form: Form | None) -> None:
        self._form = form
        self.items: list[I] = []
        self._row_of: dict[I, int] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._columns: list[Column] | None = None

    def __len__(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        """The bytes of the columns."""
        return sum(column.nbytes for column in self._columns or ())

    def add(self, entry: Entry[I]) -> None:
        """Append an entry."""
        self._row_of[entry.item] = len(self.items)
        self.items.append(entry.item)
        if self._columns is not None:
            for column, constant in zip(self._columns, entry.constants, strict=True):
                column.append(constant)
        elif self._form is not None:
            self._rows.append(entry.constants)
            if len(self._rows) >= MIN_ROWS and self._form.is_vector:
                self._make_columns(self._form)

    def remove(self, item: I) -> None:
        """Remove an entry; the last one takes its row."""
        row, last = self._row_of.pop(item), self.items.pop()
        if last != item:
            self.items[row] = last
            self._row_of[last] = row
        for column in self._columns or ():
            column.replace_by_last(row)
        if self._rows:
            moved = self._rows.pop()
            if row < len(self._rows):
                self._rows[row] = moved

    def select(self, event: Event, found: list[I]) -> None:
        """Append the items that match."""
        if self._form is None:
            found += self.items
        elif self._columns is not None:
            flags = self._form.test(event, self._columns)
            if flags is True:
                found += self.items
            elif flags is not False:
                found += map(self.items.__getitem__, flags.nonzero()[0].tolist())
        else:
            test = self._form.test
            found += [item for item, row in zip(self.items, self._rows, strict=True) if test(event, row) is True]

    def _make_columns(self, form: Form) -> None:
        self._columns = form.new_columns()
        for row in self._rows:
            for column, constant in zip(self._columns, row, strict=True):
                column.append(constant)
        self._rows = []
