"""Networks and gateways in virtual time: tokens and packets take random times, in order between two participants."""

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count

from genus import Event, Subscription
from genus.model import name_of
from genus.net._envelope import NUMBERS, Arrival, Interest, Origin
from genus.net._gateway.machine import Forward, GatewayMachine
from genus.net._gateway.rules import SideRules


class Clock:
    """State: virtual time, and what is to come."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._ids = count()
        self._last: dict[object, float] = {}

    def at(self, time: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (max(time, self.now), next(self._ids), call))

    def later(self, way: object, call: Callable[[], None], least: float = 0.0005, most: float = 0.005) -> None:
        """Call after a random time, but not before what was sent earlier on the same way."""
        time = max(self.now + self.random.uniform(least, most), self._last.get(way, 0.0))
        self._last[way] = time
        self.at(time, call)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heapq.heappop(self._due)
            call()
        self.now = until


class Participant:
    """State: somebody on a network. What it wants is told to the others, who see it later."""

    def __init__(self, network: "Network", uid: str) -> None:
        self.network, self.uid = network, uid
        self.is_alive = True
        self.interests: list[Interest] = []
        self.seen: dict[str, list[Interest]] = {}
        """What others want, by speaker, as this participant knows it."""
        network.join(self)

    def declare(self, interests: list[Interest]) -> None:
        self.interests = [
            Interest(self.uid, interest.origin, interest.subscription, interest.hops) for interest in interests
        ]
        self.network.tell(self, self.interests)

    def interest_changed(self) -> None: ...

    def receive(self, arrival: Arrival, sender: str) -> None: ...

    def matches(self, event: Event) -> bool:
        return any(interest.subscription.matches(event) for interest in self.interests)


class Network:
    """State: a network on which all see each other."""

    def __init__(self, clock: Clock, name: str) -> None:
        self.clock, self.name = clock, name
        self.participants: list[Participant] = []
        self.gates: dict[str, GatewaySide] = {}
        self.forwarded: list[tuple[str, Arrival]] = []
        """What gateways sent here."""

    def join(self, newcomer: Participant) -> None:
        for other in self.participants:
            self._show(other, newcomer, other.interests)
        self.participants.append(newcomer)

    def tell(self, speaker: Participant, interests: list[Interest]) -> None:
        for observer in self.participants:
            if observer is not speaker:
                self._show(speaker, observer, interests)

    def _show(self, speaker: Participant, observer: Participant, interests: list[Interest]) -> None:
        def seen() -> None:
            if observer.is_alive:
                observer.seen[speaker.uid] = list(interests)
                observer.interest_changed()

        self.clock.later((self.name, speaker.uid, observer.uid, "want"), seen)

    def send(self, sender: Participant, arrival: Arrival) -> None:
        for receiver in self.participants:
            if receiver is not sender and receiver.is_alive and receiver.matches(arrival.event):
                self._deliver(sender, receiver, arrival)

    def _deliver(self, sender: Participant, receiver: Participant, arrival: Arrival) -> None:
        def deliver() -> None:
            if receiver.is_alive:
                receiver.receive(arrival, sender.uid)

        self.clock.later((self.name, sender.uid, receiver.uid), deliver)


class Subscriber(Participant):
    """State: a subscriber, and how often it got each event. Its link drops copies, by origin."""

    def __init__(self, network: Network, uid: str, *subscriptions: Subscription) -> None:
        super().__init__(network, uid)
        self.got: Counter[tuple[bytes, str, int]] = Counter()
        self.declare([Interest(uid, uid, one, 0) for one in subscriptions])

    def receive(self, arrival: Arrival, sender: str) -> None:
        self.got[arrival.origin.uid, name_of(type(arrival.event)), arrival.origin.number] += 1

    def cancel(self) -> None:
        self.declare([])


class Publisher(Participant):
    """State: a publisher, with a number per type."""

    def __init__(self, network: Network, uid: str) -> None:
        super().__init__(network, uid)
        self._numbers: Counter[type] = Counter()

    def publish(self, event: Event) -> Arrival:
        self._numbers[type(event)] += 1
        arrival = Arrival(event, Origin(self.uid.encode().ljust(8, b"-"), self._numbers[type(event)]))
        self.network.send(self, arrival)
        return arrival


class GatewaySide(Participant):
    """State: a gateway on one network."""

    def __init__(self, network: Network, gateway: "ModelGateway", number: int) -> None:
        self.gateway, self.number = gateway, number
        super().__init__(network, f"{gateway.machine.uid}.{number}")

    def interest_changed(self) -> None:
        self.gateway.interest_changed(self)

    def receive(self, arrival: Arrival, sender: str) -> None:
        self.gateway.receive(self.number, arrival)


class CanSegment(Network):
    """State: a CAN bus. Nobody tells what it wants, events have no numbers, and all get them in the same order."""

    def tell(self, speaker: Participant, interests: list[Interest]) -> None: ...

    def join(self, newcomer: Participant) -> None:
        self.participants.append(newcomer)

    def publish(self, node: int, event: Event, sender: Participant | None = None) -> None:
        for receiver in self.participants:
            if receiver is not sender and receiver.is_alive and receiver.matches(event):
                self._deliver_frame(receiver, node, event, sender)

    def _deliver_frame(self, receiver: Participant, node: int, event: Event, sender: Participant | None) -> None:
        def deliver() -> None:
            if not receiver.is_alive:
                return
            if isinstance(receiver, CanSide):
                receiver.receive_frame(node, event, sender is not None)
            else:
                receiver.receive(Arrival(event, Origin(bytes([node]), 0)), "")

        self.clock.later((self.name, receiver.uid), deliver)


class CanSide(GatewaySide):
    """State: a gateway on a CAN bus; it counts the events of each node."""

    PREFIX = b"CAN-"

    def __init__(self, network: CanSegment, gateway: "ModelGateway", number: int) -> None:
        super().__init__(network, gateway, number)
        self.segment = network
        self._numbers: Counter[tuple[int, type]] = Counter()
        self._first = network.clock.random.randrange(1 << 32)  # as after any step of the clock
        self._epoch = network.clock.random.randbytes(2)

    def receive_frame(self, node: int, event: Event, is_from_gateway: bool) -> None:
        if is_from_gateway:
            self.gateway.machine.copy_arrived(self.number, event, self.network.clock.now)
            return
        self._numbers[node, type(event)] += 1
        uid = self.PREFIX + self._epoch + bytes([0, node])
        self.gateway.receive(
            self.number, Arrival(event, Origin(uid, (self._first + self._numbers[node, type(event)]) % NUMBERS))
        )


class ModelGateway:
    """State: a machine between networks, driven in virtual time."""

    def __init__(
        self, clock: Clock, uid: str, *networks: Network, name: str = "", rules: dict[str, SideRules] | None = None
    ) -> None:
        self.clock, self.name = clock, name
        self.is_alive = True
        sides = [
            (rules or {}).get(network.name)
            or SideRules(
                network.name,
                prefix=CanSide.PREFIX if isinstance(network, CanSegment) else b"",
                tells_tokens=not isinstance(network, CanSegment),
            )
            for network in networks
        ]
        self.machine = GatewayMachine(uid, sides, is_doubled=bool(name), now=clock.now)
        self.sides: list[GatewaySide] = []
        for number, network in enumerate(networks):
            kind = CanSide if isinstance(network, CanSegment) else GatewaySide
            self.sides.append(kind(network, self, number))  # type: ignore[arg-type]
        if name:
            self._show_tokens(True)
        self._apply([])

    def _show_tokens(self, is_present: bool) -> None:
        for side in self.sides:
            if isinstance(side.network, CanSegment):
                continue
            for other in list(side.network.gates.values()):
                if other.gateway.name == self.name:
                    self._show_token(side, other, is_present)
                    if is_present:
                        self._show_token(other, side, True)
            if is_present:
                side.network.gates[side.uid] = side
            else:
                side.network.gates.pop(side.uid, None)

    def _show_token(self, shown: GatewaySide, observer: GatewaySide, is_present: bool) -> None:
        def seen() -> None:
            watching = observer.gateway
            if watching.is_alive:
                found = watching.machine.token(observer.number, shown.gateway.machine.uid, is_present, self.clock.now)
                watching._apply(found)

        self.clock.later((shown.uid, observer.uid, "gate"), seen, 0.001, 0.02)

    def interest_changed(self, side: GatewaySide) -> None:
        interests = [interest for interests in side.seen.values() for interest in interests]
        self._apply(self.machine.interest_changed(side.number, interests, self.clock.now))

    def receive(self, side: int, arrival: Arrival) -> None:
        self._apply(self.machine.arrived(side, arrival, self.clock.now))

    def tick(self) -> None:
        if self.is_alive:
            self._apply(self.machine.tick(self.clock.now))

    def _apply(self, forwards: list[Forward]) -> None:
        for forward in forwards:
            side = self.sides[forward.target]
            self.machine.counts[forward.target].crossed += 1
            side.network.forwarded.append((self.machine.uid, forward.arrival))
            if isinstance(side, CanSide):
                side.segment.publish(100 + side.number, forward.arrival.event, side)
            else:
                side.network.send(side, forward.arrival)
        for number, interests in self.machine.take_changed().items():
            if {*interests} != {
                Interest("", interest.origin, interest.subscription, interest.hops)
                for interest in self.sides[number].interests
            }:
                self.sides[number].declare(interests)
        wake = self.machine.wake_at(self.clock.now)
        if wake is not None and self.is_alive:
            self.clock.at(wake, self.tick)

    def kill(self) -> None:
        """Nothing more is sent; the others see it later."""
        self.is_alive = False
        for side in self.sides:
            side.is_alive = False
            side.network.tell(side, [])
        if self.name:
            self._show_tokens(False)


def reachable(start: Network, gateways: list[ModelGateway]) -> set[str]:
    """The names of the networks that events of a network can get to."""
    ways: defaultdict[str, set[str]] = defaultdict(set)
    for gateway in gateways:
        names = {side.network.name for side in gateway.sides}
        for name in names:
            ways[name] |= names
    found, waiting = {start.name}, [start.name]
    while waiting:
        for name in ways[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found
