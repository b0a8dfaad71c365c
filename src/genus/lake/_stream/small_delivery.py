"""Deliveries of few events in this process, because a Spark job takes longer to start than they take.

The new files are read with pyarrow, matched by the plan of the route, and the matches written in order of subscriber
and time, as Spark would write them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from genus.lake._ingest.writer import ROW_GROUP, write_tables
from genus.lake._query.lookup import Matches
from genus.lake._query.route_plan import RoutePlan
from genus.lake._stream.part_files import read_rows
from genus.lake._tables.columns import SUBSCRIBER, SUBSCRIPTION, file_schema
from genus.lake._tables.commits import Part, StoredFile
from genus.lake._tables.files import arrow_opens, write_file
from genus.lake._tables.store import Store
from genus.model import Vector

SMALL_EVENTS = 1_000_000
"""An increment of at most this many events is delivered without Spark, if it has not too many matches."""
MOST_MATCHES = 4_000_000

_ADDRESS = (pa.field(SUBSCRIBER, pa.string()), pa.field(SUBSCRIPTION, pa.string()))

Numbers = npt.NDArray[np.int64]


class SmallDelivery:
    """Matches few events by one plan. Made once for a plan, because the names of its subscribers are sorted."""

    def __init__(self, plan: RoutePlan, texts: Sequence[str]) -> None:
        self.plan = plan
        self._subscribers, self._texts = pa.array(plan.subscribers, pa.string()), pa.array(texts, pa.string())
        self._is_first = np.zeros(len(texts), np.bool_)
        self._is_first[first_numbers(plan.subscribers, texts)] = True
        names = self._subscribers.dictionary_encode()
        rank = pc.rank(names.dictionary).to_numpy().astype(np.int64)
        self._rank: Numbers = rank[names.indices.to_numpy()] if len(names) else rank

    def match(self, lake: Store, family: str, vector: Vector, parts: Sequence[Part]) -> "FoundMatches | None":
        """The matches of the events in some parts, in order of subscriber and time; None if there are too many."""
        schema = file_schema(vector)
        events = read_rows(lake, parts, schema)
        plan = self.plan.family(family)
        found: list[Matches] = []
        count = 0
        for each in [] if plan is None else plan.iter_matches(_with_present_names(events, vector)):
            found.append(each)
            count += len(each.rows)
            if count > MOST_MATCHES:
                return None
        rows = np.concatenate([np.empty(0, np.int64), *(each.rows for each in found)])
        subscriptions = np.concatenate([np.empty(0, np.int32), *(each.subscriptions for each in found)])
        once = self._is_first[subscriptions]
        rows, subscriptions = rows[once], subscriptions[once]
        order = np.lexsort((_times(events)[rows], self._rank[subscriptions]))
        return FoundMatches(self, events, rows[order], subscriptions[order])

    def addresses(self, subscriptions: npt.NDArray[np.int32]) -> list[pa.Array]:
        """The subscribers and texts of subscriptions."""
        chosen = pa.array(subscriptions)
        return [self._subscribers.take(chosen), self._texts.take(chosen)]


class FoundMatches:
    """The matches of one family: rows of events and numbers of subscriptions."""

    def __init__(
        self, delivery: SmallDelivery, events: pa.Table, rows: Numbers, subscriptions: npt.NDArray[np.int32]
    ) -> None:
        self._delivery, self._events, self._rows, self._subscriptions = delivery, events, rows, subscriptions

    def __len__(self) -> int:
        return len(self._rows)

    def write(self, root: str, folder: str, name: str, table: str) -> Part:
        """Write a file; returns it as a part."""
        schema = pa.schema([*_ADDRESS, *self._events.schema])
        written = write_file(
            f"{root}/{folder}/{name}", lambda stream: write_tables(stream, schema, self._tables(schema))
        )
        return Part(table, folder, (StoredFile(name, len(self), *written),))

    def _tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows of each row group, so that all matches are never in memory at once."""
        for first in range(0, len(self), ROW_GROUP):
            chosen = slice(first, first + ROW_GROUP)
            events = self._events.take(pa.array(self._rows[chosen]))
            addresses = self._delivery.addresses(self._subscriptions[chosen])
            yield pa.Table.from_arrays([*addresses, *events.columns], schema=schema)


def first_numbers(subscribers: Sequence[str], texts: Sequence[str]) -> list[int]:
    """The numbers of subscriptions without those that a subscriber has listed before; matches are delivered once.

    >>> first_numbers(["ann", "ben", "ann", "ann"], ["Loop", "Loop", "Loop", "Gate"])
    [0, 1, 3]
    """
    found: dict[tuple[str, str], int] = {}
    for number, address in enumerate(zip(subscribers, texts, strict=True)):
        found.setdefault(address, number)
    return list(found.values())


def is_small(lake: Store, inboxes: Store, events: int) -> bool:
    """Whether so many events can be delivered without Spark."""
    return events <= SMALL_EVENTS and arrow_opens(lake.path) and arrow_opens(inboxes.path)


def _with_present_names(events: pa.Table, vector: Vector) -> pa.Table:
    present = {attribute.first_name: attribute.name for attribute in vector}
    return events.rename_columns([present.get(name, name) for name in events.schema.names])


def _times(events: pa.Table) -> Numbers:
    """The times of events as numbers, for sorting; those without a time come first."""
    least = np.iinfo(np.int64).min
    times: Numbers = pc.fill_null(events.column("time").cast(pa.int64()), least).to_numpy()
    return times
