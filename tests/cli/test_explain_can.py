"""`genus explain --catalog`: the acceptance filters of a subscription."""

from pathlib import Path

import pytest

from genus.testing import run_command as genus

TYPES = """
from genus import Event, Kind, Maybe

class Roadside(Kind): ...

class Loop(Event, Roadside, tagged=("place",)):
    lane: int

class Lamp(Event, Roadside): ...

class Gate(Event, Roadside): ...

class Bus(Event): ...
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "road.py").write_text(TYPES)
    monkeypatch.chdir(tmp_path)
    assert genus("catalog", "register", "city.json", "road.py").returncode == 0


def test_filters_are_shown_beside_the_other_targets_when_a_catalog_is_given() -> None:
    asked = ("explain", "-t", "road.py", "Loop has place where lane > 1")
    assert "can:" not in genus(*asked).stdout
    shown = genus(*asked, "--catalog", "city.json").stdout
    assert "python: Loop has place where lane > 1" in shown
    assert "can: Loop has place where lane > 1\n  type: Loop, and all subtypes\n  tagged: place present\n" in shown
    assert "  residual: Loop where lane > 1\n\nc: Loop has place where lane > 1\n" in shown
    assert "\n\ncoap: Loop has place" in shown


def test_requests_of_coap_are_shown_when_a_catalog_is_given() -> None:
    asked = ("explain", "-t", "road.py", "--catalog", "city.json", "--target", "coap")
    assert genus(*asked, "Loop has place where lane > 1").stdout == (
        "coap: Loop has place where lane > 1\n"
        "  GET /DA?h=24&w=lane > 1, Observe\n"
        "  type: code 12, and all that it divides\n"
        "  residual: nothing\n\n"
    )


def test_banks_show_what_is_accepted_in_vain() -> None:
    done = genus("explain", "-t", "road.py", "--catalog", "city.json", "--target", "can", "--banks", "1", "Roadside")
    assert done.stdout.startswith("can: Roadside\n  type: Loop, Lamp, Gate, and all subtypes\n")
    assert "python:" not in done.stdout
    assert "pairs fitted into 1\n" in done.stdout
    assert "accepted, but unwanted: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--target", "can", "Loop"], 2, "need --catalog FILE"),
        (["--target", "coap", "Loop"], 2, "need --catalog FILE"),
        (["--banks", "3", "Loop"], 2, "need --catalog FILE"),
        (["--catalog", "city.json", "--banks", "0", "Loop"], 2, "0 is not in the range x>=1"),
        (["--catalog", "none.json", "Loop"], 2, "does not exist"),
        (["--catalog", "empty.json", "Loop"], 1, "is not in the catalog; register Loop"),
        (["--catalog", "road.py", "Loop"], 1, "road.py: line 2 column 1: not JSON"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], status: int, message: str) -> None:
    from genus.catalog import Catalog

    Catalog().save("empty.json")
    done = genus("explain", "-t", "road.py", *arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
