"""Subscriptions are read from lines, text files and tables; errors name the line or row."""

import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from genus import Subscription, this
from genus.catalog import Catalog
from genus.errors import LakeError, SubscriptionError
from genus.lake._query.subscription_list import RouteEntry, SubscriptionList, read_entries
from tests.generators import Sampler, Stranger

TEXT = """
# those of the town hall
ann: Sampler has place where number > 30
bob's office: Stranger    # a comment only begins a line
ann: exact Sampler where text contains ': #'
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    made = Catalog()
    made.register(Sampler, Stranger)
    return made


def test_a_file_has_a_subscription_on_each_line(tmp_path: Path, catalog: Catalog) -> None:
    """Empty lines and comments are skipped; the text after the first colon is the subscription."""
    file = tmp_path / "subscriptions.txt"
    file.write_text(TEXT.replace("    # a comment only begins a line", ""))
    wanted = [
        RouteEntry("ann", Subscription(Sampler, has="place", where=this.number > 30)),
        RouteEntry("bob's office", Subscription(Stranger)),
        RouteEntry("ann", Subscription(Sampler, exact=True, where=this.text.contains(": #"))),
    ]
    assert read_entries(file, catalog) == (wanted, []) == read_entries(str(file), catalog)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Sampler has plaice", "has no attribute 'plaice'"),
        (": Sampler", "names no subscriber"),
        ("ann: Sampla", "no event type is called Sampla; did you mean 'Sampler'?"),
        ("ann: Sampler where nombre > 3", "has no attribute 'nombre'"),
        ("ann: Sampler where", "expected"),
    ],
)
def test_a_line_that_cannot_be_read_is_set_aside_and_named(
    tmp_path: Path, catalog: Catalog, line: str, problem: str
) -> None:
    """The others are used; the message has the file, the number of the line and the problem, on one line."""
    file = tmp_path / "subscriptions.txt"
    file.write_text(f"# one\nann: Sampler\n{line}\nbob: Stranger\n")
    found = read_entries(file, catalog)
    assert [entry.subscriber for entry in found.entries] == ["ann", "bob"]
    assert f"1 of 3 subscriptions not used: {file}, line 3: " in str(found.problem)
    assert problem in str(found.problem)
    assert "\n" not in str(found.problem)
    file.write_text(f"{line}\n")
    with pytest.raises(LakeError, match=r"no subscription is valid: .*subscriptions.txt, line 1: ") as raised:
        read_entries(file, catalog)
    assert problem in str(raised.value)


def test_of_many_lines_that_cannot_be_read_the_first_are_named(tmp_path: Path, catalog: Catalog) -> None:
    file = tmp_path / "subscriptions.txt"
    file.write_text("Sampler\n" + "Nothing\n" * 10)
    problem = str(read_entries(file, catalog).problem)
    assert problem.startswith("10 of 11 subscriptions not used: ")
    assert problem.endswith("; and 7 more")
    assert [number for number in range(1, 12) if f", line {number}: " in problem] == [2, 3, 4]


def test_a_file_that_is_not_there_or_is_no_text_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    """The message names the file."""
    with pytest.raises(LakeError, match=r"cannot read .*none.txt: No such file"):
        read_entries(tmp_path / "none.txt", catalog)
    (tmp_path / "noise").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(LakeError, match="noise, line 1: not UTF-8 text"):
        read_entries(tmp_path / "noise", catalog)


def test_a_byte_that_is_no_text_sets_aside_its_line_only(tmp_path: Path, catalog: Catalog) -> None:
    """A byte order mark at the beginning is not part of the first name."""
    file = tmp_path / "subscriptions.txt"
    file.write_bytes(b"\xef\xbb\xbfann: Sampler\r\nbj\xf6rn: Stranger\n# \xe4\ncid: Stranger\n")
    found = read_entries(file, catalog)
    assert [entry.subscriber for entry in found.entries] == ["ann", "cid"]
    assert found.problem == f"1 of 3 subscriptions not used: {file}, line 2: not UTF-8 text"


def test_a_day_that_is_none_is_not_part_of_the_name(tmp_path: Path, catalog: Catalog) -> None:
    file = tmp_path / "subscriptions.txt"
    file.write_text("ann since 2026-05-01: Sampler\nbob since 2026-5-1: Sampler\ncid since 2026-02-30: Sampler\n")
    found = read_entries(file, catalog)
    assert found.entries == [RouteEntry("ann", Subscription(Sampler), datetime(2026, 5, 1, tzinfo=UTC))]
    assert "bob since 2026-5-1: since '2026-5-1' is not a day; write it like 2026-05-01" in str(found.problem)
    assert "cid since 2026-02-30: since '2026-02-30' is not a day" in str(found.problem)


def test_a_table_has_a_subscription_in_each_row(spark: SparkSession, catalog: Catalog) -> None:
    """Columns subscriber and subscription, in any order and beside others."""
    rows = [("Sampler has place", 1, "ann"), ("Stranger", 2, "bob")]
    table = spark.createDataFrame(rows, "subscription string, weight int, subscriber string")
    assert read_entries(table, catalog).entries == [
        RouteEntry("ann", Subscription(Sampler, has="place")),
        RouteEntry("bob", Subscription(Stranger)),
    ]


def test_a_row_that_cannot_be_read_is_set_aside_and_named(spark: SparkSession, catalog: Catalog) -> None:
    """The message has the number and the subscriber; a table without the columns is refused."""
    rows = [("ann", "Sampler"), ("bob", "Sampler where"), ("cid", None), ("dan", "Stranger")]
    table = spark.createDataFrame(rows, "subscriber string, subscription string")
    found = read_entries(table, catalog)
    assert [entry.subscriber for entry in found.entries] == ["ann", "dan"]
    assert "row 2 (bob): expected" in str(found.problem)
    assert "row 3 (cid): subscriber and subscription must not be NULL" in str(found.problem)
    with pytest.raises(LakeError, match="needs the column subscription"):
        read_entries(table.drop("subscription"), catalog)
    with pytest.raises(LakeError, match="no subscription is valid: 1 of 1"):
        read_entries(table.where("subscriber = 'cid'"), catalog)


def test_a_problem_is_forgotten_when_the_file_is_the_one_that_was_read(tmp_path: Path, catalog: Catalog) -> None:
    """A list that was moved away and back is in use again; its earlier absence is no problem of a later delivery."""
    file = tmp_path / "subscriptions.txt"
    file.write_text("ann: Sampler\n")
    lake: Any = SimpleNamespace(catalog=catalog)
    read = SubscriptionList(file, lake)
    known = read.read()
    os.rename(file, tmp_path / "away.txt")
    assert read.read() is known
    assert "cannot read" in str(read.problem)
    os.rename(tmp_path / "away.txt", file)
    assert read.read() is known
    assert read.problem is None


def test_entries_of_a_function_are_set_aside_and_those_of_python_refused(catalog: Catalog) -> None:
    """A list that is given once is wrong at the call; one that is made again for every batch may become wrong."""
    given = [("ann", "Sampler"), ("bob", "Nothing"), RouteEntry("cid", Subscription(Stranger))]
    lake: Any = SimpleNamespace(catalog=catalog)
    made = SubscriptionList(lambda: given, lake)
    assert [entry.subscriber for entry in made.read()] == ["ann", "cid"]
    assert "1 of 3 subscriptions not used: entry 2 (bob): no event type is called Nothing" in str(made.problem)
    with pytest.raises(SubscriptionError, match="no event type is called Nothing"):
        SubscriptionList(given, lake).read()
    given[1] = ("bob", "Sampler")
    assert [entry.subscriber for entry in made.read()] == ["ann", "bob", "cid"]
    assert made.problem is None


def test_an_entry_that_was_set_aside_is_used_when_its_type_is_registered(tmp_path: Path) -> None:
    """The file is the same; the catalog has grown."""
    first, second = Catalog(), Catalog()
    first.register(Sampler)
    second.register(Sampler, Stranger)
    (tmp_path / "subscriptions.txt").write_text("ann: Sampler\nbob: Stranger\n")
    lake: Any = SimpleNamespace(catalog=first)
    read = SubscriptionList(tmp_path / "subscriptions.txt", lake)
    known = read.read()
    assert [entry.subscriber for entry in known] == ["ann"]
    assert read.read() is known
    assert "line 2: no event type is called Stranger" in str(read.problem)
    lake.catalog = second
    assert [entry.subscriber for entry in read.read()] == ["ann", "bob"]
    assert read.problem is None


def test_a_list_without_any_valid_entry_keeps_the_previous_one(tmp_path: Path, catalog: Catalog) -> None:
    """An empty list is valid."""
    file = tmp_path / "subscriptions.txt"
    file.write_text("ann: Sampler\n")
    lake: Any = SimpleNamespace(catalog=catalog)
    read = SubscriptionList(file, lake)
    known = read.read()
    file.write_text("ann: Nothing at all\n")
    assert read.read() is known
    assert "no subscription is valid: 1 of 1" in str(read.problem)
    file.write_text("# nobody\n")
    assert read.read() == []
    assert read.problem is None
