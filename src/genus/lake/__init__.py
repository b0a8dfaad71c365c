"""The lake: years of recorded events, and live ones, answer on Spark the subscriptions that run on the bus."""

from typing import TYPE_CHECKING

from genus._extras import missing_extra
from genus._lazy import lazy

try:
    import pyspark  # noqa: F401
except ImportError as missing:
    raise missing_extra("the lake needs pyspark", "lake") from missing

if TYPE_CHECKING:
    from genus.lake._analytics import Pairing, Walk, Walked, Windows, is_late, keep, pair, seconds, windows
    from genus.lake._datasource import register
    from genus.lake._derived import Derived, open_results
    from genus.lake._inboxes import Inboxes
    from genus.lake._lake import Ingested, Lake, TableStats
    from genus.lake._route import Routed
    from genus.lake._routing import Route
    from genus.lake._session import local_session
    from genus.lake._stream import Progress, Stream
    from genus.lake._worker_package import ship

__all__ = [
    "Derived",
    "Inboxes",
    "Ingested",
    "Lake",
    "Pairing",
    "Progress",
    "Route",
    "Routed",
    "Stream",
    "TableStats",
    "Walk",
    "Walked",
    "Windows",
    "is_late",
    "keep",
    "local_session",
    "open_results",
    "pair",
    "register",
    "seconds",
    "ship",
    "windows",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        _analytics="Pairing Walk Walked Windows is_late keep pair seconds windows",
        _datasource="register",
        _derived="Derived open_results",
        _inboxes="Inboxes",
        _lake="Ingested Lake TableStats",
        _route="Routed",
        _routing="Route",
        _session="local_session",
        _stream="Progress Stream",
        _worker_package="ship",
    )
