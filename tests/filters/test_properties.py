"""Properties in predicates: whatever is accepted means what Python computes, and everything else is refused."""

import importlib.util
import itertools
import math
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from functools import cache, cached_property, partial, wraps
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, this
from genus.errors import SubscriptionError
from genus.filters._bind import Binder
from genus.filters._constants import type_of
from genus.filters._evaluate import evaluate_value, normalize
from genus.filters._expression import AttributeRef
from tests.examples import examples
from tests.test_truth_table import check


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Side(StrEnum):
    LEFT = "left"
    RIGHT = "right"


class Probe(Event):
    n: int
    g: bool
    m: Maybe[int] = None
    f: Maybe[float] = None
    t: Maybe[str] = None
    b: Maybe[bool] = None
    c: Maybe[Colour] = None
    d: Maybe[Side] = None
    s: Maybe[timedelta] = None
    raw: Maybe[list[int]] = None
    LIMIT: ClassVar[int] = 2


# -- random getters ----------------------------------------------------------------------------------------------------


class Writer:
    """Writes random getters; most are translated, some are refused, as they mix types or use what has no expression."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, list[str]] = {}
        self.properties: dict[str, list[str]] = {}

    def pick(self, *options: Any) -> Any:
        option = self.random.choice(options)
        return option() if callable(option) else option

    def value(self, kind: str, depth: int) -> str:
        """An expression of a kind, rarely of another one."""
        if self.random.random() < 0.02:
            kind = self.random.choice(KINDS)
        known = [*self.names.get(kind, ()), *self.properties.get(kind, ())]
        if known and self.random.random() < 0.3:
            return str(self.random.choice(known))
        if depth <= 0:
            return str(self.pick(*LEAVES[kind]))
        inner = depth - 1
        if self.random.random() < 0.3:
            one, other = self.value(kind, inner), self.value(kind, inner)
            test = self.value("flag", inner)
            chain = f" {self.pick('or', 'and')} ".join([one, other, *self.pick((), (self.value(kind, inner),))])
            return str(self.pick(f"({one} if {test} else {other})", f"({chain})", f"({chain})"))
        return str(getattr(self, kind)(inner))

    def number(self, depth: int) -> str:
        a, b = self.value("number", depth), self.value("number", depth)
        op = self.pick("+", "-", "*", "/", "//", "%")
        return str(self.pick(f"({a} {op} {b})", f"(-{a})", f"abs({a})", f"len({self.value('text', depth)})", f"(+{a})"))

    def text(self, depth: int) -> str:
        return str(self.pick(*LEAVES["text"]))

    def colour(self, depth: int) -> str:
        return str(self.pick(*LEAVES["colour"]))

    def span(self, depth: int) -> str:
        a, b = self.value("span", depth), self.value("span", depth)
        return str(
            self.pick(f"({a} + {b})", f"({a} - {b})", f"({a} * {self.pick('2', 'self.n')})", "(self.time - NOON)")
        )

    def flag(self, depth: int) -> str:
        kind = self.random.choice(KINDS)
        a, b, c = (self.value(kind, depth) for _ in range(3))
        text, colour, flag = self.value("text", depth), self.value("colour", depth), self.value("flag", depth)
        less = self.pick("<", "<=", ">", ">=")
        options = [f"{a} {self.pick('==', '!=')} {b}", f"{a} {self.pick('is', 'is not')} None", f"not {a}"]
        options += [f"{a} {self.pick('in', 'not in')} {CONSTANTS[kind]}", f"({flag} {self.pick('&', '|')} {flag})"]
        options += [f"{text}.{self.pick('startswith', 'endswith')}('a')", f"'a' in {text}", f"bool({a})"]
        options += [f"{colour} {self.pick('is', 'is not')} Colour.RED", f"{flag} is True", f"{a} == {b} != {c}"]
        options += ["self.c.value == 'red'", f"{text} != {b}"] if self.random.random() < 0.3 else []
        if kind in ("number", "text", "span"):
            options += [f"{a} {less} {b}", f"{a} {less} {b}", f"{a} {less} {b} {less} {c}"]
        return f"({self.random.choice(options)})"

    def body(self, kind: str, depth: int) -> Iterator[str]:
        """The statements of a getter."""
        self.names = {}
        for number in range(self.random.choice([0, 0, 1, 2])):
            of = self.random.choice(KINDS)
            yield f"v{number} = {self.value(of, 1)}"
            self.names.setdefault(of, []).append(f"v{number}")
        yield from self.block(kind, depth)

    def block(self, kind: str, depth: int) -> Iterator[str]:
        if depth <= 0 or self.random.random() < 0.3:
            yield f"return {self.value(kind, 2)}"
            return
        yield f"if {self.value('flag', 1)}:"
        yield from (f"    {line}" for line in self.block(kind, depth - 1))
        if self.random.random() < 0.5:
            yield f"elif {self.value('flag', 1)}:"
            yield f"    w = {self.value(kind, 1)}"
            yield "else:"
            yield f"    w = {self.value(kind, 1)}"
            yield "return w"
        else:
            yield from self.block(kind, depth - 1)

    def module(self, name: str, count: int) -> str:
        lines = [HEADER, f"class {name}(Probe):"]
        for number in range(count):
            kind = self.random.choice(KINDS)
            lines += ["    @property", f"    def p{number}(self):", '        """A getter."""']
            lines += [f"        {line}" for line in self.body(kind, 2)]
            self.properties.setdefault(kind, []).append(f"self.p{number}")
        return "\n".join([*lines, ""])


KINDS = ("number", "text", "flag", "colour", "span")
LEAVES = {
    "number": ("self.n", "self.m", "self.f", "(0)", "(1)", "(2.5)", "(-3)", "TWO", "self.LIMIT", "None"),
    "text": ("self.t", "'a'", "''", "'abc'", "NAME"),
    "flag": ("self.b", "self.g", "True", "(self.f is None)", "(self.m > 1)"),
    "colour": ("self.c", "Colour.RED", "Colour.BLUE"),
    "span": ("self.s", "SPAN", "timedelta(seconds=2)"),
}
CONSTANTS = {
    "number": "(1, 2.5, None)",
    "text": "['a', '']",
    "flag": "(True,)",
    "colour": "{Colour.RED}",
    "span": "(SPAN, None)",
}
HEADER = """
from datetime import UTC, datetime, timedelta
import numpy
from tests.filters.test_properties import Colour, Probe
TWO, NAME, SPAN, NOON = 2, "ab", timedelta(seconds=3), datetime(2026, 1, 1, 12, tzinfo=UTC)
EIGHT, EIGHTS = numpy.int64(8), (numpy.int64(8),)
"""
NUMBERS = itertools.count()


def load(source: str) -> dict[str, Any]:
    """The names of a module that is written to a file, as the source of a getter is read from its file."""
    name = f"generated_properties_{next(NUMBERS)}"
    path = Path(FOLDER.name) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # of `1 is True`
        spec.loader.exec_module(module)
    return vars(module)


FOLDER = tempfile.TemporaryDirectory()


def sample(cls: type, chance: random.Random) -> Any:
    """An event with small values, of which about a third are absent."""
    times = (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 12, 0, 3, tzinfo=UTC))
    pools: dict[str, tuple[Any, ...]] = {
        "m": (0, 1, 2, -3),
        "f": (0.0, -0.0, 1.0, 2.5, math.nan, math.inf),
        "t": ("", "a", "ab", "abc"),
        "b": (True, False),
        "c": tuple(Colour),
        "s": (timedelta(0), timedelta(seconds=2), timedelta(seconds=-3)),
        "time": times,
    }
    given_ = {name: chance.choice(pool) for name, pool in pools.items() if chance.random() < 0.65}
    return cls(n=chance.choice((0, 1, 2, -7)), g=chance.random() < 0.5, **given_)


class TestMeaning:
    @examples(150)
    @given(st.integers(0, 10**9))
    @pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
    def test_whatever_is_accepted_gives_what_python_gives(self, seed: int) -> None:
        """Where Python raises, any result is allowed; of NaN it is unknown or what Python gives."""
        name = f"P{next(NUMBERS)}"
        cls = load(Writer(seed).module(name, 6))[name]
        chance = random.Random(seed)
        events = [sample(cls, chance) for _ in range(12)]
        asked = []
        for each in [f"p{number}" for number in range(6)]:
            try:
                bound = Binder(cls).value(AttributeRef(each))
            except SubscriptionError:
                continue
            found = [compare(bound, each, event) for event in events]
            asked += [Subscription(cls, where=this[each] == value) for value in found[:2] if value is not None]
        where = [(one.where, ~one.where) for one in asked if one.where is not None]
        asked = [Subscription(cls, where=predicate) for pair in where for predicate in pair]
        for target in ("text", "python", "arrow", "index", "channel"):
            check(target, asked, events)

    @pytest.mark.slow
    def test_most_are_accepted_and_have_values(self) -> None:
        accepted = valued = 0
        for seed in range(40):
            name = f"P{next(NUMBERS)}"
            cls = load(Writer(seed).module(name, 6))[name]
            event = sample(cls, random.Random(seed))
            for number in range(6):
                try:
                    bound = Binder(cls).value(AttributeRef(f"p{number}"))
                except SubscriptionError:
                    continue
                accepted += 1
                valued += evaluate_value(bound, event) is not None
        assert (accepted > 120, valued > 60) == (True, True), (accepted, valued)


def compare(bound: Any, name: str, event: Any) -> Any:
    """The value of an expression, which is Python's unless that raises."""
    found = evaluate_value(bound, event)
    try:
        python = getattr(event, name)
    except (TypeError, AttributeError, ZeroDivisionError, OverflowError, UnboundLocalError):
        return None
    plain = None if python is None else normalize(getattr(python, "value", python), type_of(bound))
    plain = None if plain != plain else plain
    if found is None and event.f is not None and not math.isfinite(event.f):
        return None  # Python compares NaN, here it is unknown
    assert found == plain, f"{name} is {found!r}, in Python {python!r}: {event!r}"
    return python if plain is not None else None


# -- forms -------------------------------------------------------------------------------------------------------------

ACCEPTED = [
    "return self.n - 2 + self.n * 3 // 2 % 5",
    "return self.n / 4",
    "v: int = self.n\nreturn v * 2",
    "v = self.n\nv -= 1\nv *= 3\nreturn v",
    "pass\n'a text'\nreturn self.n",
    "if self.n > 1:\n    return 3",
    "if self.n > 1:\n    return\nreturn self.m",
    "if TWO == 2:\n    return self.n\nreturn 5",
    "if TWO == 3:\n    return self.n\nreturn 5",
    "v = 1\nif self.g:\n    v = 2\nreturn v + self.n",
    "return +self.n",
    "return -(-3) + +TWO + abs(-2) + len('abc')",
    "return (self.n > 1) & self.g",
    "return (self.n > 1) | self.g",
    "return self.g & True | (self.m is None)",
    "return self.n in (1, 2)",
    "return self.n not in [0, 1]",
    "return self.n in ()",
    "return self.m in (None,)",
    "return self.m not in (None,)",
    "return self.m in {1, None}",
    "return self.m not in {1, None}",
    "return self.m in (1, 2) or self.m not in (1, 2)",
    "return TWO in (1, 2) and 'b' in 'abc' and self.g",
    "return 'b' in self.t",
    "return self.t.startswith(('a', 'x'))",
    "return self.t.endswith('c')",
    "return 'abc'.startswith('a') and not 'abc'.endswith('a')",
    "return self.d == 'left'",
    "return self.c.value == 'red'",
    "return self.c == self.c",
    "return self.m == self.f",
    "return self.m != self.f",
    "return Colour.RED is Colour.RED and self.c is not Colour.RED",
    "return Colour.RED is Colour.BLUE",
    "return self.c is None",
    "return self.c is not None",
    "return self.g is True",
    "return self.g is not False",
    "return 0 < self.n < 2",
    "return 0 <= self.n <= 1 != self.n",
    "return 1 < TWO < 3",
    "return self.b or self.g",
    "return self.b and self.g",
    "return self.m or 7",
    "return self.m and self.n",
    "return self.m or self.f or self.n",
    "return self.m and self.f and self.n",
    "return 0 or self.n",
    "return 1 or self.n",
    "return 0 and self.n",
    "return 1 and self.n",
    "return self.n if self.g else None",
    "return None if self.g else self.n",
    "return 4 if self.g else 4",
    "return self.n > 1 if self.g else self.m is None",
    "return bool(self.t)",
    "return bool(self.s)",
    "return bool(self.f)",
    "return bool(self.c)",
    "return bool(self.time)",
    "return bool(self.n > 1)",
    "return not self.t",
    "return self.s > timedelta(seconds=1) and self.time >= NOON",
    "return self.time > datetime(2026, 1, 1, tzinfo=UTC)",
    "return self.n > math.pi - 2",
    "return self.n + self.LIMIT",
    "return len(self.t) + abs(self.n)",
    "return len(self.t or '')",
]

REFUSED = [
    ("self.n ** 2", "the operator of `self.n ** 2` cannot be translated; use if and return"),
    ("self.n << 1", "the operator of `self.n << 1` cannot be translated"),
    ("2 ** self.LIMIT", "the operator of `2 ** self.LIMIT` cannot be translated"),
    ("self.n & 1", "`self.n & 1` computes with bits; & and | are for bools"),
    ("self.g | self.n", "`self.g | self.n` computes with bits"),
    ("self.n.value", "`self.n.value` is no attribute or property of the event"),
    ("self.c.name", "`self.c.name` is no attribute or property of the event"),
    ("self.n is self.m", "`self.n is self.m` compares objects; write == instead of is"),
    ("self.n is not TWO", "`self.n is not TWO` compares objects"),
    ("self.n is True", "`self.n is True` computes with bits"),
    ("self.c is Side.LEFT", "compares with a member of another enum; write == instead of is"),
    ("self.c < Colour.RED", "`self.c < Colour.RED` orders members of an enum, which have no order"),
    ("self.c in ('red', 'blue')", "takes a member of Colour for something else; write Colour.X"),
    ("self.c if self.g else 'red'", "takes a member of Colour for something else"),
    ("(1, 2) if self.g else 3", "a tuple can be chosen in no expression"),
    ("self.n > missing", "there is no missing"),
    ("self.n > Colour", "`Colour` is a EnumType, no constant or enum member"),
    ("self.n > math", "`math` is a module, no constant or enum member"),
    ("self.n > Colour.GREEN", "`Colour.GREEN` is no constant, attribute or property"),
    ("self.n > NOON.year", "`NOON.year` is no constant, attribute or property"),
    ("self.n in (1, self.m)", "`self.m` is not a constant; write a comparison for each value, joined by or"),
    ("self.n in self.raw", "cannot be translated; write x in (1, 2) with constants, or 'part' in self.text"),
    ("self.t in 'abc'", "cannot be translated; write x in (1, 2) with constants"),
    ("self.t.startswith(3)", "`self.t.startswith(3)` needs a text and constant texts"),
    ("self.t.startswith(())", "needs a text and constant texts"),
    ("self.t.endswith(self.t)", "`self.t` is not a constant"),
    ("self.c.startswith('r')", "needs a text and constant texts"),
    ("1 // 0 > self.n", "`1 // 0` fails in Python (ZeroDivisionError: "),
    ("-NAME", "`-NAME` fails in Python (TypeError: "),
    ("NAME < TWO", "`NAME < TWO` fails in Python (TypeError: "),
    ("len(3)", "`len(3)` fails in Python"),
    ("timedelta(seconds='a')", "fails in Python (TypeError: "),
    ("None > self.n", "fails in Python, as an operand is None"),
    ("self.n > 1j", "`1j` cannot be translated; use if and return"),
    ("self.t + 1", "cannot apply +: t is str, and 1 is int64"),
    ("-self.t", "cannot negate: t is str"),
    ("self.n > 'a'", "cannot compare: n is int64, but 'a' is str"),
    ("bool(self.d)", "`self.d` is a member of an enum, whose truth depends on it; compare it"),
    ("len(self.n)", "length takes text or bytes, but n is int64"),
    ("abs(self.n, 2)", "the call of `abs` cannot be translated"),
    ("self.lost > 1", "has no attribute 'lost' that predicates can test"),
    ("self.raw == 1", "'raw' is list[int], which can only be tested for presence"),
    ("()", "it is a tuple; write a test of its contents"),
]


@cache
def forms() -> type[Event]:
    """A class with a property for each form that is accepted, `a0`, and refused, `r0`."""
    lines = [HEADER, "import math", "from tests.filters.test_properties import Side", "class Forms(Probe):"]
    for name, body in [*((f"a{n}", body) for n, body in enumerate(ACCEPTED)),
                       *((f"r{n}", f"return {value}") for n, (value, _) in enumerate(REFUSED))]:  # fmt: skip
        lines += ["    @property", f"    def {name}(self):", *(f"        {line}" for line in body.split("\n"))]
    found: type[Event] = load("\n".join([*lines, ""]))["Forms"]
    return found


class TestForms:
    """Each form of a getter by itself, so that what fails names the form."""

    @pytest.mark.parametrize("number", range(len(ACCEPTED)), ids=lambda number: ACCEPTED[number])
    def test_a_form_that_is_accepted_gives_what_python_gives(self, number: int) -> None:
        name, chance = f"a{number}", random.Random(number)
        bound = Binder(forms()).value(AttributeRef(name))
        compared = [compare(bound, name, sample(forms(), chance)) for _ in range(40)]
        assert [each for each in compared if each is not None]

    @pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda number: REFUSED[number][0])
    def test_a_form_that_is_refused_says_why(self, number: int) -> None:
        with pytest.raises(SubscriptionError) as caught:
            Binder(forms()).value(AttributeRef(f"r{number}"))
        assert str(caught.value).startswith(f"property r{number} of Forms cannot be used in a predicate: ")
        assert REFUSED[number][1] in str(caught.value)


# -- cases -------------------------------------------------------------------------------------------------------------


def twofold(function: Any) -> Any:
    @wraps(function)
    def inner(self: Any) -> Any:
        return 2 * function(self)

    return inner


def counted(limit: int) -> type[Event]:
    class Counted(Probe):
        @property
        def many(self) -> bool:
            return self.n > limit

    return Counted


NAMES = ("a", "b")


class Overdue(Kind):
    @property
    def overdue(self) -> bool:
        return self.time > self.deadline  # type: ignore[attr-defined, no-any-return]


class Lamp(Probe, Overdue):
    power: Maybe[float] = None

    @property
    def has_power(self) -> bool:
        return self.power is not None

    @property
    def watts(self) -> float:
        return 0.0 if self.power is None else self.power

    @property
    def other_colour(self) -> bool:
        return self.c is not Colour.RED

    @property
    def doubled(self) -> float | None:
        return None if self.power is None else self.power * 2

    @property
    def bright(self) -> bool:
        """Whether it is bright."""
        power = self.watts
        if power > 60:
            return True
        if self.c == Colour.BLUE:
            power += 20
        return power > 60

    @property
    def band(self) -> str:
        return "high" if self.bright else "low"

    @property
    def paint(self) -> Colour:
        return Colour.BLUE if self.n > 1 else Colour.RED

    @property
    def left(self) -> bool:
        return self.d == "left" and self.d is not Side.RIGHT

    twice = property(lambda self: self.n * 2)

    @property
    @twofold
    def decorated(self) -> int:
        return self.n

    @cached_property
    def cached(self) -> int:
        return self.n

    @property
    def by_cached(self) -> int:
        return self.cached

    @property
    def yielded(self) -> Any:
        return self.n
        yield

    got = property(attrgetter("n"))
    partly = property(partial(lambda limit, self: self.n > limit, 3))

    @property
    async def awaited(self) -> int:
        return self.n

    @property
    def either(self) -> Any:
        return self.d or self.t

    @property
    def unequal(self) -> bool:
        return self.t != NAMES  # type: ignore[comparison-overlap]

    @property
    def itself(self) -> Any:
        return self.again

    @property
    def again(self) -> Any:
        return self.itself

    @property
    def nothing(self) -> None:
        return None

    @property
    def tuples(self) -> tuple[int, int]:
        return (1, 2)

    @property
    def is_number(self) -> bool:
        return isinstance(self.power, float)

    @property
    def tried(self) -> bool:
        try:
            return self.power > 1  # type: ignore[operator]
        except TypeError:
            return False

    @property
    def looped(self) -> int:
        for _ in range(3):
            pass
        return self.n

    @property
    def written(self) -> str:
        return f"{self.n}"

    @property
    def assigned(self) -> bool:
        return (value := self.n) > 1 and value < 3

    @property
    def inverted(self) -> Any:
        return ~(self.n > 1)

    @property
    def taken_for_text(self) -> bool:
        return self.c == "red"  # type: ignore[comparison-overlap]

    @property
    def called(self) -> bool:
        return self.t.upper() == "A"  # type: ignore[union-attr]

    @property
    def mixed(self) -> Any:
        return 1 if self.g else "one"

    @property
    def shared(self) -> bool:
        return self.n in SEEN

    @property
    def indexed(self) -> Any:
        return self.raw[0]  # type: ignore[index]

    @property
    def whole(self) -> bool:
        return self == SEEN  # type: ignore[comparison-overlap]

    @property
    def unbound(self) -> Any:
        if self.g:
            value = 1
        return value


SEEN: list[int] = []
DOCSTRING = '"""Some lines.\n\n        One is indented,\nand one is not."""'


class Dimmed(Lamp):
    @property
    def watts(self) -> float:
        return 1000.0


class TestCases:
    @pytest.mark.parametrize(
        ("where", "matching"),
        [
            (this.has_power, [70.0, 50.0]),
            (~this.has_power, [None]),
            (this.has_power == False, [None]),  # noqa: E712
            (this.watts < 60, [50.0, None]),
            (this.doubled > 100, [70.0]),
            (this.doubled <= 100, [50.0]),
            (this.bright, [70.0]),
            (this.band == "low", [50.0, None]),
            (this.bright == this.g, [70.0]),
        ],
    )
    def test_a_property_means_what_python_computes(self, where: Any, matching: list[float | None]) -> None:
        lamps = [Lamp(n=1, g=True, power=power) for power in (70.0, 50.0, None)]
        asked = Subscription(Lamp, where=where)
        assert [lamp.power for lamp in lamps if asked.matches(lamp)] == matching

    @pytest.mark.parametrize("colour", [Colour.RED, Colour.BLUE, None])
    def test_members_of_enums_are_compared_by_identity(self, colour: Colour | None) -> None:
        lamp = Lamp(n=2, g=True, c=colour, power=50.0)
        assert Subscription(Lamp, where=this.other_colour).matches(lamp) is lamp.other_colour
        assert Subscription(Lamp, where=this.bright).matches(lamp) is lamp.bright
        assert Subscription(Lamp, where=this.paint == this.c).matches(lamp) is (lamp.paint is colour)

    def test_a_member_of_an_enum_of_texts_equals_its_value(self) -> None:
        asked = Subscription(Lamp, where=this.left)
        assert [side for side in (*Side, None) if asked.matches(Lamp(n=1, g=True, d=side))] == [Side.LEFT]

    def test_a_property_stands_for_an_expression_in_the_text(self) -> None:
        assert str(Subscription(Lamp, where=this.doubled > 1)) == "Lamp where power * 2.0 > 1.0"
        assert str(Subscription(Lamp, where=this.watts > 1)) == (
            "Lamp where (if power is absent then 0.0 else power) > 1.0"
        )
        assert str(Subscription(Lamp, where=this.twice > 1)) == "Lamp where n * 2 > 1"

    def test_the_property_of_the_subscribed_type_is_meant(self) -> None:
        assert not Subscription(Lamp, where=this.watts > 60).matches(Dimmed(n=1, g=True))
        assert Subscription(Dimmed, where=this.bright).matches(Dimmed(n=1, g=True)), "inherited, by its own watts"

    def test_a_kinds_property(self) -> None:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        late = Lamp(n=1, g=True, time=now, deadline=now - timedelta(seconds=1))
        assert Subscription(Overdue, where=this.overdue).matches(late)
        assert Subscription(Lamp, where=this.overdue).matches(late)

    def test_names_are_those_around_the_class(self) -> None:
        few, many = counted(1), counted(5)
        assert str(Subscription(few, where=this.many).where) == "n > 1"
        assert str(Subscription(many, where=this.many).where) == "n > 5"

    @pytest.mark.parametrize(
        ("name", "line", "message"),
        [
            ("decorated", "@property", "its function is decorated; put @property alone above it"),
            ("cached", "@cached_property", "it is made by cached_property; write a function below @property"),
            ("by_cached", "@cached_property", "property cached of Lamp cannot be used in a predicate: it is made by"),
            ("yielded", "@property", "it has a yield, so that it gives a generator; write return"),
            ("got", "class Lamp(", "it is made by attrgetter"),
            ("partly", "partly = ", "it is made by partial"),
            ("awaited", "@property", "it is written as async def; write def"),
            ("either", "self.d or self.t", "`self.d` is a member of an enum"),
            ("unequal", "self.t != NAMES", "takes a tuple for one value; write x in (1, 2)"),
            (
                "itself",
                "return self.itself",
                "property again of Lamp cannot be used in a predicate: it refers to itself",
            ),
            ("nothing", "@property", "it is always None"),
            ("tuples", "@property", "it is a tuple"),
            ("is_number", "isinstance(self.power", "the call of `isinstance` cannot be translated; use if and return"),
            ("tried", "        try:", "try cannot be translated"),
            ("looped", "for _ in range(3)", "a loop cannot be translated"),
            ("written", 'f"{self.n}"', "an f-string cannot be translated"),
            ("assigned", "(value := self.n)", ":= cannot be translated"),
            ("inverted", "~(self.n > 1)", "~ cannot be translated; write not"),
            ("taken_for_text", 'self.c == "red"', "takes a member of Colour for something else; write Colour.X"),
            ("called", "self.t.upper()", "the call of `self.t.upper` cannot be translated"),
            (
                "mixed",
                '1 if self.g else "one"',
                "cannot choose between values of two types: 1 is int64, but 'one' is str",
            ),
            ("shared", "self.n in SEEN", "`SEEN` is a list, no constant or enum member"),
            ("indexed", "self.raw[0]", "an index cannot be translated"),
            ("whole", "self == SEEN", "it uses the event as a whole"),
            ("unbound", "return value", "value may have no value here"),
        ],
    )
    def test_what_has_no_expression_is_refused_with_its_line(self, name: str, line: str, message: str) -> None:
        with pytest.raises(SubscriptionError) as caught:
            Subscription(Lamp, where=this[name] == 1)
        text = str(caught.value)
        assert message in text
        assert " of Lamp " in text
        own = Path(__file__).read_text().splitlines()
        place = int(text.rpartition("line ")[2].rstrip(")"))
        assert line in own[place - 1]
        assert __file__ in text

    def test_an_inherited_property_without_a_function_is_placed_at_the_class_that_has_it(self) -> None:
        with pytest.raises(SubscriptionError) as caught:
            Subscription(Dimmed, where=this.got == 1)
        place = int(str(caught.value).rpartition("line ")[2].rstrip(")"))
        assert "class Lamp(" in Path(__file__).read_text().splitlines()[place - 1]


class TestSource:
    """The source is read from the file, and believed only if Python runs the same."""

    def test_without_source_it_is_refused(self) -> None:
        names: dict[str, Any] = {"Probe": Probe}
        exec("class Typed(Probe):\n    @property\n    def p(self): return self.n > 1", names)
        with pytest.raises(SubscriptionError, match=r"property p of Typed .*its source is not there.*<string>, line 2"):
            Subscription(names["Typed"], where=this.p)

    @pytest.mark.parametrize(
        "changed",
        [
            "return self.n > 2",
            "return self.m > 1",
            "return self.n < 1",
            "return LIMIT > self.n",
            "x = 1\n        return x",
        ],
    )
    def test_a_file_that_changed_since_is_not_believed(self, changed: str) -> None:
        name = f"Q{next(NUMBERS)}"
        source = (
            f"{HEADER}LIMIT = 3\nclass {name}(Probe):\n    @property\n    def p(self):\n        return self.n > 1\n"
        )
        cls = load(source)[name]
        Path(sys.modules[cls.__module__].__file__ or "").write_text(source.replace("return self.n > 1", changed))
        with pytest.raises(SubscriptionError, match="its source is not what Python runs"):
            Subscription(cls, where=this.p)

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            ("p = property(\n        lambda self: (\n            self.n > 1\n        )\n    )", "n > 1"),
            ("p, q = property(lambda self: self.n > 1), property(lambda self: self.n > 2)", "n > 1"),
            ("p = property(lambda self: self.__mark)\n    __mark = 3", "has no attribute '__mark'"),
            ("p = property(lambda: 3)", "it has no parameter for the event"),
            ("p = property(len)", "it is made by builtin_function_or_method"),
            ("def limit(k): return property(lambda self: self.n > k)\n    p = limit(3)", "n > 3"),
            (
                "@property\n    def p(self):\n        return self.n > EIGHT and self.n not in EIGHTS",
                "n > 8 and not (n is present and n in (8))",
            ),
            (f"@property\n    def p(this):\n        {DOCSTRING}\n        return this.n > 1", "n > 1"),
        ],
    )
    def test_forms_of_functions(self, lines: str, expected: str) -> None:
        name = f"Q{next(NUMBERS)}"
        cls = load(f"{HEADER}class {name}(Probe):\n    {lines}\n")[name]
        try:
            found = str(Subscription(cls, where=this.p).where)
        except SubscriptionError as problem:
            found = str(problem)
        assert expected in found

    def test_a_doubled_local_does_not_grow_without_bound(self) -> None:
        lines = [f"        v{n + 1} = v{n} * v{n} + v{n}" for n in range(30)]
        name = f"Q{next(NUMBERS)}"
        body = "\n".join(["        v0 = self.n", *lines, "        return v30 > 1"])
        cls = load(f"{HEADER}class {name}(Probe):\n    @property\n    def p(self):\n{body}\n")[name]
        with pytest.raises(SubscriptionError, match=r"parts or more|levels deep"):
            Subscription(cls, where=this.p)

    def test_branches_that_meet_again_do_not_grow_without_bound(self) -> None:
        name = f"Q{next(NUMBERS)}"
        body = "\n".join(
            ["        v = 0", *(f"        if self.n > {n}: v = {n}" for n in range(40)), "        return v"]
        )
        cls = load(f"{HEADER}class {name}(Probe):\n    @property\n    def p(self):\n{body}\n")[name]
        with pytest.raises(SubscriptionError, match="too many ways through it"):
            Subscription(cls, where=this.p > 1)

    def test_a_property_that_is_replaced_is_read_again(self) -> None:
        def first(self: Any) -> Any:
            return self.n > 1

        def second(self: Any) -> Any:
            return self.n > 2

        class Replaced(Probe):
            p = property(first)

            @property
            def q(self) -> Any:
                return not self.p

        assert str(Subscription(Replaced, where=this.q).where) == "not n > 1"
        Replaced.p = property(second)
        assert str(Subscription(Replaced, where=this.q).where) == "not n > 2"

    @pytest.mark.parametrize("value", [None, 5])
    def test_a_property_that_is_no_more_is_not_remembered(self, value: int | None) -> None:
        class Used(Probe):
            @property
            def q(self) -> Any:
                return self.p  # type: ignore[attr-defined]

        class Gone(Used):
            @property
            def p(self) -> Any:
                return self.n > 1

        assert str(Subscription(Gone, where=this.q).where) == "n > 1"
        if value is None:
            del Gone.p
            with pytest.raises(SubscriptionError, match=r"property q of Gone .* no attribute 'p' .*, line \d"):
                Subscription(Gone, where=this.q)
        else:
            Gone.p = value  # type: ignore[assignment,method-assign]
            assert str(Subscription(Gone, where=this.q == 5).where) == "5 == 5"

    @pytest.mark.parametrize("word", ["and", "or"])
    def test_a_chain_of_values_grows_by_a_step_for_each(self, word: str) -> None:
        name, values = f"Q{next(NUMBERS)}", [f"self.v{n}" for n in range(12)]
        notes = "".join(f"    v{n}: Maybe[float] = None\n" for n in range(12))
        getters = (
            f"    @property\n    def p{n}(self): return {f' {word} '.join(values[:n])}\n" for n in range(2, 13, 5)
        )
        cls = load(f"{HEADER}from genus import Maybe\nclass {name}(Probe):\n{notes}{''.join(getters)}")[name]
        few, more, most = (len(str(Subscription(cls, where=this[f"p{n}"] > 1).where)) for n in range(2, 13, 5))
        assert most - more <= more - few + 40, "names of two digits are longer"

    def test_chains_in_parentheses_do_not_double_with_each_operand(self) -> None:
        chain = "self.m"
        for n in range(8):
            chain = f"({chain} {('or', 'and')[n % 2]} self.n)"
        name = f"Q{next(NUMBERS)}"
        cls = load(f"{HEADER}class {name}(Probe):\n    p = property(lambda self: {chain})\n")[name]
        assert len(str(Subscription(cls, where=this.p > 1).where)) < 2000

    def test_a_module_level_constant_is_read_when_the_subscription_is_made(self) -> None:
        name = f"Q{next(NUMBERS)}"
        names = load(
            f"{HEADER}LIMIT = 3\nclass {name}(Probe):\n    @property\n    def p(self): return self.n > LIMIT\n"
        )
        assert str(Subscription(names[name], where=this.p).where) == "n > 3"
        names["LIMIT"] = 4
        assert str(Subscription(names[name], where=this.p).where) == "n > 4"
