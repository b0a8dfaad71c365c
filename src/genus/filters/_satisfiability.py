"""Whether a subscription can match at all: the reason why no event ever does.

The test is sound, not complete: a reason is right for all events that `check` accepts, and no reason may mean that none
was found. Conditions that must all hold are collected by the value that they test, and the values that pass are
narrowed: to a range, or to the points of an equality or a list. Alternatives are impossible if each of them is.
"""

import math
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import genus.filters._expression as x
from genus.errors import SubscriptionError, SubscriptionWarning
from genus.filters._constants import type_of
from genus.filters._covering import needed_attributes
from genus.filters._evaluate import COMPARE, TEXT, evaluate, round_to_float32
from genus.model import Event, conforms, is_event_type, name_of, pure_kind, subtypes
from genus.model.internal import INT64_MAX, INT64_MIN, family_of, int_range
from genus.model.types import AttributeType, BoolType, BytesType, FloatType, IntType, TextType

if TYPE_CHECKING:
    from genus.filters._covering import Selection

MAX_ALTERNATIVES, MAX_POINTS = 64, 1000
"""The number of alternatives in one predicate, and of points in a list, that are looked at; more count as possible."""

Condition: TypeAlias = tuple[x.Predicate, bool]
"""A predicate, and whether it must be true or false."""

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_declared_below: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
"""The attributes that types below a type have, of those that were asked for; more may have been declared since."""


class Reason(NamedTuple):
    """Why no event matches, and the attribute that it is about, if it is about one."""

    text: str
    attribute: str | None = None


class Test(NamedTuple):
    """A test of a value: a comparison, a text test or `in`; its constant or literals, and the result that is wanted."""

    op: str
    constant: Any
    wanted: bool = True

    def passes(self, point: Any) -> bool:
        """Return whether a value gives the wanted result."""
        if self.op == "in":
            return any(point == option.value for option in self.constant) is self.wanted
        return (TEXT.get(self.op) or COMPARE[self.op])(point, self.constant) is self.wanted


class Tests(NamedTuple):
    """All tests of one value."""

    subject: x.Value
    tests: list[Test]


def why_never(subscription: "Selection") -> Reason | None:
    """Return the reason why no event can match a subscription; None if there is none, or none was found.

    >>> from genus import Event, Subscription, this
    >>> class Loop(Event):
    ...     speed: float
    >>> why_never(Subscription(Loop, where=(this.speed > 30) & (this.speed < 50)))
    """
    where = subscription.where
    if not subscription.has and not subscription.lacks and _is_plain(where, subscription.types[0]):
        return None
    return _Finder(subscription).find()


def _is_plain(where: x.Predicate | None, cls: type) -> bool:
    """Return whether a predicate compares attributes of a type with constants, each once, or from below and from above.

    Most do, and this is quicker than to look for a reason. False may mean that it has another form.
    """
    if where is None:
        return True
    own = fields_of(cls)
    known: dict[str, x.Compare | None] = {}
    for node in where.operands if type(where) is x.And else (where,):
        if type(node) is not x.Compare or type(node.left) is not x.AttributeRef or type(node.right) is not x.Literal:
            return False
        name = node.left.name
        if name not in own or not _is_inside(node.right.value, node.left.type):
            return False
        if name in known and not _have_room(known[name], node):
            return False
        known[name] = node if name not in known else None
    return True


def _have_room(one: x.Compare | None, other: x.Compare) -> bool:
    """Return whether values pass two comparisons with constants, one from below and one from above."""
    if one is None:
        return False
    low, high = (one, other) if one.op in (">", ">=") else (other, one)
    if low.op not in (">", ">=") or high.op not in ("<", "<="):
        return False
    least, most = low.right.value, high.right.value  # type: ignore[attr-defined]
    return bool(most - least >= 2 if type(least) is int else least < most)


def _is_inside(constant: object, type_: AttributeType | None) -> bool:
    """Return whether a constant is no bound of the values of its type; for a float of 32 bits, that is not tested."""
    if type(type_) is IntType:
        low, high = int_range(type_.bits, type_.signed)
        return type(constant) is int and low < constant < high
    if type(type_) is FloatType:
        return type_.bits == 64 and type(constant) is float and -math.inf < constant < math.inf
    return constant not in ("", b"")


def fields_of(cls: type) -> tuple[str, ...]:
    """The names of the attributes that every event of a type has, if only as absent; of a kind, those of `Event`."""
    fields: tuple[str, ...] = getattr(cls, "__struct_fields__", Event.__struct_fields__)
    return fields


class _Finder:
    """State: looks for the reason why a subscription never matches."""

    def __init__(self, subscription: "Selection") -> None:
        self._asked = subscription
        self._type = subscription.types[0]
        self._own = fields_of(self._type)
        family = family_of(self._type)
        self._has_all = family is None or len(self._own) == len(family.vector.attributes)
        self._alternatives = 0

    def find(self) -> Reason | None:
        where = self._asked.where
        found = self._conjunction(where, True, self._asked.has, self._asked.lacks)
        return None if self._alternatives > MAX_ALTERNATIVES else found

    def _conjunction(
        self, node: x.Predicate | None, wanted: bool, has: Sequence[str] = (), lacks: Sequence[str] = ()
    ) -> Reason | None:
        """Why a predicate cannot have the wanted result, by the conditions that must all hold for it."""
        conditions: list[Condition] = []
        if node is not None:
            _flatten(node, wanted, conditions)
        parts = _Conjunction([*has], [*lacks], {}, [])
        for each, result in conditions:
            if isinstance(each, x.And | x.Or):
                reason = self._alternation(each.operands, result)
            else:
                reason = parts.add(each, result)
            if reason is not None:
                return reason
        return self._presence(parts) or _why_no_value(parts.tests.values())

    def _alternation(self, options: Iterable[x.Predicate], wanted: bool) -> Reason | None:
        """The reason why the first alternative cannot have the wanted result, if none can."""
        first: Reason | None = None
        for option in options:
            self._alternatives += 1
            reason = self._conjunction(option, wanted) if self._alternatives <= MAX_ALTERNATIVES else None
            if reason is None:
                return None
            first = first or reason
        return first

    def _presence(self, parts: "_Conjunction") -> Reason | None:
        """Why attributes cannot be present, or absent, as conditions need."""
        absent = parts.absent
        if self._has_all and not absent:
            return None
        needed = [*parts.present, *(name for value in parts.expressions for name in sorted(needed_attributes(value)))]
        for name in needed:
            if name not in self._own and (reason := self._why_not_carried(name)):
                return reason
            if name in absent:
                return Reason(f"{name!r} would have to be both present and absent", name)
        return None

    def _why_not_carried(self, name: str) -> Reason | None:
        """Why no event has an attribute that the subscribed type does not have itself."""
        if self._is_carried_below(name):
            return None
        family = family_of(self._type)
        owners = [cls for cls in subtypes(Event) if family_of(cls) is family and name in fields_of(cls)]
        if family is None or family.is_partial or not owners:
            return None  # a catalog may have types that are not declared here
        among = f"{name_of(owners[0])} has it" + (f", and {len(owners) - 1} more" if owners[1:] else "")
        return Reason(f"no {describe_types(self._asked)} declared so far has the attribute {name!r} ({among})", name)

    def _is_carried_below(self, name: str) -> bool:
        """Return whether a type below has an attribute; what is known of one type stays true as others are declared."""
        if self._asked.exact:
            return pure_kind(self._type) is not None  # which accepts other classes of its kind
        if len(self._asked.types) > 1:
            return name in self._names_below()
        if name not in _declared_below.get(self._type, ()):
            _declared_below[self._type] = self._names_below()
        return name in _declared_below[self._type]

    def _names_below(self) -> frozenset[str]:
        below = (cls for cls in subtypes(self._type) if all(conforms(cls, each) for each in self._asked.types))
        return frozenset(name for cls in below if is_event_type(cls) for name in fields_of(cls))


# -- reporting ---------------------------------------------------------------------------------------------------------

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
MAX_TEXT = 300
"""The most characters of a subscription that an error shows."""


def report_never(subscription: "Selection", *, strict: bool) -> None:
    """Warn if no event can match a subscription; with `strict`, raise SubscriptionError instead."""
    reason = why_never(subscription)
    if reason is not None and strict:
        text = str(subscription)
        shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
        raise SubscriptionError(f"{shown} can never match: {reason.text}")
    if reason is not None:
        warn_never(subscription, reason)


def warn_never(subscription: "Selection", reason: Reason) -> None:
    """Warn that no event can match a subscription, at the line outside of Genus that makes it.

    The message has no constants, so that by Python's default filter a loop shows it once.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    problem = SubscriptionWarning(f"{describe_types(subscription)} can never match: {reason.text}")
    problem.subscription = subscription
    known = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__") or "<string>"  # a warning of the module None is dropped
    warnings.warn_explicit(problem, None, frame.f_code.co_filename, frame.f_lineno, module, known)


def describe_types(subscription: "Selection") -> str:
    """The types of a subscription as its text form has them."""
    return ("exact " if subscription.exact else "") + " & ".join(map(name_of, subscription.types))


# -- conditions --------------------------------------------------------------------------------------------------------


class _Conjunction(NamedTuple):
    """State: conditions that must all hold, collected by what they are about."""

    present: list[str]
    absent: list[str]
    tests: dict[object, Tests]
    """Tests of attributes against constants, by name, and those of other values, by value."""
    expressions: list[x.Expression]
    """Whatever else has attributes, without some of which it is neither true nor false."""

    def add(self, node: x.Predicate, wanted: bool) -> Reason | None:
        """Add a condition; the reason why it cannot hold by itself."""
        if type(node) is x.Present:
            (self.present if wanted else self.absent).append(node.attribute.name)
            return None
        found = _as_test(node, wanted)
        if found is None or not _has_attributes(found[0]):
            self.expressions.append(node)
            return _why_not_alone(node, wanted)
        subject, test = found
        if type(subject) is x.ToFloat:
            self._tests_of(subject.operand).extend(_of_integer(test))
        else:
            self._tests_of(subject).append(test)
        return None

    def _tests_of(self, subject: x.Value) -> list[Test]:
        key: object = subject
        if type(subject) is x.AttributeRef:
            key = subject.name
            self.present.append(subject.name)
        else:
            self.expressions.append(subject)
        known = self.tests.get(key)
        if known is None:
            known = self.tests[key] = Tests(subject, [])
        return known.tests


def _why_not_alone(node: x.Predicate, wanted: bool) -> Reason | None:
    """Return the reason why a condition that is no test against a constant cannot hold."""
    if type(node) is x.Compare and node.left == node.right and _operator(node, wanted) in ("!=", "<", ">"):
        return Reason("a value is never different from itself")
    if not _has_attributes(node) and evaluate(node, None) is not wanted:  # type: ignore[arg-type]
        return Reason(f"a condition without attributes is never {'true' if wanted else 'false'}")
    return None


def _flatten(node: x.Predicate, wanted: bool, found: list[Condition]) -> None:
    """Find the conditions that must all hold, without negation and conjunction: `not (a or b)` has two."""
    if type(node) is x.Not:
        _flatten(node.operand, not wanted, found)
    elif type(node) is (x.And if wanted else x.Or):
        for part in node.operands:
            _flatten(part, wanted, found)
    else:
        found.append((node, wanted))


def _has_attributes(node: x.Expression) -> bool:
    return type(node) is x.AttributeRef or any(attributes_in(node))


def attributes_in(node: x.Expression) -> Iterator[str]:
    """Return the names of the attributes in an expression."""
    return (each.name for each in node.walk() if type(each) is x.AttributeRef)


def _operator(node: x.Compare, wanted: bool) -> str:
    return node.op if wanted else _OPPOSITE[node.op]


def _as_test(node: x.Predicate, wanted: bool) -> tuple[x.Value, Test] | None:
    """Return the value that a predicate tests against a constant, and the test; None if it has another form."""
    if type(node) is x.Compare:
        left, right = node.left, node.right
        if type(right) is x.Literal:
            return None if type(left) is x.Literal else (left, Test(_operator(node, wanted), right.value))
        return (right, Test(_MIRRORED[_operator(node, wanted)], left.value)) if type(left) is x.Literal else None
    if type(node) is x.OneOf and type(node.item) is not x.Literal:
        return node.item, Test("in", node.options, wanted)
    if type(node) is x.TextTest and node.op in TEXT and type(node.item) is not x.Literal:
        return node.item, Test(node.op, node.part.value, wanted)
    return None


def _of_integer(test: Test) -> Iterator[Test]:
    """Yield what a test of the nearest float of an integer says of the integer itself, at least.

    Rounding keeps the order: an integer whose float lies above a float lies above it too. `>=` is `>` of the next float
    below.
    """
    op, constant, wanted = test
    if op == "in":
        points = [option.value for option in constant]
        bounds = [(">=", min(points)), ("<=", max(points))] if wanted else []
        yield from (one for bound in bounds for one in _of_integer(Test(*bound)))
    elif op == "!=":
        yield from [Test("!=", int(constant))] if constant.is_integer() else []
    else:
        yield from [] if op in ("<", "<=") else _above(constant if op == ">" else math.nextafter(constant, -math.inf))
        yield from [] if op in (">", ">=") else _below(constant if op == "<" else math.nextafter(constant, math.inf))


def _above(bound: float) -> Iterator[Test]:
    if bound > -math.inf:
        yield Test(">", INT64_MAX if bound == math.inf else math.floor(bound))


def _below(bound: float) -> Iterator[Test]:
    if bound < math.inf:
        yield Test("<", INT64_MIN if bound == -math.inf else math.ceil(bound))


# -- values ------------------------------------------------------------------------------------------------------------


def _why_no_value(values: Iterable[Tests]) -> Reason | None:
    """Return the reason why a value cannot pass all its tests."""
    for subject, tests in values:
        type_ = type_of(subject)
        if _is_empty(type_, [*tests, Test(">=", 0)] if _is_never_negative(subject) else tests):
            return _describe_empty(subject, type_)
    return None


def _is_never_negative(subject: x.Value) -> bool:
    return type(subject) is x.Function and subject.op in ("abs", "length")


def _describe_empty(subject: x.Value, type_: AttributeType) -> Reason:
    """Return the reason, without constants: subscriptions that are made in a loop then warn once."""
    name = next(attributes_in(subject))
    known = type_.describe()
    kind = f" ({known})" if isinstance(known, str) else ""
    what = f"{name!r}{kind}" if isinstance(subject, x.AttributeRef) else f"an expression of {name!r}"
    hint = "; a number that is no 32-bit float equals none" if type_ == FloatType(32) else ""
    return Reason(f"no value of {what} meets the conditions on it{hint}", name)


def _is_empty(type_: AttributeType, tests: list[Test]) -> bool:
    """Return whether no value of a type passes all tests."""
    low, high = int_range(type_.bits, type_.signed) if type(type_) is IntType else _open_range(type_)
    for test in tests:
        op, constant, wanted = test
        if op in (">", ">="):
            bound = constant + 1 if op == ">" and type(constant) is int else constant
            low = bound if low is None or bound > low else low
        elif op in ("<", "<="):
            bound = constant - 1 if op == "<" and type(constant) is int else constant
            high = bound if high is None or bound < high else high
        elif op in ("==", "in") and wanted:
            return not _passes_one(_points(test), type_, tests)
    if type(type_) is BoolType:  # not so for an enumeration: other processes may know more values of it
        return not _passes_one((False, True), type_, tests)
    if type(low) is int and type(high) is int:  # `!=` excludes one each
        return high - low < len(tests) and not _passes_one(range(low, high + 1), type_, tests)
    return low is not None and high is not None and low >= high and not _passes_one((low, high), type_, tests)


def _points(test: Test) -> Iterable[Any]:
    return (option.value for option in test.constant) if test.op == "in" else (test.constant,)


def _passes_one(points: Iterable[Any], type_: AttributeType, tests: list[Test]) -> bool:
    """Return whether one of some values passes all tests; also if there are too many to try."""
    for tried, point in enumerate(points):
        if tried == MAX_POINTS or (_fits(point, type_) and all(test.passes(point) for test in tests)):
            return True
    return False


def _fits(point: Any, type_: AttributeType) -> bool:
    """Return whether an attribute of a type can have a value that a constant equals."""
    if isinstance(type_, IntType):
        low, high = int_range(type_.bits, type_.signed)
        return bool(low <= point <= high)
    return type_ != FloatType(32) or round_to_float32(point) == point


_LOWEST: dict[type, Any] = {FloatType: -math.inf, TextType: "", BytesType: b""}


def _open_range(type_: AttributeType) -> tuple[Any, Any]:
    return _LOWEST.get(type(type_)), math.inf if isinstance(type_, FloatType) else None
