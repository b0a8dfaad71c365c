"""What a broker must not lose: node numbers, announced channels, its epoch; and where event tags come from.

The tables are one small text, written whole and before the reply that depends on it. So a broker that crashes has not
granted anything that is not in its tables. A broker that finds a damaged file reports it and does not change the file.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Protocol

import msgspec

from genus.can._protocol.messages import QosClass
from genus.can._protocol.notices import LEASE
from genus.can._wire.frame import FIRST_NODE, LAST_NODE, UNCONFIGURED_NODE
from genus.catalog import Catalog
from genus.catalog.internal import read_text, real_path, replace_text
from genus.errors import CatalogDamaged, TableDamaged


class EtagSource(Protocol):
    """Gives event tags to types that have none yet, the same to everybody on a bus."""

    def give(self, catalog: Catalog, name: str) -> Catalog:
        """Return the catalog in which a type has an event tag; EtagsExhausted if there is none left for it."""

    def reread(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the event tags that others were given meanwhile."""


class MemoryEtags:
    """Event tags of a catalog in memory, which all who use it share."""

    def give(self, catalog: Catalog, name: str) -> Catalog:
        catalog.give_etags(name)
        return catalog

    def reread(self, catalog: Catalog) -> Catalog:
        return catalog


class FileEtags:
    """State: event tags of a catalog file, given under its lock, and when it was last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._changed()

    def give(self, catalog: Catalog, name: str) -> Catalog:
        return Catalog.update_etags(self._path, name)[0]

    def reread(self, catalog: Catalog) -> Catalog:
        """Return the catalog of the file, if it was changed since the last time; else the same one."""
        changed = self._changed()
        if changed is None or changed == self._seen:
            return catalog
        found = Catalog.load(self._path)
        self._seen = changed
        return found

    def _changed(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


FORMAT = "genus can broker"
VERSION = 1


class TableStore(Protocol):
    """Where the text of a broker's tables is kept."""

    def load(self) -> str | None:
        """Return the text that was saved last; None if there is none."""

    def save(self, text: str) -> None:
        """Save a text atomically, so that it survives a crash."""

    def __str__(self) -> str: ...


class MemoryStore:
    """State: a text in memory, which survives a restart of the broker within the process; for simulations."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text

    def load(self) -> str | None:
        return self.text

    def save(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return "memory"


class FileStore:
    """A file, replaced as a whole; it is on the disk when `save` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = real_path(path)

    def load(self) -> str | None:
        """Return the text of the file; None if there is no file, TableDamaged if it is no text."""
        try:
            return read_text(self._path)
        except CatalogDamaged as problem:
            raise TableDamaged(str(problem)) from None

    def save(self, text: str) -> None:
        """Replace the file; CatalogUnavailable if it cannot be written."""
        replace_text(self._path, text)

    def __str__(self) -> str:
        return self._path


class AnnouncedChannel(msgspec.Struct, frozen=True):
    """What the first publisher of a channel announced."""

    qos_class: QosClass
    segmented: bool


class _ChannelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    qos: Literal["none", "soft", "hard"]
    segmented: bool


_Number = Annotated[int, msgspec.Meta(ge=FIRST_NODE, le=LAST_NODE)]
_Uid = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class _TablesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["genus can broker"]
    version: Literal[1]
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    numbers: dict[_Uid, _Number]
    channels: dict[str, _ChannelEntry]


class BrokerTables:
    """State: the numbers of nodes, one to one with their uids, and the first announcement of each channel.

    TableDamaged if the text in the store cannot be read.

    >>> store = MemoryStore()
    >>> tables = BrokerTables(store)
    >>> tables.assign(0xABCD, 5)
    >>> tables.save()
    >>> BrokerTables(store).number_of(0xABCD), BrokerTables(store).owner_of(5) == 0xABCD
    (5, True)
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._numbers: dict[int, int] = {}
        self._owners: dict[int, int] = {}
        self._channels: dict[str, AnnouncedChannel] = {}
        self._epoch = 0
        self._saved = True
        text = store.load()
        if text is not None:
            self._read(_parse(text, str(store)), str(store))

    def _read(self, file: _TablesFile, location: str) -> None:
        for uid, number in file.numbers.items():
            if number in self._owners or int(uid, 16) == 0:
                problem = f"number {number} belongs to two" if number in self._owners else "no node has uid 0"
                raise TableDamaged(f"{location}: numbers[{uid!r}]: {problem}")
            self._numbers[int(uid, 16)], self._owners[number] = number, int(uid, 16)
        self._epoch = file.epoch
        for name, channel in file.channels.items():
            self._channels[name] = AnnouncedChannel(QosClass[channel.qos.upper()], channel.segmented)

    @property
    def epoch(self) -> int:
        """How often a broker became active with these tables."""
        return self._epoch

    @property
    def numbers(self) -> Mapping[int, int]:
        return MappingProxyType(self._numbers)

    @property
    def channels(self) -> Mapping[str, AnnouncedChannel]:
        return MappingProxyType(self._channels)

    def number_of(self, uid: int) -> int | None:
        return self._numbers.get(uid)

    def owner_of(self, number: int) -> int | None:
        return self._owners.get(number)

    def assign(self, uid: int, number: int) -> None:
        """Give a number to a uid; it loses any other number, and the number any other uid."""
        if self._numbers.get(uid) == number:
            return
        self._saved = False
        self._owners.pop(self._numbers.pop(uid, 0), None)
        self._numbers.pop(self._owners.pop(number, 0), None)
        self._numbers[uid], self._owners[number] = number, uid

    def announce(self, name: str, announced: AnnouncedChannel) -> AnnouncedChannel:
        """Record the announcement of an event type unless there is one; returns the recorded one."""
        if name not in self._channels:
            self._saved = False
            self._channels[name] = announced
        return self._channels[name]

    def begin_epoch(self, after: int = 0) -> None:
        """Begin the next epoch, which is also greater than `after`."""
        self._saved = False
        self._epoch = max(self._epoch, after) + 1

    def save(self) -> None:
        if not self._saved:
            self._store.save(self.text())
            self._saved = True

    def text(self) -> str:
        """Return the tables as JSON, one line per number and per channel."""
        numbers = [f'"{uid:016x}": {number}' for uid, number in sorted(self._numbers.items(), key=lambda item: item[1])]
        channels = [
            f'{json.dumps(name)}: {{"qos": "{it.qos_class.name.lower()}", "segmented": {json.dumps(it.segmented)}}}'
            for name, it in sorted(self._channels.items())
        ]
        head = f'  "format": "{FORMAT}",\n  "version": {VERSION},\n  "epoch": {self._epoch},\n'
        return f'{{\n{head}  "numbers": {_block(numbers)},\n  "channels": {_block(channels)}\n}}\n'


def _block(lines: list[str]) -> str:
    return "{\n    " + ",\n    ".join(lines) + "\n  }" if lines else "{}"


def _parse(text: str, location: str) -> _TablesFile:
    try:
        return msgspec.json.decode(text, type=_TablesFile)
    except msgspec.DecodeError as problem:
        raise TableDamaged(f"{location}: {problem}; nothing was changed") from None


class NodeRegistry:
    """State: when a frame of each number was last received, and the uid that claimed it; the tables have the numbers.

    A claim has precedence over the tables, because the node that sends it is present. Between two nodes that claim one
    number, the lower uid keeps it, as the nodes themselves decide. A number is free if it was silent for a lease.
    """

    def __init__(self, tables: BrokerTables) -> None:
        self._tables = tables
        self._last_seen: dict[int, int] = {}
        self._claimed: dict[int, int] = {}

    def renew_leases(self, now: int) -> None:
        """Begin the leases of all recorded numbers now: they may have been in use until now."""
        self._last_seen = dict.fromkeys({*self._last_seen, *self._tables.numbers.values()}, now)

    def on_claim(self, uid: int, number: int, now: int) -> None:
        if not FIRST_NODE <= number <= LAST_NODE:
            return
        owner = self._tables.owner_of(number)
        if owner is None or uid <= owner or not self._is_present(owner, number, now):
            self._tables.assign(uid, number)
            self._last_seen[number], self._claimed[number] = now, uid

    def on_grant(self, uid: int, number: int, now: int) -> None:
        """Another broker granted a number to a node, which has not claimed it yet."""
        if not FIRST_NODE <= number <= LAST_NODE:
            return
        owner = self._tables.owner_of(number)
        if owner is None or not self._is_present(owner, number, now):
            self._tables.assign(uid, number)
            self._last_seen[number] = now

    def grant(self, uid: int, now: int) -> int:
        """Return the number for a node: the one it had, else an unused one, else the one silent for longest; 0 if none.

        The tables are changed but not saved.
        """
        number = self._tables.number_of(uid) or self._unused(now) or self._longest_silent(now)
        if number != UNCONFIGURED_NODE:
            self._tables.assign(uid, number)
            self._last_seen[number] = now
        return number

    def _unused(self, now: int) -> int:
        numbers = range(FIRST_NODE, LAST_NODE + 1)
        unused = (n for n in numbers if self._tables.owner_of(n) is None and self._is_silent(n, now))
        return next(unused, UNCONFIGURED_NODE)

    def _longest_silent(self, now: int) -> int:
        silent = (number for number in self._tables.numbers.values() if self._is_silent(number, now))
        return min(silent, key=lambda number: self._last_seen.get(number, now), default=UNCONFIGURED_NODE)

    def _is_silent(self, number: int, now: int) -> bool:
        return number not in self._last_seen or now - self._last_seen[number] > LEASE

    def _is_present(self, uid: int, number: int, now: int) -> bool:
        return self._claimed.get(number) == uid and not self._is_silent(number, now)
