"""The source that is generated for a device, from its parts."""

from collections.abc import Iterable, Iterator, Sequence

from genus.devices._codes import write_code_wanted, write_divisors, write_filters
from genus.devices._declarations import class_list, comment
from genus.devices._dispatch import write_deliver, write_receive, write_receive_family, write_type_of
from genus.devices._late import late_table, write_learn, write_lookups
from genus.devices._layout import DeviceClass, DeviceFamily
from genus.devices._program import Program
from genus.devices._straight import write_decoders
from genus.devices._tables import write_tables
from genus.targets.internal import Condition


def write_source(program: Program) -> str:
    """Return the source."""
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
        if program.has_fewer_choices(family):
            yield _drop_choices(program, family)
        yield write_deliver(program, family)
        yield write_receive_family(program, family)
    yield write_type_of(program)
    yield write_receive(program)
    yield write_filters(program)
    yield write_divisors(program)
    yield write_code_wanted(program)
    if program.late:
        yield write_learn(program)


def _drop_choices(program: Program, family: DeviceFamily) -> str:
    """Return the function that leaves out choices which the class of a received event does not have."""
    classes = [each for each in program.classes_of(family) if each.choices]
    return "\n".join(
        [
            comment(f"Leave out choices that the type does not have: {class_list(classes)}."),
            f"static void drop_choices_{family.label}({program.name}_{family.label} *e)",
            "{",
            "    switch (e->type) {",
            *(line for each in classes for line in _choices_case(program, each)),
            "    default:",
            "        break;",
            "    }",
            "}",
        ]
    )


def _choices_case(program: Program, cls: DeviceClass) -> Iterator[str]:
    yield f"    case {program.type_name(cls)}:"
    for each in cls.choices:
        yield f"        if (!({each.is_own.code()})) {{"
        yield f"            genus_clear(e->present, {each.member.number}U);"
        yield f"            e->{each.member.name} = 0U;"
        yield "        }"
    yield "        break;"


def _checks(program: Program) -> Iterator[str]:
    """Functions that test events: the bounds of classes, and the choices of events that are published."""
    for family in program.families.values():
        bounds = [(each, each.checks) for each in program.classes_of(family)]
        yield from _check(program, family, "keeps_bounds", "Whether an event keeps the bounds of its type", bounds)
        choices = [(each, [own.is_valid for own in each.choices]) for each in program.published_classes(family)]
        yield from _check(program, family, "has_choices", "Whether the type of an event has its choices", choices)


def _check(
    program: Program,
    family: DeviceFamily,
    name: str,
    purpose: str,
    conditions: Iterable[tuple[DeviceClass, Sequence[Condition]]],
) -> Iterator[str]:
    """Yield a function that tests the conditions of each class, if there are any."""
    tested = [(cls, found) for cls, found in conditions if found]
    if tested:
        yield "\n".join(
            [
                comment(f"{purpose}: {class_list([cls for cls, _ in tested])}."),
                f"static bool {name}_{family.label}(const {program.name}_{family.label} *e)",
                "{",
                "    switch (e->type) {",
                *(line for cls, found in tested for line in _check_case(program, cls, found)),
                "    default:",
                "        return true;",
                "    }",
                "}",
            ]
        )


def _check_case(program: Program, cls: DeviceClass, conditions: Iterable[Condition]) -> list[str]:
    tests = "\n               && ".join(f"({condition.code()})" for condition in conditions)
    return [f"    case {program.type_name(cls)}:", f"        return {tests};"]


def _encoder(program: Program, family: DeviceFamily) -> str:
    name, label = program.name, family.label
    cases = [
        line
        for each in program.published_classes(family)
        for line in (
            f"    case {program.type_name(each)}:",
            f"        *etag = 0x{each.etag:04X}U;",
            "        break;",
        )
    ]
    checks = [f"!keeps_bounds_{label}(event)"] if program.has_checks(family) else []
    checks += [f"!has_choices_{label}(event)"] if any(c.choices for c in program.published_classes(family)) else []
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
            *(line for check in checks for line in (f"    if ({check}) {{", "        return 0U;", "    }")),
            "    of_class.required = required[event->type];",
            "    of_class.declared = declared[event->type];",
            "    of_class.in_ram = false;",
            f"    return genus_encode(&{label}_family, &of_class, event, event->present, sequence,",
            "                        payload, capacity, etag);",
            "}",
        ]
    )
