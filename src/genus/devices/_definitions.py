"""The source that is generated for a device: tables, dispatch, codes and late classes."""

import re
from collections.abc import Iterable, Iterator

from genus.codes import Divisor, code_size, encode_code
from genus.devices._declarations import class_list, comment
from genus.devices._layout import DeviceClass, DeviceFamily
from genus.devices._program import Handler, Program
from genus.devices._straight import write_decoders
from genus.errors import DeviceError
from genus.model import (
    Attribute,
    BoolType,
    BytesType,
    ChoiceType,
    Event,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
    name_of,
)
from genus.targets.c._condition import Condition

UNKNOWN = "0xFFU"
"""The number of a type that is not known."""


def write_source(program: Program) -> str:
    """The source."""
    body = [
        *_tables(program),
        *_checks(program),
        *(_receiving(program) if program.handlers else ()),
        *(_encoder(program, family) for family in program.published_families),
    ]
    parts = [
        f"/* {program.banner} */",
        f'#include "{program.name}.h"\n#include "genus_code.h"',
        "\n".join(program.constants.definitions("\n".join(body))),
        *body,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# -- tables ------------------------------------------------------------------------------------------------------------


def _tables(program: Program) -> Iterator[str]:
    for family in program.families.values():
        if program.needs_table(family):
            yield _vector_table(program, family)
    if any(map(program.needs_table, program.families.values())):
        yield _mask_table("required", "What all events of each type carry.", program)
        yield _mask_table("declared", "What events of each type may carry.", program)
    if program.handlers:
        rows = [(_bytes(program.wanted(each)), each.name) for each in program.classes]
        yield _rows(
            f"static const uint8_t wanted_by[{len(rows)}][{program.wanted_bytes}]", "Who wants each type.", rows
        )


def _vector_table(program: Program, family: DeviceFamily) -> str:
    rows = [(_attribute_row(program, family, each), each.name) for each in family.layout.vector]
    label, vector = family.label, family.layout.vector
    table = _rows(
        f"static const genus_attribute {label}_attributes[{len(rows)}]", f"The vector of {family.name}.", rows
    )
    sizes = f"{len(vector)}U, {family.layout.presence_bytes}U"
    return f"{table}\nstatic const genus_family {label}_family = {{{label}_attributes, {sizes}}};"


def _attribute_row(program: Program, family: DeviceFamily, attribute: Attribute) -> str:
    member, tag_bit = family.layout.members.get(attribute.name), family.tag_bit(attribute.name)
    kind = _kind(attribute)
    kept = f"(uint8_t)({kind} | GENUS_KEPT)" if member else f"(uint8_t){kind}"
    is_held = member is not None and not isinstance(attribute.type, OpaqueType)
    place = f"(uint16_t)offsetof({program.name}_{family.label}, {member.name})" if member and is_held else "0U"
    choices = len(attribute.type.values) if isinstance(attribute.type, ChoiceType) else 0
    return f"{{{kept}, {'GENUS_UNTAGGED' if tag_bit is None else f'{tag_bit}U'}, {place}, {choices}U}}"


def _kind(attribute: Attribute) -> str:
    match attribute.type:
        case IntType(bits) | FloatType(bits):
            return f"{bits // 8}U"
        case BoolType():
            return "GENUS_BOOL"
        case TimeType():
            return "GENUS_TIME"
        case ChoiceType(values):
            return "GENUS_CHOICE8" if len(values) <= 255 else "GENUS_CHOICE16"
        case TextType():
            return "GENUS_TEXT"
        case BytesType():
            return "GENUS_BYTES"
        case OpaqueType():
            return "GENUS_OPAQUE"
    return "8U"


def _mask_table(of: str, text: str, program: Program) -> str:
    rows = [(_bytes(each.mask(of)), each.name) for each in program.classes]
    return _rows(f"static const uint8_t {of}[{len(rows)}][{program.mask_bytes}]", text, rows)


def _rows(declaration: str, text: str, rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"    {row}, {comment(name)}" for row, name in rows]
    return "\n".join([comment(text), f"{declaration} GENUS_ROM = {{", *lines, "};"])


def _bytes(contents: bytes) -> str:
    return f"{{{', '.join(f'0x{byte:02X}' for byte in contents)}}}"


# -- bounds ------------------------------------------------------------------------------------------------------------


def _checks(program: Program) -> Iterator[str]:
    """One function per family whose classes have bounds."""
    for family in program.families.values():
        checked = [each for each in program.classes_of(family) if each.checks]
        if checked:
            cases = [line for each in checked for line in _check_case(program, each)]
            yield "\n".join(
                [
                    comment(f"Whether an event keeps the bounds of its type: {class_list(checked)}."),
                    f"static bool keeps_bounds_{family.label}(const {program.name}_{family.label} *e)",
                    "{",
                    "    switch (e->type) {",
                    *cases,
                    "    default:",
                    "        return true;",
                    "    }",
                    "}",
                ]
            )


def _check_case(program: Program, cls: DeviceClass) -> list[str]:
    tests = "\n               && ".join(f"({check.code()})" for check in cls.checks)
    return [f"    case {program.type_name(cls)}:", f"        return {tests};"]


def has_checks(program: Program, family: DeviceFamily) -> bool:
    """Whether a class of a family has bounds to check."""
    return any(each.checks for each in program.classes_of(family))


# -- receiving ---------------------------------------------------------------------------------------------------------


def _receiving(program: Program) -> Iterator[str]:
    if program.late:
        yield _late_table(program)
    yield _lookups(program)
    if program.straight:
        yield from write_decoders(program)
    for family in program.received_families:
        yield _deliver(program, family)
        yield _receive_family(program, family)
    yield _type_of(program)
    yield _receive(program)
    yield _filters(program)
    yield _divisors(program)
    yield _code_wanted(program)
    if program.late:
        yield _learn(program)


def _deliver(program: Program, family: DeviceFamily) -> str:
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
    """The tests of a condition, one a line."""
    if condition.always:
        return []
    presence = Condition(condition.presence).code()
    return [*([presence] if condition.presence else []), *condition.tests]


def _receive_family(program: Program, family: DeviceFamily) -> str:
    label = family.label
    decode = (
        f"decode_{label}(&event, etag, payload, size)"
        if program.straight
        else f"genus_decode(&{label}_family, &of_class, etag, payload, size, &event, event.present)"
    )
    of_class = [] if program.straight else ["    genus_class of_class;"]
    load = [] if program.straight else ["    load_class(type, &of_class);"]
    bounds = f" || !keeps_bounds_{label}(&event)" if has_checks(program, family) else ""
    return "\n".join(
        [
            f"static genus_status receive_{label}(uint8_t type, uint16_t etag, const uint8_t *payload, uint16_t size,",
            f"{' ' * (29 + len(label))}const uint8_t *wanted)",
            "{",
            f"    {program.name}_{label} event;",
            *of_class,
            "",
            *load,
            "    event.type = type;",
            f"    if (!{decode}{bounds}) {{",
            "        return GENUS_MALFORMED;",
            "    }",
            f"    return deliver_{label}(&event, wanted) ? GENUS_OK : GENUS_NOT_WANTED;",
            "}",
        ]
    )


def _type_of(program: Program) -> str:
    """The number of the class with an event tag: comparisons, one switch for each number of tagged attributes."""
    widths = sorted({each.tag_bits for each in program.classes})
    lines = [line for width in widths for line in _type_switch(program, width)]
    return "\n".join(
        [
            comment("The type of an event tag, whatever its bits of tagged attributes are."),
            "static GENUS_BY_COMPARISON uint8_t type_of(uint16_t etag)",
            "{",
            *lines,
            *(_late_look_up() if program.late else []),
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


def _receive(program: Program) -> str:
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


# -- late classes ------------------------------------------------------------------------------------------------------


def _lookups(program: Program) -> str:
    """Functions that read what is known of a class, in flash or in RAM."""
    parts = [_load_wanted(program)]
    if not program.straight:
        parts.append(_load_class(program))
    if len(program.received_families) > 1:
        parts.append(_family_of(program))
    return "\n\n".join(parts)


def _if_late(program: Program, lines: list[str]) -> list[str]:
    if not program.late:
        return []
    return [f"    if (type >= {len(program.classes)}U) {{", *(f"        {line}" for line in lines), "    }"]


def _load_wanted(program: Program) -> str:
    late = f"(void)memcpy(wanted, late[type - {len(program.classes)}U].wanted, {program.wanted_bytes}U);"
    return "\n".join(
        [
            "static void load_wanted(uint8_t type, uint8_t *wanted)",
            "{",
            *_if_late(program, [late, "return;"]),
            f"    genus_rom_copy(wanted, wanted_by[type], {program.wanted_bytes}U);",
            "}",
        ]
    )


def _load_class(program: Program) -> str:
    first = len(program.classes)
    late = [
        f"of_class->required = late[type - {first}U].required;",
        f"of_class->declared = late[type - {first}U].declared;",
        "of_class->in_ram = true;",
        "return;",
    ]
    return "\n".join(
        [
            "static void load_class(uint8_t type, genus_class *of_class)",
            "{",
            *_if_late(program, late),
            "    of_class->required = required[type];",
            "    of_class->declared = declared[type];",
            "    of_class->in_ram = false;",
            "}",
        ]
    )


def _family_of(program: Program) -> str:
    numbers = {family.name: number for number, family in enumerate(program.received_families)}
    rows = ", ".join(f"{numbers.get(each.family, 255)}U" for each in program.classes)
    return "\n".join(
        [
            f"static const uint8_t families[{len(program.classes)}] GENUS_ROM = {{{rows}}};",
            "",
            "static uint8_t family_of(uint8_t type)",
            "{",
            *_if_late(program, [f"return late[type - {len(program.classes)}U].family;"]),
            "    return genus_rom_u8(&families[type]);",
            "}",
        ]
    )


def _late_table(program: Program) -> str:
    return "\n".join(
        [
            comment("Classes that were registered after this was generated, as the broker described them."),
            "typedef struct {",
            "    uint16_t etag; /* 0 if the place is free */",
            "    uint8_t family;",
            "    uint8_t tag_bits;",
            f"    uint8_t required[{program.mask_bytes}];",
            f"    uint8_t declared[{program.mask_bytes}];",
            f"    uint8_t wanted[{program.wanted_bytes}];",
            "} late_class;",
            "",
            f"#define FIRST_LATE {len(program.classes)}U /* the number of the first of them as a type */",
            f"static late_class late[{program.late}];",
        ]
    )


def _late_look_up() -> list[str]:
    return [
        "    for (uint8_t i = 0U; i < (uint8_t)(sizeof late / sizeof late[0]); i++) {",
        "        if ((late[i].etag != 0U) && ((etag >> late[i].tag_bits) == (late[i].etag >> late[i].tag_bits))) {",
        "            return (uint8_t)(FIRST_LATE + i);",
        "        }",
        "    }",
    ]


def _learn(program: Program) -> str:
    families = program.received_families
    place = [
        "    for (uint8_t i = 0U; i < (uint8_t)(sizeof late / sizeof late[0]); i++) {",
        "        if ((late[i].etag == etag) || ((place == NULL) && (late[i].etag == 0U))) {",
        "            place = &late[i];",
        "        }",
        "    }",
    ]
    return "\n".join(
        [
            f"bool {program.name}_learn(const uint8_t *answer, uint16_t size)",
            "{",
            "    late_class found;",
            "    late_class *place = NULL;",
            "    uint16_t code;",
            "    uint16_t count;",
            "    uint16_t etag;",
            "",
            "    (void)memset(&found, 0, sizeof found);",
            "    if (size < 2U) {",
            "        return false;",
            "    }",
            "    etag = (uint16_t)(((uint16_t)answer[0] << 8) | answer[1]);",
            "    code = genus_code_size(&answer[2], (uint16_t)(size - 2U));",
            "    if ((etag == 0U) || (code == 0U) || (size < (code + 4U)) || (type_of(etag) < FIRST_LATE)) {",
            "        return false;",
            "    }",
            "    count = (uint16_t)(((uint16_t)answer[code + 2U] << 8) | answer[code + 3U]);",
            "    count = (uint16_t)((count + 7U) / 8U);",
            "    if ((uint16_t)(size - code - 4U) < (uint32_t)count * 2U) {",
            "        return false;",
            "    }",
            *_late_families(program, families),
            "    found.etag = etag;",
            f"    (void){program.name}_code_wanted(&answer[2], code, found.wanted);",
            *_copy_masks(),
            *place,
            "    if (place == NULL) {",
            "        return false;",
            "    }",
            "    *place = found;",
            "    return true;",
            "}",
            "",
            f"void {program.name}_forget(void)",
            "{",
            "    (void)memset(late, 0, sizeof late);",
            "}",
        ]
    )


def _copy_masks() -> list[str]:
    return [
        "    for (uint16_t i = 0U; (i < (uint16_t)sizeof found.required) && (i < count); i++) {",
        "        found.required[i] = answer[code + 4U + i];",
        "        found.declared[i] = answer[code + 4U + count + i];",
        "    }",
    ]


def _late_families(program: Program, families: list[DeviceFamily]) -> list[str]:
    """Statements that find the family of a late class by its code, or refuse it."""
    lines: list[str] = []
    for number, family in enumerate(families):
        if family.name == name_of(Event):
            continue  # every type is below it, but one that is not known may have a vector of its own
        test = _is_below(program, family.name, "&answer[2]", "code")
        lines += [
            f"    {'} else ' if lines else ''}if ({test}) {{",
            f"        found.family = {number}U;",
            f"        found.tag_bits = {len(family.tagged)}U;",
        ]
    return [*lines, "    } else {", "        return false;", "    }"] if lines else ["    return false;"]


# -- filters and codes -------------------------------------------------------------------------------------------------


def _filters(program: Program) -> str:
    pairs = [f"    {{0x{value:08X}UL, 0x{mask:08X}UL}}," for value, mask in program.filters]
    size = max(1, len(pairs))
    return "\n".join(
        [
            f"const genus_filter {program.name}_filters[{size}] GENUS_ROM = {{",
            *(pairs or ["    {0UL, 0xFFFFFFFFUL},"]),
            "};",
        ]
    )


def code_types(program: Program) -> dict[str, int]:
    """The types whose codes are tested: those of subscriptions that are not exact, and roots of families."""
    found: dict[str, int] = {}
    for handler in program.handlers:
        if not handler.filter.subscription.exact:
            found |= handler.codes
    if program.late:
        found |= {family.name: family.code for family in program.received_families}
    return found


def code_width(program: Program) -> int:
    """The bits of the word for the codes of subscribed types: 64 at most, else DeviceError.

    If it can, it also holds the codes of all types of the device; longer ones are tested by bytes.
    """
    subscribed = max((code.bit_length() for code in code_types(program).values()), default=8)
    if subscribed > 64:
        raise DeviceError(
            f"the code of a subscribed type has {subscribed} bits, and devices divide by 64 at most; subscribe to "
            "types of smaller hierarchies"
        )
    bits = max((subscribed, *(each.code.bit_length() for each in program.classes)))
    return next((width for width in (8, 16, 32) if width >= bits), 64)


def _divisors(program: Program) -> str:
    width, types = code_width(program), code_types(program)
    if not types or _is_in_line(program):
        return ""
    rows = [(_divisor_row(code, width), name) for name, code in types.items()]
    return _rows(
        f"static const genus_divisor{width} divisors[{len(rows)}]",
        "Codes of types, to test without division whether another is below.",
        rows,
    )


def _divisor_row(code: int, width: int) -> str:
    made = Divisor.of(code, width)
    suffix = {8: "U", 16: "U", 32: "UL", 64: "ULL"}[width]
    values = {"code": code, "low_bits": made.low_bits, "inverse": made.inverse, "limit": made.limit}
    order = ("code", "low_bits", "inverse", "limit") if width == 8 else ("inverse", "limit", "code", "low_bits")
    return f"{{{', '.join(f'{values[name]}{suffix}' for name in order)}}}"


def _is_in_line(program: Program) -> bool:
    """Whether codes are tested by constants in the code: quicker than those of a table, in more flash."""
    return program.straight and code_width(program) <= 16


def _is_below(program: Program, name: str, code: str, size: str) -> str:
    width, types = code_width(program), code_types(program)
    if _is_in_line(program):
        made = Divisor.of(types[name], width)
        constants = (types[name], made.low_bits, made.inverse, made.limit)
        return f"genus_code_is{width}({code}, {size}, {', '.join(f'{each}U' for each in constants)})"
    return f"genus_code_below{width}({code}, {size}, &divisors[{list(types).index(name)}])"


def _code_wanted(program: Program) -> str:
    size = program.wanted_bytes
    return "\n".join(
        [
            f"bool {program.name}_code_wanted(const uint8_t *code, uint16_t size, uint8_t wanted[{size}])",
            "{",
            "    bool is_wanted = false;",
            "",
            f"    (void)memset(wanted, 0, {size}U);",
            *(line for handler in program.handlers for line in _code_test(program, handler)),
            "    return is_wanted;",
            "}",
        ]
    )


def _code_test(program: Program, handler: Handler) -> list[str]:
    byte, bit = divmod(handler.number, 8)
    test = _code_condition(program, handler)
    if test is None:
        return []
    return [
        f"    if ({test}) {{",
        f"        wanted[{byte}] = (uint8_t)(wanted[{byte}] | 0x{1 << bit:02X}U);",
        "        is_wanted = true;",
        "    }",
    ]


def _code_condition(program: Program, handler: Handler) -> str | None:
    """A test whether a subscription wants the type of a code; an exact one wants the codes it knows."""
    if not handler.filter.subscription.exact:
        return " && ".join(_is_below(program, name, "code", "size") for name in handler.codes)
    codes = [each.code for each in program.classes if any(each.name in t.types for t in handler.filter.tests.values())]
    tests = [_is_code(code) for code in codes]
    return None if not tests else tests[0] if len(tests) == 1 else f"({') || ('.join(tests)})"


def _is_code(code: int) -> str:
    wire = encode_code(code)
    bytes_ = " && ".join(f"(code[{index}] == 0x{byte:02X}U)" for index, byte in enumerate(wire))
    return f"(size >= {1 + code_size(code)}U) && {bytes_}"


# -- publishing --------------------------------------------------------------------------------------------------------


def _encoder(program: Program, family: DeviceFamily) -> str:
    name, label = program.name, family.label
    cases = [
        line
        for each in program.classes_of(family)
        if each.name in program.published
        for line in (
            f"    case {program.type_name(each)}:",
            f"        *etag = 0x{each.etag:04X}U;",
            "        break;",
        )
    ]
    bounds = (
        [f"    if (!keeps_bounds_{label}(event)) {{", "        return 0U;", "    }"]
        if has_checks(program, family)
        else []
    )
    return "\n".join(
        [
            f"uint16_t {name}_{label}_encode(const {name}_{label} *event, uint8_t sequence, uint8_t *payload,",
            f"{' ' * (len(name) + len(label) + 17)}uint16_t capacity, uint16_t *etag)",
            "{",
            "    genus_class of_class;",
            "",
            "    switch (event->type) {",
            *cases,
            "    default:",
            "        return 0U;",
            "    }",
            *bounds,
            "    of_class.required = required[event->type];",
            "    of_class.declared = declared[event->type];",
            "    of_class.in_ram = false;",
            f"    return genus_encode(&{label}_family, &of_class, event, event->present, sequence,",
            "                        payload, capacity, etag);",
            "}",
        ]
    )
