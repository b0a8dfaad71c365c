"""Catalog files: their text, and how they are read, locked and replaced on disk.

The text is JSON with one line per type and one per attribute, the same bytes for the same catalog. Codes are always
written as decimal text, because JSON readers that keep numbers as floats would lose the larger ones.

Version 2 adds the names of renamed attributes, version 3 types without event tags, version 4 deprecated attributes. A
catalog is written in the earliest
version that holds it, which earlier releases read; of later ones they say that they cannot.

A file is replaced by renaming a complete one over it, so a reader never sees a partial file and needs no lock. Writers
take an advisory lock (flock) on a sidecar file, which the kernel releases when its holder ends. The sidecar is not
removed: otherwise two writers could lock two different files.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NoReturn

import msgspec

from genus.catalog._records import MAX_CODE_DIGITS, ROOT, NumberAllocator, TaggedNames, TypeEntry, TypeRecord, TypeTable
from genus.codes import EtagSpace, LinePrimes
from genus.codes.types import Block, CodeEntry, Grant
from genus.errors import CatalogDamaged, CatalogUnavailable, HierarchyError
from genus.model.internal import MAX_TAGGED, RESERVED_WORDS, RETYPABLE, is_attribute_name, is_encodable, parse_type
from genus.model.types import Attribute, AttributeType, IntType, Vector

POLL_SECONDS = 0.01


def real_path(path: str | os.PathLike[str]) -> str:
    """Return a path with symbolic links resolved, so that the file is replaced and not the link."""
    return os.path.realpath(path)


def read_text(path: str) -> str | None:
    """Return the text of a file, or None if there is no such file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise _unavailable(path, "read", problem) from problem
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise CatalogDamaged(f"{path}: line {line}: not UTF-8 text") from problem


def replace_text(path: str, text: str) -> None:
    """Replace the text of a file atomically; it is on disk on return. Call it under the lock."""
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name}.new")
    try:
        _write(beside, text.encode(), _mode_of(path))
        os.replace(beside, path)
        _sync_folder(folder)
    except OSError as problem:
        _remove(beside)
        raise _unavailable(path, "written", problem) from problem


@contextmanager
def lock_file(path: str | os.PathLike[str], timeout: float) -> Iterator[None]:
    """Hold the lock of a file (a sidecar with the suffix `.lock`) for the length of a `with` block.

    Other processes and threads that lock the same file wait up to their `timeout`, in seconds, and then get
    CatalogUnavailable.
    """
    import fcntl  # here, so that platforms without it can still use catalogs in memory

    path = real_path(path)
    lock = f"{path}.lock"
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        raise _unavailable(lock, "opened", problem) from problem
    try:
        _acquire(file, path, timeout)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a forked child may hold the descriptor open
    finally:
        os.close(file)


def _acquire(file: int, path: str, timeout: float) -> None:
    import fcntl

    deadline = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise CatalogUnavailable(
                    f"{path}: another process has held {path}.lock for {timeout:g} s; try again, or wait longer"
                ) from None
            time.sleep(POLL_SECONDS)
        except OSError as problem:
            raise _unavailable(f"{path}.lock", "locked", problem) from problem


def _write(path: str, data: bytes, mode: int | None) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    with open(file, "wb") as out:
        if mode is not None:
            os.fchmod(file, mode)
        out.write(data)
        out.flush()
        os.fsync(file)


def _mode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        return


def _unavailable(path: str, verb: str, problem: OSError) -> CatalogUnavailable:
    return CatalogUnavailable(f"{path}: cannot be {verb}: {problem.strerror or problem}")


FORMAT: Literal["genus catalog"] = "genus catalog"
STATEMENT: Literal["genus type"] = "genus type"
"""What a text says that it is: a catalog, or the statement of one type."""
VERSION, VERSION_WITH_NAMES, VERSION_WITHOUT_ETAGS, VERSION_WITH_DEPRECATED = VERSIONS = 1, 2, 3, 4


class Damage(Exception):
    """A text that is not a catalog: where it is wrong, and how."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__(f"{where}: {text}")


class _Type(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    parents: tuple[str, ...]
    code: Annotated[str, msgspec.Meta(pattern="^[1-9][0-9]*$", max_length=MAX_CODE_DIGITS)] = ""
    kind: bool = False
    etags: tuple[tuple[int, int], ...] = ()
    attributes: dict[str, Literal["required", "optional"]] = {}
    deprecated: str | None = None


class _Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    type: str | dict[str, Any]
    unit: str | None = None
    names: tuple[str, ...] = ()
    deprecated: str | None = None


class _Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: str
    vector: tuple[_Attribute, ...]
    tagged: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["genus catalog", "genus type"]
    version: int
    types: tuple[_Type, ...]
    families: tuple[_Family, ...]


# -- writing -----------------------------------------------------------------------------------------------------------


def format_catalog(entries: Iterable[TypeEntry], vectors: Iterable[Vector], tagged: Mapping[str, TaggedNames]) -> str:
    entries, vectors = tuple(entries), tuple(vectors)
    types = ",\n".join(f"    {_line(_type_of(entry))}" for entry in entries)
    version = _version_for(entries, vectors)
    families = ",\n".join(_format_family(vector, tagged.get(vector.scope, ())) for vector in vectors)
    head = f'  "format": "{FORMAT}",\n  "version": {version},\n'
    return f'{{\n{head}  "types": [\n{types}\n  ],\n  "families": [\n{families}\n  ]\n}}\n'


def format_statement(table: TypeTable) -> bytes:
    """Return the text of a catalog without numbers, in one line: the same bytes for the same types."""
    types = [
        _Type(
            each.name,
            each.parents,
            kind=each.kind,
            attributes={name: "required" if must else "optional" for name, must in each.attributes.items()},
        )
        for each in table.types.values()
    ]
    families = [
        _Family(
            name,
            tuple(_Attribute(a.name, a.type.describe(), a.unit, a.names) for a in vector.values()),
            table.tagged.get(name, ()),
        )
        for name, vector in table.vectors.items()
    ]
    return msgspec.json.encode(_File(STATEMENT, VERSION, tuple(types), tuple(families)))


def _version_for(entries: Iterable[TypeEntry], vectors: Iterable[Vector]) -> int:
    """Return the earliest version that holds all this."""
    if any(each.deprecated is not None for vector in vectors for each in vector):
        return VERSION_WITH_DEPRECATED
    if not all(entry.kind or entry.blocks for entry in entries):
        return VERSION_WITHOUT_ETAGS
    return VERSION_WITH_NAMES if any(each.names for vector in vectors for each in vector) else VERSION


def _format_family(vector: Vector, tagged: TaggedNames) -> str:
    lines = ",\n".join(f"      {_line(_attribute_of(attribute))}" for attribute in vector)
    name = _line(vector.scope) + (f', "tagged": {_line(tagged)}' if tagged else "")
    return f'    {{"name": {name}, "vector": [\n{lines}\n    ]}}'


def _type_of(entry: TypeEntry) -> dict[str, Any]:
    found: dict[str, Any] = {"name": entry.name, "parents": list(entry.parents), "code": str(entry.code)}
    if entry.kind:
        found["kind"] = True
    else:
        found["etags"] = [[block.value, block.mask] for block in entry.blocks]
        found["attributes"] = {
            name: "required" if required else "optional" for name, required in entry.attributes.items()
        }
    if entry.deprecated is not None:
        found["deprecated"] = entry.deprecated
    return found


def _attribute_of(attribute: Attribute) -> dict[str, Any]:
    unit = {} if attribute.unit is None else {"unit": attribute.unit}
    names = {"names": list(attribute.names)} if attribute.names else {}
    deprecated = {} if attribute.deprecated is None else {"deprecated": attribute.deprecated}
    return {"name": attribute.name, "type": attribute.type.describe(), **unit, **names, **deprecated}


def _line(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if is_encodable(text) else json.dumps(value)


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_catalog(text: str) -> tuple[TypeTable, NumberAllocator]:
    """Return the type table and the numbers of a catalog text; Damage says what is wrong and where."""
    file = _read_file(_read_json(text), FORMAT)
    for index, stored in enumerate(file.types):
        if not stored.code:
            raise Damage(f"types[{index}]", "Object missing required field `code`")
    table = _read_table(file)
    return table, _restore_numbers(file.types, table)


def parse_statement(text: str) -> TypeTable:
    """The type table of a statement: the text of a catalog without numbers; Damage says what is wrong and where."""
    file = _read_file(_read_json(text), STATEMENT)
    for index, stored in enumerate(file.types):
        if stored.code or stored.etags:
            raise Damage(f"types[{index}]", "has numbers, which only a catalog gives")
    return _read_table(file)


def _read_table(file: _File) -> TypeTable:
    table = TypeTable({}, {})
    for index, family in enumerate(file.families):
        _read_family(table, family, f"families[{index}]")
    for index, stored in enumerate(file.types):
        _read_type(table, stored, f"types[{index}]", file)
    for index, family in enumerate(file.families):
        if getattr(table.types.get(family.name), "family", None) != family.name:
            raise Damage(f"families[{index}].name", f"{family.name!r} is no type directly below {ROOT}")
        _read_tagged(table, family, f"families[{index}].tagged")
    return table


def _read_json(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except json.JSONDecodeError as problem:
        raise Damage(f"line {problem.lineno} column {problem.colno}", f"not JSON: {problem.msg}") from None
    except RecursionError:
        raise Damage("top", "nested too deeply") from None
    except ValueError as problem:
        raise Damage("top", str(problem)) from None


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Damage(f"key {twice!r}", f"is twice in one object, that of {found.get('name', 'the file')!r}")
    return found


def _read_file(data: object, form: str) -> _File:
    version = data.get("version", VERSION) if isinstance(data, dict) else VERSION
    if version not in VERSIONS:
        raise Damage("version", f"is {version!r}; this Genus reads versions {VERSIONS[0]} to {VERSIONS[-1]}")
    try:
        file = msgspec.convert(data, _File)
    except msgspec.ValidationError as problem:
        what, _, path = str(problem).partition(" - at ")
        raise Damage(path.strip("`").removeprefix("$.") or "top", what) from None
    if file.format != form:
        raise Damage("format", f"Invalid enum value {file.format!r}")
    return file


def _read_family(table: TypeTable, family: _Family, where: str) -> None:
    if family.name in table.vectors:
        raise Damage(f"{where}.name", f"family {family.name!r} is there already")
    vector: dict[str, Attribute] = {}
    for bit, stored in enumerate(family.vector):
        at = f"{where}.vector[{bit}]"
        if not is_attribute_name(stored.name) or stored.name in vector:
            why = "is there already" if stored.name in vector else "cannot name an attribute"
            raise Damage(f"{at}.name", f"{stored.name!r} {why}")
        vector[stored.name] = Attribute(
            stored.name, _attribute_type(stored, at), True, stored.unit, stored.names, stored.deprecated
        )
    table.vectors[family.name] = {}
    for bit, attribute in enumerate(vector.values()):
        _check_names(attribute, vector, table.renamed.get(family.name, {}), f"{where}.vector[{bit}].names")
        table.put_attribute(family.name, attribute)


def _check_names(attribute: Attribute, vector: Mapping[str, Attribute], taken: Mapping[str, str], where: str) -> None:
    """The names of a renamed attribute: several, each once, the present one among them, the others of no other one."""
    names = attribute.names
    if names and (attribute.name not in names or len(names) < 2 or len(set(names)) < len(names)):
        raise Damage(where, f"all names of {attribute.name!r}, each once")
    for old in attribute.former:
        if not is_attribute_name(old) or old in vector or old in taken:
            why = "cannot name an attribute" if not is_attribute_name(old) else "is the name of another attribute"
            raise Damage(where, f"{old!r} {why}")


def _read_tagged(table: TypeTable, family: _Family, where: str) -> None:
    """The tagged attributes of a family: few, each once and optional in its root; the family of `Event` has none."""
    required = table.attributes_of(family.name) if family.name != ROOT else {}
    if len(family.tagged) > MAX_TAGGED or len(set(family.tagged)) < len(family.tagged):
        raise Damage(where, f"up to {MAX_TAGGED} attributes, each once")
    for name in family.tagged:
        if required.get(name) is not False:
            raise Damage(where, f"{name!r} is no optional attribute of a type directly below {ROOT}")
    table.tagged |= {family.name: family.tagged} if family.tagged else {}


def _attribute_type(stored: _Attribute, where: str) -> AttributeType:
    try:
        found = parse_type(stored.type)
    except ValueError as problem:
        raise Damage(f"{where}.type", str(problem)) from None
    if found.describe() != stored.type:
        raise Damage(f"{where}.type", f"{stored.type!r} is not how {found.describe()!r} is written")
    return found


def _read_type(table: TypeTable, stored: _Type, where: str, file: _File) -> None:
    _check_parents(table, stored, where, file)
    line = stored.parents[0] if stored.parents and not stored.kind else None
    family = None if stored.kind else table.family_of(stored.name, line)
    own = {name: word == "required" for name, word in stored.attributes.items()}
    if family is not None:
        _check_attributes(table, own, line, family, where)
    table.put(TypeRecord(stored.name, stored.parents, stored.kind, family, own, stored.deprecated))


def _check_parents(table: TypeTable, stored: _Type, where: str, file: _File) -> None:
    """A type's name is new, its parents came before it, all but the first are kinds, and only types have event tags."""

    def wrong(field: str, text: str) -> NoReturn:
        raise Damage(f"{where}.{field}", text)

    if stored.name in table.types or not _is_type_name(stored.name):
        why = "is there already" if stored.name in table.types else "cannot name a type"
        wrong("name", f"{stored.name!r} {why}")
    if (stored.name == ROOT) != (not table.types):
        wrong("name", f"is {stored.name!r}; {ROOT} comes first, once")
    if unknown := [parent for parent in stored.parents if parent not in table.types]:
        wrong("parents", f"{unknown[0]!r} does not come before {stored.name!r}")
    lines = [not table.types[parent].kind for parent in stored.parents]
    wanted = [] if stored.kind or stored.name == ROOT else [True]
    if lines != [*wanted, *[False] * (len(lines) - len(wanted))] or len(set(stored.parents)) < len(lines):
        wrong("parents", "an event type first, then kinds, each once" if wanted else "only kinds, each once")
    if stored.kind and (stored.etags or stored.attributes):
        wrong("etags" if stored.etags else "attributes", "a kind has none")
    has_none = file.format == FORMAT and not stored.kind and not stored.etags
    if has_none and (file.version < VERSION_WITHOUT_ETAGS or stored.name == ROOT):
        wrong("etags", "an event type has at least one block")


def _check_attributes(table: TypeTable, own: dict[str, bool], line: str | None, family: str, where: str) -> None:
    """All that a type carries is in the vector of its family, and what is required above stays so."""
    if family not in table.vectors:
        raise Damage(f"{where}.name", f"family {family!r} has no vector")
    above = table.attributes_of(line) if line is not None else {}
    vector = table.vectors[family]
    for name, required in (above | own).items():
        if name not in vector:
            raise Damage(f"{where}.attributes", f"{name!r} is not in the vector of family {family!r}")
        if above.get(name) and not required:
            raise Damage(f"{where}.attributes", f"{name!r} is optional, but required in {line!r} above")
        is_retyped = name in RETYPABLE and name in own and isinstance(vector[name].type, IntType)
        if line == ROOT and name in above and not is_retyped and vector[name].type != table.vectors[ROOT][name].type:
            raise Damage(f"{where}.attributes", f"{name!r} has another type in family {family!r} than in {ROOT}")


def _is_type_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.split(".")) and name not in (*RESERVED_WORDS, "Kind")


# -- numbers -----------------------------------------------------------------------------------------------------------


def _restore_numbers(types: tuple[_Type, ...], table: TypeTable) -> NumberAllocator:
    entries = [CodeEntry(t.name, t.parents, int(t.code), t.kind, t.deprecated is not None) for t in types]
    grants = [
        (index, Grant(t.name, t.parents[0] if t.parents else None, Block(*block), table.own_etag_count(t.name)))
        for index, t in enumerate(types)
        for block in t.etags
    ]
    codes = _restore(LinePrimes.restore, entries, lambda bad: f"types[{bad}].code")
    etags = _restore(EtagSpace.restore, [grant for _, grant in grants], lambda bad: f"types[{grants[bad][0]}].etags")
    return NumberAllocator(codes, etags)


def _restore(restore: Callable[[list[Any]], Any], rows: list[Any], locate: Callable[[int], str]) -> Any:
    try:
        return restore(rows)
    except HierarchyError as problem:
        raise Damage(locate(_first_refused(restore, rows)), str(problem)) from None


def _first_refused(restore: Callable[[list[Any]], Any], rows: list[Any]) -> int:
    """Return the first row that cannot follow those before it, found by bisection."""
    good, bad = 0, len(rows)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            restore(rows[:middle])
            good = middle
        except HierarchyError:
            bad = middle
    return bad - 1
