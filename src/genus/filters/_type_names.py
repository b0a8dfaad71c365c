"""Words of the text of a subscription, the types that they can name, and errors that point at one."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType

import msgspec

from genus.errors import SyntaxProblem, did_you_mean
from genus.model import Event, Kind, is_generated, name_of, subtypes
from genus.model.internal import KindMeta, declared_types

EXAMPLE_TIME = "@2026-05-01T00:00:00Z"


class Token(msgspec.Struct, frozen=True, gc=False):
    """A word of the text, its kind and where it starts."""

    kind: str
    text: str
    column: int


def problem_at(text: str, column: int, what: str) -> SyntaxProblem:
    """Return an error that shows the text with a mark under the column (counted from 1)."""
    line = text.replace("\n", " ").replace("\t", " ")
    return SyntaxProblem(f"{what} (column {column})\n  {line}\n  {' ' * (column - 1)}^", column, what)


class TypesByName:
    """The types that texts can name, found by name.

    `Subscription.parse` takes one as its `types`. Make one to parse many texts with the same types: it reads the names
    of all types once, and then each text costs the same however many types there are.

    Args:
        types: The types; without them, all that are declared when a name is looked up.
        preferred: Types by name that come before all others of their names.

    >>> from genus import Event, Subscription
    >>> class Tram(Event):
    ...     line: int
    >>> known = TypesByName([Tram, Event])
    >>> [str(Subscription.parse(text, known)) for text in ("Tram where line == 8", "Event")]
    ['Tram where line == 8', 'Event']
    """

    def __init__(
        self, types: Iterable[type] | None = None, preferred: Mapping[str, type] = MappingProxyType({})
    ) -> None:
        self._given = None if types is None else _by_name(types)
        self._preferred = preferred

    def __iter__(self) -> Iterator[type]:
        """The types, each once; the order means nothing."""
        known = (subtypes(Event), subtypes(Kind)) if self._given is None else self._given.values()
        others = (cls for cls in chain.from_iterable(known) if name_of(cls) not in self._preferred)
        return iter(dict.fromkeys((*others, *self._preferred.values())))

    def named(self, name: str) -> list[type]:
        """Return the types that a name can mean: none, one, or several that cannot be told apart."""
        if name in self._preferred:
            return [self._preferred[name]]
        return meant_by_name(declared_types(name) if self._given is None else self._given.get(name, ()))


def _by_name(types: Iterable[type]) -> dict[str, tuple[type, ...]]:
    named: dict[str, tuple[type, ...]] = {}
    for cls in types:
        if isinstance(cls, KindMeta):
            name = name_of(cls)
            named[name] = (*named[name], cls) if name in named else (cls,)
    return named


def meant_by_name(named: Iterable[type]) -> list[type]:
    """Those of some types with one name that it can mean.

    Of a type that was defined again in the same place, as in a notebook, only the latest is meant; one that was
    generated from a catalog only if there is no other.
    """
    classes = list(named)
    written = [cls for cls in classes if not is_generated(cls)] or classes
    return list({(cls.__module__, cls.__qualname__): cls for cls in written}.values())


def find_type(token: Token, known: TypesByName, text: str) -> type:
    """Return the type of a name; SyntaxProblem if there is none, or several."""
    found = known.named(token.text)
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in found))
        raise problem_at(text, token.column, f"several types are called {token.text}: {places}; rename one by name=")
    names = sorted({name_of(cls) for cls in known})
    shown = "known: " + ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    in_rooms = [name for name in names if name.endswith(f".{token.text}")]
    hint = f"did you mean {' or '.join(map(repr, in_rooms))}? " if in_rooms else did_you_mean(token.text, names)
    raise problem_at(text, token.column, f"no event type is called {token.text}; {hint}{shown}")
