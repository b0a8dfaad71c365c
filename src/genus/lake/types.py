"""What calls of `genus.lake` return, and the interface `Follower`: for annotations, the documentation and `isinstance`.

`genus.lake` has what programs construct, call and catch.
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.lake._ingest.ingest import IngestResult
    from genus.lake._java import Java
    from genus.lake._local import LakeSummary, LocalEvents, LocalPlan
    from genus.lake._query.reading import ReadPlan, TableScan
    from genus.lake._query.removal import RemovalResult
    from genus.lake._stream.delivery import UpdateResult
    from genus.lake._stream.inboxes import Route
    from genus.lake._stream.stream import Follower, Progress, Stream, StreamRoute
    from genus.lake._tables.followers import FollowerStatus
    from genus.lake._tables.lake_folder import BackupResult, HistoryEntry, TableChange
    from genus.lake._tables.lake_tables import CompactionResult
    from genus.lake._tables.mirror import MirrorResult
    from genus.lake._tables.state import TableStats
    from genus.lake._tables.store import StoreProblem

__all__ = [
    "BackupResult",
    "CompactionResult",
    "Follower",
    "FollowerStatus",
    "HistoryEntry",
    "IngestResult",
    "Java",
    "LakeSummary",
    "LocalEvents",
    "LocalPlan",
    "MirrorResult",
    "Progress",
    "ReadPlan",
    "RemovalResult",
    "Route",
    "StoreProblem",
    "Stream",
    "StreamRoute",
    "TableChange",
    "TableScan",
    "TableStats",
    "UpdateResult",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, pyspark="lake", py4j="lake", pyarrow="arrow", numpy="arrow")
