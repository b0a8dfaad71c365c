"""The functions that write and read the payloads of one class, generated from its fields.

Values that are always there and of fixed size are packed together where they follow each other; every other one has an
`if` of its own. In the code `e` is the event, `bits` the presence bits of the event tag, `b0`, `b1`... the bytes of the
header, `at` the place in the payload, and `a` with a number the value of an attribute.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, NoReturn, Self, TypeAlias

import msgspec

from genus.bus._codec import Rejected
from genus.can._wire.values import BYTE, Form, Usage, form_of
from genus.errors import EventError, SubscriptionError
from genus.model import Attribute, ChoiceType, Event, Vector, attributes, check, name_of
from genus.targets.python import define

# Where each attribute of a vector stands in the payloads of a class, and where its presence is told.


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


Encode: TypeAlias = Callable[[Event, int], tuple[int, bytes]]
Decode: TypeAlias = Callable[[int, bytes], Event | Rejected]


def _runs(fields: Iterable[Field]) -> Iterator[list[Field]]:
    """The fields in order, together where they are packed together."""
    run: list[Field] = []
    for field in fields:
        if field.required and field.form.format:
            run.append(field)
            continue
        if run:
            yield run
        run = []
        yield [field]
    if run:
        yield run


def _struct(run: Collection[Field]) -> Struct:
    return Struct(">" + "".join(field.form.format for field in run))


def _constants(fields: Iterable[Field]) -> dict[str, object]:
    """The names that occur in the code of the fields."""
    names: dict[str, object] = {}
    for field in fields:
        names |= field.form.names
    return names


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


# ---- writing


def encoder(cls: type[Event], fields: Iterable[Field]) -> Encode:
    """The function that writes events of a class."""
    carried = [field for field in fields if field.carried]
    last = header_size(carried) - 1
    names = _constants(carried) | {"BYTE": BYTE, "cls": cls, "refuse": lambda e, why: _refuse(cls, carried, e, why)}
    body = [f"b{byte} = 0" for byte in range(1, last + 1)]
    for run in _runs(carried):
        names[f"pack{run[0].key}_"] = _struct(run).pack
        body += _write(run)
    always = sum(field.mask for field in carried if field.required)
    lines = [
        "def encode(e, sequence):",
        "    if e.__class__ is not cls: refuse(e, None)",
        f"    b0, bits, body = (sequence & 7) << 5, {always}, b''",
        "    try:",
        *_indented(_indented(body)),
        "    except Exception as problem: refuse(e, problem)",
        *_indented(_write_header(last)),
    ]
    made: Encode = define("\n".join(lines), "encode", names)
    return made


def _write(run: Sequence[Field]) -> list[str]:
    """Statements that add values to the body."""
    first = run[0]
    loads = [f"{field.local} = e.{field.name}" for field in run]
    values = ", ".join(_expression(field) for field in run)
    write = f"body += pack{first.key}_({values})" if first.form.format else f"body += {values}"
    if first.required:
        return [*loads, write]
    return [*loads, f"if {first.local} is not None:", *_indented([f"{first.bits} |= {first.mask}", write])]


def _expression(field: Field) -> str:
    return field.form.write.format(v=field.local)


def _write_header(last: int) -> list[str]:
    """Statements that return the result, with as few header bytes as the presence bits need."""
    lines = []
    for byte in range(last, 0, -1):
        between = "".join(f"b{number} | 128, " for number in range(1, byte))
        lines.append(f"if b{byte}: return bits, bytes((b0 | 16, {between}b{byte})) + body")
    return [*lines, "return bits, BYTE[b0] + body"]


def _refuse(cls: type[Event], fields: Iterable[Field], event: Event, problem: Exception | None) -> NoReturn:
    """Raise the EventError that says why an event cannot be written."""
    if problem is None:
        raise EventError(f"{event!r} is no {name_of(cls)}; each class has a layout of its own")
    check(event)
    for field in fields:
        value = getattr(event, field.name)
        if value is None and not field.required:
            continue
        try:
            _lone_writer(field)(value)
        except Exception as why:
            text = repr(value)
            shown = text if len(text) <= 80 else f"{text[:77]}..."
            raise EventError(f"{name_of(cls)}.{field.name} is {shown}, which cannot be written: {why}") from None
    raise EventError(f"{event!r} cannot be written: {problem}") from problem


def _lone_writer(field: Field) -> Callable[[object], object]:
    """What writes one value, to find the one that cannot be written."""
    packed = f"pack({_expression(field)})" if field.form.format else _expression(field)
    names = {**field.form.names, "pack": _struct([field]).pack}
    write: Callable[[object], object] = define(f"def write({field.local}): return {packed}", "write", names)
    return write


# ---- reading


def decoder(cls: type[Event], fields: Sequence[Field]) -> Decode:
    """The function that reads payloads of a class."""
    label = name_of(cls)
    names = _constants(fields) | {"cls": cls, "StructError": StructError}
    names |= {f"no{field.key}": Rejected(f"{label}.{field.name} is not as it must be") for field in fields}
    names |= {"short": Rejected(f"{label} is cut short"), "refusal": lambda why: _refusal(label, why)}
    body = _read_header(header_size(fields) - 1)
    for run in _runs(fields):
        names[f"unpack{run[0].key}_"] = _struct(run).unpack_from
        body += _read(run)
    values = ", ".join(f"{field.name}={field.local}" for field in fields if field.carried)
    lines = [
        "def decode(bits, payload):",
        "    size = len(payload)",
        "    try:",
        *_indented(_indented(body)),
        "    except (IndexError, StructError): return short",
        "    if at > size: return short",
        f"    try: return cls({values})",
        "    except Exception as problem: return refusal(problem)",
    ]
    made: Decode = define("\n".join(lines), "decode", names)
    return made


def _refusal(label: str, problem: Exception) -> Rejected:
    """What a class's own __post_init__ says; not in its words, which may quote values, as reasons are counted."""
    return Rejected(f"{label} refuses it: {type(problem).__name__}")


def _read_header(last: int) -> list[str]:
    """Statements that load the presence bits that are known and pass over others."""
    lines = ["while payload[at] & 128: at += 1", "at += 1"]
    for byte in range(last, 0, -1):
        lines = [f"b{byte} = payload[{byte}]", f"at = {byte + 1}", f"if b{byte} & 128:", *_indented(lines)]
    cleared = [f"b{byte} = 0" for byte in range(1, last + 1)]
    return ["b0 = payload[0]", "at = 1", *cleared, "if b0 & 16:", *_indented(lines)]


def _read(run: Sequence[Field]) -> list[str]:
    """Statements that read values, present or absent."""
    first = run[0]
    lines = _fixed(run) if first.form.format else _counted(first)
    for field in run:
        lines += [line.format(v=field.local, no=f"no{field.key}") for line in field.form.read]
    if first.required:
        return [*(f"if not bits & {field.mask}: return no{field.key}" for field in run if field.mask), *lines]
    lines = [f"if {first.bits} & {first.mask}:", *_indented(lines)]
    return [*lines, f"else: {first.local} = None"] if first.carried else lines


def _fixed(run: Sequence[Field]) -> list[str]:
    size = _struct(run).size
    if not run[0].carried:
        return [f"at += {size}"]
    if [field.form.format for field in run] == ["B"]:
        return [f"{run[0].local} = payload[at]", "at += 1"]
    targets = "".join(f"{field.local}, " for field in run)
    return [f"{targets}= unpack{run[0].key}_(payload, at)", f"at += {size}"]


def _counted(field: Field) -> list[str]:
    lines = ["n = payload[at]", "at += 1", "if n == 255:", "    n = payload[at] << 8 | payload[at + 1]", "    at += 2"]
    if not field.form.contents:
        return [*lines, f"{field.local} = n"]
    return [*lines, "end = at + n", "if end > size: return short", f"{field.local} = payload[at:end]", "at = end"]


# The payload of an event: a header that says what is present, then the values, in the order of the family's vector.
#
# The type of an event follows from its event tag, so a payload names nothing. Its header byte has the event's sequence
# number modulo 8 in bits 7 to 5. Bit 4 says that a byte of presence bits follows, and bits 3 to 0 are the first four
# presence bits; each further byte has in bit 7 that another follows, and seven bits. Presence bits belong to the
# attributes of the family's vector, in its order, without those that the type requires and without those that are
# tagged, which have theirs in the event tag. Bytes of zeros at the end are left out.
#
# All attributes of the vector have a bit, also those that the type does not carry today: whatever a class gains or
# drops later, no bit of it changes its place, and its values can be skipped by who does not know them. What is new to
# the vector comes last, so that readers with an older one ignore it. Each class has its code made for it when its
# layout is.


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
