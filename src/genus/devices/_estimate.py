"""How much flash and RAM generated code takes, about: before a compiler for the processor is there."""

import msgspec

from genus.devices._program import Program
from genus.model import BoolType, BytesType, ChoiceType, FloatType, IntType, TextType
from genus.targets.c import CTest
from genus.targets.c._compiler import Member

CODEC_FLASH = 1200
"""Bytes of the table codec that decodes."""
ENCODER_FLASH = 900
TEST_FLASH = 44
"""Bytes of a comparison with its presence test, on average."""
TYPE_FLASH = 90
"""Bytes of straight code for an attribute of a class."""
POINTER = 2


class Estimate(msgspec.Struct, frozen=True):
    """Bytes on an 8-bit processor (AVR); others are similar. `stack` is the event while it is tested."""

    flash: int
    tables: int
    ram: int
    stack: int

    def __str__(self) -> str:
        return (
            f"flash: about {self.flash} bytes, {self.tables} of them tables\n"
            f"RAM: {self.ram} bytes for late classes, {self.stack} on the stack for an event"
        )


def estimate(program: Program) -> Estimate:
    """The estimate of a program, from its tables and the number of its tests."""
    tables = _tables(program)
    tests = sum(len(test.condition.tests) + bool(test.condition.presence) for test in _tests(program))
    codec = 0 if program.straight else CODEC_FLASH
    codec += ENCODER_FLASH if program.published else 0
    straight = sum(TYPE_FLASH * len(each.fields) for each in program.classes) if program.straight else 0
    flash = tables + codec + straight + TEST_FLASH * (tests + len(program.handlers)) + 8 * len(program.classes)
    late = program.late * (4 + 2 * program.mask_bytes + program.wanted_bytes)
    stack = max((_event_size(program, name) for name in program.families), default=0)
    return Estimate(flash, tables, late + 5 * len(program.families), stack)


def _tests(program: Program) -> list[CTest]:
    return [test for handler in program.handlers for test in handler.filter.tests.values()]


def _tables(program: Program) -> int:
    vectors = sum(6 * len(f.layout.vector) for f in program.families.values() if program.needs_table(f))
    masks = 0 if program.straight and not program.published else 2 * program.mask_bytes * len(program.classes)
    wanted = program.wanted_bytes * len(program.classes)
    return vectors + masks + wanted + program.constants.size + 8 * len(program.filters)


def _event_size(program: Program, family: str) -> int:
    layout = program.families[family].layout
    return 1 + layout.presence_bytes + sum(map(_member_size, layout.held))


def _member_size(member: Member) -> int:
    match member.type:
        case BoolType():
            return 1
        case IntType(bits) | FloatType(bits):
            return bits // 8
        case TextType() | BytesType():
            return POINTER + 2
        case ChoiceType(values):
            return 1 if len(values) <= 255 else 2
    return 8
