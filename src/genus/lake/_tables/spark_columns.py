"""The columns of a lake on Spark."""

import pyarrow as pa
import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column, DataFrame

from genus.lake._tables.columns import COMMIT, DAY, INSTANT, file_schema, stored_type
from genus.model import AttributeType, DurationType, Vector
from genus.model._vector import Attribute
from genus.targets.spark._compiler import micros

_SPARK: dict[pa.DataType, spark.DataType] = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    INSTANT: spark.TimestampType(),
    pa.duration("us"): spark.DayTimeIntervalType(),
    pa.date32(): spark.DateType(),
}
_PATHS: dict[str, spark.DataType] = {COMMIT: spark.StringType(), DAY: spark.DateType()}


def spark_type(type_: AttributeType) -> spark.DataType:
    """The Spark type of an attribute's column.

    >>> from genus.model import TimeType
    >>> spark_type(TimeType())
    TimestampType()
    """
    return _SPARK[stored_type(type_)]


def table_schema(vector: Vector) -> spark.StructType:
    """The Spark schema of a family's files, with the columns that are in their paths."""
    return spark_schema(file_schema(vector), COMMIT, DAY)


def with_present_names(stored: DataFrame, vector: Vector) -> DataFrame:
    """Rows of files as they are shown: with the present names of attributes, and with durations as intervals."""
    named = stored.withColumnsRenamed({each.first_name: each.name for each in vector if each.first_name != each.name})
    return _convert(named, {each.name: _interval(each.name) for each in _durations(vector)})


def with_first_names(shown: DataFrame, vector: Vector) -> DataFrame:
    """Rows as they are in files, the opposite of `with_present_names`."""
    stored = _convert(shown, {each.name: micros(F.col(each.name)) for each in _durations(vector)})
    return stored.withColumnsRenamed({each.name: each.first_name for each in vector if each.first_name != each.name})


def _durations(vector: Vector) -> list[Attribute]:
    return [each for each in vector if isinstance(each.type, DurationType)]


def _interval(name: str) -> Column:
    """A column of microseconds as intervals, exactly."""
    return F.expr("INTERVAL '0.000001' SECOND") * F.col(name)


def _convert(frame: DataFrame, columns: dict[str, Column]) -> DataFrame:
    return frame.withColumns(columns) if columns else frame


def spark_schema(files: pa.Schema, *paths: str) -> spark.StructType:
    """The Spark schema of Parquet files; `paths` names the partition columns in their paths."""
    stored = [spark.StructField(field.name, _SPARK[field.type]) for field in files]
    return spark.StructType([*stored, *(spark.StructField(name, _PATHS[name]) for name in paths)])
