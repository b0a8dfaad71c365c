"""Regular expressions mean the same on every Python that Genus runs on."""

import re
from pathlib import Path

import pytest

SOURCES = [
    path
    for folder in ("src", "apps/traffic/src")
    for path in (Path(__file__).parents[1] / folder).rglob("*.py")
]  # fmt: skip
CHARACTERS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\\n])*\]|\\.")
"""A class of characters, or one that is escaped."""
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")


def possessive_groups(text: str) -> list[str]:
    return [line for line in text.splitlines() if POSSESSIVE_GROUP.search(CHARACTERS.sub("x", line))]


@pytest.mark.parametrize(("line", "found"), [("(?:ab)*+", 1), ("(a|b){2,}+", 1), ("(?>(?:ab)*)[^)*+]*+", 0)])
def test_possessive_groups_are_found(line: str, found: int) -> None:
    assert len(possessive_groups(line)) == found


def test_groups_are_not_possessive() -> None:
    """Up to Python 3.11.4 they match wrongly where an attempt fails half way (gh-106052); write `(?>(?:ab)*)`."""
    assert [each for path in SOURCES for each in possessive_groups(path.read_text())] == []
