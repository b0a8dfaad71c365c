"""Tables and columns of a lake.

A family's table has one column per attribute, in vector order, NULL where the attribute is absent, followed by columns
that Genus adds. The names of the added columns begin with an underscore; attribute names never do. Unsigned integers
are stored in the next wider signed type because Spark has no unsigned ones. An enum is stored by value, a nested struct
or a list as JSON. Files have durations as integers, in microseconds, because open table formats have no durations.

The files of an attribute that was renamed keep the column name that it had first, so that files of all times are alike;
tables show it under its present name. The names, without types, are in `names`.
"""

from datetime import UTC, datetime

import pyarrow as pa

from genus.lake._tables.names import (
    CODE,
    COMMIT,
    COMMON_COLUMNS,
    DAY,
    DEAD,
    DEAD_LETTERS,
    EVENT_ID,
    INGESTED,
    OWN_COLUMNS,
    POSITION,
    RECORDED,
    ROUTED,
    SHAPE,
    SOURCE,
    SUBSCRIBER,
    SUBSCRIPTION,
    TABLES,
    TAG,
    TYPE,
    check_column_names,
    find_case_twins,
    table_folder,
    table_of,
)
from genus.model import (
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
    Vector,
)
from genus.model._types import micros_of_time

__all__ = [
    "CODE",
    "COMMIT",
    "COMMON_COLUMNS",
    "DAY",
    "DEAD",
    "DEAD_LETTERS",
    "DEAD_SCHEMA",
    "EVENT_ID",
    "FIRST_US",
    "INGESTED",
    "INSTANT",
    "LAST_US",
    "OWN_COLUMNS",
    "OWN_SCHEMA",
    "POSITION",
    "RECORDED",
    "ROUTED",
    "SHAPE",
    "SOURCE",
    "SUBSCRIBER",
    "SUBSCRIPTION",
    "TABLES",
    "TAG",
    "TYPE",
    "attribute_schema",
    "check_column_names",
    "event_schema",
    "file_schema",
    "file_type",
    "find_case_twins",
    "stored_type",
    "table_folder",
    "table_of",
]

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


def attribute_schema(vector: Vector) -> pa.Schema:
    """The Arrow schema of a family's attributes."""
    return pa.schema([pa.field(attribute.name, stored_type(attribute.type)) for attribute in vector])


def event_schema(vector: Vector) -> pa.Schema:
    """The Arrow schema of a family's events: attributes by their present names, then the added columns."""
    return pa.schema([*attribute_schema(vector), *OWN_SCHEMA])


def file_schema(vector: Vector) -> pa.Schema:
    """The Arrow schema of a family's Parquet files, which has the first names of attributes."""
    columns = [pa.field(attribute.first_name, file_type(attribute.type)) for attribute in vector]
    return pa.schema([*columns, *OWN_SCHEMA])


def file_type(type_: AttributeType) -> pa.DataType:
    """The Arrow type of an attribute's column in Parquet files."""
    return pa.int64() if isinstance(type_, DurationType) else stored_type(type_)
