"""Walks: a function of the user's goes through the events of each key, in order of time.

The function remembers nothing: what it cannot settle yet it names as rows to be seen again, together with later ones.
So the blocks of a batch and the increments of a stream are the same to it, and both give the same results.
"""

from datetime import datetime, timedelta
from functools import partial, reduce

import msgspec
import pyarrow as pa
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from genus.errors import LakeError
from genus.lake.analytics.keys import key_column
from genus.lake.analytics.lateness import END, TIME, check_lateness, known_before, moment, on_time
from genus.lake.analytics.settling import Settled, demand, distinct, listed
from genus.lake.analytics.walking import AT_US, KEPT, RESULT, STATE, WAITING, Function, Steps, walk_rows
from genus.lake.columns import EVENT_ID, TYPE, spark_schema


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """What a function makes of the events of each key, in order of time.

    Its results have the key and the columns that the function gives. Events with NULL in the key are left out. The law
    that the function must keep: the rows it wants to see again, followed by later ones, give what all of them at once
    would have given.
    """

    by: tuple[str, ...]
    function: Function
    """A function of a module, or a `partial` of one: workers import it, and derived tables know it by its name."""
    gives: pa.Schema
    columns: tuple[str, ...] = ()
    """What it needs to see besides the key, `time`, `_at_us`, `_type` and the event's id."""
    lateness: timedelta | None = None
    keep_late: bool = False
    """Count late events too; in batch only, for a stream cannot wait for them."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "by", listed(self.by))
        msgspec.structs.force_setattr(self, "columns", listed(self.columns))
        if not self.by:
            raise LakeError("by= names no column; give the key whose events belong together")
        name_of(self.function)
        distinct([*self.by, *self.gives.names], "rename one that the function gives")
        check_lateness(self.lateness)

    def __repr__(self) -> str:
        """The same in every process, for derived tables are claimed by it."""
        gives = ", ".join(f"{field.name}: {field.type}" for field in self.gives)
        return (
            f"Walk(by={self.by!r}, function={name_of(self.function)}, gives=({gives}), columns={self.columns!r}, "
            f"lateness={self.lateness!r}, keep_late={self.keep_late})"
        )

    def take(self, *events: DataFrame) -> DataFrame:
        """The rows that the function sees, of one frame or several; what only some of them have is NULL elsewhere."""
        if not events:
            raise LakeError("a walk takes a frame of events, or several, not none")
        rows = reduce(_union, (self._rows(frame) for frame in events))
        demand(rows, self.columns)
        return rows.dropna(subset=list(self.by))

    def settle(self, rows: DataFrame, watermark: datetime) -> Settled:
        """What is final now that all is known before the watermark; what the function wants to see again waits."""
        steps = Steps(self.by, self.function, self.gives, _arrow(rows.schema), known_before(watermark, self.keep_late))
        ordered = rows.repartition(*self.by).sortWithinPartitions(*self.by, AT_US, *EVENT_ID)
        walked = ordered.mapInArrow(partial(walk_rows, steps), self._output(rows.schema))
        results = walked.where(F.col(STATE) == RESULT).select(*self.by, *self.gives.names)
        kept = [name if name in self.by else F.col(KEPT + name).alias(name) for name in rows.columns]
        return Settled(results, walked.where(F.col(STATE) == WAITING).select(*kept), walked)

    def all(self, *events: DataFrame) -> DataFrame:
        """What the function gives over all events of some frames."""
        return self.settle(self.take(*events), END).results

    def _rows(self, events: DataFrame) -> DataFrame:
        demand(events, self.by)
        timed = on_time(events, self.lateness, self.keep_late).withColumn(TIME, moment())
        seen = dict.fromkeys([TIME, TYPE, *self.columns, *EVENT_ID])
        others = (name for name in seen if name in events.columns and name not in self.by)
        keys = (key_column(events.schema[name]) for name in self.by)
        return timed.select(*keys, *others, F.unix_micros(TIME).alias(AT_US))

    def _output(self, rows: spark.StructType) -> spark.StructType:
        key = [spark.StructField(name, rows[name].dataType) for name in self.by]
        kept = [spark.StructField(KEPT + field.name, field.dataType) for field in rows if field.name not in self.by]
        return spark.StructType([*key, *spark_schema(self.gives), *kept, spark.StructField(STATE, spark.ByteType())])


def name_of(function: Function) -> str:
    """A function's name, by which another process finds it, with the values it is bound to.

    >>> name_of(partial(name_of, function=3))
    'genus.lake.analytics.walk.name_of(function=3)'
    """
    if isinstance(function, partial):
        bound = [*map(repr, function.args), *(f"{name}={value!r}" for name, value in function.keywords.items())]
        return f"{name_of(function.func)}({', '.join(bound)})"
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<unnamed>")
    if module is None or "<" in name:
        raise LakeError(
            f"function={function!r} has no name to find it by in another process; give a function of a module"
        )
    return f"{module}.{name}"


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


def _arrow(rows: spark.StructType) -> pa.Schema:
    """What a worker gets of rows."""
    return to_arrow_schema(rows, timezone="UTC")
