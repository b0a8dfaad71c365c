"""JSON that others send: decoded within limits of size and depth, and refused if a field occurs twice; never raises."""

import json
import logging
import re
import threading
from collections.abc import Mapping
from itertools import accumulate
from operator import itemgetter
from typing import Any, ClassVar

import msgspec

from genus.errors import Reasons

_LOG = logging.getLogger("genus.records")
SHOWN = 200
"""The most characters of an example."""


class Rejected(msgspec.Struct, frozen=True):
    """Why a message or a record is not an event.

    `reason` is one of few, so that equal ones can be counted; `detail` also says which value or name is at fault.
    """

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or self.reason


class Example(msgspec.Struct, frozen=True):
    """The last message that was rejected for a reason, both texts cut to 200 characters."""

    topic: str
    payload: str
    detail: str = ""


class Rejections:
    """State: how many messages were rejected for each reason, and the last example of each. Any thread may add."""

    def __init__(self) -> None:
        self._counts = Reasons()
        self._examples: dict[str, Example] = {}
        self._lock = threading.Lock()

    @property
    def counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)

    @property
    def examples(self) -> Mapping[str, Example]:
        with self._lock:
            return dict(self._examples)

    def add(self, reason: str, topic: str = "", payload: bytes = b"", detail: str = "", count: int = 1) -> None:
        """Count messages that were rejected, and keep the last as the example."""
        example = Example(_cut(topic), _cut(payload[: 4 * SHOWN].decode("utf-8", "backslashreplace")), _cut(detail))
        with self._lock:
            reason = self._counts.counted_as(reason)
            self._counts[reason] += count
            self._examples[reason] = example


class FieldCounts(Reasons):
    """How many values no attribute takes, by names such as `Climate.linkquality`."""

    OTHER: ClassVar = "other fields"


class UnreadFields:
    """State: how many values no attribute takes, by type and field. Each field is logged once. Any thread may add."""

    def __init__(self) -> None:
        self._counts = FieldCounts()
        self._lock = threading.Lock()

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers, by type and field."""
        with self._lock:
            return dict(self._counts)

    def add(self, name: str) -> None:
        """Count a value that is not read."""
        with self._lock:
            name = self._counts.counted_as(name)
            is_new = self._counts.add(name)
        if is_new:
            _LOG.warning("not read: %s; map it, list it in ignore, or write unknown = 'reject'", name)


def _cut(text: str) -> str:
    return text[:SHOWN].encode("utf-8", "backslashreplace").decode()[:SHOWN]


MAX_SIZE = 1024 * 1024
"""The most bytes of a message, unless said otherwise."""
DEEPEST = 32
"""The most objects and lists that may be inside one another."""

_NAME = re.compile(rb'"[ \t\r\n]*:')
_STRING = re.compile(rb'"[^"\\]*+(?>(?:\\.[^"\\]*+)*)(?:"|\\?\Z)', re.DOTALL)
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
