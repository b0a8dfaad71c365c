"""Classes that a device learns while it runs, and functions that read what is known of any class."""

from genus.devices._codes import above_variable, is_below
from genus.devices._declarations import comment
from genus.devices._layout import DeviceFamily
from genus.devices._program import Program
from genus.model import Event, name_of


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
