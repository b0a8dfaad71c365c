"""`Subscription`: a filter on an event's type, attributes and contents, checked when it is created."""

import builtins
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeAlias, TypeVar

import msgspec

from genus.errors import DeclarationError, SubscriptionError, SyntaxProblem
from genus.filters._bind import Binder, bind
from genus.filters._evaluate import WRONG_VALUE, evaluate, raise_event_error, read_attribute
from genus.filters._expression import AttributeRef, Compare, Predicate, as_predicate, format_expression
from genus.filters._parser import (
    NULL_WORDS,
    ParsedSubscription,
    describe_null,
    parse_parts,
    parse_predicate,
)
from genus.filters._satisfiability import Reason, describe_types, report_never, warn_never, why_never
from genus.filters._term import Term
from genus.filters._type_names import Token, TypesByName, find_type, problem_at
from genus.model import Event, conforms, is_event_type, is_type, name_of, subtypes, vector
from genus.model.internal import read_annotation, type_text
from genus.model.types import ChoiceType, TextType, Vector

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from genus.filters._covering import Mismatch

    E = TypeVarWithDefault("E", covariant=True, default=Any)
else:
    E = TypeVar("E", covariant=True)

AttributeNames: TypeAlias = "int | str | Iterable[str] | type"
"""Attributes given as presence bits, as a name, as names, or as a class whose required fields are the names."""


class AllOf(msgspec.Struct, Generic[T], frozen=True):
    """Several types that a class must all conform to; made by `all_of`."""

    types: tuple[type, ...]


def all_of(first: type[T], *others: type) -> AllOf[T]:
    """Select classes that conform to every one of these types, for a subscription or a collection.

    >>> from genus import Event, Kind, Subscription, all_of
    >>> class Roadside(Kind): ...
    >>> class Counter(Event): ...
    >>> str(Subscription(all_of(Counter, Roadside)))
    'Counter & Roadside'
    """
    return AllOf((first, *others))


class Subscription(Generic[E]):
    """A filter on events: of a type, with some attributes, without others, and for which a predicate is true.

    Type checkers know the type of the events: `Subscription(Loop)` is a `Subscription[Loop]`, so that a handler of
    another type is refused. `Subscription` alone, as an annotation, is `Subscription[Any]`.

    Arguments:
        type: an event type, a kind, or `all_of` several.
        exact: only direct conformance; types declared below `type` do not match.
        has: attributes that an event must carry, and `lacks` those it must not: a name, a tuple of names, presence
            bits, or a class whose required fields are the names.
        where: a predicate made with `this`, or its text.
        strict: refuse a subscription that can never match; without it, such a one gives a `SubscriptionWarning`.

    Raises SubscriptionError if an attribute is not in the type's vector or both in `has` and `lacks`, and if the
    predicate compares values of different types. A subscription is immutable and hashable; `str()` gives the text form,
    which `parse` reads back to an equal subscription.

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
        type: "builtins.type[E] | AllOf[E]",
        *,
        exact: bool = False,
        has: AttributeNames = (),
        lacks: AttributeNames = (),
        where: Predicate | Term | str | None = None,
        strict: bool = False,
    ) -> None:
        _set_fields(self, _bind_fields(type, exact, has, lacks, where))
        report_never(self, strict=strict)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a subscription is immutable: cannot set {name}")

    def _key(self) -> tuple[object, ...]:
        return self.types, self.exact, self.has, self.lacks, self.where

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subscription) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __copy__(self) -> "Subscription[E]":
        return self

    def __deepcopy__(self, memo: object) -> "Subscription[E]":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, tuple(getattr(self, field) for field in self.__slots__)

    def __repr__(self) -> str:
        return f"Subscription({str(self)!r})"

    @property
    def type(self) -> "builtins.type":
        """The type whose vector the attributes belong to: the first, and the only one without `all_of`."""
        return self.types[0]

    @property
    def vector(self) -> Vector:
        """The vector that the attributes of this subscription belong to."""
        return vector(self.types[0])

    def accepts(self, cls: "builtins.type") -> bool:
        """Return whether events of a class can match, by their type alone."""
        return all(conforms(cls, wanted, exact=self.exact) for wanted in self.types)

    def classes(self) -> "tuple[builtins.type, ...]":
        """Return the event types declared so far whose events can match."""
        root = self.types[0] if not self.exact else Event
        return tuple(cls for cls in subtypes(root) if is_event_type(cls) and self.accepts(cls))

    def matches(self, event: Event) -> bool:
        """Return whether an event matches. This is the reference that every target must agree with; targets are faster.

        Raises EventError if a value that is tested does not have its declared type.
        """
        try:
            return (
                self.accepts(type(event))
                and all(self._read(event, name) is not None for name in self.has)
                and all(self._read(event, name) is None for name in self.lacks)
                and (self.where is None or evaluate(self.where, event) is True)
            )
        except WRONG_VALUE as problem:
            raise_event_error(event, problem)

    def _read(self, event: Event, name: str) -> object:
        return read_attribute(event, name, self.vector.find(name).type)

    def why_not(self, event: Event) -> "tuple[Mismatch, ...]":
        """Return which parts an event does not meet; empty exactly if it matches.

        If its type does not match, only the types are told. Otherwise each attribute of `has` and `lacks` is a part of
        its own, and each operand of the `and` that `where` is; an `or` is one part. Raises EventError where `matches`
        does; a predicate that cannot be tested on an event which lacks an attribute anyway is left out.

        >>> from genus import Event, Maybe, Subscription
        >>> class Truck(Event):
        ...     axles: int
        ...     load: Maybe[float] = None
        >>> heavy = Subscription.parse("Truck has place where load > 20 and axles in (2, 3)", [Truck])
        >>> for unmet in heavy.why_not(Truck(axles=5)):
        ...     print(unmet)
        has place: false, place is absent
        where load > 20.0: unknown, load is absent
        where axles in (2, 3): false, axles = 5
        """
        from genus.filters._covering import find_mismatches  # here, to keep `import genus` quick

        return find_mismatches(self, event)

    def why_never(self) -> str | None:
        """Return why no event can match; None if one can, or if that could not be decided.

        A reason is always right for the types declared so far. One that is declared later may have an attribute that
        only a sibling has now.

        >>> from genus import Event, Subscription, this
        >>> class Truck(Event):
        ...     axles: int
        >>> Subscription(Truck, where=this.axles > 2).why_never()
        """
        reason = why_never(self)
        return None if reason is None else reason.text

    def covers(self, other: "Subscription") -> bool:
        """Return whether every event that matches the other also matches this one.

        True is always right; False may mean that it could not be decided.

        >>> from genus import Event, Subscription, this
        >>> class Truck(Event):
        ...     axles: int
        >>> Subscription(Truck, where=this.axles > 2).covers(Subscription(Truck, where=this.axles == 5))
        True
        """
        from genus.filters._covering import covers  # here, to keep `import genus` quick

        return covers(self, other)

    def __str__(self) -> str:
        parts = [describe_types(self)]
        parts += [f"has {', '.join(self.has)}"] if self.has else []
        parts += [f"lacks {', '.join(self.lacks)}"] if self.lacks else []
        parts += [f"where {format_expression(self.where)}"] if self.where is not None else []
        return " ".join(parts)

    @classmethod
    def parse(
        cls, text: str, types: "Iterable[builtins.type] | None" = None, *, strict: bool = False
    ) -> "Subscription[Any]":
        """Read the text form of a subscription; types are looked up among those given, or among all declared.

        Raises SyntaxProblem, a SubscriptionError, with the column where the text is wrong; with `strict`, also if it
        can never match. To parse many texts with the same types, give them as `TypesByName`.

        >>> from genus import Event, Subscription
        >>> class Lamp(Event):
        ...     watts: float
        >>> Subscription.parse("Lamp where watts >", [Lamp])
        Traceback (most recent call last):
        genus.errors.SyntaxProblem: expected a value, found the end (column 19)
          Lamp where watts >
                            ^
        """
        parsed, made = _read_text(text, types)
        if reason := why_never(made):
            if strict:
                raise problem_at(text, _column_of_reason(parsed, reason), f"this can never match: {reason.text}")
            warn_never(made, reason)
        return made


def ensure_subscription(given: Subscription[T] | str, *, strict: bool = False) -> Subscription[T]:
    """A subscription that was given as it is or as text; with `strict`, SubscriptionError if it can never match."""
    if isinstance(given, str):
        return Subscription.parse(given, strict=strict)
    if strict:
        report_never(given, strict=True)
    return given


# -- subscriptions that Genus makes from others: whether they can match was tested when the user made the first --------


def rebuild(
    type: type | AllOf[Any],
    *,
    exact: bool = False,
    has: AttributeNames = (),
    lacks: AttributeNames = (),
    where: Predicate | Term | str | None = None,
) -> Subscription[Any]:
    """Return the subscription that the constructor makes, without a warning if it can never match."""
    return _restore(*_bind_fields(type, exact, has, lacks, where))


def parse_again(text: str, types: Iterable[type] | None = None) -> Subscription[Any]:
    """Return the subscription that `Subscription.parse` reads, without a warning if it can never match."""
    return _read_text(text, types)[1]


def _restore(*fields: object) -> Subscription[Any]:
    made: Subscription[Any] = Subscription.__new__(Subscription)
    _set_fields(made, fields)
    return made


def _set_fields(made: Subscription[Any], fields: Iterable[object]) -> None:
    for field, value in zip(made.__slots__, fields, strict=True):
        object.__setattr__(made, field, value)


def _bind_fields(
    type: type | AllOf[Any],
    exact: bool,
    has: AttributeNames,
    lacks: AttributeNames,
    where: Predicate | Term | str | None,
) -> tuple[object, ...]:
    """Return the fields of a subscription in the order of its slots, checked against its type."""
    types = drop_implied(type.types if isinstance(type, AllOf) else (type,))
    if exact and len(types) > 1:
        raise SubscriptionError("exact takes one type, not all_of several")
    required, unwanted = _names("has", has, types[0]), _names("lacks", lacks, types[0])
    if required and unwanted and (both := set(required) & set(unwanted)):
        raise SubscriptionError(f"{', '.join(sorted(both))} cannot be both present and absent")
    predicate = parse_predicate(where) if isinstance(where, str) else where
    bound = None if predicate is None else bind(as_predicate(predicate), types[0])
    return exact, required, unwanted, types, bound


def drop_implied(types: tuple[type, ...]) -> tuple[type, ...]:
    """Return the types without those above others, the event type first, then kinds by name.

    SubscriptionError if one is not a type, or no event can conform to all.
    """
    for cls in types:
        if not is_type(cls):
            hint = "use Subscription.parse for text" if isinstance(cls, str) else "derive it from Event or Kind"
            raise SubscriptionError(f"{cls!r} is not an event type; {hint}")
    if len(types) == 1:
        return types
    kept = {cls for cls in types if not any(other is not cls and issubclass(other, cls) for other in types)}
    events = [cls for cls in kept if is_event_type(cls)]
    if len(events) > 1:
        raise SubscriptionError(f"no event can be both {' and '.join(sorted(map(name_of, events)))}; name one of them")
    return tuple(sorted(kept, key=lambda cls: (not is_event_type(cls), name_of(cls))))


def _names(option: str, given: AttributeNames, cls: type) -> tuple[str, ...]:
    """Return the attribute names given as `has` or `lacks`, in vector order."""
    if isinstance(given, tuple) and not given:
        return ()
    scope = vector(cls)
    if isinstance(given, bool):
        raise SubscriptionError(f"{option} takes presence bits, names or a class, not a bool")
    if isinstance(given, int):
        return scope.names_of(given)
    if isinstance(given, str) and len(words := given.replace(",", " ").split()) > 1:
        names = ", ".join(f'"{word}"' for word in words)
        raise SubscriptionError(f"{option}={given!r} is one text; give several attributes as a tuple: ({names})")
    listed = _signature_names(scope, given) if isinstance(given, type) else _listed_names(option, given)
    return scope.names_of(scope.presence_of(scope.find(name, cls).name for name in listed))


def _listed_names(option: str, given: str | Iterable[str]) -> list[str]:
    names = list(given) if isinstance(given, Iterable) and not isinstance(given, str | Term) else [given]
    for name in names:
        if not isinstance(name, str):
            raise SubscriptionError(f"{option} takes names of attributes, such as {option}='place', not {name!r}")
    return names


def _signature_names(scope: Vector, signature: type) -> list[str]:
    """Return the required fields of a class; each field must have the type that the vector has for it."""
    wanted = []
    context = set(Event.__annotations__) if issubclass(signature, Event) else set()
    try:
        notes = typing.get_type_hints(signature, include_extras=True)
    except NameError as problem:
        raise SubscriptionError(f"the annotations of {signature.__name__} cannot be evaluated: {problem}") from None
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
                f"{signature.__name__}.{name} is {type_text(type_)}, but in {scope.scope} it is {type_text(known.type)}"
            )
        wanted += [] if optional else [name]
    return wanted


# -- text: names are looked up, and errors get the column of the part that is wrong ------------------------------------


def _read_text(text: str, types: Iterable[type] | None) -> tuple[ParsedSubscription, Subscription[Any]]:
    """Return a subscription of a text, and the parts of the text that it was made of."""
    parsed = parse_parts(text)
    known = types if isinstance(types, TypesByName) else TypesByName(types)
    found: AllOf[Any] = AllOf(tuple(find_type(token, known, text) for token in parsed.types))
    try:
        scope = drop_implied(found.types)[0]
    except SubscriptionError as problem:
        raise problem_at(text, parsed.types[0].column, str(problem)) from None
    _check_names(parsed, scope, text)
    has, lacks = ([token.text for token in group] for group in (parsed.has, parsed.lacks))
    try:
        return parsed, rebuild(found, exact=parsed.exact, has=has, lacks=lacks, where=parsed.where)
    except SubscriptionError as problem:
        raise problem_at(text, _column_of_error(parsed, scope), str(problem)) from None


def _check_names(parsed: ParsedSubscription, scope: type, text: str) -> None:
    names = {attribute.name for attribute in vector(scope)}
    for token in (*parsed.has, *parsed.lacks):
        if token.text not in names:
            raise _unknown_name(token, parsed, scope, text)
    for token in parsed.attributes:
        if token.text not in names and not isinstance(getattr(scope, token.text, None), property):
            raise _unknown_name(token, parsed, scope, text)


def _unknown_name(token: Token, parsed: ParsedSubscription, scope: type, text: str) -> SyntaxProblem:
    for test, _ in parsed.tests:
        match test:
            case Compare(op, AttributeRef(name), AttributeRef(null)) if (
                null == token.text and null.lower() in NULL_WORDS
            ):
                return problem_at(text, token.column, describe_null(name, absent=op == "=="))
    if advice := _advise_name(token.text, parsed, scope):
        return problem_at(text, token.column, advice)
    return problem_at(text, token.column, vector(scope).describe_unknown(token.text, scope))


_OTHER_CONSTANTS = {"true": "write true", "false": "write false", "nan": "no value equals NaN", "infinity": "write inf"}


def _advise_name(name: str, parsed: ParsedSubscription, scope: type) -> str | None:
    """What to write instead of a constant of another language, a name with an owner, or a text without quotes."""
    if advice := _OTHER_CONSTANTS.get(name.lower()):
        return f"{name!r} is not understood: {advice}"
    owner, _, last = name.rpartition(".")
    types = {attribute.name: attribute.type for attribute in vector(scope)}
    if owner and (last in types or isinstance(getattr(scope, last, None), property)):
        return f"attributes are written without {owner}: write {last}"
    for test, _column in parsed.tests:
        match test:
            case Compare(_, AttributeRef(other), AttributeRef(quoted)) if quoted == name:
                type_ = types.get(other)
                if isinstance(type_, TextType) or (isinstance(type_, ChoiceType) and name in type_.values):
                    return f"{name_of(scope)} has no attribute {name!r}; a text is written in single quotes: {name!r}"
    return None


def _column_of_error(parsed: ParsedSubscription, scope: type) -> int:
    """Return the column of the first test that cannot be bound, or of a name that is both in `has` and `lacks`."""
    for test, column in parsed.tests:
        try:
            Binder(scope).predicate(test)
        except SubscriptionError:
            return column
    return next((token.column for token in parsed.lacks if token.text in {t.text for t in parsed.has}), 1)


def _column_of_reason(parsed: ParsedSubscription, reason: Reason) -> int:
    """Return the column of the first mention of the attribute that a reason is about; else of the first test."""
    named = (
        token.column for token in (*parsed.has, *parsed.lacks, *parsed.attributes) if token.text == reason.attribute
    )
    return next(named, parsed.tests[0][1] if parsed.tests else 1)
