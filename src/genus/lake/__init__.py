"""The lake: years of recorded events, and live ones, answer on Spark the subscriptions that run on the bus."""

try:
    import pyspark  # noqa: F401
except ImportError as missing:
    raise ImportError("the lake needs pyspark: pip install 'genus[lake]'") from missing

from genus.lake.analytics import Pairing, Walk, Walked, Windows, pair, windows
from genus.lake.derived import Derived, open_results
from genus.lake.inboxes import Inboxes
from genus.lake.lake import Ingested, Lake
from genus.lake.route import Routed
from genus.lake.routing import Route
from genus.lake.stream import Progress, Stream

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
    "Walk",
    "Walked",
    "Windows",
    "open_results",
    "pair",
    "windows",
]
