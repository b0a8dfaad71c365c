"""Gateways as TOML files: `load_gateway` reads and checks one, `GatewayFile.open` runs it."""

import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from genus.bus import QoS, open_bus, parse_qos
from genus.catalog import types_in
from genus.codes import load_module
from genus.errors import BusError, GenusError, SpanError, did_you_mean
from genus.filters import Subscription, TypesByName
from genus.model import Event, is_type, name_of
from genus.net._gateway.gateway import Gateway, GatewaySide
from genus.net._gateway.rules import RateLimit, parse_rate
from genus.net._gateway.spool import MOST_BYTES, parse_size

KEYS = ("name", "types", "side")
SIDE_KEYS = (
    "name", "address", "export", "import", "wants", "rate", "quality", "spool", "spool_size", "gateways"
)  # fmt: skip

LoadTypes = Callable[[str], Iterable[type]]
"""Loads the event types of a module or file."""


class SideSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a gateway as its file has it; `GatewaySide` says what the values mean."""

    name: str
    address: str
    export: tuple[type, ...] | None = None
    imports: tuple[type, ...] | None = None
    wants: tuple[Subscription, ...] = ()
    rate: Mapping[type, RateLimit] = {}
    quality: Mapping[type, QoS] = {}
    spool: Path | None = None
    spool_size: int = MOST_BYTES
    gateways: tuple[int, ...] = ()


class GatewayFile(msgspec.Struct, frozen=True):
    """A gateway as its file has it; made by `load_gateway`."""

    path: Path
    name: str
    types: tuple[type, ...]
    sides: tuple[SideSettings, ...]

    @contextmanager
    def open(self) -> Iterator[Gateway]:
        """Open the buses of all sides and run the gateway, until the block ends; BusError if a bus cannot be opened."""
        with ExitStack() as stack:
            sides = []
            for settings in self.sides:
                values = msgspec.structs.asdict(settings)
                bus = stack.enter_context(open_bus(values.pop("address")))
                sides.append(GatewaySide(bus=bus, **values))
            yield stack.enter_context(Gateway(*sides, name=self.name))


def load_gateway(path: str | os.PathLike[str], load_types: LoadTypes | None = None) -> GatewayFile:
    """Read and check the file of a gateway; no bus is opened.

    Args:
        path: The file. Paths in it are relative to its folder.
        load_types: Loads what an entry of `types` names; by default a module or a `.py` file.

    Raises:
        BusError: The file cannot be read, or a key or value is wrong; the message names it.
    """
    path = Path(path)
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise BusError(f"cannot read {path}: {problem.strerror or problem}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BusError(f"{path}: {problem}") from None
    return _Reader(path, load_types or _load_types).read(entries)


def _load_types(source: str) -> Iterable[type]:
    return types_in(load_module(source))


class _Reader:
    """State: a file that is being read, and the types that it may name."""

    def __init__(self, path: Path, load_types: LoadTypes) -> None:
        self._path = path
        self._where = str(path)
        self._load_types = load_types
        self._types: dict[str, type] = {}

    def read(self, entries: dict[str, Any]) -> GatewayFile:
        self._check_keys(entries, KEYS)
        for source in self._texts(entries, "types"):
            self._load(source)
        self._types[name_of(Event)] = Event
        tables = entries.get("side", [])
        if not isinstance(tables, list) or len(tables) < 2 or not all(isinstance(one, dict) for one in tables):
            self._refuse("needs two tables [[side]] or more")
        sides = tuple(self._side(number, table) for number, table in enumerate(tables, 1))
        names = [side.name for side in sides]
        if doubled := next((name for name in names if names.count(name) > 1), None):
            self._refuse(f"two sides are named {doubled!r}")
        self._where = str(self._path)
        return GatewayFile(self._path, self._text(entries, "name", ""), tuple(self._types.values()), sides)

    def _load(self, source: str) -> None:
        beside = self._path.parent / source
        try:
            found = self._load_types(str(beside) if beside.is_file() else source)
        except GenusError as problem:
            self._refuse(f"types: {problem}")
        self._types |= {name_of(cls): cls for cls in found if is_type(cls)}

    def _side(self, number: int, table: dict[str, Any]) -> SideSettings:
        self._where = f"{self._path}: [[side]] {number}"
        self._check_keys(table, SIDE_KEYS)
        if "address" not in table:
            self._refuse("address is missing")
        spool = self._text(table, "spool", "")
        return SideSettings(
            name=self._text(table, "name", f"side {number}"),
            address=self._text(table, "address", ""),
            export=self._classes(table, "export"),
            imports=self._classes(table, "import"),
            wants=tuple(self._subscription(text) for text in self._texts(table, "wants")),
            rate=self._by_type(table, "rate", parse_rate),
            quality=self._by_type(table, "quality", parse_qos),
            spool=self._path.parent / spool if spool else None,
            spool_size=self._size(table),
            gateways=self._numbers(table, "gateways"),
        )

    # -- values ------------------------------------------------------------------------------------------------------

    def _refuse(self, why: str) -> NoReturn:
        raise BusError(f"{self._where}: {why}")

    def _check_keys(self, table: Mapping[str, Any], known: Collection[str]) -> None:
        for key in table:
            if key not in known:
                self._refuse(f"unknown key {key!r}; {did_you_mean(key, known) or 'there are ' + ', '.join(known)}")

    def _text(self, table: Mapping[str, Any], key: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str) or (key in table and not value.strip()):
            self._refuse(f"{key} is {value!r}; it must be a text")
        return value

    def _texts(self, table: Mapping[str, Any], key: str) -> list[str]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._refuse(f"{key} is {value!r}; it must be a list of texts")
        return value

    def _classes(self, table: Mapping[str, Any], key: str) -> tuple[type, ...] | None:
        return tuple(self._class(key, name) for name in self._texts(table, key)) if key in table else None

    def _class(self, key: str, name: str) -> type:
        if name not in self._types:
            known = sorted(self._types)
            self._refuse(f"{key}: no event type is called {name}; {did_you_mean(name, known)}known: {', '.join(known)}")
        return self._types[name]

    def _subscription(self, text: str) -> Subscription:
        try:
            return Subscription.parse(text, TypesByName((), self._types))
        except GenusError as problem:
            self._refuse(f"wants: {problem}")

    def _by_type(self, table: Mapping[str, Any], key: str, parse: Callable[[str], Any]) -> dict[type, Any]:
        entries = table.get(key, {})
        if not isinstance(entries, dict):
            self._refuse(f"{key} is {entries!r}; it must be a table of types")
        try:
            return {self._class(key, name): parse(self._text(entries, name, "")) for name in entries}
        except (BusError, SpanError) as problem:
            if str(problem).startswith(self._where):
                raise
            self._refuse(f"{key}: {problem}")

    def _size(self, table: Mapping[str, Any]) -> int:
        try:
            return parse_size(self._text(table, "spool_size", "64MiB"))
        except BusError as problem:
            self._refuse(str(problem).removeprefix(f"{self._where}: "))

    def _numbers(self, table: Mapping[str, Any], key: str) -> tuple[int, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(type(one) is int and 0 < one < 127 for one in value):
            self._refuse(f"{key} is {value!r}; it must be a list of node numbers from 1 to 126")
        return tuple(value)
