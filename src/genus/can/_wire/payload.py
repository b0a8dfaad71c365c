"""The payload of an event: a header that says which attributes are present, then the values, in the vector's order.

The type of an event follows from its event tag, so a payload names nothing. Its header byte has the event's sequence
number modulo 8 in bits 7 to 5. Bit 4 says that a byte of presence bits follows, and bits 3 to 0 are the first four
presence bits; each further byte has in bit 7 whether another follows, and seven presence bits. Presence bits belong to
the attributes of the family's vector, in its order, without those that the type requires and without the tagged ones,
whose presence bits are in the event tag. Header bytes of zeros at the end are left out.

Every attribute of the vector has a bit, including those that the type does not have: so no bit changes its position
when a class gains or drops an attribute, and a reader can pass over values of attributes that its class does not have.
A value that the class cannot read leaves the attribute absent, and is kept with the event for recordings and networks.
Attributes that are new to the vector come last, so that readers with an older vector ignore them.

The functions that write and read payloads are generated for each class. Required values of fixed size that follow each
other are packed together; every other value has an `if` of its own. In the generated code `e` is the event, `bits` the
presence bits of the event tag, `b0`, `b1`... the bytes of the header, `at` the offset in the payload, and `a` with a
number the value of an attribute.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, NoReturn, Self, TypeAlias

import msgspec

from genus.bus.internal import Rejected
from genus.can._wire.values import BYTE, COMMON_NAMES, AttributeUse, ValueTemplate, template_for
from genus.errors import EventError, SubscriptionError
from genus.model import Event, attributes, check, name_of
from genus.model.internal import create_event, invalid_finders, keep_unread, type_text
from genus.model.types import Attribute, ChoiceType, Vector
from genus.targets.python import define

FIRST_BITS, MORE_BITS = 4, 7
"""The number of presence bits in the header byte and in each byte after it."""

_MAX_NESTED = 16
"""The most bytes of a header after the first that are read by nested blocks."""

Encode: TypeAlias = Callable[[Event, int], tuple[int, bytes]]
Decode: TypeAlias = Callable[[int, bytes], Event | Rejected]


class PayloadCodec(msgspec.Struct, frozen=True):
    """Encodes the events of one class to payloads, and decodes them; made by `PayloadCodec.of`.

    >>> from genus import Catalog, Event, Maybe
    >>> from genus.model import UInt8
    >>> class Loop(Event):
    ...     lane: UInt8
    ...     speed: Maybe[UInt8] = None
    >>> catalog = Catalog()
    >>> added = catalog.register(Loop)
    >>> codec = PayloadCodec.of(Loop, catalog.vector(Loop))
    >>> bits, payload = codec.encode(Loop(lane=2, speed=80), 5)
    >>> payload.hex(" ")
    'b0 20 02 50'
    >>> codec.decode(bits, payload), codec.sequence_of(payload)
    (Loop(lane=2, speed=80), 5)
    >>> codec.decode(0, payload[:-1])
    Rejected(reason='Loop is cut short')
    """

    event_type: type[Event]
    fields: "tuple[PayloadField, ...]"
    encode: Encode
    """A function of an event and its sequence number: the presence bits for the event tag, and the payload.

    Raises EventError, which names the value that cannot be encoded.
    """
    decode: Decode
    """A function of the presence bits of an event tag and a payload: the event, or `Rejected` with the reason.

    Never raises. Higher bits of the event tag, and bytes after the last value, are ignored.
    """

    @classmethod
    def of(cls, event_type: type[Event], vector: Vector, tagged: Sequence[str] = ()) -> Self:
        """Return the codec of a class over the vector of its family in a catalog.

        `tagged` are the attributes whose presence bits are in the event tag, the first in the highest bit.
        SubscriptionError if the vector lacks one of them, or an attribute of the class, or has it with another type.
        """
        fields = tuple(fields_of(event_type, vector, tagged))
        return cls(event_type, fields, _generate_encoder(event_type, fields), _generate_decoder(event_type, fields))

    @property
    def max_size(self) -> int | None:
        """The most bytes of a payload; None if a text, bytes or an opaque value is not bounded."""
        return self.max_size_with(field.name for field in self.fields)

    @property
    def min_size(self) -> int:
        """The fewest bytes of a payload."""
        return 1 + sum(field.template.min_size for field in self.fields if field.required)

    def max_size_with(self, names: Iterable[str]) -> int | None:
        """Return the most bytes of a payload that has, of the optional attributes, only these; None if not bounded."""
        among = frozenset(names)
        fields = [field for field in self.fields if field.required or (field.declared and field.name in among)]
        sizes = [field.template.max_size for field in fields]
        return None if None in sizes else _header_size(fields) + sum(size for size in sizes if size is not None)

    def max_size_carrying(self, context: Iterable[str] = ()) -> int | None:
        """Return the most bytes of an event with all attributes of its own, and of those of `Event` only these.

        Every event may have a `place` of any length, but few types use it: so a publisher announces which attributes of
        `Event` its events carry.
        """
        left_out = {attribute.name for attribute in attributes(Event)} - set(context)
        return self.max_size_with(field.name for field in self.fields if field.name not in left_out)

    def without(self, name: str) -> Self:
        """Return the codec of the same class in a family without one of its optional attributes; to compare sizes with.

        Presence bits of attributes after it move up, so events can be shorter though their class lacks the attribute.
        """
        kept = [field for field in self.fields if field.name != name]
        numbers = iter(range(len(kept)))
        fields = (
            field if field.byte is None else msgspec.structs.replace(field, byte=_presence_bit(next(numbers))[0])
            for field in kept
        )
        return msgspec.structs.replace(self, fields=tuple(fields))

    @staticmethod
    def sequence_of(payload: bytes) -> int:
        """Return the sequence number, 0 to 7, in a payload; 0 for an empty one."""
        return payload[0] >> 5 if payload else 0


# -- fields ------------------------------------------------------------------------------------------------------------


class PayloadField(msgspec.Struct, frozen=True):
    name: str
    """The name that the class has for it, which may be a former one; that of the vector if the class has none."""
    key: str
    template: ValueTemplate
    declared: bool
    """Whether the class has the attribute; if not, its values are only kept for others."""
    required: bool
    byte: int | None = None
    """The header byte with its presence bit; None if that is in the event tag, or none is needed."""
    mask: int = 0
    """The presence bit; 0 for a required attribute that is not tagged."""

    @property
    def local(self) -> str:
        return f"a{self.key}"

    @property
    def bits(self) -> str:
        return "bits" if self.byte is None else f"b{self.byte}"


def fields_of(cls: type[Event], vector: Vector, tagged: Sequence[str]) -> Iterator[PayloadField]:
    """Yield the fields of a class in the order of a vector; SubscriptionError if the vector does not fit the class."""
    for attribute in attributes(cls):
        _check_attribute(cls, attribute, vector)
    own = vector.pair(attributes(cls))
    annotations = {field.name: field.type for field in msgspec.structs.fields(cls)}
    tag_bits = {vector.find(name).name: 1 << bit for bit, name in enumerate(reversed(tagged))}
    numbers = iter(range(len(vector)))
    for index, agreed in enumerate(vector):
        mine, key = own.get(agreed.name), str(index)
        name = mine.name if mine else agreed.name
        use = AttributeUse(agreed.type, mine.type if mine else None, annotations.get(name, Any), key, agreed.unit)
        required = mine is not None and not mine.optional
        if required or agreed.name in tag_bits:
            byte, mask = None, tag_bits.get(agreed.name, 0)
        else:
            byte, mask = _presence_bit(next(numbers))
        yield PayloadField(name, key, template_for(use), mine is not None, required, byte, mask)


def _header_size(fields: Iterable[PayloadField]) -> int:
    return 1 + max((field.byte or 0 for field in fields), default=0)


def _presence_bit(number: int) -> tuple[int, int]:
    if number < FIRST_BITS:
        return 0, 8 >> number
    byte, bit = divmod(number - FIRST_BITS, MORE_BITS)
    return byte + 1, 64 >> bit


def _check_attribute(cls: type[Event], attribute: Attribute, vector: Vector) -> None:
    """Raise SubscriptionError if the vector lacks an attribute of a class, or has it with another type."""
    agreed = (vector.match(attribute) or vector.find(attribute.name)).type
    if isinstance(agreed, ChoiceType) and isinstance(attribute.type, ChoiceType):
        same = set(attribute.type.values) <= set(agreed.values)
    else:
        same = agreed == attribute.type
    if not same:
        raise SubscriptionError(
            f"{name_of(cls)}.{attribute.name} is {type_text(attribute.type)}, but {type_text(agreed)} in the vector of "
            f"{vector.scope}: ({vector})"
        )


def _group_packed(fields: Iterable[PayloadField]) -> Iterator[list[PayloadField]]:
    group: list[PayloadField] = []
    for field in fields:
        if field.required and field.template.format:
            group.append(field)
            continue
        if group:
            yield group
        group = []
        yield [field]
    if group:
        yield group


def _struct(group: Collection[PayloadField]) -> Struct:
    return Struct(">" + "".join(field.template.format for field in group))


def _constants(fields: Iterable[PayloadField]) -> dict[str, object]:
    names = dict(COMMON_NAMES)
    for field in fields:
        names |= field.template.names
    return names


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


# -- encoding ----------------------------------------------------------------------------------------------------------


def _generate_encoder(cls: type[Event], fields: Iterable[PayloadField]) -> Encode:
    own = [field for field in fields if field.declared]
    last = _header_size(own) - 1
    names = _constants(own) | {"BYTE": BYTE, "cls": cls, "fail": lambda e, why: _raise_event_error(cls, own, e, why)}
    names["find_invalid"] = invalid_finders[cls]
    body = [f"b{byte} = 0" for byte in range(1, last + 1)]
    for group in _group_packed(own):
        names[f"pack{group[0].key}_"] = _struct(group).pack
        body += _write_values(group)
    always = sum(field.mask for field in own if field.required)
    lines = [
        "def encode(e, sequence):",
        "    if e.__class__ is not cls or find_invalid(e) is not None: fail(e, None)",
        f"    b0, bits, body = (sequence & 7) << 5, {always}, b''",
        "    try:",
        *_indent(_indent(body)),
        "    except Exception as problem: fail(e, problem)",
        *_indent(_write_header(last)),
    ]
    encode: Encode = define("\n".join(lines), "encode", names)
    return encode


def _write_values(group: Sequence[PayloadField]) -> list[str]:
    first = group[0]
    loads = [f"{field.local} = e.{field.name}" for field in group]
    values = ", ".join(_expression(field) for field in group)
    write = f"body += pack{first.key}_({values})" if first.template.format else f"body += {values}"
    if first.required:
        return [*loads, write]
    return [*loads, f"if {first.local} is not None:", *_indent([f"{first.bits} |= {first.mask}", write])]


def _expression(field: PayloadField) -> str:
    return field.template.write.format(v=field.local)


def _write_header(last: int) -> list[str]:
    lines = []
    for byte in range(last, 0, -1):
        between = "".join(f"b{number} | 128, " for number in range(1, byte))
        lines.append(f"if b{byte}: return bits, bytes((b0 | 16, {between}b{byte})) + body")
    return [*lines, "return bits, BYTE[b0] + body"]


def _raise_event_error(
    cls: type[Event], fields: Iterable[PayloadField], event: Event, problem: Exception | None
) -> NoReturn:
    """Raise the EventError that names the value of an event that cannot be encoded."""
    if type(event) is not cls:
        raise EventError(f"{event!r} is no {name_of(cls)}; use the codec of its own class")
    check(event)
    for field in fields:
        value = getattr(event, field.name)
        if value is None and not field.required:
            continue
        try:
            _single_encoder(field)(value)
        except Exception as why:
            text = repr(value)
            shown = text if len(text) <= 80 else f"{text[:77]}..."
            raise EventError(f"{name_of(cls)}.{field.name} is {shown}, which cannot be encoded: {why}") from None
    raise EventError(f"{event!r} cannot be encoded: {problem}") from problem


def _single_encoder(field: PayloadField) -> Callable[[object], object]:
    packed = f"pack({_expression(field)})" if field.template.format else _expression(field)
    names = _constants([field]) | {"pack": _struct([field]).pack}
    write: Callable[[object], object] = define(f"def write({field.local}): return {packed}", "write", names)
    return write


# -- decoding ----------------------------------------------------------------------------------------------------------


def _generate_decoder(cls: type[Event], fields: Sequence[PayloadField]) -> Decode:
    label = name_of(cls)
    names = _constants(fields) | {"cls": cls, "create": create_event, "StructError": StructError}
    names["keep_unread"] = keep_unread
    names |= {f"no{field.key}": Rejected(f"{label}.{field.name} is invalid") for field in fields}
    names |= {"short": Rejected(f"{label} is cut short"), "refusal": lambda why: _refusal(label, why)}
    body = _read_header(_header_size(fields) - 1)
    for group in _group_packed(fields):
        names[f"unpack{group[0].key}_"] = _struct(group).unpack_from
        body += _read_values(group)
    values = ", ".join(f"{field.name}={field.local}" for field in fields if field.declared)
    lines = [
        "def decode(bits, payload):",
        "    size, kept = len(payload), None",
        "    try:",
        *_indent(_indent(body)),
        "    except (IndexError, StructError): return short",
        "    if at > size: return short",
        f"    try: e = create(cls, {values})",
        "    except Exception as problem: return refusal(problem)",
        "    if kept is not None: keep_unread(e, kept)",
        "    return e",
    ]
    decode: Decode = define("\n".join(lines), "decode", names)
    return decode


def _refusal(label: str, problem: Exception) -> Rejected:
    """The class's __post_init__ failed; its message is left out, as it may quote values and reasons are counted."""
    return Rejected(f"{label} rejects it: {type(problem).__name__}")


def _read_header(last: int) -> list[str]:
    """Statements that load the known presence bits and skip further bytes."""
    cleared = [f"b{byte} = 0" for byte in range(1, last + 1)]
    rest = ["while payload[at] & 128: at += 1", "at += 1"]
    body = _nested_header(last, rest) if last <= _MAX_NESTED else _flat_header(last, rest)
    return ["b0 = payload[0]", "at = 1", *cleared, *body]


def _nested_header(last: int, rest: list[str]) -> list[str]:
    """Return the quickest form for short headers: nothing more is tested after the last byte."""
    lines = rest
    for byte in range(last, 0, -1):
        lines = [f"b{byte} = payload[{byte}]", f"at = {byte + 1}", f"if b{byte} & 128:", *_indent(lines)]
    return ["if b0 & 16:", *_indent(lines)]


def _flat_header(last: int, rest: list[str]) -> list[str]:
    """Return the same for families with hundreds of attributes, as Python has a limit for nested blocks."""
    lines, follows = [], "b0 & 16"
    for byte in range(1, last + 1):
        lines += [f"if {follows}:", *_indent([f"b{byte} = payload[{byte}]", f"at = {byte + 1}"])]
        follows = f"b{byte} & 128"
    return [*lines, f"if {follows}:", *_indent(rest)]


def _read_values(group: Sequence[PayloadField]) -> list[str]:
    first = group[0]
    lines = _read_fixed(group) if first.template.format else _read_counted(first)
    for field in group:
        filled = {"v": field.local, "no": f"no{field.key}", "name": repr(field.name)}
        lines += [line.format(**filled) for line in field.template.read]
    if first.required:
        return [*(f"if not bits & {field.mask}: return no{field.key}" for field in group if field.mask), *lines]
    lines = [f"if {first.bits} & {first.mask}:", *_indent(lines)]
    return [*lines, f"else: {first.local} = None"] if first.declared else lines


def _read_fixed(group: Sequence[PayloadField]) -> list[str]:
    size = _struct(group).size
    if [field.template.format for field in group] == ["B"]:
        return [f"{group[0].local} = payload[at]", "at += 1"]
    targets = "".join(f"{field.local}, " for field in group)
    return [f"{targets}= unpack{group[0].key}_(payload, at)", f"at += {size}"]


def _read_counted(field: PayloadField) -> list[str]:
    lines = ["n = payload[at]", "at += 1", "if n == 255:", "    n = payload[at] << 8 | payload[at + 1]", "    at += 2"]
    if not field.template.contents:
        return [*lines, f"{field.local} = n"]
    return [*lines, "end = at + n", "if end > size: return short", f"{field.local} = payload[at:end]", "at = end"]
