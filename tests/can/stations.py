"""A small node for tests of the protocols: the node-side components, a queue and nothing else, on the simulator."""

from collections.abc import Iterable
from typing import TypeVar

from genus.can._machine import EVENT_TRIGGERED, Load, Output
from genus.can._protocol.binding import BindingClient
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import MemoryStore, TableStore
from genus.can._protocol.catalog_queries import CatalogClient
from genus.can._protocol.configuration import ConfigurationClient
from genus.can._protocol.notices import Configured, NodeIdConflict, Notice
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Frame
from genus.catalog import Catalog

MS = 1_000_000
N = TypeVar("N", bound=Notice)


class Queue:
    """A queue of frames by identifier; the first of them is in the mailbox."""

    def __init__(self) -> None:
        self.waiting: list[Frame] = []
        self.loaded: Frame | None = None
        self.outputs: list[Output] = []

    def send(self, frame: Frame) -> None:
        self.waiting.append(frame)
        self.waiting.sort(key=lambda each: each.id)
        self.load()

    def withdraw(self, frame: Frame) -> None:
        self.waiting = [each for each in self.waiting if each is not frame]
        self.load()

    def sent(self, frame: Frame) -> None:
        if frame is self.loaded:
            self.loaded = None
        self.withdraw(frame)

    def load(self) -> None:
        first = self.waiting[0] if self.waiting else None
        if first is not self.loaded:
            self.loaded = first
            self.outputs.append(Load(EVENT_TRIGGERED, first))


class Station:
    """A machine of the three components; `notices` are what they notices, each with its time."""

    def __init__(self, uid: int, *, seed: int | None = None, subjects: Iterable[int] = ()) -> None:
        self.queue = Queue()
        self.notices: list[tuple[int, Notice]] = []
        self.now = 0
        self.up = False
        ways = {"send": self.queue.send, "withdraw": self.queue.withdraw, "notify": self.notify}
        self.configuration = ConfigurationClient(uid, seed=seed, **ways)  # type: ignore[arg-type]
        self.binding = BindingClient(**ways)  # type: ignore[arg-type]
        self.questions = CatalogClient(**ways)  # type: ignore[arg-type]
        self.components = (self.configuration, self.binding, self.questions)
        for subject in subjects:
            self.binding.bind(subject, 0)

    @property
    def node(self) -> int | None:
        return self.configuration.node

    def notices_of(self, kind: type[N]) -> list[N]:
        return [notice for _, notice in self.notices if isinstance(notice, kind)]

    def notify(self, notice: Notice) -> None:
        self.notices.append((self.now, notice))
        if isinstance(notice, Configured):
            self.binding.join(notice.node, self.now)
            self.questions.join(notice.node, self.now)
        elif isinstance(notice, NodeIdConflict) and not notice.kept:
            self.binding.leave()
            self.questions.leave()

    def receive(self, frame: Frame, now: int) -> None:
        self.now = now
        if self.up:
            for component in self.components:
                component.receive(frame, now)

    def sent(self, frame: Frame, now: int) -> None:
        self.now = now
        self.queue.sent(frame)

    def failed(self, frame: Frame, now: int) -> None:
        self.now = now
        self.configuration.failed(frame, now)

    def lost(self, now: int) -> None:
        self.now = now

    def taken(self, frame: Frame, now: int) -> None:
        self.now = now

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        self.now = now

    def error_passive(self, now: int, passive: bool) -> None:
        self.now = now

    def bus_off(self, now: int) -> None:
        self.queue.waiting, self.queue.loaded = [], None

    def bus_on(self, now: int) -> None:
        self.configuration.claim(now)

    @property
    def wake_at(self) -> int | None:
        if not self.up:
            return 0
        first = None
        for component in self.components:
            at = component.wake_at
            if at is not None and (first is None or at < first):
                first = at
        return first

    def wake(self, now: int) -> None:
        self.now = now
        if not self.up:
            self.up = True
            self.configuration.start(now)
        for component in self.components:
            component.wake(now)

    def take(self) -> list[Output]:
        outputs, self.queue.outputs = self.queue.outputs, []
        return outputs


class System:
    """A bus with stations and brokers on it."""

    def __init__(self, *, exact: bool = True, bitrate: int = 1_000_000) -> None:
        self.bus = SimBus(bitrate, exact_lengths=exact)
        self.hosts: list[Host] = []

    def broker(
        self, uid: int = 1, store: TableStore | None = None, catalog: Catalog | None = None, **more: bool
    ) -> Host:
        return self.add(Broker(uid, catalog or Catalog(), store or MemoryStore(), **more))  # type: ignore[arg-type]

    def station(self, uid: int, **more: int) -> Station:
        station = Station(uid, **more)  # type: ignore[arg-type]
        self.add(station)
        return station

    def add(self, machine: Station | Broker) -> Host:
        host = Host(machine, self.bus.attach(Controller(len(self.hosts))), self.bus)
        self.hosts.append(host)
        return host

    def run(self, ms: float) -> None:
        self.bus.run(self.bus.now + round(ms * MS))
