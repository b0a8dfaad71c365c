"""The numbers of a catalog: room for kinds when it grows, none in a whole hierarchy, and codes that a file can hold."""

import pytest

from genus.catalog._records import MAX_CODE_DIGITS, ROOT, NumberAllocator, TypeRecord, TypeTable
from genus.errors import HierarchyError


def allocate(numbers: NumberAllocator, table: TypeTable, *types: TypeRecord) -> None:
    for declared in types:
        table.put(declared)
    numbers.allocate(types, table)


def kind(name: str, *parents: str) -> TypeRecord:
    return TypeRecord(name, parents, True, None, {})


def line(name: str, *parents: str) -> TypeRecord:
    return TypeRecord(name, parents, False, name, {})


def begin() -> tuple[NumberAllocator, TypeTable]:
    numbers, table = NumberAllocator(), TypeTable({}, {ROOT: {}})
    allocate(numbers, table, TypeRecord(ROOT, (), False, ROOT, {}))
    return numbers, table


def test_a_whole_hierarchy_uses_all_small_primes() -> None:
    numbers, table = begin()
    allocate(numbers, table, kind("K"), *(line(f"T{i}", ROOT) for i in range(4)))
    assert dict(numbers.codes.codes) == {ROOT: 2, "K": 3, "T0": 4, "T1": 10, "T2": 14, "T3": 22}


def test_types_that_come_later_leave_small_primes_to_kinds() -> None:
    numbers, table = begin()
    allocate(numbers, table, kind("K"))
    allocate(numbers, table, line("T0", ROOT))
    allocate(numbers, table, line("T1", ROOT))
    allocate(numbers, table, kind("L"))
    assert dict(numbers.codes.codes) == {ROOT: 2, "K": 3, "T0": 4, "T1": 2 * 31, "L": 5}


def test_a_code_that_no_file_can_hold_is_refused_and_nothing_changes() -> None:
    """Each kind of a chain has one factor 3 more."""
    numbers, table = begin()
    chain = [kind("K0"), *(kind(f"K{i}", f"K{i - 1}") for i in range(1, 9000))]
    with pytest.raises(HierarchyError, match=rf"'K\d+': its code has more than {MAX_CODE_DIGITS} digits"):
        allocate(numbers, table, *chain)
    assert list(numbers.codes.codes) == [ROOT]
