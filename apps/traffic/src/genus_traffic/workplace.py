"""The folder that a run fills: recordings, truth, lake, answers and report. It overwrites nothing else."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from genus.errors import GenusError

MARK = ".genus-demo"
"""A file that says that a run was here."""
MADE = ("recordings", "lake", "passages", "statistics", "truth.parquet", "results.json", "report.html", MARK)
"""What a run makes, and the next one may remove; the mark goes last."""


class FolderRefused(GenusError, OSError):
    """A folder cannot be written, or holds what no run has made. Choose another one, or make room."""


class Workplace(msgspec.Struct, frozen=True):
    """Where things are."""

    folder: Path

    @property
    def landing(self) -> Path:
        """Where recordings land."""
        return self.folder / "recordings"

    @property
    def truth(self) -> Path:
        """What really happened."""
        return self.folder / "truth.parquet"

    @property
    def results(self) -> Path:
        """The figures behind the report."""
        return self.folder / "results.json"

    @property
    def report(self) -> Path:
        """The report."""
        return self.folder / "report.html"


def prepare(folder: Path) -> Workplace:
    """An empty folder; what an earlier run left there is removed, anything else is refused."""
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in folder.iterdir()}
        if there and (MARK not in there or there - set(MADE)):
            others = ", ".join(sorted(there - set(MADE))[:3])
            raise FolderRefused(f"{folder} holds other things ({others}); give a new or empty folder by --into")
        for name in MADE:
            _remove(folder / name)
        (folder / MARK).write_text("genus demo was here: it may remove what it made.\n")
    return Workplace(folder)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """What the operating system refuses is said of the path that was to be written."""
    try:
        yield
    except FolderRefused:
        raise
    except OSError as problem:
        raise FolderRefused(f"cannot write {path}: {problem.strerror or problem}") from problem
