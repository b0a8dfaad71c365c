"""The errors Genus raises, grouped by what the caller can do about them.

Each also derives from the standard-library error it refines, so code that does not know Genus still catches it.
Bytes from a wire or a file never raise one of these into a handler: they are counted and dropped.
"""

from collections.abc import Iterable


class GenusError(Exception):
    """Anything Genus raises on purpose; catch this to catch them all."""


class DeclarationError(GenusError, TypeError):
    """A class cannot be an event type as it is written. Change the class."""


class EventError(GenusError, TypeError):
    """An event holds a value that its attribute's type does not allow. Mend the publisher."""


class SubscriptionError(GenusError, ValueError):
    """A subscription names something its type does not have, or compares what cannot be compared. Change the call."""


class SyntaxProblem(SubscriptionError):
    """A subscription text does not parse; the message points at the column. Change the text."""


class CatalogConflict(GenusError, ValueError):
    """A registration would change what the catalog already gave. Rename, or undo the change of the class."""


class CatalogDamaged(GenusError, ValueError):
    """A catalog file does not hold a catalog; the message says where. Restore the file; it was left as it is."""


class CatalogUnavailable(GenusError, OSError):
    """A catalog file cannot be read, written or locked; the message says why. Mend the path, make room or wait."""


class NotRegistered(GenusError, LookupError):
    """A type, or an attribute of it, is not in the catalog. Register the class first."""


class RecordingError(GenusError, OSError):
    """A recording cannot be opened or written. Choose another file."""


class HierarchyError(GenusError, ValueError):
    """A type hierarchy has a cycle, a missing parent or a broken row; the message says where. Mend the input."""


class BusError(GenusError, RuntimeError):
    """A bus was used in a way it cannot serve: closed, or of an unknown address. Change the call."""


class QueueFull(GenusError, RuntimeError):
    """A bounded queue whose policy is `raise` had no room. Slow down, widen the queue or choose another policy."""

    queue: object = None
    """The queue that had no room."""


class DbcError(GenusError, ValueError):
    """A DBC file cannot be read; the message says why. Mend the file, or choose another."""


class TableDamaged(GenusError, ValueError):
    """A broker's table file does not hold its tables; the message says where. Mend the file; it was left as it is."""


class PlanError(GenusError, ValueError):
    """A system or calendar file cannot be used; the message names file, table and key. Mend the file."""


class LakeError(GenusError, ValueError):
    """A lake, an inbox or a source cannot be used as asked; the message says which and why. Change the call or path."""


class LakeDamaged(LakeError):
    """A lake's own files do not hold what they should; the message says which. Restore them; they were left alone."""


def near(word: str, known: Iterable[str]) -> str:
    """For a message: the known word that was probably meant, or nothing.

    >>> near("plcae", ["place", "lane"]), near("x", ["place", "lane"])
    ("did you mean 'place'? ", '')
    """
    from difflib import get_close_matches  # needed only when something is wrong

    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}? " if close else ""
