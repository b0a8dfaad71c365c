"""Buckets: the subscriptions that one key selects, or none, tested by profile and form.

A small bucket is a list of entries that are tested one after the other. In a large one the entries are grouped by
profile and form; a group with many rows has its constants in columns, which are tested at once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from genus.model import Event
from genus.targets.index._columns import GrowingArray
from genus.targets.index._forms import Column, Form
from genus.targets.index._segments import Handles

MAX_LISTED = 8
"""A bucket with more entries than this groups them."""
MIN_ROWS = 12
"""A group with fewer rows than this tests them one after the other. By measurement: `python -m bench.engine`."""


class Entry(NamedTuple):
    """A subscription in a bucket: its handle, the number of its profile, and what is left to test."""

    handle: int
    profile: int
    form: Form | None
    constants: tuple[Any, ...]


class Bucket:
    """State: entries, as a list while they are few."""

    __slots__ = ("_groups", "_listed")

    def __init__(self) -> None:
        self._listed: list[Entry] = []
        self._groups: dict[tuple[int, Form | None], Group] | None = None

    def __len__(self) -> int:
        return len(self._listed) + sum(map(len, (self._groups or {}).values()))

    def __iter__(self) -> Iterator[int]:
        """The handles of all entries."""
        yield from (entry.handle for entry in self._listed)
        for group in (self._groups or {}).values():
            yield from group.handles.values.tolist()

    def add(self, entry: Entry) -> None:
        if self._groups is None:
            self._listed.append(entry)
            if len(self._listed) > MAX_LISTED:
                listed, self._listed, self._groups = self._listed, [], {}
                for one in listed:
                    self._add_to_group(one)
        else:
            self._add_to_group(entry)

    def remove(self, entry: Entry) -> bool:
        """Remove an entry; returns whether the bucket is empty now."""
        if self._groups is None:
            position = next(i for i, one in enumerate(self._listed) if one.handle == entry.handle)
            del self._listed[position]
            return not self._listed
        group = self._groups[entry.profile, entry.form]
        group.remove(entry.handle)
        if not len(group):
            del self._groups[entry.profile, entry.form]
        return not self._groups

    def select(self, event: Event, accepted: list[bool], found: "Found") -> None:
        """Add the handles that match; `accepted` says which profiles the event has."""
        if self._groups is None:
            for handle, profile, form, constants in self._listed:
                if accepted[profile] and (form is None or form.test(event, constants) is True):
                    found.single.append(handle)
        else:
            for (profile, _), group in self._groups.items():
                if accepted[profile]:
                    group.select(event, found)

    def _add_to_group(self, entry: Entry) -> None:
        assert self._groups is not None
        key = entry.profile, entry.form
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(entry.form)
        group.add(entry)


class Found(NamedTuple):
    """State: the handles found so far, one by one and in arrays."""

    single: list[int]
    arrays: list[Handles]

    def handles(self) -> Handles:
        return np.concatenate([np.array(self.single, np.int64), *self.arrays])


class Group:
    """State: entries of one profile and form."""

    __slots__ = ("_columns", "_form", "_row_of", "_rows", "handles")

    def __init__(self, form: Form | None) -> None:
        self._form = form
        self.handles = GrowingArray(np.int64)
        self._row_of: dict[int, int] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._columns: list[Column] | None = None

    def __len__(self) -> int:
        return len(self.handles)

    def add(self, entry: Entry) -> None:
        self._row_of[entry.handle] = len(self.handles)
        self.handles.append(entry.handle)
        if self._columns is not None:
            for column, constant in zip(self._columns, entry.constants, strict=True):
                column.append(constant)
        elif self._form is not None:
            self._rows.append(entry.constants)
            if len(self._rows) >= MIN_ROWS and self._form.is_vector:
                self._make_columns(self._form)

    def remove(self, handle: int) -> None:
        """Remove an entry; the last one takes its row."""
        row, last = self._row_of.pop(handle), int(self.handles.values[-1])
        if last != handle:
            self._row_of[last] = row
        for column in (self.handles, *(self._columns or ())):
            column.replace_by_last(row)
        if self._rows:
            moved = self._rows.pop()
            if row < len(self._rows):
                self._rows[row] = moved

    def select(self, event: Event, found: Found) -> None:
        """Add the handles that match."""
        handles = self.handles.values
        if self._form is None:
            found.arrays.append(handles)
        elif self._columns is not None:
            flags = self._form.test(event, self._columns)
            if flags is not False:
                found.arrays.append(handles if flags is True else handles[flags])
        else:
            test = self._form.test
            chosen = [row for row, constants in enumerate(self._rows) if test(event, constants) is True]
            found.arrays.append(handles[chosen])

    def _make_columns(self, form: Form) -> None:
        self._columns = form.new_columns()
        for row in self._rows:
            for column, constant in zip(self._columns, row, strict=True):
                column.append(constant)
        self._rows = []
