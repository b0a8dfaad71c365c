"""The Python target: a subscription becomes generated Python code, compiled once per event class.

Kleene logic costs nothing at run time. Code is generated for either "is it true?" or "is it false?", both two-valued,
and `not` changes from one to the other: so a test of an absent attribute or of NaN is `False` in both. Attributes that
a class never carries are decided when the code is generated; one that it requires may be absent, as it could not be
read (docs/semantics.md).
"""

import builtins
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeAlias, TypeVar
from unicodedata import is_normalized

import msgspec

import genus.filters.internal as x
from genus.filters import Subscription
from genus.filters.internal import (
    DIVISIONS,
    OPPOSITE,
    WRONG_VALUE,
    conjuncts,
    exactly,
    matcher,
    normalize,
    raise_event_error,
    round_to_float32,
    type_of,
)
from genus.model import Event, attributes, micros_of_duration, micros_of_time, name_of
from genus.model.internal import INT64_MAX, INT64_MIN, hidden_attributes, int_range, plain_value, retyped_attributes
from genus.model.types import AttributeType, ChoiceType, DurationType, FloatType, IntType, TextType, TimeType
from genus.targets._compiler import Compiler

__all__ = ["PythonFilter", "compile"]

Condition: TypeAlias = tuple[str, ...]
"""Code of several tests that must all be true; an empty one is always true."""

ALWAYS: Condition = ()
NEVER: Condition = ("False",)
N = TypeVar("N", bound=x.Expression)
_LEAVES = (x.Compare, x.OneOf, x.TextTest)
_COMPUTED = (x.Arithmetic, x.Negation, x.Function, x.Conditional, x.Coalesce, x.ToFloat, x.Micros)
_MAX_LEVELS = 16
"""Values nested deeper than this are computed in steps, as Python's compiler has limits for nested expressions."""


def compile(subscription: Subscription) -> "PythonFilter":
    """Compile a subscription to a function of an event, as generated Python code.

    >>> from genus import Event, Maybe, Subscription, this
    >>> class Loop(Event):
    ...     lane: int
    ...     speed: Maybe[float] = None
    >>> fast = compile(Subscription(Loop, where=this.speed > 30))
    >>> fast(Loop(lane=1, speed=31.0)), fast(Loop(lane=1))
    (True, False)
    """
    return PythonFilter(subscription)


class PythonFilter:
    """A function that says whether an event matches a subscription; made by `compile`.

    The code for a class is generated when its first event comes.
    """

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._by_class = _MatcherCache(subscription)

    def __call__(self, event: Event) -> bool:
        """Whether an event matches; EventError if a value that is tested does not have its declared type."""
        try:
            return bool(self._by_class[type(event)](event))  # a comparison need not give True or False
        except WRONG_VALUE as problem:
            raise_event_error(event, problem)

    def for_class(self, cls: type) -> Callable[[Event], bool]:
        """Return the function for events of one class; it raises what a test raises on a value of another type."""
        return self._by_class[cls]

    def sources(self) -> tuple[str, ...]:
        """Return the generated functions of all classes declared so far that the subscription accepts.

        Classes with equal code share one function, which names them in a comment. Functions that never match are last.
        """
        classes: dict[str, list[str]] = {}
        for cls in self.subscription.classes():
            _, body = matcher_source(self.subscription, cls)[0].split("\n", 1)
            classes.setdefault(body, []).append(name_of(cls))
        ordered = sorted(classes, key=lambda body: body == f"    return {join_condition(NEVER)}")
        return tuple(f"def matches(e):  # {', '.join(classes[body])}\n{body}" for body in ordered)

    def explain(self) -> str:
        """Return the generated code for every class that the subscription accepts, as text."""
        heading = [f"python: {self.subscription}", "  type: one look-up by class; all other tests are in its function"]
        return "\n".join([*heading, *(self.sources() or ["  no event type declared so far can match"])])


class _MatcherCache(dict[type, Callable[[Event], bool]]):
    """State: the compiled function of each class."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__()
        self.subscription = subscription

    def __missing__(self, cls: type) -> Callable[[Event], bool]:
        source, names = matcher_source(self.subscription, cls)
        self[cls] = define(source, "matches", names)
        return self[cls]


def matcher_source(subscription: Subscription, cls: type) -> tuple[str, dict[str, object]]:
    """Return the source of a function that tests one subscription on events of one class, and the names it uses."""
    compiler = PythonCompiler(cls, [subscription])
    answer = compiler.condition(subscription) if subscription.accepts(cls) else NEVER
    lines = [] if answer == NEVER else [f"    {line}" for line in compiler.prelude()]
    body = "\n".join([f"def matches(e):  # {name_of(cls)}", *lines, f"    return {join_condition(answer)}"])
    return body, compiler.names


def define(source: str, name: str, names: dict[str, object]) -> Any:
    """Run generated source and return the function that it defines."""
    exec(builtins.compile(source, f"<genus {name}>", "exec"), names)
    return names[name]


class Operand(msgspec.Struct, frozen=True):
    """Code for a value, and the conditions to test before it, in this order, for it to be known."""

    code: str
    conditions: Condition = ALWAYS
    never_nan: bool = True
    levels: int = 0
    """How deep the code is nested."""


class PythonCompiler(Compiler):
    """Generates conditions for one event class; parts that subscriptions share are computed once, in the prelude."""

    target: ClassVar[str] = "python"
    operators: ClassVar[dict[str, str]] = {
        **{sign: sign for sign in (*x.ARITHMETIC, *x.COMPARISONS)},
        "startswith": "{item}.startswith({part})",
        "endswith": "{item}.endswith({part})",
        "contains": "{part} in {item}",
        "like": "{part}({item}) is not None",
        "abs": "abs({operand})",
        "length": "len({operand})",
    }

    def __init__(
        self, cls: type, subscriptions: Iterable[Subscription], names: dict[str, object] | None = None
    ) -> None:
        self.names: dict[str, object] = {} if names is None else names
        self._cls = cls
        self._attributes = {attribute.name: attribute for attribute in attributes(cls)}
        subscriptions = tuple(subscriptions)
        self._repeated = {node for node, times in Counter(_shareable(subscriptions)).items() if times > 1}
        self._computed = {node.name for node in _computed_with(subscriptions)}
        self._loads: dict[str, list[str]] = {}
        self._shared: dict[object, tuple[str, str]] = {}
        self._temporaries = 0

    def condition(self, subscription: Subscription, without: x.Predicate | None = None) -> Condition:
        """Code that is true of an event of this class exactly when the subscription matches it.

        `without` is a conjunct that is known to be true, by an index for example, and is left out.
        """
        hidden = hidden_attributes(self._cls, subscription.type)
        parts = [self._presence(name, True, name in hidden) for name in subscription.has]
        parts += [self._presence(name, False, name in hidden) for name in subscription.lacks]
        parts += [self.visit(part, True) for part in conjuncts(subscription.where) if part is not without]
        return all_of_these(parts)

    def prelude(self) -> list[str]:
        """Return the statements to run before the conditions: they load attributes and compute shared parts."""
        loads = [line for lines in self._loads.values() for line in lines]
        return [*loads, *(f"{name} = {code}" for name, code in self._shared.values())]

    # -- predicates: code that is true when the predicate is `wanted` ----------------------------------------------

    def visit_And(self, node: x.And, wanted: bool) -> Condition:
        """All are true; for false, one is false."""
        return (all_of_these if wanted else any_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Or(self, node: x.Or, wanted: bool) -> Condition:
        """One is true; for false, all are false."""
        return (any_of_these if wanted else all_of_these)([self.visit(part, wanted) for part in node.operands])

    def visit_Not(self, node: x.Not, wanted: bool) -> Condition:
        """Return the operand with the opposite result."""
        answer: Condition = self.visit(node.operand, not wanted)
        return answer

    def visit_Present(self, node: x.Present, wanted: bool) -> Condition:
        """Return a test for None; decided here for attributes that are never carried."""
        return self._presence(node.attribute.name, wanted, self._is_hidden(node.attribute))

    def visit_Compare(self, node: x.Compare, wanted: bool) -> Condition:
        """Return a comparison, or its opposite."""
        return self._share(node, wanted, self._comparison)

    def visit_OneOf(self, node: x.OneOf, wanted: bool) -> Condition:
        """Membership in a constant set."""
        return self._share(node, wanted, self._membership)

    def visit_TextTest(self, node: x.TextTest, wanted: bool) -> Condition:
        """Return a method of str."""
        return self._share(node, wanted, self._text_test)

    def _comparison(self, node: x.Compare, wanted: bool) -> Condition:
        left, right = self.visit(node.left), self.visit(node.right)
        op = self.operators[node.op if wanted else OPPOSITE[node.op]]
        numbers = (is_number(side) for side in (left, right) if op == "!=")
        return all_of_these([left.conditions, right.conditions, *numbers, (f"{left.code} {op} {right.code}",)])

    def _membership(self, node: x.OneOf, wanted: bool) -> Condition:
        item = self.visit(node.item)
        among = self._name("k", frozenset(option.value for option in node.options))
        number = ALWAYS if wanted else is_number(item)
        return all_of_these([item.conditions, number, (f"{item.code} {'in' if wanted else 'not in'} {among}",)])

    def _text_test(self, node: x.TextTest, wanted: bool) -> Condition:
        item, constant = self.visit(node.item), str(node.part.value)
        part = self._name("m", matcher(constant)) if node.op == "like" else repr(constant)
        test = self.operators[node.op].format(item=item.code, part=part)
        return all_of_these([item.conditions, (test if wanted else f"not {test}",)])

    def _is_hidden(self, node: x.AttributeRef) -> bool:
        return node.name in retyped_attributes(self._cls) and isinstance(node.type, TextType)

    def _presence(self, name: str, wanted: bool, is_hidden: bool) -> Condition:
        attribute = None if is_hidden else self._attributes.get(name)
        if attribute is not None:
            return (f"{self._load(name)} is {'not None' if wanted else 'None'}",)
        return NEVER if wanted else ALWAYS

    # -- values ------------------------------------------------------------------------------------------------------

    def visit_AttributeRef(self, node: x.AttributeRef) -> Operand:
        """Return a local variable that the prelude loads."""
        attribute = self._attributes.get(node.name)
        if attribute is None or self._is_hidden(node):
            return Operand("None", NEVER)
        local = self._load(node.name, as_value=True)
        code = f"{local}._value_" if isinstance(attribute.type, ChoiceType) else local
        return Operand(code, (f"{local} is not None",), never_nan=not isinstance(attribute.type, FloatType))

    def visit_Literal(self, node: x.Literal) -> Operand:
        """Return a constant: numbers and texts as literals, others by name."""
        value = node.value
        plain = type(value) in (int, str, bool) or (type(value) is float and abs(value) < float("inf"))
        return Operand(repr(value) if plain else self._name("k", value))

    def visit_ToFloat(self, node: x.ToFloat) -> Operand:
        """`float()`, left out where Python's own comparison and division give the same."""
        inner: Operand = self.visit(node.operand)
        type_ = type_of(node.operand)
        narrow = isinstance(node.operand, x.AttributeRef) and isinstance(type_, IntType) and type_.bits <= 32
        made = Operand(f"float({inner.code})", inner.conditions, levels=inner.levels + 1)
        return inner if narrow else self._shared_value(node, made)

    def visit_Micros(self, node: x.Micros) -> Operand:
        """Microseconds as an integer."""
        convert = micros_of_time if isinstance(type_of(node.operand), TimeType) else micros_of_duration
        if isinstance(node.operand, x.Literal):
            return Operand(str(normalize(node.operand.value, node.operand.type)))
        inner: Operand = self.visit(node.operand)
        self.names[convert.__name__] = convert
        return self._shared_value(node, Operand(f"{convert.__name__}({inner.code})", inner.conditions))

    def visit_Negation(self, node: x.Negation) -> Operand:
        """Minus; the smallest integer has no opposite."""
        inner: Operand = self.visit(node.operand)
        made = Operand(f"-{inner.code}", inner.conditions, inner.never_nan, inner.levels + 1)
        return self._shared_value(node, self._number(made, node, bounds(node)))

    def visit_Function(self, node: x.Function) -> Operand:
        """Return a function of Python; the smallest integer has no absolute value."""
        inner: Operand = self.visit(node.operand)
        code = self.operators[node.op].format(operand=inner.code)
        made = Operand(code, inner.conditions, inner.never_nan, inner.levels + 1)
        return self._shared_value(node, self._number(made, node, bounds(node)))

    def visit_Arithmetic(self, node: x.Arithmetic) -> Operand:
        """Return the steps from left to right; integers are kept within 64 bits and nothing is divided by zero."""
        result, span = self.visit(node.first), clip_bounds(bounds(node.first))
        for step in node.steps:
            right = self.visit(step.operand)
            span = combine_bounds(step.op, span, clip_bounds(bounds(step.operand)))
            result = self._number(self._step(step, result, right), node, span)
            span = clip_bounds(span)
        return self._shared_value(node, result)

    def visit_Conditional(self, node: x.Conditional) -> Operand:
        """Return a conditional expression; it is unknown where the condition is neither true nor false."""
        cases = [(self.visit(node.condition, True), self.visit(node.then))]
        if node.otherwise is not None:
            cases.append((self.visit(node.condition, False), self.visit(node.otherwise)))
        return self._shared_value(node, self._first_of(cases))

    def visit_Coalesce(self, node: x.Coalesce) -> Operand:
        """A conditional expression that tests whether each operand is known."""
        operands = [self.visit(operand) for operand in node.operands]
        return self._shared_value(node, self._first_of([(is_number(operand), operand) for operand in operands]))

    def _first_of(self, cases: list[tuple[Condition, Operand]]) -> Operand:
        """Return the first operand that is known and whose condition is true, in a local variable."""
        tests = [(all_of_these([operand.conditions, condition]), operand) for condition, operand in cases]
        kept = [(test, operand) for test, operand in tests if test != NEVER]
        if not kept:
            return Operand("None", NEVER)
        code = "".join(f"{operand.code} if {join_condition(test)} else " for test, operand in kept)
        return self._keep(Operand(f"{code}None", never_nan=all(each.never_nan for _, each in kept)), "{} is not None")

    def _step(self, step: x.Step, left: Operand, right: Operand) -> Operand:
        conditions = (*left.conditions, *right.conditions)
        if step.op in DIVISIONS and not (isinstance(step.operand, x.Literal) and step.operand.value != 0):
            conditions += (f"{right.code} != 0",)
        code = f"({left.code} {self.operators[step.op]} {right.code})"
        return Operand(code, conditions, False, max(left.levels, right.levels) + 1)

    def _number(self, result: Operand, node: x.Value, span: tuple[int, int]) -> Operand:
        """A result of arithmetic: a float as it is, an integer only if it fits in 64 bits, as `span` may show."""
        if isinstance(type_of(node), FloatType):
            return self._keep(result, "{} is not None") if result.levels > _MAX_LEVELS else result
        if span[0] < INT64_MIN or span[1] > INT64_MAX:
            return self._keep(result, f"{INT64_MIN} <= {{}} <= {INT64_MAX}")
        plain = Operand(result.code, result.conditions, levels=result.levels)
        return self._keep(plain, "{} is not None") if result.levels > _MAX_LEVELS else plain

    def _keep(self, operand: Operand, test: str) -> Operand:
        """The operand in a local variable, which a condition sets: a test that it must pass, or one that is true."""
        self._temporaries += 1
        local = f"t{self._temporaries}"
        never_nan = operand.never_nan or "<=" in test
        return Operand(local, (*operand.conditions, test.format(f"({local} := {operand.code})")), never_nan)

    def _shared_value(self, node: x.Value, operand: Operand) -> Operand:
        if node not in self._repeated:
            return operand
        if node not in self._shared:
            guarded = (
                f"{operand.code} if {join_condition(operand.conditions)} else None"
                if operand.conditions
                else operand.code
            )
            self._shared[node] = (f"s{len(self._shared)}", guarded)
        name = self._shared[node][0]
        return Operand(name, (f"{name} is not None",) if operand.conditions else ALWAYS, operand.never_nan)

    # -- names -------------------------------------------------------------------------------------------------------

    def _share(self, node: N, wanted: bool, make: Callable[[N, bool], Condition]) -> Condition:
        if node not in self._repeated:
            return make(node, wanted)
        key = (node, wanted)
        if key not in self._shared:
            condition = make(node, wanted)
            if condition in (ALWAYS, NEVER):
                return condition
            self._shared[key] = (f"s{len(self._shared)}", join_condition(condition))
        return (self._shared[key][0],)

    def _load(self, name: str, *, as_value: bool = False) -> str:
        """The local variable of an attribute; to be compared, and not only tested for presence, it is normalized."""
        plain = name.isascii() or is_normalized("NFKC", name)  # Python normalizes names in source code
        local = f"a_{name}" if plain else f"a{list(self._attributes).index(name)}_"
        read = f"e.{name}" if plain else f"getattr(e, {name!r})"
        lines = self._loads.setdefault(name, [f"{local} = {read}"])
        if as_value and len(lines) == 1:
            lines += self._normalize_lines(name, local, self._attributes[name].type)
        return local

    def _normalize_lines(self, name: str, local: str, type_: AttributeType) -> list[str]:
        """Statements that convert a value to the form that comparisons need; most values have it already.

        Integers of numpy compare as Python's do, but overflow when they are computed with.
        """
        match type_:
            case FloatType(32):
                self.names["round_to_float32"] = round_to_float32
                return [f"if {local} is not None: {local} = round_to_float32({local})"]
            case FloatType():
                self.names["plain"] = plain_value
                return [f"if {local}.__class__ is not float and {local} is not None: {local} = plain({local}) * 1.0"]
            case IntType() if name in self._computed:
                self.names["plain"] = plain_value
                return [f"if {local}.__class__ is not int and {local} is not None: {local} = plain({local})"]
            case TimeType():
                self.names |= {"UTC": UTC, "datetime": datetime, "utc": utc}
                is_utc = f"{local}.__class__ is datetime and {local}.tzinfo is UTC"
                return [f"if {local} is not None and not ({is_utc}): {local} = utc({local})"]
            case DurationType():
                self.names |= {"timedelta": timedelta, "exactly": exactly}
                is_plain = f"{local}.__class__ is timedelta"
                return [f"if {local} is not None and not {is_plain}: {local} = exactly({local}, timedelta)"]
        return []

    def _name(self, prefix: str, value: object) -> str:
        """Return a global of the generated code that holds a constant."""
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name


def bounds(node: x.Value) -> tuple[int, int]:
    """Return the smallest and largest integer a bound value can be before the 64-bit rule applies."""
    match node:
        case x.Literal(int(value)):
            return value, value
        case x.AttributeRef(_, IntType(bits, signed)):
            return int_range(bits, signed)
        case x.Negation(operand):
            low, high = clip_bounds(bounds(operand))
            return -high, -low
        case x.Function("length"):
            return 0, INT64_MAX
        case x.Function("abs", operand):
            low, high = clip_bounds(bounds(operand))
            return max(low, -high, 0), max(-low, high)
        case x.Arithmetic(first, steps):
            span = bounds(first)
            for step in steps:
                span = combine_bounds(step.op, clip_bounds(span), clip_bounds(bounds(step.operand)))
            return span
    return INT64_MIN, INT64_MAX


def clip_bounds(span: tuple[int, int]) -> tuple[int, int]:
    """Return the part of a span that fits in 64 bits; all of them for a value that is no integer."""
    return max(span[0], INT64_MIN), min(span[1], INT64_MAX)


def combine_bounds(op: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """Return the smallest and largest result of an operator on integers within two spans.

    >>> combine_bounds("%", (-100, 100), (3, 8)), combine_bounds("//", (-100, 7), (2, 3))
    ((0, 7), (-100, 100))
    """
    match op:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[1], left[1] - right[0]
        case "%":
            return min(right[0] + 1, 0), max(right[1] - 1, 0)
        case "//":
            largest = max(abs(left[0]), abs(left[1]))
            return -largest, largest
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def _shareable(subscriptions: Iterable[Subscription]) -> Iterator[x.Expression]:
    """Yield the leaves and computed values of all predicates, each once per subscription."""
    for subscription in subscriptions:
        if subscription.where is not None:
            yield from {node for node in subscription.where.walk() if isinstance(node, (*_LEAVES, *_COMPUTED))}


def _computed_with(subscriptions: Iterable[Subscription]) -> Iterator[x.AttributeRef]:
    """Yield the attributes that predicates compute with."""
    for subscription in subscriptions:
        if subscription.where is not None:
            computed = (node for node in subscription.where.walk() if isinstance(node, _COMPUTED))
            yield from (each for node in computed for each in node.walk() if isinstance(each, x.AttributeRef))


def all_of_these(conditions: Iterable[Condition]) -> Condition:
    """One condition from several that must all be true, without repetitions."""
    kept = tuple(dict.fromkeys(part for condition in conditions for part in condition))
    return NEVER if "False" in kept else kept


def any_of_these(conditions: Iterable[Condition]) -> Condition:
    """One condition from several of which one must be true."""
    kept = [condition for condition in dict.fromkeys(conditions) if condition != NEVER]
    if len(kept) < 2 or ALWAYS in kept:
        return ALWAYS if ALWAYS in kept else kept[0] if kept else NEVER
    return (f"({' or '.join(join_condition(condition) for condition in kept)})",)


def join_condition(condition: Condition) -> str:
    """Return the code of a condition as one expression."""
    return " and ".join(condition) if condition else "True"


def is_number(operand: Operand) -> Condition:
    """A condition that is false for NaN, which is the only value not equal to itself."""
    return ALWAYS if operand.never_nan else (f"{operand.code} == {operand.code}",)


def utc(moment: datetime) -> datetime:
    """Return the same instant in UTC; TypeError if it has no zone or is no plain time."""
    moment = exactly(moment, datetime)
    if moment.tzinfo is None:
        raise TypeError(f"{moment!r} has no time zone")
    return moment.astimezone(UTC)
