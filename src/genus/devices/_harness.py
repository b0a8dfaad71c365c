"""A harness for fuzzers (libFuzzer, AFL++): handlers that read all they are given, and an entry point."""

from collections.abc import Iterator

from genus.devices._layout import DeviceFamily
from genus.devices._program import Program
from genus.model.types import BytesType, TextType


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
