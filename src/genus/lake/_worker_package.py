"""Genus for workers that do not have it: the package goes with the job.

Workers need Python with what Genus is built on (msgspec, numpy, pandas, pyarrow). Genus itself may be installed there
too, or be shipped by the session that needs it. Classes of events need not be shipped: tasks know the types by the
text of the catalog.
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

_ALWAYS = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the archive, so that the same package gives the same archive."""


def ship(spark: SparkSession) -> str:
    """Bring this Genus to all workers of a session, also to those that join later; returns the archive's path.

    It comes before one that is installed there. Call it once, before anything is read in.
    """
    path = archive()
    spark.addArtifacts(path, pyfile=True)
    return path


@cache
def archive() -> str:
    """The installed package as a zip file that Python imports from; it is there until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="genus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "genus.zip"
    package = Path(genus.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.writestr(zipfile.ZipInfo(f"genus/{file.relative_to(package)}", _ALWAYS), file.read_bytes())
    return str(path)


@contextmanager
def explained() -> Iterator[None]:
    """Say in a line what went wrong in a task, and what to do if workers lack Genus or something that it needs."""
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
        return "the workers have no Genus: call genus.lake.ship(spark) first, or install it there"
    return f"the workers' Python has no {module}: install it there; Genus itself is brought by genus.lake.ship"
