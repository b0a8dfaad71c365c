"""What to write instead of what a text of a subscription cannot have: words and signs of SQL, Python, C and Spark.

Imported only when a text is wrong.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import msgspec

import genus.filters._expression as x
from genus.filters._expression import DURATION_UNITS
from genus.filters._type_names import EXAMPLE_TIME, Token
from genus.model.internal import RESERVED_WORDS

Advice: TypeAlias = tuple[int, str]
"""A column, counted from 1, and a message."""

_COMPARISONS = (*x.COMPARISONS, "=")
KEYWORDS = RESERVED_WORDS | {"like", "escape"}

_NO_POWER = "there is no power; write a product, such as speed * speed"
_NO_BITS = "there are no operators on bits; test one by flags // 4 % 2 == 1"
_CHOOSE = "write (if ... then ... else ...)"
_NO_REGULAR = "there are no regular expressions; use like, startswith, endswith or contains"

SIGNS = {
    "===": "write ==",
    "!==": "write !=",
    "<>": "write !=",
    "=>": "write >=",
    "=<": "write <=",
    "&&": "write and",
    "||": "write or",
    "**": _NO_POWER,
    "<<": _NO_BITS,
    ">>": _NO_BITS,
    "=~": _NO_REGULAR,
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "~": "write not",
    "^": _NO_POWER,
    ";": "leave it out",
    "?": _CHOOSE,
    ",": "write a decimal as 1.5, a list after in as (1, 2), and bounds as between 1 and 2",
}
"""Signs of other languages, the longest first, with what to write instead."""

_CASE = "texts are compared as they are; name all spellings, as in place in ('A8', 'a8')"
_TIME = f"write a time like {EXAMPLE_TIME}"
_CLOCK = f"a subscription has no clock; compare with an attribute, as in expires - time > 5min, or with {EXAMPLE_TIME}"
_ABSENT, _PRESENT = "write SUBJECT is absent", "write SUBJECT is present"
_ROUND = "to round down, write // 1"
_CONVERT = "values are not converted; compare with a constant of the attribute's type"
_PARTS = "parts of a text are tested by startswith, endswith, contains or like"

FUNCTIONS = {
    **dict.fromkeys(("lower", "upper", "lcase", "ucase", "casefold", "trim", "strip"), _CASE),
    **dict.fromkeys(("len", "char_length", "size", "count", "length"), "write length(SUBJECT)"),
    **dict.fromkeys(("isnull", "isna", "is_absent"), _ABSENT),
    **dict.fromkeys(("notnull", "notna", "isnotnull", "exists", "is_present"), _PRESENT),
    **dict.fromkeys(("round", "floor", "ceil", "trunc"), _ROUND),
    **dict.fromkeys(("cast", "int", "float", "str", "to_number"), _CONVERT),
    **dict.fromkeys(("now", "today", "current_timestamp", "getdate"), _CLOCK),
    **dict.fromkeys(("date", "datetime", "timestamp", "to_timestamp", "to_date"), _TIME),
    **dict.fromkeys(("substr", "substring", "left", "right", "instr", "split"), _PARTS),
    **dict.fromkeys(("pow", "power", "sqrt"), _NO_POWER),
    **dict.fromkeys(("regexp_like", "rlike", "match"), _NO_REGULAR),
    **dict.fromkeys(("when", "iif", "ifelse", "case"), _CHOOSE),
    "mod": "write SUBJECT % 2",
    "isin": "write SUBJECT in (1, 2)",
    "between": "write SUBJECT between 1 and 3",
    **{test: f"write SUBJECT {test} 'A8'" for test in x.TEXT_TESTS},
}
"""Functions of other languages, in small letters, with what to write instead; SUBJECT is what one is called with."""

_METHODS = (*x.TEXT_TESTS, "length", "is_present", "is_absent", "isin", "between")
"""Methods of terms in Python."""

_WORDS = {
    **dict.fromkeys(("ilike", "casefold"), _CASE),
    **dict.fromkeys(("rlike", "regexp", "matches", "glob", "similar"), _NO_REGULAR),
    "isnull": "write is absent",
    "notnull": "write is present",
    **dict.fromkeys(("eq", "equals"), "write =="),
    **dict.fromkeys(("order", "group", "limit", "join", "union"), "a subscription only selects events; leave it out"),
    "mod": "write %",
    "div": "write //",
    "isin": "write in",
    "xor": "write (a and not b) or (b and not a)",
}
"""Words of other languages that stand after a value."""

_HEAD_WORDS = {
    **dict.fromkeys(("if", "when", "filter", "having", "on"), "conditions begin with where"),
    **dict.fromkeys(("with",), "attributes that must be present are named after has"),
    **dict.fromkeys(("not", "without"), "attributes that must be absent are named after lacks"),
    "exact": "exact stands before the type, as in exact Loop",
    "lacks": "name all absent attributes after one lacks, as in lacks place, lane",
    "or": "a subscription has one type, which may be a supertype; make one for each type",
}


class Cursor(msgspec.Struct, frozen=True):
    """Where a parser failed: at a token of a text."""

    text: str
    tokens: list[Token]
    at: int

    @property
    def token(self) -> Token:
        """The token that is wrong."""
        return self.tokens[self.at]

    @property
    def before(self) -> Token:
        """The token before it; itself if it is the first."""
        return self.tokens[max(0, self.at - 1)]

    @property
    def after(self) -> Token:
        """The token after it; itself if it is the last."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]


def advise(cursor: Cursor, *, in_where: bool) -> Advice | None:
    """Return what to write instead of the token where a parser failed; None if nothing is known about it."""
    return next((found for rule in (_IN_WHERE if in_where else _IN_HEAD) if (found := rule(cursor))), None)


def advise_sign(text: str, at: int) -> Advice | None:
    """Return what to write instead of a sign of another language that begins at, or goes over, a position of a text."""
    for sign, advice in SIGNS.items():
        for start in range(max(0, at - len(sign) + 1), at + 1):
            if text.startswith(sign, start):
                return start + 1, f"{sign!r} is not understood: {advice}"
    return None


def advise_function(cursor: Cursor) -> Advice:
    """Return what to write instead of a call of a function that there is not, at its name."""
    token = cursor.token
    owner, _, name = token.text.rpartition(".")
    first = cursor.tokens[min(cursor.at + 2, len(cursor.tokens) - 1)]
    is_bare = first.text == ")"
    other = f"write a property without (), {name}" if is_bare else "only a property of the type can compute more"
    advice = FUNCTIONS.get(name.lower(), other)
    advice = advice.replace("SUBJECT", owner or (first.text if first.kind == "name" else "place"))
    if owner and name in _METHODS:
        return token.column, f"methods are called in Python only: {advice}"
    return (
        token.column,
        f"there is no function {name}: {advice}; the functions are {', '.join((*x.FUNCTIONS, 'coalesce'))}",
    )


def advise_chain(first: x.Compare, op: str, third: x.Value) -> str:
    """Return what to write instead of a comparison of three values."""
    low, middle, high = (x.format_expression(value) for value in (first.left, first.right, third))
    advice = f"comparisons are not chained: write {low} {first.op} {middle} and {middle} {op} {high}"
    if op[0] != first.op[0] or op[0] not in "<>":
        return advice
    low, high = (low, high) if op[0] == "<" else (high, low)
    return f"{advice}, or {middle} between {low} and {high}, which includes both ends"


# -- rules -------------------------------------------------------------------------------------------------------------


def _small_letters(cursor: Cursor) -> Advice | None:
    """Keywords in capitals; `NOT` is taken for an attribute, and shows only at the token after it."""
    for token in (cursor.token, cursor.before):
        word = token.text.lower()
        if token.kind == "name" and token.text != word and word in KEYWORDS:
            return token.column, f"keywords are written in small letters: write {word}"
    return None


def _sign(cursor: Cursor) -> Advice | None:
    return advise_sign(cursor.text, cursor.token.column - 1) if cursor.token.kind == "op" else None


def _compared_condition(cursor: Cursor) -> Advice | None:
    """An operator in parentheses that would have to hold a value, as a comparison follows them."""
    if cursor.token.text not in (*_COMPARISONS, "and", "or", "not", "in", "is", "between", *x.TEXT_TESTS):
        return None
    opened = 1
    for token, after in pairwise(cursor.tokens[cursor.at :]):
        opened += (token.text == "(") - (token.text == ")") if token.kind == "op" else 0
        if not opened:
            what = "what is in parentheses is true or false: join it by and, or and not, without == true"
            return (after.column, what) if after.text in _COMPARISONS else None
    return None


def _clause_in_where(cursor: Cursor) -> Advice | None:
    within = {"has": "is present", "lacks": "is absent"}
    word, column = cursor.token.text, cursor.token.column
    if cursor.token.kind == "name" and word in within:
        name = cursor.after.text if cursor.after.kind == "name" else "place"
        return (
            column,
            f"{word} comes before where: write {word} {name} where ..., or within where {name} {within[word]}",
        )
    if cursor.token.kind == "name" and word in ("where", "exact"):
        first = "exact stands before the type, as in exact Loop"
        return column, first if word == "exact" else "where is written once: join conditions by and"
    return None


def _call_of_keyword(cursor: Cursor) -> Advice | None:
    is_called = cursor.token.text in FUNCTIONS and cursor.token.text in KEYWORDS and cursor.after.text == "("
    return advise_function(cursor) if is_called else None


def _list(cursor: Cursor) -> Advice | None:
    """What follows `in` without an opening parenthesis: an attribute that a text is looked for in, or a constant."""
    if cursor.before.text != "in" or cursor.token.kind in ("op", "end"):
        return None
    part = cursor.tokens[max(0, cursor.at - 2)]
    if part.kind == "str" and cursor.token.kind == "name":
        return part.column, f"a part of a text is found by contains: write {cursor.token.text} contains {part.text}"
    return cursor.token.column, "a list is written in parentheses: in (1, 2)"


def _word(cursor: Cursor) -> Advice | None:
    advice = _WORDS.get(cursor.token.text.lower()) if cursor.token.kind == "name" else None
    return (cursor.token.column, f"{cursor.token.text!r} is not understood: {advice}") if advice else None


def _unit_apart(cursor: Cursor) -> Advice | None:
    number, unit = cursor.before, cursor.token
    if number.kind not in ("int", "float") or unit.text not in DURATION_UNITS or unit.kind != "name":
        return None
    return number.column, f"a duration is written without a space: write {number.text}{unit.text}"


def _typed_text(cursor: Cursor) -> Advice | None:
    """`DATE '2026-05-01'`, `INTERVAL '5 min'`."""
    word = cursor.before.text.lower()
    if cursor.token.kind != "str" or cursor.before.kind != "name":
        return None
    if word == "interval":
        return cursor.before.column, "write a duration like 5min"
    return (cursor.before.column, _TIME) if FUNCTIONS.get(word) == _TIME or word == "time" else None


def _unquoted(cursor: Cursor) -> Advice | None:
    """Return a name in a list, where only constants can be."""
    name = cursor.token
    if name.kind != "name" or name.text in KEYWORDS or cursor.before.text not in ("(", ","):
        return None
    quoted = x.format_literal(name.text)
    return name.column, f"expected a constant, found '{name.text}': a text is written in single quotes, {quoted}"


def _query(cursor: Cursor) -> Advice | None:
    first = cursor.tokens[0]
    is_query = first.text.lower() in ("select", "from")
    if not is_query and cursor.token.text not in _COMPARISONS:
        return None
    return first.column, "a subscription begins with its type: write Loop where speed > 30"


def _second_clause(cursor: Cursor) -> Advice | None:
    if cursor.token.text != "has" or cursor.token.kind != "name":
        return None
    earlier = [token.text for token in cursor.tokens[: cursor.at] if token.kind == "name"]
    if "has" in earlier:
        return cursor.token.column, "has is written once: name all attributes after it, as in has place, lane"
    return cursor.token.column, "has comes before lacks: write Loop has place lacks lane"


def _head_word(cursor: Cursor) -> Advice | None:
    advice = _HEAD_WORDS.get(cursor.token.text.lower()) if cursor.token.kind == "name" else None
    return (cursor.token.column, advice) if advice else None


def _separator(cursor: Cursor) -> Advice | None:
    """Attributes are separated by commas, types are not."""
    is_list = any(token.text in ("has", "lacks") for token in cursor.tokens[: cursor.at])
    if is_list and cursor.token.text in ("and", "&"):
        return cursor.token.column, f"attributes are separated by commas: write , instead of {cursor.token.text}"
    if not is_list and cursor.token.text in (",", "and"):
        return cursor.token.column, (
            "make a subscription for each type; A & B selects classes that are both, and a supertype all below it"
        )
    return None


_IN_WHERE: tuple[Callable[[Cursor], Advice | None], ...] = (
    _small_letters, _compared_condition, _sign, _clause_in_where, _call_of_keyword, _list, _word,
    _unit_apart, _typed_text, _unquoted,
)  # fmt: skip
_IN_HEAD = (_query, _small_letters, _second_clause, _separator, _head_word)
