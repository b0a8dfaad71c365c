"""Resources of a CoAP server, and the files that list them.

* A list of paths, one a line: `/sensor/temp`. A path that ends with a slash only collects what is below it.
* CSV with a column `path` or `path_template`, as the tables of the IPSO Application Framework: a number in braces,
  `{#}`, is instance 0, and rows with the same path are one resource with several resource types. The columns
  `resource_type` and `function_set` may be left out; a function set collects the resources whose first segment is its.
* Whatever `read_hierarchy` reads: a type's path is its name below the path of its first parent, and the only root is
  the path `/`.

A path is below the longest listed one that it begins with.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from genus.codes._encoding import MAX_SEGMENT_BYTES
from genus.codes._hierarchy import read_hierarchy, read_text
from genus.errors import HierarchyError

ROOT = "/"

_PATH_COLUMNS = ("path_template", "path")
_INSTANCE = re.compile(r"\{[^{}/]*\}")
_UNSAFE = re.compile(r"[^\w\-.~!$&'()*+,;=:@]", re.ASCII)
"""What a segment can have only in escapes (RFC 3986), which would count differently in a link and in a request."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A path of a server and the paths directly above it.

    `collects` says that the path is a super-resource only, without a value of its own.
    """

    path: str
    parents: tuple[str, ...] = ()
    resource_type: str = ""
    collects: bool = False

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the path, one Uri-Path option each; the path / has none.

        >>> Resource("/sensor/temp").segments, Resource("/").segments
        (('sensor', 'temp'), ())
        """
        return tuple(filter(None, self.path.split("/")))


def read_resources(source: str | Path) -> tuple[Resource, ...]:
    """Return the resources that a file lists, or the types of a Python module as resources; see the formats above.

    Raises HierarchyError, with file and line, if the source cannot be read, lists nothing, repeats a path or has one
    that cannot be the path of a resource.

    >>> [resource.path for resource in read_resources("numbers")][2:4]
    ['/Number/Complex', '/Number/Complex/Real']
    """
    path = Path(source)
    if path.suffix == ".py" or not (path.exists() or path.suffix):
        return _from_hierarchy(str(source), read_hierarchy(source))
    lines = read_text(path).splitlines(keepends=True)
    first = next(_significant(lines), (1, ""))[1]
    if not first:
        raise HierarchyError(f"{path}: no resources")
    if first.startswith("/"):
        return _from_lines(path, lines)
    header = next(csv.reader([lines[0]]), [])
    if any(column in header for column in _PATH_COLUMNS):
        return _from_rows(path, lines)
    if header[:1] in (["type"], ["Signal"]):
        return _from_hierarchy(str(path), read_hierarchy(path))
    wanted = "a path such as /sensor/temp, or a CSV header with path, path_template or type,parents"
    raise HierarchyError(f"{path}:1: expected {wanted}, not {first!r}")


def _significant(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Return the lines that are neither empty nor comments, with their numbers."""
    stripped = ((number, line.strip()) for number, line in enumerate(lines, 1))
    return ((number, line) for number, line in stripped if line and not line.startswith("#"))


def _from_lines(path: Path, lines: Iterable[str]) -> tuple[Resource, ...]:
    found: dict[str, Resource] = {}
    numbers: dict[str, int] = {}
    for number, line in _significant(lines):
        name = line.removesuffix("/") or ROOT
        _check(f"{path}:{number}", line if "//" in line else name)
        if name in found:
            raise HierarchyError(f"{path}:{number}: path {name!r} is already in line {numbers[name]}")
        found[name] = Resource(name, collects=line != name)
        numbers[name] = number
    return _connect(found)


def _from_rows(path: Path, lines: list[str]) -> tuple[Resource, ...]:
    reader = csv.reader(lines, strict=True)
    found: dict[str, Resource] = {}
    try:
        header = next(reader)
        for row in filter(None, reader):
            if len(row) != len(header):
                raise HierarchyError(f"{path}:{reader.line_num}: {len(row)} columns where the header has {len(header)}")
            _add_row(f"{path}:{reader.line_num}", dict(zip(header, row, strict=True)), found)
    except csv.Error as problem:
        raise HierarchyError(f"{path}:{reader.line_num}: {problem}") from problem
    if not found:
        raise HierarchyError(f"{path}: no resources")
    return _connect(found)


def _add_row(where: str, row: Mapping[str, str], found: dict[str, Resource]) -> None:
    """Add the resource of a row, after its function set; types with the same path are one resource."""
    name = _INSTANCE.sub("0", next(row[column] for column in _PATH_COLUMNS if column in row))
    _check(where, name)
    above = "/" + name.split("/")[1]
    if row.get("function_set") and above not in found:
        found[above] = Resource(above, collects=True)
    known = found.get(name)
    types = (known.resource_type if known else "").split()
    kind = row.get("resource_type", "")
    found[name] = Resource(name, resource_type=" ".join(types + [kind] * (kind not in types)).strip())


def _check(where: str, path: str) -> None:
    problem = _problem(path)
    if problem:
        raise HierarchyError(f"{where}: {problem}")


def _problem(path: str) -> str | None:
    """Why a text is not the path of a resource, if it is not."""
    if not path.startswith("/"):
        return f"path {path!r} does not begin with a slash"
    segments = path.split("/")[1:] if path != ROOT else []
    unsafe = next((found for found in map(_UNSAFE.search, segments) if found), None)
    if unsafe:
        return f"path {path!r} has {unsafe[0]!r}; a segment has letters, digits and -._~!$&'()*+,;=:@"
    if any(segment in ("", ".", "..") for segment in segments):
        return f"path {path!r} has a segment that is empty, a dot or two dots"
    long = next((segment for segment in segments if len(segment) > MAX_SEGMENT_BYTES), None)
    return f"path {path[:20]!r}... has a segment of {len(long)} bytes; 255 is the most" if long else None


def _connect(found: Mapping[str, Resource]) -> tuple[Resource, ...]:
    """Return the resources with the nearest listed paths above them."""
    return tuple(replace(resource, parents=_nearest(resource.path, found)) for resource in found.values())


def _nearest(path: str, known: Mapping[str, Resource]) -> tuple[str, ...]:
    above = path
    while above not in ("", ROOT):
        above = above.rpartition("/")[0]
        if (above or ROOT) in known:
            return (above or ROOT,)
    return ()


def _from_hierarchy(source: str, hierarchy: Mapping[str, tuple[str, ...]]) -> tuple[Resource, ...]:
    only_root = sum(not parents for parents in hierarchy.values()) == 1
    paths: dict[str, str] = {}
    for name, parents in hierarchy.items():
        paths[name] = ROOT if only_root and not parents else _path_below(name, parents, paths)
        _check(f"{source}: type {name!r}", paths[name])
    return tuple(Resource(paths[name], tuple(map(paths.__getitem__, above))) for name, above in hierarchy.items())


def _path_below(name: str, parents: tuple[str, ...], paths: Mapping[str, str]) -> str:
    """Return a type's path; where names are dotted paths, as in VSS, only the last part is new."""
    if not parents:
        return f"/{name}"
    return f"{paths[parents[0]].removesuffix('/')}/{name.removeprefix(parents[0] + '.')}"
