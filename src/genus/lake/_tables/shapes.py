"""Shapes: the distinct pairs of a type and the attributes that its events carry."""

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from genus.errors import LakeError

MAX_SHAPES = 50_000
"""A type with more shapes than this is listed once, without presence bits."""


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A type and the presence bits of some of its events; few shapes exist however many events there are.

    Subscriptions are matched against shapes. The code of a shape is divided by the code of the subscribed type, so
    types for which this process has no class match as well.
    """

    family: str
    type: str
    code: str
    """The type's prime product, in decimal digits."""
    tag: str | None
    """Presence bits over the family's vector, in hexadecimal digits; None if the type has too many shapes to list."""

    @property
    def id(self) -> int:
        """Unique number of the shape in a lake: that of the `_shape` column, another one if it has no bits."""
        return hash_of(f"{self.type}/{self.tag or ''}")

    @property
    def number(self) -> int:
        """The 64-bit number of the shape, as in the `_shape` column."""
        return shape_number(self.type, self.bits)

    @property
    def bits(self) -> int:
        return int(self.tag or "0", 16)


def shape_number(type: str, tag: int) -> int:
    """Return the number of a shape: 64 bits of a hash, so that all tasks compute the same number independently.

    >>> shape_number("Loop", 36)
    4502347039163846936
    """
    return hash_of(f"{type}/{tag:x}")


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def new_shapes(
    known: Mapping[int, Shape], counts: Mapping[str, int], found: Iterable[Shape], most: int = MAX_SHAPES
) -> tuple[Shape, ...]:
    """Return the shapes to add to the known ones, of which each type has `counts`.

    A type that would have more than `most` gets one shape without presence bits instead. LakeError if two shapes have
    the same number, which is expected once in a million lakes of a million shapes.
    """
    added: dict[int, Shape] = {}
    listed = dict(counts)
    for shape in found:
        each = shape
        if shape.id not in known and shape.id not in added:
            listed[shape.type] = listed.get(shape.type, 0) + 1
            if listed[shape.type] > most:
                each = Shape(shape.family, shape.type, shape.code, None)
        same = known.get(each.id) or added.setdefault(each.id, each)
        if (each.type, each.tag) != (same.type, same.tag):
            raise LakeError(f"two shapes have the same number, {each} and {same}; rename one of the types")
    return tuple(added.values())
