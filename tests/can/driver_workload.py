"""Soft events of several hosts with drivers that queue, among the frames of other stations; what became of each.

The same programs run on the simulator's controllers, whose mailboxes can be loaded again at any time.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from genus import Catalog, Event, Soft, UInt32
from genus.can import DeadlineMissed, Expired
from genus.can._live.interfaces import profile_of
from genus.can._node.node import Node
from genus.can._sim.controller import Controller
from genus.can._sim.simulation import Host
from genus.can.types import Passage
from genus.errors import BusError
from tests.can.emulated_can import EmulatedCan
from tests.can.emulated_host import MS, EmulatedHost

Mode: TypeAlias = Literal["simulator", "echo", "send"]


class Probe(Event):
    """The event that is published; its number is unique in a run."""

    number: UInt32


class Fast(Probe):
    """Deadline 5 ms."""


class Middle(Probe):
    """Deadline 10 ms."""


class Slow(Probe):
    """Deadline 20 ms."""


class Slower(Probe):
    """Deadline 50 ms."""


SPANS_MS = {Fast: (5, 15), Middle: (10, 30), Slow: (20, 60), Slower: (50, 150)}
"""Deadline and expiry of each type."""
EVENT_BITS = 118
"""About how long a frame of these events is."""
BEGIN_NS = 100 * MS
"""When publishing begins: the channels are announced then."""


class Workload(msgspec.Struct, frozen=True):
    """What is published, and what else is on the bus."""

    own_load: float = 0.4
    foreign_load: float = 0.4
    hosts: int = 4
    fifo: int = 10
    seconds: float = 1.0
    seed: int = 1
    longest_delay_ns: int = 200_000
    """How long a computer takes to read a message, at most."""
    foreign_priorities: tuple[int, ...] = tuple(range(1, 251))
    errors: float = 0.0


class Published(msgspec.Struct):
    """State: an event, and what became of it."""

    number: int
    node: int
    at: int
    deadline: int
    expires: int
    passage: Passage | None = None
    passages: int = 0
    told_missed: bool = False
    told_expired: bool = False

    @property
    def is_late(self) -> bool:
        """Whether it was on the bus after its deadline."""
        return self.passage is not None and self.passage.end_ns > self.deadline

    @property
    def is_expired(self) -> bool:
        """Whether it was on the bus after it had expired."""
        return self.passage is not None and self.passage.end_ns > self.expires

    @property
    def is_untold(self) -> bool:
        """Whether its publisher does not know that it was late, or not sent at all."""
        if self.passage is None or self.is_expired:
            return not self.told_expired
        return self.is_late and not self.told_missed


class Run:
    """State: one run of a workload; its results are read after `run`."""

    def __init__(self, workload: Workload, mode: Mode) -> None:
        self.workload, self.mode = workload, mode
        self.network = EmulatedCan(500_000, seed=workload.seed, errors=workload.errors)
        if workload.foreign_load:
            self.network.add_traffic(workload.foreign_load, priorities=workload.foreign_priorities)
        self.events: dict[int, Published] = {}
        self.nodes: list[Node] = []
        self.hosts: list[EmulatedHost | Host] = []
        self._random = random.Random(workload.seed)
        self._catalog = Catalog()
        self._catalog.register(*SPANS_MS)
        for index in range(workload.hosts):
            self._add_host(index)

    def run(self) -> "Run":
        """Let the time of the workload pass, and the time in which the last events expire."""
        end = round(self.workload.seconds * 1e9)
        self.network.run(end)
        self._random = random.Random(0)
        self._gap_ns = 1 << 60
        self.network.run(end + 200 * MS)
        self._find_passages()
        for host in self.hosts:
            if isinstance(host, EmulatedHost):
                host.bus.shutdown()
        return self

    @property
    def load(self) -> float:
        """The share of time in which the bus was busy."""
        return self.network.wire.busy_ns / self.network.now

    def count(self, condition: Callable[[Published], bool]) -> int:
        """How many events have a property."""
        return sum(map(condition, self.events.values()))

    @property
    def expired_on_bus(self) -> int:
        """How many events were on the bus after they had expired."""
        return self.count(lambda event: event.is_expired)

    def most_overtaken(self) -> int:
        """How many less urgent events of its own node were sent, at most, while an event waited."""
        most = 0
        for node in range(1, self.workload.hosts + 1):
            sent = [each for each in self.events.values() if each.node == node and each.passage is not None]
            sent.sort(key=lambda each: each.passage.start_ns)  # type: ignore[union-attr]
            for index, event in enumerate(sent):
                overtaking = 0
                for other in reversed(sent[max(0, index - 100) : index]):
                    assert other.passage is not None
                    if other.passage.start_ns < event.at:
                        break
                    overtaking += other.deadline > event.deadline
                most = max(most, overtaking)
        return most

    # -- within --------------------------------------------------------------------------------------------------------

    def _add_host(self, index: int) -> None:
        network, workload = self.network, self.workload
        node = Node(1000 + index, timing=network.timing, catalog=self._catalog, number=1 + index, synchronised=False)
        host: EmulatedHost | Host
        if self.mode == "simulator":
            host = Host(node, network.wire.attach(Controller(50 + index)), network.wire)
        else:
            profile = profile_of("socketcan", self.mode if self.mode == "send" else None)
            host = EmulatedHost(network, node, fifo=workload.fifo, profile=profile, delay=self._delay)
        host.call(node.start)
        for cls, (deadline, expires) in SPANS_MS.items():
            qos = Soft(deadline=f"{deadline}ms", expires=f"{expires}ms")
            host.call(lambda now, cls=cls, qos=qos: node.announce(cls, qos, now, on_problem=self._note))  # type: ignore[misc]
        self.hosts.append(host)
        self.nodes.append(node)
        self._gap_ns = round(workload.hosts * EVENT_BITS * network.timing.bit_ns / workload.own_load)
        network.at(BEGIN_NS, lambda: self._publish(host, node))

    def _delay(self) -> int:
        return self._random.randrange(30_000, self.workload.longest_delay_ns)

    def _publish(self, host: "EmulatedHost | Host", node: Node) -> None:
        now = self.network.now
        cls = self._random.choice(list(SPANS_MS))
        deadline, expires = SPANS_MS[cls]
        number = len(self.events) + 1
        with suppress(BusError):  # its channel may not be ready yet
            host.call(lambda at: node.publish(cls(number=number), at))
            assert node.number is not None
            self.events[number] = Published(number, node.number, now, now + deadline * MS, now + expires * MS)
        if now < self.workload.seconds * 1e9:
            gap = 1 + round(self._random.expovariate(1 / self._gap_ns))
            self.network.at(now + gap, lambda: self._publish(host, node))

    def _note(self, trouble: object) -> None:
        if isinstance(trouble, DeadlineMissed):
            self.events[trouble.event.number].told_missed = True  # type: ignore[attr-defined]
        elif isinstance(trouble, Expired):
            self.events[trouble.event.number].told_expired = True  # type: ignore[attr-defined]

    def _find_passages(self) -> None:
        etags = {self._catalog.etag(cls.__name__) for cls in SPANS_MS}
        for passage in self.network.trace:
            frame = passage.frame
            if frame.etag in etags and frame.node <= self.workload.hosts and passage.outcome == "sent":
                event = self.events[int.from_bytes(frame.data[1:5], "big")]
                event.passage = event.passage or passage
                event.passages += 1
