"""Types by their codes, without division: acceptance filters, media that carry codes, and types learnt at run time."""

from genus.codes import Divisor, code_size, encode_code
from genus.devices._declarations import comment, format_rows
from genus.devices._program import DeviceFamily, Handler, Program
from genus.errors import DeviceError
from genus.model import Event, name_of


def code_types(program: Program) -> dict[str, int]:
    """Return the types whose codes are tested: those of subscriptions that are not exact, and roots of families."""
    found: dict[str, int] = {}
    for handler in program.handlers:
        if not handler.filter.subscription.exact:
            found |= handler.codes
    if program.late:
        found |= {family.name: family.code for family in program.received_families}
    return found


def code_width(program: Program) -> int:
    """Return the bits of the word for the codes of subscribed types: 64 at most, else DeviceError.

    If it can, it also holds the codes of all types of the device; longer ones are tested by bytes.
    """
    subscribed = max((code.bit_length() for code in code_types(program).values()), default=8)
    if subscribed > 64:
        raise DeviceError(
            f"the code of a subscribed type has {subscribed} bits, and devices divide by 64 at most; subscribe to "
            "types of smaller hierarchies"
        )
    bits = max((subscribed, *(each.code.bit_length() for each in program.classes)))
    most_even = max((Divisor.of(code, 64).low_bits for code in code_types(program).values()), default=0)
    return next((width for width in (8, 16, 32) if width >= bits and (width != 16 or most_even <= 255)), 64)


def write_divisors(program: Program) -> str:
    """Return the codes to test against, as a table; nothing where they are constants of the code."""
    width, types = code_width(program), code_types(program)
    if not types or _is_in_line(program):
        return ""
    rows = [(_divisor_row(code, width), name) for name, code in types.items()]
    table = format_rows(
        f"static const genus_divisor{width} divisors[{len(rows)}]",
        "Codes of types, to test without division whether another is below.",
        rows,
    )
    lines = [
        "/* Which of these types a code is that of, or of a type below it. */",
        f"static void find_above(const uint8_t *code, uint16_t size, bool is_above[{len(rows)}])",
        "{",
        f"    for (uint8_t i = 0U; i < {len(rows)}U; i++) {{",
        f"        is_above[i] = genus_code_below{width}(code, size, &divisors[i]);",
        "    }",
        "}",
    ]
    return "\n".join([table, "", *lines])


_MEMBERS = {8: ("code", "low_bits", "inverse", "limit"), 16: ("low_bits", "inverse", "limit", "code")}
"""The order of a divisor's members by its width, where it is not that of the widest."""


def _divisor_row(code: int, width: int) -> str:
    made = Divisor.of(code, width)
    suffix = {8: "U", 16: "U", 32: "UL", 64: "ULL"}[width]
    values = {"code": code, "low_bits": made.low_bits, "inverse": made.inverse, "limit": made.limit}
    order = _MEMBERS.get(width, ("inverse", "limit", "code", "low_bits"))
    return f"{{{', '.join(f'{values[name]}{suffix}' for name in order)}}}"


def _is_in_line(program: Program) -> bool:
    """Return whether codes are tested by constants in the code: quicker than those of a table, in more flash."""
    return program.straight and code_width(program) <= 16


def above_variable(program: Program) -> list[str]:
    """Return the variable that `find_above` fills, where codes are in a table."""
    types = code_types(program)
    return [] if not types or _is_in_line(program) else [f"    bool is_above[{len(types)}];"]


def is_below(program: Program, name: str) -> str:
    """A test whether the type of a code is a type of the device, or below it; from a table, after `find_above`."""
    width, types = code_width(program), code_types(program)
    if _is_in_line(program):
        made = Divisor.of(types[name], width)
        constants = (types[name], made.low_bits, made.inverse, made.limit)
        return f"genus_code_is{width}(code, size, {', '.join(f'{each}U' for each in constants)})"
    return f"is_above[{list(types).index(name)}]"


def write_code_wanted(program: Program) -> str:
    """Return the function that says which subscriptions want the type of a code."""
    size, above = program.wanted_bytes, above_variable(program)
    return "\n".join(
        [
            f"bool {program.name}_code_wanted(const uint8_t *code, uint16_t size, uint8_t wanted[{size}])",
            "{",
            "    bool is_wanted = false;",
            *above,
            "",
            *(["    find_above(code, size, is_above);"] if above else []),
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
    """Return a test whether a subscription wants the type of a code; an exact one wants the codes it knows."""
    if not handler.filter.subscription.exact:
        return " && ".join(is_below(program, name) for name in handler.codes)
    codes = [each.code for each in program.classes if any(each.name in t.types for t in handler.filter.tests.values())]
    tests = [_is_code(code) for code in codes]
    return None if not tests else tests[0] if len(tests) == 1 else f"({') || ('.join(tests)})"


def _is_code(code: int) -> str:
    wire = encode_code(code)
    bytes_ = " && ".join(f"(code[{index}] == 0x{byte:02X}U)" for index, byte in enumerate(wire))
    return f"(size >= {1 + code_size(code)}U) && {bytes_}"


def write_lookups(program: Program) -> str:
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
        "of_class->declared = NULL;",
        "of_class->in_ram = true;",
        "return;",
    ]
    return "\n".join(
        [
            "static void load_class(uint8_t type, genus_class *of_class)",
            "{",
            *_if_late(program, late),
            "    of_class->required = required[type];",
            "    of_class->declared = NULL; /* only to write */",
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


def late_table(program: Program) -> str:
    """Return the places for classes that are learnt."""
    return "\n".join(
        [
            comment("Classes that were registered after this was generated, as the broker described them."),
            "typedef struct {",
            "    uint16_t etag; /* 0 if the place is free */",
            "    uint8_t family;",
            "    uint8_t tag_bits;",
            f"    uint8_t required[{program.mask_bytes}];",
            f"    uint8_t wanted[{program.wanted_bytes}];",
            "} late_class;",
            "",
            f"#define FIRST_LATE {len(program.classes)}U /* the number of the first of them as a type */",
            f"static late_class late[{program.late}];",
        ]
    )


def late_look_up() -> list[str]:
    """Statements that look an event tag up among the classes that were learnt."""
    return [
        "    for (uint8_t i = 0U; i < (uint8_t)(sizeof late / sizeof late[0]); i++) {",
        "        if ((late[i].etag != 0U) && ((etag >> late[i].tag_bits) == (late[i].etag >> late[i].tag_bits))) {",
        "            return (uint8_t)(FIRST_LATE + i);",
        "        }",
        "    }",
    ]


def write_learn(program: Program) -> str:
    """Return the functions that keep a class by the broker's answer, and forget all."""
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
            *above_variable(program),
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
            "    find_above(&answer[2], code, is_above);",
            *_late_families(program, families),
            "    found.etag = etag;",
            f"    (void){program.name}_code_wanted(&answer[2], code, found.wanted);",
            *_copy_mask(),
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


def _copy_mask() -> list[str]:
    return [
        "    for (uint16_t i = 0U; (i < (uint16_t)sizeof found.required) && (i < count); i++) {",
        "        found.required[i] = answer[code + 4U + i];",
        "    }",
    ]


def _late_families(program: Program, families: list[DeviceFamily]) -> list[str]:
    """Statements that find the family of a late class by its code, or refuse it."""
    lines: list[str] = []
    for number, family in enumerate(families):
        if family.name == name_of(Event):
            continue  # every type is below it, but one that is not known may have a vector of its own
        lines += [
            f"    {'} else ' if lines else ''}if ({is_below(program, family.name)}) {{",
            f"        found.family = {number}U;",
            f"        found.tag_bits = {len(family.tagged)}U;",
        ]
    return [*lines, "    } else {", "        return false;", "    }"] if lines else ["    return false;"]
