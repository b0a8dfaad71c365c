"""What calls of `genus.model` return, and options that programs name in annotations only."""

from genus.model._signature import Signature
from genus.model._types import (
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
)
from genus.model._vector import Attribute, Vector

__all__ = [
    "Attribute",
    "AttributeType",
    "BoolType",
    "BytesType",
    "ChoiceType",
    "DurationType",
    "FloatType",
    "IntType",
    "OpaqueType",
    "Signature",
    "TextType",
    "TimeType",
    "Vector",
]
