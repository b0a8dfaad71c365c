"""Random systems of types for devices: families with attributes of every type, kinds, tagged attributes and bounds."""

import math
import random
from collections.abc import Iterator
from copy import copy
from datetime import datetime, timedelta
from enum import Enum
from itertools import count
from typing import Annotated, Any

import msgspec

from genus import Event, Kind, Subscription
from genus.catalog import Catalog
from genus.filters._subscription import rebuild
from genus.filters.types import AllOf
from genus.model import Float32, Int8, Int16, Int32, UInt8, UInt16, UInt32, attributes, vector
from genus.model._types import int_range
from genus.model.types import Attribute, ChoiceType, FloatType, IntType
from genus.testing._generator import pool
from tests.generators import Generator


class Gear(Enum):
    """A short list of texts."""

    PARK = "park"
    DRIVE = "drive"
    REVERSE = "reverse"


class Digit(Enum):
    """A list of numbers."""

    ONE = 1
    TWO = 2


Many = Enum("Many", {f"V{number}": number for number in range(300)})  # type: ignore[misc]
"""More choices than a byte has."""
WIDER = {
    '"reverse"]': '"reverse", "neutral", "sport"]',
    "[1, 2]": "[1, 2, 0, -3]",
    "298, 299]": "298, 299, 300, 301]",
}
"""The last choices in the text of a catalog, and more of them than the classes have."""

PLAIN: tuple[Any, ...] = (
    bool, Int8, UInt8, Int16, UInt16, Int32, UInt32, int, float, Float32, str, bytes, datetime, timedelta, Gear, Digit,
    Many,
)  # fmt: skip
BOUNDED: tuple[Any, ...] = (
    Annotated[int, msgspec.Meta(ge=-5, lt=1000)],
    Annotated[float, msgspec.Meta(gt=0.0, le=1.5)],
    Annotated[str, msgspec.Meta(min_length=1, max_length=3)],
    Annotated[bytes, msgspec.Meta(max_length=2)],
)


_NUMBERS = count()
"""Names of types are different in all systems of a process."""


class RandomSystem:
    """Types, events and subscriptions of one system; the same for the same seed.

    Of an odd one the catalog has more choices than the classes.
    """

    def __init__(self, seed: int, *, bounds: bool = True) -> None:
        self.random = random.Random(seed)
        self._number = next(_NUMBERS)
        self._generator = Generator(seed)
        self._annotations = (*PLAIN, *(BOUNDED if bounds else ()))
        self.kinds = [self._kind(f"Kind{number}") for number in range(2)]
        self.types: list[type[Event]] = []
        for number in range(self.random.randint(1, 3)):
            self._add_family(number)
        self.catalog = Catalog()
        self.catalog.register(*self.kinds, *self.types)
        if seed % 2:
            text = self.catalog.text()
            for own, wider in WIDER.items():
                text = text.replace(own, wider)
            self.catalog = Catalog.parse(text)
            self.catalog.register(*self.kinds, *self.types)

    def _kind(self, name: str) -> type:
        metaclass: Any = type(Kind)
        made: type = metaclass(f"D{self._number}{name}", (Kind,), {"__module__": __name__})
        return made

    def _add_family(self, number: int) -> None:
        root = self._declare(f"Root{number}", Event, self._fields(number, "a"), tag=True)
        made = [root]
        for below in range(self.random.randint(0, 4)):
            base = self.random.choice(made)
            fields = self._fields(number, f"b{below}") if self.random.random() < 0.7 else {}
            made.append(self._declare(f"Type{number}x{below}", base, {**fields, **self._narrowed(base)}))
        self.types += made

    def _declare(self, name: str, base: type[Event], fields: dict[str, Any], *, tag: bool = False) -> type[Event]:
        optional = [name for name, note in fields.items() if _is_optional(note)]
        names = [*optional, "place", "time"]
        tagged = self.random.sample(names, min(len(names), self.random.choice([0, 0, 1, 2]))) if tag else []
        options: dict[str, Any] = {"tagged": tuple(tagged)} if tagged else {}
        kinds = [kind for kind in self.kinds if self.random.random() < 0.3 and not issubclass(base, kind)]
        return _make(f"D{self._number}{name}", (base, *kinds), fields, __name__, **options)

    def _fields(self, family: int, prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number in range(self.random.randint(0, 6)):
            note = self.random.choice(self._annotations)
            found[f"{prefix}_{number}"] = note if self.random.random() < 0.35 else note | None
        if self.random.random() < 0.2:
            found[f"{prefix}_parts"] = list[int] | None
        return found

    def _narrowed(self, base: type[Event]) -> dict[str, Any]:
        """An optional attribute that the subtype requires."""
        notes = {field.name: field.type for field in msgspec.structs.fields(base)}
        own = [each for each in attributes(base) if each.optional and each.name.startswith(("a_", "b"))]
        chosen = [each for each in own if self.random.random() < 0.2 and "parts" not in each.name]
        return {each.name: _without_none(notes[each.name]) for each in chosen}

    # -- growth ------------------------------------------------------------------------------------------------------

    def grow(self) -> "RandomSystem":
        """The same system later: types have gained attributes, of their family's vector and new ones; more types came.

        `types` are other classes of the same names, and late ones; the catalog is this one's with what is new.
        """
        later = copy(self)
        later.random = random.Random(self.random.random())
        made: dict[type, type[Event]] = {Event: Event}
        for cls in self.types:
            fields = {**cls.__annotations__, **later._gained(cls)}
            kinds = tuple(base for base in cls.__bases__[1:])
            options = {"tagged": tuple(self.catalog.tagged_attributes(cls))} if cls.__bases__[0] is Event else {}
            made[cls] = _make(cls.__name__, (made[cls.__bases__[0]], *kinds), fields, f"{__name__}.later", **options)
        later.types = list(made.values())[1:]
        for number in range(later.random.randint(1, 3)):
            base = later.random.choice(later.types)
            fields = {**later._fields(0, f"late{number}"), **later._narrowed(base)}
            later.types.append(later._declare(f"Late{number}", base, fields))
        later.types.append(_make(f"D{self._number}Pure", (Event, self.kinds[0]), {}, f"{__name__}.later"))
        later.catalog = Catalog.parse(self.catalog.text())
        later.catalog.register(*later.types)
        return later

    def _gained(self, cls: type[Event]) -> dict[str, Any]:
        """Optional attributes that a class gained: some that other types of its family have, some that are new."""
        own = {each.name for each in attributes(cls)}
        family = [each for each in self.types if vector(each).scope == vector(cls).scope]
        notes = {field.name: field.type for each in family for field in msgspec.structs.fields(each)}
        found = {name: notes[name] for name in sorted(notes.keys() - own) if self.random.random() < 0.4}
        if self.random.random() < 0.5:
            found[f"gained_{cls.__name__}"] = self.random.choice(self._annotations)
        return {name: note if _is_optional(note) else note | None for name, note in found.items()}

    # -- events ------------------------------------------------------------------------------------------------------

    def events(self, number: int) -> list[Event]:
        """Valid events of random types."""
        return list(self._events(number))

    def wider_events(self, number: int) -> list[Event]:
        """Events with all choices of the catalog, which the classes need not have, and without their bounds."""
        wider = copy(self)
        wider.types = [self.catalog.declare(cls.__name__, generated=True) for cls in self.types]
        return wider.events(number)

    def _events(self, number: int) -> Iterator[Event]:
        while number:
            cls = self.random.choice(self.types)
            values = {a.name: self._value(a) for a in attributes(cls) if self._is_present(a)}
            notes = {field.name: field.type for field in msgspec.structs.fields(cls)}
            try:
                for name, value in values.items():
                    msgspec.convert(value, notes[name]) if not isinstance(value, Enum | list) else None
            except msgspec.ValidationError:
                continue
            number -= 1
            yield cls(**values)

    def _is_present(self, attribute: Attribute) -> bool:
        return not attribute.optional or self.random.random() < 0.5

    def _value(self, attribute: Attribute) -> Any:
        kind, roll = attribute.type, self.random.random()
        if isinstance(kind, FloatType) and roll < 0.4:
            return self.random.choice([math.nan, self.random.uniform(-2, 2), self.random.gauss(0, 1e6)])
        if isinstance(kind, IntType) and roll < 0.5:
            low, high = int_range(kind.bits, kind.signed)
            return self.random.choice([self.random.randint(low, high), self.random.randint(max(low, -9), 9)])
        if isinstance(kind, ChoiceType):
            assert kind.enum is not None
            return self.random.choice(list(kind.enum))
        return self.random.choice(pool(kind))

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscriptions(self, number: int) -> list[Subscription]:
        """One that takes everything of each family, one that takes all with a choice, and random ones."""
        roots = [cls for cls in self.types if cls.__bases__[0] is Event]
        chosen: dict[tuple[str, str], type[Event]] = {}
        for cls in self.types:
            names = [each.name for each in attributes(cls) if isinstance(each.type, ChoiceType)]
            chosen = {(vector(cls).scope, name): cls for name in names} | chosen
        return [
            *(rebuild(root) for root in roots),
            *(rebuild(cls, has=[name]) for (_, name), cls in chosen.items()),
            *(self._subscription() for _ in range(number)),
        ]

    def _subscription(self) -> Subscription:
        asked: Any = self.random.choice([*self.types, *self.types, Event, *self.kinds])
        if asked in self.types and self.random.random() < 0.15:
            asked = AllOf((asked, self.random.choice(self.kinds)))
        scope = asked.types[0] if isinstance(asked, AllOf) else asked
        names = [attribute.name for attribute in vector(scope)]
        picked = self.random.sample(names, min(len(names), self.random.choice([0, 0, 1, 2])))
        where = self._generator.predicate(scope, 2) if self.random.random() < 0.8 else None
        exact = not isinstance(asked, AllOf) and self.random.random() < 0.2
        return rebuild(asked, exact=exact, has=picked[:1], lacks=picked[1:], where=where)

    # -- damage ------------------------------------------------------------------------------------------------------

    def damaged(self, frame: tuple[int, bytes]) -> tuple[int, bytes]:
        """A frame with bytes changed, added or cut off."""
        etag, payload = frame
        raw = bytearray(payload)
        for _ in range(self.random.randint(1, 3)):
            match self.random.randint(0, 4):
                case 0:
                    del raw[self.random.randint(0, len(raw)) :]
                case 1:
                    raw.insert(self.random.randint(0, len(raw)), self.random.choice([0, 1, 0x80, 0xFE, 0xFF]))
                case 2 if raw:
                    raw[self.random.randrange(len(raw))] ^= 1 << self.random.randint(0, 7)
                case 3 if raw:
                    raw[self.random.randrange(len(raw))] = self.random.randrange(256)
                case 4 if raw:
                    raw[0] = self.random.randrange(256)
        return etag, bytes(raw)


def _make(name: str, bases: tuple[type, ...], fields: dict[str, Any], module: str, **options: Any) -> type[Event]:
    metaclass: Any = type(Event)
    made: type[Event] = metaclass(name, bases, {"__annotations__": fields, "__module__": module}, **options)
    return made


def _without_none(annotation: Any) -> Any:
    args = [part for part in getattr(annotation, "__args__", ()) if part is not type(None)]
    return args[0] if _is_optional(annotation) else annotation


def _is_optional(annotation: Any) -> bool:
    return type(None) in getattr(annotation, "__args__", ())
