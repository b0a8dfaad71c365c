"""The event-triggered queue of a node: earliest deadline first, promotion, expiry, one mailbox."""

from collections.abc import Sequence

import pytest

from genus.can._node.tx_queue import LEVELS, Outbox, Parcel, soft_priority
from genus.can._wire.frame import Frame, Priority

LEVEL = 160_000


class Lane:
    def __init__(self, *, pieces: int = 1) -> None:
        self.started: Parcel | None = None
        self.etag = 200
        self.number = 0
        self.pieces = pieces

    def render(self, payload: bytes) -> Sequence[bytes]:
        return [bytes((self.number,)) + payload for _ in range(self.pieces)]

    def commit(self) -> None:
        self.number += 1


class Desk:
    """An outbox, its mailbox, and what became of the events."""

    def __init__(self) -> None:
        self.mailbox: Frame | None = None
        self.loads = 0
        self.sent: list[str] = []
        self.missed: list[str] = []
        self.expired: list[str] = []
        self.box = Outbox(self._load, lambda size: 80_000 + 10_000 * size, LEVEL)
        self.box.number = 5

    def _load(self, frame: Frame | None) -> None:
        self.mailbox = frame
        self.loads += 1

    def soft(
        self, name: str, deadline: int, expires: int | None = None, lane: Lane | None = None, now: int = 0
    ) -> None:
        parcel = Parcel(lane or Lane(), 200, name.encode(), lambda at: self.sent.append(name), fd=False)
        parcel.deadline, parcel.expires = deadline, expires
        parcel.on_missed = lambda: self.missed.append(name)
        parcel.on_expired = lambda: self.expired.append(name)
        self.box.post_soft(parcel, now)

    def fixed(self, name: str, lane: Lane | None = None, etag: int = 200) -> None:
        lane = lane or Lane()
        lane.etag = etag & ~1
        parcel = Parcel(lane, etag, name.encode(), lambda at: self.sent.append(name), fd=False)
        self.box.post_fixed(parcel, 0)

    def go(self, now: int = 0) -> Frame:
        frame = self.mailbox
        assert frame is not None
        self.mailbox = None
        self.box.sent(frame, now)
        return frame


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_the_event_with_the_earliest_deadline_goes_first(desk: Desk) -> None:
    desk.soft("late", 9_000_000)
    desk.soft("early", 3_000_000)
    desk.soft("middle", 5_000_000)
    while desk.mailbox is not None:
        desk.go()
    assert desk.sent == ["early", "middle", "late"]


def test_soft_goes_before_everything_of_fixed_priority(desk: Desk) -> None:
    desk.fixed("maintenance")
    desk.box.post(Frame(Priority.SYSTEM << 21 | 8), 0)
    desk.soft("sample", 50_000_000)
    assert [desk.go().priority for _ in range(3)] == [250, Priority.SYSTEM, Priority.NONE]


def test_an_event_is_promoted_as_its_deadline_comes_nearer(desk: Desk) -> None:
    desk.soft("sample", 10_000_000)
    before = desk.mailbox
    desk.box.promote(9_000_000)
    assert before is not None
    assert desk.mailbox is not None
    assert before.priority > desk.mailbox.priority == soft_priority(1_000_000 - 80_000 - 70_000, LEVEL)


def test_a_mailbox_is_left_alone_while_the_priority_stays(desk: Desk) -> None:
    desk.soft("sample", 100_000_000)
    loads = desk.loads
    desk.box.promote(1000)
    assert desk.loads == loads


def test_priorities_stay_within_the_band() -> None:
    assert soft_priority(-(10**12), LEVEL) == Priority.SOFT_FIRST
    assert soft_priority(10**12, LEVEL) == Priority.SOFT_LAST == LEVELS


def test_a_frame_that_went_out_while_it_was_replaced_counts_as_sent(desk: Desk) -> None:
    desk.soft("sample", 10_000_000)
    on_the_wire = desk.mailbox
    assert on_the_wire is not None
    desk.soft("urgent", 1_000_000)
    desk.box.sent(on_the_wire, 100_000)
    assert desk.sent == ["sample"]
    assert desk.go().data == b"\0urgent"
    assert desk.mailbox is None


def test_a_promoted_copy_of_an_event_that_was_sent_is_taken_back(desk: Desk) -> None:
    desk.soft("sample", 10_000_000)
    on_the_wire = desk.mailbox
    assert on_the_wire is not None
    desk.soft("other", 30_000_000)
    desk.box.wake(9_000_000)
    desk.box.resume(9_000_000)
    assert desk.mailbox is not on_the_wire
    desk.box.sent(on_the_wire, 9_000_000)
    assert desk.sent == ["sample"]
    assert desk.mailbox is not None
    assert desk.mailbox.data == b"\0other"


def test_a_missed_deadline_is_told_once_and_the_event_still_sent(desk: Desk) -> None:
    desk.soft("sample", 1_000_000, 5_000_000)
    assert desk.box.wake_at == 1_000_000
    desk.box.wake(1_000_000)
    desk.box.wake(2_000_000)
    assert desk.missed == ["sample"]
    desk.go(3_000_000)
    assert (desk.sent, desk.expired) == (["sample"], [])
    assert desk.box.wake_at is None


def test_an_expired_event_is_never_sent(desk: Desk) -> None:
    desk.soft("old", 1_000_000, 2_000_000)
    desk.soft("new", 9_000_000)
    desk.box.wake(2_000_000)
    assert (desk.missed, desk.expired) == (["old"], ["old"])
    assert desk.go().data == b"\0new"
    assert desk.mailbox is None


def test_numbers_follow_the_order_of_sending_not_of_publishing(desk: Desk) -> None:
    lane = Lane()
    desk.soft("second", 9_000_000, lane=lane)
    desk.soft("first", 3_000_000, lane=lane)
    assert [desk.go().data for _ in range(2)] == [b"\0first", b"\1second"]


def test_an_expired_event_leaves_no_gap_in_the_numbers(desk: Desk) -> None:
    lane = Lane()
    desk.soft("old", 1_000_000, 2_000_000, lane=lane)
    desk.soft("new", 9_000_000, lane=lane)
    desk.box.wake(2_000_000)
    assert desk.go().data == b"\0new"


def test_an_event_in_several_frames_is_finished_before_the_next_of_its_channel(desk: Desk) -> None:
    lane = Lane(pieces=3)
    desk.soft("long", 9_000_000, lane=lane)
    desk.go()
    desk.soft("urgent", 1_000_000, lane=lane)
    sent = [desk.go().data for _ in range(5)]
    assert sent == [b"\0long", b"\0long", b"\1urgent", b"\1urgent", b"\1urgent"]


def test_another_channel_may_go_between_the_frames_of_an_event(desk: Desk) -> None:
    desk.soft("long", 9_000_000, lane=Lane(pieces=2))
    desk.go()
    desk.soft("urgent", 1_000_000)
    assert [desk.go().data for _ in range(2)] == [b"\0urgent", b"\0long"]


def test_the_rest_of_an_event_is_ranked_by_what_is_left_of_it(desk: Desk) -> None:
    """Three frames of 130 us must start by 9.61 ms, the last two by 9.74 ms."""
    desk.soft("long-", 10_000_000, lane=Lane(pieces=3))
    desk.soft("other", 9_840_000)
    assert [desk.go().data[1:] for _ in range(4)] == [b"long-", b"other", b"long-", b"long-"]


def test_events_of_fixed_priority_go_in_the_order_of_their_identifiers_then_of_time(desk: Desk) -> None:
    desk.fixed("a", etag=300)
    desk.fixed("b", etag=200)
    desk.fixed("c", etag=300)
    while desk.mailbox is not None:
        desk.go()
    assert desk.sent == ["b", "a", "c"]


def test_events_of_one_channel_keep_their_order_whatever_they_carry(desk: Desk) -> None:
    lane = Lane()
    for name, etag in (("a", 201), ("b", 200), ("c", 201)):
        desk.fixed(name, lane, etag)
    while desk.mailbox is not None:
        desk.go()
    assert desk.sent == ["a", "b", "c"]


def test_an_event_sent_late_is_missed_though_nobody_was_woken_at_its_deadline(desk: Desk) -> None:
    desk.soft("sample", 1_000_000)
    desk.go(2_000_000)
    desk.box.wake(3_000_000)
    assert (desk.missed, desk.sent) == (["sample"], ["sample"])


def test_an_expired_event_is_not_loaded_though_nobody_was_woken_in_time(desk: Desk) -> None:
    desk.soft("first", 1_000_000)
    desk.soft("old", 2_000_000, 3_000_000)
    desk.soft("new", 90_000_000)
    desk.go(9_000_000)
    assert desk.expired == ["old"]
    assert desk.go(9_100_000).data == b"\0new"


def test_what_is_cleared_is_told_and_not_continued(desk: Desk) -> None:
    lane = Lane(pieces=3)
    dropped: list[str] = []
    desk.soft("long", 9_000_000, lane=lane)
    desk.go()
    for _, _, parcel in desk.box._soft:
        parcel.on_dropped = lambda: dropped.append("long")
    desk.box.clear()
    desk.mailbox = None
    assert dropped == ["long"]
    desk.soft("next", 9_000_000, lane=lane)
    assert [desk.go().data[1:] for _ in range(3)] == [b"next"] * 3


def test_a_frame_may_be_withdrawn_while_it_waits(desk: Desk) -> None:
    frame = Frame(Priority.PROTOCOL << 21 | 1)
    desk.box.post(frame, 0)
    desk.box.withdraw(frame, 0)
    assert desk.mailbox is None


def test_a_report_is_made_anew_when_its_turn_comes(desk: Desk) -> None:
    counts = iter(range(9))

    def renew() -> Frame:
        return Frame(Priority.SYSTEM << 21 | 7, bytes((next(counts),)))

    desk.soft("sample", 10_000_000)
    desk.box.post(renew(), 0, renew=renew)
    desk.go()
    assert desk.go().data == b"\1"


def test_what_waits_is_loaded_again_after_the_controller_lost_it(desk: Desk) -> None:
    desk.soft("sample", 10_000_000)
    desk.box.emptied()
    desk.box.resume(1_000_000)
    assert desk.go().data == b"\0sample"
