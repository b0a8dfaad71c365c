"""The bounds that classes declare for their attributes, as conditions in C: events that violate one are refused."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from genus.can.internal import is_implied
from genus.errors import DeviceError
from genus.model import Event, attributes, name_of
from genus.model.internal import int_range, metas
from genus.model.types import (
    Attribute,
    AttributeType,
    BytesType,
    ChoiceType,
    FloatType,
    IntType,
    OpaqueType,
    TextType,
    TimeType,
    Vector,
)
from genus.targets.internal import (
    ALWAYS,
    MAX_LENGTH,
    NEVER,
    Condition,
    Intervals,
    Key,
    Member,
    any_of_these,
    exact_intervals,
    float_intervals,
    key_within,
    merge,
    present,
    test,
    within,
)


def bounded_attributes(cls: type[Event], vector: Vector) -> set[str]:
    """Return the attributes, by their names in the vector, that a class bounds: they are kept to be checked."""
    notes = {field.name: field.type for field in msgspec.structs.fields(cls)}
    return {
        name
        for name, own in vector.pair(attributes(cls)).items()
        if any(is_bound(meta, vector.find(name).type) for meta in metas(notes[own.name]))
    }


def is_bound(meta: msgspec.Meta, type_: AttributeType) -> bool:
    """Whether a device must test a note of an annotation: not of what it does not read, nor what describes only."""
    if isinstance(type_, OpaqueType) or is_implied(meta, type_):
        return False
    stated = (meta.ge, meta.gt, meta.le, meta.lt, meta.multiple_of, meta.pattern, meta.min_length, meta.max_length)
    is_zone = meta.tz is not None and not (isinstance(type_, TimeType) and meta.tz)
    return is_zone or any(each is not None for each in stated)


def _has_fewer_choices(own: AttributeType, agreed: AttributeType) -> bool:
    return isinstance(own, ChoiceType) and isinstance(agreed, ChoiceType) and set(own.values) != set(agreed.values)


def checks_of(cls: type[Event], vector: Vector, members: Mapping[str, Member]) -> Iterator[Condition]:
    """What the bounds of a class demand of its events, a condition for each; DeviceError for one that has no test."""
    if "__post_init__" in {name for base in cls.__mro__ for name in vars(base)}:
        raise DeviceError(
            f"{name_of(cls)} has a __post_init__, which a device cannot run; generate from the catalog alone"
        )
    annotations: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(cls)}
    for name, own in vector.pair(attributes(cls)).items():
        if name not in members or isinstance(vector.find(name).type, OpaqueType):
            continue
        for condition in _attribute_checks(f"{name_of(cls)}.{name}", members[name], annotations[own.name]):
            found = _if_present(own, members[name], condition)
            if not found.always:
                yield found


class FewerChoices(msgspec.Struct, frozen=True):
    """A kept attribute of which a class has fewer choices than the catalog.

    A received value that the class does not have leaves the attribute absent, as a value does that is newer than the
    firmware; a device does not publish it.
    """

    member: Member
    is_own: Condition
    """That a value is one of the class."""
    is_valid: Condition
    """That an event may be published: as `is_own`, or the attribute is optional and absent."""


def fewer_choices(cls: type[Event], vector: Vector, members: Mapping[str, Member]) -> Iterator[FewerChoices]:
    """Yield the kept attributes of which a class has fewer choices than the catalog."""
    for name, own in vector.pair(attributes(cls)).items():
        member = members.get(name)
        if member is not None and _has_fewer_choices(own.type, member.type):
            is_own = _own_choice(own.type, member)
            yield FewerChoices(member, is_own, _if_present(own, member, is_own))


def _if_present(own: Attribute, member: Member, condition: Condition) -> Condition:
    """Return a condition on an attribute; an optional one may also be absent."""
    return any_of_these([*([present(member.number, False)] if own.optional else []), condition])


def _own_choice(own: AttributeType, member: Member) -> Condition:
    assert isinstance(own, ChoiceType)
    assert isinstance(member.type, ChoiceType)
    indexes = merge((member.type.values.index(value),) * 2 for value in own.values)
    code = within(f"e->{member.name}", "uint16_t", indexes, (0, len(member.type.values) - 1))
    return ALWAYS if code is None else test(code)


def _attribute_checks(label: str, member: Member, annotation: object) -> Iterator[Condition]:
    for meta in metas(annotation):
        if is_bound(meta, member.type):
            yield from _meta_checks(label, member, meta)


def _meta_checks(label: str, member: Member, meta: msgspec.Meta) -> Iterator[Condition]:
    stated = {
        op: limit
        for op, limit in ((">=", meta.ge), (">", meta.gt), ("<=", meta.le), ("<", meta.lt))
        if limit is not None
    }
    match member.type:
        case IntType(bits, signed):
            ctype, span = f"{'' if signed else 'u'}int{bits}_t", int_range(bits, signed)
            for op, limit in stated.items():
                yield _within_integer(member, ctype, exact_intervals(op, _integer_limit(op, limit), span), span)
            if meta.multiple_of is not None:
                yield test(f"((e->{member.name} % {int(meta.multiple_of)}) == 0)")
            return
        case FloatType(bits):
            for op, limit in stated.items():
                parts = float_intervals(op, float(limit), bits)
                key = Key(f"genus_key{bits}(e->{member.name})", bits)
                yield test(key_within(key, parts)) if parts else NEVER
        case TextType() | BytesType():
            counted = "genus_count_letters" if isinstance(member.type, TextType) else "genus_count_bytes"
            if meta.min_length:
                code = f"({counted}(&e->{member.name}) >= {meta.min_length}U)"
                yield test(code) if meta.min_length <= MAX_LENGTH else NEVER
            if meta.max_length is not None and meta.max_length < MAX_LENGTH:
                yield test(f"({counted}(&e->{member.name}) <= {meta.max_length}U)")
    _refuse_others(label, member, meta)


def _refuse_others(label: str, member: Member, meta: msgspec.Meta) -> None:
    if meta.pattern is not None:
        raise DeviceError(f"{label} must fit a regular expression, which a device cannot test; leave that to receivers")
    if meta.multiple_of is not None:
        raise DeviceError(f"{label} must be a multiple of {meta.multiple_of}, which needs floating point")
    if not isinstance(member.type, FloatType | TextType | BytesType):
        raise DeviceError(f"{label} has the bound {meta}, which a device cannot test")


def _within_integer(member: Member, ctype: str, parts: Intervals, span: tuple[int, int]) -> Condition:
    if not parts:
        return NEVER
    code = within(f"e->{member.name}", ctype, parts, span)
    return ALWAYS if code is None else test(code)


def _integer_limit(op: str, limit: float) -> int:
    return math.ceil(limit) if op in (">=", "<") else math.floor(limit)
