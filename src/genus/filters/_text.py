"""The text form: `Loop has place, category where speed > 30 and category in ('truck', 'car')`.

`spell` writes a tree, `parse_subscription` reads a subscription by recursive descent; nothing is ever evaluated.
Precedence, loosest first: or, and, not, comparison, + -, * /, unary minus. The grammar stands in
docs/subscriptions.md.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

import msgspec

import genus.filters._expression as x
from genus.errors import SubscriptionError, SyntaxProblem, did_you_mean
from genus.filters._bind import DEEPEST, Binder
from genus.filters._subscription import AllOf, Subscription, narrowest
from genus.model import RESERVED_WORDS, Event, Kind, is_type, name_of, subtypes
from genus.model._types import INT64_MAX, MICROSECOND, micros_of_duration

UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in each unit a duration may be written in."""

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNESCAPES = {escaped[1]: letter for letter, escaped in _ESCAPES.items()}
_DEEPEST = DEEPEST + 8

N = TypeVar("N", bound=x.Node)


def spell(node: x.Node) -> str:
    """The text of a tree; parsing it gives an equal tree.

    >>> from genus import this
    >>> spell(~((this.speed > 30) | this.place.startswith("A8")) & this.lane.isin([1, 2]))
    "not (speed > 30 or place startswith 'A8') and lane in (1, 2)"
    """
    match node:
        case x.Attribute(name):
            return name
        case x.Literal(value):
            return spell_literal(value)
        case x.ToFloat(operand) | x.Micros(operand):
            return spell(operand)
        case x.Negation(operand):
            return f"-{_inside(operand, 3)}"
        case x.Arithmetic(op, left, right):
            level = 1 if op in "+-" else 2
            return f"{_inside(left, level)} {op} {_inside(right, level + 1)}"
        case x.Compare(op, left, right):
            return f"{spell(left)} {op} {spell(right)}"
        case x.OneOf(item, options):
            return f"{spell(item)} in ({', '.join(map(spell, options))})"
        case x.TextTest(op, item, part):
            return f"{spell(item)} {op} {spell(part)}"
        case x.Present(attribute):
            return f"{attribute.name} is present"
        case x.Not(x.Present(attribute)):
            return f"{attribute.name} is absent"
        case x.Not(operand):
            return f"not {_grouped(operand, (x.And, x.Or))}"
        case x.And(operands):
            return " and ".join(_grouped(operand, (x.Or, x.And)) for operand in operands)
        case x.Or(operands):
            return " or ".join(_grouped(operand, (x.Or,)) for operand in operands)
    raise TypeError(f"cannot spell {node!r}")


def _grouped(node: x.Node, loose: tuple[type, ...]) -> str:
    return f"({spell(node)})" if isinstance(node, loose) else spell(node)


def _inside(node: x.Value, level: int) -> str:
    """A value within an operation that binds at a level; looser ones get parentheses."""
    inner = node.operand if isinstance(node, x.ToFloat | x.Micros) else node
    if isinstance(inner, x.Arithmetic) and (1 if inner.op in "+-" else 2) < level:
        return f"({spell(inner)})"
    return f"({spell(inner)})" if isinstance(inner, x.Negation) and level == 3 else spell(inner)


def spell_literal(value: object) -> str:
    """The text of a constant."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{''.join(_ESCAPES.get(letter, letter) for letter in value)}'"
        case bytes():
            return f"x'{value.hex()}'"
        case datetime():
            return f"@{value.astimezone(UTC).isoformat().removesuffix('+00:00')}Z"
        case timedelta():
            micros = micros_of_duration(value)
            unit, size = next((unit, size) for unit, size in UNITS.items() if micros % size == 0)
            return f"{micros // size}{unit}"
    return repr(value)


class Token(msgspec.Struct, frozen=True):
    """A word of the text, its kind and where it starts."""

    kind: str
    text: str
    column: int


_TOKENS = re.compile(
    r"""(?P<space>\s+)
    | (?P<bytes>x'(?:[0-9a-fA-F]{2})*')
    | (?P<duration>[0-9]+(?:\.[0-9]+)?(?:us|ms|min|s|h|d)\b)
    | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<int>[0-9]+)(?![\w])
    | (?P<time>@[0-9T:.+\-]+Z?)
    | (?P<str>'(?:[^'\\]|\\.)*')
    | (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    | (?P<op>==|!=|<=|>=|[=<>+\-*/(),&])""",
    re.VERBOSE | re.DOTALL,
)


class Parts(msgspec.Struct, frozen=True):
    """What a subscription text says, before its names are looked up; columns are kept for messages."""

    types: tuple[Token, ...]
    exact: bool
    has: tuple[Token, ...]
    lacks: tuple[Token, ...]
    where: x.Predicate | None
    attributes: tuple[Token, ...]
    tests: tuple[tuple[x.Predicate, int], ...]


def parse_subscription(text: str, types: Iterable[type] | None = None) -> Subscription:
    """Read a subscription; SyntaxProblem points at the column where it stops making sense."""
    parts = _Parser(text).subscription()
    known = tuple(dict.fromkeys(types if types is not None else (*subtypes(Event), *subtypes(Kind))))
    found: AllOf[Any] = AllOf(tuple(_lookup(token, known, text) for token in parts.types))
    try:
        scope = narrowest(found.types)[0]
    except SubscriptionError as problem:
        raise problem_at(text, parts.types[0].column, str(problem)) from None
    _check_names(parts, scope, text)
    has, lacks = ([token.text for token in group] for group in (parts.has, parts.lacks))
    try:
        return Subscription(found, exact=parts.exact, has=has, lacks=lacks, where=parts.where)
    except SubscriptionError as problem:
        raise problem_at(text, _column_of_fault(parts, scope), str(problem)) from None


def _column_of_fault(parts: Parts, scope: type) -> int:
    """Where the first test stands that cannot be bound, or else the name that is wanted and not wanted."""
    for test, column in parts.tests:
        try:
            Binder(scope).predicate(test)
        except SubscriptionError:
            return column
    return next((token.column for token in parts.lacks if token.text in {t.text for t in parts.has}), 1)


def _lookup(token: Token, known: tuple[type, ...], text: str) -> type:
    """The type of a name; of one that was defined anew in the same place, as in a notebook, the latest."""
    found = {(cls.__module__, cls.__qualname__): cls for cls in known if is_type(cls) and name_of(cls) == token.text}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        places = ", ".join(sorted(f"{module}.{name}" for module, name in found))
        raise problem_at(text, token.column, f"several types are called {token.text}: {places}; rename one by name=")
    names = sorted({name_of(cls) for cls in known if is_type(cls)})
    shown = did_you_mean(token.text, names) + "known: " + ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise problem_at(text, token.column, f"no event type is called {token.text}; {shown}")


def _check_names(parts: Parts, scope: type, text: str) -> None:
    binder = Binder(scope)
    for token in (*parts.has, *parts.lacks, *parts.attributes):
        if token.text not in binder.types and not (
            token in parts.attributes and isinstance(getattr(scope, token.text, None), property)
        ):
            raise problem_at(text, token.column, binder.vector.describe_unknown(token.text))


def parse_predicate(text: str) -> x.Predicate:
    """Read the text of a predicate alone.

    >>> parse_predicate("lane between 1 and 3") == parse_predicate("lane >= 1 and lane <= 3")
    True
    """
    parser = _Parser(text)
    predicate = parser.predicate()
    parser.expect_end()
    return predicate


def problem_at(text: str, column: int, what: str) -> SyntaxProblem:
    """An error that shows the text with a mark under the column (counted from 1)."""
    line = text.replace("\n", " ").replace("\t", " ")
    return SyntaxProblem(f"{what} (column {column})\n  {line}\n  {' ' * (column - 1)}^")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.at = 0
        self.depth = 0
        self.attributes: list[Token] = []
        self.tests: list[tuple[x.Predicate, int]] = []

    def _tokens(self) -> list[Token]:
        tokens, at = [], 0
        while at < len(self.text):
            found = _TOKENS.match(self.text, at)
            if found is None:
                raise problem_at(self.text, at + 1, self._misread(at))
            kind = found.lastgroup or ""
            if kind != "space":
                tokens.append(Token(kind, found.group(), at + 1))
            at = found.end()
        return [*tokens, Token("end", "", len(self.text) + 1)]

    def _misread(self, at: int) -> str:
        return "this text has no closing quote" if self.text[at] == "'" else f"{self.text[at]!r} is not understood"

    # -- tokens -------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def fail(self, what: str) -> NoReturn:
        found = f"'{self.token.text}'" if self.token.kind != "end" else "the end"
        raise problem_at(self.text, self.token.column, f"expected {what}, found {found}")

    def take(self, *texts: str) -> str | None:
        """The next token's text if it is one of these words or signs."""
        if self.token.kind in ("name", "op") and self.token.text in texts:
            self.at += 1
            return self.tokens[self.at - 1].text
        return None

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.fail(f"'{text}'")

    def expect_end(self) -> None:
        if self.token.kind != "end":
            self.fail("the end")

    def name(self, what: str) -> Token:
        if self.token.kind != "name" or self.token.text in RESERVED_WORDS:
            self.fail(what)
        self.at += 1
        return self.tokens[self.at - 1]

    def names(self, what: str, separator: str) -> tuple[Token, ...]:
        found = [self.name(what)]
        while self.take(separator):
            found.append(self.name(what))
        return tuple(found)

    # -- grammar ------------------------------------------------------------------------------------------------

    def subscription(self) -> Parts:
        exact = self.take("exact") is not None
        types = self.names("the name of a type", "&")
        has = self.names("the name of an attribute", ",") if self.take("has") else ()
        lacks = self.names("the name of an attribute", ",") if self.take("lacks") else ()
        where = self.predicate() if self.take("where") else None
        if self.token.kind != "end":
            self.fail("'where' or the end" if where is None else "an operator or the end")
        return Parts(types, exact, has, lacks, where, tuple(self.attributes), tuple(self.tests))

    def predicate(self) -> x.Predicate:
        return self.deeper(self.alternatives)

    def deeper(self, rule: Callable[[], N]) -> N:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise problem_at(self.text, self.token.column, f"more than {_DEEPEST} levels of nesting")
        result = rule()
        self.depth -= 1
        return result

    def alternatives(self) -> x.Predicate:
        result = self.conjunction()
        while self.take("or"):
            result = result | self.conjunction()
        return result

    def conjunction(self) -> x.Predicate:
        result = self.negated()
        while self.take("and"):
            result = result & self.negated()
        return result

    def negated(self) -> x.Predicate:
        return ~self.deeper(self.negated) if self.take("not") else self.test()

    def test(self) -> x.Predicate:
        """A comparison, or a predicate in parentheses; which of the two an opening one starts shows only later."""
        start, depth, seen = self.at, self.depth, len(self.attributes)
        if self.take("("):
            try:
                inner = self.predicate()
                self.expect(")")
            except SyntaxProblem as problem:
                furthest = self.at
                self.at, self.depth = start, depth
                del self.attributes[seen:]
                return self._comparison_or(problem, furthest)
            if not self._continues_value():
                return inner
            self.at, self.depth = start, depth
            del self.attributes[seen:]
        return self.comparison()

    def _comparison_or(self, problem: SyntaxProblem, furthest: int) -> x.Predicate:
        try:
            return self.comparison()
        except SyntaxProblem:
            if self.at > furthest:
                raise
            raise problem from None

    def _continues_value(self) -> bool:
        words = {"+", "-", "*", "/", "==", "=", "!=", "<", "<=", ">", ">=", "in", "between", "is", *x.TEXT_TESTS}
        return self.token.text in words and self.token.kind in ("op", "name")

    def comparison(self) -> x.Predicate:
        """A test, noted with the column where it begins."""
        column = self.token.column
        found = self._comparison()
        self.tests.append((found, column))
        return found

    def _comparison(self) -> x.Predicate:
        left = x.Term(self.sum())
        if op := self.take(*x.COMPARISONS, "="):
            return x.Compare("==" if op == "=" else op, left.node, self.sum())
        if self.take("not"):
            self.expect("in")
            return ~left.isin(self.options())
        if self.take("in"):
            return left.isin(self.options())
        if self.take("between"):
            low = x.Term(self.sum())
            self.expect("and")
            return left.between(low, x.Term(self.sum()))
        if op := self.take(*x.TEXT_TESTS):
            return x.TextTest(op, left.node, self.text_literal())
        if self.take("is"):
            return self.presence(left)
        if isinstance(left.node, x.Attribute):
            return x.as_predicate(left)
        self.fail("a comparison")

    def presence(self, term: x.Term) -> x.Predicate:
        if not isinstance(term.node, x.Attribute):
            self.fail("an attribute before 'is'")
        if self.take("present"):
            return term.is_present()
        if self.take("absent"):
            return term.is_absent()
        self.fail("'present' or 'absent'")

    def options(self) -> list[x.Constant]:
        self.expect("(")
        found = [self.constant()]
        while self.take(","):
            found.append(self.constant())
        self.expect(")")
        return found

    def constant(self) -> x.Constant:
        node = self.unary()
        if not isinstance(node, x.Literal):
            self.at -= 1
            self.fail("a constant")
        return node.value

    def text_literal(self) -> x.Literal:
        if self.token.kind != "str":
            self.fail("a text in single quotes")
        return x.Literal(self.constant())

    def sum(self) -> x.Value:
        result = self.product()
        while op := self.take("+", "-"):
            result = x.Arithmetic(op, result, self.product())
        return result

    def product(self) -> x.Value:
        result = self.unary()
        while op := self.take("*", "/"):
            result = x.Arithmetic(op, result, self.unary())
        return result

    def unary(self) -> x.Value:
        if not self.take("-"):
            return self.atom()
        operand = self.deeper(self.unary)
        if isinstance(operand, x.Literal) and isinstance(operand.value, int | float | timedelta):
            return x.Literal(-operand.value)
        return x.Negation(operand)

    def atom(self) -> x.Value:
        token = self.token
        if self.take("("):
            inner = self.deeper(self.sum)
            self.expect(")")
            return inner
        if token.kind == "name" and token.text not in RESERVED_WORDS:
            self.at += 1
            self.attributes.append(token)
            return x.Attribute(token.text)
        if token.kind in _LITERALS or token.text in ("true", "false", "inf"):
            self.at += 1
            try:
                return x.Literal(_LITERALS.get(token.kind, _WORDS.__getitem__)(token.text))
            except (ValueError, OverflowError, KeyError) as problem:
                raise problem_at(self.text, token.column, f"{token.text} cannot be read: {problem}") from None
        self.fail("a value")


def _read_text(token: str) -> str:
    def unescape(found: re.Match[str]) -> str:
        if found[1] not in _UNESCAPES:
            raise ValueError(f"there is no escape \\{found[1]}")
        return _UNESCAPES[found[1]]

    return re.sub(r"\\(.)", unescape, token[1:-1], flags=re.DOTALL)


def _read_time(token: str) -> datetime:
    moment = datetime.fromisoformat(token[1:])
    if moment.tzinfo is None:
        raise ValueError("it has no time zone; end it with Z")
    return moment.astimezone(UTC)


def _read_duration(token: str) -> timedelta:
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", token).groups()  # type: ignore[union-attr]
    micros = int(number) * UNITS[unit] if "." not in number else round(float(number) * UNITS[unit])
    if micros > INT64_MAX + 1:  # the smallest duration is written as the negative of one too large
        raise ValueError("it does not fit in 64 bits of microseconds")
    return micros * MICROSECOND


_WORDS: dict[str, x.Constant] = {"true": True, "false": False, "inf": float("inf")}
_LITERALS: dict[str, Callable[[str], x.Constant]] = {
    "int": int,
    "float": float,
    "str": _read_text,
    "bytes": lambda token: bytes.fromhex(token[2:-1]),
    "time": _read_time,
    "duration": _read_duration,
}
