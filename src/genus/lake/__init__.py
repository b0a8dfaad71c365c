"""The lake: recorded and live events in Parquet tables on Spark, queried by the subscriptions that run on the bus.

`Lake` ingests, reads, routes and streams events. `pair`, `windows` and `Walk` analyse them. Needs the extra `lake`.
"""

from typing import TYPE_CHECKING

from genus._extras import missing_extra
from genus._lazy import lazy

try:
    import pyspark  # noqa: F401
except ImportError as missing:
    raise missing_extra("the lake needs pyspark", "lake") from missing

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
    from genus.lake._lake import Lake, TableStats
    from genus.lake._query.data_source import register_data_source
    from genus.lake._query.reading import ReadPlan, TableScan
    from genus.lake._query.subscription_list import RouteEntry
    from genus.lake._session import SPARK_ERRORS, check_java, describe_spark_error, lazy_session, local_session
    from genus.lake._stream.derived import DerivedTable, read_results
    from genus.lake._stream.inboxes import Inboxes
    from genus.lake._stream.increments import UpdateResult
    from genus.lake._stream.route import Route
    from genus.lake._stream.stream import Follower, Progress, Stream
    from genus.lake._tables.compaction import CompactionResult
    from genus.lake._tables.store import StoreProblem
    from genus.lake._worker_package import ship
    from genus.records import Mapping, read_mapping

__all__ = [
    "END_OF_STREAM",
    "SPARK_ERRORS",
    "Analysis",
    "CompactionResult",
    "DerivedTable",
    "Follower",
    "Inboxes",
    "IngestResult",
    "Lake",
    "Mapping",
    "Pairing",
    "Progress",
    "ReadPlan",
    "Route",
    "RouteEntry",
    "SettleResult",
    "StoreProblem",
    "Stream",
    "TableScan",
    "TableStats",
    "UpdateResult",
    "Walk",
    "WalkResult",
    "Windows",
    "check_java",
    "describe_spark_error",
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
    "watermark_of",
    "windows",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        _analytics__analysis=(
            "END_OF_STREAM Analysis SettleResult is_late is_overtaken persist union_waiting watermark_of"
        ),
        _analytics__pairing="Pairing pair seconds",
        _analytics__walk="Walk WalkResult",
        _analytics__windows="Windows windows",
        _ingest__ingest="IngestResult",
        _ingest__sources="Mapping read_mapping",
        _lake="Lake TableStats",
        _query__data_source="register_data_source",
        _query__reading="ReadPlan TableScan",
        _query__subscription_list="RouteEntry",
        _session="SPARK_ERRORS check_java describe_spark_error lazy_session local_session",
        _stream__derived="DerivedTable read_results",
        _stream__inboxes="Inboxes",
        _stream__increments="UpdateResult",
        _stream__route="Route",
        _stream__stream="Follower Progress Stream",
        _tables__compaction="CompactionResult",
        _tables__store="StoreProblem",
        _worker_package="ship",
    )
