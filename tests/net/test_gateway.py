"""Gateways between buses of one process: within it, and on a simulated CAN bus."""

import threading
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path

import pytest

from genus import BestEffort, Event, Maybe, Soft, Subscription, UInt8, open_bus, this
from genus.can import World
from genus.errors import BusError
from genus.net._gateway.gateway import Gateway, GatewaySide
from tests.waiting import wait_for


class Category(StrEnum):
    CAR = "car"
    TRUCK = "truck"


class RoadLoop(Event, tagged=("place", "category")):
    lane: UInt8
    category: Maybe[Category] = None


class SureLoop(RoadLoop):
    confidence: Maybe[UInt8] = None


class RoadSign(Event):
    text: UInt8


# -- within a process --------------------------------------------------------------------------------------------------


def test_what_is_wanted_on_the_other_bus_crosses_once_and_nothing_else() -> None:
    with open_bus() as road, open_bus() as city, Gateway(road, city) as gateway:
        inbox = city.inbox(Subscription(RoadLoop, where=this.lane > 1))
        gateway.settle()
        for lane in range(4):
            road.publish(RoadLoop(lane=lane))
            road.publish(RoadSign(text=lane))
        assert [inbox.get(1).lane for _ in range(2)] == [2, 3]
        status = gateway.status()
        assert [(side.heard, side.unwanted, side.crossed, side.asked) for side in status.sides] == [
            (2, 0, 0, 0),
            (0, 0, 2, 1),
        ]
        inbox.cancel()
        gateway.settle()
        road.publish(RoadLoop(lane=3))
        assert gateway.status().sides[0].heard == 2


def _note(got: list[tuple[int, int]], number: int, event: RoadLoop) -> None:
    got.append((number, event.lane))


def test_a_line_of_buses() -> None:
    with open_bus() as one, open_bus() as two, open_bus() as three:
        inbox = three.inbox(Subscription(RoadLoop))
        with Gateway(one, two) as first, Gateway(two, three) as second:
            for gateway in (second, first):
                gateway.settle()
            one.publish(RoadLoop(lane=1))
            assert inbox.get(1).lane == 1
            assert [first.status().sides[1].crossed, second.status().sides[1].crossed] == [1, 1]


def test_events_do_not_go_round_between_buses() -> None:
    """Both sides want everything, over two gateways and a third bus: a ring."""
    with open_bus() as one, open_bus() as two, open_bus() as three:
        got: list[tuple[int, int]] = []
        for number, bus in enumerate((one, two, three)):
            bus.subscribe(Subscription(RoadLoop), partial(_note, got, number))
        with Gateway(one, two) as first, Gateway(two, three) as second, Gateway(three, one) as third:
            for _ in range(5):
                for gateway in (first, second, third):
                    gateway.settle()
            for lane, bus in enumerate((one, two, three)):
                bus.publish(RoadLoop(lane=lane))
            assert sorted(got) == [(bus, lane) for bus in range(3) for lane in range(3)]
            assert sum(side.unwanted for gateway in (first, second, third) for side in gateway.status().sides) == 0


def test_very_many_subscriptions_are_tested_by_an_index() -> None:
    got: list[int] = []
    with open_bus() as road, open_bus() as city, Gateway(road, city) as gateway:
        for lane in range(0, 120, 2):
            city.subscribe(Subscription(RoadLoop, where=this.lane == lane), lambda event: got.append(event.lane))
        gateway.settle()
        for lane in range(120):
            road.publish(RoadLoop(lane=lane))
        assert got == list(range(0, 120, 2))
        assert gateway.status().sides[0].heard == 60


def test_a_handler_may_publish_on_the_bus_that_it_got_an_event_from() -> None:
    with open_bus() as road, open_bus() as city, Gateway(road, city) as gateway:
        city.subscribe(Subscription(RoadLoop), lambda event: city.publish(RoadSign(text=event.lane)))
        signs = road.inbox(Subscription(RoadSign))
        gateway.settle()
        for lane in range(3):
            road.publish(RoadLoop(lane=lane))
        assert [signs.get(1).text for _ in range(3)] == [0, 1, 2]


def test_last_values_cross_to_who_subscribes_later() -> None:
    with open_bus() as road, open_bus() as city, Gateway(road, city) as gateway:
        signs = road.channel(RoadSign, keep=True)
        signs.announce()
        for text in (1, 2):
            signs.publish(RoadSign(text=text, source="gate-1"))
        signs.publish(RoadSign(text=3, source="gate-2"))
        got: list[RoadSign] = []
        city.subscribe(Subscription(RoadSign), got.append)
        gateway.settle()
        assert [event.text for event in got] == [2, 3]
        later: list[RoadSign] = []
        city.subscribe(Subscription(RoadSign), later.append)
        assert [event.text for event in later] == [2, 3]
        assert len(got) == 2
        signs.forget(source="gate-1")
        gateway.settle()
        assert [event.text for event in city.last_values(Subscription(RoadSign))] == [3]
        assert len(got) == 2


def test_a_full_or_refusing_side_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with World("gw-refuse", catalog=[RoadLoop], clocks="perfect") as world:
        road, city = open_bus("sim:gw-refuse?name=gateway"), open_bus()
        side = GatewaySide(bus=road, name="road", interest=["RoadSign"])
        with Gateway(side, city) as gateway:
            world.run("0.5s")
            for text in range(3):
                city.publish(RoadSign(text=text))
            world.run("6s")
            assert gateway.status().sides[0].lost == 3
    assert len([one for one in caplog.records if "could not send a RoadSign to road" in one.getMessage()]) == 1


def test_wrong_sides_are_refused() -> None:
    with open_bus() as one, open_bus() as two:
        with pytest.raises(BusError, match="two buses or more"):
            Gateway(one)
        with pytest.raises(BusError, match="the same bus"):
            Gateway(one, one)
        with pytest.raises(BusError, match="two sides are named 'x'"):
            Gateway(GatewaySide(bus=one, name="x"), GatewaySide(bus=two, name="x"))
        with pytest.raises(BusError, match="not a rate"):
            Gateway(one, GatewaySide(bus=two, rate={RoadLoop: "often"}))
        for wrong in ({"export": ["RoadLoop"]}, {"imports": "RoadLoop"}, {"rate": {"RoadLoop": "1/s"}}):
            with pytest.raises(BusError, match=f"{next(iter(wrong))} of a side names .*; give event types"):
                GatewaySide(bus=two, **wrong)


def test_a_doubled_gateway_in_one_process_takes_over() -> None:
    with open_bus() as road, open_bus() as city:
        got: list[int] = []
        city.subscribe(Subscription(RoadLoop), lambda event: got.append(event.lane))
        first = Gateway(road, city, name="pair")
        wait_for(lambda: first.is_active)
        with Gateway(road, city, name="pair") as second:
            assert not second.is_active
            for lane in range(3):
                road.publish(RoadLoop(lane=lane))
            first.close()
            wait_for(lambda: second.is_active)
            for lane in range(3, 6):
                road.publish(RoadLoop(lane=lane))
            wait_for(lambda: len(got) >= 6)
            assert got == list(range(6))


# -- on CAN ------------------------------------------------------------------------------------------------------------


def test_a_subscription_in_the_city_becomes_an_acceptance_filter_and_nothing_crosses_without_one() -> None:
    with World("gw-filter", catalog=[RoadLoop, SureLoop, RoadSign]) as world:
        sensor, road = open_bus("sim:gw-filter?name=sensor"), open_bus("sim:gw-filter?name=gateway")
        city = open_bus()
        loops = sensor.channel(RoadLoop, Soft(deadline="20ms"))
        loops.announce()

        def filters() -> int:
            world.run("0.2s")
            return sum(mask & 0x3FFF != 0 and value & 0x3FFF >= 32 for value, mask in road.link.filters)  # type: ignore[union-attr]

        with Gateway(road, city) as gateway:
            assert filters() == 0
            for lane in range(5):
                loops.publish(RoadLoop(lane=lane))
            world.run("0.5s")
            assert gateway.status().sides[0].heard == 0
            got: list[int] = []
            listener = city.subscribe(Subscription(RoadLoop, where=this.lane > 1), lambda event: got.append(event.lane))
            assert filters() == 1
            for lane in range(5):
                loops.publish(RoadLoop(lane=lane))
            world.run("0.5s")
            assert got == [2, 3, 4]
            listener.cancel()
            assert filters() == 0
            loops.publish(RoadLoop(lane=4))
            world.run("0.5s")
            assert len(got) == 3
            assert gateway.status().sides[1].crossed == 3
            assert gateway.status().sides[0].unwanted == 0


def test_what_a_can_bus_wants_is_configured_and_its_quality_too() -> None:
    with World("gw-wants", catalog=[RoadLoop, RoadSign]) as world:
        sign, road, city = open_bus("sim:gw-wants?name=sign"), open_bus("sim:gw-wants?name=gateway"), open_bus()
        inbox = sign.inbox(Subscription(RoadSign))
        side = GatewaySide(bus=road, interest=["RoadSign where text > 1"], quality={RoadSign: Soft(deadline="50ms")})
        with Gateway(side, city) as gateway:
            world.run("0.5s")
            for text in range(4):
                city.publish(RoadSign(text=text, place="A8"))
            assert [inbox.get(1).text for _ in range(2)] == [2, 3]
            assert gateway.status().sides[0].crossed == 2
            assert gateway.status().sides[1].heard == 2
        assert world.trace is not None


def test_what_may_enter_a_can_bus_is_wanted_there_unless_more_is_said() -> None:
    """`imports` is enough for commands and requests: a node does not tell that it waits for them."""
    with World("gw-import", catalog=[RoadLoop, SureLoop, RoadSign]) as world:
        sign, road, city = open_bus("sim:gw-import?name=sign"), open_bus("sim:gw-import?name=gateway"), open_bus()
        got: list[object] = []
        sign.subscribe(Subscription(Event), got.append)
        side = GatewaySide(bus=road, imports=[RoadSign, SureLoop], interest=["SureLoop where lane > 1"])
        with Gateway(side, city) as gateway:
            gateway.settle()
            city.publish_all([RoadSign(text=1), RoadLoop(lane=2), SureLoop(lane=1), SureLoop(lane=2)])
            world.run("0.5s")
            assert got == [RoadSign(text=1), SureLoop(lane=2)]


def test_section_five_of_the_attribute_paper_holds_beyond_the_gateway() -> None:
    """The monitor gets both loops, the collector one of each pair, and the refit leaves no gap."""
    with World("gw-five", catalog=[RoadLoop, SureLoop]) as world:
        pair = [open_bus(f"sim:gw-five?name=loop{number}") for number in (1, 2)]
        road, city = open_bus("sim:gw-five?name=gateway"), open_bus()
        monitor: list[RoadLoop] = []
        collector: list[RoadLoop] = []
        city.subscribe("RoadLoop has time", monitor.append)
        city.subscribe("RoadLoop has time, place, category", collector.append)
        with Gateway(road, city) as gateway:
            first = pair[0].channel(RoadLoop, BestEffort(), carries=("time", "place"))
            second = pair[1].channel(RoadLoop, BestEffort(), carries=("time",))
            first.announce()
            second.announce()
            world.run("0.5s")
            for lane in range(10):
                first.publish(RoadLoop(lane=lane, time=road.now(), place="A8/km31", category=Category.CAR))
                second.publish(RoadLoop(lane=lane, time=road.now()))
                world.run("0.05s")
            assert [len(monitor), len(collector)] == [20, 10]
            newer = open_bus("sim:gw-five?name=loop1b")
            refit = newer.channel(SureLoop, BestEffort(), carries=("time", "place"))
            refit.announce()
            first.cancel()
            pair[0].close()
            for lane in range(10, 20):
                refit.publish(
                    SureLoop(lane=lane, time=road.now(), place="A8/km31", category=Category.TRUCK, confidence=90)
                )
                second.publish(RoadLoop(lane=lane, time=road.now()))
                world.run("0.05s")
            assert [len(monitor), len(collector)] == [40, 20]
            assert [event.lane for event in collector] == list(range(20))
            sure: list[SureLoop] = []
            city.subscribe("SureLoop has confidence", sure.append)
            world.run("0.1s")
            refit.publish(SureLoop(lane=20, time=road.now(), place="A8/km31", category=Category.CAR, confidence=80))
            world.run("0.1s")
            assert [len(collector), len(sure)] == [21, 1]
            assert gateway.status().sides[0].unwanted == 0


def test_two_gateways_on_one_can_bus_hand_up_once_and_the_standby_takes_over() -> None:
    with World("gw-pair", catalog=[RoadLoop]) as world:
        sensor, city = open_bus("sim:gw-pair?name=sensor"), open_bus()
        roads = [open_bus(f"sim:gw-pair?name=gateway{number}") for number in (1, 2)]
        got: list[int] = []
        city.subscribe(Subscription(RoadLoop), lambda event: got.append(event.lane))
        loops = sensor.channel(RoadLoop, BestEffort())
        loops.announce()
        first = Gateway(GatewaySide(bus=roads[0], name="road"), GatewaySide(bus=city, name="city"), name="pair")
        world.run("2s")
        second = Gateway(GatewaySide(bus=roads[1], name="road"), GatewaySide(bus=city, name="city"), name="pair")
        world.run("2s")
        assert [first.is_active, second.is_active] == [True, False]
        for lane in range(5):
            loops.publish(RoadLoop(lane=lane))
            world.run("0.02s")
        assert got == list(range(5))
        first.close()
        world.run("0.5s")
        assert second.is_active
        for lane in range(5, 10):
            loops.publish(RoadLoop(lane=lane))
            world.run("0.02s")
        assert got == list(range(10))
        second.close()


def test_a_live_can_bus(tmp_path: Path) -> None:
    pytest.importorskip("can")
    from genus import Catalog

    catalog = tmp_path / "city.json"
    Catalog.update(catalog, RoadLoop, RoadSign)
    address = f"can:virtual?channel={tmp_path.name}&catalog={catalog}&synchronised=no"
    with (
        open_bus(f"{address}&number=1") as sensor,
        open_bus(f"{address}&number=2") as road,
        open_bus() as city,
        Gateway(GatewaySide(bus=road, name="road", interest=["RoadSign"]), city) as gateway,
    ):
        inbox, signs = city.inbox(Subscription(RoadLoop, where=this.lane > 1)), sensor.inbox(Subscription(RoadSign))
        gateway.settle()
        loops = sensor.channel(RoadLoop, Soft(deadline="1s"))
        loops.announce()
        for lane in range(4):
            loops.publish(RoadLoop(lane=lane))
        assert [inbox.get(10).lane for _ in range(2)] == [2, 3]
        city.publish(RoadSign(text=7))
        assert signs.get(10).text == 7
        road.publish(RoadLoop(lane=9))
        assert inbox.get(10).lane == 9, "the gateway's own program is a node of the bus too"


def test_threads_that_publish_and_subscribe_at_once() -> None:
    """Every publisher's events cross once and in order, while others subscribe and cancel."""
    got: list[tuple[str | None, int]] = []
    with open_bus() as road, open_bus() as city, Gateway(road, city) as gateway:
        city.subscribe(Subscription(RoadLoop, has="source"), lambda event: got.append((event.source, event.lane)))
        gateway.settle()

        def publish(name: str) -> None:
            for lane in range(200):
                road.publish(RoadLoop(lane=lane, source=name))

        def change() -> None:
            for lane in range(30):
                listener = city.subscribe(Subscription(RoadLoop, where=this.lane == lane), lambda event: None)
                gateway.settle()
                listener.cancel()

        calls: list[Callable[[], None]] = [*(partial(publish, f"p{number}") for number in range(3)), change]
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_for(lambda: len(got) >= 600)
        for number in range(3):
            assert [lane for name, lane in got if name == f"p{number}"] == list(range(200))
        side = gateway.status().sides[1]
        assert (side.crossed, side.lost, gateway.status().sides[0].duplicates) == (600, 0, 0)
