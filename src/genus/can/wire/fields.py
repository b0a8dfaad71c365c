"""Where each attribute of a vector stands in the payloads of a class, and where its presence is told."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from genus.can.wire.values import Form, Usage, form_of
from genus.errors import SubscriptionError
from genus.model import Attribute, ChoiceType, Event, Vector, attributes, name_of

FIRST_BITS, MORE_BITS = 4, 7
"""Presence bits in the header byte and in every byte after it."""


class Field(msgspec.Struct, frozen=True):
    """One attribute of the vector in the payloads of a class; `carried` says whether the class has it.

    Its presence is the `mask` of byte number `byte` of the header, or of the event tag where that is None. What the
    class requires needs none; its mask is its bit of the event tag if it is tagged, and else 0.
    """

    name: str
    key: str
    form: Form
    carried: bool
    required: bool
    byte: int | None = None
    mask: int = 0

    @property
    def local(self) -> str:
        """The value's name in generated code."""
        return f"a{self.key}"

    @property
    def bits(self) -> str:
        """The name in generated code of what has the presence bit."""
        return "bits" if self.byte is None else f"b{self.byte}"


def fields_of(cls: type[Event], vector: Vector, tagged: Sequence[str]) -> Iterator[Field]:
    """The fields of a class in the order of a vector; SubscriptionError if the vector does not have all it needs."""
    own = {attribute.name: attribute for attribute in attributes(cls)}
    for attribute in own.values():
        _refuse_strange(cls, attribute, vector)
    notes = {field.name: field.type for field in msgspec.structs.fields(cls)}
    tag_bits = {vector.find(name).name: 1 << bit for bit, name in enumerate(reversed(tagged))}
    places = iter(range(len(vector)))
    for number, agreed in enumerate(vector):
        mine, key = own.get(agreed.name), str(number)
        form = form_of(Usage(agreed.type, mine.type if mine else None, notes.get(agreed.name, Any), key))
        required = mine is not None and not mine.optional
        if required or agreed.name in tag_bits:
            byte, mask = None, tag_bits.get(agreed.name, 0)
        else:
            byte, mask = _presence(next(places))
        yield Field(agreed.name, key, form, mine is not None, required, byte, mask)


def header_size(fields: Iterable[Field]) -> int:
    """The bytes before the values, when the last of these fields that has a presence bit is there."""
    return 1 + max((field.byte or 0 for field in fields), default=0)


def _presence(place: int) -> tuple[int, int]:
    """The byte of the header and the mask of a presence bit."""
    if place < FIRST_BITS:
        return 0, 8 >> place
    byte, bit = divmod(place - FIRST_BITS, MORE_BITS)
    return byte + 1, 64 >> bit


def _refuse_strange(cls: type[Event], attribute: Attribute, vector: Vector) -> None:
    """Raise SubscriptionError if the vector does not have an attribute of a class, or has it otherwise."""
    agreed = vector.find(attribute.name).type
    if isinstance(agreed, ChoiceType) and isinstance(attribute.type, ChoiceType):
        same = set(attribute.type.values) <= set(agreed.values)
    else:
        same = agreed == attribute.type
    if not same:
        raise SubscriptionError(
            f"{name_of(cls)}.{attribute.name} is {attribute.type.describe()}, but {agreed.describe()} in the vector of "
            f"{vector.scope}: ({vector})"
        )
