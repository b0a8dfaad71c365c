"""The tables of a device in flash: vectors, and what each class requires, declares and is wanted by."""

from collections.abc import Iterable, Iterator

from genus.devices._declarations import comment
from genus.devices._layout import DeviceFamily
from genus.devices._program import Program
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


def format_rows(declaration: str, text: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a table: its comment, its declaration, and a row a line with the name of what it is about."""
    lines = [f"    {row}, {comment(name)}" for row, name in rows]
    return "\n".join([comment(text), f"{declaration} GENUS_ROM = {{", *lines, "};"])


def hex_bytes(contents: bytes) -> str:
    """Bytes as an initializer."""
    return f"{{{', '.join(f'0x{byte:02X}' for byte in contents)}}}"
