"""Frames of databases on a bus, without I/O: what is received, filtered, sent, and sent again every period."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Subscription, this
from genus.can import Frame, Timing, load_dbc, read_log
from genus.can._foreign import ForeignMachine
from genus.can._foreign_receiver import NOT_WANTED, Databases, Filters, filters_of, fit_filters, pair_of, traffic_of
from genus.can._foreign_sender import MAX_WAITING
from genus.can._live.interfaces import profile_of
from genus.can._live.port import DriverPort
from genus.can._machine import EVENT_TRIGGERED, FOREIGN, Accept, Call, Load, Output
from genus.can._node.problems import BusOff
from genus.can._wire.frame import Identifier, arbitration_key
from genus.can.types import MessageLayout
from genus.errors import BusError, DbcError, EventError, QueueFull
from genus.targets.can import Pair
from tests.can.test_dbc import TESLA, needs_data
from tests.examples import examples

CAR = """VERSION ""
NS_ :
BS_:
BU_: Ecu Dash

BO_ 256 Drive: 4 Ecu
 SG_ speed : 0|16@1+ (0.01,0) [0|0] "km/h" Dash
 SG_ gear : 16|4@1- (1,0) [0|0] "" Dash

BO_ 257 Lamp: 1 Dash
 SG_ on : 0|1@1+ (1,0) [0|0] "" Ecu

BO_ 2147483905 Wide: 8 Ecu
 SG_ value : 7|16@0+ (1,0) [0|0] "" Dash

BO_ 512 Slow: 1 Ecu
 SG_ level : 0|8@1+ (1,0) [0|0] "" Dash

BO_ 513 Fat: 24 Ecu
 SG_ n : 0|8@1+ (1,0) [0|0] "" Dash

BA_DEF_ BO_ "GenMsgCycleTime" INT 0 65535;
BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN","reserved","J1939PG",FILL"StandardCAN_FD";
BA_DEF_DEF_ "GenMsgCycleTime" 0;
BA_DEF_DEF_ "VFrameFormat" "StandardCAN";
BA_ "GenMsgCycleTime" BO_ 256 10;
BA_ "VFrameFormat" BO_ 2147483905 1;
BA_ "VFrameFormat" BO_ 513 14;
""".replace("FILL", '"r",' * 10)

MS = 1_000_000
CLASSIC = Timing(500_000)


@pytest.fixture
def car(tmp_path: Path) -> Path:
    path = tmp_path / "Car.dbc"
    path.write_text(CAR)
    return path


@pytest.fixture(scope="module")
def shared_car(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "Car.dbc"
    path.write_text(CAR)
    return path


class Driven:
    """A machine under a driver that sends the mailbox at once, and what it did."""

    def __init__(self, path: Path, *, timing: Timing = CLASSIC, **options: Any) -> None:
        self.events: list[Any] = []
        self.databases = Databases([load_dbc(path, reuse=True)])
        self.types: Any = self.databases.types
        self.machine = ForeignMachine(self.databases, timing, on_event=self.events.append, **options)
        self.sent: list[tuple[int, Frame]] = []
        self.filters: Accept | None = None
        self.mailbox: Frame | None = None
        self.now = 0
        self.holds = False
        """Whether the bus is busy, so that nothing is sent."""
        self.run()

    def run(self) -> None:
        while outputs := self.machine.take():
            for output in outputs:
                self._handle(output)
            self.send()

    def _handle(self, output: Output) -> None:
        if isinstance(output, Call):
            output.handler(*output.arguments)
        elif isinstance(output, Accept):
            self.filters = output
        else:
            assert output.mailbox == FOREIGN
            self.mailbox = output.frame

    def send(self) -> None:
        if self.mailbox is not None and not self.holds:
            frame, self.mailbox = self.mailbox, None
            self.sent.append((self.now, frame))
            self.machine.sent(frame, self.now)

    def call(self, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        found = action(*arguments, now=self.now, **options)
        self.run()
        return found

    def until(self, ends: int) -> None:
        while (at := self.machine.wake_at) is not None and at <= ends:
            self.now = max(self.now, at)
            self.machine.wake(self.now)
            self.run()
        self.now = ends

    def receive(self, frame: Frame) -> None:
        self.machine.receive(frame, self.now)
        self.run()

    def subscribe(self, *types: type, **options: Any) -> Any:
        return self.call(self.machine.subscribe, Subscription(*types, **options))

    def publish(self, event: Event, period_ns: int | None = None) -> None:
        if type(event) not in self.machine.tx.channels:
            self.call(self.machine.announce, type(event), period_ns)
        self.call(self.machine.publish, event)


@pytest.fixture
def driven(car: Path) -> Driven:
    return Driven(car)


# -- receiving ---------------------------------------------------------------------------------------------------------


def test_frames_of_the_database_become_events_of_those_who_subscribed(driven: Driven) -> None:
    driven.subscribe(driven.types["Drive"])
    driven.now = 1_700_000_000_123_456_789
    driven.receive(Frame(256, bytes.fromhex("e8030f00"), extended=False))
    (event,) = driven.events
    assert isinstance(event, driven.types["Drive"])
    assert (event.speed, event.gear, event.source) == (10.0, -1, "Ecu")
    assert event.time is not None
    assert event.time.isoformat() == "2023-11-14T22:13:20.123456+00:00"


def test_every_frame_is_an_event_or_counted_with_its_reason(driven: Driven) -> None:
    driven.subscribe(driven.types["Drive"])
    driven.receive(Frame(256, b"\0\0", extended=False))
    driven.receive(Frame(257, b"\1", extended=False))
    driven.receive(Frame(256, b"\0\0\0\0", extended=True))
    driven.receive(Frame(700, b"", extended=False))
    assert driven.events == []
    assert driven.machine.dropped() == {
        "Drive: too short: 2 of 4 bytes": 1,
        NOT_WANTED: 1,
        "unknown identifier": 2,
    }


def test_nothing_is_sent_by_itself(driven: Driven) -> None:
    """A listener on the bus of others must not disturb it: no claims, no requests, no reports, no clock."""
    driven.subscribe(Event)
    driven.until(60_000 * MS)
    driven.receive(Frame(Identifier(251, 5, 5).pack(), b"12345678"))
    driven.until(120_000 * MS)
    driven.call(driven.machine.close)
    assert driven.sent == []
    assert driven.machine.wake_at is None


def test_filters_accept_the_identifiers_that_somebody_subscribed_to(driven: Driven) -> None:
    assert driven.filters == Accept(((0x1FFFFFFF, 0x1FFFFFFF),)), "no filters would mean all frames"
    lamp = driven.subscribe(driven.types["Lamp"])
    assert driven.filters == Accept((), ((257, 0x7FF),))
    driven.subscribe(driven.types["Drive"], where=this.speed > 3)
    assert driven.filters == Accept((), ((256, 0x7FE),))
    driven.subscribe(driven.types["Wide"])
    assert driven.filters == Accept(((257, 0x1FFFFFFF),), ((256, 0x7FE),))
    driven.call(driven.machine.cancel, lamp)
    assert driven.filters == Accept(((257, 0x1FFFFFFF),), ((256, 0x7FF),))


def test_a_kind_and_event_mean_all_messages(driven: Driven) -> None:
    for wanted in (driven.types["Car"], Event):
        interest = driven.subscribe(wanted)
        assert driven.filters is not None
        assert driven.filters.standard == ((256, 0x7FE), (512, 0x7FE))
        driven.call(driven.machine.cancel, interest)


def test_one_filter_cannot_accept_both_lengths_of_identifiers(car: Path) -> None:
    driven = Driven(car, banks=1)
    driven.subscribe(driven.types["Drive"])
    with pytest.raises(BusError, match="one filter is left for them; give more banks"):
        driven.subscribe(driven.types["Wide"])
    driven.receive(Frame(257, b"12345678"))
    assert driven.machine.dropped() == {NOT_WANTED: 1}


@given(st.data(), st.integers(2, 6), st.randoms(use_true_random=False))
@examples(200)
def test_fitted_filters_accept_all_that_is_wanted(data: st.DataObject, banks: int, rng: random.Random) -> None:
    ids = data.draw(st.lists(st.tuples(st.booleans(), st.integers(0, 0x7FF)), min_size=1, max_size=30, unique=True))
    messages = [
        MessageLayout(f"m{at}", f"m{at}", value << 18 | value if long else value, long, 8, ())
        for at, (long, value) in enumerate(ids)
    ]
    wanted = [each for each in messages if rng.random() < 0.5]
    exact = filters_of(wanted)
    assert [exact.accepts(each.frame_id, each.extended) for each in messages] == [each in wanted for each in messages]
    unwanted = traffic_of(each for each in messages if each not in wanted)
    fitted = fit_filters(exact, banks, unwanted)
    assert len(fitted.extended) + len(fitted.standard) <= banks
    assert all(fitted.accepts(each.frame_id, each.extended) for each in wanted)


def test_joins_avoid_frequent_traffic() -> None:
    """Of two joins, the one that lets the rarer message through."""
    rare = MessageLayout("r", "r", 0b0011, False, 1, ())
    often = MessageLayout("o", "o", 0b0110, False, 1, (), cycle_time_ms=10)
    wanted = Filters((), (Pair(0b0001, 0x7FF), Pair(0b0010, 0x7FF), Pair(0b0100, 0x7FF)))
    fitted = fit_filters(wanted, 2, traffic_of([rare, often]))
    assert not fitted.accepts(often.frame_id, False)


def test_a_j1939_message_is_accepted_from_every_source() -> None:
    message = MessageLayout("EEC1", "EEC1", 0x0CF00421, True, 8, (), j1939=True)
    assert all(pair_of(message).accepts(identifier) for identifier in (0x0CF00421, 0x18F00400, 0x0CF004FE))
    assert not pair_of(message).accepts(0x0CF00521)
    to_one = MessageLayout("TSC1", "TSC1", 0x0C0000FE, True, 8, (), j1939=True)
    assert pair_of(to_one).accepts(0x0C002711)


# -- classes -----------------------------------------------------------------------------------------------------------


def test_classes_that_were_declared_before_are_used(car: Path) -> None:
    mine = load_dbc(car)
    driven = Driven(car)
    assert driven.types["Drive"] is mine.types["Drive"]


def test_classes_that_are_declared_later_are_used_when_somebody_subscribes(car: Path) -> None:
    driven = Driven(car)
    later = load_dbc(car)
    driven.subscribe(later.types["Drive"])
    driven.receive(Frame(256, b"\0\0\0\0", extended=False))
    assert [type(event) for event in driven.events] == [later.types["Drive"]]
    again: Any = load_dbc(car).types["Lamp"]
    driven.publish(again(on=1))  # by its name
    assert driven.sent[0][1] == Frame(257, b"\1", extended=False)


def test_two_classes_of_one_name_cannot_both_be_subscribed_to(car: Path) -> None:
    driven = Driven(car)
    driven.subscribe(driven.types["Drive"])
    with pytest.raises(BusError, match="two classes are named"):
        driven.subscribe(load_dbc(car).types["Drive"])


def test_a_class_that_differs_from_its_message_is_refused(driven: Driven) -> None:
    class Drive(Event):
        torque: int

    with pytest.raises(DbcError, match="differs"):
        driven.subscribe(Drive)
    with pytest.raises(DbcError, match="differs"):
        driven.publish(Drive(torque=1))


def test_two_databases_with_a_type_of_the_same_name_are_refused(car: Path, tmp_path: Path) -> None:
    other = tmp_path / "Bus.dbc"
    other.write_text(CAR)
    with pytest.raises(DbcError, match="both have a type Drive"):
        Databases([load_dbc(car), load_dbc(other)])


# -- sending -----------------------------------------------------------------------------------------------------------


def test_a_published_event_is_sent_once(driven: Driven) -> None:
    driven.publish(driven.types["Lamp"](on=1))
    assert driven.sent == [(0, Frame(257, b"\1", extended=False))]
    assert driven.events == [driven.types["Lamp"](on=1)]
    driven.until(10_000 * MS)
    assert len(driven.sent) == 1


def test_what_cannot_be_encoded_is_refused_at_the_call(driven: Driven) -> None:
    with pytest.raises(EventError, match=r"Lamp\.on is 2; its 1 bits hold 0 to 1"):
        driven.publish(driven.types["Lamp"](on=2))
    with pytest.raises(BusError, match="Fat is a CAN FD frame"):
        driven.publish(driven.types["Fat"](n=1))
    assert driven.sent == []


def test_a_long_frame_is_sent_on_a_bus_of_can_fd(car: Path) -> None:
    driven = Driven(car, timing=Timing(500_000, 2_000_000))
    driven.publish(driven.types["Fat"](n=1))
    assert driven.sent == [(0, Frame(513, b"\1" + bytes(23), fd=True, extended=False))]


def test_frames_wait_in_the_order_of_arbitration(driven: Driven) -> None:
    driven.holds = True
    for event in (
        driven.types["Wide"](value=1),
        driven.types["Slow"](level=1),
        driven.types["Lamp"](on=0),
        driven.types["Lamp"](on=1),
    ):
        driven.publish(event)
    driven.holds = False
    driven.send()
    driven.run()
    assert [frame.id for _, frame in driven.sent] == [257, 257, 257, 512]
    assert [frame.extended for _, frame in driven.sent] == [True, False, False, False]
    keys = [arbitration_key(frame) for _, frame in driven.sent]
    assert keys == sorted(keys)


def test_too_many_frames_are_refused(driven: Driven) -> None:
    driven.holds = True
    for _ in range(MAX_WAITING):
        driven.publish(driven.types["Lamp"](on=1))
    with pytest.raises(QueueFull):
        driven.publish(driven.types["Lamp"](on=1))


# -- cyclic messages ---------------------------------------------------------------------------------------------------


def test_a_message_with_a_cycle_time_is_sent_again_until_it_is_withdrawn(driven: Driven) -> None:
    handle = driven.call(driven.machine.announce, driven.types["Drive"], None)
    driven.call(driven.machine.publish, driven.types["Drive"](speed=1.0, gear=0))
    driven.until(35 * MS)
    assert [at for at, _ in driven.sent] == [0, 10 * MS, 20 * MS, 30 * MS]
    driven.call(driven.machine.withdraw, handle)
    driven.until(100 * MS)
    assert len(driven.sent) == 4


def test_a_newer_event_is_sent_at_the_next_time(driven: Driven) -> None:
    drive = driven.types["Drive"]
    driven.publish(drive(speed=1.0, gear=0))
    driven.until(12 * MS)
    driven.publish(drive(speed=2.0, gear=0))
    driven.publish(drive(speed=3.0, gear=0))
    driven.until(25 * MS)
    assert [(at, frame.data[0]) for at, frame in driven.sent] == [(0, 100), (10 * MS, 100), (20 * MS, 44)]
    assert driven.events == [drive(speed=1.0, gear=0), drive(speed=3.0, gear=0)]
    assert driven.machine.dropped() == {"cyclic events replaced before they were sent": 1}


def test_a_period_of_the_channel_makes_any_message_cyclic(driven: Driven) -> None:
    driven.publish(driven.types["Lamp"](on=1), 7 * MS)
    driven.until(15 * MS)
    assert [at for at, _ in driven.sent] == [0, 7 * MS, 14 * MS]
    with pytest.raises(BusError, match="is announced with a period of 7 ms, not no period"):
        driven.call(driven.machine.announce, driven.types["Lamp"], None)


def test_a_channel_replaces_what_publishing_without_one_announced(driven: Driven) -> None:
    lamp = driven.types["Lamp"]
    driven.call(driven.machine.announce, lamp, None, is_implicit=True)
    handle = driven.call(driven.machine.announce, lamp, 5 * MS)
    driven.call(driven.machine.publish, lamp(on=1))
    driven.until(6 * MS)
    driven.call(driven.machine.withdraw, handle)
    driven.until(100 * MS)
    assert len(driven.sent) == 2
    assert driven.machine.tx.channels == {}


def test_cycle_times_can_be_ignored(car: Path) -> None:
    driven = Driven(car, cyclic=False)
    driven.publish(driven.types["Drive"](speed=1.0, gear=0))
    driven.until(1000 * MS)
    assert len(driven.sent) == 1


def test_a_busy_bus_neither_queues_cyclic_frames_nor_makes_them_drift(driven: Driven) -> None:
    driven.publish(driven.types["Drive"](speed=1.0, gear=0))
    driven.holds = True
    driven.until(45 * MS)
    driven.holds = False
    driven.send()
    driven.run()
    driven.until(65 * MS)
    assert [at for at, _ in driven.sent] == [0, 45 * MS, 50 * MS, 60 * MS]
    assert driven.machine.dropped() == {"cyclic frames left out": 3}


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40), st.integers(1, 20))
@examples(100)
def test_cyclic_frames_keep_their_phase_however_late_timers_are(
    shared_car: Path, steps: list[int], period: int
) -> None:
    driven = Driven(shared_car)
    driven.publish(driven.types["Lamp"](on=1), period * MS)
    for step in steps:  # a timer that is late by up to the step
        driven.now += step * MS
        if (at := driven.machine.wake_at) is not None and at <= driven.now:
            driven.machine.wake(driven.now)
            driven.run()
        at = driven.machine.wake_at
        assert at is not None
        assert at % (period * MS) == 0
        assert driven.now < at <= driven.now + period * MS


# -- faults, and a node on the same bus --------------------------------------------------------------------------------


def test_publishers_are_told_that_the_controller_is_off_the_bus(driven: Driven) -> None:
    troubles: list[object] = []
    driven.holds = True
    driven.machine.announce(driven.types["Lamp"], None, 0, troubles.append)
    driven.publish(driven.types["Lamp"](on=1))
    driven.machine.bus_off(5)
    driven.mailbox = None
    driven.run()
    assert troubles == [BusOff(5)]
    driven.holds = False
    driven.machine.bus_on(9)
    driven.run()
    assert [frame.id for _, frame in driven.sent] == [257]


class NodeOfTests:
    """A machine that records what it is called with, and has one frame to send."""

    def __init__(self) -> None:
        self.frame = Frame(Identifier(254, 3, 900).pack(), b"own")
        self.calls: list[tuple[str, object]] = []
        self.outputs: list[Output] = [Accept(((900, 0x3FFF),)), Load(EVENT_TRIGGERED, self.frame)]
        self.wake_at: int | None = 5

    def receive(self, frame: Frame, now: int) -> None:
        self.calls.append(("receive", frame))

    def sent(self, frame: Frame, now: int) -> None:
        self.calls.append(("sent", frame))

    def failed(self, frame: Frame, now: int) -> None:
        self.calls.append(("failed", frame))

    def lost(self, now: int) -> None:
        self.calls.append(("lost", now))

    def taken(self, frame: Frame, now: int) -> None:
        self.calls.append(("taken", frame))

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        self.calls.append(("unconfirmed", frame))

    def error_passive(self, now: int, passive: bool) -> None:
        self.calls.append(("error_passive", passive))

    def bus_off(self, now: int) -> None:
        self.calls.append(("bus_off", now))

    def bus_on(self, now: int) -> None:
        self.calls.append(("bus_on", now))

    def wake(self, now: int) -> None:
        self.calls.append(("wake", now))
        self.wake_at = None

    def take(self) -> list[Output]:
        outputs, self.outputs = self.outputs, []
        return outputs


def test_a_node_and_a_database_share_a_bus(car: Path) -> None:
    node, events = NodeOfTests(), list[Event]()
    databases = Databases([load_dbc(car)])
    machine = ForeignMachine(databases, CLASSIC, node=node, on_event=events.append)
    wide = databases.types["Wide"]
    machine.subscribe(Subscription(wide), 0)
    machine.announce(wide, None, 0)
    mine = machine.publish(wide(value=7), 0)
    outputs = machine.take()
    assert Load(EVENT_TRIGGERED, node.frame) in outputs
    assert Load(FOREIGN, mine) in outputs
    accepted = [output for output in outputs if isinstance(output, Accept)][-1]
    assert accepted == Accept(((257, 0x1FFFFFFF), (900, 0x3FFF)))
    machine.sent(node.frame, 1)
    machine.sent(mine, 2)
    machine.receive(Frame(257, bytes(8)), 3)  # its event tag would be 257
    machine.receive(Frame(Identifier(1, 5, 900).pack(), b"x"), 4)
    machine.receive(Frame(900, b"x", extended=False), 4)
    assert machine.wake_at == 5
    machine.wake(5)
    machine.lost(6)
    machine.failed(node.frame, 7)
    assert [what for what, _ in node.calls] == ["sent", "receive", "wake", "lost", "failed"]
    assert node.calls[1] == ("receive", Frame(Identifier(1, 5, 900).pack(), b"x"))
    assert machine.dropped() == {"unknown identifier": 1}


@pytest.mark.slow
@needs_data
def test_every_frame_of_a_real_database_is_an_event_or_counted() -> None:
    """And what became an event is encoded to a frame that becomes the same event."""
    driven = Driven(TESLA / "Model3CAN.dbc")
    log = next(path for path in sorted(TESLA.iterdir()) if path.name.endswith((".log", ".log.gz")))
    driven.subscribe(Event)
    frames = [logged.frame for logged in read_log(log)]
    for frame in frames:
        driven.machine.receive(frame, 0)
    driven.run()
    machine = driven.machine
    assert len(driven.events) == machine.rx.received.total()
    assert machine.rx.received.total() + machine.dropped().total() == len(frames) > 5000
    same = refused = 0
    for event in driven.events[::4]:
        try:
            again = driven.databases.decode(driven.databases.encode(event), event.time)
        except EventError:
            refused += 1  # outside the range that the database allows
        else:
            assert again == event
            same += 1
    assert same > 250, (same, refused)


class RecordingDriver:
    """A driver with a queue, as a port sees it."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []
        self.filters: tuple[tuple[int, int, bool], ...] = ()

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)

    def set_filters(self, filters: tuple[tuple[int, int, bool], ...]) -> None:
        self.filters = filters

    def call(self, call: Call) -> None:
        call.handler(*call.arguments)

    def warn(self, message: str) -> None:
        raise AssertionError(message)


def test_of_frames_of_genus_and_of_databases_the_one_that_would_win_is_sent_first(car: Path) -> None:
    """One of them is in the driver's queue at a time; the echo of 11 bits confirms it."""
    node, driver = NodeOfTests(), RecordingDriver()
    databases = Databases([load_dbc(car)])
    machine = ForeignMachine(databases, CLASSIC, node=node, echoes=True)
    lamp: Any = databases.types["Lamp"]
    machine.announce(lamp, None, 0)
    mine = machine.publish(lamp(on=1), 0)
    port = DriverPort(machine, driver, profile_of("virtual", None), Timing(500_000))
    port.call(lambda now: None, 0)
    assert driver.sent == [mine]
    assert (257, 0x7FF, False) in driver.filters, "the echo must pass"
    port.receive(Frame(257, b"\1"), 0.0, 1)  # of another: 29 bits
    assert driver.sent == [mine]
    port.receive(mine, 0.0, 2, is_rx=False)
    assert driver.sent == [mine, node.frame]
    assert machine.tx.sent == {"Lamp": 1}
    port.receive(node.frame, 0.0, 3, is_rx=False)
    assert ("sent", node.frame) in node.calls


def test_frames_of_11_bits_are_ignored_by_machines_that_want_none() -> None:
    node = NodeOfTests()
    port = DriverPort(node, RecordingDriver(), profile_of("virtual", None), Timing(500_000))
    port.call(lambda now: None, 0)
    port.receive(Frame(900, b"", extended=False), 0.0, 1)
    assert port.counts["ignored: not subscribed to"] == 1
    assert [what for what, _ in node.calls] == ["taken"]
