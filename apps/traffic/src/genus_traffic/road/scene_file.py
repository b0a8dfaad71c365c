"""City files: scenes in TOML. Errors are one line with file, table and key."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from genus_traffic.road.city import TYPICAL
from genus_traffic.road.scene import KINDS, Refit, Scene, SceneError, Signal, Site, Waves, suggest
from genus_traffic.types import Category

_Struct = TypeVar("_Struct")

_ROOT_KEYS = ("start", "minutes", "seed", "site", "refit")
_TABLES: Mapping[str, Iterable[str]] = {
    "signal": Signal.__struct_fields__,
    "waves": Waves.__struct_fields__,
    "mix": [category.value for category in Category],
}
"""Tables within a site, and the keys that each may have."""

_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[\w.]*).*`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<type>[a-z]+)[^`]*`(?P<bound> [<>]=? \S+| with .*)?(?:, got .*)?")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "object": "a table",
    "array": "a list",
    "datetime": "a date and time with a zone, such as 2026-03-02T07:30:00Z",
}


def load_scene(path: str | Path) -> Scene:
    """Read a city file; SceneError says what is wrong with it and where."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise SceneError(f"{path}: {problem.strerror or problem}") from problem
    except UnicodeDecodeError as problem:
        raise SceneError(f"{path}: is not UTF-8 text (byte {problem.start})") from problem
    except ValueError as problem:
        raise SceneError(f"{path!r}: {problem}") from problem
    return parse_scene(text, str(path))


def parse_scene(text: str, source: str = "city") -> Scene:
    """Parse the text of a city file. A site has the defaults of its kind for keys that are left out.

    >>> scene = parse_scene('''
    ... start = 2026-03-02T07:30:00Z
    ... minutes = 5
    ... [[site]]
    ... name = "mill-street"
    ... kind = "street"
    ... lanes = 1
    ... ''')
    >>> site = scene.site("mill-street")
    >>> site.lanes, site.limit_mps, scene.seed, scene.refit
    (1, 14.0, 1, None)
    """
    try:
        entries = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise SceneError(f"{source}: is not TOML: {problem}") from None
    if not entries:
        raise SceneError(f"{source}: is empty; it needs start, minutes and at least one [[site]]")
    _refuse_unknown(source, entries, _ROOT_KEYS)
    sites = _read_sites(source, entries.pop("site", []))
    refit = _read_refit(source, entries.pop("refit", None))
    return _convert(source, {"seed": 1, **entries, "sites": sites, "refit": refit}, Scene)


def _read_sites(source: str, tables: object) -> list[Site]:
    if not isinstance(tables, list):
        raise SceneError(f"{source}: site must be a list of tables; write [[site]]")
    return [_read_site(f"{source}: [[site]] {number}", table) for number, table in enumerate(tables, 1)]


def _read_site(where: str, entries: object) -> Site:
    table = _table(where, entries)
    if "name" in table:
        where += f" {table['name']!r}"
    _refuse_unknown(where, table, Site.__struct_fields__)
    for key, known in _TABLES.items():
        if isinstance(table.get(key), Mapping):
            _refuse_unknown(f"{where}: {key}", table[key], known)
    kind = table.get("kind")
    if kind is None:
        raise SceneError(f"{where}: kind is missing; known are {', '.join(KINDS)}")
    if kind not in KINDS:
        raise SceneError(f"{where}: kind is {kind!r}; {suggest(str(kind), KINDS)}")
    named = {"place": table["name"]} if isinstance(table.get("name"), str) else {"place": "?"}
    return _convert(where, {**TYPICAL[kind], **named, **table}, Site)


def _read_refit(source: str, entries: object) -> Refit | None:
    if entries is None:
        return None
    where = f"{source}: [refit]"
    table = _table(where, entries)
    _refuse_unknown(where, table, Refit.__struct_fields__)
    return _convert(where, table, Refit)


def _table(where: str, entries: object) -> Mapping[str, Any]:
    if not isinstance(entries, Mapping):
        raise SceneError(f"{where} must be a table, not {entries!r}")
    return entries


def _refuse_unknown(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in table:
        if key not in known:
            raise SceneError(f"{where}: unknown key {key!r}; {suggest(key, known)}")


def _convert(where: str, entries: Mapping[str, Any], struct: type[_Struct]) -> _Struct:
    try:
        return msgspec.convert(entries, struct)
    except msgspec.ValidationError as problem:
        _refuse(where, entries, str(problem))


def _refuse(where: str, entries: Mapping[str, Any], said: str) -> NoReturn:
    """Raise SceneError for a decoder's message about a value, in terms of the file."""
    complaint = _COMPLAINT.fullmatch(said)
    assert complaint is not None, said
    what, path = complaint["what"], complaint["path"]
    missing = re.fullmatch("Object missing required field `(.*)`", what)
    if missing is not None:
        raise SceneError(f"{where}: {missing[1]} is missing") from None
    expected = _EXPECTED.fullmatch(what)
    if expected is None or not path:
        raise SceneError(f"{where}: {f'{path}: ' if path else ''}{what}") from None
    bound = expected["bound"] or ""
    wanted = _WORDS.get(expected["type"], expected["type"]) + (bound if bound[1:2] in "<>" else "")
    raise SceneError(f"{where}: {path} is {_shown(entries, path)}; it must be {wanted}") from None


def _shown(entries: Mapping[str, Any], path: str) -> str:
    found: Any = entries
    for key in path.split("."):
        found = found[key]
    shown = str(found) if isinstance(found, (int, float)) or hasattr(found, "isoformat") else repr(found)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
