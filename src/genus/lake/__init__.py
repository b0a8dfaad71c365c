"""The lake: recorded and live events in Parquet tables on Spark, queried by the subscriptions that run on the bus.

`Lake` ingests, reads, routes and streams events. `pair`, `windows` and `Walk` analyse them. They need the extra `lake`.
`LakeReader` answers small questions without Spark; it needs the extra `arrow`.
"""

from typing import TYPE_CHECKING

from genus._extras import missing_extra
from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.lake._analytics.analysis import (
        END_OF_STREAM,
        Analysis,
        SettleResult,
        is_late,
        is_overtaken,
        persist,
        union_waiting,
        watermark_of,
    )
    from genus.lake._analytics.pairing import Pairing, pair, seconds
    from genus.lake._analytics.walk import Walk, WalkResult
    from genus.lake._analytics.windows import Windows, windows
    from genus.lake._ingest.ingest import IngestResult
    from genus.lake._java import Java, find_java, use_java
    from genus.lake._jobs import ship
    from genus.lake._lake import Lake
    from genus.lake._lazy_session import lazy_session
    from genus.lake._local import LakeReader, LakeSummary, LocalEvents, LocalPlan
    from genus.lake._mirror.mirror import MirrorResult
    from genus.lake._query.reading import ReadPlan, TableScan
    from genus.lake._query.removal import RemovalResult
    from genus.lake._query.subscription_list import RouteEntry
    from genus.lake._session import SPARK_ERRORS, describe_spark_error, local_session
    from genus.lake._stream.derived import DerivedTable, read_results
    from genus.lake._stream.inboxes import Inboxes, Route
    from genus.lake._stream.increments import UpdateResult
    from genus.lake._stream.source import register_data_source
    from genus.lake._stream.stream import Follower, Progress, Stream
    from genus.lake._tables.backup import BackupResult, backup
    from genus.lake._tables.followers import FollowerStatus
    from genus.lake._tables.lake_folder import HistoryEntry, TableChange
    from genus.lake._tables.lake_tables import CompactionResult
    from genus.lake._tables.state import TableStats
    from genus.lake._tables.store import StoreProblem
    from genus.records import Mapping, read_mapping

__all__ = [
    "END_OF_STREAM",
    "SPARK_ERRORS",
    "Analysis",
    "BackupResult",
    "CompactionResult",
    "DerivedTable",
    "Follower",
    "FollowerStatus",
    "HistoryEntry",
    "Inboxes",
    "IngestResult",
    "Java",
    "Lake",
    "LakeReader",
    "LakeSummary",
    "LocalEvents",
    "LocalPlan",
    "Mapping",
    "MirrorResult",
    "Pairing",
    "Progress",
    "ReadPlan",
    "RemovalResult",
    "Route",
    "RouteEntry",
    "SettleResult",
    "StoreProblem",
    "Stream",
    "TableChange",
    "TableScan",
    "TableStats",
    "UpdateResult",
    "Walk",
    "WalkResult",
    "Windows",
    "backup",
    "describe_spark_error",
    "find_java",
    "is_late",
    "is_overtaken",
    "lazy_session",
    "local_session",
    "pair",
    "persist",
    "read_mapping",
    "read_results",
    "register_data_source",
    "seconds",
    "ship",
    "union_waiting",
    "use_java",
    "watermark_of",
    "windows",
]

if not TYPE_CHECKING:
    _find = lazy(__name__)

    def __getattr__(name: str) -> object:
        try:
            return _find(name)
        except ModuleNotFoundError as missing:
            package = (missing.name or "").partition(".")[0]
            if package in ("pyspark", "py4j"):
                raise missing_extra("the lake needs pyspark", "lake") from missing
            if package in ("pyarrow", "numpy"):
                raise missing_extra("the lake needs pyarrow", "arrow") from missing
            raise
