"""Names of attributes, types and subscriptions as identifiers of C."""

import re
from collections.abc import Iterable

_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while and
and_eq asm bitand bitor bool catch class compl const_cast delete dynamic_cast explicit export false friend
mutable namespace new not not_eq operator or or_eq private protected public reinterpret_cast static_cast
template this throw true try typeid typename using virtual wchar_t xor xor_eq alignas alignof char16_t char32_t
constexpr decltype noexcept nullptr static_assert thread_local char8_t co_await co_return co_yield concept
consteval constinit requires typeof typeof_unqual errno stdin stdout stderr assert offsetof linux unix i386 near
far main type present int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t genus_text
"""
KEYWORDS = frozenset(_WORDS.split())
"""Words that C or C++ keep for themselves, common macros, types of events, and the members that every event has."""


def c_name(text: str) -> str:
    """A name as an identifier of C that is neither a word of it nor, as names in capitals may be, a macro of a header.

    >>> c_name("speed"), c_name("Lärm"), c_name("class"), c_name("2nd"), c_name("PORTB")
    ('speed', 'L_u00e4rm', 'class_', '_2nd', 'PORTB_')
    """
    plain = identifier(text)
    return f"{plain}_" if plain in KEYWORDS or plain.isupper() else plain


def identifier(text: str) -> str:
    """A name in letters and digits of ASCII, for the part of an identifier: all else becomes its code point.

    >>> identifier("traffic.Loop"), identifier("Lärm"), identifier("class"), identifier("2nd")
    ('traffic_Loop', 'L_u00e4rm', 'class', '_2nd')
    """
    plain = "".join(_letter(letter) for letter in text)
    return f"_{plain}" if not plain or plain[0].isdigit() else plain


def _letter(letter: str) -> str:
    if letter.isascii() and (letter.isalnum() or letter == "_"):
        return letter
    return "_" if letter in ".-/ " else f"_u{ord(letter):04x}"


def snake_case(text: str) -> str:
    """The name of a type in lower case, with an underscore between words.

    >>> snake_case("ConfidentLoop"), snake_case("CANFrame"), snake_case("traffic.Loop2")
    ('confident_loop', 'can_frame', 'traffic_loop2')
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier(text))
    return parted.lower()


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names, with a number after those that occurred before or are taken.

    >>> distinct(["a", "b", "a", "a_2", "c"], taken=["c"])
    ['a', 'b', 'a_2', 'a_2_2', 'c_2']
    """
    used, found = set(taken), []
    for name in names:
        chosen, number = name, 1
        while chosen in used:
            number += 1
            chosen = f"{name}_{number}"
        used.add(chosen)
        found.append(chosen)
    return found
