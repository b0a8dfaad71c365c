"""The folder that a run fills."""

from pathlib import Path

import pytest

from genus_traffic.run_folder import MARKER, FolderRefused, prepare, writing


def test_a_run_removes_what_an_earlier_one_left(tmp_path: Path) -> None:
    """The folder itself stays: it may be the one we are in, or a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "demo").symlink_to(tmp_path / "real")
    folder = prepare(tmp_path / "demo")
    folder.report.write_text("old")
    folder.landing.mkdir()
    (folder.landing / "city.genus").write_text("old")
    assert [path.name for path in prepare(tmp_path / "demo").path.iterdir()] == [MARKER]


def test_what_was_put_beside_the_results_of_a_run_is_not_removed(tmp_path: Path) -> None:
    (prepare(tmp_path).path / "notes.txt").write_text("my notes")
    with pytest.raises(FolderRefused, match=r"holds other things \(notes.txt\)"):
        prepare(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "my notes"


def test_what_no_run_has_made_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FolderRefused, match="holds other things"):
        prepare(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert prepare(tmp_path).report == tmp_path / "report.html"


def test_a_file_in_the_way_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderRefused, match=r"^cannot write .*demo: Not a directory$"):
        prepare(tmp_path / "file" / "demo")


def test_a_full_disk_is_said_of_the_path_that_was_written(tmp_path: Path) -> None:
    with (
        pytest.raises(FolderRefused, match="cannot write /dev/full: No space left on device"),
        writing(Path("/dev/full")),
    ):
        Path("/dev/full").write_text("more than nothing")
