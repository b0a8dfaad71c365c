"""From what is given to register, to classes in the order in which they are entered."""

from collections.abc import Iterable
from types import ModuleType

from genus.catalog.declare import is_stand_in
from genus.codes.order import heaviest_first
from genus.errors import DeclarationError
from genus.model import Event, Kind, is_type, name_of, parents


def types_in(module: ModuleType) -> list[type]:
    """The event types and kinds defined in a module or imported into it, in their order; not `Event` and `Kind`.

    >>> import genus.testing.generators
    >>> [cls.__name__ for cls in types_in(genus.testing.generators)][:3]
    ['Marked', 'Watched', 'Sampler']
    """
    found = dict.fromkeys(value for value in vars(module).values() if is_type(value))
    return [cls for cls in found if cls not in (Event, Kind)]


def types_of(what: Iterable[type | ModuleType]) -> list[type]:
    """Classes, and those of modules; anything else is refused.

    >>> types_of([Event, int])
    Traceback (most recent call last):
    genus.errors.DeclarationError: <class 'int'> is neither an event type nor a kind nor a module of them
    """
    found: dict[type, None] = {}
    for each in what:
        if isinstance(each, ModuleType):
            found.update(dict.fromkeys(types_in(each)))
        elif is_type(each) and each is not Kind:
            found[each] = None
        else:
            raise DeclarationError(f"{each!r} is neither an event type nor a kind nor a module of them")
    return list(found)


def in_order(classes: Iterable[type]) -> list[type]:
    """The classes and all above them, those with most of them below first: heavy subtrees get the small codes."""
    by_name: dict[str, dict[type, None]] = {}
    queue = list(classes)
    for cls in queue:
        if cls not in (same_name := by_name.setdefault(name_of(cls), {})):
            same_name[cls] = None
            queue.extend(parents(cls))
    hierarchy = {name: tuple(map(name_of, parents(next(iter(found))))) for name, found in by_name.items()}
    return [cls for name in heaviest_first(hierarchy) for cls in by_name[name]]


def clash(known: type, cls: type) -> str | None:
    """What is wrong with two classes of one name; nothing if one is defined again in its place (a notebook does).

    Nothing either if one stands in for the other, being made from a catalog.
    """
    places = [f"{each.__module__}.{each.__qualname__}" for each in (known, cls)]
    if places[0] == places[1] or is_stand_in(known) or is_stand_in(cls):
        return None
    return (
        f"is the name of two classes, {' and '.join(places)}; "
        "rename one, or give it another name in catalogs: class X(Event, name=...)"
    )
