"""Frames between classes of different age: a renamed attribute is read by its bit, whatever its name is."""

from itertools import product
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Maybe, Renamed, Subscription, UInt8, UInt16
from genus.can._wire.payload import PayloadCodec
from genus.targets import can

from ..examples import examples


def old_types() -> Any:
    class Loop(Event, tagged=("speed",)):
        __qualname__ = "Loop"  # the same class at another time
        lane: UInt8
        speed: Maybe[UInt8] = None
        axles: Maybe[UInt16] = None
        length: UInt8

    return Loop


def new_types() -> Any:
    class Loop(Event, tagged=("velocity",)):
        __qualname__ = "Loop"
        track: Annotated[UInt8, Renamed("lane")]
        velocity: Maybe[Annotated[UInt8, Renamed("v", "speed")]] = None
        wheels: Maybe[Annotated[UInt16, Renamed("axles")]] = None
        length: UInt8

    return Loop


OLD, NEW = old_types(), new_types()
NAMES = {OLD: ("lane", "speed", "axles", "length"), NEW: ("track", "velocity", "wheels", "length")}


def catalogs() -> dict[str, Catalog]:
    before, after = Catalog(), Catalog()
    before.register(OLD)
    after.register(OLD)
    after = Catalog.parse(after.text())
    after.register(NEW)
    return {"before": Catalog.parse(before.text()), "after": Catalog.parse(after.text())}


CATALOGS = catalogs()
BYTE, WORD = st.integers(0, 255), st.integers(0, 65535)


def codec(cls: Any, catalog: Catalog) -> PayloadCodec:
    return PayloadCodec.of(cls, catalog.vector(cls), catalog.tagged_attributes(cls))


@given(BYTE, st.none() | BYTE, st.none() | WORD, BYTE, st.sampled_from(["place", None]))
@examples(60)
def test_every_pair_of_nodes_understands_each_other(
    lane: int, speed: int | None, axles: int | None, length: int, place: str | None
) -> None:
    """A sender and a receiver, each with the old or the new class and the catalog before or after the rename."""
    values = (lane, speed, axles, length)
    events = {cls: cls(place=place, **dict(zip(NAMES[cls], values, strict=True))) for cls in (OLD, NEW)}
    sides = list(product((OLD, NEW), CATALOGS))
    for (sender, theirs), (receiver, ours) in product(sides, sides):
        bits, payload = codec(sender, CATALOGS[theirs]).encode(events[sender], 3)
        assert CATALOGS[theirs].etag_of(events[sender]) == CATALOGS[ours].etag_of(events[receiver])
        assert codec(receiver, CATALOGS[ours]).decode(bits, payload) == events[receiver]


@pytest.mark.parametrize("when", CATALOGS)
def test_acceptance_filters_are_the_same_under_either_name(when: str) -> None:
    """Also the tagged attribute, whose presence is a bit of the event tag."""
    pairs = [
        can.compile(Subscription(cls, has=NAMES[cls][1]), catalog).pairs
        for cls, catalog in product((OLD, NEW), CATALOGS.values())
    ]
    assert all(each == pairs[0] for each in pairs)
    made = can.compile(Subscription(NEW, has="velocity"), CATALOGS[when])
    assert made.residual is None
    assert [made.accepts(CATALOGS[when].etag_of(OLD(lane=1, length=2, speed=v))) for v in (None, 3)] == [False, True]
