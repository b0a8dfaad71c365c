"""JSON that others send: decoded within limits of size and depth, and refused if a field occurs twice; never raises."""

import json
import re
from itertools import accumulate
from operator import itemgetter
from typing import Any

import msgspec

from genus.records._rejected import Rejected

MAX_SIZE = 1024 * 1024
"""The most bytes of a message, unless said otherwise."""
DEEPEST = 32
"""The most objects and lists that may be inside one another."""

_NAME = re.compile(rb'"[ \t\r\n]*:')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, also one without an end: a text of many quotes must not be searched again from each of them."""
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_STEPS = {ord(sign): step for sign, step in zip("[{]}", (1, 1, -1, -1), strict=True)}
_decode = msgspec.json.Decoder().decode


def decode_json(payload: bytes, largest: int | None = MAX_SIZE, *, last_counts: bool = False) -> Any:
    """Return the value of a JSON text; a `Rejected` if it is none, too large or too deep; None stands for no limits.

    It is also rejected if a field occurs twice, unless `last_counts`.

    >>> decode_json(b'{"a": 1, "a": 2}').detail
    "the field 'a' occurs twice"
    """
    if largest is not None and (problem := limit_problem(payload, largest)):
        return Rejected(problem)
    try:
        value = _decode(payload)
    except UnicodeError as problem:
        return Rejected("not UTF-8", f"not UTF-8: {problem}")
    except (msgspec.DecodeError, RecursionError) as problem:
        return Rejected("not JSON", f"not JSON: {problem}")
    if last_counts or count_names(payload) == count_fields(value) or not (reason := find_duplicate(payload)):
        return value
    return Rejected("a field occurs twice", reason)


def limit_problem(payload: bytes, largest: int = MAX_SIZE) -> str:
    """Why a text must not be decoded: it is too large or too deep; empty if it may be."""
    if len(payload) > largest:
        return f"more than {largest} bytes"
    if payload.count(b"{") + payload.count(b"[") <= DEEPEST:
        return ""
    return f"deeper than {DEEPEST}" if depth_of(payload) > DEEPEST else ""


def depth_of(payload: bytes) -> int:
    """Return how many objects and lists are inside one another, also in a text that is not JSON.

    >>> depth_of(b'{"a": [[1], "[[["]}')
    3
    """
    brackets = _STRING.sub(b"", payload).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


# -- fields that occur twice -------------------------------------------------------------------------------------------


def count_names(text: bytes) -> int:
    """Return the number of names of fields in a JSON text; more if strings have what looks like names."""
    return len(_NAME.findall(text))


def count_fields(value: Any) -> int:
    """Return the number of fields in an object and everything inside it."""
    size = 0
    waiting = [value]
    while waiting:
        inside = waiting.pop()
        if type(inside) is dict:
            size += len(inside)
            inside = inside.values()
        elif type(inside) is not list:
            continue
        waiting += [each for each in inside if type(each) is dict or type(each) is list]
    return size


def find_duplicate(text: bytes) -> str:
    """The reason if an object in a JSON text has a field twice, of which decoders keep the last; otherwise empty."""
    try:
        json.loads(text, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as problem:
        return str(problem)
    return ""


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = list(map(itemgetter(0), pairs))
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return made
