"""Runs a machine through a `DriverPort` on an emulated driver, in virtual time: what `LiveHost` does with threads."""

from collections.abc import Callable
from typing import TypeVar

from genus.can._live.host import BusDriver, read_message
from genus.can._live.interfaces import InterfaceProfile, profile_of
from genus.can._live.port import DriverPort
from genus.can._machine import Machine
from tests.can.emulated_can import EmulatedCan

R = TypeVar("R")
MS = 1_000_000
EPOCH_NS = 1_700_000_000_000_000_000
"""The reading of a host's clock at the start of virtual time."""


class EmulatedHost:
    """State: a machine on a station of an emulated network; `delay` is how long it takes to read a message."""

    def __init__(
        self,
        network: EmulatedCan,
        machine: Machine,
        *,
        fifo: int = 10,
        echo: bool = True,
        profile: InterfaceProfile | None = None,
        delay: Callable[[], int] = lambda: 50_000,
        filters: int = 512,
        long_errors: bool = False,
    ) -> None:
        self.network = network
        self.machine = machine
        self.bus = network.open(fifo=fifo, echo=echo, epoch=1000, filters=filters, long_errors=long_errors)
        self.bus.on_message = self._message_came
        profile = profile or profile_of("socketcan")
        self.driver = BusDriver(self.bus, profile.filters)
        self.port = DriverPort(machine, self.driver, profile, network.timing)
        self._delay = delay
        self._read_at = 0
        self._alarm: int | None = None

    @property
    def now(self) -> int:
        return EPOCH_NS + self.network.now

    def call(self, action: Callable[[int], R]) -> R:
        result = self.port.call(action, self.now)
        self._finish()
        return result

    def _message_came(self) -> None:
        self._read_at = max(self._read_at, self.network.now + self._delay())
        self.network.at(self._read_at, self._read)

    def _read(self) -> None:
        message = self.bus.recv(0)
        if message is not None:
            read_message(self.port, message, self.now)
        self._finish()

    def _finish(self) -> None:
        while not self.driver.calls.empty():
            call = self.driver.calls.get()
            assert call is not None
            call.handler(*call.arguments)
        at = self.port.wake_at
        if at is not None and (self._alarm is None or at < self._alarm):
            self._alarm = at
            self.network.at(max(self.network.now, at - EPOCH_NS), self._wake)

    def _wake(self) -> None:
        at = self._alarm
        if at is None or at > self.now:
            return
        self._alarm = None
        self.port.wake(self.now)
        self._finish()
