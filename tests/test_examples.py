"""The programs in `examples/` run as they are and print what their readers may expect."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from genus.testing import spark_session

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "hello": ["21.5 degrees in the kitchen", "8.0 degrees in the cellar", "2 events delivered"],
    "subtypes_and_kinds": ["motion in the hall", "  from something with a battery: SmartMotion"],
    "filters": ["Loop lacks speed", "[0, 1, 2]"],
    "async_and_inboxes": ["the latest two: 3 4", "dropped: 3", "stored 2"],
    "two_processes": ["answer 3 from another process"],
    "request_and_reply": ["moved to 30 %", "refused: the valve is locked", "the display knows: 30 %"],
    "record_and_replay": ["3 of 4 events recorded", "3 events left; damaged at byte 8: 0 of 3 events lost"],
    "can_in_the_simulator": [
        "Moved(number=0, percent=20) after attempt 1",
        "no acknowledgement of 50 % within 100 ms",
        "Moved(number=1, percent=50) after attempt 3",
    ],
    "foreign_can": [
        "Engine drives 62.0 km/h in D",
        "frame 0x200 with 4b",
        "Lamp.brightness is 120.0; the database allows 0 to 100",
        "2 frames of Drive received",
    ],
    "dbc_log_to_table": ["speed: [[95.2,170.8]]", "mean speed: 133.0"],
    "lake_and_sql": ["ingested: 48 events", "strong sun: 5 hours", "hall: 515 W on average"],
    "stream_with_inboxes": ["heating: 2 events after hour 12", "night watch: 3 events after hour 12"],
}
ON_SPARK = ("lake_and_sql", "stream_with_inboxes")
"""They take the session that runs already, so they run in this process."""
TYPES_ONLY = {"office", "traffic"}


def test_every_example_is_run() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(PRINTED) | TYPES_ONLY


@pytest.mark.parametrize("name", [name for name in PRINTED if name not in ON_SPARK])
def test_an_example_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    """From any folder, in a process of its own, without a word on standard error."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in PRINTED[name] if line not in done.stdout] == []


@pytest.mark.parametrize("name", ON_SPARK)
def test_an_example_on_spark_prints_what_it_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spark_session()
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert [line for line in PRINTED[name] if line not in printed] == []
