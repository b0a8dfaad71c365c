"""How much flash a condition takes, about, on an 8-bit processor: before a compiler for it is there.

The figures were measured with avr-gcc 5.4 -Os; `tests/devices/test_estimate.py` compares estimates with its results.
"""

import re

from genus.targets.c._condition import Condition

_TESTS = (
    (r"genus_is_number64", 40),
    (r"genus_is_number32", 30),
    (r"genus_key64", 34),
    (r"genus_key32", 24),
    (r"genus_(equals|compare|compare_values|starts_with|ends_with|contains|is_like)\(", 20),
    (r"genus_(add|subtract|multiply|floor_divide|absolute_checked|remainder|floor_quotient)\w*\(", 70),
    (r"\(int64_t\)", 20),
    (r"INT64_\w+", 28),
    (r"\d+U?L\b", 14),
    (r"e->\w+ [<>=!]", 6),
)
"""Bytes for each place where a pattern is found in the code of a test."""
_TEST, _PRESENCE = 6, 6


def flash_of(condition: Condition) -> int:
    """Return the bytes of a condition, without the functions of the runtime that it calls."""
    code = " && ".join(condition.tests)
    size = sum(cost * len(re.findall(pattern, code)) for pattern, cost in _TESTS)
    presence = len({number // 8 for number in condition.presence})
    return size + _TEST * len(condition.tests) + _PRESENCE * (presence + code.count("e->present"))


RUNTIME: dict[str, tuple[int, tuple[str, ...]]] = {
    "genus_copy_number": (26, ()),
    "genus_skip_header": (26, ()),
    "genus_is_time": (158, ()),
    "genus_is_utf8": (158, ()),
    "genus_read_count": (68, ()),
    "genus_read_bytes": (92, ("genus_read_count",)),
    "genus_read_text": (48, ("genus_read_bytes", "genus_is_utf8")),
    "genus_read": (288, ("genus_read_text", "genus_copy_number", "genus_is_time")),
    "genus_decode": (546, ("genus_read", "genus_skip_header")),
    "genus_encode": (1206, ("genus_copy_number", "genus_is_time", "genus_is_utf8")),
    "genus_starts_with": (72, ()),
    "genus_equals": (74, ()),
    "genus_ends_with": (80, ()),
    "genus_contains": (168, ()),
    "genus_compare": (94, ()),
    "genus_compare_values": (108, ()),
    "genus_count_letters": (110, ()),
    "genus_is_like": (274, ()),
    "genus_absolute_checked": (122, ()),
    "genus_remainder32": (200, ()),
    "genus_floor_quotient32": (132, ("genus_remainder32",)),
    "genus_remainder64": (700, ()),
    "genus_floor_quotient64": (322, ("genus_remainder64",)),
    "genus_floor_divide64": (168, ("genus_floor_quotient64",)),
    "genus_add64": (308, ()),
    "genus_subtract64": (288, ()),
    "genus_multiply64": (1300, ()),
    "genus_widen_key": (400, ()),
    "genus_key_of_integer": (566, ()),
    "genus_code_below8": (276, ()),
    "genus_code_below16": (380, ()),
    "genus_code_below32": (474, ()),
    "genus_code_below64": (800, ()),
    "genus_code_size": (40, ()),
}
"""The bytes of each function of the runtime with the library functions it needs, and which others it calls."""


def runtime_flash(code: str) -> int:
    """Return the bytes of the functions of the runtime that some code needs.

    >>> runtime_flash("genus_read_text(at, end, &text)")
    366
    """
    waiting = set(re.findall(r"\bgenus_\w+", code)) & RUNTIME.keys()
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= set(RUNTIME[name][1]) - needed
    return sum(RUNTIME[name][0] for name in needed)
