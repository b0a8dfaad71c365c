"""The parser of the text form: `Loop has place, category where speed > 30 and category in ('truck', 'car')`.

It reads by recursive descent and never evaluates text as code. Precedence, loosest first: or, and, not, comparison,
+ -, * / // %, unary minus; `if ... then ... else ...` is the loosest value. The grammar is in docs/subscriptions.md.
`abs`, `length`, `coalesce`, `like`, `escape` and `then` are words only where no attribute can be, so attributes may
have these names; none can be called `if` or `else`, which are words of Python.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NoReturn

import msgspec

import genus.filters._expression as x
from genus.errors import SubscriptionError
from genus.filters._evaluate import ESCAPE
from genus.filters._expression import (
    DEEP_CONDITION,
    DEEP_PREDICATE,
    DEEP_VALUE,
    DURATION_UNITS,
    MAX_CONDITION_DEPTH,
    MAX_DEPTH,
    MAX_VALUE_DEPTH,
    UNESCAPES,
)
from genus.filters._term import Term
from genus.filters._type_names import EXAMPLE_TIME, Token, problem_at
from genus.model.internal import INT64_MAX, MICROSECOND, RESERVED_WORDS

NULL_WORDS = frozenset({"null", "none", "nil", "missing"})
"""Words of other languages for an absent value."""

_OTHER_QUOTES = {'"': '"', "`": "`", "“": "”", "„": "“", "‘": "’", "«": "»"}
"""Quotes of other languages, each with its closing one."""


_TOKENS = r"""\s*(?:(?P<end>\Z)
    | (?P<bytes>x'(?:[0-9a-fA-F]{2})*')
    | (?P<duration>[0-9]+(?:\.[0-9]+)?(?:us|ms|min|s|h|d)\b)
    | (?P<unit>[0-9]++(?>(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)(?!(?:and|or|not|in|is|between)\b)[^\W\d]\w*)
    | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<int>[0-9]+)(?![\w])
    | (?P<time>@[0-9T:.+\-]+Z?)
    | (?P<str>'(?:[^'\\]|\\.)*')
    | (?P<name>(?:[^\W\d]|[^\x00-\x7f\s])(?:\w|[^\x00-\x7f\s])*(?:\.(?:\w|[^\x00-\x7f\s])+)*)
    | (?P<op>==|!=|<=|>=|//|[=<>+\-*/%(),&]))"""


@cache
def token_pattern() -> re.Pattern[str]:
    """Return the pattern of all tokens, compiled when the first text is parsed: `import genus` stays quick."""
    return re.compile(_TOKENS, re.VERBOSE | re.DOTALL)


class ParsedSubscription(msgspec.Struct, frozen=True):
    """The parts of a subscription text before its names are looked up, with their columns for messages.

    `attributes` are all names in `where`, and `tests` its comparisons, each with its column.
    """

    types: tuple[Token, ...]
    exact: bool
    has: tuple[Token, ...]
    lacks: tuple[Token, ...]
    where: x.Predicate | None
    attributes: tuple[Token, ...]
    tests: tuple[tuple[x.Predicate, int], ...]


def parse_parts(text: str) -> ParsedSubscription:
    """Read a subscription text; SyntaxProblem points at the column where it is wrong."""
    return _Parser(text).subscription()


def parse_predicate(text: str) -> x.Predicate:
    """Read the text of a predicate alone; SyntaxProblem points at the column where it is wrong.

    >>> parse_predicate("lane between 1 and 3") == parse_predicate("lane >= 1 and lane <= 3")
    True
    """
    parser = _Parser(text)
    predicate = parser.predicate()
    parser.expect_end()
    return predicate


def parse_value(text: str) -> x.Value:
    """Read the text of a value alone, such as one side of a comparison; SyntaxProblem if it is none.

    >>> x.format_expression(parse_value("(speed+1)*2"))
    '(speed + 1) * 2'
    """
    parser = _Parser(text)
    value = parser.value()
    parser.expect_end()
    return value


def describe_null(attribute: str, *, absent: bool) -> str:
    """Return a message for a comparison of an attribute with null."""
    return f"there is no null: use {attribute} is {'absent' if absent else 'present'}"


class _Parser:
    """State: the tokens of one text and the position in them; one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.at = 0
        self.depth = self.value_depth = self.condition_depth = 0
        self.attributes: list[Token] = []
        self.tests: list[tuple[x.Predicate, int]] = []
        self.in_where = True

    def _tokens(self) -> list[Token]:
        tokens: list[Token] = []
        at, kind, match = 0, "", token_pattern().match
        while kind != "end":
            found = match(self.text, at)
            if found is None or found.lastgroup is None:
                self._refuse_word(at + len(self.text[at:]) - len(self.text[at:].lstrip()))
            kind, word = found.lastgroup, found[found.lastgroup]
            start = found.start(kind)
            if kind == "unit":
                raise problem_at(self.text, start + 1, self._describe_unit(word, start))
            if kind == "name" and not word.isidentifier():
                word = longest_name(word) or self._refuse_word(start)
            tokens.append(Token(kind, word, start + 1))
            at = start + len(word)
        return tokens

    def _refuse_word(self, at: int) -> NoReturn:
        from genus.filters._advice import advise_sign

        raise problem_at(self.text, *(advise_sign(self.text, at) or (at + 1, self._describe_unknown(at))))

    def _describe_unknown(self, at: int) -> str:
        letter = self.text[at]
        if letter == "'":
            return "this text has no closing quote"
        if letter in "[]{}":
            return f"{letter!r} is not understood: write a list as (1, 2)"
        if letter not in _OTHER_QUOTES:
            return f"{letter!r} is not understood"
        quoted = self.text[at + 1 :].partition(_OTHER_QUOTES[letter])[0]
        return f"a text is written in single quotes: use {x.format_literal(quoted)}"

    def _describe_unit(self, word: str, at: int) -> str:
        """Return what is wrong with a number that is followed by letters."""
        if re.search(r"\d{4}-\d{2}-$", self.text[:at]):
            return f"a time begins with @: write it like {EXAMPLE_TIME}"
        if re.fullmatch(r"0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+", word):
            return f"numbers are written in decimal: use {int(word, 0)}"
        number = re.match(r"[0-9.]+", word)
        assert number is not None
        plain = word.replace("_", "") if word.replace("_", "").isdigit() else number[0]
        return f"{word} is not a number: use {plain}; only a duration has a unit ({', '.join(DURATION_UNITS)})"

    # -- tokens -------------------------------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def fail(self, what: str) -> NoReturn:
        from genus.filters._advice import Cursor, advise

        found = f"'{self.token.text}'" if self.token.kind != "end" else "the end"
        advice = advise(Cursor(self.text, self.tokens, self.at), in_where=self.in_where)
        raise problem_at(self.text, *(advice or (self.token.column, f"expected {what}, found {found}")))

    def refuse_function(self, name: int) -> NoReturn:
        from genus.filters._advice import Cursor, advise_function

        raise problem_at(self.text, *advise_function(Cursor(self.text, self.tokens, name)))

    def refuse_chain(self, first: x.Predicate) -> None:
        """Refuse another comparison after one."""
        column = self.token.column
        if isinstance(first, x.Compare) and (op := self.take(*_COMPARISONS)):
            from genus.filters._advice import advise_chain

            raise problem_at(self.text, column, advise_chain(first, op, self.sum()))

    def take(self, *texts: str) -> str | None:
        """Return the next token's text if it is one of these words or signs."""
        token = self.tokens[self.at]
        if token.text in texts and token.kind in ("name", "op"):
            self.at += 1
            return token.text
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

    def subscription(self) -> ParsedSubscription:
        self.in_where = False
        exact = self.take("exact") is not None
        types = self.names("the name of a type", "&")
        has = self.names("the name of an attribute", ",") if self.take("has") else ()
        lacks = self.names("the name of an attribute", ",") if self.take("lacks") else ()
        self.in_where = self.take("where") is not None
        where = self.predicate() if self.in_where else None
        if self.token.kind != "end":
            self.fail("'where' or the end" if where is None else "an operator or the end")
        return ParsedSubscription(types, exact, has, lacks, where, tuple(self.attributes), tuple(self.tests))

    def predicate(self) -> x.Predicate:
        return self.deeper(self.alternatives)

    def deeper(self, rule: Callable[[], x.Predicate]) -> x.Predicate:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise problem_at(self.text, self.token.column, DEEP_PREDICATE)
        result = rule()
        self.depth -= 1
        return result

    def deeper_value(self, rule: Callable[[], x.Value]) -> x.Value:
        self.value_depth += 1
        if self.value_depth > MAX_VALUE_DEPTH:
            raise problem_at(self.text, self.token.column, DEEP_VALUE)
        result = rule()
        self.value_depth -= 1
        return result

    def alternatives(self) -> x.Predicate:
        return _joined(x.Or, self.separated("or", self.conjunction))

    def conjunction(self) -> x.Predicate:
        return _joined(x.And, self.separated("and", self.negation))

    def separated(self, word: str, rule: Callable[[], x.Predicate]) -> list[x.Predicate]:
        found = [rule()]
        while self.take(word):
            found.append(rule())
        return found

    def negation(self) -> x.Predicate:
        return ~self.deeper(self.negation) if self.take("not") else self.test()

    def test(self) -> x.Predicate:
        """Return a comparison, or a predicate in parentheses; which of the two they hold shows what follows them."""
        if self.token.kind != "op" or self.token.text != "(" or self._is_value_group():
            return self.comparison()
        self.at += 1
        inner = self.predicate()
        self.expect(")")
        return inner

    def _is_value_group(self) -> bool:
        """Return whether an operator that takes a value follows the parentheses that begin here."""
        opened = 0
        for place in range(self.at, len(self.tokens) - 1):
            token = self.tokens[place]
            if token.kind == "op":
                opened += (token.text == "(") - (token.text == ")")
            if not opened:
                return self._continues_value(place + 1)
        return False

    def _continues_value(self, place: int) -> bool:
        token = self.tokens[place]
        if token.text == "not":
            return self.tokens[place + 1].text == "in"
        return token.text in _AFTER_VALUE and token.kind in ("op", "name")

    def comparison(self) -> x.Predicate:
        """Return a test, stored with the column where it begins."""
        column = self.token.column
        found = self._comparison()
        self.refuse_chain(found)
        self.tests.append((found, column))
        return found

    def _comparison(self) -> x.Predicate:
        if self.token.text == "if" and self.token.kind == "name":
            self.fail("a test; a conditional is a value: write (if ... then ... else ...) > 1")
        first = self.sum()
        if op := self.take(*_COMPARISONS):
            return x.Compare("==" if op == "=" else op, first, self.value())
        left = Term(first)
        if self.take("not"):
            self.expect_in()
            return ~left.isin(self.options())
        if self.take("in"):
            return left.isin(self.options())
        if self.take("between"):
            low = Term(self.sum())
            self.expect("and")
            return left.between(low, Term(self.sum()))
        if self.take("like"):
            return self.like(left)
        if op := self.take(*x.TEXT_TESTS):
            return x.TextTest(op, left.node, x.Literal(self.text_literal()))
        if self.take("is"):
            return self.presence(left)
        if isinstance(left.node, x.AttributeRef):
            return x.as_predicate(left)
        self.fail("a comparison")

    def expect_in(self) -> None:
        word, column = self.token.text, self.tokens[self.at - 1].column
        if word in ("between", *x.TEXT_TESTS):
            raise problem_at(self.text, column, f"write not before the whole test: not ... {word} ...")
        self.expect("in")

    def presence(self, term: Term) -> x.Predicate:
        if not isinstance(term.node, x.AttributeRef):
            self.fail("an attribute before 'is'")
        if self.take("present"):
            return term.is_present()
        if self.take("absent"):
            return term.is_absent()
        negated = self.take("not") is not None
        if self.token.text.lower() in NULL_WORDS:
            raise problem_at(self.text, self.token.column, describe_null(term.node.name, absent=not negated))
        name, sign = term.node.name, "!=" if negated else "=="
        if negated and (other := {"present": "absent", "absent": "present"}.get(self.token.text)):
            raise problem_at(self.text, self.token.column, f"write {name} is {other}")
        if self.token.kind in _LITERALS or self.token.text in _WORDS:
            raise problem_at(self.text, self.token.column, f"values are compared by {sign}: write {name} {sign} ...")
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

    def like(self, term: Term) -> x.Predicate:
        column, pattern = self.token.column, self.text_literal()
        escape = self.text_literal() if self.take("escape") else ESCAPE
        try:
            return term.like(pattern, escape)
        except SubscriptionError as problem:
            raise problem_at(self.text, column, str(problem)) from None

    def text_literal(self) -> str:
        if self.token.kind != "str":
            self.fail("a text in single quotes")
        return str(self.constant())

    def value(self) -> x.Value:
        return self.conditional(self.alternative) if self.take("if") else self.sum()

    def grouped(self) -> x.Value:
        """Return a value in parentheses; a conditional and its parentheses are one level, as in the tree."""
        return self.conditional(self.value) if self.take("if") else self.sum()

    def alternative(self) -> x.Value:
        return self.deeper_value(self.value)

    def conditional(self, rule: Callable[[], x.Value]) -> x.Value:
        """Return the rest of `if condition then value [else value]`; `else` belongs to the nearest `if`."""
        condition = self.condition()
        self.expect("then")
        then = rule()
        return x.Conditional(condition, then, rule() if self.take("else") else None)

    def condition(self) -> x.Predicate:
        self.condition_depth += 1
        if self.condition_depth > MAX_CONDITION_DEPTH:
            raise problem_at(self.text, self.token.column, DEEP_CONDITION)
        result = self.predicate()
        self.condition_depth -= 1
        return result

    def sum(self) -> x.Value:
        return self.chain(x.SUMS, self.product)

    def product(self) -> x.Value:
        return self.chain(x.PRODUCTS, self.unary)

    def chain(self, signs: tuple[str, ...], rule: Callable[[], x.Value]) -> x.Value:
        """Operands with operators of one precedence between them; `(a + b) + c` is one chain as well."""
        first, steps = rule(), []
        while op := self.take(*signs):
            steps.append(x.Step(op, rule()))
        if not steps:
            return first
        if isinstance(first, x.Arithmetic) and first.steps[0].op in signs:
            return x.Arithmetic(first.first, (*first.steps, *steps))
        return x.Arithmetic(first, tuple(steps))

    def unary(self) -> x.Value:
        if not self.take("-"):
            return self.atom()
        operand = self.deeper_value(self.unary)
        value = operand.value if isinstance(operand, x.Literal) else None
        if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
            return x.Literal(-value)
        return x.Negation(operand)

    def atom(self) -> x.Value:
        token = self.token
        if self.take("("):
            inner = self.deeper_value(self.grouped)
            self.expect(")")
            return inner
        if token.text in (*x.FUNCTIONS, "coalesce") and self.tokens[self.at + 1].text == "(":
            self.at += 2
            return self.call(token.text)
        if token.text == "if" and token.kind == "name":
            self.fail("a value; write (if ... then ... else ...) in parentheses")
        if token.kind == "name" and token.text not in RESERVED_WORDS and token.text != "else":
            self.at += 1
            if self.token.text == "(" and self.token.kind == "op":
                self.refuse_function(self.at - 1)
            self.attributes.append(token)
            return x.AttributeRef(token.text)
        if token.kind in _LITERALS or token.text in ("true", "false", "inf"):
            self.at += 1
            try:
                return x.Literal(_LITERALS.get(token.kind, _WORDS.__getitem__)(token.text))
            except (ValueError, OverflowError, KeyError) as problem:
                raise problem_at(self.text, token.column, f"{token.text} is not valid: {problem}") from None
        self.fail("a value")

    def call(self, function: str) -> x.Value:
        """Return the arguments of a function, and its closing parenthesis."""
        arguments = [self.alternative()]
        while function == "coalesce" and self.take(","):
            arguments.append(self.alternative())
        self.expect(")")
        return x.Coalesce(tuple(arguments)) if function == "coalesce" else x.Function(function, arguments[0])


_COMPARISONS = (*x.COMPARISONS, "=")
_AFTER_VALUE = frozenset((*x.ARITHMETIC, *_COMPARISONS, "in", "between", "is", *x.TEXT_TESTS))
"""The operators that can follow a value."""


def _joined(kind: type[x.And | x.Or], operands: list[x.Predicate]) -> x.Predicate:
    """One flat node of all operands; a single one is itself."""
    if len(operands) == 1:
        return operands[0]
    return kind(tuple(part for one in operands for part in (one.operands if isinstance(one, kind) else (one,))))


def longest_name(word: str) -> str:
    """Return the longest beginning of a word that is a name: identifiers of Python, joined by dots.

    `\\w` does not know all letters of identifiers: U+00B7 and the vowel signs of many scripts are missing.

    >>> longest_name("a·b.℘“"), longest_name("“a”")
    ('a·b.℘', '')
    """
    parts: list[str] = []
    for part in word.split("."):
        if not part.isidentifier():
            fitting = next((n for n, letter in enumerate(part) if not f"{'a' if n else ''}{letter}".isidentifier()), 0)
            return ".".join([*parts, part[:fitting]] if fitting else parts)
        parts.append(part)
    return word


def _read_text(token: str) -> str:
    def unescape(found: re.Match[str]) -> str:
        if found[1] not in UNESCAPES:
            hint = f"; in a pattern of like, write \\\\{found[1]}" if found[1] in "%_" else ""
            raise ValueError(f"there is no escape \\{found[1]}{hint}")
        return UNESCAPES[found[1]]

    return re.sub(r"\\(.)", unescape, token[1:-1], flags=re.DOTALL)


def _read_time(token: str) -> datetime:
    try:
        moment = datetime.fromisoformat(token[1:])
    except ValueError:
        raise ValueError(f"write a time like {EXAMPLE_TIME}") from None
    if moment.tzinfo is None:
        raise ValueError(f"it has no time zone; use {x.format_literal(moment.replace(tzinfo=UTC))} for UTC")
    return moment.astimezone(UTC)


def _read_duration(token: str) -> timedelta:
    number, unit = re.fullmatch(r"([\d.]+)(\w+)", token).groups()  # type: ignore[union-attr]
    micros = int(number) * DURATION_UNITS[unit] if "." not in number else round(float(number) * DURATION_UNITS[unit])
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
