"""What a broker must not forget: who has which number, what was announced, and how often it was started.

The tables are one small text, written whole and before the reply that depends on it. A broker that crashed in between
has promised nothing it does not know of; one that finds a damaged file says so and leaves the file alone.
"""

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Protocol

import msgspec

from genus.can._protocol.messages import QosClass
from genus.can._protocol.notices import LEASE
from genus.can._wire.frame import FIRST_NODE, LAST_NODE, UNCONFIGURED_NODE
from genus.catalog._file import read_text, real_path, replace_text
from genus.errors import CatalogDamaged, TableDamaged

FORMAT = "genus can broker"
VERSION = 1


class Store(Protocol):
    """Where the text of the tables is kept."""

    def load(self) -> str | None:
        """The text that was saved last; None if there never was one."""

    def save(self, text: str) -> None:
        """Keep a text, all or nothing, so that it is there after a crash."""

    def __str__(self) -> str:
        """Where that is, for messages."""


class MemoryStore:
    """State: a text that outlives the broker that wrote it, as a file would; for simulations."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text

    def load(self) -> str | None:
        """The text that was saved last."""
        return self.text

    def save(self, text: str) -> None:
        """Keep a text."""
        self.text = text

    def __str__(self) -> str:
        return "memory"


class FileStore:
    """A file, replaced whole and on the disk when `save` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = real_path(path)

    def load(self) -> str | None:
        """The text of the file, None if there is none; TableDamaged if it is no text."""
        try:
            return read_text(self._path)
        except CatalogDamaged as problem:
            raise TableDamaged(str(problem)) from None

    def save(self, text: str) -> None:
        """Replace the file; CatalogUnavailable says why it cannot be written."""
        replace_text(self._path, text)

    def __str__(self) -> str:
        return self._path


class Announced(msgspec.Struct, frozen=True):
    """What the first publisher of a channel announced."""

    qos_class: QosClass
    segmented: bool


class _Channel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    qos: Literal["none", "soft", "hard"]
    segmented: bool


_Number = Annotated[int, msgspec.Meta(ge=FIRST_NODE, le=LAST_NODE)]
_Uid = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["genus can broker"]
    version: Literal[1]
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    numbers: dict[_Uid, _Number]
    channels: dict[str, _Channel]


class Tables:
    """State: uid and number belong to each other one to one; a channel's announcement stays as it was first.

    >>> store = MemoryStore()
    >>> tables = Tables(store)
    >>> tables.assign(0xABCD, 5)
    >>> tables.save()
    >>> Tables(store).number_of(0xABCD), Tables(store).owner_of(5) == 0xABCD
    (5, True)
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._numbers: dict[int, int] = {}
        self._owners: dict[int, int] = {}
        self._channels: dict[str, Announced] = {}
        self._epoch = 0
        self._saved = True
        text = store.load()
        if text is not None:
            self._read(_parsed(text, str(store)), str(store))

    def _read(self, file: _File, place: str) -> None:
        for uid, number in file.numbers.items():
            if number in self._owners or int(uid, 16) == 0:
                why = f"number {number} belongs to two" if number in self._owners else "no node has uid 0"
                raise TableDamaged(f"{place}: numbers[{uid!r}]: {why}")
            self._numbers[int(uid, 16)], self._owners[number] = number, int(uid, 16)
        self._epoch = file.epoch
        for name, channel in file.channels.items():
            self._channels[name] = Announced(QosClass[channel.qos.upper()], channel.segmented)

    @property
    def epoch(self) -> int:
        """How often a broker began to serve with these tables."""
        return self._epoch

    @property
    def numbers(self) -> Mapping[int, int]:
        """The number of each uid."""
        return MappingProxyType(self._numbers)

    @property
    def channels(self) -> Mapping[str, Announced]:
        """What was announced of each type."""
        return MappingProxyType(self._channels)

    def number_of(self, uid: int) -> int | None:
        """The number of a uid."""
        return self._numbers.get(uid)

    def owner_of(self, number: int) -> int | None:
        """The uid that has a number."""
        return self._owners.get(number)

    def assign(self, uid: int, number: int) -> None:
        """Give a number to a uid, which gives up any other; who had the number has none any more."""
        if self._numbers.get(uid) == number:
            return
        self._saved = False
        self._owners.pop(self._numbers.pop(uid, 0), None)
        self._numbers.pop(self._owners.pop(number, 0), None)
        self._numbers[uid], self._owners[number] = number, uid

    def announce(self, name: str, announced: Announced) -> Announced:
        """What is on record of a channel: this, if it is the first announcement."""
        if name not in self._channels:
            self._saved = False
            self._channels[name] = announced
        return self._channels[name]

    def begin_epoch(self, after: int = 0) -> None:
        """Count another start, with a number greater than one that was heard."""
        self._saved = False
        self._epoch = max(self._epoch, after) + 1

    def save(self) -> None:
        """Have everything kept; costs nothing if nothing changed."""
        if not self._saved:
            self._store.save(self.text())
            self._saved = True

    def text(self) -> str:
        """The form in which it is kept: JSON, one line per number and per channel."""
        numbers = [f'"{uid:016x}": {number}' for uid, number in sorted(self._numbers.items(), key=lambda item: item[1])]
        channels = [
            f'{json.dumps(name)}: {{"qos": "{it.qos_class.name.lower()}", "segmented": {json.dumps(it.segmented)}}}'
            for name, it in sorted(self._channels.items())
        ]
        head = f'  "format": "{FORMAT}",\n  "version": {VERSION},\n  "epoch": {self._epoch},\n'
        return f'{{\n{head}  "numbers": {_block(numbers)},\n  "channels": {_block(channels)}\n}}\n'


def _block(lines: list[str]) -> str:
    return "{\n    " + ",\n    ".join(lines) + "\n  }" if lines else "{}"


def _parsed(text: str, place: str) -> _File:
    try:
        return msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as problem:
        raise TableDamaged(f"{place}: {problem}; nothing was changed") from None


# Who is there: which numbers are in use, by whom, and which can be given to a new node.
#
# A claim beats what the tables remember, for a node that claims is there; between two that claim, the lower uid
# keeps the number, as the nodes themselves decide. A number is free if no node was heard under it for a lease.


class Roster:
    """State: when each number was last heard, and who claimed it; the numbers themselves are in the tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._heard: dict[int, int] = {}
        self._claimed: dict[int, int] = {}

    def begin(self, now: int) -> None:
        """From now on silence counts: every number that is on record was, for all we know, used until now."""
        self._heard = dict.fromkeys({*self._heard, *self._tables.numbers.values()}, now)

    def heard_claim(self, uid: int, number: int, now: int) -> None:
        """A node says that it has a number."""
        if not FIRST_NODE <= number <= LAST_NODE:
            return
        owner = self._tables.owner_of(number)
        if owner is None or uid <= owner or not self._is_there(owner, number, now):
            self._tables.assign(uid, number)
            self._heard[number], self._claimed[number] = now, uid

    def heard_grant(self, uid: int, number: int, now: int) -> None:
        """Another broker gave a number to a node that has not claimed it yet."""
        if not FIRST_NODE <= number <= LAST_NODE:
            return
        owner = self._tables.owner_of(number)
        if owner is None or not self._is_there(owner, number, now):
            self._tables.assign(uid, number)
            self._heard[number] = now

    def grant(self, uid: int, now: int) -> int:
        """The number for a node: the one it had, else one that nobody has, else that of the longest silent; 0 if none.

        The tables are changed but not saved.
        """
        number = self._tables.number_of(uid) or self._unused(now) or self._longest_silent(now)
        if number != UNCONFIGURED_NODE:
            self._tables.assign(uid, number)
            self._heard[number] = now
        return number

    def _unused(self, now: int) -> int:
        numbers = range(FIRST_NODE, LAST_NODE + 1)
        unused = (n for n in numbers if self._tables.owner_of(n) is None and self._is_silent(n, now))
        return next(unused, UNCONFIGURED_NODE)

    def _longest_silent(self, now: int) -> int:
        silent = (number for number in self._tables.numbers.values() if self._is_silent(number, now))
        return min(silent, key=lambda number: self._heard.get(number, now), default=UNCONFIGURED_NODE)

    def _is_silent(self, number: int, now: int) -> bool:
        return number not in self._heard or now - self._heard[number] > LEASE

    def _is_there(self, uid: int, number: int, now: int) -> bool:
        return self._claimed.get(number) == uid and not self._is_silent(number, now)
