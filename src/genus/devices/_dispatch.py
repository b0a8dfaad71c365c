"""From a payload to handlers: the class of an event tag, decoding, tests, calls.

Decoding without tables is straight code: functions that read payloads, one for all classes with the same attributes.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from genus.can.internal import PayloadField
from genus.devices._declarations import comment
from genus.devices._program import DeviceClass, DeviceFamily, Handler, Program
from genus.devices._runtime_types import late_look_up
from genus.model.types import (
    Attribute,
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
from genus.targets.internal import Condition, Member

_MAX_NESTED = 16
"""The most bytes of a header after the first that are read by nested blocks."""

Part = tuple[PayloadField, Attribute, Member | None]


def write_decoders(program: Program) -> Iterator[str]:
    """Yield the functions of all classes, and one per family that chooses among them."""
    for family in program.received_families:
        classes = [each for each in program.classes_of(family) if any(program.wanted(each))]
        alike = _with_equal_attributes(classes)
        for first, *_ in alike:
            yield _decoder(program, family, first)
        yield _choose(program, family, alike)


def _with_equal_attributes(classes: Sequence[DeviceClass]) -> list[list[DeviceClass]]:
    """Classes of a family that require the same attributes: their payloads are read by the same code."""
    found: dict[bytes, list[DeviceClass]] = {}
    for each in classes:
        found.setdefault(each.mask("required"), []).append(each)
    return list(found.values())


def _choose(program: Program, family: DeviceFamily, alike: Sequence[Sequence[DeviceClass]]) -> str:
    cases = [
        line
        for classes in alike
        for line in (
            *(f"    case {program.type_name(each)}:" for each in classes),
            f"        return read_type_{classes[0].label}(e, etag, payload, size);",
        )
    ]
    return "\n".join(
        [
            _signature(program, family, f"decode_{family.label}"),
            "{",
            "    switch (e->type) {",
            *cases,
            "    default:",
            "        return false;",
            "    }",
            "}",
        ]
    )


def _signature(program: Program, family: DeviceFamily, name: str) -> str:
    start = f"static bool {name}("
    return (
        f"{start}{program.name}_{family.label} *e, uint16_t etag, const uint8_t *payload,\n"
        f"{' ' * len(start)}uint16_t size)"
    )


def _decoder(program: Program, family: DeviceFamily, cls: DeviceClass) -> str:
    vector = list(family.layout.vector)
    parts: list[Part] = [
        (field, attribute, family.layout.members.get(attribute.name))
        for field, attribute in zip(cls.fields, vector, strict=True)
    ]
    last = max((field.byte or 0 for field in cls.fields), default=0)
    values = [line for group in _groups(parts) for line in _read_group(group)]
    used = {field.byte for field in cls.fields if not field.required}
    return "\n".join(
        [
            _signature(program, family, f"read_type_{cls.label}"),
            "{",
            "    const uint8_t *end = &payload[size];",
            "    const uint8_t *at = &payload[1];",
            *(f"    uint8_t b{number} = 0U;" for number in range(last + 1)),
            *(["    genus_text text;"] if any("&text" in line for line in values) else []),
            *(["    uint16_t count;"] if any("&count" in line for line in values) else []),
            "",
            *([] if any(field.mask and field.byte is None for field in cls.fields) else ["    (void)etag;"]),
            *_required_presence(family, parts),
            "    b0 = payload[0];",
            *([] if used & set(range(last + 1)) else ["    (void)b0;"]),
            *_header(last),
            *values,
            "    return true;" if any("at" in line for line in values) else "    return at != NULL;",
            "}",
        ]
    )


def _required_presence(family: DeviceFamily, parts: Sequence[Part]) -> Iterator[str]:
    """Yield the presence bits that all events of the class have: a choice may be newer than the firmware."""
    bits = sum(
        1 << member.number
        for field, attribute, member in parts
        if member is not None and field.required and not isinstance(attribute.type, ChoiceType)
    )
    for byte in range(family.layout.presence_bytes):
        yield f"    e->present[{byte}] = 0x{bits >> 8 * byte & 0xFF:02X}U;"


def _header(last: int) -> list[str]:
    """Statements that load the known presence bits and skip further bytes."""
    rest = ["at = genus_skip_header(at, end, GENUS_NEXT_FOLLOWS);", "if (at == NULL) {", "    return false;", "}"]
    return _indent(_nested_header(last, rest) if last <= _MAX_NESTED else _flat_header(last, rest))


def _nested_header(last: int, rest: list[str]) -> list[str]:
    """Return the quickest form for short headers: nothing more is tested after the last byte."""
    lines = rest
    for byte in range(last, 0, -1):
        lines = [*_next_byte(byte), f"if ((b{byte} & GENUS_NEXT_FOLLOWS) != 0U) {{", *_indent(lines), "}"]
    return ["if ((b0 & GENUS_FIRST_FOLLOWS) != 0U) {", *_indent(lines), "}"]


def _flat_header(last: int, rest: list[str]) -> list[str]:
    """Return the same for families with hundreds of attributes, as compilers have a limit for nested blocks."""
    lines, follows = [], "b0 & GENUS_FIRST_FOLLOWS"
    for byte in range(1, last + 1):
        lines += [f"if (({follows}) != 0U) {{", *_indent(_next_byte(byte)), "}"]
        follows = f"b{byte} & GENUS_NEXT_FOLLOWS"
    return [*lines, f"if (({follows}) != 0U) {{", *_indent(rest), "}"]


def _next_byte(byte: int) -> list[str]:
    return ["if (at == end) {", "    return false;", "}", f"b{byte} = *at;", "at++;"]


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield the attributes, grouped where several of fixed size are always there: their length is tested once."""
    for is_packed, found in groupby(parts, lambda part: part[0].required and _fixed_size(part) is not None):
        group = list(found)
        yield from [group] if is_packed else ([part] for part in group)


def _fixed_size(part: Part) -> int | None:
    """Return the bytes of a value that always has as many."""
    match part[1].type:
        case IntType(bits) | FloatType(bits):
            return bits // 8
        case BoolType():
            return 1
        case TextType() | BytesType() | OpaqueType():
            return None
        case ChoiceType(values):
            return 1 if len(values) <= 255 else None
    return 8


def _read_group(group: Sequence[Part]) -> list[str]:
    field = group[0][0]
    sizes = [_fixed_size(part) for part in group]
    total = sum(size for size in sizes if size is not None)
    lines = [f"if ((end - at) < {total}) {{", "    return false;", "}"] if sizes[0] is not None else []
    for part in group:
        lines += _read_value(part)
    if field.required:
        tagged = [f"if ((etag & 0x{f.mask:X}U) == 0U) {{ return false; }}" for f, *_ in group if f.mask]
        return _indent([*tagged, *lines])
    bits = "etag" if field.byte is None else f"b{field.byte}"
    is_set = isinstance(group[0][1].type, ChoiceType)
    present = [] if is_set else _set_present(group[0][2])
    return _indent([f"if (({bits} & 0x{field.mask:02X}U) != 0U) {{", *_indent([*lines, *present]), "}"])


def _set_present(member: Member | None) -> list[str]:
    if member is None:
        return []
    byte, bit = divmod(member.number, 8)
    return [f"e->present[{byte}] = (uint8_t)(e->present[{byte}] | 0x{1 << bit:02X}U);"]


def _read_value(part: Part) -> list[str]:
    """Statements that read one value, whose bytes are there if it has a fixed size."""
    _, attribute, member = part
    kept = f"e->{member.name}" if member is not None else None
    size = _fixed_size(part)
    if size is None:
        return _read_counted(part, kept)
    lines = _refusals(attribute)
    if isinstance(attribute.type, ChoiceType):
        lines += _keep_choice(part, "*at", "uint8_t")
    elif kept is not None:
        lines += _load(attribute, kept, size)
    return [*lines, f"at = &at[{size}];"]


def _keep_choice(part: Part, index: str, ctype: str) -> list[str]:
    """Statements that keep a choice; one that is newer than the firmware is absent."""
    _, attribute, member = part
    assert isinstance(attribute.type, ChoiceType)
    if member is None:
        return []
    lines = [f"e->{member.name} = ({ctype}){index};", *_set_present(member)]
    return [f"if ({index} < {len(attribute.type.values)}U) {{", *_indent(lines), "}"]


def _refusals(attribute: Attribute) -> list[str]:
    match attribute.type:
        case BoolType():
            test = "*at > 1U"
        case TimeType():
            test = "!genus_is_time(at)"
        case ChoiceType():
            test = "*at == 255U"
        case _:
            return []
    return [f"if ({test}) {{", "    return false;", "}"]


def _load(attribute: Attribute, target: str, size: int) -> list[str]:
    if size > 2:
        return [f"genus_copy_number(&{target}, at, {size}U);"]
    value = "*at" if size == 1 else "(uint16_t)(((uint16_t)at[0] << 8) | at[1])"
    if isinstance(attribute.type, BoolType):
        return [f"{target} = (*at != 0U);"]
    is_signed = isinstance(attribute.type, IntType) and attribute.type.signed
    return [f"{target} = (int{8 * size}_t){value};"] if is_signed else [f"{target} = {value};"]


def _read_counted(part: Part, kept: str | None) -> list[str]:
    _, attribute, _ = part
    failed = ["if (at == NULL) {", "    return false;", "}"]
    if isinstance(attribute.type, ChoiceType):
        return ["at = genus_read_count(at, end, &count);", *failed, *_keep_choice(part, "count", "uint16_t")]
    read = "genus_read_text" if isinstance(attribute.type, TextType) else "genus_read_bytes"
    target = kept if kept is not None and not isinstance(attribute.type, OpaqueType) else "text"
    return [f"at = {read}(at, end, &{target});", *failed]


UNKNOWN = "0xFFU"
"""The number of a type that is not known."""


def write_deliver(program: Program, family: DeviceFamily) -> str:
    """Return the function that tests an event of a family and calls handlers."""
    handlers = program.handlers_of(family)
    deliveries = [line for handler in handlers for line in _delivery(program, handler, family)]
    variables = sorted(set(re.findall(r"&(t\d+)\b", "\n".join(deliveries))))
    return "\n".join(
        [
            comment(f"Test an event of the family {family.name}, and call the handlers that want it."),
            f"static bool deliver_{family.label}(const {program.name}_{family.label} *e, const uint8_t *wanted)",
            "{",
            "    bool is_wanted = false;",
            *(f"    int64_t {name} = 0;" for name in variables),
            "",
            *deliveries,
            "    return is_wanted;",
            "}",
        ]
    )


def _delivery(program: Program, handler: Handler, family: DeviceFamily) -> list[str]:
    found = handler.test(family.name)
    assert found is not None
    byte, bit = divmod(handler.number, 8)
    tests = [f"((wanted[{byte}] & 0x{1 << bit:02X}U) != 0U)", *_split(found.condition)]
    return [
        f"    {comment(str(handler.filter.subscription), '    ')}",
        f"    if ({f'{chr(10)}        && '.join(tests)}) {{",
        f"        {program.handler_name(handler, family)}(e);",
        "        is_wanted = true;",
        "    }",
    ]


def _split(condition: Condition) -> list[str]:
    """Return the tests of a condition, one a line."""
    if condition.always:
        return []
    presence = Condition(condition.presence).code()
    return [*([presence] if condition.presence else []), *condition.tests]


def write_receive_family(program: Program, family: DeviceFamily) -> str:
    """Return the function that decodes an event of a family and delivers it."""
    label = family.label
    decode = (
        f"decode_{label}(&event, etag, payload, size)"
        if program.straight
        else f"genus_decode(&{label}_family, &of_class, etag, payload, size, &event, event.present)"
    )
    of_class = [] if program.straight else ["    genus_class of_class;"]
    load = [] if program.straight else ["    load_class(type, &of_class);"]
    checked = program.has_checks(family)
    return "\n".join(
        [
            f"static genus_status receive_{label}(uint8_t type, uint16_t etag, const uint8_t *payload, uint16_t size,",
            f"{' ' * (29 + len(label))}const uint8_t *wanted)",
            "{",
            f"    {program.name}_{label} event;",
            *of_class,
            "",
            *load,
            *_start_event(family),
            "    event.type = type;",
            f"    if (!{decode}) {{",
            "        return GENUS_MALFORMED;",
            "    }",
            *([f"    drop_choices_{label}(&event);"] if program.has_fewer_choices(family) else []),
            *(
                [f"    if (!keeps_bounds_{label}(&event)) {{", "        return GENUS_MALFORMED;", "    }"]
                if checked
                else []
            ),
            f"    return deliver_{label}(&event, wanted) ? GENUS_OK : GENUS_NOT_WANTED;",
            "}",
        ]
    )


def _start_event(family: DeviceFamily) -> Iterator[str]:
    """Statements that make all attributes zero, and texts empty: what an event does not carry stays so.

    Each by itself, as on an 8-bit processor memset takes longer.
    """
    for member in family.layout.held:
        match member.type:
            case TextType() | BytesType():
                yield f"    event.{member.name}.bytes = payload;"
                yield f"    event.{member.name}.size = 0U;"
            case BoolType():
                yield f"    event.{member.name} = false;"
            case IntType(signed=True) | TimeType() | DurationType():
                yield f"    event.{member.name} = 0;"
            case _:
                yield f"    event.{member.name} = 0U;"


def write_type_of(program: Program) -> str:
    """The number of the class with an event tag: comparisons, one switch for each number of tagged attributes."""
    widths = sorted({each.tag_bits for each in program.classes})
    lines = [line for width in widths for line in _type_switch(program, width)]
    return "\n".join(
        [
            comment("The type of an event tag, whatever its bits of tagged attributes are."),
            "static GENUS_BY_COMPARISON uint8_t type_of(uint16_t etag)",
            "{",
            *lines,
            *(late_look_up() if program.late else []),
            f"    return {UNKNOWN};",
            "}",
        ]
    )


def _type_switch(program: Program, width: int) -> list[str]:
    classes = [each for each in program.classes if each.tag_bits == width]
    shifted = f"(uint16_t)(etag >> {width}U)" if width else "etag"
    cases = [
        line
        for each in classes
        for line in (f"    case 0x{each.etag >> width:04X}U:", f"        return {program.type_name(each)};")
    ]
    return [f"    switch ({shifted}) {{", *cases, "    default:", "        break;", "    }"]


def write_receive(program: Program) -> str:
    """Return the function that programs call with a payload."""
    families = program.received_families
    return "\n".join(
        [
            f"genus_status {program.name}_receive(uint16_t etag, const uint8_t *payload, uint16_t size)",
            "{",
            "    const uint8_t type = type_of(etag);",
            f"    uint8_t wanted[{program.wanted_bytes}];",
            "",
            f"    if (type == {UNKNOWN}) {{",
            "        return GENUS_UNKNOWN_TYPE;",
            "    }",
            "    load_wanted(type, wanted);",
            f"    if ({_none_wanted(program.wanted_bytes)}) {{",
            "        return GENUS_NOT_WANTED;",
            "    }",
            "    if (size == 0U) {",
            "        return GENUS_MALFORMED; /* `payload` may be NULL */",
            "    }",
            *_family_switch(program, families),
            "}",
        ]
    )


def _none_wanted(size: int) -> str:
    return "wanted[0] == 0U" if size == 1 else " && ".join(f"(wanted[{byte}] == 0U)" for byte in range(size))


def _family_switch(program: Program, families: list[DeviceFamily]) -> list[str]:
    calls = [f"receive_{family.label}(type, etag, payload, size, wanted)" for family in families]
    if len(families) == 1:
        return [f"    return {calls[0]};"]
    lines = ["    switch (family_of(type)) {"]
    for number, call in enumerate(calls):
        lines += [f"    case {number}U:", f"        return {call};"]
    return [*lines, "    default:", "        return GENUS_NOT_WANTED;", "    }"]
