"""Codes in C: the wire form and the test without division answer as Python's `%` does, and no bytes make them fail."""

import ctypes
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.codes import Divisor, code_size, encode_code, parse_code
from tests.devices.toolchain import (
    RUNTIME,
    SANITIZERS,
    SOURCES,
    TARGETS,
    compile_library,
    compile_object,
    compile_program,
)
from tests.examples import examples
from tests.programs import need, needs

CODE = RUNTIME / "genus_code.c"
MAX_DIVISOR = 32
"""GENUS_CODE_BYTES."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("codes")
    built = compile_library(folder, [CODE, SOURCES / "code_library.c"])
    built.divides32.restype = built.divides64.restype = built.equal16.restype = ctypes.c_bool
    built.genus_code_below.restype = built.equal_wire.restype = ctypes.c_bool
    built.genus_code_size.restype = built.genus_code_write.restype = ctypes.c_uint16
    return built


@pytest.mark.parametrize("target", TARGETS)
def test_the_runtime_compiles_without_a_warning(target: str, tmp_path: Path) -> None:
    need(TARGETS[target][0])
    compile_object(tmp_path, target, CODE)


@needs("gcc")
def test_all_pairs_of_eight_bits(library: ctypes.CDLL) -> None:
    answers = (ctypes.c_uint8 * 256)()
    for a in range(1, 256):
        divisor = Divisor.of(a, 8)
        library.sweep8(divisor.low_bits, divisor.inverse, divisor.limit, answers)
        assert bytes(answers) == bytes(b % a == 0 for b in range(256)), a


@needs("gcc")
def test_all_codes_of_sixteen_bits_by_many_divisors(library: ctypes.CDLL) -> None:
    answers = (ctypes.c_uint8 * 65536)()
    chance = Random(16)
    for a in [
        1,
        2,
        3,
        6,
        30914,
        65535,
        65534,
        256,
        512,
        1 << 15,
        3 << 12,
        *(chance.randrange(1, 65536) for _ in range(30)),
    ]:
        divisor = Divisor.of(a, 16)
        expected = bytearray(65536)
        expected[::a] = b"\1" * len(range(0, 65536, a))
        constants = (divisor.low_bits, divisor.inverse, divisor.limit)
        library.sweep16(*constants, answers)
        assert bytes(answers) == bytes(expected), a
        library.sweep_wire16(a, *constants, answers)
        expected[0] = 0  # no code is zero
        assert bytes(answers) == bytes(expected), a


@needs("gcc")
@examples(2000)
@given(data=st.data())
def test_wide_codes_divide_as_in_python(library: ctypes.CDLL, data: st.DataObject) -> None:
    width, test, number = data.draw(
        st.sampled_from([(32, library.divides32, ctypes.c_uint32), (64, library.divides64, ctypes.c_uint64)])
    )
    a = data.draw(st.integers(1, (1 << width) - 1) | st.integers(0, width - 1).map(lambda bit: 1 << bit))
    b = data.draw(st.integers(0, (1 << width) - 1) | st.integers(0, ((1 << width) - 1) // a).map(lambda n: n * a))
    divisor = Divisor.of(a, width)
    assert test(number(b), number(divisor.low_bits), number(divisor.inverse), number(divisor.limit)) == (b % a == 0)


@needs("gcc")
@examples(2000)
@given(a=st.integers(1, (1 << 8 * MAX_DIVISOR) - 1), factor=st.integers(1, 1 << 300), more=st.sampled_from([0, 0, 1]))
def test_codes_of_any_length_divide_by_bytes(library: ctypes.CDLL, a: int, factor: int, more: int) -> None:
    b = a * factor + more
    wire, known = encode_code(b), encode_code(a)
    assert library.genus_code_below(wire, len(wire), known, len(known)) == (b % a == 0)


@needs("gcc")
def test_a_divisor_that_is_too_long_is_never_above(library: ctypes.CDLL) -> None:
    long = encode_code(1 << 8 * MAX_DIVISOR)
    assert not library.genus_code_below(long, len(long), long, len(long))


@needs("gcc")
@given(code=st.integers(0, (1 << 64) - 1), capacity=st.integers(0, 12))
def test_codes_are_written_as_python_writes_them(library: ctypes.CDLL, code: int, capacity: int) -> None:
    buffer = ctypes.create_string_buffer(12)
    size = library.genus_code_write(ctypes.c_uint64(code), buffer, capacity)
    fits = code > 0 and code_size(code) < capacity
    assert buffer.raw[:size] == (encode_code(code) if fits else b"")


@needs("gcc")
@given(code=st.integers(1, 1 << 24), flips=st.integers(1, 255), wire=st.binary(max_size=4))
def test_a_code_equals_its_wire_form_and_nothing_else(library: ctypes.CDLL, code: int, flips: int, wire: bytes) -> None:
    own = encode_code(code)
    near = [own[:place] + bytes([own[place] ^ flips]) + own[place + 1 :] for place in range(len(own))]
    for data in (own, own + wire, own[:-1], wire, *near):
        parsed = parse_code(data)
        same = parsed is not None and parsed[0] == code
        if code < 1 << 16:
            assert library.equal16(data, len(data), code) == same
        assert library.equal_wire(own, data, len(data)) == same


Question = tuple[bytes, int, int]
"""Bytes from outside, the code of a type, and the width of its constants; 0 if it is too wide for any."""


def widths(code: int) -> list[int]:
    """The widths a divisor may have, as the codes of a catalog need more bits than some of its types."""
    return [width for width in (8, 16, 32, 64) if code < 1 << width] or [0]


def damaged(chance: Random, wire: bytes) -> bytes:
    """Whole, cut, longer, with a leading zero, or with wrong bytes."""
    way = chance.randrange(6)
    if way == 0:
        return wire[: chance.randrange(len(wire) + 1)]
    if way == 1:
        return wire + chance.randbytes(chance.randrange(1, 4))
    if way == 2:
        place = chance.randrange(len(wire))
        return wire[:place] + bytes([chance.choice([0, 1, 2, 255, chance.randrange(256)])]) + wire[place + 1 :]
    if way == 3 and wire[0] < 255:
        return bytes([wire[0] + 1, 0]) + wire[1:]
    return chance.randbytes(chance.randrange(6)) if way == 4 else wire


def questions(count: int) -> list[Question]:
    """Multiples of a type's code and others, of all lengths."""
    chance, found = Random(1), []
    for _ in range(count):
        a = chance.randrange(1, 1 << chance.choice([4, 8, 12, 16, 24, 32, 60, 64, 90, 240]))
        a <<= chance.choice([0, 0, 0, 9])
        b = a * chance.randrange(1, 1 << chance.choice([1, 8, 16, 40])) + chance.choice([0, 0, 1])
        found.append((damaged(chance, encode_code(b)), a, chance.choice(widths(a))))
    return found


def question_line(wire: bytes, a: int, width: int) -> str:
    divisor = Divisor.of(a, width) if width else Divisor(0, 0, 0, 0)
    constants = f"{width} {divisor.low_bits} {divisor.inverse} {divisor.limit}"
    return f"{wire.hex() or '-'} {encode_code(a).hex()} {constants}"


def answer_line(wire: bytes, a: int, width: int) -> str:
    parsed = parse_code(wire)
    if parsed is None:
        return f"0 0 {0 if width else -1} 0"
    below = int(parsed[0] % a == 0)
    return f"{parsed[1]} {below} {below if width else -1} {int(parsed[0] == a)}"


@pytest.mark.slow
@needs("clang")
def test_damaged_codes_under_the_sanitizers(tmp_path: Path) -> None:
    """30,000 wire forms, whole and damaged, each in memory of its exact size: right answers and no report."""
    program = compile_program(tmp_path, ["clang", "-O1", *SANITIZERS], [CODE, SOURCES / "code_answers.c"])
    asked = questions(30_000)
    done = subprocess.run(
        [str(program)], input="\n".join(question_line(*q) for q in asked), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    wrong = [(q, line) for q, line in zip(asked, done.stdout.splitlines(), strict=True) if line != answer_line(*q)]
    assert not wrong, wrong[:3]
