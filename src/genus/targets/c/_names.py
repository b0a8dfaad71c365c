"""Names of attributes, types and subscriptions as identifiers of C."""

import re
from collections.abc import Iterable

_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while and
and_eq asm bitand bitor bool catch class compl const_cast delete dynamic_cast explicit export false friend
mutable namespace new not not_eq operator or or_eq private protected public reinterpret_cast static_cast
template this throw true try typeid typename using virtual wchar_t xor xor_eq alignas alignof char16_t char32_t
constexpr decltype noexcept nullptr static_assert thread_local errno stdin stdout stderr assert offsetof linux
unix main type present
"""
KEYWORDS = frozenset(_WORDS.split())
"""Words that C or C++ keep for themselves, common macros, and the members that every event has."""


def c_name(text: str) -> str:
    """A name as an identifier of C: letters and digits of ASCII stay, all else becomes its code point.

    >>> c_name("speed"), c_name("traffic.Loop"), c_name("Lärm"), c_name("class"), c_name("2nd")
    ('speed', 'traffic_Loop', 'L_u00e4rm', 'class_', '_2nd')
    """
    plain = "".join(_letter(letter) for letter in text)
    plain = f"_{plain}" if not plain or plain[0].isdigit() else plain
    return f"{plain}_" if plain in KEYWORDS else plain


def _letter(letter: str) -> str:
    if letter.isascii() and (letter.isalnum() or letter == "_"):
        return letter
    return "_" if letter in ".-/ " else f"_u{ord(letter):04x}"


def snake_case(text: str) -> str:
    """The name of a type in lower case, with an underscore between words.

    >>> snake_case("ConfidentLoop"), snake_case("CANFrame"), snake_case("traffic.Loop2")
    ('confident_loop', 'can_frame', 'traffic_loop2')
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", c_name(text))
    return parted.lower()


def distinct(names: Iterable[str]) -> list[str]:
    """The names, with a number after those that occurred before.

    >>> distinct(["a", "b", "a", "a_2"])
    ['a', 'b', 'a_2', 'a_2_2']
    """
    found: list[str] = []
    for name in names:
        chosen, number = name, 1
        while chosen in found:
            number += 1
            chosen = f"{name}_{number}"
        found.append(chosen)
    return found
