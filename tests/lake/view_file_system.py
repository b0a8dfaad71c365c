"""A Hadoop view file system mounted on a folder, which Genus cannot recognise as local."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def mount(spark: SparkSession, name: str, folder: Path) -> str:
    """The URL by which a folder is reached through Hadoop only; a name can be used for one folder."""
    context: Any = getattr(spark, "_jsc")  # noqa: B009 - not part of the typed session
    context.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./data", folder.as_uri())
    return f"viewfs://{name}/data"
