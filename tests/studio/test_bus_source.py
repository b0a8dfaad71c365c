"""A bus as a source: what is counted is shown, and nothing is subscribed to for it on a bus of the program's own."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from genus import BestEffort, Bus, Event, Subscription, open_bus
from genus.bus import EventChannel, Link
from genus.bus.types import Delivery
from genus.net import NetLink
from genus.studio._bus_source import MAX_ROWS, BusSource
from genus.studio._figures import MAX_SOURCES, Meters
from genus.studio.types import ChannelRow, SourceRow, SubscriptionRow
from tests.net.memory_network import MemoryNetwork


class Counted(Event, name="studio.Counted"):
    number: int


class Other(Event, name="studio.Other"): ...


@pytest.fixture
def bus() -> Iterator[Bus]:
    with open_bus() as made:
        yield made


def channels(source: BusSource) -> dict[str, ChannelRow]:
    found = source.rows(["channels"])["channels"]
    return {key: row for key, row in found.items() if isinstance(row, ChannelRow)}


def test_a_channel_that_was_announced_here_is_listed_without_events(bus: Bus) -> None:
    with bus.channel(Counted, BestEffort(priority=1)):
        (row,) = channels(BusSource(bus, name="here")).values()
    assert (row.type, row.events, row.qos, row.is_heard) == ("studio.Counted", 0, "none:1", True)


def test_channels_are_what_was_published_by_type(bus: Bus) -> None:
    source = BusSource(bus, name="here")
    channel = bus.channel(Counted, BestEffort(priority=1))
    channel.announce()
    for number in range(3):
        channel.publish(Counted(number=number))
    bus.publish(Other())
    found = channels(source)
    assert {key: (row.events, row.qos) for key, row in found.items()} == {
        "here|studio.Counted|": (3, "none:1"),
        "here|studio.Other|": (1, ""),
    }
    assert source.counts()["studio.Counted"] == 3
    assert bus.listeners() == []


def test_a_cancelled_channel_has_no_quality_of_service(bus: Bus) -> None:
    with bus.channel(Counted) as channel:
        assert bus.channels() == [channel]
        channel.publish(Counted(number=1))
    assert bus.channels() == []
    assert channels(BusSource(bus, name="here"))["here|studio.Counted|"].qos == ""


def test_what_a_tap_gets_is_what_was_published_while_it_was_open(bus: Bus) -> None:
    source = BusSource(bus, name="here")
    got: list[Event] = []
    bus.publish(Counted(number=0))
    end = source.tap(lambda at, event, publisher: got.append(event))
    bus.publish(Counted(number=1))
    end()
    bus.publish(Counted(number=2))
    assert got == [Counted(number=1)]
    assert bus.listeners() == []


def test_two_taps_share_one_subscription(bus: Bus) -> None:
    source = BusSource(bus, name="here")
    ends = [source.tap(lambda *_: None) for _ in range(2)]
    assert len(bus.listeners()) == 1
    ends[0]()
    assert len(bus.listeners()) == 1
    ends[1]()
    assert bus.listeners() == []


def test_subscriptions_are_those_of_the_program_and_not_its_own(bus: Bus) -> None:
    source = BusSource(bus, name="here")
    end = source.tap(lambda *_: None)
    inbox = bus.inbox("studio.Counted where number > 0", capacity=1)
    failing = bus.collection(Other).subscribe(lambda event: 1 / 0)
    for number in range(3):
        bus.publish(Counted(number=number))
    with suppress(ZeroDivisionError):
        bus.publish(Other())
    rows = [row for row in source.rows(["subscriptions"])["subscriptions"].values() if isinstance(row, SubscriptionRow)]
    found = {row.text: (row.delivered, row.failed, row.dropped, row.waiting, row.capacity) for row in rows}
    assert found == {
        "studio.Counted where number > 0": (2, 0, 1, 1, 1),
        "studio.Other": (1, 1, 0, 0, None),
    }
    row = source.rows(["sources"])["sources"]["here"]
    assert isinstance(row, SourceRow)
    assert (row.events, row.lost) == (4, 1)
    end()
    inbox.cancel()
    failing.cancel()


def test_a_bus_that_is_watched_tells_publishers_apart(bus: Bus) -> None:
    source = BusSource(bus, name="here", watch=Subscription(Event))
    for number in range(4):
        bus.publish(Counted(number=number, source=f"gate-{number % 2}"))
    assert {key: row.events for key, row in channels(source).items()} == {
        "here|studio.Counted|gate-0": 2,
        "here|studio.Counted|gate-1": 2,
    }
    source.close()
    assert bus.listeners() == []


AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_jitter_and_latency_are_those_of_the_times_of_arrival() -> None:
    meters = Meters(by_source=True)
    arrivals_ms = [0.0, 10.0, 30.0]  # intervals of 10 and 20 ms: a standard deviation of 5 ms
    for arrival in arrivals_ms:
        sent = AT + timedelta(milliseconds=arrival - 2)
        meters.add(round((AT.timestamp() + arrival / 1000) * 1e9), Counted(number=1, time=sent))
    times = meters.times("studio.Counted", "")
    assert times.jitter_ms == pytest.approx(5, rel=1e-3)
    assert times.latency_ms == pytest.approx(2, rel=1e-3)
    assert times.worst_latency_ms == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize("sent", [datetime(1970, 1, 1, 0, 5, tzinfo=UTC), AT + timedelta(days=365)])
def test_a_time_of_another_clock_gives_no_latency(sent: datetime) -> None:
    meters = Meters(by_source=False)
    meters.add(round(AT.timestamp() * 1e9), Counted(number=1, time=sent))
    assert meters.times("studio.Counted", "").latency_ms is None
    meters.add(round(AT.timestamp() * 1e9), Counted(number=1, time=AT - timedelta(milliseconds=5)))
    assert meters.times("studio.Counted", "").latency_ms == pytest.approx(5, rel=1e-3)


def test_very_many_sources_are_added_up() -> None:
    meters = Meters(by_source=True)
    for number in range(3 * MAX_SOURCES):
        meters.add(number, Counted(number=1, source=f"gate-{number}"))
    found = meters.by_type()["studio.Counted"]
    assert len(found) <= MAX_SOURCES + 1
    assert sum(found.values()) == 3 * MAX_SOURCES


def test_without_a_time_there_is_no_latency() -> None:
    meters = Meters(by_source=False)
    meters.add(0, Counted(number=1, source="a"))
    assert meters.times("studio.Counted", "") == (None, None, None)


def test_texts_of_subscriptions_are_made_once(bus: Bus) -> None:
    source = BusSource(bus, name="here")
    bus.collection(Counted).subscribe(print)
    first = source.rows(["subscriptions"])["subscriptions"]
    assert source.rows(["subscriptions"])["subscriptions"] == first


def test_the_time_in_which_nobody_listened_is_no_jitter(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    source = BusSource(bus, name="b")
    times = iter(range(0, 10**15, 1_000_000))
    monkeypatch.setattr(bus, "time_ns", lambda: next(times))
    for pause in (0, 100_000):
        for _ in range(pause):
            next(times)
        end = source.tap(lambda at, event, who: None)
        for number in range(3):
            bus.publish(Counted(number=number))
        end()
    assert channels(source)["b|studio.Counted|"].jitter_ms == 0.0


def test_losses_are_those_of_all_inboxes(bus: Bus) -> None:
    source = BusSource(bus, name="b")
    for _ in range(MAX_ROWS):
        bus.subscribe(Subscription(Counted), lambda event: None)
    with bus.inbox(Subscription(Counted), capacity=1, overflow="drop_newest"):
        for number in range(4):
            bus.publish(Counted(number=number))
        row = source.rows(["sources"])["sources"]["b"]
    assert isinstance(row, SourceRow)
    assert row.lost == 3


class UnreadLink(Link):
    """A link that could not read some of what it received."""

    def open(self, deliver: Delivery) -> None: ...

    def send(self, event: Event) -> None: ...

    def close(self) -> None: ...

    def counters(self) -> Mapping[str, int]:
        return {"received": 9, "rejected: damaged": 2, "not read: Loop.speed": 3, "delivered as Loop: Gantry": 1}


def test_what_could_not_be_read_is_told_and_is_no_loss() -> None:
    with Bus(UnreadLink()) as bus:
        row = BusSource(bus, name="b").rows(["sources"])["sources"]["b"]
    assert isinstance(row, SourceRow)
    assert row.lost == 2
    assert row.note == "rejected: damaged: 2; not read: Loop.speed: 3; delivered as Loop: Gantry: 1"


def test_a_time_that_is_none_and_a_source_that_is_no_text_are_measured_nevertheless(bus: Bus) -> None:
    source = BusSource(bus, name="b", watch=Subscription(Counted))
    for time in (datetime(2026, 1, 1), "now", 5, None):
        bus.publish(Counted(number=1, time=time, source="\ud800" * 1000))  # type: ignore[arg-type]
    (row,) = channels(source).values()
    assert (row.events, row.latency_ms) == (4, None)
    assert len(row.publisher) < 2000
    row.publisher.encode()


def test_events_that_come_too_fast_to_be_measured_are_counted(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.studio._bus_source.RING", 10)
    source = BusSource(bus, name="b", watch=Subscription(Counted))
    for burst in (25, 5):
        for number in range(burst):
            bus.publish(Counted(number=number, source="gate"))
        found = {row.publisher: row.events for row in channels(source).values()}
    assert found == {"gate": 15, "(others)": 15}
    assert sum(found.values()) == bus.traffic().published["studio.Counted"]


@pytest.mark.parametrize("watch", [Subscription(Event), Subscription(Counted), None])
def test_channels_that_others_announced_are_listed_before_their_first_event(watch: Subscription | None) -> None:
    """As far as Studio would hear them; on a bus of the program's own it is not known whether it would."""
    network = MemoryNetwork()
    with network_bus(network) as here, network_bus(network) as there:
        source = BusSource(here, name="here", watch=watch, types=[Counted, Other])
        announced: list[EventChannel[Any]] = [there.channel(Counted, BestEffort(priority=1)), there.channel(Other)]
        for channel in announced:
            channel.announce()
        channels(source)
        network.deliver()
        names = ["Counted"] if watch == Subscription(Counted) else ["Counted", "Other"]
        found = channels(source)
        assert set(found) == {f"here|studio.{name}|" for name in names}
        counted = found["here|studio.Counted|"]
        assert (counted.events, counted.qos, counted.is_heard) == (0, "none:1", watch is not None)
        there.publish(Counted(number=1))
        network.deliver()
        assert sum(row.events for row in channels(source).values()) == (watch is not None)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize(("text", "is_heard"), [("studio.Counted", True), ("studio.Counted where number > 9", False)])
def test_an_announced_channel_is_heard_if_all_its_events_are_asked_for(
    watched: bool, text: str, is_heard: bool
) -> None:
    """By Studio or by the program; what a condition holds back at its publisher is no silence."""
    network, asked = MemoryNetwork(), Subscription.parse(text, [Counted])
    with network_bus(network) as here, network_bus(network) as there:
        source = BusSource(here, name="here", watch=asked if watched else None, types=[Counted])
        if not watched:
            here.inbox(asked)
        announced = there.channel(Counted, BestEffort(priority=1))
        announced.announce()
        channels(source)
        network.deliver()
        assert [row.is_heard for row in channels(source).values()] == [is_heard]


def network_bus(network: MemoryNetwork) -> Bus:
    return Bus(NetLink(network.transport(), "studio", medium="memory", runs=False))


def test_a_subscription_is_named_by_its_handler_and_has_its_last_error(bus: Bus) -> None:
    def on_counted(event: Counted) -> None:
        raise ValueError(f"cannot count {event.number}")

    source = BusSource(bus, name="here")
    bus.collection(Counted).subscribe(on_counted)
    bus.inbox("studio.Other")
    bus.publish(Counted(number=3))
    rows = [row for row in source.rows(["subscriptions"])["subscriptions"].values() if isinstance(row, SubscriptionRow)]
    assert {(row.owner, row.error) for row in rows} == {("on_counted", "ValueError: cannot count 3"), ("inbox", "")}
