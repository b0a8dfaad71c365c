"""What is done when the process ends: in the one that asked for it, not in processes that are forked from it.

A `tempfile.TemporaryDirectory` would be removed by children of multiprocessing, which drop all functions of `atexit`.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from genus.errors import LakeError


def at_exit(function: Callable[[], object]) -> None:
    """Call a function when this process ends, before those that were given earlier."""
    owner = os.getpid()
    atexit.register(lambda: function() if os.getpid() == owner else None)


def temporary_folder(prefix: str = "genus-") -> Path:
    """Make a folder that is removed when this process ends; LakeError if there is no place for it."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as problem:
        reason = problem.strerror or problem
        raise LakeError(f"cannot create a temporary folder: {reason}; set TMPDIR to another folder") from problem
    at_exit(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder
