"""The event-triggered transmit queue of a node: earliest deadline first, promotion, expiry, one mailbox."""

from collections.abc import Callable, Sequence

import pytest

from genus.can._node.tx_queue import LEVELS, OutgoingEvent, TxQueue, soft_priority
from genus.can._wire.frame import Frame, Priority

LEVEL = 160_000


class Channel:
    def __init__(self, *, pieces: int = 1) -> None:
        self.started: OutgoingEvent | None = None
        self.etag = 200
        self.number = 0
        self.rendered = 0
        self.pieces = pieces

    def frame_sizes(self, size: int) -> Sequence[int]:
        return [1 + size] * self.pieces

    def render(self, payload: bytes) -> Sequence[bytes]:
        self.rendered += 1
        return [bytes((self.number,)) + payload for _ in range(self.pieces)]

    def commit(self) -> None:
        self.number += 1


class Sender:
    """A transmit queue, its mailbox, and what became of the events."""

    def __init__(self) -> None:
        self.mailbox: Frame | None = None
        self.loads = 0
        self.sent: list[str] = []
        self.missed: list[str] = []
        self.expired: list[str] = []
        self.sent_expired: list[str] = []
        self.unknown: list[str] = []
        self.queue = TxQueue([80_000 + 10_000 * size for size in range(9)], LEVEL)
        self.queue.number = 5

    def update(self, now: int) -> None:
        if self.queue.update(now):
            self.mailbox = self.queue.loaded
            self.loads += 1

    def soft(
        self, name: str, deadline: int, expires: int | None = None, channel: Channel | None = None, now: int = 0
    ) -> None:
        channel, payload = channel or Channel(), name.encode()
        sizes = channel.frame_sizes(len(payload))
        event = OutgoingEvent(channel, 200, payload, sizes, lambda at: self.sent.append(name))
        event.deadline, event.expires = deadline, expires
        event.on_missed = lambda: self.missed.append(name)
        event.on_expired = lambda: self.expired.append(name)
        event.on_sent_expired = lambda at: self.sent_expired.append(name)
        event.on_unknown = lambda: self.unknown.append(name)
        event.most_lead = 0 if expires is None else (expires - now) // 2
        self.queue.add_soft(event)
        self.update(now)

    def fixed(self, name: str, channel: Channel | None = None, etag: int = 200) -> None:
        channel = channel or Channel()
        channel.etag = etag & ~1
        payload = name.encode()
        sizes = channel.frame_sizes(len(payload))
        event = OutgoingEvent(channel, etag, payload, sizes, lambda at: self.sent.append(name))
        self.queue.add_fixed(event)
        self.update(0)

    def add_frame(self, frame: Frame, renew: Callable[[], Frame] | None = None) -> None:
        self.queue.add_frame(frame, renew=renew)
        self.update(0)

    def go(self, now: int = 0) -> Frame:
        frame = self.mailbox
        assert frame is not None
        self.mailbox = None
        self.frame_sent(frame, now)
        return frame

    def frame_sent(self, frame: Frame, now: int) -> None:
        self.queue.frame_sent(frame, now)
        self.update(now)

    def frame_deferred(self, now: int) -> None:
        self.queue.frame_deferred()
        self.update(now)

    def wake(self, now: int) -> None:
        self.queue.wake(now)
        self.update(now)

    def resume(self, now: int) -> None:
        self.queue.resume()
        self.update(now)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_the_event_with_the_earliest_deadline_goes_first(sender: Sender) -> None:
    sender.soft("late", 9_000_000)
    sender.soft("early", 3_000_000)
    sender.soft("middle", 5_000_000)
    while sender.mailbox is not None:
        sender.go()
    assert sender.sent == ["early", "middle", "late"]


def test_soft_goes_before_everything_of_fixed_priority(sender: Sender) -> None:
    sender.fixed("maintenance")
    sender.add_frame(Frame(Priority.SYSTEM << 21 | 8))
    sender.soft("sample", 50_000_000)
    assert [sender.go().priority for _ in range(3)] == [250, Priority.SYSTEM, Priority.NONE]


def test_an_event_is_promoted_as_its_deadline_comes_nearer(sender: Sender) -> None:
    sender.soft("sample", 10_000_000)
    before = sender.mailbox
    sender.frame_deferred(9_000_000)
    assert before is not None
    assert sender.mailbox is not None
    assert before.priority > sender.mailbox.priority == soft_priority(1_000_000 - 80_000 - 70_000, LEVEL)


def test_a_mailbox_is_left_alone_while_the_priority_stays(sender: Sender) -> None:
    sender.soft("sample", 100_000_000)
    loads = sender.loads
    sender.frame_deferred(1000)
    assert sender.loads == loads


def test_priorities_stay_within_the_band() -> None:
    assert soft_priority(-(10**12), LEVEL) == Priority.SOFT_FIRST
    assert soft_priority(10**12, LEVEL) == Priority.SOFT_LAST == LEVELS


def test_a_frame_that_went_out_while_it_was_replaced_counts_as_sent(sender: Sender) -> None:
    sender.soft("sample", 10_000_000)
    on_the_wire = sender.mailbox
    assert on_the_wire is not None
    sender.soft("urgent", 1_000_000)
    sender.frame_sent(on_the_wire, 100_000)
    assert sender.sent == ["sample"]
    assert sender.go().data == b"\0urgent"
    assert sender.mailbox is None


def test_a_promoted_copy_of_an_event_that_was_sent_is_taken_back(sender: Sender) -> None:
    sender.soft("sample", 10_000_000)
    on_the_wire = sender.mailbox
    assert on_the_wire is not None
    sender.soft("other", 30_000_000)
    sender.wake(9_000_000)
    sender.resume(9_000_000)
    assert sender.mailbox is not on_the_wire
    sender.frame_sent(on_the_wire, 9_000_000)
    assert sender.sent == ["sample"]
    assert sender.mailbox is not None
    assert sender.mailbox.data == b"\0other"


def test_a_missed_deadline_is_told_once_and_the_event_still_sent(sender: Sender) -> None:
    sender.soft("sample", 1_000_000, 5_000_000)
    assert sender.queue.wake_at == 1_000_000
    sender.wake(1_000_000)
    sender.wake(2_000_000)
    assert sender.missed == ["sample"]
    sender.go(3_000_000)
    assert (sender.sent, sender.expired) == (["sample"], [])
    assert sender.queue.wake_at is None


def test_an_expired_event_is_never_sent(sender: Sender) -> None:
    sender.soft("old", 1_000_000, 2_000_000)
    sender.soft("new", 9_000_000)
    sender.wake(2_000_000)
    assert sender.missed == ["old"]
    assert sender.go(2_100_000).data == b"\0new"
    assert sender.mailbox is None
    sender.wake(2_000_000 + 2 * LEVEL)
    assert (sender.expired, sender.sent, sender.sent_expired) == (["old"], ["new"], [])
    assert sender.queue.soft_waiting == 0


def test_an_event_that_expires_on_the_wire_is_told_when_that_is_known(sender: Sender) -> None:
    for pieces in (1, 3):
        sender.soft(f"wire{pieces}", 1_000_000, 2_000_000, Channel(pieces=pieces))
        sender.soft(f"late{pieces}", 1_500_000, 2_000_000)
        for _ in range(pieces - 1):
            sender.go()
        last = sender.mailbox
        assert last is not None
        sender.wake(2_000_000)
        assert sender.expired.pop() == f"late{pieces}"
        assert (sender.mailbox, sender.queue.soft_waiting) == (None, 1)
        sender.frame_sent(last, 2_000_000 + LEVEL)
        assert (sender.sent_expired.pop(), sender.expired, sender.sent) == (f"wire{pieces}", [], [])
        assert sender.queue.wake_at is None


def test_an_event_of_which_frames_are_missing_expires_at_once(sender: Sender) -> None:
    sender.soft("long", 1_000_000, 2_000_000, Channel(pieces=3))
    sender.go()
    sender.wake(2_000_000)
    assert (sender.expired, sender.mailbox, sender.queue.wake_at) == (["long"], None, None)


def test_numbers_follow_the_order_of_sending_not_of_publishing(sender: Sender) -> None:
    channel = Channel()
    sender.soft("second", 9_000_000, channel=channel)
    sender.soft("first", 3_000_000, channel=channel)
    assert [sender.go().data for _ in range(2)] == [b"\0first", b"\1second"]


def test_an_expired_event_leaves_no_gap_in_the_numbers(sender: Sender) -> None:
    channel = Channel()
    sender.soft("old", 1_000_000, 2_000_000, channel=channel)
    sender.soft("new", 9_000_000, channel=channel)
    sender.wake(2_000_000)
    assert sender.go().data == b"\0new"


def test_an_event_in_several_frames_is_finished_before_the_next_of_its_channel(sender: Sender) -> None:
    channel = Channel(pieces=3)
    sender.soft("long", 9_000_000, channel=channel)
    sender.go()
    sender.soft("urgent", 1_000_000, channel=channel)
    sent = [sender.go().data for _ in range(5)]
    assert sent == [b"\0long", b"\0long", b"\1urgent", b"\1urgent", b"\1urgent"]


def test_another_channel_may_go_between_the_frames_of_an_event(sender: Sender) -> None:
    sender.soft("long", 9_000_000, channel=Channel(pieces=2))
    sender.go()
    sender.soft("urgent", 1_000_000)
    assert [sender.go().data for _ in range(2)] == [b"\0urgent", b"\0long"]


def test_the_rest_of_an_event_is_ranked_by_what_is_left_of_it(sender: Sender) -> None:
    """Three frames of 130 us must start by 9.61 ms, the last two by 9.74 ms."""
    sender.soft("long-", 10_000_000, channel=Channel(pieces=3))
    sender.soft("other", 9_840_000)
    assert [sender.go().data[1:] for _ in range(4)] == [b"long-", b"other", b"long-", b"long-"]


def test_events_of_fixed_priority_go_in_the_order_of_their_identifiers_then_of_time(sender: Sender) -> None:
    sender.fixed("a", etag=300)
    sender.fixed("b", etag=200)
    sender.fixed("c", etag=300)
    while sender.mailbox is not None:
        sender.go()
    assert sender.sent == ["b", "a", "c"]


def test_events_of_one_channel_keep_their_order_whatever_they_carry(sender: Sender) -> None:
    channel = Channel()
    for name, etag in (("a", 201), ("b", 200), ("c", 201)):
        sender.fixed(name, channel, etag)
    while sender.mailbox is not None:
        sender.go()
    assert sender.sent == ["a", "b", "c"]


def test_an_event_sent_late_is_missed_though_nobody_was_woken_at_its_deadline(sender: Sender) -> None:
    sender.soft("sample", 1_000_000)
    sender.go(2_000_000)
    sender.wake(3_000_000)
    assert (sender.missed, sender.sent) == (["sample"], ["sample"])


def test_an_expired_event_is_not_loaded_though_nobody_was_woken_in_time(sender: Sender) -> None:
    sender.soft("first", 1_000_000)
    sender.soft("old", 2_000_000, 3_000_000)
    sender.soft("new", 90_000_000)
    sender.go(9_000_000)
    assert sender.expired == ["old"]
    assert sender.go(9_100_000).data == b"\0new"


def test_what_is_cleared_is_told_and_not_continued(sender: Sender) -> None:
    channel = Channel(pieces=3)
    dropped: list[str] = []
    sender.soft("long", 9_000_000, channel=channel)
    sender.go()
    for _, _, event in sender.queue._soft:
        event.on_dropped = lambda: dropped.append("long")
    sender.queue.clear()
    sender.mailbox = None
    assert dropped == ["long"]
    sender.soft("next", 9_000_000, channel=channel)
    assert [sender.go().data[1:] for _ in range(3)] == [b"next"] * 3


def test_a_frame_may_be_withdrawn_while_it_waits(sender: Sender) -> None:
    frame = Frame(Priority.PROTOCOL << 21 | 1)
    sender.add_frame(frame)
    sender.queue.remove_frame(frame)
    sender.update(0)
    assert sender.mailbox is None


def test_a_report_is_made_anew_when_its_turn_comes(sender: Sender) -> None:
    counts = iter(range(9))

    def renew() -> Frame:
        return Frame(Priority.SYSTEM << 21 | 7, bytes((next(counts),)))

    sender.soft("sample", 10_000_000)
    sender.add_frame(renew(), renew)
    sender.go()
    assert sender.go().data == b"\1"


def test_what_waits_is_loaded_again_after_the_controller_lost_it(sender: Sender) -> None:
    sender.soft("sample", 10_000_000)
    sender.queue.mailbox_emptied()
    sender.resume(1_000_000)
    assert sender.go().data == b"\0sample"


def test_an_event_that_waits_its_turn_is_rendered_once(sender: Sender) -> None:
    channel = Channel(pieces=2)
    sender.soft("other", 1_000_000)
    sender.soft("long", 9_000_000, channel=channel)
    while sender.mailbox is not None:
        sender.go()
    assert channel.rendered == 1


# -- a driver that takes frames ----------------------------------------------------------------------------------------

MS = 1_000_000


def take(sender: Sender, now: int = 0) -> Frame:
    """Let a driver take the loaded frame."""
    frame = sender.mailbox
    assert frame is not None
    sender.queue.frame_taken(frame, now)
    return frame


def test_a_frame_in_a_driver_is_known_however_often_its_event_is_promoted_meanwhile(sender: Sender) -> None:
    sender.soft("sample", 10 * MS)
    taken = take(sender)
    for now in range(MS, 8 * MS, MS):
        sender.frame_deferred(now)
    sender.frame_sent(taken, 8 * MS)
    assert sender.sent == ["sample"]
    assert sender.mailbox is None


def test_an_event_that_waits_behind_one_of_its_channel_gets_the_next_number(sender: Sender) -> None:
    channel = Channel()
    sender.soft("first", 10 * MS, channel=channel)
    taken = take(sender)
    sender.soft("urgent", 5 * MS, channel=channel)
    sender.frame_sent(taken, MS)
    assert (taken.data, sender.go(2 * MS).data) == (b"\0first", b"\1urgent")


def test_an_event_that_expires_in_a_driver_is_told_when_it_was_sent_after_that(sender: Sender) -> None:
    for name, sent_at in (("good", 29 * MS), ("bad", 31 * MS)):
        sender.soft(name, 10 * MS, 30 * MS)
        taken = take(sender)
        sender.wake(32 * MS)
        sender.frame_sent(taken, sent_at)
    assert (sender.sent, sender.sent_expired, sender.expired) == (["good"], ["bad"], [])


def test_an_event_that_expired_in_a_driver_that_did_not_send_it_is_told_and_not_sent(sender: Sender) -> None:
    sender.soft("sample", 10 * MS, 30 * MS)
    taken = take(sender)
    sender.wake(31 * MS)
    sender.queue.frame_gone(taken, 31 * MS, maybe_sent=False)
    assert sender.queue.wake_at == 30 * MS
    sender.wake(32 * MS)
    assert sender.expired == ["sample"]
    assert sender.mailbox is None


def test_an_event_that_a_driver_did_not_confirm_is_neither_sent_again_nor_told_as_expired(sender: Sender) -> None:
    channel = Channel()
    sender.soft("first", 10 * MS, 30 * MS, channel=channel)
    sender.soft("next", 20 * MS, 60 * MS, channel=channel)
    taken = take(sender)
    sender.queue.frame_gone(taken, 15 * MS, maybe_sent=True)
    sender.wake(31 * MS)
    assert (sender.unknown, sender.sent, sender.expired) == (["first"], [], [])
    assert sender.go(31 * MS).data == b"\1next", "its number is used"


def test_a_frame_that_a_driver_did_not_confirm_is_sent_again_unless_somebody_wants_to_know(sender: Sender) -> None:
    unknown: list[str] = []
    sender.queue.add_frame(Frame(5), on_unknown=lambda: unknown.append("once"))
    sender.queue.add_frame(Frame(6))
    for expected in (5, 6, 6):
        sender.update(0)
        taken = take(sender)
        assert taken.id == expected
        sender.queue.frame_gone(taken, 1, maybe_sent=True)
    assert unknown == ["once"]


def test_a_driver_that_was_slow_makes_events_expire_earlier_but_not_in_the_first_half_of_their_validity() -> None:
    for now, is_dropped in ((10 * MS, False), (19 * MS, False), (21 * MS, True)):
        sender = Sender()
        sender.soft("slow", 1)  # late already, so of the highest soft priority
        sender.frame_sent(take(sender), 10 * MS)
        sender.soft("next", 1 * MS, 30 * MS, now=10 * MS)
        sender.queue.mailbox_emptied()
        sender.resume(now)
        assert (sender.expired == ["next"]) is is_dropped
