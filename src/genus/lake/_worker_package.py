"""Ships the Genus package to Spark workers, and explains errors of workers that lack it.

Workers need Python with the dependencies of Genus (msgspec, numpy, pandas, pyarrow). Genus itself is either installed
there or shipped by the session. Event classes need not be shipped: tasks get the types as the text of the catalog.
"""

import atexit
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import genus
from genus.errors import LakeError

_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file in the archive, so that equal packages give equal archives."""


def ship(spark: SparkSession) -> str:
    """Send this version of Genus to all workers of a session, including workers that join later.

    It takes precedence over a version that is installed there. Call it once, before the first ingest.

    Returns:
        The path of a zip archive, which exists until this process ends.
    """
    path = package_archive()
    spark.addArtifacts(path, pyfile=True)
    return path


@cache
def package_archive() -> str:
    """Write the installed package to an importable zip file that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="genus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "genus.zip"
    package = Path(genus.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.writestr(zipfile.ZipInfo(f"genus/{file.relative_to(package)}", _FILE_TIME), file.read_bytes())
    return str(path)


@contextmanager
def worker_errors() -> Iterator[None]:
    """Turn errors of tasks into a LakeError of one line, with advice if workers lack Genus or a dependency."""
    try:
        yield
    except PySparkException as problem:
        if found := re.search(r"No module named '(\w+)", str(problem)):
            raise LakeError(_advice(found[1])) from problem
        if found := re.search(r"genus\.errors\.LakeError: (.+)", str(problem)):
            raise LakeError(found[1]) from problem
        raise


def _advice(module: str) -> str:
    if module == "genus":
        return "the workers do not have Genus: call genus.lake.ship(spark) first, or install it there"
    return f"the workers' Python does not have {module}: install it there; genus.lake.ship sends only Genus itself"
