"""Slots: the few native types in which the values of all attributes are looked up and compared."""

from enum import Enum

import pyarrow as pa

from genus.model import AttributeType, BytesType, ChoiceType, FloatType, TextType


class Slot(Enum):
    """A native type; its value names the columns that hold it."""

    LONG = "long"
    """Integers, bools, microseconds of times and durations, enumerations of integers."""
    DOUBLE = "double"
    TEXT = "text"
    OCTETS = "octets"

    @property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        return _ARROW[self]


_ARROW = {Slot.LONG: pa.int64(), Slot.DOUBLE: pa.float64(), Slot.TEXT: pa.string(), Slot.OCTETS: pa.binary()}


def slot_of(type_: AttributeType) -> Slot:
    """Where values of a type go.

    >>> slot_of(ChoiceType(("red", "green")))
    <Slot.TEXT: 'text'>
    """
    match type_:
        case TextType() | ChoiceType((str(), *_)):
            return Slot.TEXT
        case FloatType():
            return Slot.DOUBLE
        case BytesType():
            return Slot.OCTETS
    return Slot.LONG
