"""How much flash and RAM a generated program takes, about: before a compiler for the processor is there."""

import re

import msgspec

from genus.devices._program import Program
from genus.model.types import BoolType, BytesType, ChoiceType, FloatType, IntType, TextType
from genus.targets.internal import Member, flash_of, runtime_flash

_POINTER = 2
_RECEIVE, _FAMILY, _CALL, _CASE = 180, 90, 20, 12
"""Bytes of the dispatch: once, for each family, for each handler, for each type."""
_STATEMENT = 7
"""Bytes of a statement of straight code, or of one that learns a class."""


class Estimate(msgspec.Struct, frozen=True):
    """Bytes on an 8-bit processor (AVR), about; others are similar.

    `flash` is for all code and tables that a program with these handlers gets, without the handlers themselves;
    `tables` are part of it. `ram` is for what is kept, and `stack` for one event while it is tested.
    """

    flash: int
    tables: int
    ram: int
    stack: int

    def __str__(self) -> str:
        return (
            f"flash: about {self.flash} bytes, {self.tables} of them tables\n"
            f"RAM: {self.ram} bytes that are kept, {self.stack} on the stack for an event"
        )


def estimate(program: Program, source: str) -> Estimate:
    """Return the estimate of a program from its parts and its source."""
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
