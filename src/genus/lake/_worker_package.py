"""Ships Genus to Spark workers, and checks that they can run it.

Workers need Python with what PySpark asks for (numpy, pandas, pyarrow). Genus and msgspec are either installed there or
shipped by the session. Event classes need not be shipped: tasks get the types as the text of the catalog.
"""

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession

from genus.lake._jobs import job_description

_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in the archive, so that equal packages give equal archives."""


def ship(spark: SparkSession) -> str:
    """Send this version of Genus, and msgspec, to all workers of a session, including workers that join later.

    They take precedence over versions that are installed there. Call it once, before the first ingest. Workers need
    the Python version and the kind of machine of this process; PySpark itself asks for pyarrow, numpy and pandas there.

    Returns:
        The path of a zip archive, which exists until this process ends.
    """
    path = package_archive()
    spark.addArtifacts(path, pyfile=True)
    compiled = package_archive("msgspec")  # has a library, which Python loads from a folder only
    spark.addArtifacts(f"{compiled}#msgspec", archive=True)
    return path


@cache
def package_archive(name: str = "genus") -> str:
    """Write an installed package to a zip file that is removed when this process ends; that of Genus is importable."""
    folder = Path(tempfile.mkdtemp(prefix="genus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{name}.zip"
    package = Path(str(import_module(name).__file__)).parent
    inside = "genus/" if name == "genus" else ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.writestr(zipfile.ZipInfo(f"{inside}{file.relative_to(package)}", _FILE_TIME), file.read_bytes())
    return str(path)


def check_workers(spark: SparkSession) -> None:
    """Raise LakeError, with the cause, if the workers of a session cannot run Genus; asked once by a small job."""
    session = getattr(spark, "session", spark)
    if session in _CHECKED:
        return
    with job_description(spark, "check that the workers can run Genus"):
        spark.range(0, 1, 1, 1).mapInArrow(_pass_on, "id long").collect()
    _CHECKED.add(session)


_CHECKED: WeakSet[SparkSession] = WeakSet()
"""The sessions whose workers were checked."""


def _pass_on(batches: Iterable[Any]) -> Iterator[Any]:
    """In a task: this function can only be loaded where Genus is."""
    yield from batches
