"""The folder of a run: city, recordings, truth, lake, analyses, results and report. Nothing else is ever removed."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from genus.errors import GenusError

MARKER = ".genus-demo"
"""A file that marks the folder as one that a run made."""
CITY = "city.json"
OUTPUTS = (CITY, "recordings", "truth.parquet", "lake", "passages", "statistics", "results.json", "report.html")
"""What a run writes, in this order, and the next run removes."""


class FolderRefused(GenusError, OSError):
    """The folder cannot be written, or holds other files. Choose another one, or free disk space."""


class RunFolder(msgspec.Struct, frozen=True):
    """The paths of a run."""

    path: Path

    @property
    def city(self) -> Path:
        """The city that ran, as JSON: `genus studio sim:FOLDER` runs it again."""
        return self.path / CITY

    @property
    def landing(self) -> Path:
        """The folder in which recordings land."""
        return self.path / "recordings"

    @property
    def truth(self) -> Path:
        """The true passages, as Parquet."""
        return self.path / "truth.parquet"

    @property
    def results(self) -> Path:
        """The figures of the report, as JSON."""
        return self.path / "results.json"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    def outputs(self) -> list[str]:
        """The names of the outputs that exist."""
        return [name for name in OUTPUTS if (self.path / name).exists()]


def prepare(folder: Path) -> RunFolder:
    """Make the folder of a new run; the outputs of an earlier run are removed.

    Raises:
        FolderRefused: It cannot be written, or holds files that no run made.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in folder.iterdir()}
        others = sorted(there - {*OUTPUTS, MARKER})
        if there and (MARKER not in there or others):
            named = ", ".join(others[:3])
            raise FolderRefused(f"{folder} holds other things ({named}); give a new or empty folder by --out")
        for name in (*OUTPUTS, MARKER):  # the marker last: what is left of an interrupted removal can be removed
            _remove(folder / name)
        (folder / MARKER).write_text("Made by genus demo; its next run removes its earlier output.\n")
    return RunFolder(folder)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into a FolderRefused that names the path being written."""
    try:
        yield
    except FolderRefused:
        raise
    except OSError as problem:
        raise FolderRefused(f"cannot write {path}: {problem.strerror or problem}") from problem
