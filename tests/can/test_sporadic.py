"""Hard channels for sporadic events: an empty slot is no alarm, the pace of events is kept, and losses are told."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Hard, UInt8, open_bus
from genus.bus import EventChannel
from genus.can import (
    EventMissing,
    EventsLost,
    NotSent,
    PreparedSystem,
    Scenario,
    World,
    format_system,
    parse_fault,
    parse_system,
    plan,
    simulate,
)
from genus.can.types import Calendar, Slot
from genus.errors import BusError, PlanError
from tests.examples import examples

MS = 1_000_000

SYSTEM = """
[bus]
bitrate = "1M"
[[channel]]
name = "alarms"
event = "Alarm"
node = "sensor"
class = "hard"
period = "10ms"
sporadic = true
size = 8
subscribers = ["logger"]
"""


class Alarm(Event):
    number: UInt8


class Site:
    """A world with a sensor that publishes alarms, and a logger."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sensor, logger = open_bus("sim:site?name=sensor"), open_bus("sim:site?name=logger")
        self.received: list[tuple[int, int]] = []
        self.told: list[object] = []
        self.problems: list[object] = []
        logger.collection(Alarm).subscribe(
            lambda event: self.received.append((event.number, logger.time_ns())), on_problem=self.told.append
        )
        self.alarms: EventChannel[Alarm] = self.sensor.channel(
            Alarm, "hard:10ms:sporadic", on_problem=self.problems.append
        )
        self.alarms.announce()
        assert world.run("2s", until=lambda: world.is_ready)
        world.run("30ms")
        self.told.clear()

    @property
    def slot(self) -> Slot:
        assert self.world.plan is not None
        return self.world.plan.calendar.slot("alarms")

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.received]


@pytest.fixture
def site() -> Iterator[Site]:
    with World("site", plan=parse_system(SYSTEM), catalog=[Alarm], clocks="perfect") as world:
        yield Site(world)


def test_an_empty_slot_is_no_alarm_and_an_event_comes_exactly_at_a_deadline(site: Site) -> None:
    site.world.run("500ms")
    site.alarms.publish(Alarm(number=1))
    site.world.run("500ms")
    site.alarms.publish(Alarm(number=2))
    site.world.run("500ms")
    assert site.numbers == [1, 2]
    assert all((at - site.slot.deadline_ns) % site.slot.period_ns == 0 for _, at in site.received)
    assert site.told == site.problems == []


def test_publishing_sooner_than_the_minimum_time_is_refused(site: Site) -> None:
    site.alarms.publish(Alarm(number=1))
    site.world.run("4ms")
    with pytest.raises(BusError, match=r"Alarm was published 4 ms ago; .* an event every 10 ms: publish later"):
        site.alarms.publish(Alarm(number=2))
    site.world.run("6ms")
    site.alarms.publish(Alarm(number=3))
    site.world.run("50ms")
    assert site.numbers == [1, 3]
    assert site.told == site.problems == []


def test_at_the_minimum_time_every_event_is_delivered(site: Site) -> None:
    for number in range(50):
        site.alarms.publish(Alarm(number=number))
        site.world.run("10ms")
    site.world.run("20ms")
    assert site.numbers == list(range(50))
    assert site.told == []


def test_an_event_that_could_not_be_sent_is_told_to_both_sides_soon(site: Site) -> None:
    site.alarms.publish(Alarm(number=1))
    site.world.run("20ms")
    now = site.world.now_ns
    site.world.inject(f"errors p=1 band=hard from={now}ns until={now + 20 * MS}ns")
    site.alarms.publish(Alarm(number=2))
    site.world.run("30ms")
    assert [type(each) for each in site.problems] == [NotSent]
    assert site.told == [EventsLost("Alarm", 1, 1)]
    site.alarms.publish(Alarm(number=3))
    site.world.run("2s")
    assert site.numbers == [1, 3]
    assert site.told == [EventsLost("Alarm", 1, 1)]  # once, though the next number shows it too


@pytest.mark.parametrize("followed", [True, False])
def test_an_event_that_was_sent_and_not_received_is_told_by_the_next_one_or_by_a_report(
    site: Site, followed: bool
) -> None:
    site.alarms.publish(Alarm(number=1))
    site.world.run("20ms")
    now = site.world.now_ns
    site.world.inject(f"losses p=1 band=hard from={now}ns until={now + 20 * MS}ns")
    site.alarms.publish(Alarm(number=2))
    site.world.run("25ms")
    assert site.told == []
    if followed:
        site.alarms.publish(Alarm(number=3))
        site.world.run("25ms")
    else:
        site.world.run("1.1s")
    assert site.told == [EventsLost("Alarm", 1, 1)]


@pytest.mark.parametrize(
    ("planned", "announced", "message"),
    [
        ("true", Hard("10ms"), "has Alarm sporadic, at most every 10000000 ns .*, not every 10000000 ns"),
        ("false", Hard("10ms", sporadic=True), "has Alarm every 10000000 ns .*, not sporadic, at most every"),
    ],
)
def test_a_channel_is_announced_as_it_was_planned(planned: str, announced: Hard, message: str) -> None:
    """A periodic publisher in a sporadic slot would be missed by nobody, a sporadic one in a periodic slot by all."""
    system = parse_system(SYSTEM.replace("sporadic = true", f"sporadic = {planned}"))
    with World("site", plan=system, catalog=[Alarm], clocks="perfect"):
        bus = open_bus("sim:site?name=sensor")
        with pytest.raises(BusError, match=message):
            bus.channel(Alarm, announced).announce()


def test_system_files_and_calendars_keep_the_word() -> None:
    system = parse_system(SYSTEM)
    assert parse_system(format_system(system)).channels[0].sporadic
    calendar = plan(system).calendar
    assert Calendar.parse(calendar.text()) == calendar
    assert calendar.slot("alarms").sporadic
    periodic = plan(parse_system(SYSTEM.replace("sporadic = true", ""))).calendar
    assert "sporadic" not in periodic.text()
    assert (calendar.slot("alarms").length_ns, calendar.cycle_ns) == (
        periodic.slot("alarms").length_ns,
        periodic.cycle_ns,
    )


def test_only_hard_channels_are_sporadic_in_this_sense() -> None:
    with pytest.raises(PlanError, match="sporadic is for hard channels"):
        parse_system(SYSTEM.replace('"hard"', '"soft"').replace("size = 8", 'size = 8\ndeadline = "5ms"'))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_simulated_system_keeps_its_sporadic_promises(seed: int) -> None:
    prepared = PreparedSystem.of(parse_system(SYSTEM))
    faults = (parse_fault("exactly count=1 band=hard", {}),)
    outcome = simulate(Scenario(prepared=prepared, duration=2, seed=seed, faults=faults, confinement=False))
    (alarms,) = outcome.channels
    assert 50 < alarms.published < 150
    assert alarms.sent == alarms.published
    assert list(alarms.broken()) == []
    assert outcome.problems.get("EventMissing", 0) == 0


@examples(60)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.integers(0, 30), st.integers(0, 1000))
def test_every_accepted_event_is_delivered_once_or_told(pauses: list[int], loss: int, seed: int) -> None:
    """Pauses are in tenths of a millisecond; hard frames are lost on the way with a probability."""
    faults = [f"losses p={loss / 100} band=hard from=1s"] if loss else []
    with World("site", plan=parse_system(SYSTEM), catalog=[Alarm], seed=seed, faults=faults) as world:
        site = Site(world)
        world.run("1s")
        accepted: list[int] = []
        last = -(10**18)
        for number, pause in enumerate(pauses):
            world.run(f"{pause * 100}us")
            sooner = site.sensor.time_ns() - last < 10 * MS - 20_000
            try:
                site.alarms.publish(Alarm(number=number))
                assert not sooner
                accepted.append(number)
                last = site.sensor.time_ns()
            except BusError:
                assert sooner
        world.run("2.5s")
    lost = sum(each.count for each in site.told if isinstance(each, EventsLost))
    assert site.numbers == [number for number in accepted if number in site.numbers]
    assert len(site.numbers) + lost == len(accepted)
    assert not any(isinstance(each, EventMissing) for each in site.told)
