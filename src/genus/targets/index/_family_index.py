"""The index of one family: each subscription is stored where the cheapest key finds it.

* Equality with constants: a hash table per attribute, by value.
* A text that begins with, ends with or contains a constant: a hash table by the constant; an event's text is looked up
  piece by piece.
* Intervals only: bitmaps over all attributes (`_segments`).
* Nothing of these: one bucket for all, in which subscriptions are tested by form (`_buckets`, `_forms`).

What a key does not decide is tested by form. Type and attributes are decided once per shape. Adding and removing touch
the locations of one subscription, and the next event sees the change.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import genus.filters.internal as x
from genus.filters import Subscription
from genus.model import Event, attributes
from genus.model.internal import retyped_attributes
from genus.model.types import AttributeType, BytesType, OpaqueType, TextType
from genus.targets._decompose import Parts, Profile, Spans, keys_in, take_apart
from genus.targets._intervals import UNKNOWN, Domain, Interval, domain_of, intervals
from genus.targets.index._buckets import Bucket, Entry, Found
from genus.targets.index._columns import Flags, Keys, Slots, matching_parts
from genus.targets.index._forms import Forms, Misfit
from genus.targets.index._segments import Dimension, Handles, Numbers, RangeStore, Segment, ShapeKeys

MAX_KEYS = 64
"""An interval with at most so many keys is looked up by each of them."""
LARGE_BUCKET = 256
"""If a key selects more subscriptions than this, those with intervals of other attributes go to the bitmaps."""
MAX_SHAPES = 64
"""So many shapes are cached."""


class KeyTable:
    """State: the buckets of an attribute by value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.buckets: dict[Any, Bucket] = {}

    def add(self, key: Any, entry: Entry) -> None:
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self._begin(key)
        bucket.add(entry)

    def remove(self, key: Any, entry: Entry) -> None:
        if self.buckets[key].remove(entry):
            self._drop(key)

    def _begin(self, key: Any) -> Bucket:
        bucket = self.buckets[key] = Bucket()
        return bucket

    def _drop(self, key: Any) -> None:
        del self.buckets[key]

    def find(self, value: Any) -> "Sequence[Bucket]":
        """Return the buckets that a value of an event selects; Misfit if it does not have its declared type."""
        raise NotImplementedError


class NumberTable(KeyTable):
    """State: the buckets of an attribute with ordered or few values, by the value's key; it may have intervals too."""

    def __init__(self, name: str, number: int, type_: AttributeType) -> None:
        super().__init__(name)
        self.number = number
        self.domain: Domain = domain_of(type_)
        self.is_exact = not isinstance(type_, TextType | BytesType | OpaqueType)

    def spans(self, part: x.Predicate) -> Spans | None:
        """Return the keys for which a test is true; None for text and bytes, which have tables of their own."""
        return intervals(part, self.domain) if self.is_exact else None

    def find(self, value: Any) -> "Sequence[Bucket]":
        key = self.domain.key(value)
        if key is None:
            raise Misfit
        bucket = self.buckets.get(key)
        return () if bucket is None else (bucket,)


class TextTable(KeyTable):
    """State: the buckets of a text or bytes attribute, by value."""

    def __init__(self, name: str, type_: AttributeType) -> None:
        super().__init__(name)
        self._kind = str if isinstance(type_, TextType) else bytes

    def find(self, value: Any) -> "Sequence[Bucket]":
        if type(value) is not self._kind:
            raise Misfit
        bucket = self.buckets.get(value)
        return () if bucket is None else (bucket,)


class PartTable(KeyTable):
    """State: the buckets of a text test of an attribute, by the part that the text must have."""

    def __init__(self, name: str, op: str) -> None:
        super().__init__(name)
        self.op = op
        self._lengths: Counter[int] = Counter()

    def _begin(self, key: str) -> Bucket:
        self._lengths[len(key)] += 1
        return super()._begin(key)

    def _drop(self, key: str) -> None:
        super()._drop(key)
        self._lengths[len(key)] -= 1

    def find(self, value: Any) -> "Sequence[Bucket]":
        """Return the buckets of all parts for which the test is true."""
        if type(value) is not str:
            raise Misfit
        return [self.buckets[part] for part in matching_parts(self.op, value, self.buckets, self._lengths)]


class BucketLocation(NamedTuple):
    """Where a subscription is found by keys: its entry, and the table and key of each bucket that has it."""

    entry: Entry
    keys: list[tuple[KeyTable, Any]]


SegmentLocation: TypeAlias = tuple[Segment, int]
Location: TypeAlias = BucketLocation | SegmentLocation


@dataclass(slots=True)
class IndexedShape:
    """State: a class and its present attributes, and which profiles accept it."""

    number: int
    cls: type
    present: set[str]
    accepted: list[bool] = field(default_factory=list)
    flags: Flags = field(default_factory=lambda: np.empty(0, np.bool_))


class FamilyIndex:
    """State: the subscriptions of one family, or of `Event` and kinds together, by handles that callers give."""

    def __init__(self, name: str, *, is_shared: bool = False) -> None:
        """`is_shared` says that it is the index of `Event` and kinds, whose events are of any family."""
        self.name = name
        self._is_shared = is_shared
        self.profiles: list[Profile] = []
        self.forms = Forms()
        self.count = 0
        self._profile_numbers: dict[Profile, int] = {}
        self._watched: dict[str, None] = {}
        """The attributes whose presence distinguishes shapes."""
        self._numbers: dict[str, NumberTable] = {}
        self._texts: dict[str, TextTable] = {}
        self._parts: dict[tuple[str, str], PartTable] = {}
        self._tables: list[KeyTable] = []
        self._rest: Bucket = Bucket()
        self._dimensions: list[Dimension] = []
        self._dimension_numbers: dict[int, int] = {}
        self._ranges: RangeStore = RangeStore(self._dimensions)
        self._shapes: dict[tuple[object, ...], IndexedShape] = {}
        self._next_shape = 0
        self._carried: dict[type, tuple[frozenset[str], list[KeyTable], list[str], list[Dimension]]] = {}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        """All handles, those found by several keys once."""
        handles: dict[int, None] = {}
        for bucket in (self._rest, *(bucket for table in self._tables for bucket in table.buckets.values())):
            handles.update(dict.fromkeys(bucket))
        for segment in self._ranges.segments:
            handles.update(dict.fromkeys(segment.handles().tolist()))
        return iter(handles)

    # Adding and removing

    def add(self, handle: int, subscription: Subscription) -> "Location":
        self.count += 1
        parts = take_apart(subscription, self._number_table)
        profile = self.profile_number(parts.profile)
        keys = None if parts.is_void else self._choose_keys(parts)
        if keys is None and self._is_for_bitmaps(parts):
            return self._ranges.add(handle, profile, self._intervals_of(parts))
        decided, table, values = keys if keys is not None else ((), None, [])
        left = [one for test in parts.tests.values() for one in test.predicates if one not in decided]
        left += [one for one in parts.rest if one not in decided]
        form, constants = self.forms.take_apart(left) if left else (None, ())
        entry = Entry(handle, profile, form, constants)
        if table is None:
            self._rest.add(entry)
            return BucketLocation(entry, [])
        for value in values:
            table.add(value, entry)
        return BucketLocation(entry, [(table, value) for value in values])

    def add_intervals(
        self, handles: Handles, profile: Profile, names: list[str], types: Sequence[AttributeType], lengths: Slots,
        which: Numbers, low: Keys, high: Keys,
    ) -> "list[SegmentLocation]":  # fmt: skip
        """Add many subscriptions of one profile that are given as arrays; `which` are positions in `names`."""
        numbers = [self._dimension(self._table_of(name, type_)) for name, type_ in zip(names, types, strict=True)]
        self.count += len(handles)
        chosen = np.array(numbers, np.uint16)[which]
        return self._ranges.add_all(handles, self.profile_number(profile), lengths, chosen, low, high)

    def remove(self, location: "Location") -> None:
        self.count -= 1
        if isinstance(location, BucketLocation):
            if not location.keys:
                self._rest.remove(location.entry)
            for table, value in location.keys:
                table.remove(value, location.entry)
            if location.entry.form is not None:
                self.forms.release(location.entry.form)
        else:
            self._ranges.remove(*location)

    def intervals_at(self, location: "SegmentLocation") -> dict[str, Interval]:
        """Return the interval of each attribute of a subscription in the bitmaps, by name."""
        segment, slot = location
        return {self._dimensions[number].name: found for number, found in segment.intervals_of(slot).items()}

    def compact(self) -> "dict[int, SegmentLocation]":
        """Free the memory of removed subscriptions and choose the buckets again; returns new locations."""
        return self._ranges.compact()

    def _choose_keys(self, parts: Parts[NumberTable]) -> "tuple[tuple[x.Predicate, ...], KeyTable, list[Any]] | None":
        """Return the tests that a key decides, its table and its values; None if there is no key.

        Of several equalities the one whose buckets are smallest is chosen.
        """
        best: tuple[int, tuple[x.Predicate, ...], KeyTable, list[Any]] | None = None
        for test in parts.tests.values():
            values = keys_in(test.spans, max(MAX_KEYS, len(test.spans)))
            if values is not None:
                table = test.attribute
                size = max([len(table.buckets[v]) if v in table.buckets else 0 for v in values], default=0)
                if best is None or size < best[0]:
                    best = size, tuple(test.predicates), table, values
        if best is not None and best[0] > LARGE_BUCKET and not parts.rest and len(parts.tests) > 1:
            return None
        if best is None or best[0] > LARGE_BUCKET:
            return self._text_key(parts.rest) or (None if best is None else best[1:])
        return best[1:]

    def _text_key(self, rest: list[x.Predicate]) -> "tuple[tuple[x.Predicate, ...], KeyTable, list[Any]] | None":
        found: tuple[tuple[x.Predicate, ...], KeyTable, list[Any]] | None = None
        for part in rest:
            match part:
                case x.Compare("==", x.AttributeRef(name, TextType() | BytesType() as type_), x.Literal(value)):
                    return (part,), self._text_table(name, type_), [value]
                case x.OneOf(x.AttributeRef(name, TextType() | BytesType() as type_), options):
                    values = list(dict.fromkeys(option.value for option in options))
                    return (part,), self._text_table(name, type_), values
                case x.TextTest(op, x.AttributeRef(name, TextType()), x.Literal(str(value))) if found is None:
                    if op in ("startswith", "endswith", "contains"):
                        found = (part,), self._part_table(name, op), [value]
        return found

    def _is_for_bitmaps(self, parts: Parts[NumberTable]) -> bool:
        """Return whether intervals of attributes are all that a subscription tests."""
        intervals_only = bool(parts.tests) and not parts.rest and not parts.is_void
        return intervals_only and all(len(test.spans) == 1 for test in parts.tests.values())

    def _intervals_of(self, parts: Parts[NumberTable]) -> dict[int, Interval]:
        return {self._dimension(test.attribute): test.spans[0] for test in parts.tests.values()}

    def _dimension(self, table: NumberTable) -> int:
        """Return the number of an attribute in the bitmaps."""
        number = self._dimension_numbers.get(table.number)
        if number is None:
            number = self._dimension_numbers[table.number] = len(self._dimensions)
            self._dimensions.append(Dimension(table.name, number, table.domain))
            self._watch({table.name})
            self._carried.clear()
        return number

    def _number_table(self, reference: x.AttributeRef) -> NumberTable:
        known = self._numbers.get(reference.name)
        if known is not None:
            return known
        assert reference.type is not None, "a subscription's predicate is bound"
        return self._table_of(reference.name, reference.type)

    def _table_of(self, name: str, type_: AttributeType) -> NumberTable:
        if name not in self._numbers:
            self._numbers[name] = NumberTable(name, len(self._numbers), type_)
            self._register(self._numbers[name])
        return self._numbers[name]

    def _text_table(self, name: str, type_: AttributeType) -> TextTable:
        if name not in self._texts:
            self._texts[name] = TextTable(name, type_)
            self._register(self._texts[name])
        return self._texts[name]

    def _part_table(self, name: str, op: str) -> PartTable:
        if (name, op) not in self._parts:
            self._parts[name, op] = PartTable(name, op)
            self._register(self._parts[name, op])
        return self._parts[name, op]

    def _register(self, table: KeyTable) -> None:
        self._tables.append(table)
        self._carried.clear()

    def profile_number(self, profile: Profile) -> int:
        """Return the number of a profile, given if it is new."""
        number = self._profile_numbers.get(profile)
        if number is None:
            number = self._profile_numbers[profile] = len(self.profiles)
            self.profiles.append(profile)
            self._watch(profile.has | profile.lacks)
        return number

    def _watch(self, names: "set[str] | frozenset[str]") -> None:
        if not names <= self._watched.keys():
            self._watched.update(dict.fromkeys(sorted(names)))
            self._carried.clear()

    # Matching

    def match(self, event: Event) -> Found:
        """Return the handles of the subscriptions that match, each once, in no order.

        Raises Misfit if a value that may be tested does not have its declared type.
        """
        _, tables, watched, dimensions = self._carried.get(type(event)) or self._carry(type(event))
        shape = self._shape(event, watched)
        accepted = shape.accepted
        found = Found([], [])
        for table in tables:
            if table.buckets:
                value = getattr(event, table.name)
                if value is not None:
                    for bucket in table.find(value):
                        bucket.select(event, accepted, found)
        self._rest.select(event, accepted, found)
        if self._ranges.segments:
            self._match_ranges(event, shape, dimensions, found)
        return found

    def _match_ranges(self, event: Event, shape: IndexedShape, dimensions: list[Dimension], found: Found) -> None:
        keys = [UNKNOWN] * len(self._dimensions)
        present = []
        for name, number, domain in dimensions:
            value = getattr(event, name)
            if value is not None:
                key = domain.key(value)
                if key is None:
                    raise Misfit
                keys[number] = key
                present.append((number, key))
        asked = ShapeKeys(shape.number, present)
        pairs = np.array([(key, ~key) for key in keys], np.int64)
        found.arrays.extend(self._ranges.match(asked, shape.flags, pairs))

    def _carry(self, cls: type) -> tuple[frozenset[str], list[KeyTable], list[str], list[Dimension]]:
        """Return what a class has: its attributes, and of them the tables, the watched names and the dimensions."""
        hidden = retyped_attributes(cls) if self._is_shared else frozenset()
        declared = frozenset(attribute.name for attribute in attributes(cls)) - hidden
        carried = (
            declared,
            [table for table in self._tables if table.name in declared],
            [name for name in self._watched if name in declared],
            [dimension for dimension in self._dimensions if dimension.name in declared],
        )
        self._carried[cls] = carried
        return carried

    def _shape(self, event: Event, watched: list[str]) -> IndexedShape:
        presence = tuple([getattr(event, name) is not None for name in watched])
        key = (type(event), len(self._watched), presence)
        shape = self._shapes.get(key)
        if shape is None:
            present = {name for name, there in zip(watched, presence, strict=True) if there}
            if len(self._shapes) >= MAX_SHAPES:
                oldest = self._shapes.pop(next(iter(self._shapes)))
                for segment in self._ranges.segments:
                    segment.forget(oldest.number)
            self._next_shape += 1
            shape = self._shapes[key] = IndexedShape(self._next_shape, type(event), present)
        if len(shape.accepted) < len(self.profiles):
            more = self.profiles[len(shape.accepted) :]
            shape.accepted += [profile.accepts(shape.cls, shape.present) for profile in more]
            shape.flags = np.array(shape.accepted, np.bool_)
        return shape

    # Explaining

    def classify(self, subscription: Subscription) -> tuple[list[str], str, str]:
        """Return the tests of a subscription as texts: of presence, by key or interval, and by form."""
        parts = take_apart(subscription, self._number_table)
        keys = None if parts.is_void else self._choose_keys(parts)
        by_value = [one for test in parts.tests.values() for one in test.predicates]
        looked_up = list(keys[0]) if keys is not None else by_value if self._is_for_bitmaps(parts) else []
        tested = [one for one in (*by_value, *parts.rest) if one not in looked_up]
        present = [f"{name} present" for name in sorted(parts.profile.has)]
        present += [f"{name} absent" for name in sorted(parts.profile.lacks)]
        return present, _all_of(looked_up), _all_of(tested)

    @property
    def nbytes(self) -> dict[str, int]:
        """The bytes of the arrays, by their purpose."""
        total: Counter[str] = Counter(bitmaps=0, ranges=0, subscriptions=0, shapes=0)
        for segment in self._ranges.segments:
            total.update(segment.nbytes)
        return dict(total)

    def explain(self) -> list[str]:
        """Return what is in the index, and its memory, as lines of text."""
        memory = ", ".join(f"{what} {size / 1e6:.1f} MB" for what, size in self.nbytes.items())
        in_tables = sum(len(bucket) for table in self._tables for bucket in table.buckets.values())
        lines = [
            f"  {self.name}: {len(self)} subscriptions: {in_tables} by equality or part of a text, "
            f"{len(self._ranges)} by intervals, {len(self._rest)} by form",
            f"    {_count(len(self.profiles), 'combination')} of type and attributes, "
            f"{_count(len(self.forms), 'form')} of predicates",
        ]
        lines += [f"    {table.name}: {_count(len(table.buckets), 'key')}" for table in self._tables if table.buckets]
        if self._ranges.segments:
            lines.append(f"    bitmaps of {', '.join(one.name for one in self._dimensions)}; {memory}")
        return lines


def _all_of(predicates: list[x.Predicate]) -> str:
    return str(predicates[0] if len(predicates) == 1 else x.And(tuple(predicates))) if predicates else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
