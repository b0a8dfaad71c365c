"""A Hadoop file system that is not this machine's as far as anybody can tell: a view mounted on a folder."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def mount(spark: SparkSession, name: str, folder: Path) -> str:
    """The path at which everything in a folder is found through Hadoop alone; a name is good for one folder."""
    context: Any = getattr(spark, "_jsc")  # noqa: B009 - not part of the typed session
    context.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./data", folder.as_uri())
    return f"viewfs://{name}/data"
