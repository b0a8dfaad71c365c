"""Acceptance filters, and tests of codes without division: for media that carry codes, and for late classes."""

from genus.codes import Divisor, code_size, encode_code
from genus.devices._program import Handler, Program
from genus.devices._tables import format_rows
from genus.errors import DeviceError


def write_filters(program: Program) -> str:
    """Return the acceptance filters."""
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
