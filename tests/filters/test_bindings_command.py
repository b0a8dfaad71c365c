"""`python -m bench.bindings` with components on nodes: entries, bindings and messages."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.bindings import bindings as command
from genus.errors import SubscriptionError

TYPES = """
from genus import Event, Kind

class Climate(Kind): ...
class Warmth(Event, Climate): ...
class Damp(Event, Climate): ...
class Entry(Event): ...
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "office_types.py").write_text(TYPES)
    (tmp_path / "wanted.txt").write_text("desk/average: Climate\nbackend/store: Climate\nbackend/store: Entry\n")
    (tmp_path / "offered.txt").write_text("# office\ndesk/sensors: Climate\n")
    (tmp_path / "plain.txt").write_text("Climate\nEntry\n")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    (tmp_path / "wrong.txt").write_text("desk/sensors: Climate\ndesk/sensors: Cold\n")
    monkeypatch.chdir(tmp_path)


def bindings(*arguments: str) -> str:
    done = CliRunner().invoke(command, ["-t", "office_types.py", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return " ".join(done.output.split())


def test_bindings_and_messages_are_counted_by_node() -> None:
    printed = bindings("wanted.txt", "--publishers", "offered.txt")
    assert "3 entries without super-types, 2 with them, 2 merged" in printed
    assert "local distributed bindings messages" in printed
    assert "without super-types 2 2 4 6 with them 1 1 2 3 merged 1 1 2 3" in printed
    assert "no component publishes what Entry wants" in printed


def test_a_plain_file_is_of_one_component_that_gets_all_from_another_node() -> None:
    printed = bindings("plain.txt")
    assert "3 entries without super-types, 2 with them, 2 merged" in printed
    assert "without super-types 0 3 3 6 with them 0 2 2 4 merged 0 2 2 4" in printed


def test_json_has_the_same() -> None:
    answer = json.loads(bindings("wanted.txt", "--publishers", "offered.txt", "--json"))
    assert (answer["subscriptions"], answer["per_class"], answer["per_type"], answer["merged"]) == (3, 3, 2, 2)
    assert answer["bindings"]["per_class"] == {"local": 2, "distributed": 2, "bindings": 4, "messages": 6}
    assert answer["bindings"]["per_type"] == {"local": 1, "distributed": 1, "bindings": 2, "messages": 3}
    assert answer["unpublished"] == ["Entry"]


def test_a_file_of_publishers_that_cannot_be_used_is_named() -> None:
    with pytest.raises(SubscriptionError, match=r"wrong\.txt, line 2: no event type is called Cold"):
        bindings("wanted.txt", "--publishers", "wrong.txt")
    with pytest.raises(SubscriptionError, match=r"plain\.txt, line 1: 'Climate' names no component before a colon"):
        bindings("wanted.txt", "--publishers", "plain.txt")


def test_the_office_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = ("--publishers", "examples/office-publishers.txt", "examples/office-subscribers.txt")
    answer = json.loads(CliRunner().invoke(command, ["-t", "examples/office.py", *files, "--json"]).output)
    assert {way: one["messages"] for way, one in answer["bindings"].items()} == {
        "per_class": 34,
        "per_type": 19,
        "merged": 17,
    }
