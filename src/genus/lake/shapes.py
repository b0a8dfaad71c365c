"""Shapes: the distinct (type, tag) pairs of a lake, few however many events there are.

A shape's number is a hash of its type's name and tag, so that tasks on many machines give the same number without
asking anybody. Matching asks a shape and never an event: its code is divided by the code of what is subscribed to, so
types that this process never heard of match as well.
"""

import hashlib
from collections.abc import Iterable

import msgspec


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A type and the attributes that events of it carried; `tag` is None where there are too many tags to list."""

    family: str
    type: str
    code: str
    """The type's prime product, in decimal digits."""
    tag: str | None
    """The presence bits over the family's vector, in hexadecimal digits."""

    @property
    def key(self) -> str:
        """What tells it from all others in a lake."""
        return f"{self.type}/{self.tag}"

    @property
    def number(self) -> int:
        """The 64-bit number that stands for it in tables."""
        return shape_number(self.type, int(self.tag or "0", 16))

    @property
    def bits(self) -> int:
        """The tag as a number."""
        return int(self.tag or "0", 16)


def shape_number(type: str, tag: int) -> int:
    """The number of a shape: 64 bits of a hash, the same everywhere and for ever.

    >>> shape_number("Loop", 36)
    4502347039163846936
    """
    digest = hashlib.blake2b(f"{type}/{tag:x}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def few_enough(known: Iterable[Shape], new: Iterable[Shape], most: int) -> tuple[Shape, ...]:
    """The new shapes that are to be listed: of a type that would have too many, one without a tag instead."""
    listed: dict[str, set[Shape]] = {}
    before = set(known)
    for shape in before:
        listed.setdefault(shape.type, set()).add(shape)
    kept: dict[Shape, None] = {}
    for shape in new:
        of_type = listed.setdefault(shape.type, set())
        of_type.add(shape)
        kept[shape if len(of_type) <= most else Shape(shape.family, shape.type, shape.code, None)] = None
    return tuple(shape for shape in kept if shape not in before)


def collisions(shapes: Iterable[Shape]) -> list[tuple[Shape, Shape]]:
    """Pairs of different shapes with one number; to be expected once in a million lakes of a million shapes."""
    known: dict[int, Shape] = {}
    pairs = ((known.setdefault(shape.number, shape), shape) for shape in shapes if shape.tag is not None)
    return [(first, second) for first, second in pairs if (first.type, first.tag) != (second.type, second.tag)]
