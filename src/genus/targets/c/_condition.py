"""Conditions in C: attributes that must be present or absent, and tests in their order."""

from collections.abc import Iterable, Mapping

import msgspec


class Condition(msgspec.Struct, frozen=True):
    """Tests that must all be true: presence of attributes by their numbers, then code, from left to right.

    A test may set a variable that a later one uses, as `&&` has an order.
    """

    presence: Mapping[int, bool] = {}
    tests: tuple[str, ...] = ()
    never: bool = False

    @property
    def always(self) -> bool:
        """Whether nothing is tested."""
        return not (self.presence or self.tests or self.never)

    def code(self) -> str:
        """Return the condition as one expression of C."""
        if self.never:
            return "false"
        return " && ".join([*_presence_code(self.presence), *self.tests]) or "true"


ALWAYS = Condition()
NEVER = Condition(never=True)


def present(number: int, wanted: bool = True) -> Condition:
    """Return the condition that an event has an attribute, or lacks it."""
    return Condition({number: wanted})


def test(*code: str) -> Condition:
    """Return the condition that tests in C are true."""
    return Condition(tests=code)


def all_of_these(conditions: Iterable[Condition]) -> Condition:
    """One condition from several that must all be true."""
    presence: dict[int, bool] = {}
    tests: dict[str, None] = {}
    for condition in conditions:
        clash = any(presence.get(number, wanted) is not wanted for number, wanted in condition.presence.items())
        if condition.never or clash:
            return NEVER
        presence |= condition.presence
        tests |= dict.fromkeys(condition.tests)
    return Condition(presence, tuple(tests))


def any_of_these(conditions: Iterable[Condition]) -> Condition:
    """One condition from several of which one must be true."""
    kept = {condition.code(): condition for condition in conditions if not condition.never}
    if any(condition.always for condition in kept.values()):
        return ALWAYS
    if len(kept) < 2:
        return next(iter(kept.values()), NEVER)
    return test(f"({' || '.join(f'({code})' for code in kept)})")


def opposite(condition: Condition) -> Condition:
    """Return the condition that is true where another is not."""
    return ALWAYS if condition.never else NEVER if condition.always else test(f"!({condition.code()})")


def _presence_code(presence: Mapping[int, bool]) -> list[str]:
    """One test for each byte of presence bits."""
    bytes_: dict[int, tuple[int, int]] = {}
    for number, wanted in presence.items():
        mask, value = bytes_.get(number // 8, (0, 0))
        bit = 1 << number % 8
        bytes_[number // 8] = (mask | bit, value | bit * wanted)
    return [_byte_code(byte, mask, value) for byte, (mask, value) in sorted(bytes_.items())]


def _byte_code(byte: int, mask: int, value: int) -> str:
    bits = f"(e->present[{byte}] & 0x{mask:02X}U)"
    return f"({bits} != 0U)" if mask == value and mask & (mask - 1) == 0 else f"({bits} == 0x{value:02X}U)"
