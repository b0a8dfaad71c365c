"""Types, events and subscriptions for tests: random ones from a seed, and all combinations of edge values.

Values come from small pools of edge cases, so that equality, overflow, NaN and absence are frequent. Every target is
compared with `Subscription.matches` on these (tests/test_truth_table.py).
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

from genus import testing
from genus.errors import SubscriptionError
from genus.filters import Subscription, coalesce, this, when
from genus.filters.internal import rebuild
from genus.filters.types import AllOf, Predicate, Term
from genus.model import Event, Float32, Int8, Int32, Kind, Maybe, UInt8, UInt32, subtypes, vector
from genus.model.types import (
    Attribute,
    AttributeType,
    BoolType,
    BytesType,
    ChoiceType,
    DurationType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
)
from genus.testing._generator import REALS, SMALL, SPANS, TEXTS, pool


class Colour(Enum):
    """An enumeration with text values."""

    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Level(Enum):
    """An enumeration with numbers."""

    LOW = 1
    HIGH = 10


class Marked(Kind):
    """A kind some samplers have."""


class Watched(Kind):
    """Another kind."""


class Sampler(Event, tagged=("place", "number", "text", "colour")):
    """An event type with optional attributes of every attribute type, some of them tagged."""

    flag: Maybe[bool] = None
    tiny: Maybe[Int8] = None
    octet: Maybe[UInt8] = None
    narrow: Maybe[Int32] = None
    count: Maybe[UInt32] = None
    number: Maybe[int] = None
    other: Maybe[int] = None
    real: Maybe[float] = None
    ratio: Maybe[float] = None
    single: Maybe[Float32] = None
    text: Maybe[str] = None
    label: Maybe[str] = None
    blob: Maybe[bytes] = None
    span: Maybe[timedelta] = None
    colour: Maybe[Colour] = None
    level: Maybe[Level] = None
    parts: Maybe[list[int]] = None


class MarkedSampler(Sampler, Marked):
    """A subtype that requires some attributes."""

    number: int
    real: float
    colour: Colour
    extra: Maybe[int] = None


class WatchedSampler(MarkedSampler, Watched):
    """A subtype of a subtype."""

    late: Maybe[bool] = None


class Stranger(Event, Watched):
    """A type of another family, where `number` is text and `source` a number."""

    source: Maybe[UInt8] = None  # type: ignore[assignment]
    number: Maybe[str] = None


class Bell(Event, Marked):
    """A pure class: it adds nothing to its kind."""


class Chime(Event, Marked):
    """Another pure class: exact subscriptions to either are to their kind."""


class Hue(Enum):
    """An enumeration with the same values as another."""

    ROT = "red"
    GRUEN = "green"
    BLAU = "blue"


class Impostor(Sampler):
    """A subtype with a property named like a sibling's attribute, and with another enum for `colour`."""

    colour: Maybe[Hue] = None  # type: ignore[assignment]

    @property
    def extra(self) -> int:
        """Not an attribute: an event of this class does not carry `extra`."""
        return 1


PATTERNS = (
    "%",
    "_",
    "A%_",
    "%k_3%",
    "_%_%_",
    "e_",
    "%\\%\\_%",
    "it%\\\\%_ine",
    "_\u0301%",
    "%a%a%b",
    "A8/km31",
    "a%",
    "%a",
    "%m%",
)


class Generator(testing.Generator):
    """A source of random types, events and subscriptions; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.types: list[type[Event]] = [*subtypes(Sampler), Stranger, Bell, Chime]

    def event(self, cls: type[Event] | None = None) -> Event:
        """Return an event of the given or a random type, with edge values and some attributes absent."""
        return super().event(cls or self.random.choice(self.types))

    def events(self, count: int, cls: type[Event] | None = None) -> list[Event]:
        """Several events."""
        return [self.event(cls) for _ in range(count)]

    # -- types -------------------------------------------------------------------------------------------------------

    def hierarchy(self, count: int, several_parents: float = 0.0) -> dict[str, tuple[str, ...]]:
        """A random hierarchy (name -> parents), parents first; `several_parents` is the share of types with several."""
        names: list[str] = []
        found: dict[str, tuple[str, ...]] = {}
        for index in range(count):
            most = min(len(names), 3 if self.random.random() < several_parents else 1)
            found[f"T{index}"] = tuple(self.random.sample(names, self.random.randint(min(1, most), most)))
            names.append(f"T{index}")
        return found

    def event_types(self, count: int, tagged: Sequence[str] = ()) -> list[type[Event]]:
        """Random event types of one family below a new root, each adding an attribute or none."""
        made = [declare("Root", Event, {}, tagged=tagged)]
        for index in range(count - 1):
            extra = {f"x{index}": self.random.choice([bool, int, float, str]) | None}
            fields = extra if self.random.random() < 0.6 else {}
            made.append(declare(f"Type{index}", self.random.choice(made), fields))
        return made

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def subscription(self, depth: int = 3) -> Subscription:
        """Return a subscription to one of the types, kinds or several at once; about half have a predicate.

        Some can never match; they give no warning.
        """
        several: list[Any] = [AllOf((Sampler, Watched)), AllOf((Marked, Watched))]
        asked: Any = self.random.choice([*self.types, Event, Marked, Watched, *several])
        scope = asked.types[0] if isinstance(asked, AllOf) else asked
        names = [attribute.name for attribute in vector(scope)]
        picked = self.random.sample(names, min(len(names), self.random.choice([0, 0, 0, 1, 2])))
        has, lacks = picked[:1], picked[1:]
        exact = not isinstance(asked, AllOf) and self.random.random() < 0.2
        where = self.predicate(scope, depth) if self.random.random() < 0.85 else None
        return rebuild(asked, exact=exact, has=has, lacks=lacks, where=where)

    def subscriptions(self, count: int, depth: int = 3) -> list[Subscription]:
        """Several subscriptions."""
        return [self.subscription(depth) for _ in range(count)]

    def predicate(self, cls: type, depth: int) -> Predicate:
        """Return a valid predicate over the attributes of a type."""
        while True:
            try:
                found = self._predicate(list(vector(cls)), depth)
                rebuild(cls, where=found)
                return found
            except SubscriptionError:
                continue

    def _predicate(self, among: list[Attribute], depth: int) -> Predicate:
        roll = self.random.random()
        if depth > 0 and roll < 0.45:
            left, right = self._predicate(among, depth - 1), self._predicate(among, depth - 1)
            return left & right if roll < 0.22 else left | right
        if depth > 0 and roll < 0.6:
            return ~self._predicate(among, depth - 1)
        return self._leaf(self.random.choice(among), among)

    def _leaf(self, attribute: Attribute, among: list[Attribute]) -> Predicate:
        term = this[attribute.name]
        if isinstance(attribute.type, OpaqueType) or self.random.random() < 0.08:
            return term.is_present()
        if self.random.random() < 0.2:
            term = self._choice(term, attribute, among)
        if isinstance(attribute.type, TextType) and self.random.random() < 0.4:
            if self.random.random() < 0.4:
                return term.like(self.random.choice(PATTERNS))
            test = self.random.choice([term.startswith, term.endswith, term.contains])
            return test(self.random.choice(TEXTS))
        if isinstance(attribute.type, TextType | BytesType) and self.random.random() < 0.2:
            return self._comparison(self._compute_number(term.length()), self.random.choice(SMALL))
        if self.random.random() < 0.2:
            return term.isin(self._options(attribute.type))
        if isinstance(attribute.type, BoolType | ChoiceType):
            return self.random.choice([term.__eq__, term.__ne__])(self._operand(attribute, among))
        return self._comparison(self._compute(term, attribute, among), self._operand(attribute, among))

    def _choice(self, term: Term, attribute: Attribute, among: list[Attribute]) -> Term:
        """Return a choice between the attribute and other values of its type, or between two constants."""
        other, constants = self._operand(attribute, among), self.random.choices(pool(attribute.type), k=2)
        if self.random.random() < 0.4:
            return self._choose(coalesce(term, other), coalesce(other, term, constants[0]))
        pairs = [(term, other), (other, term), (term, None), (constants[0], constants[1])]
        made: Term = when(self._predicate(among, 1), *self.random.choice(pairs))
        return made

    def _comparison(self, left: Term, right: Any) -> Predicate:
        tests = [left.__eq__, left.__ne__, left.__lt__, left.__le__, left.__gt__, left.__ge__]
        return self.random.choice(tests)(right)

    def _options(self, type_: AttributeType) -> list[Any]:
        """Two constants; of an integer, sometimes a float among them."""
        options = self.random.sample(list(pool(type_)), 2)
        if isinstance(type_, IntType) and self.random.random() < 0.3:
            options.append(self.random.choice([2.0, 0.5, 2.0**53, 2.0**62, -math.inf]))
        return options

    def _compute(self, term: Term, attribute: Attribute, among: list[Attribute]) -> Term:
        """Return the term, or arithmetic on it, in one or a few steps."""
        roll = self.random.random()
        numeric = isinstance(attribute.type, IntType | FloatType)
        if roll < 0.45 or not (numeric or isinstance(attribute.type, TimeType | DurationType)):
            return term
        if roll < 0.6 and not isinstance(attribute.type, TimeType):
            return -term if roll < 0.52 else abs(term)
        other = self._operand(attribute, among)
        if numeric:
            return self._compute_number(self._calculate(term, other))
        if isinstance(attribute.type, DurationType) and self.random.random() < 0.4:
            return self._choose(term % other, term // self.random.choice(SMALL))
        return self._choose(term - other, term + self.random.choice(SPANS))

    def _compute_number(self, term: Term) -> Term:
        """Return a number, or more steps of arithmetic on it."""
        while self.random.random() < 0.3:
            term = self._calculate(term, self.random.choice([*SMALL, *REALS]))
        return abs(term) if self.random.random() < 0.1 else term

    def _calculate(self, left: Term, right: Any) -> Term:
        return self._choose(left + right, left - right, left * right, left / right, left // right, left % right)

    def _choose(self, *terms: Term) -> Term:
        return self.random.choice(terms)

    def _operand(self, attribute: Attribute, among: list[Attribute]) -> Any:
        """Return a value to compare with: a constant, or sometimes another attribute of a similar type."""
        alike = [this[other.name] for other in among if _alike(other.type, attribute.type)]
        if alike and self.random.random() < 0.25:
            return self.random.choice(alike)
        return self.random.choice(pool(attribute.type))


def declare(name: str, base: type[Event], fields: Mapping[str, object], **options: Any) -> type[Event]:
    """Return a new event type with some fields."""
    metaclass: Any = type(Event)
    namespace = {"__annotations__": dict(fields), "__module__": __name__}
    made: type[Event] = metaclass(name, (base,), namespace, **options)
    return made


def _alike(one: AttributeType, other: AttributeType) -> bool:
    numbers = (IntType, FloatType)
    return type(one) is type(other) or (isinstance(one, numbers) and isinstance(other, numbers))


# -- all combinations at the edges -------------------------------------------------------------------------------------


def edge_events(name: str) -> list[Event]:
    """A sampler for every edge value of one attribute, one with NaN for a float, and one without the attribute."""
    attribute = vector(Sampler).find(name)
    values = [*pool(attribute.type), *([math.nan] if isinstance(attribute.type, FloatType) else [])]
    return [Sampler(), *(Sampler(**{name: value}) for value in values)]


def edge_subscriptions(name: str) -> Iterator[Subscription]:
    """Every comparison of one attribute with every edge value, plain and negated, and every test its type has."""
    attribute = vector(Sampler).find(name)
    term = this[name]
    for predicate in itertools.chain([term.is_present()], _edge_predicates(term, attribute.type)):
        yield rebuild(Sampler, where=predicate)
        yield rebuild(Sampler, where=~predicate)


def _edge_predicates(term: Term, type_: AttributeType) -> Iterator[Predicate]:
    if isinstance(type_, OpaqueType):
        return
    ordered = not isinstance(type_, BoolType | ChoiceType)
    for value in pool(type_):
        yield from (term == value, term != value, term.isin([value]))
        yield from (coalesce(term, value) == value, when(term != value, term) == value)
        yield when(term == value, value, pool(type_)[0]) != coalesce(term, pool(type_)[-1])
        if ordered:
            yield from (term < value, term <= value, term > value, term >= value)
            yield from (when(term < value, value, term) > pool(type_)[1], coalesce(term, value) <= value)
        if isinstance(type_, IntType | FloatType):
            yield from (term + value > 0, term - value <= 1, term * value != 2, term / value > 0.5, -term >= value)
            yield from (term // value == 0, term // value < 2, term % value > 0, value % term == 1, value // term < 0)
            yield from (abs(term) == value, abs(term - value) > 1, term % value % 3 == 1, 7 % (term % value) >= 1)
            yield from (term == float(value), term < float(value))
            yield from (when(term > value, term, 1.5) + term >= 2, abs(when(term < 1, value)) > 1)
        if isinstance(type_, IntType):
            yield term.isin([value, 2.0**53, 0.5, 3.0])
        if isinstance(type_, TextType):
            yield from (term.startswith(value), term.endswith(value), term.contains(value))
            yield from (term.length() == len(value), term.length() % 2 < len(value))
            yield from (coalesce(term, value).length() > 1, when(term.contains("8"), term, value).endswith("m"))
            yield from (
                term.like(_escaped(value)),
                term.like(f"_{_escaped(value)}%"),
                term.like(f"%{_escaped(value)}_%"),
            )
        if isinstance(type_, BytesType):
            yield from (term.length() >= len(value), -term.length() < -len(value), coalesce(term, value).length() > 1)
        if isinstance(type_, DurationType):
            yield from (term + value > SPANS[3], term - value == SPANS[0], -term <= value, abs(term) > value)
            yield from (
                term % value > SPANS[0],
                term // value <= 0,
                term // 7 < value,
                abs(term - value) // 2 > SPANS[1],
            )
        if isinstance(type_, TimeType):
            yield (term - value) % SPANS[3] > SPANS[0]
            yield from (term - value > SPANS[3], term + SPANS[4] >= value, term - SPANS[5] < value)
    if isinstance(type_, TextType):
        yield from map(term.like, PATTERNS)


def _escaped(text: str) -> str:
    """Return a pattern of `like` for a text itself."""
    return "".join(f"\\{letter}" if letter in "%_\\" else letter for letter in text)
