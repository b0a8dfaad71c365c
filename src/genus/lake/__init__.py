"""The lake: recorded and live events in Parquet tables on Spark, queried by the subscriptions that run on the bus.

`Lake` ingests, reads, routes and streams events. `pair`, `windows` and `Walk` analyse them. They need the extra `lake`.
`LakeReader` answers small questions without Spark; it needs the extra `arrow`. What calls return is in
`genus.lake.types`.
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.lake._analytics.analysis import END_OF_STREAM, Analysis, SettleResult, is_late, persist
    from genus.lake._analytics.pairing import Pairing, pair, seconds
    from genus.lake._analytics.windows import Walk, WalkResult, Windows, windows
    from genus.lake._java import find_java, use_java
    from genus.lake._jobs import ship
    from genus.lake._lake import Lake
    from genus.lake._local import LakeReader
    from genus.lake._query.subscription_list import RouteEntry
    from genus.lake._session import SPARK_ERRORS, describe_spark_error, local_session
    from genus.lake._stream.derived import DerivedTable, read_results
    from genus.lake._stream.inboxes import Inboxes
    from genus.lake._stream.source import register_data_source
    from genus.lake._tables.lake_folder import backup

__all__ = [
    "END_OF_STREAM",
    "SPARK_ERRORS",
    "Analysis",
    "DerivedTable",
    "Inboxes",
    "Lake",
    "LakeReader",
    "Pairing",
    "RouteEntry",
    "SettleResult",
    "Walk",
    "WalkResult",
    "Windows",
    "backup",
    "describe_spark_error",
    "find_java",
    "is_late",
    "local_session",
    "pair",
    "persist",
    "read_results",
    "register_data_source",
    "seconds",
    "ship",
    "use_java",
    "windows",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, pyspark="lake", py4j="lake", pyarrow="arrow", numpy="arrow")
