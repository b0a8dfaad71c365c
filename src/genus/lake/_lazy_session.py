"""A session that starts when it is used; pyspark is not imported before."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lazy_session(start: "Callable[[], SparkSession]") -> "SparkSession":
    """A session that calls `start` when it is first used.

    Operations that only read the ledger and the catalog of a local lake then work without Java.

    Args:
        start: Returns the session, for example `local_session`.
    """
    return cast("SparkSession", _LazySession(start))


class _LazySession:
    def __init__(self, start: "Callable[[], SparkSession]") -> None:
        self._start = start

    def __getattr__(self, name: str) -> Any:
        if name == "session":
            self.session = self._start()
            return self.session
        return getattr(self.session, name)
