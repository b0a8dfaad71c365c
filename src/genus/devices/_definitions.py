"""The source that is generated for a device, and a harness for fuzzers (libFuzzer, AFL++)."""

from collections.abc import Iterable, Iterator, Sequence

from genus.devices._declarations import class_list, comment, filter_table, format_rows, hex_bytes
from genus.devices._dispatch import write_decoders, write_deliver, write_receive, write_receive_family, write_type_of
from genus.devices._program import DeviceClass, DeviceFamily, Program
from genus.devices._runtime_types import (
    late_table,
    write_code_wanted,
    write_divisors,
    write_learn,
    write_lookups,
)
from genus.model.types import (
    Attribute,
    BoolType,
    BytesType,
    ChoiceType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
)
from genus.targets.internal import Condition


def write_tables(program: Program) -> Iterator[str]:
    """Yield the tables of all families and classes."""
    for family in program.families.values():
        if program.needs_table(family):
            yield _vector_table(program, family)
    if any(map(program.needs_table, program.families.values())):
        yield _mask_table("required", "What all events of each type carry.", program)
    if program.published:
        yield _mask_table("declared", "What is written of the events of each type.", program)
    if program.handlers:
        rows = [(hex_bytes(program.wanted(each)), each.name) for each in program.classes]
        yield format_rows(
            f"static const uint8_t wanted_by[{len(rows)}][{program.wanted_bytes}]", "Who wants each type.", rows
        )


def _vector_table(program: Program, family: DeviceFamily) -> str:
    rows = [(_attribute_row(program, family, each), each.name) for each in family.layout.vector]
    label, vector = family.label, family.layout.vector
    table = format_rows(
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
    rows = [(hex_bytes(each.mask(of).ljust(program.mask_bytes, b"\0")), each.name) for each in program.classes]
    return format_rows(f"static const uint8_t {of}[{len(rows)}][{program.mask_bytes}]", text, rows)


def write_source(program: Program) -> str:
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
    yield filter_table(f"{program.name}_filters", program.filters)
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


def write_harness(program: Program) -> str:
    """Return the source of a harness: the first two bytes of an input are the event tag, the rest the payload."""
    parts = [
        f"/* {program.banner} A harness for fuzzers:\n"
        f" * clang -g -O1 -fsanitize=fuzzer,address,undefined *.c -o fuzz && ./fuzz -max_total_time=60 */",
        f'#include "{program.name}.h"',
        "static volatile uint8_t sink;",
        *(_reader(program, family) for family in program.received_families),
        *_handlers(program),
        _entry(program),
    ]
    return "\n\n".join(parts) + "\n"


def _reader(program: Program, family: DeviceFamily) -> str:
    """Return a function that reads all of an event, absent or not, and encodes it again where it can be published."""
    event = f"{program.name}_{family.label}"
    lines = list(_reads(family))
    again = family in program.published_families
    encode = [
        "    static uint8_t payload[1024];",
        "    uint16_t etag = 0U;",
        "",
        f"    if ({event}_encode(event, 0U, payload, (uint16_t)sizeof payload, &etag) > sizeof payload) {{",
        "        sink = payload[sizeof payload - 1U];",
        "    }",
    ]
    return "\n".join(
        [f"static void use_{family.label}(const {event} *event)", "{", *(encode if again else []), *lines, "}"]
    )


def _reads(family: DeviceFamily) -> Iterator[str]:
    yield "    sink = event->type;"
    for member in family.layout.held:
        if isinstance(member.type, TextType | BytesType):
            yield f"    sink = (uint8_t)memcmp(event->{member.name}.bytes, event, 0U);"
            yield f"    for (uint16_t i = 0U; i < event->{member.name}.size; i++) {{"
            yield f"        sink = event->{member.name}.bytes[i];"
            yield "    }"
        else:
            yield f"    sink = (uint8_t)event->{member.name};"


def _handlers(program: Program) -> Iterator[str]:
    for handler in program.handlers:
        for family in program.families_of(handler):
            name, event = program.handler_name(handler, family), f"{program.name}_{family.label}"
            yield f"void {name}(const {event} *event)\n{{\n    use_{family.label}(event);\n}}"


def _entry(program: Program) -> str:
    learn = f"    (void){program.name}_learn(&data[2], (uint16_t)(size - 2U));" if program.late else ""
    return "\n".join(
        [
            "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);",
            "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)",
            "{",
            f"    uint8_t wanted[{program.wanted_bytes}];",
            "",
            "    if ((size < 2U) || (size > 1024U)) {",
            "        return 0;",
            "    }",
            f"    (void){program.name}_receive((uint16_t)(((uint16_t)data[0] << 8) | data[1]), &data[2],",
            f"    {' ' * (len(program.name) + 15)}(uint16_t)(size - 2U));",
            f"    (void){program.name}_code_wanted(&data[2], (uint16_t)(size - 2U), wanted);",
            *([learn] if learn else []),
            "    return 0;",
            "}",
        ]
    )
