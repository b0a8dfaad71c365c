"""Slots and calendars: lengths, places, occurrences, files."""

import json
from itertools import pairwise
from math import lcm
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._plan.calendar import (
    MAX_OCCURRENCES,
    Calendar,
    Placement,
    Slot,
    _retry_failed_first,
    first_fit,
    most_errors,
    placements,
    suspensions,
)
from genus.can._plan.interference import HardInterference
from genus.can._plan.system import BusSpec, ChannelSpec, System
from genus.can._wire.frame import Timing
from genus.errors import PlanError

BUS = BusSpec(timing=Timing(1_000_000))
MS = 1_000_000


def hard(name: str, period_ns: int, omissions: int = 1, size: int = 8, bus: BusSpec = BUS) -> ChannelSpec:
    channel = ChannelSpec(
        name=name,
        event=name,
        node=name,
        number=1,
        etag=128,
        qos_class="hard",
        period_ns=period_ns,
        omissions=omissions,
        size=size,
    )
    return channel.on_bus(bus)


def system(*channels: ChannelSpec, bus: BusSpec = BUS) -> System:
    return System(bus, channels, {"n": 1})


def best(*channels: ChannelSpec) -> Placement:
    """The placement that leaves out the fewest slots."""
    return min(placements(system(*channels)), key=lambda placement: len(placement.left))


def build(*channels: ChannelSpec) -> Calendar:
    """A calendar with the slots of all channels."""
    placement = best(*channels)
    assert placement.left == ()
    return placement.calendar


def raw_slot(name: str, offset: int, period: int, length: int) -> Slot:
    return Slot(
        channel=name, event=name, node=name, number=1, etag=128, offset_ns=offset, period_ns=period,
        length_ns=length, wait_ns=0, gap_ns=0, frames=1, omissions=0, used_ns=1,
    )  # fmt: skip


def overlaps(slots: list[Slot]) -> bool:
    """By walking through the cycle, twice."""
    cycle = 2 * lcm(*(slot.period_ns for slot in slots))
    spans = sorted(
        (start, start + slot.length_ns) for slot in slots for start in range(slot.offset_ns, cycle, slot.period_ns)
    )
    return any(end > start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(("omissions", "length_us"), [(0, 371), (1, 562), (2, 753), (3, 944)])
def test_a_slot_has_room_for_waiting_all_attempts_and_the_gap(omissions: int, length_us: int) -> None:
    slot = Slot.of(hard("a", 10 * MS, omissions), BUS)
    assert slot.length_ns == length_us * 1_000
    assert slot.wait_ns == 191_000
    assert slot.wait_ns + slot.attempts_ns + slot.gap_ns == slot.length_ns


def test_each_frame_of_a_segmented_event_may_fail() -> None:
    slot = Slot.of(hard("a", 10 * MS, 1, size=12), BUS)
    assert slot.frames == 2
    assert slot.length_ns == (160 + 31 + 2 * (2 * 160 + 31) + 20) * 1_000


def failing_slot(omissions: int, frames: int) -> tuple[int, int]:
    """The error counter after all failures that a slot allows, and how often its sender is suspended, step by step.

    A sender below the warning limit; a frame of its own may fail as the slot starts. It is suspended after a frame of
    its own, failed or not, as an error passive station, but not after its last one.
    """
    counter = highest = 95 + 8
    suspended = 0
    for frame in range(frames):
        for _ in range(omissions):
            counter += 8
            suspended += counter > 127
        highest = max(highest, counter)
        suspended += counter > 127 and frame < frames - 1
        counter -= 1
    return highest, suspended


@pytest.mark.parametrize("frames", [1, 2, 3, 40])
@pytest.mark.parametrize("omissions", [0, 1, 3, 20])
def test_each_failure_adds_8_errors_and_each_frame_takes_one(omissions: int, frames: int) -> None:
    highest, suspended = failing_slot(omissions, frames)
    assert suspensions(omissions, frames, "stop") == suspended
    assert most_errors(omissions, frames) == highest or omissions == 0
    assert suspensions(omissions, frames, "plan") == (omissions + 1) * frames


def test_a_slot_has_time_for_those_who_send_while_its_sender_is_suspended() -> None:
    """From the start if the sender may be error passive then, else as soon as failures make it so."""
    frame, error, gap = 160_000, 31_000, 20_000
    stop, patient = (BusSpec(timing=Timing(1_000_000), error_passive=policy) for policy in ("stop", "plan"))
    for omissions, suspended in ((3, 0), (4, 1), (5, 2)):
        slot = Slot.of(hard("a", 10 * MS, omissions), stop)
        own = (omissions + 1) * frame + omissions * error
        assert (slot.wait_ns, slot.others_ns, slot.busy_ns) == (frame + error, suspended * (frame + error), own)
        assert slot.attempts_ns == own + slot.others_ns
        assert slot.deadline_ns == slot.length_ns == slot.wait_ns + slot.attempts_ns + gap
    slot = Slot.of(hard("a", 10 * MS, 1), patient, offset_ns=5)
    assert (slot.wait_ns, slot.others_ns, slot.busy_ns) == (2 * (frame + error), frame + error, 2 * frame + error)
    assert slot.deadline_ns == 5 + slot.length_ns


def test_the_last_frame_of_a_slot_can_start_until_it_would_end_in_the_gap() -> None:
    single, several = (Slot.of(hard("a", 10 * MS, 0, size), BUS) for size in (4, 12))
    assert single.closes_ns == single.length_ns - single.gap_ns - single.used_ns
    assert several.closes_ns == several.length_ns - several.gap_ns - several.wait_ns
    assert (single.used_ns, several.used_ns) == (120_000, sum(hard("a", 10 * MS, 0, 12).times))


@given(
    st.lists(
        st.tuples(st.integers(0, 29), st.sampled_from([6, 10, 12, 15, 20, 30]), st.integers(1, 5)),
        min_size=2,
        max_size=4,
    )
)
def test_slots_are_said_to_meet_exactly_when_they_do(parts: list[tuple[int, int, int]]) -> None:
    slots = [raw_slot(str(n), offset % period, period, length) for n, (offset, period, length) in enumerate(parts)]
    meets = any(one.overlaps(other) for place, one in enumerate(slots) for other in slots[:place])
    assert meets == overlaps(slots)


@given(
    st.lists(st.tuples(st.sampled_from([8, 12, 16, 24, 36, 48]), st.integers(1, 6)), max_size=6),
    st.tuples(st.sampled_from([8, 12, 16, 24, 36, 48]), st.integers(1, 6)),
    st.integers(0, 47),
)
def test_first_fit_finds_the_first_place_there_is(
    parts: list[tuple[int, int]], wanted: tuple[int, int], start: int
) -> None:
    placed: list[Slot] = []
    for number, (period, length) in enumerate(parts):
        offset = first_fit(raw_slot(str(number), 0, period, length), placed)
        if offset is not None:
            placed.append(raw_slot(str(number), offset, period, length))
    slot = raw_slot("new", 0, *wanted)
    possible = [
        offset
        for offset in range(start, start + slot.period_ns)
        if not any(msgspec.structs.replace(slot, offset_ns=offset % slot.period_ns).overlaps(other) for other in placed)
    ]
    expected = possible[0] % slot.period_ns if possible and slot.length_ns <= slot.period_ns else None
    assert first_fit(slot, placed, start) == expected


@given(st.lists(st.tuples(st.sampled_from([5, 10, 20, 40]), st.integers(0, 3), st.integers(0, 20)), max_size=10))
def test_slots_of_a_calendar_are_disjoint_over_the_cycle_and_across_its_end(parts: list[tuple[int, int, int]]) -> None:
    channels = [hard(str(n), period * MS, omissions, size) for n, (period, omissions, size) in enumerate(parts)]
    found = list(placements(system(*channels)))
    assert len({each.calendar for each in found}) == len(found), "no placement is tried twice"
    for placement in found:
        slots = list(placement.calendar.slots)
        assert len(slots) + len(placement.left) == len(channels)
        assert not slots or not overlaps(slots)


def test_a_full_cycle_of_harmonic_slots_is_found() -> None:
    slot_ns = Slot.of(hard("x", MS), BUS).length_ns
    channels = [hard("fast", 4 * slot_ns), *(hard(f"slow{n}", 12 * slot_ns) for n in range(9))]
    calendar = build(*channels)
    assert sum(slot.length_ns / slot.period_ns for slot in calendar.slots) == pytest.approx(1)


def test_a_long_slot_finds_room_that_short_ones_would_have_split() -> None:
    long = hard("long", 20 * MS, 0, size=290)
    short = [hard(f"short{n}", 10 * MS, 0) for n in range(4)]
    room = 10 * MS - Slot.of(long, BUS).length_ns - sum(Slot.of(each, BUS).length_ns for each in short)
    assert 0 < room < 2 * MS
    assert len(build(*short, long).slots) == 5


def test_a_slot_that_did_not_fit_is_placed_first_in_the_next_attempt() -> None:
    """Until all have a place; where one never fits, there are as many attempts as slots."""
    slots = [raw_slot("a", 0, 12, 2), raw_slot("b", 0, 12, 2), raw_slot("c", 0, 16, 1)]
    assert [each.left for each in _retry_failed_first(slots)] == [("c",), ()]
    assert [each.left for each in _retry_failed_first(slots[:2])] == [()]
    full = [raw_slot("a", 0, 4, 3), raw_slot("b", 0, 4, 3)]
    assert [each.left for each in _retry_failed_first(full)] == [("b",), ("a",)]


def test_slots_of_longer_periods_begin_between_those_of_shorter_ones() -> None:
    """Where soft events then wait least."""
    calendar = build(hard("a", 10 * MS), hard("b", 10 * MS), hard("c", 20 * MS), hard("d", 40 * MS))
    assert {slot.channel: slot.offset_ns for slot in calendar.slots} == {
        "a": 0, "b": 5 * MS, "c": 10 * MS + 562_000, "d": 20 * MS + 562_000,
    }  # fmt: skip


def test_slots_of_one_period_are_spread_evenly() -> None:
    calendar = build(*(hard(str(n), 10 * MS) for n in range(8)))
    assert [slot.offset_ns for slot in calendar.slots] == [n * 1_250_000 for n in range(8)]


def test_what_finds_no_room_is_named() -> None:
    assert best(hard("a", MS), hard("b", MS)).left == ("b",)


def test_a_slot_longer_than_its_period_finds_no_room() -> None:
    assert best(hard("a", 100_000)).left == ("a",)


def test_an_absurd_cycle_is_refused_with_periods_that_divide_each_other() -> None:
    with pytest.raises(PlanError, match=r"choose periods that divide each other, such as b 10ms \(now 10\.007ms\)"):
        build(hard("a", 10 * MS), hard("b", 10_007_000))
    assert len(build(hard("a", 10 * MS), hard("b", 10 * MS)).slots) == 2


def test_as_many_occurrences_as_a_node_can_hold_are_allowed() -> None:
    shortest = 2 * MS
    assert len(build(hard("a", shortest), hard("b", (MAX_OCCURRENCES - 1) * shortest)).slots) == 2
    with pytest.raises(PlanError, match=f"with {MAX_OCCURRENCES + 1} occurrences of slots") as refused:
        build(hard("a", shortest), hard("b", MAX_OCCURRENCES * shortest))
    assert "the calendar repeats only after 8.192 s" in str(refused.value)


@given(st.integers(0, 999), st.integers(1, 1_000), st.integers(-5_000, 5_000))
def test_occurrences_are_the_next_ones(offset: int, length: int, after: int) -> None:
    slot = raw_slot("a", offset, 1_000, length)
    start, deadline = slot.next_start(after)
    assert after <= start < after + 1_000
    assert (start - offset) % 1_000 == 0
    assert deadline == start + length
    due = slot.next_deadline(after)
    assert after <= due.deadline_ns < after + 1_000
    assert due.start_ns == due.deadline_ns - length


def test_a_channel_without_a_slot_is_named() -> None:
    with pytest.raises(PlanError, match="no slot for 'b'"):
        Calendar.of([raw_slot("a", 3, 10, 4)]).slot("b")


def test_a_calendar_read_from_its_text_is_the_same() -> None:
    calendar = build(*(hard(str(n), 10 * MS) for n in range(3)))
    assert Calendar.parse(calendar.text()) == calendar
    assert Calendar.parse(Calendar().text()) == Calendar()


def test_a_calendar_is_read_from_the_file_it_was_saved_to(tmp_path: Path) -> None:
    calendar = Calendar(build(hard("a", 10 * MS)).slots, 50 * MS)
    calendar.save(tmp_path / "calendar.json")
    assert Calendar.load(tmp_path / "calendar.json") == calendar
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(PlanError, match=r"other\.json: Object missing required field"):
        Calendar.load(tmp_path / "other.json")
    for access in (Calendar.load, calendar.save):
        with pytest.raises(PlanError, match=r"nowhere/calendar\.json: No such file"):
            access(tmp_path / "nowhere" / "calendar.json")


def test_an_empty_calendar_has_no_cycle() -> None:
    assert (Calendar().cycle_ns, Calendar().starts_in_cycle(), list(Calendar().lines())) == (0, [], [])


def test_occurrences_of_a_cycle_are_in_the_order_in_which_they_start() -> None:
    calendar = Calendar.of([raw_slot("a", 3, 10, 4), raw_slot("b", 0, 20, 2), raw_slot("c", 18, 20, 2)])
    assert calendar.cycle_ns == 20
    assert [(start, slot.channel) for start, slot in calendar.starts_in_cycle()] == [
        (0, "b"), (3, "a"), (13, "a"), (18, "c"),
    ]  # fmt: skip
    assert calendar.slot("c").offset_ns == 18


def test_a_line_shows_the_parts_of_a_slot_and_always_one_in_which_it_sends() -> None:
    parts = {"wait_ns": 20, "gap_ns": 10, "used_ns": 30}
    long, short = (msgspec.structs.replace(raw_slot("a", 10, 100, length), **parts) for length in (60, 31))
    twice = raw_slot("b", 90, 200, 10)
    assert [line for _, line in Calendar((long,)).lines(10)] == ["·░░███▏···"]
    assert [line for _, line in Calendar((short,)).lines(10)] == ["·░░█······"]
    assert [line for _, line in Calendar((long, twice)).lines(20)] == ["·░░███▏····░░███▏···", "·········█▏·········"]
    assert Calendar().legend == "░ may wait, █ sends and repeats, ▏ deadline"


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"length_ns": 100}, ""),
        ({"length_ns": 101}, "period_ns 100"),
        ({"offset_ns": 99}, ""),
        ({"offset_ns": 100}, "offset_ns 100"),
        ({"wait_ns": 30, "gap_ns": 19}, ""),
        ({"wait_ns": 30, "gap_ns": 20}, "wait_ns 30"),
        ({"wait_ns": -1}, "wait_ns -1"),
        ({"gap_ns": -1}, "wait_ns 0"),
        ({"used_ns": 50}, ""),
        ({"used_ns": 51}, "used_ns 51"),
        ({"others_ns": 49}, ""),
        ({"others_ns": 50}, "others_ns 50"),
        ({"others_ns": -1}, "others_ns -1"),
        ({"frames": 0}, "frames 0"),
        ({"omissions": 0}, ""),
        ({"omissions": -1}, "omissions -1"),
        ({"number": 1}, ""),
        ({"number": 126}, ""),
        ({"number": 0}, "number 0"),
        ({"etag": 0}, ""),
        ({"etag": 2**14 - 1}, ""),
        ({"etag": -1}, "etag -1"),
    ],
)
def test_each_part_of_a_slot_has_its_bounds(changes: dict[str, int], refused: str) -> None:
    slot = msgspec.structs.replace(raw_slot("a", 0, 100, 50), **changes)
    if not refused:
        assert Calendar.of([slot]).slots == (slot,)
        return
    with pytest.raises(PlanError, match=f"the slot of 'a' cannot have {refused}$"):
        Calendar.of([slot])


def spoiled(**changes: object) -> str:
    document = json.loads(build(hard("a", 10 * MS), hard("b", 10 * MS)).text())
    document["slots"][1] |= changes
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "calendar: "),
        ("[]", "calendar: Expected `object`"),
        ('{"format": "other", "slots": []}', "calendar: has the format 'other'"),
        (spoiled(offset_ns=0), "calendar: the slots of 'a' and 'b' overlap"),
        (spoiled(channel="a"), "calendar: a channel has two slots"),
        (spoiled(offset_ns=-1), "calendar: the slot of 'b' cannot have offset_ns -1"),
        (spoiled(period_ns=0), "calendar: the slot of 'b' cannot have period_ns 0"),
        (spoiled(length_ns=10**12), "calendar: the slot of 'b' cannot have period_ns"),
        (spoiled(wait_ns=10**12), "calendar: the slot of 'b' cannot have wait_ns"),
        (spoiled(used_ns=0), "calendar: the slot of 'b' cannot have used_ns 0"),
        (spoiled(number=127), "calendar: the slot of 'b' cannot have number 127"),
        (spoiled(etag=1 << 14), "calendar: the slot of 'b' cannot have etag 16384"),
        (spoiled(omissions="1"), "calendar: Expected `int`, got `str`"),
    ],
)
def test_a_text_that_is_no_calendar_is_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Calendar.parse(text)


@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(0, 350),
    st.integers(0, 3),
)
def test_hard_time_is_the_most_of_any_window(starts: list[tuple[int, int]], window: int, shift: int) -> None:
    every = [(start + 100 * cycle, cost) for cycle in range(6) for start, cost in starts]
    length = window + 2 * shift
    most = max(sum(cost for start, cost in every if begin <= start <= begin + length) for begin in range(100))
    assert HardInterference(starts, 100, shift).within(window) == most
