"""The plan of a route: many subscriptions, decomposed and matched with shapes, as lookups for batches of events.

This module is the kernel of routing. It needs numpy and pyarrow, but no Spark: Spark tasks call it for the row groups
of files, and the driver for small batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from genus.catalog import Catalog
from genus.errors import LakeError, NotRegistered
from genus.filters._expression import format_expression
from genus.lake._query.decompose import DecomposedSubscriptions, KeyColumns, decompose
from genus.lake._query.lookup import (
    KeyAttribute,
    Lookup,
    Matches,
    RangeLookup,
    Rows,
    ShapeLookup,
    ValueLookup,
    concat_matches,
    find_texts,
    join_matches,
    key_attribute,
)
from genus.lake._query.number_tables import BLOCK, ROOM, Ints, IntTable, Numbers, expand_runs, sort_codes
from genus.lake._query.shape_match import (
    WORD,
    FamilyShapes,
    Groups,
    Masks,
    ProfileMatches,
    Words,
    count_words,
    group_shapes,
    narrowed,
    split_shapes,
)
from genus.lake._query.templates import EventColumns, Residual, Templates
from genus.lake._tables.names import SHAPE, TYPE
from genus.lake._tables.shapes import Shape
from genus.model import Vector

if TYPE_CHECKING:
    from genus.lake._query.subscription_list import RouteEntry

UNKEYED_ROOM, KEYED_ROOM = 4_000_000, 50_000
"""Entries that the table of a lookup may always have, without and with a key."""
REPEATS = 8
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
    decomposed = decompose([entry.subscription for entry in subscriptions])
    _check_types(subscriptions, decomposed, catalog)
    families: dict[str, dict[int, Shape]] = {}
    for number, shape in shapes.items():
        families.setdefault(shape.family, {})[number] = shape
    residuals = Residuals.of(decomposed.templates, len(subscriptions))
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
    residuals: "Residuals",
) -> "FamilyPlan":
    vector = catalog.vector(family)
    named = {name for profile in decomposed.profiles for name in profile.has | profile.lacks}
    relevant = [attribute.name for attribute in vector if attribute.name in named]
    tagged, untagged = split_shapes(shapes)
    lists = [
        _plan_list(decomposed, FamilyShapes(listed, vector, has_tags, relevant), catalog, vector, residuals)
        for listed, has_tags in ((list(tagged.values()), True), (untagged, False))
        if listed
    ]
    numbers = np.fromiter(tagged, np.int64, len(tagged))
    return FamilyPlan(
        family, numbers, [shape.type for shape in untagged], [one for one in lists if one.lookups], residuals
    )


def _plan_list(
    decomposed: DecomposedSubscriptions,
    shapes: FamilyShapes,
    catalog: Catalog,
    vector: Vector,
    residuals: "Residuals",
) -> "ListPlan":
    matches = ProfileMatches(decomposed.profiles, shapes, catalog, vector)
    profile = np.array(decomposed.profile_of, np.int64)
    lookups = list(_Planner(decomposed, matches, profile, residuals).lookups())
    mask_of = np.append(matches.mask_of, 0)[profile].astype(np.int32)
    return ListPlan(shapes, matches.masks, mask_of, lookups)


class _Planner:
    """Plans the lookups for a list of shapes."""

    def __init__(
        self, decomposed: DecomposedSubscriptions, matches: ProfileMatches, profile: Ints, residuals: "Residuals"
    ) -> None:
        self._decomposed, self._profile, self._residuals = decomposed, profile, residuals
        self._matches = matches
        self._is_possible = np.append(matches.weight > 0, False)[profile]

    def lookups(self) -> Iterator[Lookup]:
        """The lookups that can find anything: by shape without and with residuals, then by key."""
        unkeyed = np.array(self._decomposed.unkeyed, np.int64)
        has_residual = self._residuals.template_of[unkeyed] >= 0
        plain, tested = unkeyed[~has_residual], unkeyed[has_residual]
        for chosen in (plain, tested):
            subscription = chosen[self._is_possible[chosen]]
            for which, groups in self._groups(subscription, UNKEYED_ROOM):
                yield ShapeLookup(groups, subscription[which], chosen is plain)
        for (method, number), keys in self._decomposed.keyed.items():
            key = key_attribute(self._decomposed.dimensions[number])
            yield from self._by_key(ValueLookup if method == "equal" else RangeLookup, keys, key)

    def _by_key(
        self, make: type[ValueLookup] | type[RangeLookup], keys: KeyColumns, key: KeyAttribute
    ) -> Iterator[Lookup]:
        every = np.array(keys.subscriptions, np.int64)
        rows = np.flatnonzero(self._is_possible[every])
        for which, groups in self._groups(every[rows], KEYED_ROOM):
            yield make(groups, every[rows[which]], keys, rows[which], key)

    def _groups(self, subscription: Ints, room: int) -> Iterator[tuple[Ints, Groups]]:
        if len(subscription):
            found = group_shapes(self._matches, self._profile[subscription], max(room, REPEATS * len(subscription)))
            yield from ((which, groups) for which, groups in found if len(groups))


# -- residuals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Residuals:
    """The residual predicates of subscriptions."""

    template_of: Numbers
    slot_of: Numbers
    """For each subscription: its template, -1 if it has no residual, and the row of its constants."""
    templates: Sequence[Residual]
    examples: Sequence[str]
    """One residual of each template as text, for explanations."""

    @staticmethod
    def of(templates: Templates, subscriptions: int) -> "Residuals":
        """The residuals that were decomposed."""
        template_of, slot_of = np.full(subscriptions, -1, np.int32), np.zeros(subscriptions, np.int32)
        owner = np.array(templates.subscriptions, np.int64)
        template_of[owner], slot_of[owner] = templates.numbers, templates.slots
        compiled = [templates.residual(number) for number in range(len(templates))]
        return Residuals(template_of, slot_of, compiled, [format_expression(each) for each in templates.examples])

    def test(self, events: EventColumns, found: Matches) -> Matches:
        """The candidates whose residual is true, template by template."""
        template = self.template_of[found.subscriptions]
        tested = np.flatnonzero(template >= 0)
        if not len(tested):
            return found
        kept = [np.flatnonzero(template < 0)] if len(tested) < len(template) else []
        order, ends = sort_codes(template[tested], len(self.templates))
        used = np.flatnonzero(np.diff(ends, prepend=0))
        for number, chosen in zip(used.tolist(), np.split(tested[order], ends[used][:-1]), strict=True):
            kept.append(chosen[self._holds(number, events, found, chosen)])
        whole = np.concatenate(kept)
        return Matches(found.rows[whole], found.subscriptions[whole])

    def templates_in(self, lookup: Lookup) -> list[int]:
        """The templates of the subscriptions that a lookup finds, most frequent first."""
        if not self.templates:
            return []
        used = self.template_of[np.unique(lookup.cells.columns[0])]
        return [number for number, _ in Counter(used[used >= 0].tolist()).most_common()]

    def _holds(self, number: int, events: EventColumns, found: Matches, chosen: Rows) -> npt.NDArray[np.bool_]:
        template = self.templates[number]
        columns = events.take(dict(template.attributes), pa.array(found.rows[chosen]))
        return template.test(columns, self.slot_of[found.subscriptions[chosen]])


# -- matching ----------------------------------------------------------------------------------------------------------


class ListPlan:
    """The lookups for the shapes of a family that have presence bits, or for the types that have too many shapes."""

    def __init__(
        self, shapes: FamilyShapes, masks: Masks, mask_of: npt.NDArray[np.int32], lookups: Sequence[Lookup]
    ) -> None:
        self.tagged, self.relevant = shapes.tagged, shapes.relevant
        self._type_of, self._words, self._masks, self._mask_of = shapes.type_of, shapes.words, masks, mask_of
        self.lookups = tuple(lookups)
        self.plain = [each for each in self.lookups if isinstance(each, ShapeLookup) and each.is_plain]
        """The lookups whose candidates are matches."""
        self.totals = sum((self._per_shape(each)[1] for each in self.plain), np.zeros(len(shapes), int))
        """For each shape, the number of subscriptions that plain lookups find."""

    def _per_shape(self, lookup: ShapeLookup) -> tuple[Ints, Ints]:
        """Where the subscriptions of each shape begin in a lookup, and how many there are."""
        start, counts = lookup.per_kind()
        return (start[self._type_of], counts[self._type_of]) if lookup.by_type else (start, counts)

    @property
    def others(self) -> list[Lookup]:
        """The lookups whose candidates are counted one by one."""
        return [each for each in self.lookups if each not in self.plain]

    def plain_entries(self) -> tuple[Ints, Numbers]:
        """The subscriptions that plain lookups find for each shape, one shape after the other, and where each ends."""
        runs = [self._per_shape(each) for each in self.plain]
        owner = np.concatenate([np.repeat(np.arange(len(counts)), counts) for _, counts in runs])
        own = [each.cells.columns[0][expand_runs(*run)] for each, run in zip(self.plain, runs, strict=True)]
        return np.cumsum(self.totals), np.concatenate(own)[np.argsort(owner, kind="stable")]

    def columns(self) -> Iterator[str]:
        """The columns that lookups read."""
        yield from (lookup.key.name for lookup in self.lookups if lookup.key is not None)
        if not self.tagged and any(lookup.tests_masks for lookup in self.lookups):
            yield from self.relevant

    def candidates(
        self, events: EventColumns, ordinals: npt.NDArray[np.int32], lookups: Sequence[Lookup]
    ) -> Iterator[tuple[Lookup, Iterable[Matches]]]:
        """Candidates whose type, attributes and key match; `ordinals` are -1 for events of other lists."""
        types = words = None
        for lookup in lookups:
            if lookup.by_type and types is None:
                types = np.where(ordinals >= 0, self._type_of[ordinals], np.int32(-1))
            if lookup.tests_masks and words is None:
                words = self._words_of(events, ordinals)
            found = lookup.candidates(events, types if lookup.by_type and types is not None else ordinals)
            if lookup.tests_masks and words is not None:
                yield lookup, map(partial(self._test_masks, words), found)
            else:
                yield lookup, found

    def _test_masks(self, words: Words, found: Matches) -> Matches:
        fits = np.flatnonzero(self._masks.fit(self._mask_of[found.subscriptions], words[found.rows]))
        return Matches(found.rows[fits], found.subscriptions[fits])

    def _words_of(self, events: EventColumns, ordinals: npt.NDArray[np.int32]) -> Words:
        """The presence of the relevant attributes in each row."""
        if self.tagged:
            return self._words[ordinals]
        words = np.zeros((len(ordinals), count_words(len(self.relevant))), np.int64)
        for place, name in enumerate(self.relevant):
            words[:, place // WORD] |= events.present(name).astype(np.int64) << place % WORD
        return narrowed(words, len(self.relevant))

    def count_per_subscription(self, events_per_shape: Ints, subscriptions: int) -> Ints:
        """The number of matches of each subscription that plain lookups find, given the number of events per shape."""
        per_type = np.bincount(self._type_of, events_per_shape).astype(np.int64)
        given = [per_type if lookup.by_type else events_per_shape for lookup in self.plain]
        found = [one.count_events(of, subscriptions) for one, of in zip(self.plain, given, strict=True)]
        return sum(found, np.zeros(subscriptions, np.int64))

    @property
    def nbytes(self) -> int:
        """The size of the tables."""
        return int(self._words.nbytes + self._type_of.nbytes) + sum(lookup.nbytes for lookup in self.lookups)


class FamilyPlan:
    """Finds the subscriptions that the events of one family match; made by `plan_routes`, and sent to tasks."""

    def __init__(
        self, family: str, numbers: Ints, untagged: Sequence[str], lists: Sequence[ListPlan], residuals: Residuals
    ) -> None:
        self.family, self.lists, self.residuals = family, tuple(lists), residuals
        self.numbers = numbers
        """The numbers of the shapes with presence bits, in the order of their ordinals."""
        self._ordinal_of, self._untagged = IntTable(numbers), pa.array(untagged, pa.string())
        self.templates = {lookup: residuals.templates_in(lookup) for each in lists for lookup in each.lookups}
        """The templates of the subscriptions that each lookup finds, most frequent first."""

    @property
    def is_plain(self) -> bool:
        """Whether type and attributes decide all matches, so that counts per shape answer counts of matches."""
        return not len(self._untagged) and not any(each.others for each in self.lists)

    def columns_needed(self) -> list[str]:
        """The columns that matching reads, by the present names of attributes."""
        names = [SHAPE, *([TYPE] if len(self._untagged) else [])]
        names += [name for each in self.lists for name in each.columns()]
        used = sorted({number for templates in self.templates.values() for number in templates})
        names += [name for number in used for name, _ in self.residuals.templates[number].attributes]
        return list(dict.fromkeys(names))

    def plain_table(self) -> pa.Table | None:
        """Shapes with the subscriptions that plain lookups find; None if there are none, or too many for a table.

        The other matches are those of `iter_matches` without `plain`.
        """
        listed = [each for each in self.lists if each.tagged and each.plain]
        if not listed or listed[0].totals.sum() > MAX_PLAIN:
            return None
        ends, subscriptions = listed[0].plain_entries()
        lists = pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), pa.array(subscriptions, pa.int32()))
        table = pa.table({OF_SHAPE: pa.array(self.numbers), ALL_OF_SHAPE: lists})
        return table.filter(pa.array(listed[0].totals > 0))

    def match(self, batch: pa.Table | pa.RecordBatch) -> Matches:
        """All matches of a batch."""
        return concat_matches([NO_MATCHES, *self.iter_matches(batch)])

    def iter_matches(self, batch: pa.Table | pa.RecordBatch, *, plain: bool = True) -> Iterator[Matches]:
        """The matches of a batch, a limited number at once; without `plain`, those that are not of `plain_table`."""
        events = EventColumns(batch)
        for each, ordinals in self._ordinals(events):
            yield from self._test(each, events, ordinals, each.lookups if plain or not each.tagged else each.others)

    def _test(
        self, each: ListPlan, events: EventColumns, ordinals: npt.NDArray[np.int32], lookups: Sequence[Lookup]
    ) -> Iterator[Matches]:
        for lookup, found in each.candidates(events, ordinals, lookups):
            if self.templates[lookup]:
                found = (self.residuals.test(events, piece) for piece in join_matches(found, TESTED))
            yield from (piece for piece in join_matches(found, BLOCK // 2) if len(piece.rows))

    def count(self, batch: pa.Table | pa.RecordBatch) -> int:
        """The number of matches; where type and attributes decide, without listing them."""
        events, total = EventColumns(batch), 0
        for each, ordinals in self._ordinals(events):
            total += int(np.append(each.totals, 0)[ordinals].sum())
            total += sum(len(found.rows) for found in self._test(each, events, ordinals, each.others))
        return total

    def counts(self, batch: pa.Table | pa.RecordBatch) -> Ints:
        """The number of matches of each subscription."""
        events, several = EventColumns(batch), len(self.residuals.template_of)
        totals = np.zeros(several, np.int64)
        for each, ordinals in self._ordinals(events):
            if each.plain:
                per_shape = np.bincount(ordinals[ordinals >= 0], minlength=len(each.totals))
                totals += each.count_per_subscription(per_shape, several)
            for found in self._test(each, events, ordinals, each.others):
                totals += np.bincount(found.subscriptions, minlength=several)
        return totals

    def counts_by_shape(self, rows: Mapping[int, int]) -> Ints:
        """The number of matches of each subscription in parts with so many rows of each shape; see `is_plain`."""
        totals = np.zeros(len(self.residuals.template_of), np.int64)
        for each, per_shape in self._rows_per_shape(rows):
            totals += each.count_per_subscription(per_shape, len(totals))
        return totals

    def count_by_shape(self, rows: Mapping[int, int]) -> int:
        """The number of matches in a part with so many rows of each shape; see `is_plain`."""
        return sum(int(each.totals @ per_shape) for each, per_shape in self._rows_per_shape(rows))

    def _rows_per_shape(self, rows: Mapping[int, int]) -> Iterator[tuple[ListPlan, Ints]]:
        numbers = pa.table({SHAPE: pa.array(rows, pa.int64())})
        counts = np.fromiter(rows.values(), np.int64, len(rows))
        for each, ordinals in self._ordinals(EventColumns(numbers)):
            per_shape = np.zeros(len(each.totals), np.int64)
            per_shape[ordinals] = counts
            yield each, per_shape

    def _ordinals(self, events: EventColumns) -> Iterator[tuple[ListPlan, npt.NDArray[np.int32]]]:
        """For each list, the shapes of the events in it; LakeError if an event has a shape that was not planned."""
        numbers = events.integers(SHAPE)
        if numbers is None:
            raise LakeError(f"the events of {self.family} have no column {SHAPE!r}")
        found, types = self._ordinal_of.find(numbers), np.full(1, -1, np.int32)
        if len(self._untagged):
            if (names := events.stored(TYPE)) is None:
                raise LakeError(f"the events of {self.family} have no column {TYPE!r}")
            types = find_texts(names, self._untagged)
        if unknown := np.count_nonzero((found < 0) & (types < 0)):
            raise LakeError(f"{self.family} has {unknown} events of a shape that its ledger does not list; see check")
        for each in self.lists:
            yield each, found if each.tagged else types

    @property
    def nbytes(self) -> int:
        """The size of the tables."""
        return int(16 * ROOM * len(self.numbers)) + sum(each.nbytes for each in self.lists)


class RoutePlan:
    """Finds the subscriptions that events match, for the families of a lake; made by `plan_routes`.

    A batch is a table or record batch of one family with the columns `columns_needed(family)`, by the present names of
    attributes; other columns do not matter, and an attribute without a column is absent. LakeError if a batch has a
    shape that was not given to `plan_routes`.

    >>> from genus import Event, Subscription, this
    >>> from genus.lake import RouteEntry
    >>> class Buoy(Event):
    ...     height: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Buoy)
    >>> shape = Shape("Buoy", "Buoy", str(catalog.code(Buoy)), "20")
    >>> high = [RouteEntry("ann", Subscription(Buoy, where=this.height > limit)) for limit in range(20)]
    >>> plan = plan_routes(high, {shape.id: shape}, catalog)
    >>> plan.columns_needed("Buoy")
    ['_shape', 'height']
    >>> batch = pa.table({"_shape": [shape.number] * 2, "height": [0.5, 1.5]})
    >>> rows, subscriptions = plan.match("Buoy", batch)
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
        """The families with a shape that any subscription accepts."""
        return tuple(self.plans)

    def family(self, name: str) -> FamilyPlan | None:
        """The plan of one family; None if no subscription accepts its shapes."""
        return self.plans.get(name)

    def columns_needed(self, family: str) -> list[str]:
        """The columns of events that `match` reads, by the present names of attributes; none if nothing can match."""
        found = self.plans.get(family)
        return [] if found is None else found.columns_needed()

    def match(self, family: str, batch: pa.Table | pa.RecordBatch) -> Matches:
        """All matches of a batch of events of one family: row indices and numbers of subscriptions."""
        found = self.plans.get(family)
        return NO_MATCHES if found is None else found.match(batch)

    def explain(self) -> str:
        """Text that says how subscriptions are found in each family, and what is read."""
        asked, by = format_count(len(self), "subscription"), format_count(len(set(self.subscribers)), "subscriber")
        lines = [f"{asked} of {by}"]
        lines += [f"  {self._void:,} contradict themselves and match nothing"] if self._void else []
        for plan in self.plans.values():
            lines += describe_plan(plan)
        return "\n".join(lines)


NO_MATCHES = Matches(np.empty(0, np.int64), np.empty(0, np.int32))


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
            found = len(np.unique(lookup.cells.columns[0]))
            yield f"  {format_count(found, 'subscription')} found {_how(lookup)}: {_sizes(lookup)}"
            yield from _describe_residuals(plan, plan.templates[lookup])


def _describe_residuals(plan: FamilyPlan, numbers: Sequence[int]) -> Iterator[str]:
    if numbers:
        shown = "; ".join(plan.residuals.examples[number] for number in numbers[:SHOWN])
        more = f"; and {len(numbers) - SHOWN:,} more" if len(numbers) > SHOWN else ""
        yield f"    what is found is tested by {format_count(len(numbers), 'predicate')}, such as {shown}{more}"


def _how(lookup: Lookup) -> str:
    found = f"{_HOW[lookup.method]} {lookup.key.name if lookup.key else ''}".strip()
    return f"{found}, attributes tested on candidates" if lookup.tests_masks else found


def _sizes(lookup: Lookup) -> str:
    kinds = format_count(lookup.kinds, "type" if lookup.by_type else "shape")
    return f"{kinds}, {format_count(len(lookup.cells), 'cell')}"


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{-(-size // 1000)} kB"


def format_count(number: int, noun: str) -> str:
    """A number and a noun, in the plural unless the number is 1.

    >>> format_count(1, "list"), format_count(2000, "list")
    ('1 list', '2,000 lists')
    """
    return f"{number:,} {noun if number == 1 else noun + 's'}"
