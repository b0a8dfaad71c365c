"""Methods of pandas, Spark and Python's texts that terms do not have; imported only when one is called."""

from collections.abc import Iterable

from genus.errors import did_you_mean

METHODS = {
    **dict.fromkeys(("isnull", "isna", "isNull", "is_null", "isNone"), ".is_absent()"),
    **dict.fromkeys(("notnull", "notna", "isNotNull", "is_not_null", "exists"), ".is_present()"),
    **dict.fromkeys(("str", "dt"), "the methods of a term directly, such as .startswith(...)"),
    **dict.fromkeys(("lower", "upper", "casefold", "strip", "trim"), 'all spellings, .isin(["A8", "a8"])'),
    **dict.fromkeys(("len", "size", "count"), ".length()"),
    **dict.fromkeys(
        ("rlike", "match", "matches", "fullmatch", "regexp", "ilike", "find"), ".like(...) or .contains(...)"
    ),
    **dict.fromkeys(("cast", "astype"), "the term as it is: values are not converted"),
    **dict.fromkeys(("is_in", "isIn", "in_"), ".isin([...])"),
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "abs": "abs(...)",
    "startsWith": ".startswith(...)",
    "endsWith": ".endswith(...)",
}
"""Methods of other libraries, with what to write instead."""


def describe_method(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of a method that a term does not have."""
    if name in METHODS:
        return f"a term has no method {name}: write {METHODS[name]}"
    methods = sorted(each for each in known if not each.startswith("_") and each != "node")
    return f"a term has no method {name}; {did_you_mean(name, methods)}it has {', '.join(methods)}"
