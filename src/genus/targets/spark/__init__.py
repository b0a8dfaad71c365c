"""The Spark target: a subscription becomes a condition on the columns of a lake's table.

`_type` holds the names of the events' types, and there is one column per attribute, NULL where it is absent. What can
be decided on the statistics of Parquet files is written so that Spark does it there; `explain` says what that is.
"""

from collections.abc import Iterable

from genus._extras import missing_extra

try:
    import pyspark.sql.functions as F
    from pyspark.sql import Column, DataFrame
except ImportError as missing:
    raise missing_extra("the spark target needs pyspark", "lake") from missing

import genus.filters._expression as x
from genus.errors import SubscriptionError
from genus.filters._covering import conjuncts
from genus.filters._subscription import Subscription
from genus.model import name_of
from genus.targets.spark._compiler import SparkCompiler, all_of_these, reaches_files

__all__ = ["TYPE_COLUMN", "SparkCompiler", "SparkFilter", "compile", "contents", "reaches_files"]

TYPE_COLUMN = "_type"


def compile(subscription: Subscription) -> "SparkFilter":
    """A filter of a lake's tables for one subscription; no session is needed until a condition is asked for.

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


def contents(where: x.Predicate) -> Column:
    """A bound predicate as a column that is true where the predicate is, and false or NULL elsewhere."""
    found: Column = SparkCompiler().visit(where)
    return found


class SparkFilter:
    """Chooses the rows of a table that match; made by `compile`."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        where = subscription.where
        said = [node.name for node in where.walk() if isinstance(node, x.AttributeRef)] if where is not None else []
        wanted = {*subscription.has, *subscription.lacks, *said}
        self._reads = tuple(attribute.name for attribute in subscription.vector if attribute.name in wanted)

    def condition(self, types: Iterable[str] | None = None) -> Column:
        """A column that is true of rows that match, and false or NULL of others.

        `types` are the names of the types that match, as a lake knows them; without it, those declared in Python.
        """
        asked = self.subscription
        names = self._type_names() if types is None else sorted(set(types))
        tests = [_named(names)]
        tests += [F.col(name).isNotNull() for name in asked.has]
        tests += [F.col(name).isNull() for name in asked.lacks]
        tests += [contents(part) for part in conjuncts(asked.where)]
        return all_of_these(tests)

    def filter(self, frame: DataFrame, types: Iterable[str] | None = None) -> DataFrame:
        """The rows that match; a frame without a column that is asked for is refused."""
        if missing := [name for name in (TYPE_COLUMN, *self._reads) if name not in frame.columns]:
            raise SubscriptionError(f"the frame has no column {', '.join(missing)}; filter before columns are dropped")
        return frame.where(self.condition(types))

    def explain(self) -> str:
        """The stages in the order they are tested, what of them is tested on files, and the columns that are read."""
        asked = self.subscription
        carried = [f"{name} is not null" for name in asked.has] + [f"{name} is null" for name in asked.lacks]
        lines = {
            "type": f"{TYPE_COLUMN} in ({', '.join(self._type_names())}), on files",
            "attributes": f"{' and '.join(carried)}, on files" if carried else "any",
            "contents": _explained(conjuncts(asked.where)),
            "reads": ", ".join((TYPE_COLUMN, *self._reads)),
        }
        return "\n".join([f"spark: {asked}", *(f"  {stage}: {text}" for stage, text in lines.items())])

    def _type_names(self) -> list[str]:
        """The names of the matching types. Asked anew for each condition: types may have been declared since."""
        return sorted({name_of(cls) for cls in self.subscription.classes()})


def _named(names: list[str]) -> Column:
    if len(names) == 1:
        return F.col(TYPE_COLUMN) == F.lit(names[0])
    return F.col(TYPE_COLUMN).isin(*names) if names else F.lit(False)


def _explained(parts: tuple[x.Predicate, ...]) -> str:
    """The conjuncts, those that are tested on files first."""
    on_files = [_as_conjunct(part) for part in parts if reaches_files(part)]
    on_rows = [_as_conjunct(part) for part in parts if not reaches_files(part)]
    stages = (("on files", on_files), ("on the rows left", on_rows))
    return "; ".join(f"{' and '.join(said)}, {where}" for where, said in stages if said) or "any"


def _as_conjunct(part: x.Predicate) -> str:
    return f"({part})" if isinstance(part, x.Or) else str(part)
