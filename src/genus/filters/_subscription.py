"""`Subscription`: what an event is, has and says, checked when it is made."""

import builtins
import typing
from collections.abc import Iterable
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

import msgspec

from genus.errors import DeclarationError, SubscriptionError
from genus.filters._bind import bind
from genus.filters._evaluate import carried, misfit, truth
from genus.filters._expression import Predicate, Term, as_predicate
from genus.model import Event, Vector, conforms, is_event_type, is_type, name_of, subtypes, vector
from genus.model._types import read_annotation

T = TypeVar("T")

Names: TypeAlias = "int | str | Iterable[str] | type"
"""Attributes given as a bit vector, as names, or as a class whose fields are the signature."""


class AllOf(msgspec.Struct, Generic[T], frozen=True):
    """Several types at once; made by `all_of`."""

    types: tuple[type, ...]


def all_of(first: type[T], *others: type) -> AllOf[T]:
    """Match classes that conform to every one of these types, without naming a new type for that.

    >>> from genus import Event, Kind, Subscription, all_of
    >>> class Roadside(Kind): ...
    >>> class Counter(Event): ...
    >>> str(Subscription(all_of(Counter, Roadside)))
    'Counter & Roadside'
    """
    return AllOf((first, *others))


class Subscription:
    """What a subscriber wants: events that are of a type, have some attributes, lack others and say something.

    Names outside the type's vector, comparisons that cannot be, and attributes both wanted and unwanted are refused
    here, at the call. `str()` gives the text form, which `parse` reads back to an equal subscription.

    >>> from genus import Event, Maybe, Subscription, this
    >>> class Truck(Event):
    ...     axles: int
    ...     load: Maybe[float] = None
    >>> heavy = Subscription(Truck, has="load", where=this.load / this.axles > 4.5)
    >>> heavy.matches(Truck(axles=2, load=12.0)), heavy.matches(Truck(axles=2))
    (True, False)
    >>> str(heavy)
    'Truck has load where load / axles > 4.5'
    """

    __slots__ = ("exact", "has", "lacks", "types", "where")

    types: tuple[type, ...]
    exact: bool
    has: tuple[str, ...]
    lacks: tuple[str, ...]
    where: Predicate | None

    def __init__(
        self,
        type: type | AllOf[Any],
        *,
        exact: bool = False,
        has: Names = (),
        lacks: Names = (),
        where: Predicate | Term | str | None = None,
    ) -> None:
        types = narrowest(type.types if isinstance(type, AllOf) else (type,))
        if exact and len(types) > 1:
            raise SubscriptionError("exact asks for one type; all_of names several")
        scope = vector(types[0])
        required, unwanted = _names(scope, has), _names(scope, lacks)
        if both := set(required) & set(unwanted):
            raise SubscriptionError(f"{', '.join(sorted(both))} cannot be both present and absent")
        if isinstance(where, str):
            from genus.filters._text import parse_predicate

            where = parse_predicate(where)
        bound = None if where is None else bind(as_predicate(where), types[0])
        for field, value in zip(self.__slots__, (exact, required, unwanted, types, bound), strict=True):
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a subscription does not change: cannot set {name}")

    def _key(self) -> tuple[object, ...]:
        return self.types, self.exact, self.has, self.lacks, self.where

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subscription) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"Subscription({str(self)!r})"

    @property
    def type(self) -> "builtins.type":
        """The type whose vector the attributes are taken from: the first, and the only one without `all_of`."""
        return self.types[0]

    @property
    def vector(self) -> Vector:
        """The vector that the attributes of this subscription belong to."""
        return vector(self.types[0])

    def accepts(self, cls: "builtins.type") -> bool:
        """Whether events of a class can match, going by their type alone."""
        return all(conforms(cls, wanted, exact=self.exact) for wanted in self.types)

    def classes(self) -> "tuple[builtins.type, ...]":
        """The event types declared so far whose events can match."""
        root = self.types[0] if not self.exact else Event
        return tuple(cls for cls in subtypes(root) if is_event_type(cls) and self.accepts(cls))

    def matches(self, event: Event) -> bool:
        """Whether an event matches, by plain evaluation; the meaning every target must agree with.

        An event with a value that its type does not allow is an EventError naming it.
        """
        try:
            return (
                self.accepts(type(event))
                and all(carried(event, name) is not None for name in self.has)
                and all(carried(event, name) is None for name in self.lacks)
                and (self.where is None or truth(self.where, event) is True)
            )
        except (TypeError, AttributeError, OverflowError) as problem:
            misfit(event, problem)

    def covers(self, other: "Subscription") -> bool:
        """Whether every event that matches the other also matches this one.

        True is always right; False may mean that it could not be told.

        >>> from genus import Event, Subscription, this
        >>> class Truck(Event):
        ...     axles: int
        >>> Subscription(Truck, where=this.axles > 2).covers(Subscription(Truck, where=this.axles == 5))
        True
        """
        from genus.filters._covering import covers

        return covers(self, other)

    def __str__(self) -> str:
        from genus.filters._text import spell

        parts = [("exact " if self.exact else "") + " & ".join(map(name_of, self.types))]
        parts += [f"has {', '.join(self.has)}"] if self.has else []
        parts += [f"lacks {', '.join(self.lacks)}"] if self.lacks else []
        parts += [f"where {spell(self.where)}"] if self.where is not None else []
        return " ".join(parts)

    @classmethod
    def parse(cls, text: str, types: "Iterable[builtins.type] | None" = None) -> "Subscription":
        """Read the text form; types are looked up among those given, or among all that are declared.

        >>> from genus import Event, Subscription
        >>> class Lamp(Event):
        ...     watts: float
        >>> Subscription.parse("Lamp where watts >", [Lamp])
        Traceback (most recent call last):
        genus.errors.SyntaxProblem: expected a value, found the end (column 19)
          Lamp where watts >
                            ^
        """
        from genus.filters._text import parse_subscription

        return parse_subscription(text, types)


def narrowest(types: tuple[type, ...]) -> tuple[type, ...]:
    """The types without those implied by others, the event type first, then kinds by name."""
    for cls in types:
        if not is_type(cls):
            raise SubscriptionError(f"{cls!r} is not an event type; derive it from Event or Kind")
    kept = {cls for cls in types if not any(other is not cls and issubclass(other, cls) for other in types)}
    events = [cls for cls in kept if is_event_type(cls)]
    if len(events) > 1:
        raise SubscriptionError(f"no event can be both {' and '.join(sorted(map(name_of, events)))}; name one of them")
    return tuple(sorted(kept, key=lambda cls: (not is_event_type(cls), name_of(cls))))


def _names(scope: Vector, given: Names) -> tuple[str, ...]:
    """Attribute names in vector order, whichever way they were given."""
    if isinstance(given, bool):
        raise SubscriptionError("attributes are given as bits, names or a class, not as a bool")
    if isinstance(given, int):
        return scope.names_of(given)
    if isinstance(given, type):
        given = _signature_names(scope, given)
    return scope.names_of(scope.tag_of([given] if isinstance(given, str) else given))


def _signature_names(scope: Vector, signature: type) -> list[str]:
    """The fields of a class, each with the type the vector has for it; those that may be absent ask for nothing."""
    wanted = []
    context = set(Event.__annotations__) if issubclass(signature, Event) else set()
    try:
        notes = typing.get_type_hints(signature, include_extras=True)
    except NameError as problem:
        raise SubscriptionError(f"the annotations of {signature.__name__} cannot be read: {problem}") from None
    for name, note in notes.items():
        if name.startswith("_") or name in context:
            continue
        try:
            type_, optional, _ = read_annotation(note)
        except DeclarationError as problem:
            raise SubscriptionError(f"{signature.__name__}.{name} {problem}") from None
        known = scope.find(name)
        if known.type != type_:
            raise SubscriptionError(
                f"{signature.__name__}.{name} is {type_.describe()}, but in {scope.scope} it is {known.type.describe()}"
            )
        wanted += [] if optional else [name]
    return wanted
