"""Stations for tests of the simulator that record the calls of their controllers, and a machine that records inputs."""

from typing import Any

from genus.can._machine import Accept, Call, Load, Output
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller, ControllerListener
from genus.can._wire.frame import Frame

BIT = 1_000
"""Nanoseconds at 1 Mbit/s."""


class RecordingStation(ControllerListener):
    """Records (time in bits, number, kind, frame) of each call in a log that several stations can share."""

    def __init__(self, bus: SimBus, number: int, log: list[Any] | None = None, **options: Any) -> None:
        self.number = number
        self.log: list[Any] = [] if log is None else log
        self.controller = bus.attach(Controller(number, self, **options))

    def record(self, kind: str, now: int, frame: Frame | None = None) -> None:
        self.log.append((now // BIT, self.number, kind, frame))

    def receive(self, frame: Frame, now: int) -> None:
        self.record("receive", now, frame)

    def sent(self, frame: Frame, now: int) -> None:
        self.record("sent", now, frame)

    def failed(self, frame: Frame, now: int) -> None:
        self.record("failed", now, frame)

    def lost(self, now: int) -> None:
        self.record("lost", now)

    def error_passive(self, now: int, passive: bool) -> None:
        self.record("error_passive" if passive else "error_active", now)

    def bus_off(self, now: int) -> None:
        self.record("bus_off", now)

    def bus_on(self, now: int) -> None:
        self.record("bus_on", now)

    def times_of(self, kind: str) -> list[int]:
        """The times, in bits, of the calls of this kind."""
        return [time for time, number, each, _ in self.log if each == kind and number == self.number]


class RepeatingStation(RecordingStation):
    """Sends the same frame again and again."""

    def __init__(self, bus: SimBus, number: int, frame: Frame, **options: Any) -> None:
        super().__init__(bus, number, **options)
        self.frame = frame
        self.controller.load(0, frame)

    def sent(self, frame: Frame, now: int) -> None:
        super().sent(frame, now)
        self.controller.load(0, self.frame)

    def bus_on(self, now: int) -> None:
        super().bus_on(now)
        self.controller.load(0, self.frame)


class GivingUpStation(RecordingStation):
    """Empties the mailbox of a frame that failed."""

    def failed(self, frame: Frame, now: int) -> None:
        super().failed(frame, now)
        self.controller.load(0, None)


class RecordingMachine:
    """A machine that records its inputs, and outputs what a test puts into `outputs`."""

    def __init__(self) -> None:
        self.inputs: list[tuple[str, int]] = []
        self.outputs: list[Output] = []
        self.alarms: list[int] = []
        self.frames: list[Frame] = []

    def receive(self, frame: Frame, now: int) -> None:
        self.frames.append(frame)
        self.inputs.append(("receive", now))

    def sent(self, frame: Frame, now: int) -> None:
        self.inputs.append(("sent", now))

    def failed(self, frame: Frame, now: int) -> None:
        self.inputs.append(("failed", now))

    def lost(self, now: int) -> None:
        self.inputs.append(("lost", now))

    def taken(self, frame: Frame, now: int) -> None:
        self.inputs.append(("taken", now))

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        self.inputs.append(("gone" if gone else "unconfirmed", now))

    def error_passive(self, now: int, passive: bool) -> None:
        self.inputs.append(("error_passive" if passive else "error_active", now))

    def bus_off(self, now: int) -> None:
        self.inputs.append(("bus_off", now))

    def bus_on(self, now: int) -> None:
        self.inputs.append(("bus_on", now))

    @property
    def wake_at(self) -> int | None:
        return min(self.alarms, default=None)

    def wake(self, now: int) -> None:
        self.inputs.append(("wake", now))
        self.alarms = [alarm for alarm in self.alarms if alarm > now]

    def take(self) -> list[Output]:
        taken, self.outputs = self.outputs, []
        return taken

    def load(self, frame: Frame | None, mailbox: int = 1) -> None:
        self.outputs.append(Load(mailbox, frame))

    def accept(self, *filters: tuple[int, int]) -> None:
        self.outputs.append(Accept(filters))

    def call(self, handler: Any, *arguments: Any) -> None:
        self.outputs.append(Call(handler, arguments))


def worst_case_bus(**options: Any) -> SimBus:
    """A bus at 1 Mbit/s with frames of maximum length: one of 8 bytes takes 160 bits."""
    return SimBus(1_000_000, exact_lengths=False, **options)


def frame(priority: int, node: int = 1, data: bytes = bytes(8)) -> Frame:
    """A frame of the middleware's layout, with event tag 200."""
    return Frame(priority << 21 | node << 14 | 200, data)
