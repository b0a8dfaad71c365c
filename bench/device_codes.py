"""Subtype tests by code on an 8-bit processor: all pairs of a hierarchy with the figures of the paper's.

"Types in Their Prime" has 112 types of a smart office (LooCI), 24 primes, largest code 30914, and does not print the
hierarchy. This one has the same figures by the same scheme; a test takes the same time for any code of so many bytes.
"""

from pathlib import Path

from bench.simavr import RUNTIME, SOURCES, Case, Simulator, compile_firmware, microseconds, temporary_folder
from bench.timing import goal, markdown
from genus.codes import CompactPrimes, Divisor, encode_code

LABELS = {
    1: "subtype test, `genus_code_is16`, in line",
    2: "subtype test, `genus_code_is16`, a function for each type",
    3: "subtype test, `genus_code_below16`, constants from a table, in line",
    4: "subtype test by division, as in the paper",
    5: "equality with a code, `genus_code_equal16`, in line",
    6: "equality of two wire forms, `genus_code_equal`, in line",
}
SUBTYPES, EQUALITIES = range(1, 5), range(5, 7)
PAPER_US = 22.3
GOALS_US = {3: 3.0, 6: 1.5}
"""The most that a test takes on average."""


TEST = """static bool is_{name}(const uint8_t *wire, uint16_t size)
{{
    return {call};
}}

static bool in_{name}(const uint8_t *wire, uint16_t size)
{{
    bool answer;

    measure_start();
    answer = {call};
    measure_stop(answer);
    return answer;
}}
"""


def paper_hierarchy() -> dict[str, list[str]]:
    """112 types below one root that CompactPrimes gives 24 primes and the largest code 30914 = 2 · 13 · 29 · 41."""
    made: dict[str, list[str]] = {"Root": []}

    def add(parent: str, *children: int) -> None:
        made.update({f"{parent}.{child}": [parent] for child in range(*children)})

    add("Root", 5)
    add("Root.0", 4)
    add("Root.1", 4)
    for parent in ("Root.2", "Root.3", "Root.4"):
        add(parent, 19)
    add("Root.0.0", 3)
    add("Root.0.0.0", 1)
    for parent, children in (("Root.1.0", 15), ("Root.1.1", 15), ("Root.1.2", 7)):
        add(parent, children)
    return made


def paper_codes() -> list[int]:
    """The codes of those types."""
    scheme = CompactPrimes()
    scheme.add_all(paper_hierarchy())
    codes = list(scheme.codes.values())
    if (len(codes), max(codes)) != (112, 30914):
        raise AssertionError(f"not the paper's hierarchy: {len(codes)} types, largest code {max(codes)}")
    return codes


def tables(codes: list[int]) -> str:
    """The C tables of the codes: wire forms, divisors, and one test per type."""
    divisors = [Divisor.of(code, 16) for code in codes]
    constants = [f"{d.inverse}U, {d.limit}U" for d in divisors]
    calls = [
        f"genus_code_is16(wire, size, {code}U, {d.low_bits}U, {text})"
        for code, d, text in zip(codes, divisors, constants, strict=True)
    ]
    return "\n".join(
        [
            '#include <stdbool.h>\n#include "genus_code.h"\n#include "measure.h"\n',
            f"enum {{ TYPES = {len(codes)} }};",
            "typedef bool (*is_type)(const uint8_t *wire, uint16_t size);\n",
            "static const uint8_t wires[TYPES][3] GENUS_ROM = {",
            *(f"    {{{', '.join(map(str, encode_code(code)))}}}," for code in codes),
            "};\n\nstatic const genus_divisor16 divisors[TYPES] GENUS_ROM = {",
            *(
                f"    {{{d.low_bits}U, {text}, {code}U}},"
                for code, d, text in zip(codes, divisors, constants, strict=True)
            ),
            "};\n",
            *(TEST.format(name=name, call=call) for name, call in enumerate(calls)),
            *(_function_table(table, form, len(codes)) for table, form in (("tests", "is"), ("measured_tests", "in"))),
        ]
    )


def _function_table(table: str, form: str, count: int) -> str:
    names = ", ".join(f"{form}_{name}" for name in range(count))
    return f"static const is_type {table}[TYPES] GENUS_ROM = {{{names}}};\n"


def measure(simulator: Simulator, folder: Path) -> dict[int, list[Case]]:
    """The measurements of all pairs by case; AssertionError if one answer is wrong."""
    codes = paper_codes()
    (folder / "code_tables.h").write_text(tables(codes))
    firmware = compile_firmware(folder / "codes.elf", [SOURCES / "codes.c", RUNTIME / "genus_code.c"])
    run = simulator.run(firmware)
    pairs = [(a, b) for a in codes for b in codes]
    expected = {number: [b % a == 0 for a, b in pairs] for number in SUBTYPES}
    expected |= {number: [b == a for a, b in pairs] for number in EQUALITIES}
    for number, answers in expected.items():
        if [bool(case.result) for case in run.of(number)] != answers:
            raise AssertionError(f"wrong answers: {LABELS[number]}")
    return {number: run.of(number) for number in LABELS}


def table() -> str:
    """A row per kind of test: µs on average and at most over all 12,544 pairs, and those of the paper."""
    with temporary_folder() as folder:
        found = measure(Simulator(Path(folder)), Path(folder))
    return markdown(
        ["over 112 × 112 pairs, from wire bytes", "mean", "at most", "stack", "paper"],
        [_row(number, found[number]) for number in LABELS],
    )


def _row(number: int, cases: list[Case]) -> list[str]:
    cycles = [case.cycles for case in cases]
    times = (sum(cycles) / len(cycles), max(cycles))
    stack = f"{max(case.stack for case in cases)} B"
    return [
        LABELS[number],
        _mean(number, microseconds(times[0])),
        f"{microseconds(times[1]):.2f} µs",
        stack,
        f"{PAPER_US} µs" if number in SUBTYPES else "4.1 µs",
    ]


def _mean(number: int, us: float) -> str:
    shown = f"{us:.2f} µs"
    return goal(shown, us, at_most=GOALS_US[number], unit=" µs") if number in GOALS_US else shown


if __name__ == "__main__":
    print(table())
