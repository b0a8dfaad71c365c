"""A DBC file of a system's own channels, so that other tools can show them.

There is one message per channel and node, with the identifier of its class. What a DBC file cannot say is said in
comments and attributes:

* The priority of soft events varies, so tools must compare identifiers under `GenusIdMask`.
* The place of a value depends on which attributes are present. The signals describe events that have all attributes of
  their type, and those that the channel carries; the header's presence bits are the multiplexer, so that tools show no
  wrong values for other events.
* Values after the first one without a fixed size, and events in several frames, have no signals.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from genus.can._plan.foreign import PlanTable
from genus.can._plan.system import ChannelSpec, System
from genus.can._plan.system_file import EventTypes
from genus.can._wire.frame import ID_MASK, PRIORITY_SHIFT, Priority
from genus.can._wire.payload import PayloadCodec, PayloadField
from genus.model import Event, attributes
from genus.model.types import Attribute, ChoiceType, DurationType, TimeType

_EXTENDED = 1 << 31
_SIZES = {"B": 8, "b": 8, "H": 16, "h": 16, "I": 32, "i": 32, "f": 32, "q": 64, "d": 64}
_SOFT_MASK = (1 << PRIORITY_SHIFT) - 1
_FORMATS = (
    *("StandardCAN", "ExtendedCAN", "reserved", "J1939PG"),
    *["reserved"] * 10,
    "StandardCAN_FD",
    "ExtendedCAN_FD",
)

_HEAD = """VERSION ""

NS_ :

BS_:

BU_: {nodes}
"""

_DEFINITIONS = """
BA_DEF_ "BusType" STRING ;
BA_DEF_ BO_ "GenMsgCycleTime" INT 0 3600000;
BA_DEF_ BO_ "VFrameFormat" ENUM {formats};
BA_DEF_ BO_ "GenusClass" ENUM "hard","soft","none";
BA_DEF_ BO_ "GenusIdMask" HEX 0 536870911;
BA_DEF_DEF_ "BusType" "CAN";
BA_DEF_DEF_ "GenMsgCycleTime" 0;
BA_DEF_DEF_ "VFrameFormat" "ExtendedCAN";
BA_DEF_DEF_ "GenusClass" "none";
BA_DEF_DEF_ "GenusIdMask" 536870911;
"""


class _Signal(NamedTuple):
    name: str
    start: int
    bits: int
    code: str
    unit: str
    labels: Sequence[str]


class _Form(NamedTuple):
    """The form of events that have all attributes: the header's presence bits, and the signals behind it."""

    presence: int
    presence_bits: int
    tag_bits: int
    signals: tuple[_Signal, ...]
    left_out: tuple[str, ...]


class _Message(NamedTuple):
    name: str
    channel: ChannelSpec
    form: _Form | None

    @property
    def id(self) -> int:
        """The identifier of its frames, with the bits of the tagged attributes."""
        return self.channel.id | (0 if self.form is None else self.form.tag_bits)


def format_dbc(system: System) -> str:
    """Return the text of a DBC file with the channels of a system, one message per channel.

    Messages have signals where the system names a module of event types, and events fit one frame. See
    [foreign frames](../can-databases.md#a-dbc-file-of-your-own-channels) for what the file can say and what it cannot.

    >>> from genus.can import parse_system
    >>> text = format_dbc(parse_system('''
    ... [bus]
    ... bitrate = 500_000
    ... [[channel]]
    ... name = "occupancy"
    ... node = "loop-1"
    ... class = "none"
    ... period = "10ms"
    ... size = 8
    ... '''))
    >>> [line for line in text.splitlines() if line.startswith("BO_ ")]
    ['BO_ 2680176768 occupancy: 8 loop_1']
    """
    types = EventTypes.load(system.types, Path(system.source).parent, PlanTable(system.source, {}))
    nodes = _names(system.nodes)
    names = _names(channel.name for channel in system.channels)
    messages = [
        _Message(names[channel.name], channel, _form_of(channel, types.codec(channel.event)))
        for channel in system.channels
    ]
    parts = [_HEAD.format(nodes=" ".join(nodes.values()))]
    parts += ["\n".join(_message_lines(each, nodes[each.channel.node])) + "\n" for each in messages]
    comments = [line for each in messages for line in _comments(each)]
    formats = ",".join(f'"{name}"' for name in _FORMATS)
    values = ['BA_ "BusType" "CAN FD";'] if system.bus.fd else []
    values += [line for each in messages for line in _attribute_lines(each, system)]
    tables = [line for each in messages for line in _tables(each)]
    return "\n".join([*parts, *comments, _DEFINITIONS.format(formats=formats), *values, "", *tables, ""])


def _names(wanted: Iterable[str]) -> dict[str, str]:
    """Names that a DBC file may have, for any texts."""
    given: dict[str, str] = {}
    for text in wanted:
        usable = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in text)
        name = usable if usable[:1].isalpha() else f"x{usable}"
        number, free = 1, name
        while free in given.values():
            number += 1
            free = f"{name}_{number}"
        given[text] = free
    return given


# -- forms -------------------------------------------------------------------------------------------------------------


def _form_of(channel: ChannelSpec, codec: PayloadCodec | None) -> _Form | None:
    """Return the form of a channel's events; None if their type is not known, or they come in several frames."""
    if codec is None or not channel.raw:
        return None
    context = {attribute.name for attribute in attributes(Event)} - set(channel.carries)
    present = [each for each in codec.fields if each.declared and (each.required or each.name not in context)]
    header = 1 + max((each.byte or 0 for each in present), default=0)
    known = {attribute.name: attribute for attribute in attributes(codec.event_type)}
    signals, at = [], header
    fixed = 0
    for field in present:
        bits = _SIZES.get(field.template.format)
        if bits is None:
            break
        signals.append(_signal(field, known[field.name], 8 * at, bits))
        at, fixed = at + bits // 8, fixed + 1
    presence, width = _presence(present, header)
    tag_bits = sum(each.mask for each in present if each.byte is None)
    return _Form(presence, width, tag_bits, tuple(signals), tuple(each.name for each in present[fixed:]))


def _presence(present: Sequence[PayloadField], header: int) -> tuple[int, int]:
    """Return the value and the width of the presence bits: all of the header but the sequence number."""
    header_bytes = [0] * header
    for field in present:
        if field.byte is not None:
            header_bytes[field.byte] |= field.mask
    for number in range(header - 1):
        header_bytes[number] |= 0x10 if number == 0 else 0x80
    return int.from_bytes(bytes(header_bytes), "big"), 8 * header - 3


def _signal(field: PayloadField, attribute: Attribute, offset: int, bits: int) -> _Signal:
    unit = "us" if isinstance(attribute.type, TimeType | DurationType) else attribute.unit or ""
    labels = tuple(map(str, attribute.type.values)) if isinstance(attribute.type, ChoiceType) else ()
    return _Signal(field.name, offset + 7, bits, field.template.format, unit, labels)


# -- text --------------------------------------------------------------------------------------------------------------


def _message_lines(message: _Message, node: str) -> Iterator[str]:
    channel, form = message.channel, message.form
    yield f"BO_ {message.id | _EXTENDED} {message.name}: {channel.sizes[0]} {node}"
    if form is None:
        return
    yield ' SG_ sequence_number_ : 7|3@0+ (1,0) [0|7] "" Vector__XXX'
    yield f' SG_ presence_ M : 4|{form.presence_bits}@0+ (1,0) [0|0] "" Vector__XXX'
    for signal in form.signals:
        sign = "+" if signal.code.isupper() else "-"
        place = f"m{form.presence} : {signal.start}|{signal.bits}@0{sign}"
        yield f' SG_ {signal.name} {place} (1,0) [0|0] "{_quoted(signal.unit)}" Vector__XXX'


def _comments(message: _Message) -> Iterator[str]:
    channel, form = message.channel, message.form
    yield f'CM_ BO_ {message.id | _EXTENDED} "{_quoted(" ".join(_remarks(channel, form)))}";'


def _remarks(channel: ChannelSpec, form: _Form | None) -> Iterator[str]:
    yield f"Channel {channel.name} of {channel.node}, {channel.qos_class}: events {channel.event}."
    if channel.qos_class == "soft":
        first, last = Priority.SOFT_FIRST, Priority.SOFT_LAST
        yield f"The priority, bits 28 to 21 of the identifier, varies from {first} to {last}; compare the others."
    if channel.tagged:
        yield f"The lowest {channel.tagged} bits of the identifier say which tagged attributes are present."
    if not channel.raw:
        yield f"An event takes {channel.frames} frames, which a DBC file cannot describe."
    elif form is None:
        yield "The event type is not known to the plan, so there are no signals."
    elif form.left_out:
        yield f"Without a fixed place, and so without signals: {', '.join(form.left_out)}."


def _attribute_lines(message: _Message, system: System) -> Iterator[str]:
    channel, identifier = message.channel, message.id | _EXTENDED
    if milliseconds := round(channel.period_ns / 1e6):
        yield f'BA_ "GenMsgCycleTime" BO_ {identifier} {milliseconds};'
    yield f'BA_ "VFrameFormat" BO_ {identifier} {_FORMATS.index("ExtendedCAN_FD" if system.bus.fd else "ExtendedCAN")};'
    yield f'BA_ "GenusClass" BO_ {identifier} {("hard", "soft", "none").index(channel.qos_class)};'
    mask = (_SOFT_MASK if channel.qos_class == "soft" else ID_MASK) & ~((1 << channel.tagged) - 1)
    yield f'BA_ "GenusIdMask" BO_ {identifier} {mask};'


def _tables(message: _Message) -> Iterator[str]:
    identifier = message.id | _EXTENDED
    for signal in () if message.form is None else message.form.signals:
        if signal.labels:
            entries = " ".join(f'{number} "{_quoted(label)}"' for number, label in enumerate(signal.labels))
            yield f"VAL_ {identifier} {signal.name} {entries} ;"
    for signal in () if message.form is None else message.form.signals:
        if signal.code in "fd":
            yield f"SIG_VALTYPE_ {identifier} {signal.name} : {1 if signal.code == 'f' else 2};"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
