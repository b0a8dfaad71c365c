"""Few or many subscriptions, changed at any time and by any thread: every event reaches exactly those that match."""

import gc
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from genus import Event, Kind, Listener, Maybe, Subscription, all_of, open_bus, this
from genus.bus import _audience, _class_route
from genus.bus._class_route import ClassRoute
from genus.bus.types import Counters
from genus.errors import EventError, QueueFull
from genus.filters.types import Predicate
from genus.targets.index import _family_index as family_index
from genus.targets.index import _segments as segments
from genus.targets.index._family_index import FamilyIndex
from tests.examples import some_of


class Roadside(Kind): ...


class Heavy(Kind): ...


class Vehicle(Event, Roadside):
    speed: float
    lane: int
    label: Maybe[str] = None
    load: Maybe[float] = None


class Lorry(Vehicle, Heavy):
    axles: Maybe[int] = None


class Lamp(Event, Roadside):
    watts: float


def random_test(rng: random.Random) -> Predicate:
    number = rng.randrange(6)
    return rng.choice(
        [
            this.lane == number,
            this.lane.isin([number, number + 1]),
            this.speed > number,
            this.speed.between(number, number + 1.5),
            this.label.contains(f"{number}"),
            this.label == f"a{number}",
            (this.speed > number) | (this.lane == number),
            this.speed * 2 + this.lane > number,
            this.load.is_present(),
            ~(this.load > number),
        ]
    )


def random_subscription(rng: random.Random) -> Subscription:
    match rng.randrange(8):
        case 0:
            return Subscription(rng.choice([Event, Roadside, Heavy]), exact=rng.random() < 0.2)
        case 1:
            return Subscription(Lamp, where=this.watts > rng.randrange(6))
        case 2:
            return Subscription(all_of(Vehicle, Heavy), has="label")
    where = random_test(rng)
    for _ in range(rng.randrange(3)):
        where = where & random_test(rng)
    return Subscription(rng.choice([Vehicle, Lorry]), exact=rng.random() < 0.2, where=where)


def random_event(rng: random.Random) -> Event:
    if rng.random() < 0.2:
        return Lamp(watts=rng.random() * 6)
    label, load = rng.choice([None, "a1", "a2", "345"]), rng.choice([None, 2.5])
    values: dict[str, Any] = {"speed": rng.random() * 6, "lane": rng.randrange(6), "label": label, "load": load}
    return Vehicle(**values) if rng.random() < 0.6 else Lorry(**values)


@pytest.fixture(params=["natural", "eager"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager: code and index come and go after a few events and subscriptions."""
    if request.param == "eager":
        monkeypatch.setattr("genus.bus._audience.FEW", 6)
        monkeypatch.setattr(_class_route, "FEW", 3)
        monkeypatch.setattr(_class_route, "QUIET", 1)
        monkeypatch.setattr(_class_route, "MAX_GENERATIONS", 2)
        monkeypatch.setattr(family_index, "LARGE_BUCKET", 2)
        monkeypatch.setattr(segments, "PENDING", 5)
        monkeypatch.setattr(segments, "MIN_INTERVALS", 2)
        monkeypatch.setattr(segments, "SMALL", 8)


class Recorded:
    """A listener and the events it got."""

    def __init__(self, bus: Any, subscription: Subscription) -> None:
        self.events: list[Event] = []
        self.wanted: list[Event] = []
        self.listener: Listener[Any] = bus.subscribe(subscription, self.events.append)

    def check(self) -> None:
        assert self.events == self.wanted, str(self.listener.subscription)
        assert self.listener.counters.delivered == len(self.wanted)


def churn(rng: random.Random, steps: int, events: int = 3) -> int:
    """Subscribe, cancel and publish at random; returns how many comparisons of an event with a listener were made."""
    live: list[Recorded] = []
    gone: list[Recorded] = []
    compared = 0
    with open_bus() as bus:
        for _ in range(steps):
            action = rng.random()
            if action < 0.25 or not live:
                live += [Recorded(bus, random_subscription(rng)) for _ in range(rng.choice([1, 1, 1, 20]))]
            elif action < 0.45:
                for _ in range(min(len(live), rng.choice([1, 1, 1, 30]))):
                    gone.append(live.pop(rng.randrange(len(live))))
                    gone[-1].listener.cancel()
            for _ in range(rng.randrange(events)):
                event = random_event(rng)
                for one in live:
                    if one.listener.subscription.matches(event):
                        one.wanted.append(event)
                bus.publish(event)
                compared += len(live)
        for one in live + gone:
            one.check()
        published = sum(bus.traffic().published.values())
        counted = sum(counts.delivered for counts in bus.traffic().subscriptions.values())
        assert counted == sum(len(one.wanted) for one in live)
        assert published <= steps * events
    return compared


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
@pytest.mark.parametrize("seed", range(4))
def test_every_event_reaches_exactly_those_that_match_while_subscriptions_change(sizes: None, seed: int) -> None:
    churn(random.Random(seed), steps=200)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_million_comparisons_under_change(sizes: None) -> None:
    compared, seed = 0, 0
    while compared < 1_000_000:
        compared += churn(random.Random(seed), steps=3_000, events=6)
        seed += 1


def routes_of(bus: Any) -> dict[type, ClassRoute]:
    routes: dict[type, ClassRoute] = bus._router._routes
    return routes


def test_few_subscriptions_get_code_again_when_they_have_not_changed_for_a_while() -> None:
    with open_bus() as bus:
        bus.collection(Vehicle).subscribe(lambda _: None, where=this.lane == 1)
        publish = bus.publish
        publish(Vehicle(speed=1.0, lane=1))
        route = routes_of(bus)[Vehicle]
        assert route._code is not None
        listener = bus.collection(Roadside).subscribe(lambda _: None)
        assert route._code is None
        for _ in range(4 * _class_route.QUIET + 4):
            publish(Vehicle(speed=1.0, lane=1))
        assert route._code is not None
        assert listener.counters.delivered == 4 * _class_route.QUIET + 4
        assert bus.traffic().published == {"Vehicle": 4 * _class_route.QUIET + 5}


def test_deliveries_of_very_many_classes_are_all_counted() -> None:
    """A listener to all events is in the generated code of every class."""
    metaclass: Any = type(Event)
    classes = [metaclass(f"Sensor{n}", (Event,), {"__annotations__": {}}) for n in range(40)]
    with open_bus() as bus:
        listener = bus.collection(Event).subscribe(lambda _: None)
        for turn in range(3):
            for cls in classes:
                bus.publish(cls())
            bus.collection(classes[turn]).subscribe(lambda _: None)
        assert listener.counters.delivered == 120


def test_a_change_compiles_nothing_however_many_subscriptions_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_bus() as bus:
        for number in range(500):
            bus.collection(Vehicle).subscribe(lambda _: None, where=this.speed > number)
        bus.publish(Vehicle(speed=1.0, lane=1))
        monkeypatch.setattr("builtins.exec", lambda *_: pytest.fail("code was generated"))
        found: list[Any] = []
        for number in range(20):
            listener = bus.collection(Vehicle).subscribe(found.append, where=this.speed > number)
            bus.publish(Vehicle(speed=19.5, lane=1))
            listener.cancel()
            bus.publish(Vehicle(speed=19.5, lane=1))
        assert len(found) == 20


def test_many_handlers_without_conditions_get_code_too() -> None:
    with open_bus() as bus:
        seen: list[Any] = []
        for _ in range(3 * _audience.FEW):
            bus.collection(Lamp).subscribe(seen.append)
        bus.publish(Lamp(watts=1.0))
        assert len(seen) == 3 * _audience.FEW
        assert routes_of(bus)[Lamp]._code is not None


@contextmanager
def many_others(bus: Any, count: int) -> Iterator[None]:
    listeners = [bus.collection(Vehicle).subscribe(lambda _: None, where=this.lane == n) for n in range(count)]
    yield
    for listener in listeners:
        listener.cancel()


@pytest.mark.parametrize("others", [0, 100])
@pytest.mark.parametrize("before", [0, 1], ids=["first event", "later event"])
class TestIsolation:
    """What one subscription or handler does wrong affects no other."""

    def test_a_value_of_the_wrong_type_is_raised_when_those_that_do_not_test_it_have_the_event(
        self, others: int, before: int
    ) -> None:
        with open_bus() as bus, many_others(bus, others):
            found: list[str] = []
            vehicles = bus.collection(Vehicle)
            vehicles.subscribe(lambda _: found.append("all"))
            tested = vehicles.subscribe(lambda _: found.append("fast"), where=this.speed > 3)
            vehicles.subscribe(lambda _: found.append("labelled"), where=this.label == "a")
            for _ in range(before):
                bus.publish(Vehicle(speed=9.0, lane=1, label="a"))
            found.clear()
            with pytest.raises(EventError, match=r"Vehicle\.speed is 'fast', but must be float64"):
                bus.publish(Vehicle(speed="fast", lane=1, label="a"))  # type: ignore[arg-type]
            assert sorted(found) == ["all", "labelled"]
            assert tested.counters.delivered == before
            bus.publish(Vehicle(speed=9.0, lane=1, label="a"))
            assert sorted(found) == ["all", "all", "fast", "labelled", "labelled"]

    def test_a_test_that_fails_is_reported_to_its_listener_and_does_not_blame_the_event(
        self, others: int, before: int
    ) -> None:
        """A subscription is checked when it is made, so that one that fails is made here by force."""
        reports: list[Any] = []
        with open_bus(on_error=lambda *report: reports.append(report)) as bus, many_others(bus, others):
            found: list[Any] = []
            asked = Subscription(Vehicle, where=this.label < "b")
            part: Any = asked.where
            object.__setattr__(asked, "where", type(part)(part.op, part.left, type(part.right)(5, part.right.type)))
            bad = bus.subscribe(asked, found.append)
            bus.collection(Vehicle).subscribe(found.append)
            for _ in range(before + 1):
                bus.publish(Vehicle(speed=9.0, lane=1, label="a"))
            assert len(found) == before + 1
            assert [listener for listener, _, _ in reports] == [bad] * (before + 1)
            assert bad.counters.failed == before + 1


@pytest.mark.parametrize("matching", [3, 100])
@pytest.mark.parametrize("others", [0, 100])
def test_a_handler_that_fails_is_reported_as_that_listeners_and_all_others_are_called(
    others: int, matching: int
) -> None:
    """The first, the last and one between; what a full queue refuses is for the publisher, when all were served."""
    reports: list[tuple[Listener[Any], str]] = []

    def fail(event: Vehicle) -> None:
        raise LookupError(event.lane)

    with open_bus(on_error=lambda one, event, problem: reports.append((one, str(problem)))) as bus:
        found: list[Any] = []
        vehicles = bus.collection(Vehicle)
        failing = [vehicles.subscribe(fail, where=this.lane > 2)]
        vehicles.inbox(where=this.speed > 1, capacity=1, overflow="raise")
        for number in range(matching):
            vehicles.subscribe(found.append, where=this.lane > 4 - number % 2)
            if number == matching // 2:
                failing.append(vehicles.subscribe(fail, where=this.lane < 9))
        failing.append(vehicles.subscribe(fail, where=this.speed < 7))
        with many_others(bus, others):
            bus.publish(Vehicle(speed=2.0, lane=7))
            with pytest.raises(QueueFull):
                bus.publish(Vehicle(speed=2.0, lane=8))
        assert len(found) == 2 * matching
        assert sorted(text for _, text in reports[:6]) == ["7"] * 3 + ["8"] * 3
        assert {one for one, _ in reports} == {*failing}
        assert [one.counters.failed for one in failing] == [2, 2, 2]
        assert failing[0].last_error == "LookupError: 8"


def run_threads(*bodies: Callable[[], None]) -> None:
    """Run functions at the same time; what one raises is raised here."""
    problems: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=guarded, args=[body]) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def threads_publish_and_change(rounds: int, others: int) -> int:
    """Eight threads subscribe, publish and cancel; returns how many events each of them checked in all."""
    with open_bus() as bus:
        for number in range(others):
            bus.collection(Vehicle).subscribe(lambda _: None, where=this.lane == number)
        staying: list[int] = []
        witness = bus.subscribe(Subscription(Vehicle), lambda event: staying.append(event.lane))

        def body(number: int) -> Callable[[], None]:
            def run() -> None:
                rng = random.Random(number)
                for turn in range(rounds):
                    got: list[Event] = []
                    name = f"<{number} {turn}>"
                    where = rng.choice(
                        [this.label == name, this.label.contains(name), (this.label == name) & (this.lane == number)]
                    )
                    listener = bus.subscribe(Subscription(Vehicle, where=where), got.append)
                    sent = [Vehicle(speed=0.0, lane=number, label=f" {name}"[rng.random() < 2 :]) for _ in range(3)]
                    for event in sent:
                        bus.publish(event)
                    listener.cancel()
                    bus.publish(sent[0])
                    assert got == sent
                    assert listener.counters.delivered == 3

            return run

        run_threads(*map(body, range(8)))
        assert len(staying) == witness.counters.delivered == 8 * rounds * 4
        assert bus.traffic().published == {"Vehicle": 8 * rounds * 4}
    return 8 * rounds * 4


@pytest.mark.parametrize("others", [0, 200])
def test_threads_lose_and_double_nothing(sizes: None, frequent_switches: None, others: int) -> None:
    threads_publish_and_change(rounds=25, others=others)


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 1000])
def test_threads_lose_and_double_nothing_of_a_million_events(sizes: None, others: int) -> None:
    checked = 0
    while checked < 250_000:
        checked += threads_publish_and_change(rounds=1_000, others=others)


def test_collections_are_cancelled_and_drained_while_others_subscribe(frequent_switches: None) -> None:
    with open_bus() as bus:
        vehicles = bus.collection(Vehicle)
        stop = threading.Event()

        def subscribe() -> None:
            for number in range(300):
                vehicles.subscribe(lambda _: None, where=this.lane == number)
            stop.set()

        def cancel() -> None:
            while not stop.is_set():
                vehicles.cancel()
                bus.traffic()

        def drain() -> None:
            import asyncio

            while not stop.is_set():
                asyncio.run(bus.wait_idle_async())

        run_threads(subscribe, cancel, cancel, drain)
        vehicles.cancel()
        bus.publish(Vehicle(speed=1.0, lane=1))
        assert bus.traffic().subscriptions == {}


def test_a_cancelled_listener_is_not_kept_in_an_index_that_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread cancels a listener after it was listed and before it is added."""
    monkeypatch.setattr("genus.bus._audience.FEW", 1)
    with open_bus() as bus:
        found: list[Any] = []
        first = bus.collection(Vehicle).subscribe(found.append)
        first.is_cancelled = True  # as `cancel` does before it takes a lock
        bus.collection(Vehicle).subscribe(lambda _: None, where=this.lane == 1)
        bus.collection(Vehicle).subscribe(lambda _: None, where=this.lane == 2)
        first.cancel()
        bus.publish(Vehicle(speed=1.0, lane=1))
    assert found == []


def test_without_numpy_subscriptions_are_served_alike_and_a_warning_says_what_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "genus.targets.index", None)
    monkeypatch.setattr("genus.bus._router.MANY_WITHOUT_INDEX", 100)
    with open_bus() as bus:
        found: list[int] = []

        def handler(number: int) -> Callable[[Vehicle], None]:
            return lambda _: found.append(number)

        for number in range(99):
            bus.collection(Vehicle).subscribe(handler(number), where=this.lane == number % 10)
        with pytest.warns(RuntimeWarning, match="100 subscriptions in one family are tested one after the other"):
            bus.collection(Vehicle).subscribe(lambda _: found.append(99), where=this.lane == 9)
        bus.publish(Vehicle(speed=1.0, lane=9))
        assert sorted(found) == list(range(9, 100, 10))


class TestStamping:
    def test_time_and_source_are_filled_in_where_they_are_absent(self) -> None:
        noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
        with open_bus(source="gate-7", stamp=True) as bus:
            found: list[Event] = []
            bus.collection(Event).subscribe(found.append)
            before = bus.now()
            bus.publish(Lamp(watts=1.0))
            bus.collection(Lamp).publish(Lamp(watts=2.0, source="hall", time=noon))
            first, second = found
        assert first.source == "gate-7"
        assert first.time is not None
        assert before <= first.time <= datetime.now(UTC)
        assert (second.source, second.time) == ("hall", noon)

    def test_subscriptions_see_what_was_filled_in(self) -> None:
        with open_bus(source="gate-7") as bus:
            inbox = bus.collection(Lamp).inbox(has="source", lacks="time", where=this.source == "gate-7")
            for watts in (1.0, 2.0):
                bus.publish(Lamp(watts=watts))
            assert [inbox.get(0).watts for _ in range(2)] == [1.0, 2.0]

    def test_a_channel_stamps_as_well(self) -> None:
        with open_bus(source="gate-7") as bus, bus.channel(Lamp) as lamps:
            inbox = bus.collection(Lamp).inbox()
            lamps.publish(Lamp(watts=1.0))
            assert inbox.get(0).source == "gate-7"

    def test_without_options_an_event_is_delivered_as_it_is(self) -> None:
        with open_bus() as bus:
            inbox = bus.collection(Lamp).inbox()
            event = Lamp(watts=1.0)
            bus.publish(event)
            assert inbox.get(0) is event

    @pytest.mark.parametrize("source", [7, "\ud800"])
    def test_a_source_that_no_event_can_carry_is_refused(self, source: Any) -> None:
        from genus.errors import BusError

        with pytest.raises(BusError, match="is not text that events can carry"):
            open_bus(source=source)


class TestWhatOthersDoInTheMeantime:
    def test_a_new_audience_is_seen_though_an_older_plan_is_finished_after_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A plan is being made by another thread when somebody subscribes to a type that nobody asked for before."""
        with open_bus() as bus:
            for _ in range(_audience.FEW + 2):
                bus.subscribe(Subscription(Heavy, has="place"), id)  # kinds have an index
            bus.collection(Vehicle).subscribe(id, where=this.speed * 2 > 1)
            bus.publish(Vehicle(speed=1.0, lane=1))
            bus.collection(Vehicle).subscribe(id, where=this.speed * 3 > 1)
            found: list[Event] = []
            make_matcher = Listener.matcher

            def subscribe_first(listener: Listener[Any], cls: type) -> Any:
                monkeypatch.setattr(Listener, "matcher", make_matcher)
                bus.collection(Event).subscribe(found.append)
                return make_matcher(listener, cls)

            monkeypatch.setattr(Listener, "matcher", subscribe_first)
            bus.publish(Vehicle(speed=1.0, lane=1))
            found.clear()
            bus.publish(Vehicle(speed=1.0, lane=1))
            assert len(found) == 1

    @pytest.mark.parametrize("action", ["cancel", "subscribe", "publish", "counters"])
    def test_a_finalizer_may_use_the_bus_while_its_thread_is_in_the_index(
        self, action: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Garbage is collected, and signals are handled, at any time."""
        with open_bus() as bus:
            found: list[Event] = []
            listeners = [bus.collection(Vehicle).subscribe(found.append, where=this.lane == n) for n in range(100)]
            select = FamilyIndex._shape

            def interrupted(*arguments: Any) -> Any:
                monkeypatch.setattr(FamilyIndex, "_shape", select)
                actions: dict[str, Callable[[], Any]] = {
                    "cancel": listeners[2].cancel,
                    "subscribe": lambda: bus.collection(Vehicle).subscribe(found.append, where=this.lane == 2),
                    "publish": lambda: bus.publish(Vehicle(speed=1.0, lane=2)),
                    "counters": lambda: listeners[2].counters,
                }
                actions[action]()
                return select(*arguments)

            monkeypatch.setattr(FamilyIndex, "_shape", interrupted)
            bus.publish(Vehicle(speed=1.0, lane=1))
            bus.publish(Vehicle(speed=1.0, lane=2))
            expected = {"cancel": [1], "subscribe": [1, 2, 2], "publish": [1, 2, 2], "counters": [1, 2]}[action]
            assert sorted(event.lane for event in found if isinstance(event, Vehicle)) == expected


@pytest.mark.parametrize("count", [3, 200])
class TestMemory:
    def test_cancelled_listeners_are_not_kept(self, count: int) -> None:
        class Owner:
            def handle(self, _: Event) -> None: ...

        with open_bus() as bus:
            owners = [Owner() for _ in range(count)]
            alive = [weakref.ref(owner) for owner in owners]
            for number, owner in enumerate(owners):
                bus.collection(Vehicle).subscribe(owner.handle, where=this.lane == number)
            bus.publish(Vehicle(speed=1.0, lane=1))
            del owner
            owners.clear()
            bus.collection(Vehicle).cancel()
            bus.publish(Vehicle(speed=1.0, lane=1))
            gc.collect()
            assert not any(one() for one in alive)

    def test_subscriptions_that_come_and_go_leave_nothing(self, count: int) -> None:
        with open_bus() as bus:
            for number in range(count):
                bus.collection(Vehicle).subscribe(id, where=this.lane == number)
            for number in range(400):
                where = this.speed * 2 > 1
                for _ in range(number % 40):
                    where = where | (this.lane == number)
                bus.collection(Vehicle).subscribe(id, where=where & (this.load * number > 1)).cancel()
            for family in bus._router._families.values():
                if family.index is not None:
                    assert len(family.index._listeners) <= count + 2
                    assert len(family.index._index.forms._known) <= 70

    def test_a_handler_that_ends_the_program_leaves_no_handles_in_use(self, count: int) -> None:
        def interrupt(_: Event) -> None:
            raise KeyboardInterrupt

        with open_bus() as bus:
            for number in range(count):
                bus.collection(Vehicle).subscribe(id, where=this.lane == number)
            stop = bus.collection(Event).subscribe(interrupt)
            with pytest.raises(KeyboardInterrupt):
                bus.publish(Vehicle(speed=1.0, lane=1))
            stop.cancel()
            for family in bus._router._families.values():
                assert family.index is None or not family.index._calling


class TestQueues:
    def test_an_event_with_a_wrong_value_is_the_publishers_error(self) -> None:
        with open_bus(on_error=lambda listener, event, problem: listener.cancel()) as bus:
            jobs = bus.collection(Vehicle, "queue")
            tested = jobs.subscribe(id, where=this.speed > 1)
            found: list[Event] = []
            jobs.subscribe(found.append)
            with pytest.raises(EventError, match=r"Vehicle\.speed is 'fast'"):
                jobs.publish(Vehicle(speed="fast", lane=1))  # type: ignore[arg-type]
            assert len(found) == 1
            assert tested.counters.failed == 0

    def test_an_event_goes_to_another_consumer_if_the_one_that_it_waits_for_is_cancelled(self) -> None:
        with open_bus() as bus:
            jobs = bus.collection(Vehicle, "queue")
            one, two = jobs.inbox(capacity=1, overflow="block"), jobs.inbox(capacity=10, overflow="block")
            for lane in (0, 1):
                jobs.publish(Vehicle(speed=1.0, lane=lane))
            publisher = threading.Thread(target=jobs.publish, args=[Vehicle(speed=1.0, lane=2)])
            publisher.start()
            publisher.join(0.05)
            one.cancel()
            publisher.join(60)
            assert sorted(event.lane for inbox in (one, two) for event in drained(inbox)) == [0, 1, 2]
            assert one.counters == Counters(delivered=2, failed=0, dropped=1, waiting=0)
            assert two.counters == Counters(delivered=2, failed=0, dropped=0, waiting=0)


def drained(inbox: Any) -> list[Any]:
    inbox.cancel()
    return list(inbox)


WRONG: list[dict[str, Any]] = [
    {"lane": "x"}, {"lane": [1]}, {"lane": 1.5}, {"lane": True}, {"lane": None}, {"speed": None}, {"speed": "fast"},
    {"label": 3}, {"label": b"a1"}, {"load": "heavy"}, {"load": {}}, {"lane": "x", "label": 3},
]  # fmt: skip


@pytest.mark.parametrize("seed", some_of(range(12), 12))
def test_a_wrong_value_keeps_the_event_only_from_those_who_cannot_test_it(seed: int) -> None:
    """Of few or many subscriptions: all others get the event, and then `publish` raises EventError."""
    rng = random.Random(seed)
    tests = [None, *(random_test(rng) for _ in range(9))]
    for wrong in WRONG if seed else WRONG[::3]:
        event = Vehicle(**{"speed": 2.5, "lane": 1, "label": "a1", "load": 2.0, **wrong})
        expected = [served(test, event) for test in tests]
        for more in (0, 100):
            with open_bus(on_error=lambda *report: pytest.fail(f"{report}")) as bus:
                listeners = [bus.collection(Vehicle).subscribe(id, where=test) for test in tests]
                for number in range(more):
                    bus.collection(Vehicle).subscribe(id, where=this.lane == 1000 + number)
                for count in (1, 2):  # the first event, and one that meets code or an index
                    is_refused = False
                    try:
                        bus.publish(event)
                    except EventError:
                        is_refused = True
                    assert is_refused == (None in expected), (wrong, more)
                    assert [one.counters.delivered for one in listeners] == [count * bool(each) for each in expected]


def served(test: Predicate | None, event: Event) -> bool | None:
    """Whether a predicate matches; None if it cannot be tested."""
    try:
        return test is None or Subscription(Vehicle, where=test).matches(event)
    except Exception:
        return None
