"""How subjects get event tags, and what publishers announce."""

from random import Random

import pytest

from genus import Event, Kind, Maybe
from genus.can._protocol.binding import WINDOW, BindingClient
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import AnnouncedChannel, MemoryStore
from genus.can._protocol.catalog_queries import CatalogIndex
from genus.can._protocol.messages import Announce, GetEtag, Heartbeat, Nibble, Prefix, QosClass, RefusalReason, Supply
from genus.can._protocol.notices import (
    BIND_QUIET_TIME,
    BIND_RETRY,
    MAX_BIND_DELAY,
    BindingRefused,
    Bound,
    ClassConflict,
    Notice,
    RequestUnanswered,
)
from genus.can._wire.frame import Frame, subject_uid
from genus.can._wire.payload import PayloadCodec
from genus.catalog import Catalog
from genus.model import UInt8

from .stations import MS, Station, System


class Roadside(Kind): ...


class Loop(Event, Roadside):
    lane: UInt8


class Radar(Loop):
    angle: float


class Swarm(Event, tagged=("place", "size")):
    size: Maybe[UInt8] = None


LOOP, RADAR, ROADSIDE, SWARM, UNKNOWN = map(subject_uid, ("Loop", "Radar", "Roadside", "Swarm", "Unknown"))
HEADLESS = LOOP ^ 1 << 40
"""Another first half than Loop's, the same second."""
TAILLESS = LOOP ^ 1
"""The same first half as Loop's, another second."""


def city() -> Catalog:
    catalog = Catalog()
    catalog.register(Loop, Radar, Swarm)
    return catalog


class Lone:
    """A component without a bus, under number 9."""

    def __init__(self, *subjects: int) -> None:
        self.queue: list[Frame] = []
        self.notices: list[Notice] = []
        self.binding = BindingClient(send=self.queue.append, withdraw=self.withdraw, notify=self.notices.append)
        self.binding.join(9, -1_000 * MS)
        for subject in subjects:
            self.binding.bind(subject, 0)

    def withdraw(self, frame: Frame) -> None:
        self.queue[:] = [each for each in self.queue if each is not frame]

    def receive(self, *frames: Frame, now: int = 0) -> list[Notice]:
        for frame in frames:
            self.binding.receive(frame, now)
        return self.notices

    def wait(self) -> int:
        """Let time pass until it is woken."""
        now = self.binding.wake_at
        assert now is not None
        self.binding.wake(now)
        return now


# -- asking ------------------------------------------------------------------------------------------------------------


def test_nothing_is_asked_without_a_number() -> None:
    queue: list[Frame] = []
    binding = BindingClient(send=queue.append, withdraw=lambda frame: None, notify=lambda notice: None)
    binding.bind(LOOP, 0)
    binding.announce(RADAR, 8000, QosClass.NONE, segmented=False, size=3)
    assert queue == []
    assert binding.wake_at is None
    binding.join(9, 5)
    assert queue == [Announce(9, 8000, QosClass.NONE, False, 3, 0).frame()]
    assert binding.wake_at == 5 + BIND_QUIET_TIME
    binding.wake(binding.wake_at)
    assert queue[1:] == [GetEtag(9, LOOP).frame()]


def test_a_node_that_has_just_got_its_number_waits_until_others_have_theirs() -> None:
    lone = Lone()
    lone.binding.join(9, 0)
    lone.binding.bind(LOOP, 0)
    for now in range(0, MAX_BIND_DELAY, 3 * MS):
        assert lone.queue == []
        lone.receive(Nibble(15, 3).frame(), Prefix(15, 3 << 60).frame(), now=now)
        assert lone.binding.wake_at == min(now + BIND_QUIET_TIME, MAX_BIND_DELAY)
    lone.wait()
    assert lone.queue == [GetEtag(9, LOOP).frame()]


def test_a_node_that_had_its_number_for_a_second_does_not_wait() -> None:
    lone = Lone()
    lone.receive(Nibble(15, 3).frame(), now=0)
    lone.binding.bind(LOOP, 0)
    assert lone.queue == [GetEtag(9, LOOP).frame()]


def test_a_request_is_repeated_three_times_with_doubled_waits_and_then_given_up() -> None:
    lone = Lone(LOOP)
    times = [lone.wait() for _ in range(4)]
    assert times == [BIND_RETRY, 3 * BIND_RETRY, 7 * BIND_RETRY, 15 * BIND_RETRY]
    assert lone.notices == [RequestUnanswered("binding", LOOP)]
    assert lone.queue == []
    assert lone.binding.wake_at is None


def test_a_request_that_still_waits_is_replaced_not_added_to() -> None:
    lone = Lone(LOOP)
    for _ in range(3):
        lone.wait()
        assert lone.queue == [GetEtag(9, LOOP).frame()]


def test_an_unanswered_request_is_repeated_at_the_next_heartbeat() -> None:
    lone = Lone(LOOP)
    for _ in range(4):
        lone.wait()
    lone.receive(Heartbeat(1, 2).frame(), now=10**10)
    assert lone.queue == [GetEtag(9, LOOP).frame()]
    assert lone.receive(*Supply(LOOP, 8208).frames(9)) == [
        RequestUnanswered("binding", LOOP),
        Bound(LOOP, 8208, QosClass.UNANNOUNCED, False, 0),
    ]


def test_an_unanswered_request_is_reported_once_despite_further_heartbeats() -> None:
    lone = Lone(LOOP)
    for beat in range(3):
        lone.receive(Heartbeat(1, 2).frame(), now=beat)
        for _ in range(4):
            lone.wait()
    assert lone.notices == [RequestUnanswered("binding", LOOP)]


def test_what_was_refused_is_asked_for_again_when_the_catalog_is_another() -> None:
    lone = Lone(UNKNOWN)
    lone.receive(Heartbeat(1, 2).frame())
    lone.receive(*Supply(UNKNOWN, 0, reason=RefusalReason.UNKNOWN_SUBJECT).frames(9))
    assert lone.notices == [BindingRefused(UNKNOWN, RefusalReason.UNKNOWN_SUBJECT)]
    assert lone.queue == []
    lone.receive(Heartbeat(1, 2).frame())
    assert lone.queue == []
    lone.receive(Heartbeat(1, 3).frame())
    assert lone.queue == [GetEtag(9, UNKNOWN).frame()]


def test_only_a_few_requests_are_on_the_way_at_a_time() -> None:
    subjects = [subject_uid(f"Type{number}") for number in range(20)]
    lone = Lone(*subjects)
    assert lone.queue == [GetEtag(9, subject).frame() for subject in subjects[:WINDOW]]
    for number, subject in enumerate(subjects):
        lone.receive(*Supply(subject, 8000 + number).frames(9))
        assert len(lone.queue) == min(WINDOW, 19 - number)
    assert [notice.etag for notice in lone.notices if isinstance(notice, Bound)] == list(range(8000, 8020))


def test_a_subject_that_is_forgotten_leaves_nothing() -> None:
    lone = Lone(LOOP)
    lone.binding.announce(LOOP, 8208, QosClass.SOFT, segmented=False, size=2)
    lone.binding.forget(LOOP, 0)
    lone.queue.clear()
    assert lone.binding.wake_at is None
    assert lone.receive(*Supply(LOOP, 8208, QosClass.HARD).frames(9)) == []
    lone.receive(Heartbeat(1, 2, roll_call=True).frame())
    assert lone.queue == []


def test_a_node_with_a_new_number_asks_under_it() -> None:
    lone = Lone(LOOP)
    lone.binding.leave()
    assert lone.queue == []
    assert lone.binding.wake_at is None
    lone.binding.join(10, 5)
    lone.wait()
    assert lone.queue == [GetEtag(10, LOOP).frame()]
    assert lone.receive(*Supply(LOOP, 8208).frames(9)) == []
    assert len(lone.receive(*Supply(LOOP, 8208).frames(10))) == 1


# -- replies -----------------------------------------------------------------------------------------------------------


def test_replies_for_others_and_for_other_subjects_are_ignored() -> None:
    lone = Lone(LOOP)
    assert lone.receive(*Supply(LOOP, 8208).frames(8), *Supply(RADAR, 8209).frames(9)) == []


@pytest.mark.parametrize("other", [HEADLESS, TAILLESS])
def test_both_halves_must_fit(other: int) -> None:
    lone = Lone(LOOP)
    first, second = Supply(LOOP, 8208).frames(9)
    wrong_first, wrong_second = Supply(other, 8300).frames(9)
    assert lone.receive(wrong_first, wrong_second) == []
    assert lone.receive(first, wrong_second, wrong_first, second) == []
    assert lone.receive(second, second, first) == []
    assert [notice.etag for notice in lone.receive(second) if isinstance(notice, Bound)] == [8208]


def test_subjects_that_share_a_half_are_kept_apart() -> None:
    subjects = [LOOP, HEADLESS, TAILLESS]
    lone = Lone(*subjects)
    for number, subject in enumerate(reversed(subjects)):
        lone.receive(*Supply(subject, 8000 + number).frames(9))
    assert lone.notices == [
        Bound(subject, 8000 + number, QosClass.UNANNOUNCED, False, 0)
        for number, subject in enumerate(reversed(subjects))
    ]


def test_a_reply_that_comes_twice_gives_one_notice() -> None:
    lone = Lone(LOOP)
    frames = Supply(LOOP, 8208).frames(9)
    assert len(lone.receive(*frames, *frames)) == 1


def test_a_notice_has_everything_that_a_reply_says() -> None:
    lone = Lone(LOOP)
    supply = Supply(LOOP, 8208, QosClass.HARD, segmented=True, width=3, deprecated=True)
    assert lone.receive(*supply.frames(9)) == [Bound(LOOP, 8208, QosClass.HARD, True, 3, True)]


# -- announcements -----------------------------------------------------------------------------------------------------


def test_announcements_are_repeated_when_a_broker_begins_to_serve() -> None:
    lone = Lone()
    lone.binding.announce(LOOP, 8208, QosClass.SOFT, segmented=False, size=2, span_us=5_000)
    announcement = Announce(9, 8208, QosClass.SOFT, False, 2, 5_000).frame()
    assert lone.queue == [announcement]
    lone.receive(Heartbeat(1, 2).frame(), Heartbeat(1, 2).frame())
    assert lone.queue == [announcement]
    lone.receive(Heartbeat(1, 2, roll_call=True).frame(), Heartbeat(1, 2, roll_call=True).frame(), now=MS)
    assert lone.queue == [announcement] * 2
    lone.receive(Heartbeat(2, 2).frame(), now=500 * MS)
    assert lone.queue == [announcement] * 3


def test_a_channel_with_another_class_on_record_is_a_conflict() -> None:
    lone = Lone()
    lone.binding.announce(LOOP, 8208, QosClass.SOFT, segmented=False, size=2)
    lone.receive(*Supply(LOOP, 8208, QosClass.SOFT).frames(9), *Supply(LOOP, 8208, QosClass.UNANNOUNCED).frames(9))
    assert lone.notices == []
    lone.receive(*Supply(LOOP, 8208, QosClass.HARD).frames(9))
    assert lone.notices == [ClassConflict(LOOP, QosClass.SOFT, QosClass.HARD, segmented=False)]


def test_so_is_one_whose_frames_are_made_otherwise() -> None:
    lone = Lone()
    lone.binding.announce(LOOP, 8208, QosClass.SOFT, segmented=False, size=2)
    lone.receive(*Supply(LOOP, 8208, QosClass.SOFT, segmented=True).frames(9))
    assert lone.notices == [ClassConflict(LOOP, QosClass.SOFT, QosClass.SOFT, segmented=True)]


# -- with a broker -----------------------------------------------------------------------------------------------------


def bound(*subjects: int, catalog: Catalog | None = None) -> tuple[System, Station]:
    system = System()
    system.broker(catalog=catalog or city())
    station = system.station(0x10, subjects=subjects)  # type: ignore[arg-type]
    system.run(60)
    return system, station


def test_subjects_have_the_tags_of_the_catalog() -> None:
    _, station = bound(LOOP, RADAR, SWARM)
    etags = {notice.subject: notice.etag for notice in station.notices_of(Bound)}
    assert etags == {subject_uid(name): city().etag(name) for name in ("Loop", "Radar", "Swarm")}


def test_the_reply_says_how_many_bits_are_for_tagged_attributes() -> None:
    _, station = bound(LOOP, SWARM)
    assert {notice.subject: notice.width for notice in station.notices_of(Bound)} == {LOOP: 0, SWARM: 2}


def test_a_subject_without_a_tag_is_refused_with_the_reason() -> None:
    _, station = bound(UNKNOWN, ROADSIDE)
    assert station.notices_of(BindingRefused) == [
        BindingRefused(UNKNOWN, RefusalReason.UNKNOWN_SUBJECT),
        BindingRefused(ROADSIDE, RefusalReason.KIND),
    ]


def test_a_deprecated_type_has_its_tag_and_is_marked() -> None:
    """Nodes that use it must find it after a restart."""
    catalog = city()
    catalog.deprecate("Radar", "use Lidar")
    _, station = bound(LOOP, RADAR, catalog=catalog)
    assert {notice.subject: notice.deprecated for notice in station.notices_of(Bound)} == {LOOP: False, RADAR: True}


def test_the_first_announcement_wins_and_the_second_publisher_gets_a_notice() -> None:
    system, first = bound(LOOP)
    second = system.station(0x20)
    system.run(20)
    etag = city().etag("Loop")
    system.hosts[1].call(
        lambda now: first.binding.announce(LOOP, etag, QosClass.SOFT, segmented=True, size=9, span_us=20_000)
    )
    system.run(5)
    system.hosts[2].call(lambda now: second.binding.announce(LOOP, etag, QosClass.HARD, segmented=True, size=9))
    system.run(5)
    assert first.notices_of(ClassConflict) == []
    assert second.notices_of(ClassConflict) == [ClassConflict(LOOP, QosClass.HARD, QosClass.SOFT, segmented=True)]
    third = system.station(0x30, subjects=[LOOP])  # type: ignore[arg-type]
    system.run(20)
    assert third.notices_of(Bound)[0].qos_class == QosClass.SOFT


def test_announcements_survive_a_broker_whose_tables_are_lost() -> None:
    system, store = System(), MemoryStore()
    host = system.broker(catalog=city(), store=store)
    station = system.station(0x10, subjects=[LOOP])  # type: ignore[arg-type]
    system.run(60)
    system.hosts[1].call(
        lambda now: station.binding.announce(LOOP, city().etag("Loop"), QosClass.SOFT, segmented=True, size=9)
    )
    system.run(60)
    store.text = None
    restarted = Broker(1, city(), store)
    host.restart(restarted)
    system.run(60)
    assert dict(restarted.channels) == {"Loop": AnnouncedChannel(QosClass.SOFT, True)}


def test_an_announcement_of_a_tag_that_is_no_types_is_dropped() -> None:
    broker = Broker(1, city(), MemoryStore())
    for etag in (0, 100, 8192 + 4000, city().etag("Swarm") + 1):
        broker.receive(Announce(5, etag, QosClass.SOFT, False, 1, 1).frame(), 0)
    assert broker.channels == {}
    assert broker.counts["announcement of no type"] == 4


def test_twelve_nodes_that_bind_16_subjects_each_at_once_are_all_served() -> None:
    """Requests that are repeated do not crowd the replies out."""

    class Sample(Event):
        value: int

    catalog = Catalog()
    classes = [type(f"Sample{number}", (Sample,), {}) for number in range(16)]
    catalog.register(*classes)
    subjects = [subject_uid(cls.__name__) for cls in classes]
    system = System()
    host = system.broker(catalog=catalog)
    stations = [system.station(1000 + number, subjects=subjects) for number in range(12)]  # type: ignore[arg-type]
    system.run(500)
    assert all(len(station.notices_of(Bound)) == 16 for station in stations)
    assert not any(station.notices_of(RequestUnanswered) for station in stations)
    assert host.machine.counts["request too many"] == 0  # type: ignore[attr-defined]


def test_a_node_that_asks_for_too_much_does_not_hold_up_others() -> None:
    broker = Broker(1, city(), MemoryStore())
    broker.wake(0)
    for subject in range(1, 1_000):
        broker.receive(GetEtag(5, subject).frame(), 0)
    broker.receive(GetEtag(6, LOOP).frame(), 0)
    assert broker.counts["request too many"] >= 980
    assert (6, LOOP) in broker._binding._waiting


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_a_channel_without_announcement_is_segmented_exactly_if_its_largest_event_needs_it() -> None:
    catalog = city()
    directory = CatalogIndex(catalog)
    for cls in (Loop, Radar, Swarm):
        name = cls.__name__
        largest = PayloadCodec.of(cls, catalog.vector(cls), catalog.tagged(cls)).max_size_carrying()
        long = largest is None or largest > 8
        assert directory.supply(subject_uid(name), {}).segmented == long
        announced = AnnouncedChannel(QosClass.NONE, not long)
        assert directory.supply(subject_uid(name), {name: announced}).segmented != long


def test_random_replies_bind_nothing_wrong() -> None:
    lone, random = Lone(LOOP), Random(5)
    first, second = Supply(LOOP, 8208).frames(9)
    for _ in range(20_000):
        data = bytearray(random.choice((first, second)).data)
        data[random.randrange(8)] ^= 1 << random.randrange(8)
        lone.receive(Frame(first.id, bytes(data)))
    assert all(isinstance(notice, Bound | BindingRefused) and notice.subject == LOOP for notice in lone.notices)
