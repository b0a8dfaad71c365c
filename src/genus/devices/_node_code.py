"""The header and the source of a node's tables, with functions that connect the node and the generated code."""

import re
from collections.abc import Iterable

from genus.codes import code_size
from genus.devices._declarations import comment, filter_table, hex_bytes
from genus.devices._node_tables import ChannelRow, NodeTables, SlotRow
from genus.devices._program import DeviceClass, Program

_QOS = ("GENUS_QOS_NONE", "GENUS_QOS_SOFT", "GENUS_QOS_HARD")


def write_node_header(program: Program, tables: NodeTables) -> str:
    name, guard = program.name, f"{program.prefix}_NODE_H"
    numbers = [f"#define {_channel(program, row)} {number}U" for number, row in enumerate(tables.channels)]
    parts = [
        f"/* {program.banner} */",
        f"#ifndef {guard}\n#define {guard}",
        f'#include "{name}.h"\n#include "genus_node.h"',
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        "\n".join(["/* Numbers of the channels. */", *numbers]) if numbers else "",
        "/* Acceptance filters for the controller, the middleware's among them; read them by genus_rom_u32. */\n"
        f"#define {program.prefix}_NODE_FILTERS {len(tables.filters)}U\n"
        f"extern const genus_filter {name}_node_filters[{len(tables.filters)}];",
        "/* Clear a configuration and fill it with these tables. Then set `uid`, `calls.load`, `calls.on_notice`, and\n"
        " * `clock.granularity_ns` if the clock is coarser than 100 ns. Events go to the generated handlers. */\n"
        f"void {name}_configure(genus_config *config);",
        "/* Announce all channels, subscribe to all subjects, and join the bus. */\n"
        f"void {name}_start(genus_node *node, genus_time now);",
        *(f"{_publish_comment(row)}\n{_publish_declaration(program, row)};" for row in tables.channels),
        "#ifdef __cplusplus\n}\n#endif",
        "#endif",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_node_source(program: Program, tables: NodeTables) -> str:
    parts = [
        f"/* {program.banner} */",
        f'#include "{program.name}_node.h"',
        _capacities(program, tables),
        *(_layout(number, row) for number, row in enumerate(tables.channels)),
        _table("genus_channel", "channels", (_channel_row(row) for row in tables.channels)),
        _table("genus_slot", "slots", map(_slot_row, tables.slots)),
        _table(
            "uint8_t",
            "subjects",
            (f"{hex_bytes(uid.to_bytes(8, 'big'))}, {comment(name)}" for name, uid in tables.subjects),
            "[8]",
        ),
        _table("genus_block", "blocks", (f"{{0x{b.value:04X}, 0x{b.mask:04X}, {b.width}}}," for b in tables.blocks)),
        _table(
            "genus_known",
            "known",
            (f"{{0x{etag:04X}, {hex_bytes(s.to_bytes(3, 'big'))}}}, {comment(n)}" for n, etag, s in tables.known),
        ),
        filter_table(f"{program.name}_node_filters", tables.filters),
        *_calls(program, tables),
        _configure(program, tables),
        _start(program, tables),
        *(_publish(program, row) for row in tables.channels),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _channel(program: Program, row: ChannelRow) -> str:
    return f"{program.prefix}_CHANNEL_{_class_of(program, row).label.upper()}"


def _needed(program: Program, tables: NodeTables) -> dict[str, int]:
    """Return the least that the settings must be for the tables."""
    others = [row.largest for row in tables.channels if not _is_hard(row)]
    is_long = any(row.largest == 0 or row.largest > tables.data_bytes for row in tables.channels)
    return {
        "GENUS_WITH_CALENDAR": int(bool(tables.slots)),
        "GENUS_WITH_SEGMENTS": int(is_long),
        "GENUS_WITH_LATE": int(program.learns),
        "GENUS_DATA_BYTES": tables.data_bytes,
        "GENUS_CHANNELS": len(tables.channels),
        "GENUS_SUBJECTS": len(tables.subjects),
        "GENUS_SLOTS": len(tables.slots),
        "GENUS_HARD_BYTES": tables.hard_bytes,
        "GENUS_EVENT_BYTES": max(others, default=0),
    }


def _is_hard(row: ChannelRow) -> bool:
    return _QOS[row.qos_class] == "GENUS_QOS_HARD"


def _capacities(program: Program, tables: NodeTables) -> str:
    """Errors of the preprocessor where the node has less than the tables need."""
    return "\n".join(
        f"#if {name} {'!=' if name == 'GENUS_DATA_BYTES' else '<'} {count}\n"
        f'#error "{name} must be {count}: genus_settings.h is that of another firmware, or -D{name} is wrong"\n#endif'
        for name, count in _needed(program, tables).items()
        if count
    )


def write_settings(program: Program, tables: NodeTables, template: str) -> str:
    """Return the settings of the runtime with what a node needs; `template` is the file with the defaults."""
    needed, data_bytes = _needed(program, tables), tables.data_bytes
    is_short = "segmentation" in tables.without
    buffer = data_bytes if program.late_buffer is None else program.late_buffer
    found = {
        **{name: max(1, needed[name]) for name in ("GENUS_CHANNELS", "GENUS_SUBJECTS", "GENUS_SLOTS")},
        "GENUS_WITH_CALENDAR": int("calendar" not in tables.without),
        "GENUS_WITH_SEGMENTS": int(not is_short),
        "GENUS_WITH_LATE": needed["GENUS_WITH_LATE"],
        "GENUS_DATA_BYTES": data_bytes,
        "GENUS_LATE_BYTES": buffer if program.learns else 0,
    }
    least = {
        "GENUS_HARD_BYTES": needed["GENUS_HARD_BYTES"],
        "GENUS_EVENT_BYTES": needed["GENUS_EVENT_BYTES"],
        "GENUS_ANSWER_BYTES": _answer_bytes(program),
    }
    if is_short:
        found["GENUS_EVENT_BYTES"] = data_bytes

    def replace(line: re.Match[str]) -> str:
        name, default = line[1], int(line[2])
        return f"#define {name} {found.get(name, max(default, least.get(name, 0)))}"

    return re.sub(r"^#define (GENUS_\w+) (\d+)", replace, template, flags=re.MULTILINE)


def _answer_bytes(program: Program) -> int:
    """Return the longest answer about a class of a received family, with room for types and attributes to come."""
    code = max((code_size(each.code) for each in program.classes), default=0)
    return 9 + (code + 4) + 2 * (program.mask_bytes + 4)


def _layout(number: int, row: ChannelRow) -> str:
    return (
        f"{comment(f'The layout of {row.name}, for nodes that ask for it.')}\n"
        f"static const uint8_t layout_{number}[{len(row.layout)}] GENUS_ROM = {hex_bytes(row.layout)};"
    )


def _table(type_: str, name: str, rows: Iterable[str], size: str = "") -> str:
    lines = [f"    {row}" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"static const {type_} {name}[{len(lines)}]{size} = {{", *lines, "};"])


def _number(number: int, size: int) -> str:
    return hex_bytes(number.to_bytes(size, "big"))


def _channel_row(row: ChannelRow) -> str:
    values = {
        "subject": _number(row.subject, 8),
        "etag": f"0x{row.etag:04X}U",
        "width": f"{row.width}U",
        "qos": _QOS[row.qos_class],
        "is_bulk": "true" if row.is_bulk else "false",
        "largest": f"{row.largest}U",
        "digest": f"0x{row.digest:06X}UL",
        "layout_size": f"{len(row.layout)}U",
        "span_ns": f"INT64_C({row.span_ns})",
        "expires_ns": f"INT64_C({row.expires_ns})",
    }
    return f"{{{', '.join(f'.{name} = {value}' for name, value in values.items())}}}, {comment(row.name)}"


def _slot_row(row: SlotRow) -> str:
    slot = row.slot
    times = ("offset_ns", "period_ns", "length_ns", "wait_ns", "gap_ns", "closes_ns")
    values = {
        "channel": "GENUS_NO_CHANNEL" if row.channel is None else f"{row.channel}U",
        "number": f"{slot.number}U",
        "etag": f"0x{row.etag:04X}U",
        **{name: f"INT64_C({getattr(slot, name)})" for name in times},
        "frames": f"{slot.frames}U",
        "omissions": f"{slot.omissions}U",
        "is_sporadic": "true" if slot.sporadic else "false",
        "is_planned_passive": "true" if slot.error_passive == "plan" else "false",
    }
    return f"{{{', '.join(f'.{name} = {value}' for name, value in values.items())}}}, {comment(slot.channel)}"


def _calls(program: Program, tables: NodeTables) -> list[str]:
    receive = f"{program.name}_receive(event->etag, event->payload, event->size) != GENUS_UNKNOWN_TYPE"
    is_received = bool(program.handlers)
    lines = [
        "static bool on_event(void *context, const genus_received *event)\n{\n    (void)context;\n"
        + (f"    return {receive};\n}}" if is_received else "    (void)event;\n    return true;\n}")
    ]
    if program.learns:
        lines.append(
            "static void on_class(void *context, const uint8_t *answer, uint16_t size)\n{\n    (void)context;\n"
            f"    (void){program.name}_learn(answer, size);\n}}"
        )
    if tables.channels:
        cases = "\n".join(
            f"    case {number}U:\n        return genus_rom_u8(&layout_{number}[index]);"
            for number in range(len(tables.channels))
        )
        lines.append(
            "static uint8_t layout_byte(void *context, uint8_t channel, uint16_t index)\n{\n    (void)context;\n"
            f"    switch (channel) {{\n{cases}\n    default:\n        return 0U;\n    }}\n}}"
        )
    return lines


def _configure(program: Program, tables: NodeTables) -> str:
    arrays = {
        "channels": ("channel_count", len(tables.channels)),
        "slots": ("slot_count", len(tables.slots)),
        "subjects": ("subject_count", len(tables.subjects)),
        "blocks": ("block_count", len(tables.blocks)),
        "known": ("known_count", len(tables.known)),
    }
    lines = [
        f"void {program.name}_configure(genus_config *config)",
        "{",
        "    (void)memset(config, 0, sizeof *config);",
        f"    config->number = {tables.number}U;",
        "    config->is_synchronised = true;",
        f"    config->bit_ns = {tables.timing.bit_ns}U;",
        *([f"    config->data_bit_ns = {tables.timing.data_bit_ns}U;"] if tables.timing.data_bitrate else []),
        f"    config->clock.period_ns = INT64_C({tables.sync_period_ns});",
        "    config->clock.drift_ppm = 100U;",
        "    config->clock.wander_ppm = 10U;",
        "    config->clock.granularity_ns = 100U;",
        f"    config->clock.bit_ns = {tables.timing.bit_ns}U;",
    ]
    for name, (counter, count) in arrays.items():
        lines += [f"    config->{name} = {name};", f"    config->{counter} = {count}U;"] if count else []
    lines.append("    config->calls.on_event = on_event;")
    lines += ["    config->calls.on_class = on_class;"] if program.learns else []
    lines += ["    config->calls.layout_byte = layout_byte;"] if tables.channels else []
    return "\n".join([*lines, "}"])


def _start(program: Program, tables: NodeTables) -> str:
    lines = [f"void {program.name}_start(genus_node *node, genus_time now)", "{"]
    lines += [f"    genus_node_announce(node, {number}U, now);" for number in range(len(tables.channels))]
    lines += [f"    genus_node_subscribe(node, {number}U, now);" for number in range(len(tables.subjects))]
    return "\n".join([*lines, "    genus_node_start(node, now);", "}"])


def _class_of(program: Program, row: ChannelRow) -> DeviceClass:
    return next(each for each in program.classes if each.name == row.name)


def _publish_comment(row: ChannelRow) -> str:
    return comment(f"Publish a {row.name}; GENUS_PUBLISH_TOO_LONG also if it is not valid. `options` may be NULL.")


def _publish_declaration(program: Program, row: ChannelRow) -> str:
    cls = _class_of(program, row)
    event = f"{program.name}_{program.families[cls.family].label}"
    start = f"genus_publish_result {program.name}_publish_{cls.label}("
    space = " " * len(start)
    return (
        f"{start}genus_node *node, const {event} *event,\n{space}const genus_publish_options *options, genus_time now)"
    )


def _publish(program: Program, row: ChannelRow) -> str:
    cls = _class_of(program, row)
    label = program.families[cls.family].label
    return "\n".join(
        [
            _publish_declaration(program, row),
            "{",
            f"    uint8_t payload[{'GENUS_HARD_BYTES' if _is_hard(row) else 'GENUS_EVENT_BYTES'}];",
            "    uint16_t etag = 0U;",
            "    uint16_t size = 0U;",
            "",
            f"    if (event->type == {program.type_name(cls)}) {{",
            f"        size = {program.name}_{label}_encode(event, 0U, payload, (uint16_t)sizeof payload, &etag);",
            "    }",
            "    if (size == 0U) {",
            "        return GENUS_PUBLISH_TOO_LONG;",
            "    }",
            f"    return genus_node_publish(node, {_channel(program, row)}, etag, payload, size, options, now);",
            "}",
        ]
    )
