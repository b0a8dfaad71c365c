"""`Gateway`: carries events between buses, those that somebody on another bus wants and no others."""

import json
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from genus.bus import Bus
from genus.bus.types import QoS, Timer
from genus.errors import BusError, GenusError, Reasons
from genus.filters import Subscription
from genus.model import Event, is_type, name_of
from genus.net._envelope import Arrival, Interest
from genus.net._gateway.machine import Forward, GatewayMachine, GatewayStatus, SideStatus, metrics_of
from genus.net._gateway.outlet import MAX_BYTES, Outlet, Spool, parse_size
from genus.net._gateway.rules import RateLimit, Scope, SideRules, parse_rate
from genus.net._gateway.sides import CanSegment, LocalLink, relay_link
from genus.net._link.presence import GATE
from genus.net._metrics import Metric

log = logging.getLogger("genus.net")
STEP_S = 0.2
"""How often a gateway looks for what is due, at least."""
SYNC_S = 1.0
BEAT_S = 0.5
"""How often other gateways are told that this one works."""
LINGER_S, RESTORE_S = 0.5, 3.0
"""How long a side with a spool is believed to want what is gone, and how long after it is connected again."""
CATCH_UP_S = 0.05
"""How long an event waits at most until the interest that was told before it is followed."""
MAX_TOKEN = 2000
MAX_FOLLOWED = 16


class GatewaySide(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a gateway: a bus, and what may cross to it and from it.

    Args:
        bus: The bus, from `open_bus`; the gateway does not close it.
        name: Names the side in tables. Gateways that share a CAN bus must give it the same name.
        export: Types that may leave this side, with those below them; None: all.
        imports: Types that may enter this side, with those below them; None: all. A CAN bus, whose nodes do not tell
            what they want, wants all that is named here and not narrowed by `interest`.
        interest: What this side wants in any case.
        rate: Limits for types that enter this side, as `RateLimit` or text: `{Loop: "10/s"}`.
        quality: The quality of service with which types are sent to this side.
        spool: A folder for events that wait while this side is not connected; None: they are lost then.
        spool_size: The most that the folder may take, in bytes or as `"64MB"`; the oldest events are dropped for new
            ones.
        gateways: On CAN: node numbers of other gateways. What they send is not carried further.
    """

    bus: Bus
    name: str = ""
    export: Sequence[type] | None = None
    imports: Sequence[type] | None = None
    interest: Sequence[Subscription | str] = ()
    rate: Mapping[type, RateLimit | str] = {}
    quality: Mapping[type, QoS] = {}
    spool: str | os.PathLike[str] | None = None
    spool_size: int | str = MAX_BYTES
    gateways: Sequence[int] = ()

    def __post_init__(self) -> None:
        for field in ("export", "imports", "rate", "quality"):
            for given in getattr(self, field) or ():
                if not (isinstance(given, type) and is_type(given)):
                    raise BusError(f"{field} of a side names {given!r}; give event types or kinds, not their names")


class _Side:
    """State: a side with its link."""

    def __init__(self, number: int, given: GatewaySide, place: str, receive: Callable[[int, Arrival], None]) -> None:
        self.number, self.given = number, given
        self.name = given.name or f"side {number + 1}"
        self.link = relay_link(given.bus, f"{place}/{self.name}")
        self.segment = self.link if isinstance(self.link, CanSegment) else None
        self.is_virtual = given.bus.wait_for is not None
        self.is_network = self.segment is None and not isinstance(self.link, LocalLink)
        self.configured = [_as_subscription(one) for one in given.interest]
        if self.segment is not None:  # its nodes do not tell what they want
            self.configured += _implied(given.imports or (), self.configured)
        self.origin = os.urandom(8).hex()
        self.asked = 0
        self.believed: list[Interest] = []
        self.doubted_until: float | None = None
        """Until when interest that is gone is believed, unless the connection is lost."""
        self.relay = self.link.relay(lambda arrival: receive(number, arrival))
        self.ends: list[Callable[[], None]] = []
        self.shown: tuple[str, Callable[[], None]] | None = None
        self.followed: deque[bytes] = deque(maxlen=MAX_FOLLOWED)
        """The uids of other gateways of the same name on this side."""

    def rules(self) -> SideRules:
        given = self.given
        return SideRules(
            self.name,
            Scope(_types(given.export), _types(given.imports)),
            {cls: parse_rate(rate) if isinstance(rate, str) else rate for cls, rate in given.rate.items()},
            self.segment.prefix if self.segment is not None else b"",
            self.segment is None,
            self.link.hears_gateways,
        )

    def interests(self, now: float) -> list[Interest]:
        """Return what the side wants: what its participants tell, and what is configured.

        With a spool, what is gone is believed to be wanted for a while, as it may be gone with the connection, and as
        long as that is lost.
        """
        found = [*self.link.interests(), *(Interest("", self.origin, one) for one in self.configured)]
        gone = [interest for interest in self.believed if interest not in found] if self.given.spool is not None else []
        if gone and self.doubted_until is None:
            self.doubted_until = now + LINGER_S
        if not gone or (self.is_connected and now >= (self.doubted_until or 0.0)):
            self.doubted_until, gone = None, []
        self.believed = [*found, *gone]
        self.asked = len(self.believed)
        return self.believed

    @property
    def is_connected(self) -> bool:
        """Whether the side is connected, as far as its link tells."""
        return self.link.is_connected

    def show(self, text: str) -> None:
        """Show the token of the gateway; a new text replaces the old one."""
        if self.shown is None or self.shown[0] != text:
            before, self.shown = self.shown, (text, self.link.show(GATE, text))
            if before is not None:
                before[1]()

    def close(self) -> None:
        """Want nothing more, and be seen no more."""
        for end in self.ends:
            end()
        self.relay.close()
        if self.shown is not None:
            self.shown[1]()


class Gateway:
    """Carry events between two or more buses: each gets what is wanted there from all others, each event once.

    A gateway works from when it is made until it is closed; use it in a `with` block. It does not close the buses.

    Args:
        sides: The buses, each as it is or as a `GatewaySide` with options.
        name: Gateways with the same name, on the same networks, are doubled: one of them is active, the others stand
            by and take over. Without a name a gateway is always active.

    Raises:
        BusError: A bus cannot be used by gateways, or an option is wrong.

    >>> from genus import Event, Subscription, open_bus
    >>> class Loop(Event):
    ...     lane: int
    >>> with open_bus() as road, open_bus() as city, Gateway(road, city) as gateway:
    ...     listener = city.subscribe(Subscription(Loop), print)
    ...     gateway.settle()
    ...     road.publish(Loop(lane=2))
    Loop(lane=2)
    """

    def __init__(self, *sides: Bus | GatewaySide, name: str = "") -> None:
        if len(sides) < 2:
            raise BusError(f"a gateway needs two buses or more, not {len(sides)}")
        self.name = name
        self.uid = _new_uid()
        self._lock = threading.RLock()
        self._is_closed = False
        given = [side if isinstance(side, GatewaySide) else GatewaySide(bus=side) for side in sides]
        _check_names(given)
        self._virtual = next((side.bus for side in given if side.bus.wait_for is not None), None)
        self._clock = time.monotonic if self._virtual is None else self._virtual_time
        place = name or self.uid
        self._sides = [_Side(number, side, place, self._receive) for number, side in enumerate(given)]
        rules = [side.rules() for side in self._sides]
        self._machine = GatewayMachine(self.uid, rules, is_doubled=bool(name), now=self._clock())
        self._outlets = [self._outlet(side) for side in self._sides]
        self._was_active = self._machine.is_active
        self._peers: dict[tuple[int, str], dict[str, str]] = {}
        """By side and link: the texts of the tokens of other gateways, with the uid in each."""
        self._dirty = set(range(len(given)))
        self._changes = self._followed = 0
        """Changes of interest that were told, and those that were followed."""
        self._arrivals: list[tuple[int, Arrival]] = []
        self._is_stepping = threading.Lock()
        self._wake = threading.Event()
        self._synced_at = 0.0
        self._told_at = -BEAT_S
        """When the other gateways were told that this one works."""
        self._refused = Reasons()
        for side in self._sides:
            self._join(side)
        self._timer, self._thread = self._start()

    def __enter__(self) -> "Gateway":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- life --------------------------------------------------------------------------------------------------------

    def _outlet(self, side: _Side) -> Outlet:
        given = side.given
        spool = Spool(given.spool, parse_size(given.spool_size)) if given.spool is not None else None
        runs = side.segment is not None and not side.is_virtual  # a channel of CAN is announced when it is first used
        counts = self._machine.counts[side.number]
        lost = partial(self._tell_lost, side.number)
        return Outlet(side.name, given.bus, side.link, counts, given.quality, spool, runs=runs, on_lost=lost)

    def _tell_lost(self, target: int, arrival: Arrival) -> None:
        """Tell the receivers on a side, and the publisher on any other, that an event could not be sent there."""
        for side in self._sides:
            if side.number == target:
                side.link.lose(arrival)
            else:
                side.link.report_loss(arrival)

    def _join(self, side: _Side) -> None:
        """Follow what a side wants, the tokens of other gateways, and whether it is connected."""
        number = side.number
        side.ends.append(side.link.on_interest(lambda: self._interest_changed(side)))
        if self.name:
            side.ends.append(side.link.watch(GATE, lambda *token: self._token(number, *token)))
            side.ends.append(side.link.on_gateways(lambda text: self._heard(number, text)))
        side.ends.append(side.link.on_connected(lambda is_connected: self._connected(number, is_connected)))
        if side.segment is not None:
            side.segment.gateways.update(side.given.gateways)
            side.segment.on_copy = lambda event: self._copied(number, event)

    def _virtual_time(self) -> float:
        assert self._virtual is not None
        return self._virtual.time_ns() / 1e9

    def _start(self) -> tuple[Timer | None, threading.Thread | None]:
        """Begin: in the time of a simulated bus, if there is one, and else in a thread."""
        self.step()
        if self._virtual is not None:
            return self._virtual.every("10ms", self.step), None
        thread = threading.Thread(target=self._run, name="genus-gateway", daemon=True)
        thread.start()
        return None, thread

    def _run(self) -> None:
        while not self._is_closed:
            with self._lock:
                wake_at = self._machine.wake_at(self._clock())
            left = STEP_S if wake_at is None else max(0.0, min(STEP_S, wake_at - self._clock()))
            self._wake.wait(left)
            self._wake.clear()
            try:
                self.step()
            except Exception:  # of a bus that is being closed, or of a transport: the others are served on
                if not self._is_closed:
                    log.exception("a gateway failed in its regular work")

    def settle(self) -> None:
        """Follow all changes of interest that are known by now.

        A gateway does so by itself within some milliseconds; call this in tests.
        """
        with self._is_stepping:
            self._dirty.update(side.number for side in self._sides)  # a link may know what it did not tell yet
            self._step()

    def close(self) -> None:
        """Stop carrying events; send what waits, or leave it in its spool. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)
        for side in self._sides:
            side.close()
        for outlet in self._outlets:
            outlet.close()

    # -- inputs ------------------------------------------------------------------------------------------------------

    def _receive(self, side: int, arrival: Arrival) -> None:
        """An event came; in virtual time, those of a real network wait for the next step."""
        if self._virtual is not None and self._sides[side].is_network:
            self._arrivals.append((side, arrival))
            return
        if self._followed != self._changes:
            self._catch_up()
        with self._lock:
            self._put(self._machine.arrived(side, arrival, self._clock()))
        self._drain()

    def _catch_up(self) -> None:
        """Follow interest before an event that came after it: it may be a request, and the interest in its reply."""
        if self._virtual is None and self._is_stepping.acquire(timeout=CATCH_UP_S):
            try:
                if self._followed != self._changes:
                    self._step()
            finally:
                self._is_stepping.release()

    def _copied(self, side: int, event: Event) -> None:
        with self._lock:
            self._machine.copy_arrived(side, event, self._clock())

    def _interest_changed(self, side: _Side) -> None:
        self._dirty.add(side.number)
        self._changes += 1
        if self._virtual is not None and not side.is_network:
            self.step()
        else:
            self._wake.set()

    def _connected(self, side: int, is_connected: bool) -> None:
        if is_connected and self._sides[side].doubted_until is not None:
            self._sides[side].doubted_until = self._clock() + RESTORE_S
        with self._lock:
            self._put(self._machine.connected(side, is_connected, self._clock()))
        self._wake.set()

    def _token(self, side: int, link: str, text: str, is_present: bool) -> None:
        """A token of a gateway on a side: the name, the uid, and the numbers of its nodes on CAN buses."""
        peer = self._peer(text)
        if peer is None:
            return
        with self._lock:
            texts = self._peers.setdefault((side, link), {})
            if is_present:
                texts[text] = peer.uid
                self._told_at = -BEAT_S  # let a newcomer hear this one at once
                self._follow(self._sides[side], link)
            else:
                texts.pop(text, None)
                if not texts:
                    del self._peers[side, link]
            if is_present and not self._sides[side].link.hears_gateways:
                self._note_nodes(peer)
            self._put(self._machine.token(side, peer.uid, peer.uid in texts.values(), self._clock()))
        self._wake.set()

    def _heard(self, side: int, text: str) -> None:
        if (peer := self._peer(text)) is not None:
            with self._lock:
                self._note_nodes(peer)
                self._put(self._machine.heard_gateway(side, peer.uid, self._clock()))
            self._wake.set()

    def _peer(self, text: str) -> "_Token | None":
        """Return the token of another gateway of the same name; None if a text is none."""
        if len(text) > MAX_TOKEN:
            return None
        try:
            peer = _tokens.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return peer if peer.name == self.name and peer.uid != self.uid else None

    def _note_nodes(self, peer: "_Token") -> None:
        """Carry nothing further that the nodes of another gateway send on CAN; the file may limit which these are."""
        for side in self._sides:
            if side.segment is not None and side.name in peer.nodes and not side.given.gateways:
                side.segment.gateways.add(peer.nodes[side.name])

    def _follow(self, side: _Side, link: str) -> None:
        """Remember what another gateway sends to a side, unless this one carries events itself."""
        uid = bytes.fromhex(link)
        if uid not in side.followed:
            side.followed.append(uid)
        if not self._was_active:
            side.link.follow(side.followed)

    def _note_role(self) -> None:
        """Take over from other gateways, or stand by for them."""
        self._was_active = self._machine.is_active
        for side, outlet in zip(self._sides, self._outlets, strict=True):
            if self._was_active:
                outlet.take_over()
            else:
                side.link.follow(side.followed)

    # -- regular work ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do what is due, unless another thread does; a gateway calls this by itself."""
        if self._is_stepping.acquire(blocking=False):
            try:
                self._step()
            finally:
                self._is_stepping.release()

    def _step(self) -> None:
        changes = self._changes
        self._take_arrivals()
        self._dirty |= {side.number for side in self._sides if self._is_doubt_over(side)}
        while self._dirty:
            self._follow_interest(self._dirty.pop())
        with self._lock:
            self._put(self._machine.tick(self._clock()))
            changed = self._machine.take_changed()
        for side, interests in changed.items():
            self._set_interest(side, interests)
        self._followed = changes
        self._show_tokens()
        self._drain()
        self._sync()

    def _is_doubt_over(self, side: _Side) -> bool:
        return side.doubted_until is not None and side.is_connected and self._clock() >= side.doubted_until

    def _set_interest(self, side: int, interests: list[Interest]) -> None:
        """Want something on a side; what is refused is tried again with the next step."""
        try:
            self._sides[side].relay.set_interest(interests)
        except GenusError as problem:
            with self._lock:
                self._machine.repeat_interest(side)
            if not self._is_closed and self._refused.add(str(problem)):
                log.warning("a gateway cannot ask for what is wanted of %s: %s", self._sides[side].name, problem)

    def _take_arrivals(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        with self._lock:
            for side, arrival in arrivals:
                self._put(self._machine.arrived(side, arrival, self._clock()))

    def _follow_interest(self, side: int) -> None:
        interests = self._sides[side].interests(self._clock())
        with self._lock:
            self._put(self._machine.interest_changed(side, interests, self._clock()))

    def _show_tokens(self) -> None:
        if self.name and not self._is_closed:
            text = _Token(self.name, self.uid, self._nodes()).text()
            is_due = self._clock() - self._told_at >= BEAT_S
            self._told_at = self._clock() if is_due else self._told_at
            for side in self._sides:
                side.show(text)
                if is_due:
                    side.link.tell_gateways(text)

    def _nodes(self) -> dict[str, int]:
        """By side: the number of this gateway's node on a CAN bus."""
        numbers = {side.name: side.segment.node_number for side in self._sides if side.segment is not None}
        return {name: number for name, number in numbers.items() if number is not None}

    def _put(self, forwards: list[Forward]) -> None:
        """Add events to the outlets; the lock is held, so that they are in order."""
        if self._was_active != self._machine.is_active:
            self._note_role()
        for forward in forwards:
            self._outlets[forward.target].put(forward.arrival)

    def _drain(self) -> None:
        for outlet in self._outlets:
            outlet.drain()

    def _sync(self) -> None:
        if self._clock() - self._synced_at >= SYNC_S:
            self._synced_at = self._clock()
            for outlet in self._outlets:
                outlet.sync()

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Return whether this gateway carries events; a standby does not."""
        return self._machine.is_active

    @property
    def is_closed(self) -> bool:
        """Return whether the gateway was closed."""
        return self._is_closed

    @property
    def sides(self) -> Mapping[str, GatewaySide]:
        """Return the sides by name; those without one are `side 1` and so on."""
        return {side.name: side.given for side in self._sides}

    def status(self) -> GatewayStatus:
        """Return the present state with all counters; call it as often as you like."""
        with self._lock:
            sides = tuple(self._side_status(side) for side in self._sides)
            machine, events = self._machine, Counter[str]()
            for cls, count in machine.events.items():
                events[name_of(cls)] += count
            return GatewayStatus(machine.is_active, machine.held, machine.unconfirmed, sides, events)

    def _side_status(self, side: _Side) -> SideStatus:
        outlet = self._outlets[side.number]
        return SideStatus(
            name=side.name,
            is_connected=outlet.is_connected,
            asked=side.asked,
            refused=self._machine.refused_interests(side.number),
            waiting=outlet.waiting + self._machine.waiting(side.number),
            **self._machine.counts[side.number].as_dict(),
        )

    def metrics(self) -> Iterator[Metric]:
        """Return the counters for Prometheus, by side."""
        return metrics_of(self.status())


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """What a gateway shows to others."""

    name: str
    uid: str
    nodes: dict[str, int] = {}

    def text(self) -> str:
        return json.dumps([self.name, self.uid, dict(sorted(self.nodes.items()))])


_tokens: msgspec.json.Decoder[_Token] = msgspec.json.Decoder(_Token)


def _new_uid() -> str:
    """A uid that is higher than those of gateways that were started before: a newcomer stands by."""
    return f"{time.time_ns() // 1_000_000:011x}{os.urandom(3).hex()[:5]}"[-16:]


def _check_names(sides: Sequence[GatewaySide]) -> None:
    names = [side.name for side in sides if side.name]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise BusError(f"two sides are named {doubled!r}; give each a name of its own")
    if len({id(side.bus) for side in sides}) < len(sides):
        raise BusError("two sides are the same bus; a gateway connects different ones")


def _types(given: Sequence[type] | None) -> tuple[type, ...] | None:
    return None if given is None else tuple(given)


def _implied(imports: Sequence[type], stated: Sequence[Subscription]) -> list[Subscription]:
    """Return what is wanted since it may enter: each of the types of which nothing else is said."""
    said = [cls for one in stated for cls in one.types]
    return [
        Subscription(cls) for cls in imports if not any(issubclass(cls, one) or issubclass(one, cls) for one in said)
    ]


def _as_subscription(given: Subscription | str) -> Subscription:
    return Subscription.parse(given) if isinstance(given, str) else given
