"""Random evolutions of an event type: the declaration of an older program and that of a newer one, and their events.

A newer declaration appends values to enumerations, widens numbers and texts, and has further optional attributes.
"""

import random
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Any, NamedTuple

import msgspec

from genus.bus.internal import MapReader, UnreadValues
from genus.model import Event, Int16, Int32, UInt8, UInt16, UInt32, Unit
from genus.model.internal import create_event
from tests.generators import MarkedSampler, Sampler, declare

_TEXTS = ("car", "truck", "bus", "tram", "ferry", "é")


class Grown(NamedTuple):
    """An attribute before and after: its annotations, values of the newer one, and which of them the older one has."""

    name: str
    old: Any
    new: Any
    values: Sequence[Any]
    narrow: Callable[[Any], Any]
    """The value in the older class; None if that cannot have it."""
    is_optional: bool

    @property
    def common(self) -> list[Any]:
        """The values that both classes have."""
        return [value for value in self.values if self.narrow(value) is not None]


class Evolution:
    """One evolution, by its seed: the classes `old` and `new`, and random events of both.

    >>> made = Evolution(3)
    >>> made.old.__name__ == made.new.__name__
    True
    """

    def __init__(self, seed: int, name: str = "Evolving", base: type[Event] = Event) -> None:
        self._random = random.Random(seed)
        makers = [_texts, _numbers, _width, _bound, _length, _list, _same, _same]
        chosen = self._random.sample(makers, self._random.randint(2, 6))
        self.shared = [make(self._random, f"shared{place}") for place, make in enumerate(chosen)]
        units = [Annotated[float, Unit("km/h")], Annotated[UInt16, Unit("m")], str, UInt8, list[str], bool]
        self.added = {f"added{place}": self._random.choice(units) for place in range(self._random.randint(0, 3))}
        self.old = declare(name, base, {each.name: _note(each.old, each.is_optional) for each in self.shared})
        newer = {each.name: _note(each.new, each.is_optional) for each in self.shared}
        self.new = declare(name, base, newer | {each: _note(note, True) for each, note in self.added.items()})

    def new_event(self) -> Event:
        """Return an event of the newer class."""
        values = {each.name: self._value(each, each.values) for each in self.shared}
        for name, note in self.added.items():
            if self._random.random() < 0.7:
                values[name] = self._random.choice(_ADDED[str(note)])
        return create_event(self.new, **values, place=self._random.choice((None, "A8")))  # type: ignore[no-any-return]

    def old_event(self) -> Event:
        """Return an event of the older class."""
        values = {each.name: self._value(each, each.common) for each in self.shared}
        return create_event(self.old, **{name: self.narrow(name, value) for name, value in values.items()})  # type: ignore[no-any-return]

    def _value(self, attribute: Grown, values: Sequence[Any]) -> Any:
        if attribute.is_optional and self._random.random() < 0.3:
            return None
        return self._random.choice(values)

    def narrow(self, name: str, value: Any) -> Any:
        """Return the value of a shared attribute in the older class; None if it cannot have it."""
        return None if value is None else next(each for each in self.shared if each.name == name).narrow(value)

    def as_old(self, event: Event) -> Event:
        """Return what the older program sees of an event of the newer one; attributes that it cannot read are None."""
        values = {each.name: self.narrow(each.name, getattr(event, each.name)) for each in self.shared}
        return create_event(self.old, **values, place=event.place)  # type: ignore[no-any-return]

    def as_new(self, event: Event) -> Event:
        """Return what the newer program sees of an event of the older one."""
        values = {each.name: getattr(event, each.name) for each in self.shared}
        widened = {each.name: _widened(each, values[each.name]) for each in self.shared}
        return create_event(self.new, **widened, place=event.place)  # type: ignore[no-any-return]

    def unread(self, event: Event) -> set[str]:
        """Return the attributes of an event of the newer class that the older one cannot read."""
        lost = {each.name for each in self.shared if self.narrow(each.name, getattr(event, each.name)) is None}
        return {name for name in (*lost, *self.added) if getattr(event, name) is not None}


def _note(note: Any, is_optional: bool) -> Any:
    return note | None if is_optional else note


def _grown(chance: random.Random, name: str, old: Any, new: Any, values: Sequence[Any], narrow: Any) -> Grown:
    return Grown(name, old, new, values, narrow, chance.random() < 0.5)


def _widened(attribute: Grown, value: Any) -> Any:
    return next(each for each in attribute.values if attribute.narrow(each) == value) if value is not None else None


def _enums(chance: random.Random, name: str, values: Sequence[Any]) -> tuple[Any, Any, Any]:
    count = chance.randint(1, len(values) - 1)
    old: Any = Enum(f"Old{name}", {f"M{place}": value for place, value in enumerate(values[:count])})  # type: ignore[misc]
    new: Any = Enum(f"New{name}", {f"M{place}": value for place, value in enumerate(values)})  # type: ignore[misc]
    return old, new, {each: old(each.value) if each.value in values[:count] else None for each in new}


def _texts(chance: random.Random, name: str) -> Grown:
    old, new, narrow = _enums(chance, name, _TEXTS)
    return _grown(chance, name, old, new, list(new), narrow.__getitem__)


def _numbers(chance: random.Random, name: str) -> Grown:
    old, new, narrow = _enums(chance, name, (1, 2, 7, -3, 2**40))
    return _grown(chance, name, old, new, list(new), narrow.__getitem__)


def _width(chance: random.Random, name: str) -> Grown:
    old, new = chance.choice([(UInt8, UInt16), (UInt8, int), (Int16, Int32), (UInt32, int)])
    low, high = {UInt8: (0, 255), Int16: (-(2**15), 2**15 - 1), UInt32: (0, 2**32 - 1)}[old]
    most = {UInt16: 2**16 - 1, Int32: 2**31 - 1}.get(new, 2**50)
    values: list[Any] = [0, 1, high, high + 1, most]
    values += [-1, -(2**40)] if new is int else []
    return _grown(chance, name, old, new, values, lambda value: value if low <= value <= high else None)


def _bound(chance: random.Random, name: str) -> Grown:
    old, new = (Annotated[UInt8, msgspec.Meta(le=most)] for most in (100, 200))
    return _grown(chance, name, old, new, [0, 100, 101, 200], lambda value: value if value <= 100 else None)


def _length(chance: random.Random, name: str) -> Grown:
    old, new = Annotated[str, msgspec.Meta(max_length=3)], str
    return _grown(chance, name, old, new, ["", "abc", "abcd"], lambda value: value if len(value) <= 3 else None)


def _list(chance: random.Random, name: str) -> Grown:
    old, new, narrow = _enums(chance, name, _TEXTS)

    def each(values: list[Any]) -> Any:
        found = [narrow[value] for value in values]
        return None if None in found else found

    return _grown(chance, name, _list_of(old), _list_of(new), [[], [new.M0], list(new)], each)


def _list_of(item: Any) -> Any:
    return list.__class_getitem__(item)


def _same(chance: random.Random, name: str) -> Grown:
    kinds: list[tuple[Any, list[Any]]] = [(float, [0.5, -1.0]), (str, ["", "a"]), (bool, [True, False])]
    note, values = chance.choice(kinds)
    return _grown(chance, name, note, note, values, lambda value: value)


_ADDED: dict[str, list[Any]] = {
    str(Annotated[float, Unit("km/h")]): [90.0, -0.5],
    str(Annotated[UInt16, Unit("m")]): [0, 40_000],
    str(str): ["", "new"],
    str(UInt8): [0, 255],
    str(list[str]): [[], ["a", "b"]],
    str(bool): [True, False],
}


# -- events with values that cannot be read ----------------------------------------------------------------------------

WIDER: dict[str, Any] = {
    "tiny": 128,
    "octet": 256,
    "narrow": 1 << 40,
    "count": -1,
    "number": 1 << 63,
    "other": 1 << 63,
    "colour": "ultraviolet",
    "level": 77,
    "parts": ["one"],
    "novelty": "an attribute that the class does not have",
}
"""For attributes of a sampler, a value that only a newer class could read."""


def unread_events(names: Sequence[str], *, required: bool = True) -> list[Event]:
    """Samplers as an older program reads them: each without one of these attributes, or several of them.

    With `required`, also of a class that requires three of them.
    """
    read, reader = [], MapReader(Sampler, UnreadValues()).decode
    for name in names:
        read += [
            reader(msgspec.msgpack.encode(fields))
            for fields in ({name: WIDER[name]}, {name: WIDER[name], "place": "a", "octet": 7}, dict(WIDER))
        ]
    marked, whole = MapReader(MarkedSampler, UnreadValues()).decode, {"number": 1, "real": 0.5, "colour": "red"}
    if required:
        read += [marked(msgspec.msgpack.encode(whole | {name: WIDER[name]})) for name in names if name in WIDER]
    return read
