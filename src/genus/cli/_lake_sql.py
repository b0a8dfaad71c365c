"""`genus lake sql`: questions in SQL, which read and do not write."""

import json
import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genus.cli._groups import meant
from genus.cli._lake import lake_and, on_spark, started
from genus.cli._lake_rows import Asked, give, takes_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")
"""How queries begin. WITH and FROM can also begin an INSERT, which `_check_query` refuses."""
DESCRIPTIONS = ("SHOW", "DESCRIBE", "DESC")
"""First words of statements that only read and contain no expression that is evaluated."""
EXPLAIN = "EXPLAIN"
"""Spark evaluates some of what it explains: constants, and the whole of EXECUTE IMMEDIATE."""
_COMMENTS = re.compile(r"\A(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r"\A(?:\w+|\()")
_EXPLAIN = re.compile(r"\AEXPLAIN\b\s*(?:(?:EXTENDED|CODEGEN|COST|FORMATTED)\b)?", re.IGNORECASE)
_JAVA_FUNCTIONS = ("java_method", "reflect", "try_reflect")
_CALLS = ("ScriptTransformation", "ExpressionWithUnresolvedIdentifier")
"""Spark's classes for TRANSFORM ... USING 'program', and for `IDENTIFIER(text)`, which may name any function."""


@click.command()
@lake_and("QUERY")
@takes_rows
@click.option("--subtypes", is_flag=True, help="Views have the attributes of all types below theirs, too.")
@on_spark
def sql(
    given: tuple[str, str],
    limit: int | None,
    columns: str | None,
    only_count: bool,
    out: Path | None,
    as_json: bool,
    subtypes: bool,
    spark: "SparkSession",
) -> None:
    """Answer a question in SQL.

    There is a view of every type and kind, named like it with _ for a dot; `is_a(_type, 'Loop')` is true for events of
    a type and of all below it. The language is that of Spark. QUERY only reads: what could write, or run a program, is
    refused. Of columns of the same name, as joins have, the second is called NAME_1. Write -- before LAKE if QUERY
    begins with a comment.

    \b
    genus lake sql city "SELECT place, avg(speed) FROM Loop GROUP BY place"
    genus lake sql city "SELECT date(time) AS day, count(*) FROM Roadside GROUP BY 1" --json
    """
    path, query = given
    asked = Asked(limit, columns or "*", only_count, out, as_json)
    statement = _COMMENTS.sub("", query)
    word = "".join(_WORD.findall(statement)).upper()
    if word not in (*QUERIES, *DESCRIPTIONS, EXPLAIN):
        words = ", ".join((*QUERIES[:-1], *DESCRIPTIONS))
        raise click.UsageError(f"QUERY must begin with {words}, {EXPLAIN} or a parenthesis: it only reads")
    from genus.lake import Lake

    lake = Lake(started(spark), path)
    if word not in DESCRIPTIONS:
        _check_query(spark, _EXPLAIN.sub("", statement))
    frame = _answer(spark, statement, lake.views(subtypes=subtypes))
    give(frame.toDF(*distinct_names(frame.columns)), asked)


def _check_query(spark: "SparkSession", query: str) -> None:
    """UsageError if a text is another statement than a query, or calls programs or Java.

    Spark's grammar has only a query after DESCRIBE QUERY, thus no INSERT, whatever it begins with. Nothing is resolved
    or evaluated here.
    """
    from pyspark.errors import ParseException

    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    try:
        parsed = json.loads(parser.parsePlan(f"DESCRIBE QUERY {query}").toJSON())
    except ParseException:
        parser.parsePlan(query)  # raises where the mistake is, if it is no SQL at all
        parsed = []
    if not parsed or not parsed[0]["class"].endswith("DescribeQueryCommand"):  # others describe columns of tables
        raise click.UsageError("QUERY only reads: statements other than queries may write")
    if any(map(_runs_code, _nodes(parsed))):
        functions = ", ".join(_JAVA_FUNCTIONS)
        raise click.UsageError(f"QUERY only reads: no TRANSFORM ... USING, {functions}, or IDENTIFIER() in expressions")


def _nodes(parsed: Any) -> list[dict[str, Any]]:
    """Return all plans and expressions in a plan as JSON, those of subqueries, too."""
    within = [
        node
        for each in (parsed.values() if isinstance(parsed, dict) else parsed)
        if isinstance(each, dict | list)
        for node in _nodes(each)
    ]
    return [parsed, *within] if isinstance(parsed, dict) else within


def _runs_code(node: dict[str, Any]) -> bool:
    """Return whether a node of Spark's parser runs a program or a method of Java; `nameParts` is "[a, b]"."""
    kind = str(node.get("class", "")).rpartition(".")[2]
    function = str(node.get("nameParts", "")).strip("[]").rpartition(", ")[2].lower()
    return kind in _CALLS or (kind == "UnresolvedFunction" and function in _JAVA_FUNCTIONS)


def _answer(spark: "SparkSession", query: str, views: list[str]) -> "DataFrame":
    """Return the rows of a query; ClickException with the views that there are if it names another."""
    from pyspark.errors import AnalysisException

    try:
        return spark.sql(query)
    except AnalysisException as problem:
        if problem.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        name = (problem.getMessageParameters() or {})["relationName"].replace("`", "")
        raise click.ClickException(f"there is no view {name}; {meant(name, views)}") from None


def distinct_names(columns: list[str]) -> list[str]:
    """Return names that differ, which rows as JSON and in files need: of a join, both sides may have a column.

    >>> distinct_names(["lane", "place", "Lane", "lane"]), distinct_names(["lane", "lane", "lane_1"])
    (['lane', 'place', 'Lane_1', 'lane_2'], ['lane', 'lane_2', 'lane_1'])
    """
    first = {name.lower(): at for at, name in reversed([*enumerate(columns)])}
    taken, found = set(first), []
    for at, name in enumerate(columns):
        if first[name.lower()] != at:
            name = next(other for number in count(1) if (other := f"{name}_{number}").lower() not in taken)
            taken.add(name.lower())
        found.append(name)
    return found
