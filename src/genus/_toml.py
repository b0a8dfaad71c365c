"""Tables of a TOML file with checked values: errors name file, table and key, and what was probably meant."""

import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from genus.errors import BusError, GenusError, did_you_mean
from genus.model import nanoseconds

MAX_FILE = 1_000_000
RENAMED = {"wants": "interest"}
"""Keys of earlier versions, with their names now."""


class TomlTable:
    """One table of a file and its location; each method reads the value of a key, or gives the default.

    A subclass has the error of its room.

    >>> table = TomlTable("city.toml: [side]", {"gap": "20us"}, ("gap", "name"))
    >>> table.span("gap"), table.span("precision", 5000)
    (20000, 5000)
    >>> TomlTable("city.toml: [side]", {"nme": 1}, ("gap", "name"))
    Traceback (most recent call last):
    genus.errors.BusError: city.toml: [side]: unknown key 'nme'; did you mean 'name'?
    """

    error: ClassVar[type[GenusError]] = BusError

    def __init__(self, location: str, entries: object, known: Collection[str] | None = None) -> None:
        if not isinstance(entries, Mapping):
            raise self.error(f"{location}: must be a table, not {show(entries)}")
        self.location = location
        self.entries: Mapping[str, object] = entries
        for key in entries if known is not None else ():
            if key not in (known or ()):
                raise self.error(f"{location}: unknown key {key!r}; {suggest(key, known or ())}")

    @classmethod
    def read(cls, path: str | os.PathLike[str], known: Collection[str]) -> Self:
        """Return the root table of a file; the error says why it cannot be read."""
        try:
            if os.path.getsize(path) > MAX_FILE:
                raise cls.error(f"{path}: larger than {MAX_FILE:,} bytes")
            entries = tomllib.loads(Path(path).read_text("utf-8"))
        except OSError as problem:
            raise cls.error(f"cannot read {path}: {problem.strerror or problem}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise cls.error(f"{path}: not TOML: {problem}") from None
        return cls(str(path), entries, known)

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise the error for a key."""
        raise self.error(f"{self.location}: {key} {why}")

    def require(self, *keys: str) -> None:
        """Raise the error if one of the keys is missing."""
        for key in keys:
            if key not in self.entries:
                self.refuse(key, "is missing")

    def tables(self, key: str, known: Collection[str]) -> Iterator[Self]:
        """Yield the tables of a list `[[key]]`; each is located by its number."""
        found = self.entries.get(key, [])
        if not isinstance(found, list):
            self.refuse(f"[{key}]", f"is a single table; write [[{key}]], with two brackets, for each one")
        for number, entries in enumerate(found, 1):
            yield type(self)(f"{self.location}: [[{key}]] {number}", entries, known)

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text that is not blank."""
        value = self.entries.get(key, default)
        if key in self.entries and (not isinstance(value, str) or not value.strip()):
            self.refuse(key, f"must be a text, not {show(value)}")
        return value  # type: ignore[return-value]

    def one_of(self, key: str, choices: Collection[str], default: str | None = None) -> str:
        """One of the choices."""
        value = self.text(key, default)
        if value is None or value not in choices:
            self.refuse(key, f"is {show(value)}; {suggest(str(value), choices)}")
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """Return a whole number within bounds."""
        value = self.entries.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(key, f"is {show(value)}; it must be a whole number from {low} to {high}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"is {show(value)}; it must be true or false")
        return value

    def span(self, key: str, default: int | None = None, *, zero: bool = False) -> int | None:
        """Return a length of time in nanoseconds, written as seconds or as in `10ms`."""
        value: Any = self.entries.get(key)
        return default if value is None else nanoseconds(value, f"{self.location}: {key}", zero=zero, error=self.error)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of distinct texts."""
        value = self.entries.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
            self.refuse(key, f"must be a list of texts, not {show(value)}")
        if len(set(value)) < len(value):
            self.refuse(key, f"names {next(each for each in value if value.count(each) > 1)!r} twice")
        return tuple(value)


def suggest(word: str, known: Collection[str]) -> str:
    """Return what was probably meant, or all that is known."""
    if RENAMED.get(word) in known:
        return f"it is called {RENAMED[word]!r} now"
    return did_you_mean(word, known).rstrip() or f"known are {', '.join(known)}"


def show(value: object) -> str:
    """Return a value for a message, cut if it is long."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
