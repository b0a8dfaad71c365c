"""The columns of a lake's tables: a family's vector, and what Genus keeps beside it.

A table has one column per attribute of its family, in vector order, NULL where the attribute is absent. Names of Genus'
own columns begin with an underscore, which no attribute's name does. Unsigned integers are stored in the next wider
signed type, for Spark has no unsigned ones; an enum is stored as its values, a nested struct or a list as JSON.
"""

import hashlib
from collections.abc import Iterable

import msgspec
import pyarrow as pa
import pyspark.sql.types as spark

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

# Shapes: the distinct (type, tag) pairs of a lake, few however many events there are.
#
# A shape's number is a hash of its type's name and tag, so that tasks on many machines give the same number without
# asking anybody. Matching asks a shape and never an event: its code is divided by the code of what is subscribed to, so
# types that this process never heard of match as well.


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A type and the attributes that events of it carried; `tag` is None where there are too many tags to list."""

    family: str
    type: str
    code: str
    """The type's prime product, in decimal digits."""
    tag: str | None
    """The presence bits over the family's vector, in hexadecimal digits."""

    @property
    def key(self) -> str:
        """What tells it from all others in a lake."""
        return f"{self.type}/{self.tag}"

    @property
    def number(self) -> int:
        """The 64-bit number that stands for it in tables."""
        return shape_number(self.type, int(self.tag or "0", 16))

    @property
    def bits(self) -> int:
        """The tag as a number."""
        return int(self.tag or "0", 16)


def shape_number(type: str, tag: int) -> int:
    """The number of a shape: 64 bits of a hash, the same everywhere and for ever.

    >>> shape_number("Loop", 36)
    4502347039163846936
    """
    digest = hashlib.blake2b(f"{type}/{tag:x}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def few_enough(known: Iterable[Shape], new: Iterable[Shape], most: int) -> tuple[Shape, ...]:
    """The new shapes that are to be listed: of a type that would have too many, one without a tag instead."""
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


def collisions(shapes: Iterable[Shape]) -> list[tuple[Shape, Shape]]:
    """Pairs of different shapes with one number; to be expected once in a million lakes of a million shapes."""
    known: dict[int, Shape] = {}
    pairs = ((known.setdefault(shape.number, shape), shape) for shape in shapes if shape.tag is not None)
    return [(first, second) for first, second in pairs if (first.type, first.tag) != (second.type, second.tag)]


TYPE, CODE, TAG, SHAPE = "_type", "_code", "_tag", "_shape"
SOURCE, POSITION = "_source", "_position"
RECORDED, INGESTED = "_recorded", "_ingested"
COMMIT, DAY = "_commit", "_day"

EVENT_ID = (SOURCE, POSITION)
"""Together they name an event: what it was read from, and where in it."""

SUBSCRIBER, SUBSCRIPTION = ROUTED = ("subscriber", "subscription")
"""What stands before the columns of an event that was matched; no attribute of a lake is called so."""

INSTANT = pa.timestamp("us", tz="UTC")

OWN = pa.schema(
    [
        pa.field(TYPE, pa.string(), nullable=False),
        pa.field(CODE, pa.string(), nullable=False),  # decimal digits: prime products outgrow every number type
        pa.field(TAG, pa.string(), nullable=False),  # hexadecimal digits: vectors outgrow 64 bits
        pa.field(SHAPE, pa.int64(), nullable=False),
        pa.field(SOURCE, pa.int64(), nullable=False),
        pa.field(POSITION, pa.int64(), nullable=False),
        pa.field(RECORDED, INSTANT, nullable=False),
        pa.field(INGESTED, INSTANT, nullable=False),
    ]
)
"""The columns beside the vector that are in the files; the commit and the day are in their paths."""

COMMON = (*(attribute.name for attribute in attributes(Event)), *OWN.names)
"""The columns that events of all families have."""

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
    """The columns of a family's attributes."""
    return pa.schema([pa.field(attribute.name, stored_type(attribute.type)) for attribute in vector])


def file_schema(vector: Vector) -> pa.Schema:
    """The columns of a family's Parquet files: attributes first, so that a table shows what was said."""
    return pa.schema([*attribute_schema(vector), *OWN])


def table_schema(vector: Vector) -> spark.StructType:
    """The columns of a family's table as Spark reads it, with those that are in the paths of files."""
    return spark_schema(file_schema(vector), COMMIT, DAY)


def spark_schema(files: pa.Schema, *paths: str) -> spark.StructType:
    """The columns of files as Spark reads them, and of the paths they lie in."""
    stored = [spark.StructField(field.name, _SPARK[field.type]) for field in files]
    return spark.StructType([*stored, *(spark.StructField(name, _PATHS[name]) for name in paths)])


def check_names(vector: Vector) -> None:
    """Refuse a vector with names that Spark, which does not see case, cannot tell apart."""
    if taken := [attribute.name for attribute in vector if attribute.name.lower() in ROUTED]:
        raise LakeError(f"{vector.scope} has an attribute {taken[0]!r}, as delivered matches have; rename it")
    if twins := twins_in(attribute.name for attribute in vector):
        raise LakeError(f"{vector.scope} has attributes that Spark, blind to case, cannot tell apart: {twins}")


def twins_in(names: Iterable[str]) -> str:
    """Names that differ only in case; empty if there are none."""
    seen: dict[str, str] = {}
    pairs = ((seen.setdefault(name.lower(), name), name) for name in names)
    return ", ".join(f"{first} and {second}" for first, second in pairs if first != second)
