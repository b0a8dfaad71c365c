"""The plan of a route: many subscriptions, decomposed and matched with shapes, as lookups for batches of events.

This module is the kernel of routing. It needs numpy and pyarrow, but no Spark: Spark tasks call it for the row groups
of files, and the driver for small batches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from genus.catalog import Catalog
from genus.errors import LakeError, NotRegistered
from genus.lake._query.decompose import DecomposedSubscriptions, KeyColumns
from genus.lake._query.lookup import Lookup, RangeLookup, ValueLookup, concat_matches, find_texts, join_matches
from genus.lake._query.number_tables import BLOCK, ROOM, Ints, IntTable, Matches, Numbers, expand_runs
from genus.lake._query.shape_match import ProfileMatches, Words, group_shapes, pack_bits, split_shapes
from genus.lake._query.templates import EventColumns, Residuals
from genus.lake._tables.commits import SHAPE, TYPE, Shape

if TYPE_CHECKING:
    from genus.lake._query.subscription_list import RouteEntry

UNKEYED_ROOM, KEYED_ROOM = 4_000_000, 50_000
"""Entries that the table of a lookup may always have, without and with a key."""
UNKEYED_REPEATS, KEYED_REPEATS = 16, 8
"""Entries per subscription that a larger table may have."""
OF_SHAPE, ALL_OF_SHAPE = "__shape", "__subscriptions"
"""The columns of `FamilyPlan.plain_table`."""
MAX_PLAIN = 1 << 24
"""Entries that a table of shapes and subscriptions may have, as every worker gets all of it."""
TESTED = 1 << 20
"""Candidates that residual predicates are evaluated for at once, template by template."""


def plan_routes(subscriptions: "Sequence[RouteEntry]", shapes: Mapping[int, Shape], catalog: Catalog) -> "RoutePlan":
    """Plan the lookups for events of some shapes; the number of a subscription is its position in the list.

    Shapes are given by their ids, as a ledger has them. Runs without a session. NotRegistered if the catalog
    lacks a subscribed type.
    """
    decomposed = DecomposedSubscriptions([entry.subscription for entry in subscriptions])
    _check_types(subscriptions, decomposed, catalog)
    families: dict[str, dict[int, Shape]] = {}
    for number, shape in shapes.items():
        families.setdefault(shape.family, {})[number] = shape
    residuals = decomposed.templates.residuals()
    plans = {
        family: _plan_family(decomposed, listed, catalog, family, residuals)
        for family, listed in sorted(families.items())
    }
    subscribers = tuple(entry.subscriber for entry in subscriptions)
    void = sum(profile < 0 for profile in decomposed.profile_of)
    return RoutePlan(subscribers, {family: found for family, found in plans.items() if found.lists}, void)


def _check_types(subscriptions: "Sequence[RouteEntry]", decomposed: DecomposedSubscriptions, catalog: Catalog) -> None:
    for cls in {cls for profile in decomposed.profiles for cls in profile.types}:
        try:
            catalog.code(cls)
        except NotRegistered as problem:
            asking = next(entry for entry in subscriptions if cls in entry.subscription.types)
            raise NotRegistered(f"{asking.subscriber}: {asking.subscription}: {problem}") from None


def _plan_family(
    decomposed: DecomposedSubscriptions,
    shapes: Mapping[int, Shape],
    catalog: Catalog,
    family: str,
    residuals: Residuals,
) -> "FamilyPlan":
    vector = catalog.vector(family)
    with_presence, without = split_shapes(shapes)
    lists = [
        ListPlan(decomposed, ProfileMatches(decomposed.profiles, listed, has_presence, catalog, vector), residuals)
        for listed, has_presence in ((list(with_presence.values()), True), (without, False))
        if listed
    ]
    numbers = np.fromiter(with_presence, np.int64, len(with_presence))
    return FamilyPlan(family, numbers, [shape.type for shape in without], [one for one in lists if one.lookups])


def _lookups(
    decomposed: DecomposedSubscriptions, matches: ProfileMatches, profile: Ints, residuals: Residuals
) -> Iterator[Lookup]:
    """Yield the lookups that can find anything: by shape without and with residuals, then by key."""
    is_possible = np.append(matches.accepted > 0, False)[profile]
    unkeyed = np.array(decomposed.unkeyed, np.int64)
    has_residual = residuals.template_of[unkeyed] >= 0
    listed: list[tuple[Ints, KeyColumns | None]] = [(unkeyed[~has_residual], None), (unkeyed[has_residual], None)]
    listed += [(np.array(keys.subscriptions, np.int64), keys) for keys in decomposed.keyed.values()]
    for every, keys in listed:
        rows = np.flatnonzero(is_possible[every])
        room, repeats = (UNKEYED_ROOM, UNKEYED_REPEATS) if keys is None else (KEYED_ROOM, KEYED_REPEATS)
        max_entries = max(room, repeats * len(rows))
        for which, groups in group_shapes(matches, profile[every[rows]], max_entries) if len(rows) else ():
            if not len(groups):
                continue
            chosen = rows[which]
            if keys is None:
                yield Lookup(groups, every[chosen])
            else:
                make = ValueLookup if keys.method == "equal" else RangeLookup
                yield make(groups, every[chosen], keys, chosen)


# -- matching ----------------------------------------------------------------------------------------------------------


class ListPlan:
    """The lookups for the shapes of a family that have presence bits, or for the types that have too many shapes."""

    def __init__(self, decomposed: DecomposedSubscriptions, matches: ProfileMatches, residuals: Residuals) -> None:
        profile = np.array(decomposed.profile_of, np.int64)
        self.has_presence, self.relevant = matches.words is not None, matches.relevant
        self._words, self._masks = matches.words, matches.masks
        self._mask_of = np.append(matches.mask_of, np.int32(0))[profile]
        self.lookups, self.residuals = tuple(_lookups(decomposed, matches, profile, residuals)), residuals
        for lookup in self.lookups:
            lookup.templates = residuals.templates_of(lookup.cells.columns[0])
        self.plain = [each for each in self.lookups if each.is_plain]
        """The lookups whose candidates are matches."""
        self.others = [each for each in self.lookups if not each.is_plain]
        self.totals = sum((each.per_shape()[1] for each in self.plain), np.zeros(len(matches.type_of), int))
        """For each shape, the number of subscriptions that plain lookups find."""

    def plain_entries(self) -> tuple[Ints, Numbers]:
        """The subscriptions that plain lookups find for each shape, one shape after the other, and where each ends."""
        runs = [each.per_shape() for each in self.plain]
        owner = np.concatenate([np.repeat(np.arange(len(counts)), counts) for _, counts in runs])
        own = [each.cells.columns[0][expand_runs(*run)] for each, run in zip(self.plain, runs, strict=True)]
        return np.cumsum(self.totals), np.concatenate(own)[np.argsort(owner, kind="stable")]

    def columns(self) -> Iterator[str]:
        yield from (lookup.key.name for lookup in self.lookups if lookup.key is not None)
        if not self.has_presence and any(lookup.tests_masks for lookup in self.lookups):
            yield from self.relevant

    def matches(self, events: EventColumns, shapes: Numbers, lookups: Sequence[Lookup]) -> Iterator[Matches]:
        """The matches that some lookups find, a limited number at once; `shapes` are -1 for events of other lists."""
        words: Words | None = None
        for lookup in lookups:
            found: Iterable[Matches] = lookup.candidates(events, shapes)
            if lookup.tests_masks:
                words = self._words_of(events, shapes) if words is None else words
                found = map(partial(self._test_masks, words), found)
            if lookup.templates:
                found = map(partial(self.residuals.test, events), join_matches(found, TESTED))
            yield from (piece for piece in join_matches(found, BLOCK // 2) if len(piece.rows))

    def _test_masks(self, words: Words, found: Matches) -> Matches:
        return found.take(np.flatnonzero(self._masks.fit(self._mask_of[found.subscriptions], words[found.rows])))

    def _words_of(self, events: EventColumns, shapes: Numbers) -> Words:
        """Return the presence of the relevant attributes in each row."""
        if self._words is not None:
            return self._words[shapes]
        return pack_bits(np.array([events.present(name) for name in self.relevant]).reshape(-1, events.rows).T)

    def count_plain(self, shapes: Numbers, times: Ints | None) -> int:
        """The number of matches that plain lookups find in rows of some shapes; with `times`, each so many times."""
        found = np.append(self.totals, 0)[shapes]
        return int(found.sum() if times is None else found @ times)

    def counts_plain(self, shapes: Numbers, times: Ints | None) -> Ints:
        """Return the same for each subscription."""
        per_shape = np.bincount(shapes + 1, times, len(self.totals) + 1)[1:].astype(np.int64)  # without those of -1
        several = len(self._mask_of)
        found = (lookup.count_events(per_shape, several) for lookup in self.plain)
        return sum(found, np.zeros(several, np.int64))

    @property
    def nbytes(self) -> int:
        return (0 if self._words is None else self._words.nbytes) + sum(lookup.nbytes for lookup in self.lookups)


class FamilyPlan:
    """Finds the subscriptions that the events of one family match; made by `plan_routes`, and sent to tasks.

    A batch is a table or record batch with the columns of `columns_needed`, by the present names of attributes; other
    columns do not matter, and an attribute without a column is absent. LakeError if a batch has a shape that was not
    given to `plan_routes`.
    """

    def __init__(self, family: str, numbers: Ints, without: Sequence[str], lists: Sequence[ListPlan]) -> None:
        self.family, self.lists = family, tuple(lists)
        self.numbers = numbers
        """The numbers of the shapes with presence bits, in the order of their ordinals."""
        self._ordinal_of, self._without_presence = IntTable(numbers), pa.array(without, pa.string())

    @property
    def is_plain(self) -> bool:
        """Whether type and attributes decide all matches, so that counts per shape answer counts of matches."""
        return not len(self._without_presence) and not any(each.others for each in self.lists)

    def columns_needed(self) -> list[str]:
        """Return the columns that matching reads, by the present names of attributes."""
        names = [SHAPE, *([TYPE] if len(self._without_presence) else [])]
        names += [name for each in self.lists for name in each.columns()]
        used = {number for each in self.lists for lookup in each.lookups for number in lookup.templates}
        names += [name for number in sorted(used) for name in self.lists[0].residuals.templates[number].attributes]
        return list(dict.fromkeys(names))

    def plain_table(self) -> pa.Table | None:
        """Shapes with the subscriptions that plain lookups find; None if there are none, or too many for a table.

        The other matches are those of `iter_matches` without `plain`.
        """
        listed = [each for each in self.lists if each.has_presence and each.plain]
        if not listed or listed[0].totals.sum() > MAX_PLAIN:
            return None
        ends, subscriptions = listed[0].plain_entries()
        lists = pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), pa.array(subscriptions, pa.int32()))
        table = pa.table({OF_SHAPE: pa.array(self.numbers), ALL_OF_SHAPE: lists})
        return table.filter(pa.array(listed[0].totals > 0))

    def match(self, batch: pa.Table | pa.RecordBatch) -> Matches:
        nothing = Matches(np.empty(0, np.int64), np.empty(0, np.int32))
        return concat_matches([nothing, *self.iter_matches(batch)])

    def iter_matches(self, batch: pa.Table | pa.RecordBatch, *, plain: bool = True) -> Iterator[Matches]:
        """The matches of a batch, a limited number at once; without `plain`, those that are not of `plain_table`."""
        events = EventColumns(batch)
        for each, ordinals in self._ordinals(events):
            yield from each.matches(events, ordinals, each.lookups if plain or not each.has_presence else each.others)

    def count(self, batch: pa.Table | pa.RecordBatch, times: Ints | None = None) -> int:
        """Return the number of matches; where type and attributes decide, without listing them.

        With `times`, if they decide all matches, each row stands for so many events.
        """
        events, total = EventColumns(batch), 0
        for each, ordinals in self._ordinals(events):
            total += each.count_plain(ordinals, times)
            total += sum(len(found.rows) for found in each.matches(events, ordinals, each.others))
        return total

    def counts(self, batch: pa.Table | pa.RecordBatch, times: Ints | None = None) -> Ints:
        """Return the number of matches of each subscription; for `times` see `count`."""
        events, totals = EventColumns(batch), np.zeros(1, np.int64)
        for each, ordinals in self._ordinals(events):
            totals = totals + each.counts_plain(ordinals, times)
            for found in each.matches(events, ordinals, each.others):
                totals += np.bincount(found.subscriptions, minlength=len(totals))
        return totals

    def count_by_shape(self, rows: Mapping[int, int]) -> int:
        """Return the number of matches in a part with so many rows of each shape; see `is_plain`."""
        return self.count(*_events_of(rows))

    def counts_by_shape(self, rows: Mapping[int, int]) -> Ints:
        return self.counts(*_events_of(rows))

    def _ordinals(self, events: EventColumns) -> Iterator[tuple[ListPlan, Numbers]]:
        """For each list, the shapes of the events in it; LakeError if an event has a shape that was not planned."""
        needed = [SHAPE, TYPE] if len(self._without_presence) else [SHAPE]
        columns = {name: column for name in needed if (column := events.stored(name)) is not None}
        if missing := [name for name in needed if name not in columns]:
            raise LakeError(f"the events of {self.family} have no column {missing[0]!r}")
        found = self._ordinal_of.find(columns[SHAPE].cast(pa.int64()).to_numpy())
        types = find_texts(columns[TYPE], self._without_presence) if TYPE in columns else np.full(1, -1, np.int32)
        if unknown := np.count_nonzero((found < 0) & (types < 0)):
            raise LakeError(f"{self.family} has {unknown} events of a shape that its ledger does not list; see check")
        for each in self.lists:
            yield each, found if each.has_presence else types

    @property
    def nbytes(self) -> int:
        return int(16 * ROOM * len(self.numbers)) + sum(each.nbytes for each in self.lists)


def _events_of(rows: Mapping[int, int]) -> tuple[pa.Table, Ints]:
    """Return an event of each shape, and how often there is one."""
    return pa.table({SHAPE: pa.array(rows, pa.int64())}), np.fromiter(rows.values(), np.int64, len(rows))


class RoutePlan:
    """Finds the subscriptions that events match, for the families of a lake; made by `plan_routes`.

    >>> from genus import Event, Subscription, this
    >>> from genus.lake import RouteEntry
    >>> class Buoy(Event):
    ...     height: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Buoy)
    >>> shape = Shape("Buoy", "Buoy", str(catalog.code(Buoy)), "20")
    >>> high = [RouteEntry("ann", Subscription(Buoy, where=this.height > limit)) for limit in range(20)]
    >>> plan = plan_routes(high, {shape.id: shape}, catalog)
    >>> buoys = plan.plans["Buoy"]
    >>> buoys.columns_needed()
    ['_shape', 'height']
    >>> batch = pa.table({"_shape": [shape.number] * 2, "height": [0.5, 1.5]})
    >>> rows, subscriptions = buoys.match(batch)
    >>> sorted(zip(rows.tolist(), subscriptions.tolist()))
    [(0, 0), (1, 0), (1, 1)]
    >>> print(plan.explain())
    20 subscriptions of 1 subscriber
    Buoy: 1 lookup, reads _shape, height; 2 kB of tables
      20 subscriptions found also by the range of height: 1 shape, 7 cells
    """

    def __init__(self, subscribers: tuple[str, ...], plans: Mapping[str, FamilyPlan], void: int) -> None:
        self.subscribers = subscribers
        """The subscriber of each subscription, by number."""
        self.plans, self._void = plans, void

    def __len__(self) -> int:
        return len(self.subscribers)

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(self.plans)

    def family(self, name: str) -> FamilyPlan | None:
        """Return the plan of one family; None if no subscription accepts its shapes."""
        return self.plans.get(name)

    def explain(self) -> str:
        """Text that says how subscriptions are found in each family, and what is read."""
        asked, by = format_count(len(self), "subscription"), format_count(len(set(self.subscribers)), "subscriber")
        lines = [f"{asked} of {by}"]
        lines += [f"  {self._void:,} contradict themselves and match nothing"] if self._void else []
        for plan in self.plans.values():
            lines += describe_plan(plan)
        return "\n".join(lines)


# -- explanation -------------------------------------------------------------------------------------------------------


SHOWN = 3
"""Number of residual predicates that an explanation shows."""
_HOW = {"shape": "by type and attributes", "equal": "also by the value of", "range": "also by the range of"}


def describe_plan(plan: FamilyPlan) -> Iterator[str]:
    """Lines of text: how subscriptions are found, which predicates remain, and what is read."""
    passes = format_count(sum(len(each.lookups) for each in plan.lists), "lookup")
    yield f"{plan.family}: {passes}, reads {', '.join(plan.columns_needed())}; {_format_size(plan.nbytes)} of tables"
    for each in plan.lists:
        for lookup in each.lookups:
            found = format_count(len(np.unique(lookup.cells.columns[0])), "subscription")
            how = f"{_HOW[lookup.method]} {lookup.key.name}" if lookup.key else _HOW[lookup.method]
            tested = ", attributes tested on candidates" if lookup.tests_masks else ""
            kinds = format_count(lookup.kinds, "type" if lookup.by_type else "shape")
            yield f"  {found} found {how}{tested}: {kinds}, {format_count(len(lookup.cells), 'cell')}"
            if lookup.templates:
                yield f"    what is found is tested by {_describe_residuals(each.residuals, lookup.templates)}"


def _describe_residuals(residuals: Residuals, numbers: Sequence[int]) -> str:
    shown = "; ".join(residuals.templates[number].example for number in numbers[:SHOWN])
    more = f"; and {len(numbers) - SHOWN:,} more" if len(numbers) > SHOWN else ""
    return f"{format_count(len(numbers), 'predicate')}, such as {shown}{more}"


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{-(-size // 1000)} kB"


def format_count(number: int, noun: str) -> str:
    """Return a number and a noun, in the plural unless the number is 1.

    >>> format_count(1, "list"), format_count(2000, "list")
    ('1 list', '2,000 lists')
    """
    return f"{number:,} {noun if number == 1 else noun + 's'}"
