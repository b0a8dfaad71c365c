"""Classes made on the fly, and random hierarchies of them."""

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from genus import Event, Kind
from genus.catalog import Catalog
from genus.model import attributes, is_event_type

TYPES = (int, str, float, bool, bytes)


def event_type(
    name: str,
    base: type = Event,
    *kinds: type,
    fields: dict[str, Any] | None = None,
    tagged: Sequence[str] = (),
) -> Any:
    """An event type with these annotations."""
    metaclass: Any = type(Event)
    namespace = {"__annotations__": fields or {}, "__module__": __name__}
    return metaclass(name, (base, *kinds), namespace, tagged=tagged)


def kind(name: str, *above: type) -> Any:
    """A kind below others."""
    metaclass: Any = type(Kind)
    return metaclass(name, above or (Kind,), {"__module__": __name__})


def fill_etags(catalog: Catalog) -> None:
    """Register types until a registration has no event tag left to give: the rest is kept for buses that ask."""
    names = ["time", "source", "place", "deadline", "expires", "x", "y", "z"]
    fields = dict.fromkeys("xyz", int | None)
    for tagged in range(8, -1, -1):
        numbers = itertools.count()
        while True:
            cls = event_type(f"Filling{tagged}x{next(numbers)}", fields=fields, tagged=names[:tagged])
            catalog.register(cls)
            if not catalog.has_etag(cls):
                break


def reread(catalog: Catalog) -> Catalog:
    """The same catalog as another process would read it: it knows no classes."""
    return Catalog._parse("memory", catalog.text())


@st.composite
def hierarchies(draw: st.DrawFn, size: int = 14) -> list[type]:
    """Event types and kinds, parents first; attribute names recur, always with one type. Some families have tagged."""
    kinds: list[type] = []
    lines: list[type] = [Event]
    made: list[type] = []
    for index in range(draw(st.integers(1, size))):
        chosen = _unrelated(draw(st.lists(st.sampled_from(kinds), max_size=2, unique=True)) if kinds else [])
        if draw(st.integers(0, 3)) == 0:
            kinds.append(kind(f"Kind{index}", *chosen[:1]))
            made.append(kinds[-1])
        else:
            base = draw(st.sampled_from(lines))
            fields = draw(_fields(base))
            tagged = draw(_tagged(fields)) if base is Event else []
            lines.append(_declared(f"Type{index}", base, chosen, fields, tagged))
            made.append(lines[-1])
    return made


def _declared(name: str, base: type, kinds: Sequence[type], fields: dict[str, Any], tagged: Sequence[str]) -> Any:
    """An event type with these kinds, or with none where Python finds no order for its bases."""
    above = [each for each in kinds if not issubclass(base, each)]
    try:
        return event_type(name, base, *above, fields=fields, tagged=tagged)
    except TypeError:
        return event_type(name, base, fields=fields, tagged=tagged)


def _tagged(fields: dict[str, Any]) -> st.SearchStrategy[list[str]]:
    """Some optional attributes of a new root, or none."""
    optional = ["time", "place", *(name for name, note in fields.items() if not isinstance(note, type))]
    return st.one_of(st.just([]), st.lists(st.sampled_from(optional), max_size=3, unique=True))


@st.composite
def _fields(draw: st.DrawFn, base: type) -> dict[str, Any]:
    required = {attribute.name for attribute in attributes(base) if not attribute.optional}
    found: dict[str, Any] = {}
    for number in draw(st.lists(st.integers(0, 9), max_size=2, unique=True)):
        plain: Any = TYPES[number % len(TYPES)]
        must = f"x{number}" in required or draw(st.booleans())
        found[f"x{number}"] = plain if must else plain | None
    return found


def _unrelated(kinds: Sequence[type]) -> list[type]:
    """Kinds of which none is above another, as Python wants bases ordered."""
    return [each for each in kinds if not any(each is not other and issubclass(other, each) for other in kinds)]


def event_types(made: Sequence[type]) -> list[type]:
    """Those that events can be of."""
    return [cls for cls in made if is_event_type(cls)]
