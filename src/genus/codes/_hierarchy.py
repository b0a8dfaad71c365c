"""Hierarchies of types (name -> parents): topological orders, and reading one from a file or from Python classes.

In a topological order parents come before their children. A hierarchy is read from

* CSV with the header `type,parents` or `type,bases`; several parents are separated by `|`, `;` or spaces.
* The flat CSV of the COVESA Vehicle Signal Specification: a dotted path is a type, its prefix the parent.
* A Python module, by name or by the path of a `.py` file: the classes found in it (imported ones too, `object`
  never); a class's parents are the nearest classes above it that were found.
"""

import csv
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType

from genus.errors import HierarchyError

Hierarchy = Mapping[str, Sequence[str]]


def order_breadth_first(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Level by level, siblings together: children follow in the order of their first-named parent.

    `known` are parents outside the hierarchy. HierarchyError if there is a cycle or a parent is unknown.

    >>> order_breadth_first({"C": ["A"], "E": ["B"], "A": [], "B": [], "D": ["A"]})
    ['A', 'B', 'C', 'D', 'E']
    """
    order = order_acyclic_part(hierarchy, known)
    if len(order) < len(hierarchy):
        stuck = next(name for name in hierarchy if name not in set(order))
        raise HierarchyError(f"{stuck!r} is in or below a cycle of parents")
    return order


def order_acyclic_part(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Return the breadth-first order of all types that are not in or below a cycle.

    >>> order_acyclic_part({"A": [], "B": ["A", "C"], "C": ["B"]})
    ['A']
    """
    children = children_of(hierarchy, known)
    waiting = {name: sum(parent in hierarchy for parent in parents) for name, parents in hierarchy.items()}
    order = [name for name, count in waiting.items() if count == 0]
    for name in order:
        for child in children[name]:
            waiting[child] -= 1
            if waiting[child] == 0:
                order.append(child)
    return order


def order_heaviest_first(hierarchy: Hierarchy, known: Collection[str] = ()) -> list[str]:
    """Return the types with most types below them first; among equals, breadth first.

    >>> order_heaviest_first({"A": [], "B": ["A"], "C": ["A"], "D": ["C"], "E": ["C"]})
    ['A', 'C', 'B', 'D', 'E']
    """
    order = order_breadth_first(hierarchy, known)
    below = _reachable(order, children_of(hierarchy, known))
    return sorted(order, key=lambda name: -below[name].bit_count())


def children_of(hierarchy: Hierarchy, known: Collection[str] = ()) -> dict[str, list[str]]:
    """Each type's children, in the order of the hierarchy.

    >>> children_of({"A": [], "B": ["A"]})
    {'A': ['B'], 'B': []}
    """
    children: dict[str, list[str]] = {name: [] for name in hierarchy}
    for name, parents in hierarchy.items():
        for parent in parents:
            if parent in children:
                children[parent].append(name)
            elif parent not in known:
                raise HierarchyError(f"parent {parent!r} of {name!r} is unknown")
    return children


def with_ancestors(hierarchy: Hierarchy, names: Iterable[str]) -> set[str]:
    """Return the named types and all above them.

    >>> sorted(with_ancestors({"A": [], "B": ["A"], "C": ["A"]}, ["B"]))
    ['A', 'B']
    """
    found: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name in hierarchy and name not in found:
            found.add(name)
            stack.extend(hierarchy[name])
    return found


def _reachable(order: Sequence[str], children: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """For each type a bit set of itself and everything below it, so that shared descendants count once."""
    below: dict[str, int] = {}
    for position, name in reversed(list(enumerate(order))):
        below[name] = 1 << position
        for child in children[name]:
            below[name] |= below[child]
    return below


# -- reading -----------------------------------------------------------------------------------------------------------

_HEADERS = (["type", "parents"], ["type", "bases"])
_VSS_HEADER = ["Signal", "Type"]
_STAMP = "__genus_stamp__"
"""The name in a module that `load_module` made: the time and size that its file had."""

Row = tuple[int, str, tuple[str, ...]]


def read_hierarchy(source: str | Path) -> Mapping[str, tuple[str, ...]]:
    """Read the parents of each type, parents first, from a CSV file, a `.py` file or a module name.

    Raises HierarchyError, with file and line, if the source cannot be read or is not a hierarchy.

    >>> read_hierarchy("numbers")["Integral"]
    ('Rational',)
    """
    path = Path(source)
    if path.suffix != ".py" and (path.suffix == ".csv" or path.exists()):
        return _from_rows(str(path), list(_rows(path)))
    return hierarchy_of(load_module(source))


def hierarchy_of(module: ModuleType) -> Mapping[str, tuple[str, ...]]:
    """Return the hierarchy of the classes in a module; HierarchyError if there are none."""
    found = {value for _, value in inspect.getmembers(module, inspect.isclass)} - {object}
    ordered = sorted(found, key=lambda cls: (len(cls.__mro__), _name(cls, module)))
    rows = [(0, _name(cls, module), tuple(_name(base, module) for base in _nearest(cls, found))) for cls in ordered]
    return _from_rows(module.__name__, rows)


def _name(cls: type, module: ModuleType) -> str:
    return cls.__qualname__ if cls.__module__ == module.__name__ else f"{cls.__module__}.{cls.__qualname__}"


def _nearest(cls: type, found: set[type]) -> dict[type, None]:
    """Return the nearest classes above one that were found, each once."""
    nearest: dict[type, None] = {}
    for base in cls.__bases__:
        nearest.update({base: None} if base in found else _nearest(base, found))
    return nearest


def load_module(source: str | Path) -> ModuleType:
    """Import a Python module by name, or a `.py` file as one.

    A file is run once, and again only if it has changed since this function ran it: if the program itself, or a module
    that it imported, comes from that file, this is it. Otherwise there would be two classes of one name, and events of
    one are not delivered to subscribers of the other.

    Raises HierarchyError that says why it cannot be imported.

    >>> load_module("numbers").__name__
    'numbers'
    """
    path = Path(source)
    if path.suffix != ".py":
        return _import(str(source))
    return _find_loaded(path) or _load(path)


def _find_loaded(path: Path) -> ModuleType | None:
    """Return the module that was made from a file as it is now, under whatever name; None if there is none."""
    modules = [module for module in list(sys.modules.values()) if _is_from(module, path)]
    return next((module for module in modules if _is_current(module, path)), None)


def _is_current(module: ModuleType, path: Path) -> bool:
    """Whether a file is as it was when `load_module` ran it; modules that the program imported stay as they are."""
    return vars(module).get(_STAMP) in (None, _stamp(path))


def _stamp(path: Path) -> tuple[int, int] | None:
    return (found.st_mtime_ns, found.st_size) if path.exists() and (found := path.stat()) else None


def _is_from(module: ModuleType, path: Path) -> bool:
    """Return whether a module was made from a file, whatever links lead to it."""
    try:
        return os.path.samefile(getattr(module, "__file__", None) or "", path)
    except (OSError, TypeError):
        return False


def _load(path: Path) -> ModuleType:
    """Run a file; its module is in `sys.modules` while and after it runs, as imported ones are."""
    spec = importlib.util.spec_from_file_location(_free_name(path), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)[_STAMP] = _stamp(path)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[spec.name]
        raise HierarchyError(f"{path}: cannot be imported: {_first_line(problem)}") from problem
    return module


def _free_name(path: Path) -> str:
    """Return the name of a file's module: its stem, unless a module that the program imported has that name."""
    known = sys.modules.get(path.stem)
    is_own = known is None or (_STAMP in vars(known) and _is_from(known, path))
    return path.stem if is_own else str(path.with_suffix(""))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as problem:
        if os.path.isfile(name):
            raise HierarchyError(f"{name}: its ending is not .py, so it is not run as Python") from problem
        why = _first_line(problem)
        raise HierarchyError(f"{name}: neither a file nor a module that can be imported: {why}") from problem


def _first_line(problem: BaseException) -> str:
    text = problem.strerror if isinstance(problem, OSError) else str(problem)
    return (text or type(problem).__name__).splitlines()[0]


def _rows(path: Path) -> Iterator[Row]:
    reader = csv.reader(read_text(path).splitlines(keepends=True), strict=True)
    try:
        header = next(reader, [])
        if header not in _HEADERS and header[:2] != _VSS_HEADER:
            raise HierarchyError(f"{path}:1: expected the header type,parents or that of VSS, not {','.join(header)!r}")
        for row in filter(None, reader):
            if len(row) != len(header):
                raise HierarchyError(f"{path}:{reader.line_num}: {len(row)} columns where the header has {len(header)}")
            yield reader.line_num, row[0], _split_parents(row[1]) if header in _HEADERS else _dotted_parent(row[0])
    except csv.Error as problem:
        raise HierarchyError(f"{path}:{reader.line_num}: {problem}") from problem


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file; HierarchyError, with file and line, if it cannot be read or is none."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise HierarchyError(f"{path}: {problem.strerror}") from problem
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise HierarchyError(f"{path}:{line}: not UTF-8 text") from problem


def _dotted_parent(path: str) -> tuple[str, ...]:
    parent = path.rpartition(".")[0]
    return (parent,) if parent else ()


def _split_parents(parents: str) -> tuple[str, ...]:
    return tuple(filter(None, re.split(r"[|;\s]+", parents)))


def _from_rows(source: str, rows: list[Row]) -> Mapping[str, tuple[str, ...]]:
    if not rows:
        raise HierarchyError(f"{source}: no types")
    lines = {name: line for line, name, _ in reversed(rows)}
    for line, name, parents in rows:
        problem = _problem(line, name, parents, lines)
        if problem:
            raise HierarchyError(f"{_locate(source, line)}: {problem}")
    hierarchy = {name: parents for _, name, parents in rows}
    order = order_acyclic_part(hierarchy)
    for name in hierarchy.keys() - set(order):
        raise HierarchyError(f"{_locate(source, lines[name])}: {name!r} is in or below a cycle of parents")
    return MappingProxyType({name: hierarchy[name] for name in order})


def _problem(line: int, name: str, parents: tuple[str, ...], lines: Mapping[str, int]) -> str | None:
    if not name:
        return "a type needs a name"
    if lines[name] != line:
        return f"type {name!r} is already in line {lines[name]}"
    if len(set(parents)) < len(parents):
        return f"type {name!r} names a parent twice"
    return next((f"parent {parent!r} of {name!r} is unknown" for parent in parents if parent not in lines), None)


def _locate(source: str, line: int) -> str:
    return f"{source}:{line}" if line else source
