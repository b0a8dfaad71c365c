"""What is done when a process ends is not done by processes that are forked from it."""

import subprocess
import sys
from pathlib import Path

import pytest

from genus.errors import LakeError
from genus.lake._exit import temporary_folder

PROGRAM = """
import multiprocessing, os, sys
from genus.lake._exit import at_exit, temporary_folder

folder = temporary_folder()
at_exit(lambda: print("end", folder.exists(), flush=True))
child = multiprocessing.get_context("fork").Process(target=int)
child.start()
child.join()
if os.fork() == 0:
    sys.exit()
os.wait()
print(folder, folder.exists(), flush=True)
"""


def test_children_leave_what_their_parent_removes_at_its_end() -> None:
    printed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    folder, *rest = printed.split()
    assert rest == ["True", "end", "True"]
    assert not Path(folder).exists()


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(LakeError, match=r"^cannot create a temporary folder: No such file .*; set TMPDIR to another"):
        temporary_folder()
