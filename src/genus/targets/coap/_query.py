"""What a server makes of a path and a query: the test that its events must pass."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from genus.catalog import Catalog
from genus.errors import GenusError
from genus.filters.internal import rebuild
from genus.model import Event
from genus.targets.python import PythonFilter

MAX_PARTS = 64
"""The largest number of parts of a query."""
_MASK = re.compile(r"[1-9a-f][0-9a-f]{0,252}", re.ASCII)


def format_mask(mask: int) -> str:
    """Presence bits as text: hexadecimal digits; ValueError unless there are some.

    >>> format_mask(36)
    '24'
    """
    if mask < 1:
        raise ValueError(f"presence bits are a positive integer, not {mask}")
    return f"{mask:x}"


def parse_mask(text: str) -> int | None:
    """Return the presence bits of a text; None if it is malformed.

    >>> parse_mask("24"), parse_mask("024"), parse_mask("2G")
    (36, None, None)
    """
    return int(text, 16) if _MASK.fullmatch(text) else None


class QueryFilter(msgspec.Struct, frozen=True):
    """The test of a request: made by `read_query`, used by a server.

    `texts` are the predicates as they were asked for, and `asked` is the type that their attributes belong to. They are
    compiled for each class of events when one comes, as a program may have several classes for a type: one that was
    made from a catalog, and one that it imported later.
    """

    code: int
    exact: bool = False
    has: int = 0
    lacks: int = 0
    texts: tuple[str, ...] = ()
    asked: type = Event
    tests: dict[type, tuple[PythonFilter, ...]] = {}

    def accepts(self, code: int, tag: int, event: Event) -> bool:
        """Return whether an event, with its code and presence bits, passes."""
        if code % self.code or (self.exact and code != self.code):
            return False
        if tag & self.has != self.has or tag & self.lacks:
            return False
        return not self.texts or self._is_true(event)

    def _is_true(self, event: Event) -> bool:
        cls = type(event)
        if cls not in self.tests:
            self.tests[cls] = self._compile(cls)
        try:
            return all(test(event) for test in self.tests[cls])
        except Exception:  # a value of another type than declared: the receiver's own test decides
            return True

    def _compile(self, cls: type) -> tuple[PythonFilter, ...]:
        """The tests of a class; none if it has other names of attributes, so that the receiver's own test decides."""
        found = _read_texts(self.texts, Event if self.asked is Event else cls)
        return () if isinstance(found, str) else found


def read_query(code: int, query: Sequence[str], catalog: Catalog) -> QueryFilter | str:
    """Return the test of a path and a query, or the reason why it cannot be done.

    >>> from genus import Event
    >>> from genus.catalog import Catalog
    >>> class Lamp(Event):
    ...     watts: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Lamp)
    >>> made = read_query(catalog.code(Lamp), ["w=watts > 40.0"], catalog)
    >>> [made.accepts(catalog.code(Lamp), 32, Lamp(watts=watts)) for watts in (20.0, 60.0)]
    [False, True]
    >>> read_query(catalog.code(Lamp), ["v=1"], catalog)
    "there is no query 'v'"
    """
    given: dict[str, str] = {}
    texts: list[str] = []
    for part in query[: MAX_PARTS + 1]:
        name, _, value = part.partition("=")
        if name == "w":
            texts.append(value)
        elif name not in ("x", "h", "l"):
            return f"there is no query {name[:40]!r}"
        elif name in given:
            return f"{name} is given twice"
        else:
            given[name] = value
    if len(query) > MAX_PARTS:
        return f"more than {MAX_PARTS} parts of a query"
    masks = {name: parse_mask(given[name]) for name in ("h", "l") if name in given}
    if wrong := [name for name, mask in masks.items() if mask is None]:
        return f"{wrong[0]} is no presence bits"
    if given.get("x"):
        return "x takes no value"
    asked = _class_of(code, catalog)
    problem = _read_texts(texts, asked)
    if isinstance(problem, str):
        return problem
    return QueryFilter(code, "x" in given, masks.get("h") or 0, masks.get("l") or 0, tuple(texts), asked, {})


def _class_of(code: int, catalog: Catalog) -> type:
    """Return the event type that the attributes in a query belong to: the lowest whose code divides the code."""
    entries = [each for each in catalog.entries.values() if not each.kind and code % each.code == 0]
    if not entries:
        return Event
    lowest = max(entries, key=lambda each: each.code)
    return catalog.declare(lowest.name)


def _read_texts(texts: Iterable[str], asked: type) -> tuple[PythonFilter, ...] | str:
    try:
        return tuple(PythonFilter(rebuild(asked, where=text)) for text in texts)
    except (GenusError, RecursionError, ValueError) as problem:
        return f"w cannot be read: {str(problem).splitlines()[0][:200]}"
