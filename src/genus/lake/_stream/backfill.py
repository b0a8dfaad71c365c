"""Backfill: events that are in a lake already, for subscriptions that are new to inboxes and ask for them.

The inboxes note which entries with a time (`RouteEntry.since`) they have had. An entry that is not among them gets the
matches of all earlier events from its time on, without those that were delivered to it already.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from genus.lake._analytics.analysis import event_time
from genus.lake._query.route_job import RouteJob
from genus.lake._query.route_plan import plan_routes
from genus.lake._query.subscription_list import RouteEntry
from genus.lake._tables.lake_tables import LakeTables
from genus.lake._tables.names import SUBSCRIPTION
from genus.lake._tables.shapes import hash_of
from genus.lake._tables.state import LedgerState
from genus.model._types import micros_of_time

BACKFILLED = "backfilled"
"""The note of inboxes with the keys of the entries that have got earlier events."""
_NUMBER, _TEXT, _SINCE_US = "__number", "__text", "__since_us"


class BackfillList:
    """The entries of a list of subscriptions that ask for earlier events. State: those of the last list."""

    def __init__(self) -> None:
        self._entries: Sequence[RouteEntry] = ()
        self._keys: dict[str, RouteEntry] = {}

    def note(self, entries: Sequence[RouteEntry]) -> str:
        """The keys of the entries that ask for earlier events, as the text of a note."""
        return " ".join(sorted(self._asking(entries)))

    def due(self, entries: Sequence[RouteEntry], noted: str) -> list[RouteEntry]:
        """The entries whose keys are not in a note."""
        done = set(noted.split())
        return [entry for key, entry in self._asking(entries).items() if key not in done]

    def _asking(self, entries: Sequence[RouteEntry]) -> dict[str, RouteEntry]:
        if self._entries is not entries:
            self._entries = entries
            self._keys = {_key(entry): entry for entry in _earliest(entries)}
        return self._keys


def _earliest(entries: Iterable[RouteEntry]) -> Iterable[RouteEntry]:
    """The entries that ask for earlier events; of those of one subscriber and subscription, the one that asks most."""
    found: dict[tuple[str, str], RouteEntry] = {}
    for entry in entries:
        if entry.since is not None:
            known = found.setdefault((entry.subscriber, str(entry.subscription)), entry)
            if known.since is not None and entry.since < known.since:
                found[entry.subscriber, str(entry.subscription)] = entry
    return found.values()


def _key(entry: RouteEntry) -> str:
    return f"{hash_of(repr((entry.subscriber, str(entry.subscription), entry.since))) & (1 << 64) - 1:016x}"


class Backfill:
    """The matches of some entries among the events of a lake from the time on that each asks for."""

    def __init__(self, lake: LakeTables, entries: Sequence[RouteEntry]) -> None:
        self.lake = lake
        self._entries = entries
        self._since = [entry.since for entry in entries if entry.since is not None]
        self._plan = plan_routes(entries, lake.state().shapes, lake.catalog)

    @property
    def families(self) -> tuple[str, ...]:
        """The families that can have matches."""
        return self._plan.families

    def matches(self, family: str, state: LedgerState) -> DataFrame:
        """The matches in the events of a version: subscriber, text of the subscription, and columns of the event."""
        first = min(self._since).astimezone(UTC).date()
        parts = [part for part in state.table(family) if part.day is None or part.day >= first]
        found = RouteJob(self.lake, self._plan).matches(family, parts)
        asked = self.lake.spark.createDataFrame(self._table())
        chosen = found.join(F.broadcast(asked), F.col(SUBSCRIPTION) == F.col(_NUMBER))
        chosen = chosen.where(F.unix_micros(event_time()) >= F.col(_SINCE_US))
        return chosen.withColumn(SUBSCRIPTION, F.col(_TEXT)).select(*found.columns)

    def _table(self) -> pa.Table:
        return pa.table(
            {
                _NUMBER: pa.array(range(len(self._entries)), pa.int32()),
                _TEXT: pa.array([str(entry.subscription) for entry in self._entries], pa.string()),
                _SINCE_US: pa.array(map(micros_of_time, self._since), pa.int64()),
            }
        )
