"""Columns that events are brought together by."""

import pyspark.sql.functions as F
import pyspark.sql.types as spark
from pyspark.sql import Column

from genus.errors import LakeError

_NESTED = (spark.ArrayType, spark.MapType, spark.StructType, spark.VariantType)


def key_column(field: spark.StructField) -> Column:
    """A column of a key; NaN is unknown, as NULL is, and there is one zero."""
    if isinstance(field.dataType, _NESTED):
        raise LakeError(f"by={field.name!r} is of type {field.dataType.simpleString()}; give columns of plain values")
    column = F.col(field.name)
    if not isinstance(field.dataType, spark.FloatType | spark.DoubleType):
        return column
    return F.when(~F.isnan(column), column + F.lit(0.0)).cast(field.dataType).alias(field.name)
