"""How a device holds the events of a family: which attributes it keeps, and the names of all things in C.

A name in C depends on nothing but what it names: two that become equal are refused, never told apart by a number.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Self

import msgspec

from genus.catalog import Catalog
from genus.errors import DeviceError, SubscriptionError
from genus.filters import Subscription
from genus.filters.types import AttributeRef
from genus.model.internal import hidden_names
from genus.model.types import OpaqueType, Vector
from genus.targets.c._compiler import Member

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
    """Return a name in letters and digits of ASCII, for the part of an identifier: all else becomes its code point.

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
    """Return the name of a type in lower case, with an underscore between words.

    >>> snake_case("ConfidentLoop"), snake_case("CANFrame"), snake_case("traffic.Loop2")
    ('confident_loop', 'can_frame', 'traffic_loop2')
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", identifier(text))
    return parted.lower()


def constant_name(value: str | int) -> str:
    """Return the value of a choice, or the name of a member of an Enum, as the end of a constant: words in capitals.

    Signs become words, as does what is left of a value without letters; other marks only separate words.

    >>> [constant_name(value) for value in ("truck", "e-bike", "_auto", -3, "-3", "3", "> 5 %", "n/a (off)", "", "-")]
    ['TRUCK', 'E_BIKE', 'AUTO', 'MINUS_3', 'MINUS_3', '3', 'GREATER_THAN_5_PERCENT', 'N_A_OFF', 'EMPTY', 'HYPHEN_MINUS']
    """
    text = re.sub(r"(?<![^\W_])-(?=\d)", " MINUS ", str(value))
    spelled = _words("".join(_spell(letter) for letter in text))
    return spelled or _words(" ".join(_sign_name(letter) for letter in text)) or "EMPTY"


def _spell(letter: str) -> str:
    """A letter or digit of ASCII as it is, a sign by its name, another letter by its code point, a mark as a gap."""
    if letter.isascii() and letter.isalnum():
        return letter
    category = unicodedata.category(letter)
    if category[0] == "S" or letter in "%&*#@":
        return f" {_sign_name(letter)} "
    return " " if category[0] in "PZ" or letter.isspace() else f" U{ord(letter):04X}"


def _sign_name(letter: str) -> str:
    return unicodedata.name(letter, f"U{ord(letter):04X}").removesuffix(" SIGN")


def _words(text: str) -> str:
    return "_".join(re.findall("[A-Z0-9]+", text.upper()))


class Named(msgspec.Struct, frozen=True):
    """What has a name in C, and what its author can do if something else has that name, too."""

    name: str
    what: str
    remedy: str


def refuse_clashes(found: Iterable[Named]) -> None:
    """Raise DeviceError if two things have the same name.

    >>> refuse_clashes([Named("A_2", "the value 2", "rename it"), Named("A_2", "the attribute a_2", "leave it out")])
    Traceback (most recent call last):
    genus.errors.DeviceError: the value 2 and the attribute a_2 are both A_2 in C: rename it, or leave it out
    """
    known: dict[str, Named] = {}
    for each in found:
        other = known.setdefault(each.name, each)
        if other is not each:
            remedies = ", or ".join(dict.fromkeys((other.remedy, each.remedy)))
            raise DeviceError(f"{other.what} and {each.what} are both {each.name} in C: {remedies}")


class EventLayout(msgspec.Struct, frozen=True):
    """The attributes of a family that a device keeps, each with a presence bit; made by `EventLayout.of`."""

    vector: Vector
    members: Mapping[str, Member]
    """The kept attributes by their names in the catalog, in the order of the vector."""

    @classmethod
    def of(cls, vector: Vector, keep: Collection[str] | None = None) -> Self:
        """Return the layout of a family's events; `keep` are the attributes to keep, all without it."""
        kept = [each for each in vector if keep is None or each.name in keep]
        members = {each.name: Member(number, c_name(each.name), each.type) for number, each in enumerate(kept)}
        return cls(vector, members)

    @property
    def family(self) -> str:
        return self.vector.scope

    @property
    def presence_bytes(self) -> int:
        """The bytes of presence bits in an event."""
        return max(1, (len(self.members) + 7) // 8)

    @property
    def held(self) -> list[Member]:
        """The attributes whose values are kept; of an opaque one only the presence is."""
        return [member for member in self.members.values() if not isinstance(member.type, OpaqueType)]

    def members_for(self, subscription: Subscription) -> dict[str, Member]:
        """Return the kept attributes by the names that a subscription has for them.

        SubscriptionError if it tests an attribute that is not kept.
        """
        hidden = hidden_names(self.vector, subscription.vector)
        own = {asked.name: name for name, asked in self.vector.pair(subscription.vector).items() if name not in hidden}
        for name in sorted(tested_attributes(subscription) & own.keys()):
            if own[name] not in self.members:
                kept = ", ".join(self.members) or "none"
                raise SubscriptionError(
                    f"{subscription} tests {name}, which the device does not keep; keep it, too (kept: {kept})"
                )
        return {name: self.members[agreed] for name, agreed in own.items() if agreed in self.members}


def tested_attributes(subscription: Subscription) -> set[str]:
    walked = () if subscription.where is None else subscription.where.walk()
    return {*subscription.has, *subscription.lacks, *(node.name for node in walked if isinstance(node, AttributeRef))}


def layouts_of(catalog: Catalog) -> dict[str, EventLayout]:
    """Return the layouts of all families of a catalog that keep everything."""
    return {family: EventLayout.of(vector) for family, vector in catalog.families.items()}
