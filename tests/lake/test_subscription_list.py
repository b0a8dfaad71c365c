"""Subscriptions are read from lines, text files and tables; errors name the line or row."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from genus import Subscription, this
from genus.catalog import Catalog
from genus.errors import LakeError
from genus.lake._query.subscription_list import RouteEntry, SubscriptionList, read_entries
from genus.testing._generators import Sampler, Stranger

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
    assert read_entries(file, catalog) == wanted == read_entries(str(file), catalog)


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
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, catalog: Catalog, line: str, problem: str) -> None:
    """The message has the file, the number of the line and the problem."""
    file = tmp_path / "subscriptions.txt"
    file.write_text(f"# one\nann: Sampler\n{line}\n")
    with pytest.raises(LakeError, match=r"subscriptions.txt, line 3: ") as raised:
        read_entries(file, catalog)
    assert problem in str(raised.value)


def test_a_file_that_is_not_there_or_is_no_text_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    """The message names the file."""
    with pytest.raises(LakeError, match=r"cannot read .*none.txt: No such file"):
        read_entries(tmp_path / "none.txt", catalog)
    (tmp_path / "noise").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(LakeError, match="noise is not UTF-8 text"):
        read_entries(tmp_path / "noise", catalog)


def test_a_table_has_a_subscription_in_each_row(spark: SparkSession, catalog: Catalog) -> None:
    """Columns subscriber and subscription, in any order and beside others."""
    rows = [("Sampler has place", 1, "ann"), ("Stranger", 2, "bob")]
    table = spark.createDataFrame(rows, "subscription string, weight int, subscriber string")
    assert read_entries(table, catalog) == [
        RouteEntry("ann", Subscription(Sampler, has="place")),
        RouteEntry("bob", Subscription(Stranger)),
    ]


def test_a_row_that_cannot_be_read_is_named(spark: SparkSession, catalog: Catalog) -> None:
    """The message has the number and the subscriber; a table without the columns is refused."""
    rows = [("ann", "Sampler"), ("bob", "Sampler where")]
    table = spark.createDataFrame(rows, "subscriber string, subscription string")
    with pytest.raises(LakeError, match=r"row 2 \(bob\): expected"):
        read_entries(table, catalog)
    with pytest.raises(LakeError, match="needs the column subscription"):
        read_entries(table.drop("subscription"), catalog)
    missing = spark.createDataFrame([("ann", None)], "subscriber string, subscription string")
    with pytest.raises(LakeError, match="row 1: subscriber and subscription must not be NULL"):
        read_entries(missing, catalog)


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
