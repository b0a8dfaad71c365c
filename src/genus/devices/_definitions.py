"""The source that is generated for a device, from its parts."""

from collections.abc import Iterator

from genus.devices._codes import write_code_wanted, write_divisors, write_filters
from genus.devices._declarations import class_list, comment
from genus.devices._dispatch import write_deliver, write_receive, write_receive_family, write_type_of
from genus.devices._late import late_table, write_learn, write_lookups
from genus.devices._layout import DeviceClass, DeviceFamily
from genus.devices._program import Program
from genus.devices._straight import write_decoders
from genus.devices._tables import write_tables


def write_source(program: Program) -> str:
    """The source."""
    body = [
        *write_tables(program),
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


def _receiving(program: Program) -> Iterator[str]:
    if program.late:
        yield late_table(program)
    yield write_lookups(program)
    if program.straight:
        yield from write_decoders(program)
    for family in program.received_families:
        yield write_deliver(program, family)
        yield write_receive_family(program, family)
    yield write_type_of(program)
    yield write_receive(program)
    yield write_filters(program)
    yield write_divisors(program)
    yield write_code_wanted(program)
    if program.late:
        yield write_learn(program)


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
        if program.has_checks(family)
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
