"""City files: scenes in TOML. Errors are one line with file, table and key."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from genus.model import seconds
from genus_traffic.road.city import TYPICAL
from genus_traffic.road.scene import KINDS, Refit, Scene, SceneError, Signal, Site, Waves, minutes_of, suggest
from genus_traffic.types import Category

_Struct = TypeVar("_Struct")

_ROOT_KEYS = ("start", "duration", "seed", "site", "refit")
_TABLES: Mapping[str, type[Signal | Waves]] = {"signal": Signal, "waves": Waves}
"""Tables within a site."""
_MAY_BE_ZERO = ("offset", "apart")

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
    ... duration = "5 min"
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
        raise SceneError(f"{source}: is empty; it needs start, duration and at least one [[site]]")
    _refuse_unknown(source, entries, _ROOT_KEYS)
    sites = _read_sites(source, entries.pop("site", []))
    refit = _read_refit(source, entries.pop("refit", None))
    for key in ("start", "duration"):
        if key not in entries:
            raise SceneError(f"{source}: {key} is missing")
    minutes = minutes_of(entries.pop("duration"), f"{source}: duration")
    return _convert(source, {"seed": 1, **entries, "minutes": minutes, "sites": sites, "refit": refit}, Scene)


def _read_sites(source: str, tables: object) -> list[Site]:
    if not isinstance(tables, list):
        raise SceneError(f"{source}: site must be a list of tables; write [[site]]")
    return [_read_site(f"{source}: [[site]] {number}", table) for number, table in enumerate(tables, 1)]


def _read_site(where: str, entries: object) -> Site:
    table = _table(where, entries)
    if "name" in table:
        where += f" {table['name']!r}"
    _refuse_unknown(where, table, Site.__struct_fields__)
    if isinstance(table.get("mix"), Mapping):
        _refuse_unknown(f"{where}: mix", table["mix"], [category.value for category in Category])
    read = {key: _read_times(where, key, table[key], struct) for key, struct in _TABLES.items() if key in table}
    kind = table.get("kind")
    if kind is None:
        raise SceneError(f"{where}: kind is missing; known are {', '.join(KINDS)}")
    if kind not in KINDS:
        raise SceneError(f"{where}: kind is {kind!r}; {suggest(str(kind), KINDS)}")
    named = {"place": table["name"]} if isinstance(table.get("name"), str) else {"place": "?"}
    return _convert(where, {**TYPICAL[kind], **named, **table, **read}, Site)


def _read_refit(source: str, entries: object) -> Refit | None:
    if entries is None:
        return None
    where = f"{source}: [refit]"
    return _convert(where, _read_times(where, "", _table(where, entries), Refit), Refit)


def _read_times(where: str, name: str, table: object, struct: type[Signal | Waves | Refit]) -> object:
    """A table with its lengths of time in seconds; their fields end in `_s`, the keys of the file do not."""
    if not isinstance(table, Mapping):
        return table
    fields = {field.removesuffix("_s"): field for field in struct.__struct_fields__}
    _refuse_unknown(f"{where}: {name}" if name else where, table, fields)
    before = f"{where}: {name}." if name else f"{where}: "
    return {
        fields[key]: value if fields[key] == key else _seconds(value, f"{before}{key}", zero=key in _MAY_BE_ZERO)
        for key, value in table.items()
    }


def _seconds(value: Any, what: str, *, zero: bool) -> float:
    found = seconds(value, what, zero=zero, error=SceneError)
    if found > 86_400:
        raise SceneError(f"{what} is {value!r}; it must be at most a day")
    return found


def _table(where: str, entries: object) -> Mapping[str, Any]:
    if not isinstance(entries, Mapping):
        raise SceneError(f"{where} must be a table, not {entries!r}")
    return entries


def _refuse_unknown(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in table:
        if key not in known:
            raise SceneError(f"{where}: unknown key {key!r}; {suggest(key, known)}")


def _convert(where: str, entries: object, struct: type[_Struct]) -> _Struct:
    try:
        return msgspec.convert(entries, struct)
    except msgspec.ValidationError as problem:
        assert isinstance(entries, Mapping)
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
