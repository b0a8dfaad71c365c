"""Options of addresses: a struct is the table, and `read_options` reads what follows the `?` by it.

A field of the table that an address can set is `Annotated` with a reader, and a line that says what it means:

>>> class BellOptions(msgspec.Struct, frozen=True):
...     tower: str
...     strikes: Annotated[int, whole(1, 12), "how often it strikes"] = 1
...     pause_s: Annotated[float, span(zero=False), "between two strikes"] = 2.0
>>> BellOptions("west", **read_options(BellOptions, "bell:west", "strikes=3&pause=500ms"))
BellOptions(tower='west', strikes=3, pause_s=0.5)
>>> read_options(BellOptions, "bell:west", "strikes=13")
Traceback (most recent call last):
genus.errors.BusError: bell:west: strikes is '13'; write a whole number from 1 to 12
>>> read_options(BellOptions, "bell:west", "strike=3")
Traceback (most recent call last):
genus.errors.BusError: bell:west: there is no option 'strike'; did you mean 'strikes'? known are strikes, pause
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, get_args, get_type_hints
from urllib.parse import unquote

import msgspec

from genus.bus.types import Overflow
from genus.errors import BusError, did_you_mean
from genus.model import seconds

RENAMED: Final = {"full": "overflow", "receive_full": "receive_overflow"}
"""Options of earlier versions, with their names now."""

Reader: TypeAlias = Callable[[str, str], Any]
"""Reads a value from its text. It gets a name for messages, too, and raises BusError."""


class Option(NamedTuple):
    """An option of an address: the field that it sets, how it is read, and what it says."""

    field: str
    read: Reader
    says: str


class Several(NamedTuple):
    """Reads one value of an option that may be given several times."""

    read: Reader

    def __call__(self, what: str, text: str) -> Any:
        """Read one of the values."""
        return self.read(what, text)


@cache
def option_table(cls: type) -> Mapping[str, Option]:
    """Return the options of a table by name, which is the field's without the unit of spans."""
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in msgspec.structs.fields(cls)]
    made = [Option(name, *hints[name].__metadata__) for name in names if hasattr(hints[name], "__metadata__")]
    return {option.field.removesuffix("_s"): option for option in made}


def read_options(cls: type, place: str, query: str) -> dict[str, Any]:
    """Return the fields of a table that `name=value&name=value` sets; `place` names the address in messages.

    Raises:
        BusError: An option is unknown, given twice, or has a wrong value.
    """
    table, found = option_table(cls), dict[str, Any]()
    for piece in filter(None, query.split("&")):
        name, equals, text = piece.partition("=")
        if not equals:
            raise BusError(f"{place}: write options as name=value, joined by &")
        name = unquote(name)
        if name not in table:
            hint = f"it is called {now} now; " if (now := RENAMED.get(name)) in table else did_you_mean(name, table)
            raise BusError(f"{place}: there is no option {name!r}; {hint}known are {', '.join(table)}")
        field, read, _ = table[name]
        is_several = isinstance(read, Several)
        if field in found and not is_several:
            raise BusError(f"{place}: {name}= is given twice")
        value = read(f"{place}: {name}", unquote(text))
        found[field] = (*found.get(field, ()), value) if is_several else value
    return found


# -- readers -----------------------------------------------------------------------------------------------------------


def any_text(what: str, text: str) -> str:
    """Read any text."""
    return text


def path(what: str, text: str) -> Path:
    """Read the name of a file; whoever opens it says whether it can be read."""
    return Path(text)


def flag(what: str, text: str) -> bool:
    """Read 1 or 0."""
    if text not in ("0", "1"):
        raise BusError(f"{what} is {text!r}; write 1 or 0")
    return text == "1"


def whole(least: int, most: int = 1 << 30) -> Reader:
    """Read a whole number within bounds."""

    def read(what: str, text: str) -> int:
        is_number = text.isascii() and text.isdecimal() and len(text) < 20  # int() refuses very many digits
        if not is_number or not least <= int(text) <= most:
            raise BusError(f"{what} is {text!r}; write a whole number from {least} to {most}")
        return int(text)

    return read


def span(zero: bool = True) -> Reader:
    """Read a length of time, in seconds."""
    return lambda what, text: seconds(text, what, zero=zero, error=BusError)


def matching(form: str, write: str) -> Reader:
    """Read a text that matches a regular expression; `write` says what to write."""

    def read(what: str, text: str) -> str:
        if not re.fullmatch(form, text):
            raise BusError(f"{what} is {text!r}; write {write}")
        return text

    return read


def choice(*choices: str, **refused: str) -> Reader:
    """Read one of some words; of others, `refused` says why they are none of them."""

    def read(what: str, text: str) -> str:
        if text not in choices:
            why = f"which is not possible: {refused[text]}; " if text in refused else did_you_mean(text, choices)
            raise BusError(f"{what} is {text!r}; {why}choose one of {', '.join(choices)}")
        return text

    return read


NO_CALLER: Final = "a packet that arrives has no caller that could be told"
SEND_OVERFLOW: Final = choice(*get_args(Overflow))
RECEIVE_OVERFLOW: Final = choice("block", "drop_oldest", "drop_newest", **{"raise": NO_CALLER})


# -- all networks ------------------------------------------------------------------------------------------------------


class NetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that the addresses of all networks have, but for CoAP."""

    realm_key: Annotated[str | None, any_text, "a file with the key that participants seal packets with"] = None
    grants: Annotated[str | None, any_text, "a file with grants: refuse here what they do not allow `user`"] = None
    user: Annotated[str | None, any_text, "the user that the grants are about"] = None
    format: Annotated[str, choice("cloudevents", "cloudevents-binary"), "send events as CloudEvents"] = ""
    cloudevents: Annotated[tuple[str, ...], Several(any_text), "topics or keys of CloudEvents of others"] = ()
