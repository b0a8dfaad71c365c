"""`DriverPort`: one frame per mailbox in the driver, confirmations, time-outs, bus-off, filters, time stamps."""

from collections import deque
from pathlib import Path
from typing import NoReturn

import pytest
from can.interfaces import BACKENDS
from hypothesis import given
from hypothesis import strategies as st

from genus.can._live.interfaces import PROFILES, UNKNOWN, Confirmation, InterfaceProfile, profile_of
from genus.can._live.port import (
    CONFIRM_TIMEOUT_NS,
    FIRST_RETRY_NS,
    GIVE_UP_NS,
    PATIENCE_FACTOR,
    PATIENCE_NS,
    PROBE_NS,
    DriverPort,
    DriverRefused,
    Filter,
)
from genus.can._live.received import (
    ACTIVE,
    BUS_OFF,
    CONTROLLER,
    NO_ACKNOWLEDGEMENT,
    RESTARTED,
    RX_OVERFLOW,
    RX_PASSIVE,
    RX_WARNING,
    TX_OVERFLOW,
    TX_PASSIVE,
    TX_TIMEOUT,
    TX_WARNING,
    ErrorReport,
    parse_error,
)
from genus.can._machine import Call
from genus.can._wire.frame import NODE_MASK, Frame, Timing
from genus.errors import BusError
from tests.can.sim_parts import RecordingMachine, frame
from tests.examples import examples

SOCKETCAN = PROFILES["socketcan"]
HARD, OTHER = 0, 1
MS = 1_000_000


class ListDriver:
    """A driver that keeps what it gets in lists."""

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.filters: tuple[Filter, ...] | None = None
        self.warnings: list[str] = []
        self.calls: list[Call] = []
        self.refuses = ""

    def send(self, frame: Frame) -> None:
        if self.refuses:
            raise DriverRefused(self.refuses)
        self.frames.append(frame)

    def set_filters(self, filters: tuple[Filter, ...]) -> None:
        self.filters = filters

    def call(self, call: Call) -> None:
        self.calls.append(call)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


class Setup:
    """A recording machine behind a port; `now` is moved by hand."""

    def __init__(self, profile: InterfaceProfile = SOCKETCAN) -> None:
        self.machine, self.driver, self.now = RecordingMachine(), ListDriver(), 1_000 * MS
        self.port = DriverPort(self.machine, self.driver, profile, Timing(500_000))

    def load(self, loaded: Frame | None, mailbox: int = OTHER) -> None:
        self.machine.load(loaded, mailbox)
        self.port.call(lambda now: None, self.now)

    def echo(self, after_ms: float = 1) -> None:
        self.now += round(after_ms * MS)
        self.port.receive(self.driver.frames.popleft(), 0, self.now, is_rx=False)

    def receive(self, received: Frame, *, is_rx: bool = True) -> None:
        self.port.receive(received, 0, self.now, is_rx=is_rx)

    def error(self, classes: int, data: bytes = b"") -> None:
        self.port.error(parse_error(classes, data), self.now)

    def wait(self, span_ns: int) -> None:
        """Let time pass, with all timers."""
        end = self.now + span_ns
        while (at := self.port.wake_at) is not None and at <= end:
            self.now = max(self.now, at)
            self.port.wake(self.now)
        self.now = end

    def kinds(self) -> list[str]:
        """The inputs of the machine, without timers."""
        return [kind for kind, _ in self.machine.inputs if kind != "wake"]


def test_a_frame_is_sent_when_its_echo_comes_and_not_before() -> None:
    setup = Setup()
    setup.load(frame(10))
    assert setup.kinds() == ["taken"]
    setup.echo()
    assert setup.kinds() == ["taken", "sent"]
    assert setup.port.counts["sent"] == 1


def test_the_driver_has_one_frame_of_a_mailbox_and_the_latest_one_follows() -> None:
    setup = Setup()
    for priority in (10, 9, 8):
        setup.load(frame(priority))
    assert [each.priority for each in setup.driver.frames] == [10]
    setup.echo()
    assert [each.priority for each in setup.driver.frames] == [8]


def test_a_hard_frame_does_not_wait_for_the_confirmation_of_another() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.load(frame(0), HARD)
    assert [each.priority for each in setup.driver.frames] == [10, 0]


def test_a_mailbox_that_is_emptied_sends_nothing_after_the_frame_in_the_driver() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.load(frame(9))
    setup.load(None)
    setup.echo()
    assert not setup.driver.frames
    assert setup.port.is_idle


def test_a_frame_of_another_node_renews_what_waits() -> None:
    setup = Setup()
    setup.receive(frame(5, node=2))
    assert setup.kinds() == ["receive"]
    setup.load(frame(10))
    setup.receive(frame(5, node=2))
    assert setup.kinds() == ["receive", "taken", "receive", "lost"]


def test_a_local_program_on_socketcan_is_another_node() -> None:
    """SocketCAN marks the frames of all local programs alike (MSG_DONTROUTE): only the contents tell."""
    setup = Setup()
    setup.load(frame(10, data=b"mine"))
    setup.receive(frame(10, data=b"theirs"), is_rx=False)
    assert setup.kinds() == ["taken", "receive", "lost"]
    setup.receive(frame(10, data=b"mine"), is_rx=False)
    assert setup.kinds()[-1] == "sent"


def test_an_echo_that_nobody_waits_for_is_ignored_where_echoes_are_marked() -> None:
    setup = Setup(PROFILES["virtual"])
    setup.receive(frame(10), is_rx=False)
    assert not setup.kinds()
    assert setup.port.counts["echoes ignored"] == 1


def test_a_refused_frame_is_tried_again_with_what_is_loaded_then() -> None:
    setup = Setup()
    setup.driver.refuses = "Transmit buffer full"
    setup.load(frame(10))
    assert setup.port.counts["send failed: Transmit buffer full"] == 1
    setup.load(frame(9))
    setup.driver.refuses = ""
    setup.wait(FIRST_RETRY_NS)
    assert [each.priority for each in setup.driver.frames] == [9]


def test_a_driver_that_refuses_for_long_is_not_asked_all_the_time() -> None:
    setup = Setup()
    setup.driver.refuses = "Network is down"
    setup.load(frame(10))
    setup.wait(10_000 * MS)
    assert 100 < setup.port.counts["send failed: Network is down"] < 120


# -- confirmations that do not come ------------------------------------------------------------------------------------


def test_a_confirmation_that_does_not_come_stops_nothing_for_long() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.load(frame(9))
    setup.wait(PATIENCE_NS - 1)
    assert setup.kinds() == ["taken"]
    setup.wait(1)
    assert setup.kinds() == ["taken", "gone", "taken"]
    assert [each.priority for each in setup.driver.frames] == [10, 9], "whose confirmation shows that the driver lives"


def test_until_something_shows_life_each_further_frame_waits_longer() -> None:
    setup = Setup()
    given = []
    for number in range(6):
        setup.load(frame(10, data=bytes([number])))
        before = setup.now
        while len(setup.driver.frames) == number:
            setup.wait(MS)
        given.append((setup.now - before) // MS)
    assert given == [0, 20, 80, 320, 1280, 5000]
    assert setup.port.counts["not confirmed in time"] == 1
    setup.load(frame(10, data=b"next"))
    setup.driver.frames = deque([setup.driver.frames[-1]])
    setup.echo()
    setup.load(frame(9))
    setup.wait(PATIENCE_NS)
    assert [each.priority for each in setup.driver.frames] == [10, 9]


def test_a_confirmation_is_waited_for_as_long_as_others_took() -> None:
    setup = Setup()
    for _ in range(10):
        setup.load(frame(10))
        setup.echo(after_ms=10)
    setup.load(frame(10))
    setup.wait(PATIENCE_FACTOR * 9 * MS)
    assert "gone" not in setup.kinds()
    setup.wait(PATIENCE_FACTOR * 2 * MS)
    assert setup.kinds()[-2:] == ["gone", "taken"]


def test_a_frame_that_would_have_won_against_a_later_one_is_not_in_the_driver_any_more() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.wait(PATIENCE_NS // 2)
    setup.receive(frame(5, node=2))
    assert len(setup.driver.frames) == 1, "a more urgent frame proves nothing"
    setup.receive(frame(20, node=2))
    assert setup.kinds()[-4:] == ["gone", "receive", "lost", "taken"]
    assert [each.priority for each in setup.driver.frames] == [10, 10], "unless its machine has something else to send"


def test_frames_that_outrank_one_that_is_overdue_give_it_more_time() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.wait(PATIENCE_NS // 2)
    for _ in range(500):
        setup.receive(frame(5, node=2, data=bytes(8)))
        setup.wait(260_000)
    assert "gone" not in setup.kinds(), "130 ms of a full bus"
    setup.wait(PATIENCE_NS)
    assert "gone" in setup.kinds()


@pytest.mark.parametrize("loser", [frame(20, node=2), Frame(0x7FF, b"", extended=False)])
def test_all_frames_pass_while_one_is_overdue_so_that_a_lost_echo_is_found(loser: Frame) -> None:
    setup = Setup()
    setup.machine.accept((0, 0x3F80))
    setup.load(frame(10, node=7))
    filters = setup.driver.filters
    setup.wait(PATIENCE_NS // 2)
    assert setup.driver.filters == (), "its node has no subscription that would let others pass"
    setup.receive(loser)
    assert setup.kinds()[-2:] == ["gone", "taken"], "the machine does not get what it did not ask for"
    assert setup.driver.filters == filters
    setup.echo()
    assert setup.kinds()[-1] == "sent"


def test_a_frame_stays_in_the_driver_while_attempts_to_send_it_fail_and_that_is_told_once() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.error(CONTROLLER, bytes([0, TX_PASSIVE]))
    for _ in range(100):
        setup.wait(CONFIRM_TIMEOUT_NS // 4)
        setup.error(NO_ACKNOWLEDGEMENT)
    assert {*setup.kinds()} == {"taken", "error_passive", "unconfirmed", "failed"}
    assert setup.port.counts["not confirmed in time"] == 1


def test_a_passive_controller_without_a_word_gets_few_frames_but_does_not_wait_for_ever() -> None:
    """It may fail without saying so, or its echo is lost; as it is suspended, a lower priority proves nothing."""
    setup = Setup()
    setup.load(frame(10))
    setup.error(CONTROLLER, bytes([0, TX_PASSIVE]))
    setup.wait(CONFIRM_TIMEOUT_NS // 2)
    setup.receive(frame(20, node=2))
    assert "gone" not in setup.kinds()
    setup.wait(CONFIRM_TIMEOUT_NS)
    assert "gone" in setup.kinds()
    setup.wait(3 * GIVE_UP_NS)
    assert 2 < len(setup.driver.frames) < 8


def test_a_frame_that_was_given_up_is_not_sent_again_if_its_mailbox_was_emptied() -> None:
    setup = Setup()
    setup.load(frame(0), HARD)
    setup.load(None, HARD)
    setup.wait(GIVE_UP_NS)
    assert setup.kinds() == ["taken", "gone"]
    assert len(setup.driver.frames) == 1


def test_a_confirmation_that_comes_too_late_is_no_frame_of_another_node() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.load(None)
    setup.wait(PATIENCE_NS)
    setup.echo()
    assert setup.port.counts["echoes ignored"] == 1
    assert "receive" not in setup.kinds()


def test_what_the_driver_drops_is_sent_again() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.error(TX_TIMEOUT)
    assert setup.kinds() == ["taken", "gone", "taken"]
    assert setup.port.counts["dropped by the driver"] == 1


# -- interfaces that do not confirm ------------------------------------------------------------------------------------


def test_an_interface_without_confirmation_warns_at_once_and_sends_as_it_can() -> None:
    setup = Setup(PROFILES["slcan"])
    assert "does not confirm" in setup.driver.warnings[0]
    assert setup.port.counts["interface does not confirm what was sent"] == 1
    setup.load(frame(10))
    assert setup.kinds() == ["sent"]


def test_an_unknown_interface_is_known_after_its_first_frame() -> None:
    echoing, silent = Setup(UNKNOWN), Setup(UNKNOWN)
    for setup in (echoing, silent):
        setup.load(frame(10))
    echoing.echo()
    silent.wait(PROBE_NS)
    assert (echoing.port.confirmation, silent.port.confirmation) == (Confirmation.ECHO, Confirmation.NONE)
    assert not echoing.driver.warnings
    assert "does not confirm" in silent.driver.warnings[0]
    assert silent.kinds() == ["taken", "unconfirmed", "sent"]


def test_an_unknown_interface_may_return_frames_without_marking_them() -> None:
    setup = Setup(UNKNOWN)
    setup.load(frame(10))
    setup.receive(setup.driver.frames.popleft())
    assert setup.kinds() == ["taken", "sent"]
    assert setup.port.confirmation is Confirmation.ECHO


def test_an_equal_frame_of_another_node_confirms_nothing_where_echoes_are_marked() -> None:
    """Nodes without a number send equal frames while they are configured."""
    setup = Setup()
    setup.load(frame(10))
    setup.receive(frame(10))
    assert setup.kinds() == ["taken", "receive", "lost"]


def test_frames_that_udp_multicast_returns_are_ignored() -> None:
    setup = Setup(PROFILES["udp_multicast"])
    setup.load(frame(10))
    assert setup.kinds() == ["sent"]
    setup.receive(setup.driver.frames.popleft())
    assert setup.kinds() == ["sent"]
    assert setup.port.counts["echoes ignored"] == 1


def test_the_address_may_say_how_an_interface_confirms() -> None:
    assert profile_of("slcan", "echo").asks_for_echo
    assert not profile_of("socketcan", "send").asks_for_echo
    assert not profile_of("udp_multicast", "echo").asks_for_echo
    with pytest.raises(BusError, match="echo or send"):
        profile_of("socketcan", "probe")


# -- the state of the bus ----------------------------------------------------------------------------------------------


def test_at_bus_off_the_driver_is_empty_and_nothing_is_sent_until_it_is_back() -> None:
    setup = Setup()
    setup.load(frame(10))
    setup.load(frame(9))
    setup.error(BUS_OFF)
    setup.load(frame(8))
    assert setup.kinds() == ["taken", "gone", "bus_off"]
    setup.error(RESTARTED)
    assert setup.kinds() == ["taken", "gone", "bus_off", "bus_on", "taken"]
    assert [each.priority for each in setup.driver.frames] == [10, 8]


def test_a_received_frame_shows_that_the_controller_is_back() -> None:
    setup = Setup()
    setup.error(BUS_OFF)
    setup.error(BUS_OFF)
    setup.receive(frame(3, node=2))
    assert setup.kinds() == ["bus_off", "bus_on", "receive"]


def test_an_interface_without_error_frames_is_polled() -> None:
    setup = Setup(PROFILES["ixxat"])
    for state in ("active", "error", "error", "active", "passive"):
        setup.port.poll(state, setup.now)
    assert setup.kinds() == ["bus_off", "bus_on"], "PASSIVE means that it only listens"
    setup = Setup(PROFILES["etas"])
    for state in ("passive", "active"):
        setup.port.poll(state, setup.now)
    assert setup.kinds() == ["error_passive", "error_active"]


def test_polling_does_not_end_a_bus_off_that_an_error_frame_reported() -> None:
    """Most interfaces say that they are active, whatever happens."""
    setup = Setup()
    setup.error(BUS_OFF)
    setup.port.poll("active", setup.now)
    assert setup.kinds() == ["bus_off"]


def test_an_attempt_that_fails_and_a_state_that_changes_are_told() -> None:
    setup = Setup()
    setup.error(NO_ACKNOWLEDGEMENT)
    setup.load(frame(10))
    setup.error(NO_ACKNOWLEDGEMENT)
    for flags in (TX_WARNING, TX_PASSIVE, TX_WARNING, ACTIVE):
        setup.error(CONTROLLER, bytes([0, flags]))
    assert setup.kinds() == ["taken", "failed", "error_passive", "error_active"]


WITH_ERRORS = (TX_WARNING, RX_WARNING, TX_PASSIVE, RX_PASSIVE, TX_WARNING | RX_WARNING, TX_PASSIVE | RX_PASSIVE)


@given(st.lists(st.sampled_from((*WITH_ERRORS, ACTIVE, RX_OVERFLOW, TX_OVERFLOW)), max_size=12))
def test_warnings_and_passive_states_are_told_once_and_so_is_their_end(states: list[int]) -> None:
    """As Linux reports them: from the warning on, of either counter, until both are below it."""
    setup = Setup()
    expected: list[str] = []
    for state in states:
        setup.error(CONTROLLER, bytes([0, state]))
        if state in WITH_ERRORS and expected[-1:] != ["error_passive"]:
            expected.append("error_passive")
        elif state == ACTIVE and expected[-1:] == ["error_passive"]:
            expected.append("error_active")
    assert setup.kinds() == expected


@given(st.integers(0, (1 << 29) - 1), st.binary(max_size=8))
@examples(200)
def test_every_error_frame_can_be_read(identifier: int, data: bytes) -> None:
    assert isinstance(parse_error(identifier, data), ErrorReport)


# -- filters -----------------------------------------------------------------------------------------------------------


def test_echoes_pass_the_filters_and_frames_that_pass_only_for_that_are_ignored() -> None:
    setup = Setup()
    setup.machine.accept((0, 0x3F80))
    setup.load(frame(10, node=7))
    assert setup.driver.filters == ((0, 0x3F80, True), (7 << 14, NODE_MASK, True))
    setup.load(frame(9, node=7))
    setup.echo()
    assert setup.kinds() == ["taken", "sent", "taken"]
    setup.receive(frame(9, node=7, data=b"another node with this number"[:8]))
    assert "receive" not in setup.kinds()
    assert setup.port.counts["ignored: not subscribed to"] == 1


def test_filters_are_as_the_machine_wants_them_where_no_echo_is_needed() -> None:
    setup = Setup(PROFILES["udp_multicast"])
    setup.machine.accept((0, 0x3F80))
    setup.load(frame(10, node=7))
    assert setup.driver.filters == ((0, 0x3F80, True),)


# -- time --------------------------------------------------------------------------------------------------------------


def test_machines_get_the_time_of_the_stamp_not_that_of_reading() -> None:
    setup = Setup()
    setup.port.receive(frame(3, node=2), 50.0, setup.now)
    setup.port.receive(frame(3, node=2), 50.001, setup.now + 7 * MS)
    times = [at for kind, at in setup.machine.inputs if kind == "receive"]
    assert times[0] == setup.now
    assert abs(times[1] - setup.now - MS) < 10_000


# -- any order of all of this ------------------------------------------------------------------------------------------


class StrictMachine(RecordingMachine):
    """Fails if a driver breaks the rules of `Machine`."""

    def __init__(self) -> None:
        super().__init__()
        self.in_driver: list[Frame] = []
        self.is_off = False

    def taken(self, frame: Frame, now: int) -> None:
        assert not self.is_off
        assert all((each.priority == 0) != (frame.priority == 0) for each in self.in_driver), "one per mailbox"
        self.in_driver.append(frame)

    def sent(self, frame: Frame, now: int) -> None:
        self._remove(frame)

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        assert any(each is frame for each in self.in_driver)
        if gone:
            self._remove(frame)

    def failed(self, frame: Frame, now: int) -> None:
        assert any(each is frame for each in self.in_driver)

    def bus_off(self, now: int) -> None:
        assert not self.is_off
        self.is_off, self.in_driver = True, []

    def bus_on(self, now: int) -> None:
        assert self.is_off
        self.is_off = False

    def _remove(self, frame: Frame) -> None:
        before = len(self.in_driver)
        self.in_driver = [each for each in self.in_driver if each is not frame]
        assert len(self.in_driver) == before - 1, "sent or gone once, after it was taken"


STEPS = st.one_of(
    st.tuples(st.just("load"), st.integers(0, 1), st.one_of(st.none(), st.integers(1, 250))),
    st.tuples(st.sampled_from(["echo", "lose echo", "refuse", "accept"]), st.just(0), st.just(0)),
    st.tuples(st.just("receive"), st.integers(0, 255), st.booleans()),
    st.tuples(st.just("error"), st.integers(0, 0x1FF), st.integers(0, 255)),
    st.tuples(st.just("poll"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 13), st.just(0)),
)


@given(st.lists(STEPS, max_size=60), st.sampled_from([SOCKETCAN, PROFILES["virtual"], PROFILES["etas"]]))
@examples(300)
def test_whatever_happens_the_rules_of_a_machine_are_kept(
    steps: list[tuple[str, int, int | None]], profile: InterfaceProfile
) -> None:
    setup = Setup(profile)
    setup.machine = machine = StrictMachine()
    setup.port = DriverPort(machine, setup.driver, profile, Timing(500_000))
    for serial, (kind, first, second) in enumerate(steps):
        data = serial.to_bytes(2, "big")
        if kind == "load":
            setup.load(None if second is None else frame(second * first, data=data), first)
        elif kind == "echo" and setup.driver.frames:
            setup.echo(0.1)
        elif kind == "lose echo" and setup.driver.frames:
            setup.driver.frames.popleft()
        elif kind in ("refuse", "accept"):
            setup.driver.refuses = "full" if kind == "refuse" else ""
        elif kind == "receive":
            setup.receive(frame(first, node=2, data=data), is_rx=bool(second))
        elif kind == "error":
            setup.error(first, bytes([0, second or 0, second or 0]))
        elif kind == "poll":
            setup.port.poll(("active", "passive", "error")[first], setup.now)
        elif kind == "wait":
            setup.wait(1 << (20 + first))
        assert len(machine.in_driver) <= 2


def test_a_machine_that_raises_stops_nothing_of_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup()

    def fail(*_: object) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(setup.machine, "receive", fail)
    with pytest.raises(ZeroDivisionError):
        setup.receive(frame(3, node=2))
    setup.load(frame(10))
    setup.echo()
    assert setup.kinds() == ["taken", "sent"]


def test_the_page_has_the_table_of_interfaces() -> None:
    page = (Path(__file__).parents[2] / "docs" / "can-live.md").read_text()
    table = page[page.index("| interface | confirms by") :].split("\n\n")[0].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in table]
    found = {name.strip("`"): rest for names, *rest in rows for name in names.split(", ")}
    assert found == {
        name: [profile.confirmation, "yes" if profile.linux_errors else "no", profile.tried]
        for name, profile in PROFILES.items()
    }


def test_the_table_has_the_interfaces_of_python_can() -> None:
    own = {name for name, (module, _) in BACKENDS.items() if module.startswith("can.interfaces.")}
    assert own - PROFILES.keys() <= {"cantact"}, "say what they confirm"
