"""The truth without late edges: an edge that arrived too late counts as missed, as the lake ignores it too."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

import msgspec

from genus.model import micros_of_time
from genus_traffic.accuracy import CLOSE_US
from genus_traffic.road.detections import Passage
from genus_traffic.segment.listeners import Arrival
from genus_traffic.types import Edge, Loop

TOO_LATE = "too late"
"""The trap of a passage with such an edge."""
InstantField: TypeAlias = Literal["upper_on_us", "upper_off_us", "lower_on_us", "lower_off_us"]
"""The field of a passage that an edge sets."""


def without_late_edges(passages: Iterable[Passage], arriving: Iterable[Arrival], lateness: timedelta) -> list[Passage]:
    """The passages without the edges whose events arrived more than `lateness` after they happened."""
    truth = list(passages)
    for edge in _late_edges(arriving, lateness // timedelta(microseconds=1)):
        number = _find_passage(edge, truth)
        if number is not None:
            passage = truth[number]
            truth[number] = msgspec.structs.replace(
                passage, **{_instant_field(edge): None}, traps=tuple(dict.fromkeys((*passage.traps, TOO_LATE)))
            )
    return truth


def lanes_with_late_edges(arriving: Iterable[Arrival], lateness: timedelta) -> set[tuple[str, int]]:
    """The sites and lanes of late edges: roadside monitors received these in time, so their results may differ."""
    late = _late_edges(arriving, lateness // timedelta(microseconds=1))
    return {(edge.source or "", edge.lane) for edge in late}


def _late_edges(arriving: Iterable[Arrival], lateness_us: int) -> Iterable[Edge]:
    for arrival in arriving:
        event = arrival.event
        if isinstance(event, Edge) and arrival.at_us - _at_us(event) > lateness_us:
            yield event


def _find_passage(edge: Edge, passages: Sequence[Passage]) -> int | None:
    """The number of the passage with this edge; sensor clocks may be off by up to `CLOSE_US`."""
    field, at_us = _instant_field(edge), _at_us(edge)
    for number, passage in enumerate(passages):
        true_us = getattr(passage, field)
        same_lane = passage.site == edge.source and passage.lane == edge.lane
        if same_lane and true_us is not None and abs(true_us - at_us) <= CLOSE_US:
            return number
    return None


def _instant_field(edge: Edge) -> InstantField:
    if edge.place is not None:
        return "upper_on_us" if isinstance(edge, Loop) else "upper_off_us"
    return "lower_on_us" if isinstance(edge, Loop) else "lower_off_us"


def _at_us(edge: Edge) -> int:
    assert edge.time is not None, "sensors publish edges with a time"
    return micros_of_time(edge.time)
