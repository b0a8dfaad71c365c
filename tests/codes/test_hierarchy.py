"""Reading hierarchies: what is understood, and one clear line for what is not."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from genus.codes import load_module, read_hierarchy
from genus.codes._hierarchy import children_of, order_heaviest_first
from genus.errors import HierarchyError


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("separator", ["|", ";", " ", " ; "])
@pytest.mark.parametrize("header", ["type,parents", "type,bases"])
def test_parents_may_follow_and_be_separated_in_three_ways(tmp_path: Path, separator: str, header: str) -> None:
    path = write(tmp_path / "h.csv", f"{header}\nC,A{separator}B\nA,\nB,A\n\n")
    assert dict(read_hierarchy(path)) == {"A": (), "B": ("A",), "C": ("A", "B")}
    assert list(read_hierarchy(path)) == ["A", "B", "C"]


def test_vehicle_signals_are_dotted_paths(tmp_path: Path) -> None:
    path = write(tmp_path / "vss.csv", 'Signal,Type,Desc\nVehicle,branch,"two\nlines"\nVehicle.Speed,sensor,\n')
    assert dict(read_hierarchy(path)) == {"Vehicle": (), "Vehicle.Speed": ("Vehicle",)}


def test_classes_of_a_file_without_object(tmp_path: Path) -> None:
    classes = "class A: pass\nclass B(A, OrderedDict): pass\nclass C(B): pass\nalias = C\n"
    source = f"from collections import OrderedDict\n{classes}"
    path = write(tmp_path / "events.py", source)
    assert dict(read_hierarchy(path)) == {
        "A": (),
        "collections.OrderedDict": (),
        "B": ("A", "collections.OrderedDict"),
        "C": ("B",),
    }


def test_a_module_by_name_agrees_with_issubclass() -> None:
    import numbers

    hierarchy = read_hierarchy("numbers")
    assert all(
        issubclass(getattr(numbers, n), getattr(numbers, p)) for n, ps in hierarchy.items() if "." not in n for p in ps
    )
    assert hierarchy["Number"] == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "h.csv:1: expected the header"),
        ("name,parent\nA,\n", "h.csv:1: expected the header"),
        ("type,parents\n", "h.csv: no types"),
        ("type,parents\nA,\nB,X\n", "h.csv:3: parent 'X' of 'B' is unknown"),
        ("type,parents\nA,\nB,C\nC,B\n", r"h.csv:[34]: '[BC]' is in or below a cycle"),
        ("type,parents\nA,\nA,\n", "h.csv:3: type 'A' is already in line 2"),
        ("type,parents\nA\n", "h.csv:2: 1 columns where the header has 2"),
        ("type,parents\nA,,\n", "h.csv:2: 3 columns"),
        ("type,parents\n,\n", "h.csv:2: a type needs a name"),
        ("type,parents\nA,\nB,A;A\n", "h.csv:3: type 'B' names a parent twice"),
        ('type,parents\n"A,\n', "h.csv:2: "),
        (b"type,parents\nA,\n\xff,\n", "h.csv:3: not UTF-8"),
        ("Signal,Type\nVehicle.Speed,sensor\n", "h.csv:2: parent 'Vehicle' of 'Vehicle.Speed' is unknown"),
    ],
)
def test_malformed_input_is_one_line_that_says_where(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read_hierarchy(write(tmp_path / "h.csv", text))


def test_what_cannot_be_found_or_imported(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match="neither a file nor a module"):
        read_hierarchy("no_such_module_anywhere")
    with pytest.raises(HierarchyError, match=r"notes\.txt: its ending is not \.py"):
        load_module(write(tmp_path / "notes.txt", ""))
    with pytest.raises(HierarchyError, match=r"missing\.csv: No such file"):
        read_hierarchy(tmp_path / "missing.csv")
    with pytest.raises(HierarchyError, match="cannot be imported: division by zero"):
        read_hierarchy(write(tmp_path / "broken.py", "1 / 0\n"))


def test_a_file_that_leaves_or_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match=r"leaves\.py: cannot be imported: 3$"):
        load_module(write(tmp_path / "leaves.py", "import sys\nsys.exit(3)\n"))
    with pytest.raises(HierarchyError, match=r"missing\.py: cannot be imported: No such file or directory$"):
        load_module(tmp_path / "missing.py")


def test_a_file_is_a_module_and_replaces_no_other_module(tmp_path: Path) -> None:
    """Data classes with annotations as text look their module up by name."""
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n"
    assert load_module(write(tmp_path / "own_name.py", text)).__name__ == "own_name"
    assert load_module(write(tmp_path / "json.py", text)).__name__ == str(tmp_path / "json")
    import json

    assert hasattr(json, "dumps")


def test_a_file_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever path it is named, and also if the program imported it or is it."""
    program = write(tmp_path / "program.py", PROGRAM)
    assert subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout == "True\n"
    first = load_module(write(tmp_path / "again.py", "class A: ...\n"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for path in ("again.py", tmp_path / "again.py", tmp_path / "link" / "again.py", f"../{tmp_path.name}/again.py"):
        assert load_module(path) is first
    write(tmp_path / "imported_before.py", "class A: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_module("imported_before.py") is importlib.import_module("imported_before")


PROGRAM = """
from genus.codes import load_module
class A: ...
print(load_module(__file__).A is A)
"""


def test_files_of_one_name_are_modules_of_their_own(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "same.py", "class A: ...\n")
    one, two = (load_module(tmp_path / folder / "same.py") for folder in ("one", "two"))
    assert one.A is not two.A
    assert [load_module(tmp_path / folder / "same.py") for folder in ("one", "two")] == [one, two]


def test_heaviest_first_counts_each_type_below_once() -> None:
    """Of a diamond too; an unknown parent is refused, unless it is known from before."""
    diamond = {"A": [], "X": [], "B": ["A"], "C": ["A"], "D": ["B", "C"], "Y": ["X"], "Z": ["X"], "Q": ["X"]}
    assert order_heaviest_first(diamond) == ["A", "X", "B", "C", "Y", "Z", "Q", "D"]
    assert children_of({"B": ["A"], "C": ["B"]}, known={"A"}) == {"B": ["C"], "C": []}
    assert order_heaviest_first({"B": ["A"], "C": ["B"]}, known={"A"}) == ["B", "C"]
    for function in (children_of, order_heaviest_first):
        with pytest.raises(HierarchyError, match="'A'"):
            function({"B": ["A"]})


def test_a_file_that_has_changed_is_run_again(tmp_path: Path) -> None:
    path = write(tmp_path / "changing.py", "class A: ...\n")
    first = load_module(path)
    write(path, "class A: ...\nclass B(A): ...\n")
    second = load_module(path)
    assert second is load_module(path)
    assert (second is first, hasattr(second, "B"), second.__name__) == (False, True, "changing")


def test_a_type_is_below_the_nearest_classes_that_its_module_has(tmp_path: Path) -> None:
    source = "class A: ...\nclass B(A): ...\nclass C(B): ...\nclass D(B, A): ...\ndel B\n"
    assert dict(read_hierarchy(write(tmp_path / "nearest.py", source))) == {"A": (), "C": ("A",), "D": ("A",)}


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert dict(read_hierarchy(write(tmp_path / "h.csv", b"\xef\xbb\xbftype,parents\nA,\n"))) == {"A": ()}
