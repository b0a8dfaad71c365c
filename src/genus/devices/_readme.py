"""The README of a folder of generated C, with an estimate of flash and RAM, and where it leaves MISRA."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import version

from genus.bus import BestEffort
from genus.can.internal import class_of
from genus.devices._node_tables import ChannelRow, NodeTables
from genus.devices._program import Program
from genus.devices.types import Estimate
from genus.model.types import BoolType, BytesType, ChoiceType, FloatType, IntType, TextType
from genus.targets.internal import Member, flash_of, runtime_flash

_POINTER = 2
_RECEIVE, _FAMILY, _CALL, _CASE = 180, 90, 20, 12
"""Bytes of the dispatch: once, for each family, for each handler, for each type."""
_STATEMENT = 7
"""Bytes of a statement of straight code, or of one that learns a class."""


def estimate(program: Program, source: str) -> Estimate:
    conditions = [test.condition for handler in program.handlers for test in handler.filter.tests.values()]
    tests = sum(flash_of(each) + _CALL for each in conditions if not each.never)
    bounds = sum(flash_of(check) for each in program.classes for check in each.checks)
    dispatch = _RECEIVE + _FAMILY * len(program.families) + _CASE * len(program.classes)
    tables = _tables(program)
    flash = tables + tests + bounds + dispatch + _statements(source) + runtime_flash(source)
    late = program.late * (4 + 2 * program.mask_bytes + program.wanted_bytes)
    stack = max((_event_size(program, name) + _variables(program, name) for name in program.families), default=0)
    return Estimate(flash, tables, late + 5 * sum(map(program.needs_table, program.families.values())), stack)


def _statements(source: str) -> int:
    """Return the bytes of straight code, and of functions that learn and encode."""
    functions = re.findall(r"^(?:static )?\w+ (?:read_type_|\w+_learn|\w+_encode)[^;{]*\{(.*?)^\}", source, re.M | re.S)
    return _STATEMENT * sum(len(re.findall(r"[;{]$", body, re.M)) for body in functions)


def _tables(program: Program) -> int:
    vectors = sum(6 * len(each.layout.vector) for each in program.families.values() if program.needs_table(each))
    masks = 2 * program.mask_bytes * len(program.classes) if vectors else 0
    wanted = program.wanted_bytes * len(program.classes) if program.handlers else 0
    return vectors + masks + wanted + program.constants.size + 8 * len(program.filters)


def _event_size(program: Program, family: str) -> int:
    layout = program.families[family].layout
    return 1 + layout.presence_bytes + sum(map(_member_size, layout.held))


def _variables(program: Program, family: str) -> int:
    """Return the bytes of the variables that the tests of a family's events share."""
    tests = [handler.test(family) for handler in program.handlers]
    return max((8 * len(each.variables) for each in tests if each is not None), default=0)


def _member_size(member: Member) -> int:
    match member.type:
        case BoolType():
            return 1
        case IntType(bits) | FloatType(bits):
            return bits // 8
        case TextType() | BytesType():
            return _POINTER + 2
        case ChoiceType(values):
            return 1 if len(values) <= 255 else 2
    return 8


DEVIATIONS = {
    "2.3": "Types for features that were left out stay in the headers.",
    "2.4": "As 2.3; and the enum of types has no tag, as only its constants are used.",
    "2.5": "Constants of attributes, values and capacities are for the program, which may not use all.",
    "2.7": "What is given for another processor (`genus_port.h`) or a table is not used by all.",
    "3.1": "A comment quotes its subscription, in which // divides.",
    "5.9": "Static functions of different files have the same name; all of them are internal.",
    "7.2": "INT64_MIN and the like of <stdint.h>.",
    "8.7": "Functions are for the program, or for generated code of other catalogs.",
    "8.9": "Tables lie at file scope, in flash, also if one function reads them.",
    "9.3": "A short initializer of zeros.",
    "10.1": "Constants of times are shifted and divided signed integers of 64 bits, none of them negative.",
    "10.4": "An unsigned number meets a signed one of 64 bits, which has room for it.",
    "10.6": "The result of a comparison, 1 or 0, is kept in an int.",
    "10.7": "The length of a frame is computed in the width of the event's.",
    "10.8": "Differences of pointers, and results that fit, are converted to the width of a size.",
    "11.5": "Members are found by offset, through `void *` or bytes; they are aligned, as their struct is.",
    "12.1": "Sums in a conditional expression, and divisions of sizes, have no parentheses of their own.",
    "14.2": "A loop over the bytes of a header changes them through its pointer.",
    "15.5": "A test that fails returns at once: every path stays short, and nothing has to be released.",
    "18.4": "Two pointers into one payload are subtracted, to see how much is left.",
    "19.2": "A union joins two bytes on AVR, where a shift takes ten cycles (`genus_code_join`).",
    "21.14": "Four bytes of a frame are compared with zeros, which are written as a text.",
}
"""Rules of MISRA C:2012 that generated code or the runtime does not follow, as cppcheck sees them, with the reason."""


NODE_SIZES = {
    "": (59_932, 3_047, 33_916, 4_368),
    "segmentation": (58_580, 2_491, 33_248, 3_792),
    "calendar": (36_076, 2_370, 23_852, 3_640),
    "late": (56_542, 2_790, 31_920, 4_072),
    "segmentation, calendar": (35_156, 1_814, 23_248, 3_064),
    "segmentation, late": (54_180, 2_234, 30_652, 3_496),
    "calendar, late": (32_646, 2_113, 21_812, 3_344),
    "segmentation, calendar, late": (30_748, 1_557, 20_612, 2_768),
}
"""Flash and RAM on an ATmega128RFA1, then on a Cortex-M0, of the firmware of docs/devices-node.md, by what it leaves
out; that page has the same figures, which `python -m bench.node_sizes` measures."""
_UNNEEDED = {
    "segmentation": "no event of a channel or a subscription is longer than a frame",
    "calendar": "nothing is sent or received in a slot; without it there is no global time of the bus, either",
    "late": "if types that are registered later need not be learnt",
}


def write_readme(
    program: Program,
    sources: Iterable[str],
    estimate: Estimate,
    node_header: str,
    tables: NodeTables | None,
    without: Collection[str],
    unneeded: Collection[str],
    origin: Mapping[str, str],
) -> str:
    """Return the README; `sources` are the names of all files to compile, and `node_header` is "" without the node."""
    node = bool(node_header)
    made_from = {"Genus": version("genus"), **origin}
    parts = [
        f"# {program.name}",
        f"{program.banner}",
        "\n".join(["| made from | |", "|---|---|", *(f"| {what} | {which} |" for what, which in made_from.items())]),
        "## Compile",
        f"C99, without heap, recursion or floating point. `main.c` is your program:\n\n```sh\n"
        f"gcc -std=c99 -Os -I. main.c {' '.join(sources)} -o {program.name}\n```",
        "Other compilers take the same files, as `avr-gcc -mmcu=atmega128rfa1`; with `-ffunction-sections` and "
        "`-Wl,--gc-sections` the program has only what it uses.",
        "## What you provide",
        *_provided(program, node),
        "## What you call",
        f"All functions are declared, with comments, in `{program.name}.h`"
        + (f", `{program.name}_node.h` and `genus_node.h`." if node else "."),
        "\n".join(_called(program, node_header)),
        *(_contract(tables) if tables else ()),
        "## Sizes",
        f"Estimated for an 8-bit processor, without your handlers{' and without the node' if node else ''}:",
        f"```text\n{estimate}\n```",
        *(_node_sizes(without, unneeded) if node else ()),
        "## Licence",
        "SPDX-License-Identifier: Apache-2.0, for all files of this folder.",
        "## MISRA C:2012",
        "cppcheck's addon reports these rules for generated code and the runtime, and no others; not all of them for "
        "every catalog.",
        "\n".join(["| rule | why |", "|---|---|", *(f"| {rule} | {why} |" for rule, why in DEVIATIONS.items())]),
    ]
    return "\n\n".join(parts) + "\n"


def _provided(program: Program, node: bool) -> Iterator[str]:
    declared = [
        f"/* {str(handler.filter.subscription).replace('*/', '* /')} */\n"
        f"void {program.handler_name(handler, family)}(const {program.name}_{family.label} *event);"
        for handler in program.handlers
        for family in program.families_of(handler)
    ]
    if declared:
        yield "Handlers, which are called while a payload is received:"
        yield "\n".join(["```c", *declared, "```"])
    if node:
        yield (
            f"A driver of the CAN controller: after `{program.name}_configure(&config)`, set `config.uid` and "
            "`config.calls.load`, which loads a mailbox; `config.calls.on_notice` hears of losses. `genus_node.h` has "
            "what the driver calls. The page docs/devices-node.md of Genus shows one, and says what it must do:"
        )
        yield (
            "* It has two transmit mailboxes, number 0 goes first; `load` replaces what is in one, at any time.\n"
            "* It reports each frame that was sent, and each failure, with the frame.\n"
            "* It takes the time of frames in the interrupt, and handles received frames before it wakes the node."
        )
    if not declared and not node:
        yield "Nothing: the functions below are all."


def _contract(tables: NodeTables) -> Iterator[str]:
    """Yield what the node does on the bus."""
    timing = tables.timing
    data = f", data of CAN FD at {timing.data_bitrate:,} bit/s" if timing.data_bitrate else ""
    number = f"number {tables.number}" if tables.number else "a number that the broker gives"
    yield "## On the bus"
    yield f"The bus has {timing.bitrate:,} bit/s{data}. The node has {number}."
    rows = [
        f"| {row.name} | {row.etag:#06x} | {_promise(tables, channel)} |" for channel, row in enumerate(tables.channels)
    ]
    rows += [
        f"| {each.slot.event}, received | {each.etag:#06x} | {_slot(each.slot.offset_ns, each.slot.period_ns)} |"
        for each in tables.slots
        if each.channel is None
    ]
    if rows:
        yield "\n".join(["| channel | event tag | quality of service |", "|---|---|---|", *rows])
    filters = "\n".join(str(pair) for pair in tables.filters)
    yield "Acceptance filters of the event tag (value/mask), with that of the middleware's messages:"
    yield f"```text\n{filters}\n```"


def _promise(tables: NodeTables, channel: int) -> str:
    """Return what holds for a channel: its slot, its deadline, or nothing."""
    if slot := next((each.slot for each in tables.slots if each.channel == channel), None):
        return _slot(slot.offset_ns, slot.period_ns)
    row: ChannelRow = tables.channels[channel]
    if row.qos_class == class_of(BestEffort()):
        return "no real time"
    return f"soft: deadline {_ms(row.span_ns)}" + (f", expires after {_ms(row.expires_ns)}" if row.expires_ns else "")


def _slot(offset_ns: int, period_ns: int) -> str:
    return f"hard: slot at {_ms(offset_ns)}, every {_ms(period_ns)}"


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.6f}".rstrip("0").rstrip(".") + " ms"


def _node_sizes(without: Collection[str], unneeded: Collection[str]) -> Iterator[str]:
    """Yield what was measured of a node like this, and what it can do without."""
    left_out = [name for name in _UNNEEDED if name in without]
    had = NODE_SIZES[", ".join(left_out)]
    yield (
        f"The firmware of docs/devices-node.md, node and runtime included{_but(left_out)}, takes {had[0]:,} bytes of "
        f"flash and {had[1]:,} of RAM on an ATmega128RFA1, {had[2]:,} and {had[3]:,} on a Cortex-M0."
    )
    lines = []
    for feature in [name for name in _UNNEEDED if name in unneeded]:
        has = NODE_SIZES[", ".join(name for name in _UNNEEDED if name in {*left_out, feature})]
        saved = [before - after for before, after in zip(had, has, strict=True)]
        lines.append(
            f"* `{feature}` saves about {saved[0]:,} bytes of flash and {saved[1]:,} of RAM ({saved[2]:,} and "
            f"{saved[3]:,}): {_UNNEEDED[feature]}."
        )
    if lines:
        yield "What this node can do without (`--without`):"
        yield "\n".join(lines)


def _but(left_out: Collection[str]) -> str:
    return f" but without {', '.join(left_out)}" if left_out else ""


def _called(program: Program, node_header: str) -> Iterator[str]:
    name = program.name
    if node_header:
        yield f"* `{name}_configure`, `genus_node_init`, `{name}_start`; then what `genus_node.h` lists as inputs"
        yield from (f"* `{each}`" for each in re.findall(rf"\b{name}_publish_\w+(?=\()", node_header))
        return
    if program.handlers:
        yield f"* `{name}_receive(etag, payload, size)` with each payload that passed `{name}_filters`"
    if program.learns:
        yield f"* `{name}_learn(answer, size)` with the broker's answer about a type that is not known"
    for family in program.published_families:
        yield f"* `{name}_{family.label}_encode` for the payload of a {family.name}"
