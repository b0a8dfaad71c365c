"""From a payload to handlers: the class of an event tag, decoding, tests, calls."""

import re
from collections.abc import Iterator

from genus.devices._declarations import comment
from genus.devices._program import DeviceFamily, Handler, Program
from genus.devices._runtime_types import late_look_up
from genus.model.types import BoolType, BytesType, DurationType, IntType, TextType, TimeType
from genus.targets.internal import Condition

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

    Each by itself, as on an 8-bit processor memset takes three times as long.
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
