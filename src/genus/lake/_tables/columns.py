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

from genus.lake._tables.names import CODE, INGESTED, POSITION, RECORDED, SHAPE, SOURCE, TAG, TYPE
from genus.model import micros_of_time
from genus.model.types import AttributeType, DurationType, Vector
from genus.targets import arrow

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

_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


def stored_type(type_: AttributeType) -> pa.DataType:
    """Return the Arrow type of an attribute's column.

    >>> from genus.model.types import IntType
    >>> stored_type(IntType(16, signed=False))
    DataType(int32)
    """
    found = arrow.stored_type(type_)
    return _SIGNED.get(found, found)


def attribute_schema(vector: Vector) -> pa.Schema:
    return pa.schema([pa.field(attribute.name, stored_type(attribute.type)) for attribute in vector])


def event_schema(vector: Vector) -> pa.Schema:
    """Return the Arrow schema of a family's events: attributes by their present names, then the added columns."""
    return pa.schema([*attribute_schema(vector), *OWN_SCHEMA])


def file_schema(vector: Vector) -> pa.Schema:
    """Return the Arrow schema of a family's Parquet files, which has the first names of attributes."""
    columns = [
        pa.field(each.first_name, pa.int64() if isinstance(each.type, DurationType) else stored_type(each.type))
        for each in vector
    ]
    return pa.schema([*columns, *OWN_SCHEMA])
