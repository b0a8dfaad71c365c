"""The Spark target: a subscription becomes a condition on the columns of a lake's table.

The column `_type` has the names of the events' types, and there is one column per attribute, NULL where it is absent.
Tests that the statistics of Parquet files can decide are written so that Spark does; `explain` says which they are.
"""

from collections.abc import Collection, Iterable
from functools import partial

from genus._extras import missing_extra

try:
    import pyspark.sql.functions as F
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import IntegralType
except ImportError as missing:
    raise missing_extra("the spark target needs pyspark", "lake") from missing

import genus.filters.internal as x
from genus.errors import SubscriptionError
from genus.filters import Subscription
from genus.filters.internal import conjuncts
from genus.model import name_of
from genus.model.internal import RETYPABLE
from genus.model.types import TextType
from genus.targets._compiler import TYPE_COLUMN
from genus.targets.spark._compiler import SparkCompiler, all_of_these, reaches_files

__all__ = ["TYPE_COLUMN", "SparkFilter", "compile"]

MAX_CONJUNCTS = 200
"""The most conjuncts that Spark is given to take apart."""


def compile(subscription: Subscription) -> "SparkFilter":
    """Compile a subscription to a filter of a lake's tables; no session is needed until `condition` is called.

    >>> from genus import Event, Maybe, Subscription, this
    >>> class Loop(Event):
    ...     lane: int
    ...     speed: Maybe[float] = None
    >>> fast = Subscription(Loop, has="place", where=(this.speed > 30) & (this.speed > this.lane))
    >>> print(compile(fast).explain())
    spark: Loop has place where speed > 30.0 and speed > lane
      type: _type in (Loop), on files
      attributes: place is not null, on files
      contents: speed > 30.0, on files; speed > lane, on the rows left
      reads: _type, place, lane, speed
    """
    return SparkFilter(subscription)


class SparkFilter:
    """A filter of the rows of a lake's table; made by `compile`."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        where = subscription.where
        tested = [node.name for node in where.walk() if isinstance(node, x.AttributeRef)] if where is not None else []
        wanted = {*subscription.has, *subscription.lacks, *tested}
        self._reads = tuple(attribute.name for attribute in subscription.vector if attribute.name in wanted)

    def condition(self, types: Iterable[str] | None = None, hidden: Collection[str] = ()) -> Column:
        """Return a column that is true for rows that match, and false or NULL for others.

        `types` are the names of the matching types in a lake's catalog; without it, those declared in Python. `hidden`
        are attributes that the table has with another type than the subscription means (`hidden_names`).
        """
        asked = self.subscription
        names = self._type_names() if types is None else sorted(set(types))
        compiler = SparkCompiler(partial(_visible, hidden) if hidden else F.col)
        tests = [_match_type(names)]
        tests += [_visible(hidden, name).isNotNull() for name in asked.has]
        tests += [_visible(hidden, name).isNull() for name in asked.lacks]
        separate, together = _split(conjuncts(asked.where))
        tests += [compiler.visit(part) for part in separate]
        if together:
            found = all_of_these([compiler.visit(part) for part in together])
            tests.append(F.coalesce(found, F.lit(False)))  # a function that Spark does not take apart
        return all_of_these(tests)

    def filter(self, frame: DataFrame, types: Iterable[str] | None = None) -> DataFrame:
        """Return the rows that match; SubscriptionError if the frame lacks a column that is tested."""
        if missing := [name for name in (TYPE_COLUMN, *self._reads) if name not in frame.columns]:
            raise SubscriptionError(f"the frame has no column {', '.join(missing)}; filter before columns are dropped")
        hidden = [name for name in self._reads if name in RETYPABLE and self._is_hidden(frame, name)]
        return frame.where(self.condition(types, hidden))

    def _is_hidden(self, frame: DataFrame, name: str) -> bool:
        """Return whether a column has numbers, though the subscription means text."""
        is_text = isinstance(self.subscription.vector.find(name).type, TextType)
        return is_text and isinstance(frame.schema[name].dataType, IntegralType)

    def explain(self) -> str:
        """Return the tests in their order, which of them are made on files, and the columns that are read, as text."""
        asked = self.subscription
        carried = [f"{name} is not null" for name in asked.has] + [f"{name} is null" for name in asked.lacks]
        lines = {
            "type": f"{TYPE_COLUMN} in ({', '.join(self._type_names())}), on files",
            "attributes": f"{' and '.join(carried)}, on files" if carried else "any",
            "contents": _explain_contents(conjuncts(asked.where)),
            "reads": ", ".join((TYPE_COLUMN, *self._reads)),
        }
        return "\n".join([f"spark: {asked}", *(f"  {stage}: {text}" for stage, text in lines.items())])

    def _type_names(self) -> list[str]:
        """The names of the matching types; found again for each condition, as types may have been declared since."""
        return sorted({name_of(cls) for cls in self.subscription.classes()})


def _split(parts: tuple[x.Predicate, ...]) -> tuple[tuple[x.Predicate, ...], tuple[x.Predicate, ...]]:
    """Return the conjuncts that are tested separately, and those that are tested together if there are very many.

    Spark takes a conjunction apart, and nests its parts one in another again when it has tested some on files; with
    very many, its stack would not suffice. Those that can be tested on files come first.
    """
    if len(parts) <= MAX_CONJUNCTS:
        return parts, ()
    ordered = sorted(parts, key=lambda part: not reaches_files(part))
    return tuple(ordered[:MAX_CONJUNCTS]), tuple(ordered[MAX_CONJUNCTS:])


def _visible(hidden: Collection[str], name: str) -> Column:
    """Return the column of an attribute; NULL as text for one that is hidden."""
    return F.lit(None).cast("string") if name in hidden else F.col(name)


def _match_type(names: list[str]) -> Column:
    """Return the test of the type, as one text: names are identifiers, and a call of Java for each would take long."""
    if len(names) == 1:
        return F.col(TYPE_COLUMN) == F.lit(names[0])
    return F.expr(f"{TYPE_COLUMN} IN ({', '.join(map(repr, names))})") if names else F.lit(False)


def _explain_contents(parts: tuple[x.Predicate, ...]) -> str:
    """Return the conjuncts as text, those tested on files first."""
    separate, together = _split(parts)
    on_files = [_as_conjunct(part) for part in separate if reaches_files(part)]
    on_rows = [_as_conjunct(part) for part in separate if not reaches_files(part)]
    on_rows += map(_as_conjunct, together)
    stages = (("on files", on_files), ("on the rows left", on_rows))
    return "; ".join(f"{' and '.join(said)}, {where}" for where, said in stages if said) or "any"


def _as_conjunct(part: x.Predicate) -> str:
    return f"({part})" if isinstance(part, x.Or) else str(part)
