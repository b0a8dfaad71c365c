"""Gateways as TOML files: `load_gateway` reads and checks one, `GatewayFile.open` runs it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from genus._toml import TomlTable
from genus.bus import open_bus, parse_qos
from genus.bus.types import QoS
from genus.catalog import types_in
from genus.codes import load_module
from genus.errors import BusError, GenusError, SpanError, did_you_mean
from genus.filters import Subscription, TypesByName
from genus.model import Event, is_type, name_of
from genus.net._gateway.gateway import Gateway, GatewaySide
from genus.net._gateway.outlet import MAX_BYTES, parse_size
from genus.net._gateway.rules import RateLimit, parse_rate

KEYS = ("name", "types", "side")
SIDE_KEYS = (
    "name", "address", "export", "import", "interest", "rate", "quality", "spool", "spool_size", "gateways"
)  # fmt: skip

LoadTypes = Callable[[str], Iterable[type]]
"""Loads the event types of a module or file."""


class SideSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a gateway as its file has it; `GatewaySide` says what the values mean."""

    name: str
    address: str
    export: tuple[type, ...] | None = None
    imports: tuple[type, ...] | None = None
    interest: tuple[Subscription, ...] = ()
    rate: Mapping[type, RateLimit] = {}
    quality: Mapping[type, QoS] = {}
    spool: Path | None = None
    spool_size: int = MAX_BYTES
    gateways: tuple[int, ...] = ()


class GatewayFile(msgspec.Struct, frozen=True):
    """A gateway as its file has it; made by `load_gateway`."""

    path: Path
    name: str
    types: tuple[type, ...]
    sides: tuple[SideSettings, ...]

    @contextmanager
    def open(self) -> Iterator[Gateway]:
        """Open the buses of all sides and run the gateway in a block; raise BusError if one cannot be opened."""
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
    return _Reader(path, load_types or _load_types).read(TomlTable.read(path, KEYS))


def _load_types(source: str) -> Iterable[type]:
    return types_in(load_module(source))


class _Reader:
    """State: a file that is being read, and the types that it may name."""

    def __init__(self, path: Path, load_types: LoadTypes) -> None:
        self._path = path
        self._load_types = load_types
        self._types: dict[str, type] = {}

    def read(self, root: TomlTable) -> GatewayFile:
        for source in root.texts("types"):
            self._load(root, source)
        self._types[name_of(Event)] = Event
        sides = tuple(self._side(number, table) for number, table in enumerate(root.tables("side", SIDE_KEYS), 1))
        if len(sides) < 2:
            raise BusError(f"{self._path}: needs two tables [[side]] or more")
        names = [side.name for side in sides]
        if doubled := next((name for name in names if names.count(name) > 1), None):
            raise BusError(f"{self._path}: two sides are named {doubled!r}")
        return GatewayFile(self._path, root.text("name") or "", tuple(self._types.values()), sides)

    def _load(self, root: TomlTable, source: str) -> None:
        beside = self._path.parent / source
        try:
            found = self._load_types(str(beside) if beside.is_file() else source)
        except GenusError as problem:
            root.refuse("types:", str(problem))
        self._types |= {name_of(cls): cls for cls in found if is_type(cls)}

    def _side(self, number: int, table: TomlTable) -> SideSettings:
        table.require("address")
        spool = table.text("spool")
        return SideSettings(
            name=table.text("name") or f"side {number}",
            address=table.text("address") or "",
            export=self._classes(table, "export"),
            imports=self._classes(table, "import"),
            interest=tuple(self._subscription(table, text) for text in table.texts("interest")),
            rate=self._by_type(table, "rate", parse_rate),
            quality=self._by_type(table, "quality", parse_qos),
            spool=self._path.parent / spool if spool else None,
            spool_size=_size(table),
            gateways=_numbers(table, "gateways"),
        )

    def _classes(self, table: TomlTable, key: str) -> tuple[type, ...] | None:
        return tuple(self._class(table, key, name) for name in table.texts(key)) if key in table else None

    def _class(self, table: TomlTable, key: str, name: str) -> type:
        if name not in self._types:
            known = sorted(self._types)
            hint = f"{did_you_mean(name, known)}known: {', '.join(known)}"
            table.refuse(f"{key}:", f"no event type is called {name}; {hint}")
        return self._types[name]

    def _subscription(self, table: TomlTable, text: str) -> Subscription:
        try:
            return Subscription.parse(text, TypesByName((), self._types))
        except GenusError as problem:
            table.refuse("interest:", str(problem))

    def _by_type(self, table: TomlTable, key: str, parse: Callable[[str], Any]) -> dict[type, Any]:
        rules = TomlTable(f"{table.location}: {key}", table.entries.get(key, {}))
        try:
            return {self._class(table, key, name): parse(rules.text(name) or "") for name in rules.entries}
        except (BusError, SpanError) as problem:
            if str(problem).startswith(table.location):
                raise
            table.refuse(f"{key}:", str(problem))


def _size(table: TomlTable) -> int:
    try:
        return parse_size(table.text("spool_size") or "64MiB")
    except BusError as problem:
        if str(problem).startswith(table.location):
            raise
        raise BusError(f"{table.location}: {problem}") from None


def _numbers(table: TomlTable, key: str) -> tuple[int, ...]:
    value = table.entries.get(key, [])
    if not isinstance(value, list) or not all(type(one) is int and 0 < one < 127 for one in value):
        table.refuse(key, f"is {value!r}; it must be a list of node numbers from 1 to 126")
    return tuple(value)
