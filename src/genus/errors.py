"""The errors Genus raises, grouped by what the caller can do about them.

Each also derives from the standard-library error it refines, so code that does not know Genus can catch it.
Malformed bytes from a wire or a file never raise one of these into a handler: they are counted and dropped, with a
reason (`Reasons`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

__all__ = [
    "BusError",
    "CatalogConflict",
    "CatalogDamaged",
    "CatalogUnavailable",
    "DbcError",
    "DeclarationError",
    "DeclarationWarning",
    "DeviceError",
    "EtagsExhausted",
    "EventError",
    "GenusError",
    "GrantsError",
    "HierarchyError",
    "LakeDamaged",
    "LakeError",
    "MappingError",
    "NoReceiver",
    "NotRegistered",
    "PlanError",
    "QueueFull",
    "Reasons",
    "RecordingError",
    "RequestRefused",
    "RequestTimeout",
    "SpanError",
    "SubscriptionError",
    "SubscriptionWarning",
    "SyntaxProblem",
    "TableDamaged",
]


class GenusError(Exception):
    """The base class of the errors of this module."""


class DeclarationError(GenusError, TypeError):
    """A class cannot be an event type as it is written. Change the class."""


class DeclarationWarning(UserWarning):
    """A class is defined again with another declaration, in a notebook, say. Subscribe again, or restart."""


class EventError(GenusError, TypeError):
    """An event lacks a required attribute, or has one or a value that its type does not allow. Correct the event."""


class SpanError(GenusError, ValueError):
    """A length of time cannot be read. Write seconds as a number, text such as `"100ms"`, or a timedelta."""


class SubscriptionError(GenusError, ValueError):
    """A subscription names something its type does not have, or compares what cannot be compared. Change the call."""


class SyntaxProblem(SubscriptionError):
    """A subscription text does not parse; the message points at the column. Change the text.

    >>> from genus.filters import Subscription
    >>> try:
    ...     Subscription.parse("Event where")
    ... except SyntaxProblem as problem:
    ...     print(problem.column, problem.reason)
    12 expected a value, found the end
    """

    column: int | None
    """The column where the text is wrong, counted from 1; None if it is not known."""
    reason: str
    """What is wrong: the message without the column and the picture of the text."""

    def __init__(self, message: str = "", column: int | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.column, self.reason = column, message if reason is None else reason


class SubscriptionWarning(UserWarning):
    """A subscription can never match; the message says why. Change the call, or refuse such calls by `strict=True`."""

    subscription: object = None
    """The subscription."""


class CatalogConflict(GenusError, ValueError):
    """A registration would change an entry of the catalog. Rename the class, or undo its change."""


class CatalogDamaged(GenusError, ValueError):
    """A catalog file is not a valid catalog; the message says where. Restore the file; it was not changed."""


class CatalogUnavailable(GenusError, OSError):
    """A catalog file cannot be read, written or locked; the message says why. Correct the path or wait."""


class NotRegistered(GenusError, LookupError):
    """A type, or an attribute of it, is not in the catalog. Register the class first."""


class RecordingError(GenusError, OSError):
    """A recording cannot be opened or written. Choose another file."""


class HierarchyError(GenusError, ValueError):
    """A type hierarchy has a cycle, a missing parent or a malformed row; the message says where. Correct the input."""


class EtagsExhausted(HierarchyError):
    """No event tag is free for a type on a CAN bus; the message has the counts. Use a bus with its own catalog."""


class BusError(GenusError, RuntimeError):
    """A bus cannot do what was asked: it is closed, say, or its address is unknown. Change the call."""


class GrantsError(GenusError, ValueError):
    """A grants file cannot be used; the message names file, table and key. Correct the file."""


class RequestTimeout(BusError, TimeoutError):
    """No reply to a request came in time; it may have been carried out. Ask what became of it, or request it again."""


class NoReceiver(BusError):
    """Nobody subscribed to a request, which was not published. Start the program that answers it."""


class RequestRefused(BusError):
    """A request was refused. Raise it in a handler of `Collection.serve`; `Collection.request` raises it then."""

    reason: str | None = None
    """What the program that refused it said."""


class QueueFull(GenusError, RuntimeError):
    """A bounded queue with the policy `raise` is full. Publish less, or choose a larger queue or another policy."""

    queue: object = None
    """The queue that is full."""


class DbcError(GenusError, ValueError):
    """A DBC file, or one of another format for `load_dbc`, cannot be read; the message says why.

    Correct the file, or choose another.
    """


class TableDamaged(GenusError, ValueError):
    """A broker's table file is not valid; the message says where. Correct the file; it was not changed."""


class DeviceError(GenusError, ValueError):
    """A small device cannot hold or test what is asked; the message says what. Keep less, or leave it to a receiver."""


class PlanError(GenusError, ValueError):
    """A system or calendar file cannot be used; the message names file, table and key. Correct the file."""


class LakeError(GenusError, ValueError):
    """A lake, an inbox or a source cannot be used as asked; the message says which and why. Change the call or path."""


class LakeDamaged(LakeError):
    """A lake's own files are not valid; the message says which. Restore them; they were not changed."""


class MappingError(LakeError):
    """A mapping of foreign records cannot be used; the message names file, table and key. Correct the file."""


class Reasons(Counter[str]):
    """How often something was refused, dropped or not read, by reason: a `Counter` with a bounded number of keys.

    Reasons name types, attributes and values that others choose. So those after the first 200 are counted as one,
    `other reasons`, and long ones are cut to 200 characters; the total is that of all.

    >>> reasons = Reasons(f"unknown type {number}" for number in range(1000))
    >>> len(reasons), reasons.total(), reasons["other reasons"]
    (201, 1000, 800)
    """

    MAX_COUNT: ClassVar = 200
    MAX_LENGTH: ClassVar = 200
    OTHER: ClassVar = "other reasons"

    def add(self, reason: str, count: int = 1) -> bool:
        """Count a reason; returns whether it is counted for the first time, so that it can be logged once."""
        before = len(self)
        self[reason] += count
        return len(self) > before

    def counted_as(self, reason: str) -> str:
        """Return the key of a reason: itself, cut if it is long, or that of other reasons."""
        if reason in self:
            return reason
        reason = reason[: self.MAX_LENGTH].encode("utf-8", "backslashreplace").decode()[: self.MAX_LENGTH]
        return reason if reason in self or len(self) < self.MAX_COUNT else self.OTHER

    def __setitem__(self, reason: str, count: int) -> None:
        key = self.counted_as(reason)
        super().__setitem__(key, count if key == reason else self[key] + count)

    def update(self, given: Mapping[str, int] | Iterable[str] | None = None, /, **more: Any) -> None:  # type: ignore[override]
        """Add the counts of another counter, or count reasons one by one."""
        for each in (given, more):
            for reason, count in each.items() if isinstance(each, Mapping) else ((one, 1) for one in each or ()):
                self[reason] += count


def counted(number: int, thing: str, things: str = "") -> str:
    """Return a number of things for a message.

    >>> counted(1, "event"), counted(1234, "event"), counted(0, "dead letter")
    ('1 event', '1,234 events', '0 dead letters')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint for an error message that names the known word most like `word`, or an empty text.

    >>> did_you_mean("plcae", ["place", "lane"]), did_you_mean("x", ["place", "lane"])
    ("did you mean 'place'? ", '')
    """
    from difflib import get_close_matches  # imported only when an error is raised

    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def some_names(names: Iterable[str], most: int = 5) -> str:
    """Names for an error message: the first few, and how many there are if some are left out.

    >>> some_names("abc"), some_names("abcdefg")
    ('a, b, c', 'a, b, c, d, e ... of 7')
    """
    found = list(names)
    return ", ".join(found[:most]) + (f" ... of {len(found)}" if len(found) > most else "")
