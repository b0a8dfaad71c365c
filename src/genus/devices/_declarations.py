"""The header that is generated for a device: types, events, handlers and functions."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from genus.devices._program import DeviceClass, DeviceFamily, Handler, Program
from genus.model.types import AttributeType, BoolType, BytesType, ChoiceType, FloatType, IntType, TextType
from genus.targets.internal import Named, refuse_clashes

WIDTH = 100


def write_header(program: Program) -> str:
    guard = f"{program.prefix}_H"
    parts = [
        f"/* {program.banner} */",
        f"#ifndef {guard}\n#define {guard}",
        '#include "genus_event.h"',
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        _type_numbers(program),
        *_families(program),
        *_handlers(program),
        *_functions(program),
        "#ifdef __cplusplus\n}\n#endif",
        "#endif",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def check_names(program: Program) -> None:
    """Raise DeviceError if two things of a header have the same name, with what to rename."""
    refuse_clashes(_names(program))
    for family in program.families.values():
        refuse_clashes(
            Named(member.name, f"{family.name}.{name}", _RENAME_ATTRIBUTE)
            for name, member in family.layout.members.items()
        )


_RENAME_TYPE = "rename a type, or subscribe to fewer of them"
_RENAME_ATTRIBUTE = "rename an attribute (Renamed), or leave it out (keep, --keep)"
_RENAME_MEMBER = "rename a member of the Enum"
_NAME_VALUES = "give the class (-t) with an Enum whose members have names of your own"
_RENAME_HANDLER = "give a subscription another name (NAME: SUBSCRIPTION)"


def _names(program: Program) -> Iterator[Named]:
    for cls in program.classes:
        yield Named(program.type_name(cls), f"the type {cls.name}", _RENAME_TYPE)
    for family in program.families.values():
        yield Named(f"{program.name}_{family.label}", f"the family {family.name}", _RENAME_TYPE)
        for name in family.layout.members:
            yield Named(program.attribute_name(family, name), f"{family.name}.{name}", _RENAME_ATTRIBUTE)
        for name, choices in family.choices.items():
            for each in choices:
                what = f"{each.member or repr(each.value)} of {family.name}.{name}"
                remedy = _RENAME_MEMBER if each.member else _NAME_VALUES
                yield Named(program.choice_name(family, name, each), what, remedy)
    for handler in program.handlers:
        for function in handler.functions.values():
            yield Named(function, f"the handler {handler.label} ({handler.filter.subscription})", _RENAME_HANDLER)


def comment(text: str, indent: str = "") -> str:
    """Return a comment of one or several lines; what would end it is broken up.

    >>> comment("where text == '*/'")
    "/* where text == '* /' */"
    """
    safe = "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)
    lines = wrap(safe.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/"), WIDTH - 6 - len(indent))
    return f"\n{indent} * ".join([f"/* {lines[0] if lines else ''}", *lines[1:]]) + " */"


def c_type(type_: AttributeType) -> str:
    """The type of a member in C: floats are kept as their bits, times in microseconds, choices as their index."""
    match type_:
        case BoolType():
            return "bool"
        case IntType(bits, signed):
            return f"{'' if signed else 'u'}int{bits}_t"
        case FloatType(bits):
            return f"uint{bits}_t"
        case TextType() | BytesType():
            return "genus_text"
        case ChoiceType(values):
            return "uint8_t" if len(values) <= 255 else "uint16_t"
    return "int64_t"


def describe_type(type_: AttributeType) -> str:
    """Return what a member holds, for its comment."""
    match type_:
        case FloatType(bits):
            return f"float{bits}, its bits"
        case ChoiceType():
            return "choice"
        case TextType():
            return "text"
        case BytesType():
            return "bytes"
    described = type_.describe()
    text = described if isinstance(described, str) else "opaque"
    return f"{text}, in microseconds" if text in ("time", "duration") else text


def _type_numbers(program: Program) -> str:
    numbers = [f"    {program.type_name(each)} = {each.number}" for each in program.classes]
    return "/* The types of this device, for the member `type` of events. */\nenum {\n" + ",\n".join(numbers) + "\n};"


def _families(program: Program) -> Iterator[str]:
    """Yield the attributes and the struct of each family."""
    for family in program.families.values():
        yield _family(program, family)


def _family(program: Program, family: DeviceFamily) -> str:
    members = family.layout.members
    numbers = [f"#define {program.attribute_name(family, name)} {member.number}U" for name, member in members.items()]
    texts = {each.name: each.unit for each in family.layout.vector}
    held = [
        f"    {c_type(member.type)} {member.name}; "
        + comment(_member_text(member.type, texts[name], program.attribute_name(family, name)))
        for name, member in members.items()
        if member in family.layout.held
    ]
    about = f"An event of the family {family.name}; for handlers, what it does not carry is 0 or empty."
    struct = [
        f"{comment(about)}\ntypedef struct {{",
        "    uint8_t type;",
        f"    uint8_t present[{family.layout.presence_bytes}];",
        *held,
        f"}} {program.name}_{family.label};",
    ]
    prefix = f"{program.prefix}_{family.label.upper()}"
    what = comment(f"Attributes of {family.name}: genus_has(event->present, {prefix}_...), and genus_set.")
    return "\n".join([what, *numbers, "", *_choices(program, family), *struct])


def _member_text(type_: AttributeType, unit: str | None, constant: str) -> str:
    choices = f", {constant}_..." if isinstance(type_, ChoiceType) else ""
    return describe_type(type_) + choices + (f", {unit}" if unit else "")


def _choices(program: Program, family: DeviceFamily) -> Iterator[str]:
    """Yield the constants of choices, with their indexes, and their values as comments."""
    for name, choices in family.choices.items():
        yield comment(f"Values of {family.name}.{name}, as their indexes in the catalog.")
        for index, each in enumerate(choices):
            value = repr(each.value) if isinstance(each.value, int) else f"'{each.value}'"
            yield f"#define {program.choice_name(family, name, each)} {index}U {comment(value)}"
        yield ""


def _handlers(program: Program) -> Iterator[str]:
    for handler in program.handlers:
        for family in program.families_of(handler):
            yield "\n".join(
                [
                    comment(str(handler.filter.subscription)),
                    *_residual_comment(handler),
                    f"void {program.handler_name(handler, family)}(const {program.name}_{family.label} *event);",
                ]
            )


def _residual_comment(handler: Handler) -> list[str]:
    left = handler.filter.residual
    return [] if left is None else [comment(f"The handler must still test: {left}")]


def _functions(program: Program) -> Iterator[str]:
    name, prefix = program.name, program.prefix
    if program.handlers:
        yield (
            "/* Decode a payload, test it, and call the handlers of the subscriptions that match. */\n"
            f"genus_status {name}_receive(uint16_t etag, const uint8_t *payload, uint16_t size);"
        )
        yield (
            f"/* Acceptance filters for the controller; read them by genus_rom_u32. */\n#define {prefix}_FILTERS "
            f"{len(program.filters)}U\nextern const genus_filter {name}_filters[{max(1, len(program.filters))}];"
        )
    for family in program.published_families:
        yield (
            "/* The payload of an event and its event tag; the size, 0 if it is not valid or does not fit. */\n"
            f"uint16_t {name}_{family.label}_encode(const {name}_{family.label} *event, uint8_t sequence, "
            "uint8_t *payload,\n"
            f"{' ' * (len(name) + len(family.label) + 17)}uint16_t capacity, uint16_t *etag);"
        )
    if program.handlers:
        yield from _code_functions(name, program)


def _code_functions(name: str, program: Program) -> Iterator[str]:
    yield (
        "/* For media that carry codes: which subscriptions want the type of a code in its wire form. Their bits are "
        "set in\n * `wanted`, the first subscription in the lowest; false if there is none, or the code is malformed. "
        "*/\n"
        f"#define {program.prefix}_WANTED_BYTES {program.wanted_bytes}U\n"
        f"bool {name}_code_wanted(const uint8_t *code, uint16_t size, uint8_t wanted[{program.wanted_bytes}]);"
    )
    if program.late:
        yield (
            "/* Keep a class that was unknown: the broker's answer to the question for its event tag. False if it is\n"
            " * malformed, of a family that this device does not know, or all places are taken. */\n"
            f"#define {program.prefix}_LATE {program.late}U\n"
            f"bool {name}_learn(const uint8_t *answer, uint16_t size);\n"
            "/* Forget all of them. */\n"
            f"void {name}_forget(void);"
        )


def class_list(classes: Sequence[DeviceClass]) -> str:
    """Return the names of classes for a comment."""
    return ", ".join(each.name for each in classes)


def format_rows(declaration: str, text: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a table: its comment, its declaration, and a row a line with the name of what it is about."""
    lines = [f"    {row}, {comment(name)}" for row, name in rows]
    return "\n".join([comment(text), f"{declaration} GENUS_ROM = {{", *lines, "};"])


def hex_bytes(contents: bytes) -> str:
    return f"{{{', '.join(f'0x{byte:02X}' for byte in contents)}}}"


def filter_table(name: str, filters: Iterable[tuple[int, int]]) -> str:
    """Acceptance filters in flash; one that nothing passes if there are none, as C has no empty arrays."""
    rows = [f"    {{0x{value:08X}UL, 0x{mask:08X}UL}}," for value, mask in filters] or ["    {0UL, 0xFFFFFFFFUL},"]
    return "\n".join([f"const genus_filter {name}[{len(rows)}] GENUS_ROM = {{", *rows, "};"])
