"""`NetLink`: a typed bus on any transport.

It numbers what is sent, delivers each event once, notices what is missing and tells both ends, shows what is wanted,
and keeps the contract of channels. The transport carries bytes. Work that takes time of its own (beats, settling of
losses, problems) is done by one thread, every 0.1 s.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol
from weakref import WeakSet

import msgspec

from genus.bus import BestEffort, Capabilities, Link, Soft, format_qos
from genus.bus.types import Delivery, Keep, ProblemHandler, QoS
from genus.errors import BusError
from genus.filters import Subscription
from genus.model import Event, name_of, subtypes
from genus.net._envelope import MAX_HOPS, Arrival, Interest, Origin, RelayLink, new_uid
from genus.net._link.channels import (
    Measured,
    NetPublisher,
    RoundTrips,
    check_abilities,
    check_measured,
    monotonic_utc_us,
    sending_of,
)
from genus.net._link.foreign import ForeignLoss, ForeignMessages, ForeignOutgoing, ForeignSource
from genus.net._link.incoming import Deliver, IncomingKey, IncomingKeys, Reception
from genus.net._link.losses import BEAT_S, JOIN_S, SETTLE_RELIABLE_S, SETTLE_S, HeldPackets, LateEvents, Losses
from genus.net._link.messages import LAST, NEW, control_key, send_once
from genus.net._link.outgoing import EncodeCloud, Outgoing, OutgoingKeys
from genus.net._link.patterns import ActiveSubscription, ActiveSubscriptions, Patterns
from genus.net._link.presence import (
    GATE,
    AnnouncedChannel,
    InterestText,
    LocalInterest,
    Participant,
    Presence,
    RemoteInterest,
    asks_for_kind,
)
from genus.net._link.queues import SHARE, QueueGroups, SharedKeys
from genus.net._link.relays import KeptEvents, NetRelay, RecentPackets
from genus.net._link.types import Conflict, StatedTypes
from genus.net._transport import NORMAL, OnceLogger, Sending, SharingTransport, Transport, WindowedTransport
from genus.targets.topics import TopicFilter
from genus.targets.topics import compile as compile_topics

TICK_S = 0.1
INTEREST_S = 1.0
"""How long after the connection was made it takes at most until what others want is known."""
MOMENT_S = 0.05
"""How long a token is under way."""
_OF_PACKETS = {name: f"packets {name}" for name in ("sent", "received", "acknowledged")}
"""How counters of a transport are shown beside those of events."""


class Permissions(Protocol):
    """What a participant may do; each method raises BusError with the reason if it may not."""

    def check_publish(self, cls: type) -> None: ...

    def check_subscribe(self, subscription: Subscription) -> None: ...

    def check_gateway(self) -> None: ...


class Unlimited:
    """The permissions of an address without grants."""

    def check_publish(self, cls: type) -> None: ...

    def check_subscribe(self, subscription: Subscription) -> None: ...

    def check_gateway(self) -> None: ...


class NetLink(Link, RelayLink):
    """A link to the other participants of a network; made by `open_bus`."""

    capabilities = Capabilities(send_all=True, last_values=True)
    hears_gateways = True
    counts_all = False

    def __init__(
        self,
        transport: Transport,
        realm: str,
        *,
        medium: str,
        reliable: bool = False,
        permit: Permissions | None = None,
        foreign: Sequence[ForeignSource] = (),
        encode_cloud: EncodeCloud | None = None,
        now: Callable[[], float] = time.monotonic,
        runs: bool = True,
    ) -> None:
        self.uid = new_uid()
        self.realm, self.medium, self.transport = realm, medium, transport
        self.now, self._runs = now, runs
        self.time_us = monotonic_utc_us if now is time.monotonic else lambda: int(now() * 1e6)
        self._is_connected, self._connected_at = True, now()
        self._reliable, self._encode_cloud = reliable, encode_cloud
        self._permit: Permissions = permit or Unlimited()
        self._hex = self.uid.hex()
        self._deliver: Delivery | None = None
        self._incoming = IncomingKeys(self, transport.dialect, realm)
        counts = self._incoming.counts
        self._foreign = ForeignMessages(foreign, transport, realm, counts, self._deliver_foreign, self._lose_foreign)
        self.stated = StatedTypes(transport, realm, counts.unread)
        self._log = OnceLogger("genus.net")
        self.held = HeldPackets(now, self._log)
        self._new_root = control_key(realm, NEW) + "/"
        self._hears_new = False
        self._are_types_due = False
        self._to_do: list[Callable[[], None]] = []
        """What the thread that receives was asked to do and has not begun."""
        self._presence = Presence(transport, realm, self._hex, counts.rejections)
        self._shared = SharedKeys(self, self._incoming)
        self._patterns = Patterns(transport, realm, now)
        self._kept = KeptEvents(self._patterns, self.uid)
        self._local_interest = LocalInterest(transport.declare, realm, self._hex)
        self._remote_interest = RemoteInterest(realm, self._hex)
        self._groups = QueueGroups(self, self._incoming, self._remote_interest.is_wanted)
        self._late = LateEvents(monotonic_utc_us)
        self.is_on_time = self._late.is_on_time
        self._subscriptions = ActiveSubscriptions(self._patterns)
        self._publishers: dict[NetPublisher, Callable[[], None]] = {}
        """What was announced, each with a function that ends to show it to others."""
        self._send_options: dict[type, Sending] = {}
        """How types that were announced are sent; gateways forward them so, too."""
        self.relays: list[NetRelay] = []
        self._recent = RecentPackets(now, self._key(LAST, ""))
        self._on_gateways: list[Callable[[str], None]] = []
        self._on_interest: list[Callable[[], None]] = []
        self._on_connected: list[Callable[[bool], None]] = []
        self._sends: dict[type, Outgoing | ForeignOutgoing] = {}
        self._control: dict[str, Callable[[bytes], None]] = {}
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._ticker: threading.Thread | None = None
        self._receiving_thread: int | None = None
        self._types_seen: WeakSet[type] = WeakSet()
        self._beat_at = self._settle_at = 0.0

    # -- a link of a bus ---------------------------------------------------------------------------------------------

    def open(self, deliver: Delivery) -> None:
        """Join the network; raise BusError with the reason if it cannot be reached."""
        self._deliver = deliver
        self._types_seen.update(subtypes(Event))
        self.transport.open(self)
        self._outgoing = OutgoingKeys(
            self.transport, self.uid, self.realm, self.stated, self._encode_cloud, self._forget_sent, self.now
        )
        self._losses = Losses(self, self._incoming, self._outgoing, self._late)
        self._round_trips = RoundTrips(self.transport, self.realm, self._hex)
        self._control = {
            self._key("beat"): self._losses.on_beat,
            self._key("lost", self._hex): self._losses.on_loss,
            self._key("late", self._hex): self._losses.on_late,
            self._key("ping"): self._round_trips.on_ping,
            self._key("pong", self._hex): self._round_trips.on_pong,
        }
        for key in self._control:
            self.transport.subscribe(key)
        self.transport.subscribe(self.stated.pattern, kept=True)
        self._foreign.subscribe()
        for what in ("want", "group"):
            self.transport.watch(self._key(what, self.transport.dialect.rest))
        self._presence.open()
        if self._runs:
            self._ticker = threading.Thread(target=self._run, name=f"genus-{self.medium}", daemon=True)
            self._ticker.start()

    def send(self, event: Event) -> None:
        """Send an event that was published here."""
        outgoing = self._sends.get(event.__class__) or self._open_send(event.__class__)
        number = outgoing.send(event)
        if self._groups.members:
            self._groups.send(event)
        if self.relays:
            self.relay_own(event, number, None)

    def send_all(self, events: Sequence[Event]) -> None:
        """Send events that were published here, in their order; neighbours of one key travel in common packets.

        All are encoded before the first is sent: EventError if one cannot be, and none is sent.
        """
        made = []
        for cls, run in groupby(events, attrgetter("__class__")):
            outgoing, some = self._sends.get(cls) or self._open_send(cls), list(run)
            made.append((outgoing, some, outgoing.prepare_all(some)))
        for outgoing, some, prepared in made:
            numbers = outgoing.send_all(some, prepared)
            for event in some if self._groups.members else ():
                self._groups.send(event)
            if self.relays:
                for event, number in zip(some, numbers, strict=True):
                    self.relay_own(event, number, None)

    def _open_send(self, cls: type[Event]) -> Outgoing | ForeignOutgoing:
        self._permit.check_publish(cls)
        source = self._foreign.writer_of(cls)
        if source is not None:
            self._sends[cls] = foreign = ForeignOutgoing(self.transport, source, self._reliable)
            return foreign
        made = self._sends[cls] = self._outgoing.outgoing(cls, Sending(NORMAL, self._reliable))
        return made

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        """Receive what a subscription matches, and show that it is wanted; returns a function that ends it."""
        self._permit.check_subscribe(subscription)
        self._hear_new(subscription)
        active = ActiveSubscription(subscription, on_problem, self._compile(subscription))
        self._subscriptions.add(active)
        self._incoming.subscriptions_changed()
        self._local_interest.add(subscription)
        self.stated.state_later(subscription.types)
        self._tell_conflicts(subscription.types, on_problem)
        self._interest_changed()
        return lambda: self._unlisten(active)

    def _hear_new(self, asked: Subscription) -> None:
        """Receive copies of the first events of new classes if a subscription may match classes that are not known."""
        if not self._hears_new and asks_for_kind(asked):
            self._hears_new = True
            self.transport.subscribe(self._new_root + self.transport.dialect.rest)

    def _unlisten(self, active: ActiveSubscription) -> None:
        if self._subscriptions.discard(active) and not self._closing.is_set():
            self._local_interest.remove(active.subscription)
            self._patterns.remove(active.filter.patterns)
            self._drop_kept()
            self._interest_changed()

    def _drop_kept(self) -> None:
        """Forget last values that are not subscribed to any more; who subscribes again gets them again."""
        for key in self._kept.drop_unsubscribed():
            self._incoming.forget(key)

    def share(
        self,
        subscription: Subscription,
        deliver: Callable[[Event], bool],
        on_problem: Callable[[], list[ProblemHandler]],
    ) -> Callable[[], None]:
        """Call a function with this participant's share of what a subscription matches; return what ends it."""
        self._permit.check_subscribe(subscription)
        can_share = isinstance(self.transport, SharingTransport) and self.transport.can_share
        end = (self._shared if can_share else self._groups).join(subscription, deliver, on_problem)
        self._local_interest.add(subscription)
        self._interest_changed()
        ends = [end]
        return lambda: self._end_share(subscription, ends)

    def _end_share(self, subscription: Subscription, ends: list[Callable[[], None]]) -> None:
        with self._lock:  # the last two consumers may leave at once
            end = ends.pop() if ends else None
        if end is not None and not self._closing.is_set():
            self._local_interest.remove(subscription)
            end()
            self._interest_changed()

    def _compile(self, subscription: Subscription) -> TopicFilter:
        return compile_topics(subscription, self.transport.dialect, self.realm)

    def compile_again(self, subscription: Subscription) -> TopicFilter:
        """Compile what gateways want, or what new types are part of: if it is not granted, that is counted and logged.

        There is no caller to be told, and what is granted of it still arrives.
        """
        self._is_granted(subscription, self._permit.check_subscribe)
        return self._compile(subscription)

    def _is_granted(self, what: Any, check: Callable[[Any], None]) -> bool:
        try:
            check(what)
        except BusError as problem:
            self._log.warning(str(problem))
            self._incoming.counts.rejections.add(str(problem))
            return False
        return True

    def counters(self) -> Mapping[str, int]:
        """Return the numbers of events sent, received and lost, of packets rejected by reason, and of the transport."""
        counts = self._incoming.counts
        own = {
            "sent": self._outgoing.sent() if self._control else 0,
            "received": counts.received,
            "duplicates": counts.duplicates,
            "too old": counts.too_old,
            "conflicting numbers": counts.conflicts,
            "superseded": counts.superseded,
            "late": self._late.late,
            "expired": self._late.expired,
            **(self._losses.counts() if self._control else {}),
            **{f"rejected: {reason}": count for reason, count in counts.rejections.counts.items()},
            **{f"rejected: {reason}": count for reason, count in self._remote_interest.refused.items()},
            **{f"not read: {label}": count for label, count in dict(counts.unread).items()},
            **counts.not_known,
            **{f"not read: {label}": count for label, count in self._foreign.unread().items()},
        }
        carried = {_OF_PACKETS.get(name, name): count for name, count in self.transport.counters().items()}
        return {name: count for name, count in own.items() if count} | carried

    def examples(self) -> Mapping[str, Any]:
        """Return the last packet rejected for each reason, and the last value of each attribute that was not read."""
        counts = self._incoming.counts
        unread = {f"not read: {label}": value for label, value in dict(counts.unread.examples).items()}
        return {**counts.rejections.examples, **unread}

    def stop_receiving(self) -> None:
        """Leave what was not delivered yet to a network that keeps it."""
        if isinstance(self.transport, WindowedTransport):
            self.transport.stop_handling()

    def close(self) -> None:
        """Leave the network; a second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._ticker is not None and self._ticker is not threading.current_thread():
            self._ticker.join(2)
        if self._control:
            self._foreign.close()
            self._losses.beat()
            self._losses.beat()  # a beat holds if another one follows
            self._losses.tell()
        self.transport.close()

    @property
    def types(self) -> Mapping[str, Any]:
        """Return the classes, by name, of types that others have stated and this program has not declared."""
        return self.stated.classes.named()

    # -- channels ----------------------------------------------------------------------------------------------------

    def announce(
        self,
        cls: type,
        qos: QoS = BestEffort(),  # noqa: B008 - it is frozen
        on_problem: ProblemHandler | None = None,
        carries: tuple[str, ...] = (),
        keep: Keep | None = None,
    ) -> NetPublisher:
        """Prepare to publish a type with a quality of service; raise BusError if the network cannot keep it."""
        self._permit.check_publish(cls)
        check_abilities(cls, qos, keep, self.medium, self.transport.abilities)
        if isinstance(qos, Soft) and (measured := self.measure()) is not None:
            check_measured(cls, qos, measured, self.medium)
        sending = sending_of(qos, self._reliable, keep)
        self._send_options[cls] = msgspec.structs.replace(sending, keep=False)
        outgoing = self._outgoing.outgoing(cls, sending, keep)
        publisher = NetPublisher(outgoing, qos, on_problem, self._published, self._withdraw)
        self._publishers[publisher] = self._presence.show_channel(name_of(cls), format_qos(qos))
        self._tell_conflicts([cls], on_problem)
        return publisher

    def measure(self) -> Measured | None:
        """Measure round trips and clocks; None if no other participant answers.

        BusError in a handler: it runs in the thread that receives the answers.
        """
        if threading.get_ident() == self._receiving_thread:
            raise BusError("round trips cannot be measured in a handler of the bus; announce soft channels elsewhere")
        return self._round_trips.measure() if self.participants() else None

    def _withdraw(self, publisher: NetPublisher) -> None:
        end = self._publishers.pop(publisher, None)
        if end is not None and not self._closing.is_set():
            end()

    def _published(self, event: Event, number: int, key: str, kept: str | None) -> None:
        """Give an event that a channel has sent to all others that get it; it is kept for gateways that come later."""
        if kept is not None:
            self._kept.keep_sent(key, Arrival(event, Origin(self.uid, number), kept))
        if self._groups.members:
            self._groups.send(event)
        self.deliver_own(event)
        if self.relays:
            self.relay_own(event, number, kept)

    def deliver_own(self, event: Event) -> None:
        """Give an event that was published here to the subscribers of this bus."""
        assert self._deliver is not None
        self._deliver(event)

    def last_values(self, subscription: Subscription) -> list[Event]:
        """Return the kept events of others that this process knows and that a subscription matches."""
        foreign = [event for event in self._foreign.last_events() if subscription.matches(event)]
        return [*(arrival.event for arrival in self._kept.of_others(subscription)), *foreign]

    # -- who is there, and what they want ----------------------------------------------------------------------------

    def participants(self) -> list[Participant]:
        """Return the other participants of the network."""
        return self._presence.participants()

    def announced(self) -> list[AnnouncedChannel]:
        """Return the channels that the other participants have announced, as far as it is known by now."""
        return self._presence.channels()

    def heard_ago(self, uid: str) -> float | None:
        """Return how many seconds ago a participant last said that it had sent events; None if it did not yet."""
        return self._losses.heard_ago(bytes.fromhex(uid)) if self._control else None

    def interests(self) -> list[Interest]:
        """Return what others and the own bus subscribe to; what the own gateways ask for is left out."""
        return [
            *self._remote_interest.all(),
            *(Interest(self._hex, self._hex, each) for each in self._local_interest.own()),
        ]

    def interest_texts(self) -> list[InterestText]:
        """Return what others want, as they say it; also of types that are unknown here."""
        return self._remote_interest.texts()

    def wanted_by(self, event: Event) -> Collection[str]:
        """Return the other participants that want an event, by uid."""
        return self._remote_interest.wanted_by(event)

    def asked_of(self, cls: type[Event]) -> list[str]:
        """Return the subscriptions of others to a type, as text."""
        return self._remote_interest.asked_of(cls)

    @property
    def interest_delay_s(self) -> float:
        """Return in how many seconds at most what others want is known: longer just after the connection was made."""
        return max(MOMENT_S, INTEREST_S - (self.now() - self._connected_at)) if self._is_connected else INTEREST_S

    def on_interest(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function, from any thread, when `interests()` has changed; returns a function to end it."""
        self._on_interest.append(changed)
        return lambda: self._on_interest.remove(changed) if changed in self._on_interest else None

    @property
    def is_connected(self) -> bool:
        """Return whether the network is reached now."""
        return self._is_connected

    def on_connected(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call a function when the connection is made or lost; returns a function to end it."""
        self._on_connected.append(changed)
        return lambda: self._on_connected.remove(changed) if changed in self._on_connected else None

    def show(self, what: str, text: str) -> Callable[[], None]:
        """Show a token to all while this process lives."""
        return self._presence.show(what, text)

    def watch(self, what: str, changed: Callable[[str, str, bool], None]) -> Callable[[], None]:
        """Call a function with uid, text and presence of the tokens of others; returns a function to end it."""
        return self._presence.watch(what, changed)

    def _interest_changed(self) -> None:
        for changed in list(self._on_interest):
            changed()

    # -- gateways ----------------------------------------------------------------------------------------------------

    def relay(self, receive: Callable[[Arrival], None]) -> NetRelay:
        """Let a gateway receive what it wants on behalf of others."""
        patterns, interests, kept = self._patterns, self._local_interest, self._kept.all
        relay = NetRelay(receive, patterns, interests, self._compile_wanted, kept, self._drop_kept, self._end_relay)
        self.relays.append(relay)
        return relay

    def _compile_wanted(self, subscription: Subscription) -> TopicFilter:
        self._hear_new(subscription)
        return self.compile_again(subscription)

    def _end_relay(self, relay: NetRelay) -> None:
        if relay in self.relays:
            self.relays.remove(relay)

    def give_relays(self, arrival: Arrival) -> None:
        """Give an event to the gateways that want it."""
        for relay in list(self.relays):
            relay.give(arrival)

    def relay_own(self, event: Event, number: int, kept: str | None) -> None:
        """Give an event that was published here to the gateways that want it."""
        self.give_relays(Arrival(event, Origin(self.uid, number), kept))

    def _forget_sent(self, key: str, number: int | None) -> None:
        """Keep no event of a key, as others were told; gateways are, too, if it was said here."""
        if number is None:
            self._kept.forget(key)
        else:
            self.forgotten(key, Origin(self.uid, number))

    def forward(self, arrival: Arrival) -> None:
        """Send an event of another network to this one, and to the subscribers of this bus, with its origin."""
        event, origin, kept = arrival.event, arrival.origin, arrival.kept
        if not self._is_granted(type(event), self._permit.check_publish):
            return
        outgoing = self.outgoing_for(type(arrival.event), keeps=arrival.kept is not None)
        key = outgoing.key_of(event, kept)
        known = self._incoming.find(key)
        if origin.hops > MAX_HOPS:
            self._incoming.counts.rejections.add(f"more than {MAX_HOPS} hops", key)
        elif not isinstance(known, str) and not known.is_new(origin, event):
            return
        elif kept is not None and arrival.is_forgotten:
            outgoing.forget_for(event, origin, kept)
        else:
            outgoing.send_for(event, origin, kept)
            if kept is not None:
                self._kept.keep_sent(key, arrival)
            self._groups.send(event, origin)
            self.deliver_own(event)

    def tell_gateways(self, text: str) -> None:
        """Tell the other gateways on this network something."""
        send_once(self.transport, self._key(GATE), text.encode())

    def on_gateways(self, heard: Callable[[str], None]) -> Callable[[], None]:
        """Call a function with what other gateways tell; BusError if this participant may not be one."""
        self._permit.check_gateway()
        if self._key(GATE) not in self._control:
            self._control[self._key(GATE)] = self._hear_gateway
            self.transport.subscribe(self._key(GATE))
        self._on_gateways.append(heard)
        return lambda: self._on_gateways.remove(heard)

    def _hear_gateway(self, payload: bytes) -> None:
        for heard in list(self._on_gateways):
            heard(payload.decode(errors="replace"))

    def follow(self, senders: Collection[bytes]) -> None:
        """Remember the last packets that these participants, other gateways, send; replaces those before."""
        self._recent.follow(senders)

    def repeat(self) -> None:
        """Send what is remembered of others again as it was, and how far they came: they are gone."""
        self._recent.send_again(self.transport, reliable=self._reliable)
        self._losses.beat_for(self._recent.senders)

    def lose(self, arrival: Arrival) -> None:
        """Let the receivers on this network miss an event that could not be forwarded."""
        self.outgoing_for(type(arrival.event), keeps=arrival.kept is not None).skip(arrival.event, arrival.kept)

    def report_loss(self, arrival: Arrival) -> None:
        """Tell the publisher of an event, if it is on this network, that a gateway lost it."""
        key = self.outgoing_for(type(arrival.event), keeps=arrival.kept is not None).key_of(arrival.event, arrival.kept)
        self._losses.report(arrival.origin.uid, key, 1)

    def outgoing_for(self, cls: type[Event], *, keeps: bool = False) -> Outgoing:
        """Return what sends the events of a type, in the manner in which it was announced here."""
        sending = self._send_options.get(cls) or Sending(NORMAL, self._reliable)
        return self._outgoing.outgoing(cls, msgspec.structs.replace(sending, keep=True) if keeps else sending)

    # -- what the transport calls ------------------------------------------------------------------------------------

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        """A packet arrived."""
        if self._recent.senders:
            self._recent.note(key, envelope, payload)
        try:
            known = self._incoming.get(key)
            if known is not None:
                known.read(envelope, payload)
            else:
                self._first_packet(key, envelope, payload)
        except Exception:
            self._incoming.counts.rejections.add("an error of this program, which is in the log", key, payload)
            self._log.exception("a packet of %r could not be read", key)

    def _first_packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        control = self._control.get(key)
        if control is not None:
            control(payload)
        elif key.startswith(SHARE):
            self._shared.packet(key, envelope, payload, self.held.read)
        elif self.stated.is_statement(key):
            self._take_statement(key, payload)
        elif key.startswith(self._new_root):
            event_key = f"{self.realm}/{key.removeprefix(self._new_root)}"
            self.held.read_with(self._incoming, event_key, partial(self._read_copy, envelope, payload), len(payload))
        elif not self._foreign.packet(key, payload):
            self.held.read(self._incoming, key, envelope, payload)

    # -- types that are not known yet --------------------------------------------------------------------------------

    def _read_copy(self, envelope: bytes, payload: bytes, known: IncomingKey | str) -> None:
        """Read a copy of an event of a new class, if it is wanted and did not come by itself."""
        if isinstance(known, str) or known.is_seen(envelope):
            return
        if self.count_subscriptions(known.type) or any(relay.wants_type(known.type) for relay in list(self.relays)):
            known.read(envelope, payload)

    def hold(self, key: str, read: Callable[[IncomingKey | str], None], size: int) -> bool:
        """Call a function later, when more was stated about types, or after a short time; whether that is done."""
        return self.held.hold(self._incoming, key, read, size)

    def _call(self, work: Callable[[], None]) -> None:
        """Do work in the thread that receives, once if it is still to be done: handlers never run in two threads."""
        if work in self._to_do:
            return
        self._to_do.append(work)

        def do() -> None:
            self._to_do.remove(work)
            work()

        self.transport.call(do)

    def _take_statement(self, key: str, payload: bytes) -> None:
        taken = self.stated.take(key, payload)
        if isinstance(taken, str):
            self._incoming.counts.rejections.add(taken, key, payload)
        elif isinstance(taken, Conflict):
            self._incoming.counts.rejections.add(taken.reason, key, payload)
            self._losses.refuse_type(taken.type, taken.reason, self._concerned_by(taken.types))
        elif taken is not None:
            self._incoming.types_changed(taken.table.types[taken.name].family)
            self.held.release_known()
            self._are_types_due = True

    def _tell_conflicts(self, types: Iterable[type], handler: ProblemHandler | None) -> None:
        """Tell a new subscription or channel of the statements about its types that were refused before."""
        for conflict in self.stated.conflicts_about(types):
            if handler is not None:
                self._losses.refuse_type(conflict.type, conflict.reason, [handler])

    def _concerned_by(self, types: Collection[str]) -> list[ProblemHandler]:
        """Return the problem handlers of subscriptions to one of some types, and of their channels."""
        asked = self._subscriptions.handlers(lambda each: any(name_of(cls) in types for cls in each.subscription.types))
        return asked + self.publishers_of(*types)

    def take_foreign(self, key: str, read: Any, payload: bytes) -> None:
        """Take what was read from a message without an envelope: an event, or the reason why there is none."""
        self._foreign.take(key, read, payload)

    def _deliver_foreign(self, arrival: Arrival) -> None:
        self.deliver_own(arrival.event)
        self.give_relays(arrival)

    def _lose_foreign(self, loss: ForeignLoss) -> None:
        """Tell the subscriptions, or if they are this process's own the channels, that may miss foreign events."""
        if loss.is_own:
            handlers = self.publishers_of(*loss.types)
        else:
            classes = [cls for cls in subtypes(Event) if name_of(cls) in loss.types]
            handlers = self._subscriptions.handlers(lambda each: any(map(each.subscription.accepts, classes)))
        self._losses.lose_foreign(loss, handlers)

    def token(self, key: str, is_present: bool) -> None:
        """Take the news that a token of another participant appeared or is gone."""
        self._receiving_thread = threading.get_ident()
        try:
            self._read_token(key, is_present)
        except Exception:
            self._log.exception("a token could not be read: %.200r", key)

    def _read_token(self, key: str, is_present: bool) -> None:
        if key.startswith(self._groups.token_root):
            self._groups.token(key, is_present)
            return
        is_interest = key.startswith(self._key("want") + "/")
        if (self._remote_interest if is_interest else self._presence).token(key, is_present):
            if is_present and not is_interest and self._control:
                self._losses.beat_to_all()
            self._interest_changed()
        if is_interest and is_present and self._control and self._remote_interest.may_concern_kind(key):
            self._outgoing.copy_again()

    def dropped(self, key: str, count: int, reason: str) -> None:
        """Packets of this participant were not sent."""
        self._losses.dropped(key, count, reason)

    def connected(self, is_connected: bool) -> None:
        """The connection to the network was made, or lost."""
        self._is_connected = is_connected
        self._connected_at = self.now()
        for changed in list(self._on_connected):
            changed(is_connected)

    # -- what incoming packets need ----------------------------------------------------------------------------------

    def deliverer(self, cls: type[Event]) -> Deliver:
        """Return the function that delivers events of a class on the bus."""
        assert self._deliver is not None
        return self._deliver.for_class(cls)

    def count_subscriptions(self, cls: type[Event]) -> int:
        """Return how many subscriptions accept events of a class."""
        return self._subscriptions.count(cls)

    def reception_of(self, key: str) -> Reception:
        """Return where the events of a key go: here, or to the consumers of a queue that processes share."""
        member = self._groups.member_of(key)
        return self if member is None else member.reception

    def keep(self, key: str, arrival: Arrival) -> bool:
        """Keep an event for subscribers of this process that come later; False if a newer one is known.

        Of several publishers of a key, each has kept a value for those that subscribe; they come in any order.
        """
        if self._kept.is_older(key, arrival) and self._has_just_joined(key):
            return False
        if not self._kept.keep(key, arrival):
            self._incoming.forget(key)  # who subscribes again gets it again
        return True

    def _has_just_joined(self, key: str) -> bool:
        """Return whether packets of a key may be those that were kept, and not just published."""
        since = self.subscribed_since(key)
        return since is not None and self.now() - since <= JOIN_S

    def forgotten(self, key: str, origin: Origin) -> None:
        """Keep no event of a key any more, as its publisher said, and tell gateways."""
        arrival = self._kept.forget(key)
        if arrival is not None and self.relays:
            self.give_relays(Arrival(arrival.event, origin, arrival.kept, is_forgotten=True))

    # -- who is told of problems -------------------------------------------------------------------------------------

    def subscribed_since(self, key: str) -> float | None:
        """Return since when this participant has subscribed to a key without a break; None if it does not."""
        if key.startswith(self._groups.key_root):
            member = self._groups.member_of(key)
            return None if member is None else member.since
        since = self._patterns.since(key, self._incoming.split(key)[0])
        return None if since is None else since.time

    @property
    def turn(self) -> int:
        """Return the number of subscriptions that were made so far."""
        return self._patterns.turn

    def has_been_interrupted(self, key: str, turn: int) -> bool:
        """Return whether a key was not subscribed to for a time since a turn."""
        since = self._patterns.since(key, self._incoming.split(key)[0])
        return since is None or since.turn > turn

    def listeners_of(self, key: str) -> list[ProblemHandler]:
        """Return the problem handlers of the subscriptions to a key."""
        if key.startswith(self._groups.key_root):
            member = self._groups.member_of(key)
            return [] if member is None else member.handlers()
        event_key, _ = self._incoming.split(key)
        own = self._subscriptions.handlers(lambda each: each.filter.accepts(event_key))
        return own + self._shared.listeners_of(event_key)

    def publishers_of(self, *types: str) -> list[ProblemHandler]:
        """Return the problem handlers of the channels of some types."""
        publishers = [each for each in list(self._publishers) if name_of(each.type) in types]
        return [each.on_problem for each in publishers if each.on_problem is not None]

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.wait(TICK_S):
            try:
                self.tick()
            except Exception:
                self._log.exception("the link of %s failed in its regular work", self.medium)

    def tick(self) -> None:
        """Do what is due: beats, losses, lateness, new types, and reports of problems."""
        now = self.now()
        self.stated.state_waiting()
        if self.held.has_old:
            self._call(self.held.release_old)
        if now - self._beat_at >= BEAT_S or self._are_types_due:
            self._are_types_due = False
            self._check_types()
        if now - self._beat_at >= BEAT_S:
            self._beat_at = now
            self._losses.beat()
        if isinstance(self.transport, WindowedTransport) and self.transport.busy_s > SETTLE_S:
            self._settle_at = now + SETTLE_RELIABLE_S  # what a beat says is missing is held back until then
        if now >= self._settle_at:
            self._losses.settle(SETTLE_RELIABLE_S if self._reliable else SETTLE_S)
        self._groups.end_lingering()
        self._losses.report_lateness()
        self._losses.tell()

    def _check_types(self) -> None:
        """Follow the types that were declared since: kinds have more classes, unknown types become known."""
        new = [cls for cls in subtypes(Event) if cls not in self._types_seen]
        if not new:
            return
        self._types_seen.update(new)
        self._call(self._incoming.types_changed)
        self._call(self.held.release_known)
        self._subscriptions.compile_again(self.compile_again)
        for relay in list(self.relays):
            relay.compile_again()
        if self._remote_interest.types_changed():
            self._interest_changed()
        self._shared.types_changed()

    def _key(self, *chunks: str) -> str:
        return control_key(self.realm, *chunks)
