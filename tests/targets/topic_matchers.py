"""Which keys match a pattern, written again from the specifications of the systems, to test dialects against."""

import re
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import pytest


class Matcher(Protocol):
    def __call__(self, pattern: str, key: str) -> bool: ...


@lru_cache(maxsize=100_000)
def key_expression(text: str) -> Any:
    """zenoh's own form of a key or pattern; only a canonical one is accepted."""
    return import_module("zenoh").KeyExpr(text)


def zenoh_matches(pattern: str, key: str) -> bool:
    """zenoh's own answer, which must be the same asked in two ways."""
    wide, narrow = key_expression(pattern), key_expression(key)
    included = bool(wide.includes(narrow))
    assert included is bool(wide.intersects(narrow))
    return included


@lru_cache(maxsize=100_000)
def _mqtt_expression(pattern: str) -> re.Pattern[str]:
    """MQTT 5, section 4.7: `+` is one level, which may be empty, and `/#` the level before it and all below."""
    whole = "/" + pattern  # so that every level has a separator before it
    parts = re.split(r"(/#$|/\+(?=/|$))", whole)
    forms = {"/#": "(?:/.*)?", "/+": "/[^/]*"}
    return re.compile("".join(forms.get(part, re.escape(part)) for part in parts), re.DOTALL)


def mqtt_matches(pattern: str, key: str) -> bool:
    if key.startswith("$") and pattern[:1] in ("+", "#"):  # 4.7.2
        return False
    return _mqtt_expression(pattern).fullmatch("/" + key) is not None


def nats_matches(pattern: str, key: str) -> bool:
    """As the NATS server's `matchLiteral` does: token by token; `>` takes at least one token."""
    wanted, given = pattern.split("."), key.split(".")
    for number, token in enumerate(wanted):
        if number >= len(given):
            return False
        if token == ">":
            return True
        if token not in ("*", given[number]):
            return False
    return len(wanted) == len(given)


needs_zenoh = pytest.mark.skipif(find_spec("zenoh") is None, reason="zenoh is not installed (genus[zenoh])")

MATCHERS: dict[str, Matcher] = {"zenoh": zenoh_matches, "mqtt": mqtt_matches, "nats": nats_matches}
EACH = [pytest.param("zenoh", marks=needs_zenoh), "mqtt", "nats"]
