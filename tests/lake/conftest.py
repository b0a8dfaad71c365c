"""One Spark session for all tests of the lake."""

import pytest
from pyspark.sql import SparkSession

from .session import local_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """A local session; started once, stopped at the end of the run."""
    return local_session()
