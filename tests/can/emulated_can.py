"""A CAN network in virtual time whose stations are python-can buses: drivers with a queue, echoes, errors, bus-off.

The wire is that of the simulator: arbitration bit by bit, frame lengths with stuff bits, error frames and fault
confinement. In front of each controller is a driver as SocketCAN has one: a queue of `fifo` frames, first in, first
out, whose frames can be neither stopped nor overtaken.
"""

import queue
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import can
from genus.can import Frame, Identifier, Timing
from genus.can.internal import (
    ACTIVE,
    BUS_ERROR,
    BUS_OFF,
    CONTROLLER,
    NO_ACKNOWLEDGEMENT,
    PROTOCOL,
    PROTOCOL_ON_TRANSMISSION,
    RESTARTED,
    TX_PASSIVE,
    TX_WARNING,
    Controller,
    Corrupt,
    FrameSource,
    SimBus,
    TraceHeader,
    Transmission,
    poisson,
)
from genus.can.types import Trace
from genus.errors import BusError
from genus.model import Span, nanoseconds, seconds


class EmulatedCan:
    """A CAN network in virtual time, for tests of programs that use python-can.

    Nothing happens by itself: `run` and `advance` let time pass. All that is random follows from the seed.

    Args:
        bitrate: Bits per second.
        data_bitrate: Bits per second in the data part of CAN FD frames.
        errors: The probability that an attempt to send a frame is corrupted.
        seed: The seed of errors and of background traffic.
        lone_senders: Whether a frame counts as sent that no other station acknowledges.

    >>> network = EmulatedCan(bitrate=500_000)
    >>> sender, receiver = network.open(fifo=2), network.open()
    >>> for number in range(2):
    ...     sender.send(can.Message(arbitration_id=0x100 + number, data=b"hello"))
    >>> sender.send(can.Message(arbitration_id=0x102))
    Traceback (most recent call last):
    can.exceptions.CanOperationError: Transmit buffer full
    >>> network.advance("1ms")
    1000000
    >>> [(f"{message.timestamp:.6f}", message.is_rx) for message in (receiver.recv(0), sender.recv(0))]
    [('0.000224', True), ('0.000224', False)]
    """

    def __init__(
        self,
        bitrate: int = 500_000,
        *,
        data_bitrate: int | None = None,
        errors: float = 0.0,
        seed: int = 0,
        lone_senders: bool = False,
    ) -> None:
        self.timing = Timing(bitrate, data_bitrate)
        self.trace = Trace(TraceHeader(bitrate=bitrate, data_bitrate=data_bitrate, seed=seed))
        """All transmissions so far, a `genus.can.Trace`."""
        self.lock = threading.RLock()
        self._errors = errors
        self._random = random.Random(seed)
        self._disturbed: set[int] = set()
        hooks = [self._corrupt]
        self.wire = SimBus(self.timing, trace=self.trace, fault_hooks=hooks, allow_lone_sender=lone_senders)

    @property
    def now(self) -> int:
        """Virtual time in nanoseconds."""
        return self.wire.now

    def run(self, until_ns: int) -> None:
        """Let time pass up to and including an instant."""
        with self.lock:
            self.wire.run(until_ns)

    def advance(self, by: Span) -> int:
        """Let a span of time pass; returns the new time in nanoseconds."""
        self.run(self.now + nanoseconds(by, "by"))
        return self.now

    def at(self, time_ns: int, callback: Callable[[], object]) -> None:
        """Call a function at a time to come."""
        with self.lock:
            self.wire.at(time_ns, callback)

    def open(
        self,
        *,
        fifo: int = 10,
        echo: bool = True,
        epoch: Span = 0.0,
        filters: int = 512,
        long_errors: bool = False,
    ) -> "EmulatedCanBus":
        """Add a station, a python-can bus.

        Args:
            fifo: How many frames the driver holds.
            echo: Whether frames that were sent come back, as with `receive_own_messages`.
            epoch: The time stamp at the start of virtual time: interfaces count from different moments.
            filters: How many acceptance filters the driver has, which let error frames pass. If more are set, and with
                0 always, python-can filters, as it does for most interfaces: error frames too.
            long_errors: Whether error frames are marked as of 29 bits, as those of `socketcand` are.
        """
        with self.lock:
            bus = EmulatedCanBus(self, len(self.wire.controllers), fifo, echo, seconds(epoch, "epoch"))
        bus.max_filters, bus.long_errors = filters, long_errors
        return bus

    def add_traffic(
        self, load: float, *, stations: int = 4, priorities: Sequence[int] = range(1, 251), size: int = 8
    ) -> list[FrameSource]:
        """Add stations that take a share of the bus, with frames at random times and of random priorities.

        Args:
            load: The share of the bus that they take together, 0 to 1.
            stations: How many there are; each sends under a node number of its own, from 100 on.
            priorities: The priorities of their frames, each as likely as any other.
            size: The data bytes of a frame.
        """
        with self.lock:
            return [self._add_source(load / stations, index, priorities, size) for index in range(stations)]

    def disturb(self, bus: "EmulatedCanBus", is_disturbed: bool = True) -> None:
        """Corrupt all that a station sends from now on, so that it goes off the bus; or no longer."""
        (self._disturbed.add if is_disturbed else self._disturbed.discard)(bus.number)

    def _add_source(self, load: float, index: int, priorities: Sequence[int], size: int) -> FrameSource:
        rng = random.Random(self._random.random())
        frames = [
            Frame(
                Identifier(rng.choice(priorities), 100 + index, 0x3000 + rng.randrange(256)).pack(), rng.randbytes(size)
            )
            for _ in range(256)
        ]
        mean = sum(map(self.timing.exact_ns, frames)) / len(frames)
        number = len(self.wire.controllers)
        return FrameSource(self.wire, number, frames, poisson(round(mean / load), rng), first_ns=self.now)

    def _corrupt(self, transmission: Transmission) -> Corrupt | None:
        if transmission.sender in self._disturbed or (self._errors and self._random.random() < self._errors):
            return Corrupt(self._random.randrange(1, transmission.bits))
        return None


class EmulatedCanBus(can.BusABC):
    """A station of an `EmulatedCan`, made by its `open`: a python-can bus whose driver has a queue.

    `send` raises `can.CanOperationError` if the queue is full. `recv` returns what has come: frames of others, own
    frames that were sent (`is_rx` is False), and error frames with Linux's classes; it waits in real time, so tests
    that let virtual time pass call it with a timeout of 0. At bus-off the queue is lost, and after the recovery that
    CAN prescribes the controller is back, with an error frame that says so.
    """

    channel_info = "emulated CAN"

    def __init__(self, network: EmulatedCan, number: int, fifo: int, echo: bool, epoch_s: float) -> None:
        if fifo < 1:
            raise BusError(f"a driver with room for {fifo} frames cannot send")
        self.network = network
        self.number = number
        """The number of the station in the trace."""
        self.on_message: Callable[[], object] = lambda: None
        """Called when there is something to receive."""
        self.loses_echo: Callable[[Frame], bool] = lambda frame: False
        """Says of each frame that was sent whether its echo is lost."""
        self.max_filters, self.long_errors = 512, False
        self._fifo: deque[Frame] = deque()
        self._size = fifo
        self._echo = echo
        self._epoch = epoch_s
        self._error_state = ACTIVE
        self._received: queue.SimpleQueue[can.Message] = queue.SimpleQueue()
        self._controller = network.wire.attach(Controller(number, mailboxes=1))
        self._controller.connect(
            receive=self._receive, sent=self._sent, failed=self._failed, bus_off=self._bus_off, bus_on=self._bus_on
        )
        super().__init__(channel=number)

    @property
    def queued(self) -> int:
        """How many frames the driver has."""
        return len(self._fifo)

    @property
    def state(self) -> can.BusState:
        """ERROR while the controller is off the bus."""
        return can.BusState.ERROR if self._controller.off else can.BusState.ACTIVE

    @state.setter
    def state(self, new_state: can.BusState) -> None:
        raise NotImplementedError("the state of an emulated controller follows from what happens on the bus")

    def send(self, msg: can.Message, timeout: float | None = None) -> None:
        """Put a message into the driver's queue; CanOperationError if it is full, or off the bus."""
        frame = Frame(msg.arbitration_id, bytes(msg.data), msg.is_fd, msg.is_extended_id)
        with self.network.lock:
            if self._controller.off:
                raise can.CanOperationError("Network is down")
            if msg.is_remote_frame or msg.is_error_frame:
                raise can.CanOperationError("only data frames are emulated")
            if len(self._fifo) >= self._size:
                raise can.CanOperationError("Transmit buffer full")
            self._fifo.append(frame)
            if len(self._fifo) == 1:
                self._controller.load(0, frame)

    def disconnect(self) -> None:
        """Take the station off the wire; the driver keeps what it has."""
        with self.network.lock:
            self.network.wire.detach(self._controller)

    def reconnect(self) -> None:
        """Connect the station again."""
        with self.network.lock:
            self.network.wire.attach(self._controller)

    def shutdown(self) -> None:
        """Leave the network."""
        super().shutdown()
        with self.network.lock:
            if self._controller.bus is not None:
                self.disconnect()

    def _apply_filters(self, filters: Any) -> None:
        """Filter in the driver if it has so many filters, else leave it to python-can."""
        self._is_filtered = len(filters or ()) <= self.max_filters

    def _recv_internal(self, timeout: float | None) -> tuple[can.Message | None, bool]:
        try:
            return self._received.get(timeout != 0, timeout), self._is_filtered
        except queue.Empty:
            return None, self._is_filtered

    # -- what the controller does --------------------------------------------------------------------------------------

    def _receive(self, frame: Frame, now: int) -> None:
        """A frame of another station has ended."""
        self._put(self._message(frame, now, is_rx=True))
        self._report_state(now)

    def _sent(self, frame: Frame, now: int) -> None:
        """The first frame of the queue was sent."""
        self._fifo.popleft()
        if self._fifo:
            self._controller.load(0, self._fifo[0])
        if self._echo and not self.loses_echo(frame):
            self._put(self._message(frame, now, is_rx=False))
        self._report_state(now)

    def _failed(self, frame: Frame, now: int) -> None:
        """The first frame of the queue was corrupted, or not acknowledged."""
        lonely = all(each is self._controller or each.off for each in self.network.wire.controllers)
        if lonely:
            self._put_error(NO_ACKNOWLEDGEMENT, bytes(8), now)
        else:
            self._put_error(PROTOCOL | BUS_ERROR, bytes([0, 0, PROTOCOL_ON_TRANSMISSION]), now)
        self._report_state(now)

    def _bus_off(self, now: int) -> None:
        """The controller is off the bus: the queue is lost."""
        self._fifo.clear()
        self._error_state = ACTIVE
        self._put_error(BUS_OFF, bytes(8), now)

    def _bus_on(self, now: int) -> None:
        """The controller is back."""
        self._put_error(RESTARTED, bytes(8), now)

    def _report_state(self, now: int) -> None:
        controller = self._controller
        state = TX_PASSIVE if controller.is_passive else TX_WARNING if controller.has_warning else ACTIVE
        if state != self._error_state:
            self._error_state = state
            self._put_error(CONTROLLER, bytes([0, state]), now)

    def _put_error(self, classes: int, data: bytes, now: int) -> None:
        stamp = self._epoch + now / 1e9
        self._put(
            can.Message(stamp, classes, is_error_frame=True, is_extended_id=self.long_errors, data=data.ljust(8, b"\0"))
        )

    def _message(self, frame: Frame, now: int, *, is_rx: bool) -> can.Message:
        return can.Message(
            timestamp=self._epoch + now / 1e9,
            arbitration_id=frame.id,
            is_extended_id=frame.extended,
            is_fd=frame.fd,
            bitrate_switch=frame.fd,
            data=frame.data,
            is_rx=is_rx,
            channel=self.number,
        )

    def _put(self, message: can.Message) -> None:
        if not self._is_filtered or message.is_error_frame or self._matches_filters(message):
            self._received.put(message)
            self.on_message()
