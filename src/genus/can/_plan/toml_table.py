"""Tables of a TOML file with checked values: errors name file, table and key, and what was probably meant."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from math import isfinite
from typing import Any, NoReturn

from genus.can._plan.units import read_bitrate
from genus.errors import PlanError
from genus.model import nanoseconds


class TomlTable:
    """One table of the file and its location; each method reads the value of a key, or gives the default.

    >>> table = TomlTable("city.toml: [bus]", {"gap": "20us"}, ("gap", "bitrate"))
    >>> table.span("gap"), table.span("precision", 5000)
    (20000, 5000)
    >>> TomlTable("city.toml: [bus]", {"bitrat": 1}, ("gap", "bitrate"))
    Traceback (most recent call last):
    genus.errors.PlanError: city.toml: [bus]: unknown key 'bitrat'; did you mean 'bitrate'?
    """

    def __init__(self, location: str, entries: object, known: Collection[str] | None = None) -> None:
        if not isinstance(entries, Mapping):
            raise PlanError(f"{location}: must be a table, not {_show(entries)}")
        self.location = location
        self.entries: Mapping[str, object] = entries
        for key in entries if known is not None else ():
            if key not in (known or ()):
                raise PlanError(f"{location}: unknown key {key!r}; {_suggest(key, known or ())}")

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise PlanError for a key."""
        raise PlanError(f"{self.location}: {key} {why}")

    def require(self, *keys: str) -> None:
        """Raise PlanError if one of the keys is missing."""
        for key in keys:
            if key not in self.entries:
                self.refuse(key, "is missing")

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text that is not blank."""
        value = self.entries.get(key, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(key, f"must be a text, not {_show(value)}")
        return value

    def one_of(self, key: str, choices: Collection[str]) -> str:
        """One of the choices."""
        value = self.text(key)
        if value is None or value not in choices:
            self.refuse(key, f"is {_show(value)}; {_suggest(str(value), choices)}")
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.entries.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(key, f"is {_show(value)}; it must be a whole number from {low} to {high}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"is {_show(value)}; it must be true or false")
        return value

    def span(self, key: str, default: int | None = None, *, zero: bool = False) -> int | None:
        """A length of time in nanoseconds, written as seconds or as in `10ms`."""
        value: Any = self.entries.get(key)
        return default if value is None else nanoseconds(value, f"{self.location}: {key}", zero=zero, error=PlanError)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of distinct texts."""
        value = self.entries.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
            self.refuse(key, f"must be a list of texts, not {_show(value)}")
        if len(set(value)) < len(value):
            self.refuse(key, f"names {next(each for each in value if value.count(each) > 1)!r} twice")
        return tuple(value)

    def bitrate(self, key: str) -> int | None:
        """Bits per second: a number, or a text such as `500k`, `1Mbit/s`, `83.333k`; rounded to whole bits."""
        value = self.entries.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, float) and isfinite(value):
            return round(value)
        if isinstance(value, str):
            with suppress(ValueError):
                return read_bitrate(value)
        self.refuse(key, f"is {_show(value)}; write bits per second, such as 500_000 or '500k' or '1Mbit/s'")


def _suggest(word: str, known: Collection[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


def _show(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
