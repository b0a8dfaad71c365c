"""One Spark session for all tests of the application."""

import pytest
from pyspark.sql import SparkSession

from genus.testing import spark_session


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """A local session; started once, stopped at the end of the run."""
    return spark_session()
