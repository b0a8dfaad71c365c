"""Taps: events are taken while somebody asks, what does not fit is counted, and nothing grows."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Maybe
from genus.studio._questions import Questions
from genus.studio._streams import BATCH, FIRST_BATCH, EventStream
from genus.studio._taps import KEPT, KEPT_BYTES, LINGER_S, RING, Seen, Taps
from tests.studio.made_sources import Clock, MadeSource


class Tapped(Event, name="studio.Tapped"):
    number: int


class Noted(Tapped, name="studio.Noted"):
    note: Maybe[str] = None


def numbers(events: list[Seen]) -> list[int]:
    return [seen.event.number for seen in events if isinstance(seen.event, Tapped)]


def test_nothing_is_taken_without_a_taker() -> None:
    source = MadeSource()
    taps = Taps([source])
    taps.turn(wants_last=False)
    assert source.receivers == []


def test_takers_get_the_events_of_each_turn_in_order() -> None:
    source = MadeSource()
    taps = Taps([source])
    got: list[Seen] = []
    end = taps.follow(["made"], lambda events, skipped: got.extend(events))
    for number in range(3):
        source.emit(Tapped(number=number), at_ms=float(number), publisher="gate")
    assert got == []
    taps.turn(wants_last=False)
    assert numbers(got) == [0, 1, 2]
    assert (got[0].source, got[0].publisher, got[0].at_ms) == ("made", "gate", 0.0)
    end()


def test_what_does_not_fit_the_ring_is_counted() -> None:
    source = MadeSource()
    taps = Taps([source])
    got: list[Seen] = []
    missed: list[int] = []

    def take(events: Sequence[Seen], skipped: int) -> None:
        got.extend(events)
        missed.append(skipped)

    taps.follow(["made"], take)
    for number in range(RING + 10):
        source.emit(Tapped(number=number))
    taps.turn(wants_last=False)
    source.emit(Tapped(number=-1))
    taps.turn(wants_last=False)
    assert missed == [10, 0]
    assert len(got) + sum(missed) == RING + 11
    assert len({seen.number for seen in got}) == len(got)


def test_what_is_kept_is_bounded() -> None:
    source = MadeSource()
    taps = Taps([source])
    taps.follow(["made"], lambda events, skipped: None)
    for _ in range(2 * KEPT // RING + 1):
        for number in range(RING):
            source.emit(Tapped(number=number))
        taps.turn(wants_last=False)
    assert len(taps.kept(["made"])) == KEPT


def test_large_events_are_kept_as_far_as_there_is_room() -> None:
    source = MadeSource()
    taps = Taps([source])
    taps.follow(["made"], lambda events, skipped: None)
    for number in range(100):
        source.emit(Noted(number=number, note="x" * (KEPT_BYTES // 10)))
        taps.turn(wants_last=False)
    assert numbers(taps.kept(["made"])) == list(range(91, 100))
    source.emit(Noted(number=100, note="x" * KEPT_BYTES))
    taps.turn(wants_last=False)
    source.emit(Noted(number=101))
    taps.turn(wants_last=False)
    assert numbers(taps.kept(["made"])) == [101]


def test_a_tap_closes_some_time_after_the_last_taker_has_left() -> None:
    source, clock = MadeSource(), Clock()
    taps = Taps([source], clock)
    end = taps.follow(["made"], lambda events, skipped: None)
    taps.turn(wants_last=False)
    end()
    taps.turn(wants_last=False)
    clock.now += LINGER_S
    taps.turn(wants_last=False)
    assert len(source.receivers) == 1
    clock.now += 0.1
    taps.turn(wants_last=False)
    assert source.receivers == []


def test_a_taker_that_comes_back_in_time_finds_the_tap_open() -> None:
    source, clock = MadeSource(), Clock()
    taps = Taps([source], clock)
    taps.follow(["made"], lambda events, skipped: None)()
    taps.turn(wants_last=False)
    clock.now += LINGER_S - 0.1
    taps.follow(["made"], lambda events, skipped: None)
    clock.now += 1
    taps.turn(wants_last=False)
    assert len(source.receivers) == 1


def test_what_was_kept_before_nobody_listened_is_forgotten() -> None:
    source, clock = MadeSource(), Clock()
    taps = Taps([source], clock)
    end = taps.follow(["made"], lambda events, skipped: None)
    source.emit(Tapped(number=1))
    taps.turn(wants_last=False)
    end()
    taps.turn(wants_last=False)
    clock.now += LINGER_S + 0.1
    taps.turn(wants_last=False)
    assert not taps.are_open(["made"])
    assert numbers(taps.kept(["made"])) == [1]
    taps.follow(["made"], lambda events, skipped: None)
    source.emit(Tapped(number=2))
    taps.turn(wants_last=False)
    assert numbers(taps.kept(["made"])) == [2]


def test_sources_without_events_have_no_tap() -> None:
    class Silent:
        name = "silent"

        def rows(self, wanted: object) -> dict[str, dict[str, object]]:
            return {}

        def types(self) -> list[type]:
            return []

        def counts(self) -> dict[str, int]:
            return {}

        def close(self) -> None: ...

    taps = Taps([Silent()])  # type: ignore[list-item]
    assert taps.names() == []
    taps.follow(["silent"], lambda events, skipped: None)()


STEPS = st.lists(
    st.tuples(st.sampled_from(["publish", "turn", "read"]), st.integers(0, 40), st.integers(0, 3)), max_size=30
)


@given(STEPS, st.booleans(), st.integers(1, 20))
def test_what_a_page_of_events_counts_adds_up(steps: list[tuple[str, int, int]], others: bool, ring: int) -> None:
    """However starved it is: what came matches, matches not or was not looked at; what matches is shown or is not."""
    source = MadeSource(types=[Tapped])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genus.studio._taps.RING", ring)
        taps = Taps([source])
    asked = Questions(lambda: {"made": [Tapped]}, Catalog).ask("studio.Tapped where number > 1")
    stream = EventStream(asked, others=others)
    taps.follow(["made"], stream.take)
    most = FIRST_BATCH
    published = taken = shown = shown_others = 0
    for what, events, number in [*steps, ("turn", 0, 0), ("read", 0, 0)]:
        if what == "publish":
            published += events
            for _ in range(events):
                source.emit(Tapped(number=number))
        elif what == "turn":
            taps.turn(wants_last=False)
            taken = published
        else:
            data = stream.data()
            shown += sum(event["why"] is None for event in data["events"])
            shown_others += sum(event["why"] is not None for event in data["events"])
            assert len(data["events"]) <= most
            most = BATCH
            assert data["seen"] == taken == data["matched"] + data["unmatched"] + data["unread"]
            assert (data["shown"], data["unshown"]) == (shown, data["matched"] - shown)
            assert min(data["unread"], data["unmatched"], data["unshown"]) >= 0
            assert shown_others <= (data["unmatched"] if others else 0)
