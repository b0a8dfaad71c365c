"""The application's tests share the one Spark session of a run with those of the lake."""

from tests.lake.conftest import spark

__all__ = ["spark"]
