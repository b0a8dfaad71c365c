"""Tables of a TOML file, read with care: what is wrong is said with its file, table and key, and what was meant."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import NoReturn

from genus.bus.qos import nanoseconds
from genus.errors import BusError, PlanError

_BITRATE_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}


class Table:
    """One table and where it stands; each reader gives the value of a key or the default where there is none.

    >>> table = Table("city.toml: [bus]", {"gap": "20us"}, ("gap", "bitrate"))
    >>> table.span("gap"), table.span("precision", 5000)
    (20000, 5000)
    >>> Table("city.toml: [bus]", {"bitrat": 1}, ("gap", "bitrate"))
    Traceback (most recent call last):
    genus.errors.PlanError: city.toml: [bus]: unknown key 'bitrat'; did you mean 'bitrate'?
    """

    def __init__(self, place: str, entries: object, known: Collection[str] | None = None) -> None:
        if not isinstance(entries, Mapping):
            raise PlanError(f"{place}: must be a table, not {_shown(entries)}")
        self.place = place
        self.entries: Mapping[str, object] = entries
        for key in entries if known is not None else ():
            if key not in (known or ()):
                raise PlanError(f"{place}: unknown key {key!r}; {_meant(key, known or ())}")

    def __contains__(self, key: str) -> bool:
        return key in self.entries

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raise the error that says what is wrong with a key."""
        raise PlanError(f"{self.place}: {key} {why}")

    def require(self, *keys: str) -> None:
        """Refuse the table if it lacks one of some keys."""
        for key in keys:
            if key not in self.entries:
                self.refuse(key, "is missing")

    def text(self, key: str, default: str | None = None) -> str | None:
        """A text that is not empty."""
        value = self.entries.get(key, default)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(key, f"must be a text, not {_shown(value)}")
        return value

    def one_of(self, key: str, choices: Collection[str]) -> str:
        """One of some texts."""
        value = self.text(key)
        if value is None or value not in choices:
            self.refuse(key, f"is {_shown(value)}; {_meant(str(value), choices)}")
        return value

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.entries.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(key, f"is {_shown(value)}; it must be a whole number from {low} to {high}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"is {_shown(value)}; it must be true or false")
        return value

    def span(self, key: str, default: int | None = None, *, zero: bool = False) -> int | None:
        """A length of time in nanoseconds, written as in `10ms`."""
        value = self.entries.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(key, f"is {_shown(value)}; write a time with its unit, such as '10ms'")
        try:
            found = nanoseconds(value, key)
        except BusError as problem:
            raise PlanError(f"{self.place}: {problem}") from None
        if found == 0 and not zero:
            self.refuse(key, "is zero")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of different texts."""
        value = self.entries.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
            self.refuse(key, f"must be a list of texts, not {_shown(value)}")
        if len(set(value)) < len(value):
            self.refuse(key, f"names {next(each for each in value if value.count(each) > 1)!r} twice")
        return tuple(value)

    def bitrate(self, key: str) -> int | None:
        """Bits per second: a number, or a text such as `500k`, `1Mbit/s`."""
        value = self.entries.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, str):
            number = value.strip().removesuffix("/s").removesuffix("bit").strip()
            unit = number[-1:] if number[-1:] in ("k", "M") else ""
            try:
                return round(float(number.removesuffix(unit)) * _BITRATE_UNITS[unit])
            except (ValueError, OverflowError):
                pass
        self.refuse(key, f"is {_shown(value)}; write bits per second, such as 500_000 or '500k' or '1Mbit/s'")


def _meant(word: str, known: Collection[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
