"""The truth as the lake could know it: an edge that was told too late is as good as not noticed."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

import msgspec

from genus.model._types import micros_of_time
from genus_traffic.accuracy import CLOSE_US
from genus_traffic.road.detections import Passage
from genus_traffic.segment.listeners import Arrival
from genus_traffic.types import Edge, Loop

TOO_LATE = "too late"
"""The trap of a passage with such an edge."""
Noticed: TypeAlias = Literal["upper_on_us", "upper_off_us", "lower_on_us", "lower_off_us"]


def told_in_time(passages: Iterable[Passage], arriving: Iterable[Arrival], lateness: timedelta) -> list[Passage]:
    """The passages without the edges whose events arrived longer than the lateness after they happened."""
    told = list(passages)
    for edge in _too_late(arriving, lateness // timedelta(microseconds=1)):
        number = _whose(edge, told)
        if number is not None:
            passage = told[number]
            told[number] = msgspec.structs.replace(
                passage, **{_noticed(edge): None}, traps=tuple(dict.fromkeys((*passage.traps, TOO_LATE)))
            )
    return told


def lanes_with_late_edges(arriving: Iterable[Arrival], lateness: timedelta) -> set[tuple[str, int]]:
    """The sites and lanes of edges that arrived too late: beside the road they were known in time."""
    late = _too_late(arriving, lateness // timedelta(microseconds=1))
    return {(edge.source or "", edge.lane) for edge in late}


def _too_late(arriving: Iterable[Arrival], lateness_us: int) -> Iterable[Edge]:
    for arrival in arriving:
        event = arrival.event
        if isinstance(event, Edge) and arrival.at_us - _at_us(event) > lateness_us:
            yield event


def _whose(edge: Edge, passages: Sequence[Passage]) -> int | None:
    """The passage that an edge is of: clocks of sensors differ from the truth by little."""
    noticed, at_us = _noticed(edge), _at_us(edge)
    for number, passage in enumerate(passages):
        true_us = getattr(passage, noticed)
        here = passage.site == edge.source and passage.lane == edge.lane
        if here and true_us is not None and abs(true_us - at_us) <= CLOSE_US:
            return number
    return None


def _noticed(edge: Edge) -> Noticed:
    if edge.place is not None:
        return "upper_on_us" if isinstance(edge, Loop) else "upper_off_us"
    return "lower_on_us" if isinstance(edge, Loop) else "lower_off_us"


def _at_us(edge: Edge) -> int:
    assert edge.time is not None, "a sensor says when it noticed an edge"
    return micros_of_time(edge.time)
