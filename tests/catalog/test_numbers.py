"""The numbers of a catalog: room for kinds when it grows, none in a whole hierarchy, and codes that a file can hold."""

import pytest

from genus import Event
from genus.catalog import Catalog, _records
from genus.catalog._records import MAX_CODE_DIGITS, ROOT, NumberAllocator, TypeRecord, TypeTable
from genus.errors import CatalogConflict, HierarchyError

from .declaring import event_type
from .declaring import kind as kind_class


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


def test_a_catalog_refuses_what_no_file_can_hold_and_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_records, "CODE_END", 1000)
    catalog = Catalog()
    catalog.register(event_type("First"))
    text = catalog.text()
    wide = event_type("Wide", Event, *(kind_class(f"Kind{number}") for number in range(6)))
    (finding,) = catalog.check(wide)
    assert finding.status == "refused"
    assert "and the types with it cannot be numbered: cannot add 'Wide': its code has more than" in finding.text
    with pytest.raises(CatalogConflict, match="cannot add 'Wide': its code has more than 4000 digits"):
        catalog.register(wide)
    assert catalog.text() == text
    assert repr(catalog) == "<Catalog of 2 types in 1 families>"
    assert [finding.status for finding in catalog.check(event_type("Small"))] == ["added"]


def blocks(catalog: Catalog, name: str) -> list[tuple[int, int]]:
    return [(block.value, block.size) for block in catalog.entries[name].blocks]


def test_two_programs_that_register_the_same_types_give_the_same_numbers() -> None:
    """Of any version: `Event` has half the event tags, a family room for 16 types, and one that grows more."""
    catalog = Catalog()
    first = event_type("First")
    second = event_type("Second", first)
    third = event_type("Third", second)
    catalog.register(first)
    catalog.register(second, third)
    assert {name: catalog.code(name) for name in catalog.types} == {"Event": 2, "First": 4, "Second": 8, "Third": 16}
    found = {name: blocks(catalog, name) for name in catalog.types}
    assert found == {"Event": [(8192, 8192)], "First": [(8208, 16)], "Second": [(8216, 8)], "Third": [(8217, 1)]}
    catalog.register(*(event_type(f"Many{number}", third) for number in range(20)))
    assert blocks(catalog, "First") == [(8208, 16), (8224, 16)]
    assert blocks(catalog, "Second") == [(8216, 8), (8212, 4), (8224, 16)]
    assert blocks(catalog, "Third") == [(8217, 1), (8220, 4), (8218, 2), (8212, 4), (8224, 16)]
    assert [catalog.code(f"Many{number}") // 16 for number in range(8)] == [2, 3, 5, 7, 11, 13, 17, 19]
    assert [catalog.etag(f"Many{number}") for number in range(5)] == [8233, 8232, 8231, 8230, 8229]
    catalog.register(event_type("Tagged", tagged=("place", "time")))
    assert blocks(catalog, "Tagged") == [(8256, 64)]
