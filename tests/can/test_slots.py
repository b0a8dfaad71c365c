"""The calendar dispatcher: slots begin and end by the bus's clock, and stand still when it is not good enough."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._node.slots import OwnTime, SlotDispatcher, SlotReceiver, SlotSender, occurrence_at
from genus.can._plan.calendar import Slot
from genus.can._wire.frame import Frame


def hard_slot(event: str, offset_ns: int) -> Slot:
    return Slot(
        channel=event, event=event, node="one", number=1, etag=300, offset_ns=offset_ns, period_ns=10_000_000,
        length_ns=562_000, wait_ns=191_000, gap_ns=20_000, frames=1, omissions=1, used_ns=160_000,
    )  # fmt: skip


SLOT = hard_slot("Beat", 1_000_000)
SETTLED = 1_562_000 + SLOT.length_ns
"""When nothing of a slot can be on the wire any more."""


class SetTime(OwnTime):
    def __init__(self) -> None:
        self.bound = 0

    def precision(self, now: int) -> int:
        return self.bound


class Stage:
    def __init__(self) -> None:
        self.time = SetTime()
        self.stops: list[int] = []
        self.resumed: list[int] = []
        self.dispatcher = SlotDispatcher(
            self.time, lambda precision, _: self.stops.append(precision), self.resumed.append
        )
        self.mailbox: Frame | None = None
        self.sent: list[object] = []
        self.overdue: list[tuple[object, int | None]] = []
        self.failed: list[tuple[object, int]] = []
        self.delivered: list[object] = []
        self.missing: list[int] = []

    def sender(self, slot: Slot = SLOT, pieces: Sequence[bytes] = (b"x",)) -> SlotSender:
        sender = SlotSender(
            slot, self._load, lambda payload: pieces, self._report_sent,
            lambda event, attempts: self.failed.append((event, attempts)),
        )  # fmt: skip
        self.dispatcher.join(sender, 0)
        return sender

    def receiver(self, slot: Slot = SLOT) -> SlotReceiver:
        receiver = SlotReceiver(slot, self.delivered.append, self.missing.append)
        self.dispatcher.join(receiver, 0)
        return receiver

    def _load(self, frame: Frame | None) -> None:
        self.mailbox = frame

    def _report_sent(self, event: object, missed: int | None) -> None:
        self.sent.append(event)
        if missed is not None:
            self.overdue.append((event, missed))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@given(st.integers(-(10**12), 10**12))
def test_the_next_start_is_the_first_that_is_not_past(instant: int) -> None:
    start = SLOT.next_start(instant).start_ns
    assert start >= instant > start - SLOT.period_ns
    assert (start - SLOT.offset_ns) % SLOT.period_ns == 0


def test_a_fresh_event_is_sent_at_the_latest_ready_time(stage: Stage) -> None:
    sender = stage.sender()
    sender.write("beat", 300, b"x", 0)
    stage.dispatcher.wake(999_999)
    assert stage.mailbox is None
    stage.dispatcher.wake(1_000_000)
    assert stage.mailbox is not None
    assert stage.mailbox.priority == 0
    sender.sent(stage.mailbox, 1_200_000)
    assert stage.sent == ["beat"]


def test_a_slot_without_a_fresh_event_is_left_to_others(stage: Stage) -> None:
    stage.sender()
    stage.dispatcher.wake(1_000_000)
    stage.dispatcher.wake(1_562_000)
    assert (stage.mailbox, stage.failed) == (None, [])


def test_the_newest_event_replaces_one_that_was_not_sent_yet(stage: Stage) -> None:
    sender = stage.sender()
    assert [sender.write(event, 300, b"x", 0) for event in ("old", "new")] == [False, True]
    stage.dispatcher.wake(1_000_000)
    assert stage.mailbox is not None
    sender.sent(stage.mailbox, 1_200_000)
    assert (stage.sent, stage.failed) == (["new"], [])


def test_an_event_has_one_attempt_more_than_its_omissions(stage: Stage) -> None:
    sender = stage.sender()
    sender.write("beat", 300, b"x", 0)
    stage.dispatcher.wake(1_000_000)
    assert stage.mailbox is not None
    frame = stage.mailbox
    assert sender.failed(frame)
    assert stage.mailbox is frame
    assert sender.failed(frame)
    assert stage.failed == [("beat", 2)]
    assert stage.mailbox is not frame


def test_what_is_not_sent_at_the_deadline_is_taken_back(stage: Stage) -> None:
    sender = stage.sender()
    sender.write("beat", 300, b"x", 0)
    stage.dispatcher.wake(1_000_000)
    stage.dispatcher.wake(1_562_000)
    assert (stage.mailbox, stage.failed) == (None, [])
    stage.dispatcher.wake(SETTLED)
    assert stage.failed == [("beat", 0)]


@pytest.mark.parametrize("is_sent", [True, False])
def test_an_attempt_on_the_wire_at_the_deadline_is_reported_when_it_has_ended(stage: Stage, is_sent: bool) -> None:
    sender = stage.sender()
    sender.write("beat", 300, b"x", 0)
    stage.dispatcher.wake(1_000_000)
    frame = stage.mailbox
    assert frame is not None
    stage.dispatcher.wake(1_562_000)
    assert sender.sent(frame, 1_600_000) if is_sent else sender.failed(frame)
    stage.dispatcher.wake(SETTLED)
    assert stage.overdue == ([("beat", 1_562_000)] if is_sent else [])
    assert stage.failed == ([] if is_sent else [("beat", 1)])


def test_events_for_which_no_slot_came_have_failed(stage: Stage) -> None:
    sender = stage.sender()
    stage.time.bound = 10_001
    stage.dispatcher.watch(0)
    replaced = [sender.write(number, 300, b"x", number * 9_990_000) for number in range(3)]
    assert (replaced, stage.failed) == ([False] * 3, [(0, 0), (1, 0)])


def test_an_event_in_two_frames_has_its_attempts_for_each(stage: Stage) -> None:
    sender = stage.sender(pieces=(b"one", b"two"))
    sender.write("beat", 300, b"x", 0)
    stage.dispatcher.wake(1_000_000)
    for data in (b"one", b"two"):
        assert stage.mailbox is not None
        assert stage.mailbox.data == data
        sender.failed(stage.mailbox)
        assert stage.mailbox is not None
        sender.sent(stage.mailbox, 1_200_000)
    assert (stage.sent, stage.failed) == (["beat"], [])


def test_an_event_is_handed_over_exactly_at_the_deadline(stage: Stage) -> None:
    receiver = stage.receiver()
    stage.dispatcher.wake(1_000_000)
    receiver.put("beat", 1_000_000)
    stage.dispatcher.wake(1_561_999)
    assert stage.delivered == []
    assert stage.dispatcher.wake_at == 1_562_000
    stage.dispatcher.wake(1_562_000)
    assert stage.delivered == ["beat"]


def test_an_event_that_comes_while_its_node_still_wakes_up_is_kept(stage: Stage) -> None:
    receiver = stage.receiver()
    receiver.put("beat", 1_000_000)
    stage.dispatcher.wake(1_000_000)
    stage.dispatcher.wake(1_562_000)
    assert stage.delivered == ["beat"]


def test_an_event_that_comes_after_its_deadline_is_not_taken_for_the_next(stage: Stage) -> None:
    receiver = stage.receiver()
    stage.dispatcher.wake(1_000_000)
    stage.dispatcher.wake(1_562_000)
    receiver.put("beat", 1_000_000)
    stage.dispatcher.wake(11_000_000)
    stage.dispatcher.wake(11_562_000)
    assert (stage.delivered, stage.missing) == ([], [1_562_000, 11_562_000])


@pytest.mark.parametrize(
    ("instant", "coming"),
    [(990_000, 1_000_000), (989_999, None), (1_562_000, 1_000_000), (1_562_001, None), (11_300_000, 11_000_000)],
)
def test_an_instant_belongs_to_the_coming_it_lies_in(instant: int, coming: int | None) -> None:
    assert occurrence_at(SLOT, instant) == coming


def test_every_period_without_an_event_is_an_alarm(stage: Stage) -> None:
    stage.receiver()
    for now in range(0, 30_000_000, 1_000):
        stage.dispatcher.wake(now)
    assert stage.missing == [1_562_000, 11_562_000, 21_562_000]


def test_a_second_frame_in_a_slot_is_a_repetition(stage: Stage) -> None:
    receiver = stage.receiver()
    stage.dispatcher.wake(1_000_000)
    assert receiver.put("beat", 1_000_000)
    assert not receiver.put("beat", 1_000_000)


def test_a_slot_that_ends_when_another_begins_ends_first(stage: Stage) -> None:
    first = stage.sender()
    following = hard_slot("Other", 1_562_000)
    second = stage.sender(following)
    first.write("a", 300, b"x", 0)
    second.write("b", 300, b"x", 0)
    stage.dispatcher.wake(1_000_000)
    stage.dispatcher.wake(1_562_000)
    last = stage.mailbox
    assert last is not None
    stage.dispatcher.wake(SETTLED - 1)
    assert (stage.failed, stage.mailbox) == ([], last)
    stage.dispatcher.wake(SETTLED)
    assert stage.failed == [("a", 0)]


def test_slots_stand_still_while_the_clock_is_worse_than_half_the_gap(stage: Stage) -> None:
    sender = stage.sender()
    sender.write("beat", 300, b"x", 0)
    stage.time.bound = 10_001
    stage.dispatcher.wake(1_000_000)
    assert (stage.mailbox, stage.stops, stage.dispatcher.wake_at) == (None, [10_001], None)
    stage.dispatcher.watch(2_000_000)
    assert stage.stops == [10_001]
    stage.time.bound = 10_000
    stage.dispatcher.watch(3_000_000)
    assert (stage.resumed, stage.failed) == ([10_000], [("beat", 0)])
    sender.write("next", 300, b"x", 5_000_000)
    stage.dispatcher.wake(11_000_000)
    assert stage.mailbox is not None


def test_a_frame_is_taken_back_when_the_clock_fails_in_mid_slot(stage: Stage) -> None:
    sender = stage.sender()
    sender.write("beat", 300, b"x", 0)
    stage.dispatcher.wake(1_000_000)
    stage.time.bound = 10_001
    stage.dispatcher.watch(1_100_000)
    assert (stage.mailbox, stage.failed) == (None, [])
    stage.dispatcher.wake(SETTLED)
    assert stage.failed == [("beat", 0)]


def test_a_node_that_wakes_up_too_late_leaves_its_slot_unused(stage: Stage) -> None:
    sender = stage.sender()
    sender.write("beat", 300, b"x", 0)
    stage.dispatcher.wake(1_191_001)
    assert stage.failed == [("beat", 0)]
    assert stage.mailbox is None


def test_an_event_that_waited_longer_than_a_period_is_not_fresh(stage: Stage) -> None:
    stage.time.bound = 10_001
    sender = stage.sender()
    stage.dispatcher.watch(0)
    sender.write("old", 300, b"x", 0)
    stage.time.bound = 0
    stage.dispatcher.watch(20_000_000)
    stage.dispatcher.wake(21_000_000)
    assert stage.failed == [("old", 0)]


def test_a_long_sleep_is_not_made_up_for_slot_by_slot(stage: Stage) -> None:
    stage.receiver()
    stage.dispatcher.wake(600_000_000_000)
    assert len(stage.missing) <= 3
    assert stage.dispatcher.wake_at is not None
    assert stage.dispatcher.wake_at > 600_000_000_000


def test_who_left_is_not_woken_again(stage: Stage) -> None:
    receiver = stage.receiver()
    stage.dispatcher.leave(receiver)
    assert stage.dispatcher.wake_at is None
