"""`genus explain`: what a subscription is compiled to, in plain words."""

from pathlib import Path

import pytest

from genus.testing import run_command as genus

TYPES = """
from genus import Event, Maybe

class Reading(Event): ...

class Thermometer(Reading):
    celsius: float

class Freezer(Thermometer):
    alarm: Maybe[bool] = None

class Barometer(Reading):
    hectopascal: float
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weather.py").write_text(TYPES)
    monkeypatch.chdir(tmp_path)


def test_the_python_target_shows_every_class() -> None:
    shown = genus("explain", "-t", "weather.py", "Reading has place where celsius > 3", "--target", "python").stdout
    assert "def matches(e):  # Thermometer, Freezer\n" in shown
    assert "    return a_place is not None and a_celsius is not None and a_celsius > 3.0\n" in shown
    assert "def matches(e):  # Reading, Barometer\n    return False\n" in shown


def test_the_index_says_how_the_subscription_is_found() -> None:
    asked = "Reading has place where celsius > 3 and (alarm or hectopascal > 9)"
    assert genus("explain", "-t", "weather.py", asked, "--target", "index").stdout == (
        "index: Reading has place where celsius > 3.0 and (alarm == true or hectopascal > 9.0)\n"
        "  type: Reading and its subtypes, decided once for each class and set of attributes\n"
        "  attributes: place present\n"
        "  contents: celsius > 3.0 and (alarm == true or hectopascal > 9.0), tested together with those of the same "
        "form\n\n"
    )


@pytest.mark.parametrize(
    ("dialect", "pattern"), [("zenoh", "genus/Reading/Thermometer/**"), ("nats", "genus.Reading.Thermometer.>")]
)
def test_topics_are_shown_as_the_network_writes_them(dialect: str, pattern: str) -> None:
    asked = ("explain", "-t", "weather.py", "Thermometer where celsius > 3", "--target", "topics")
    assert genus(*asked, "--dialect", dialect).stdout == (
        "topics: Thermometer where celsius > 3.0\n"
        "  type: Thermometer, and all subtypes\n"
        f"  {dialect}: {pattern}\n"
        "  residual: Thermometer where celsius > 3.0\n\n"
    )


def test_a_typo_names_the_type_that_was_written() -> None:
    done = genus("explain", "-t", "weather.py", "Freezer where celsus > 3")
    assert "Freezer has no attribute 'celsus'; did you mean 'celsius'?" in done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("Freezer where celsius > 3 and celsius < 2", "no value of 'celsius' (float64) meets the conditions on it"),
        (
            "Thermometer where hectopascal > 3",
            "no Thermometer declared so far has the attribute 'hectopascal' (Barometer has it)",
        ),
    ],
)
def test_a_subscription_that_can_never_match_is_one_line_on_standard_error(asked: str, why: str) -> None:
    done = genus("explain", "-t", "weather.py", asked, "--target", "python")
    assert done.returncode == 0
    assert done.stderr == f"genus: warning: {asked.split()[0]} can never match: {why}\n"


def test_the_next_command_warns_again() -> None:
    for _ in range(2):
        done = genus("explain", "-t", "weather.py", "Thermometer where celsius < 1 and celsius > 2")
        assert done.stderr.startswith("genus: warning: Thermometer can never match: ")
        assert done.stderr.count("\n") == 1
