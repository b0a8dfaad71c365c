"""Tables, columns and shapes of a lake.

A family's table has one column per attribute, in vector order, NULL where the attribute is absent, followed by columns
that Genus adds. The names of the added columns begin with an underscore; attribute names never do. Unsigned integers
are stored in the next wider signed type because Spark has no unsigned ones. An enum is stored by value, a nested struct
or a list as JSON.

The files of an attribute that was renamed keep the column name that it had first, so that files of all times are alike;
tables show it under its present name.
"""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pyspark.sql.types as spark
from pyspark.sql import DataFrame

from genus.errors import LakeError
from genus.model import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    Event,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
    Vector,
    attributes,
)
from genus.model._types import micros_of_time

TABLES, DEAD = "tables", "dead"
"""Folders of a lake: event tables, one folder per family, and dead letters."""
DEAD_LETTERS = "dead letters"
"""Name of the dead-letter table in the ledger; a family name has no space."""
MAX_SHAPES = 50_000
"""A type with more shapes than this is listed once, without presence bits."""


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A type and the presence bits of some of its events; few shapes exist however many events there are.

    Subscriptions are matched against shapes. The code of a shape is divided by the code of the subscribed type, so
    types for which this process has no class match as well.
    """

    family: str
    type: str
    code: str
    """The type's prime product, in decimal digits."""
    tag: str | None
    """Presence bits over the family's vector, in hexadecimal digits; None if the type has too many shapes to list."""

    @property
    def key(self) -> str:
        """Unique key of the shape in a lake."""
        return f"{self.type}/{self.tag}"

    @property
    def number(self) -> int:
        """The 64-bit number of the shape, as in the `_shape` column."""
        return shape_number(self.type, self.bits)

    @property
    def bits(self) -> int:
        """The presence bits as a number."""
        return int(self.tag or "0", 16)


def shape_number(type: str, tag: int) -> int:
    """The number of a shape: 64 bits of a hash, so that all tasks compute the same number independently.

    >>> shape_number("Loop", 36)
    4502347039163846936
    """
    digest = hashlib.blake2b(f"{type}/{tag:x}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def limit_shapes(known: Iterable[Shape], new: Iterable[Shape], most: int) -> tuple[Shape, ...]:
    """The new shapes to list; a type that would exceed `most` gets one shape without presence bits instead."""
    listed: dict[str, set[Shape]] = {}
    before = set(known)
    for shape in before:
        listed.setdefault(shape.type, set()).add(shape)
    kept: dict[Shape, None] = {}
    for shape in new:
        of_type = listed.setdefault(shape.type, set())
        of_type.add(shape)
        kept[shape if len(of_type) <= most else Shape(shape.family, shape.type, shape.code, None)] = None
    return tuple(shape for shape in kept if shape not in before)


def shape_collisions(shapes: Iterable[Shape]) -> list[tuple[Shape, Shape]]:
    """Pairs of different shapes with the same number; expected once in a million lakes of a million shapes."""
    known: dict[int, Shape] = {}
    pairs = ((known.setdefault(shape.number, shape), shape) for shape in shapes if shape.tag is not None)
    return [(first, second) for first, second in pairs if (first.type, first.tag) != (second.type, second.tag)]


TYPE, CODE, TAG, SHAPE = "_type", "_code", "_tag", "_shape"
SOURCE, POSITION = "_source", "_position"
RECORDED, INGESTED = "_recorded", "_ingested"
COMMIT, DAY = "_commit", "_day"

EVENT_ID = (SOURCE, POSITION)
"""The id of an event: the number of its source, and its position there."""

SUBSCRIBER, SUBSCRIPTION = ROUTED = ("subscriber", "subscription")
"""Columns that routing puts before those of an event; no attribute of a lake has these names."""

INSTANT = pa.timestamp("us", tz="UTC")
FIRST_US = micros_of_time(datetime.min.replace(tzinfo=UTC))
LAST_US = micros_of_time(datetime.max.replace(tzinfo=UTC))
"""The times that a lake can store, the years 1 to 9999, in microseconds since 1970."""

OWN_SCHEMA = pa.schema(
    [
        pa.field(TYPE, pa.string(), nullable=False),
        pa.field(CODE, pa.string(), nullable=False),  # decimal digits: prime products may exceed 64 bits
        pa.field(TAG, pa.string(), nullable=False),  # hexadecimal digits: vectors may exceed 64 bits
        pa.field(SHAPE, pa.int64(), nullable=False),
        pa.field(SOURCE, pa.int64(), nullable=False),
        pa.field(POSITION, pa.int64(), nullable=False),
        pa.field(RECORDED, INSTANT, nullable=False),
        pa.field(INGESTED, INSTANT, nullable=False),
    ]
)
"""Columns that Genus adds to the attributes in Parquet files; commit and day are in the paths of files."""

COMMON_COLUMNS = (*(attribute.name for attribute in attributes(Event)), *OWN_SCHEMA.names)
"""Columns that the tables of all families have."""

DEAD_SCHEMA = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field(SOURCE, pa.int64(), nullable=False),
        pa.field(POSITION, pa.int64(), nullable=False),
        pa.field("raw", pa.string(), nullable=False),
        pa.field(INGESTED, INSTANT, nullable=False),
    ]
)
"""Columns of the dead-letter table."""

_STORED: dict[type, pa.DataType] = {
    BoolType: pa.bool_(),
    TextType: pa.string(),
    BytesType: pa.binary(),
    TimeType: INSTANT,
    DurationType: pa.duration("us"),
    OpaqueType: pa.string(),
}
_NUMBERS: dict[AttributeType, pa.DataType] = {
    IntType(8, True): pa.int8(),
    IntType(16, True): pa.int16(),
    IntType(32, True): pa.int32(),
    IntType(64, True): pa.int64(),
    IntType(8, False): pa.int16(),
    IntType(16, False): pa.int32(),
    IntType(32, False): pa.int64(),
    FloatType(32): pa.float32(),
    FloatType(64): pa.float64(),
}
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
}
_PATHS: dict[str, spark.DataType] = {COMMIT: spark.StringType(), DAY: spark.DateType()}


def stored_type(type_: AttributeType) -> pa.DataType:
    """The Arrow type of an attribute's column.

    >>> stored_type(IntType(16, signed=False))
    DataType(int32)
    """
    match type_:
        case IntType() | FloatType():
            return _NUMBERS[type_]
        case ChoiceType(values):
            return pa.string() if isinstance(values[0], str) else pa.int64()
    return _STORED[type(type_)]


def spark_type(type_: AttributeType) -> spark.DataType:
    """The Spark type of an attribute's column.

    >>> spark_type(TimeType())
    TimestampType()
    """
    return _SPARK[stored_type(type_)]


def attribute_schema(vector: Vector) -> pa.Schema:
    """The Arrow schema of a family's attributes."""
    return pa.schema([pa.field(attribute.name, stored_type(attribute.type)) for attribute in vector])


def event_schema(vector: Vector) -> pa.Schema:
    """The Arrow schema of a family's events: attributes by their present names, then the added columns."""
    return pa.schema([*attribute_schema(vector), *OWN_SCHEMA])


def file_schema(vector: Vector) -> pa.Schema:
    """The Arrow schema of a family's Parquet files, which has the first names of attributes."""
    columns = [pa.field(attribute.first_name, stored_type(attribute.type)) for attribute in vector]
    return pa.schema([*columns, *OWN_SCHEMA])


def table_schema(vector: Vector) -> spark.StructType:
    """The Spark schema of a family's files, with the columns that are in their paths."""
    return spark_schema(file_schema(vector), COMMIT, DAY)


def with_present_names(stored: DataFrame, vector: Vector) -> DataFrame:
    """Rows of files with the present names of attributes as column names."""
    return stored.withColumnsRenamed({each.first_name: each.name for each in vector if each.first_name != each.name})


def with_first_names(shown: DataFrame, vector: Vector) -> DataFrame:
    """Rows with the column names of files, the opposite of `with_present_names`."""
    return shown.withColumnsRenamed({each.name: each.first_name for each in vector if each.first_name != each.name})


def spark_schema(files: pa.Schema, *paths: str) -> spark.StructType:
    """The Spark schema of Parquet files; `paths` names the partition columns in their paths."""
    stored = [spark.StructField(field.name, _SPARK[field.type]) for field in files]
    return spark.StructType([*stored, *(spark.StructField(name, _PATHS[name]) for name in paths)])


def check_column_names(vector: Vector) -> None:
    """Raise LakeError if a vector has names that cannot be columns: those of matches, or equal but for case."""
    if taken := [attribute.name for attribute in vector if attribute.name.lower() in ROUTED]:
        raise LakeError(f"{vector.scope} has an attribute {taken[0]!r}, a column name of delivered matches; rename it")
    if twins := find_case_twins(attribute.name for attribute in vector) or find_case_twins(file_schema(vector).names):
        raise LakeError(f"{vector.scope} has attributes that differ only in case, which Spark ignores: {twins}")


def find_case_twins(names: Iterable[str]) -> str:
    """Names that differ only in case, as text for a message; empty if there are none."""
    seen: dict[str, str] = {}
    pairs = ((seen.setdefault(name.lower(), name), name) for name in names)
    return ", ".join(f"{first} and {second}" for first, second in pairs if first != second)
