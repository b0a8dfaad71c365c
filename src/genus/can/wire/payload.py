"""The payload of an event: a header that says what is present, then the values, in the order of the family's vector.

The type of an event follows from its event tag, so a payload names nothing. Its header byte has the event's sequence
number modulo 8 in bits 7 to 5. Bit 4 says that a byte of presence bits follows, and bits 3 to 0 are the first four
presence bits; each further byte has in bit 7 that another follows, and seven bits. Presence bits belong to the
attributes of the family's vector, in its order, without those that the type requires and without those that are
tagged, which have theirs in the event tag. Bytes of zeros at the end are left out.

All attributes of the vector have a bit, also those that the type does not carry today: whatever a class gains or drops
later, no bit of it changes its place, and its values can be skipped by who does not know them. What is new to the
vector comes last, so that readers with an older one ignore it. Each class has its code made for it when its layout is.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

from genus.can.wire.fields import Field, fields_of, header_size
from genus.can.wire.generated import Decode, Encode, decoder, encoder
from genus.model import Event, Vector, attributes


class Layout(msgspec.Struct, frozen=True):
    """The payload codec of one class.

    >>> from genus import Catalog, Event, Maybe
    >>> from genus.model import UInt8
    >>> class Loop(Event):
    ...     lane: UInt8
    ...     speed: Maybe[UInt8] = None
    >>> catalog = Catalog()
    >>> added = catalog.register(Loop)
    >>> layout = Layout.of(Loop, catalog.vector(Loop))
    >>> bits, payload = layout.encode(Loop(lane=2, speed=80), 5)
    >>> payload.hex(" ")
    'b0 20 02 50'
    >>> layout.decode(bits, payload), layout.sequence_of(payload)
    (Loop(lane=2, speed=80), 5)
    >>> layout.decode(0, payload[:-1])
    Rejected(reason='Loop is cut short')
    """

    event_type: type[Event]
    fields: tuple[Field, ...]
    encode: Encode
    """The presence bits for the event tag and the payload of an event and its sequence number.

    EventError says which value cannot be written.
    """
    decode: Decode
    """The event of a payload and of the presence bits of its event tag, whose higher bits do not count.

    Never raises: what is not an event of this class gives a reason. Bytes after the last value are ignored.
    """

    @classmethod
    def of(cls, event_type: type[Event], vector: Vector, tagged: Sequence[str] = ()) -> Self:
        """The codec of a class over its catalog's vector.

        `tagged` are the attributes whose presence is in the event tag, that of the first in the highest bit.
        SubscriptionError if the vector lacks one of these or of the class's, or has it with another type.
        """
        fields = tuple(fields_of(event_type, vector, tagged))
        return cls(event_type, fields, encoder(event_type, fields), decoder(event_type, fields))

    @property
    def largest(self) -> int | None:
        """The most bytes a payload of this class takes; None where a text, bytes or an opaque value is not bounded."""
        return self.largest_of(field.name for field in self.fields)

    @property
    def smallest(self) -> int:
        """The fewest bytes a payload of this class takes."""
        return 1 + sum(field.form.least for field in self.fields if field.required)

    def largest_of(self, names: Iterable[str]) -> int | None:
        """The most bytes a payload takes that has only these of the optional attributes; None where not bounded."""
        among = frozenset(names)
        fields = [field for field in self.fields if field.required or (field.carried and field.name in among)]
        sizes = [field.form.most for field in fields]
        return None if None in sizes else header_size(fields) + sum(size for size in sizes if size is not None)

    def largest_carrying(self, context: Iterable[str] = ()) -> int | None:
        """The most bytes of an event with all attributes of its own, and of those of `Event` only these.

        Every event may have a `place` of any length; few types ever do, so what is carried of the context is announced.
        """
        left_out = {attribute.name for attribute in attributes(Event)} - set(context)
        return self.largest_of(field.name for field in self.fields if field.name not in left_out)

    @staticmethod
    def sequence_of(payload: bytes) -> int:
        """The sequence number of a payload; 0 for an empty one, which is no event's."""
        return payload[0] >> 5 if payload else 0
