"""The broker: gives numbers to nodes and event tags to subjects, and answers questions about the catalog.

It can be restarted at any time. Whatever it grants is in its tables before it sends the reply. Before it grants a
number it calls the roll: nodes that have a number answer with a claim. Claims have a higher priority than the broker's
frames; so once a frame of the broker was sent some time after the roll call, no answer waits for the bus any more.

A standby listens, and takes over if the broker is silent. Of two active brokers the one with the lower uid stays.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from genus.can._machine import EVENT_TRIGGERED, Accept, Load, Output
from genus.can._protocol.binding import BindingServer
from genus.can._protocol.broker_tables import (
    AnnouncedChannel,
    BrokerTables,
    EtagSource,
    MemoryEtags,
    NodeRegistry,
    TableStore,
)
from genus.can._protocol.catalog_queries import CatalogIndex, CatalogServer
from genus.can._protocol.configuration import ConfigurationServer, check_uid
from genus.can._protocol.messages import (
    PUBLISHER_QUESTIONS,
    Announce,
    Claim,
    GetEtag,
    Heartbeat,
    Message,
    Nibble,
    NumberGrant,
    QosClass,
    Question,
    Signature,
    Supply,
    parse_message,
)
from genus.can._protocol.notices import (
    BROKER_TIMEOUT,
    CLAIM_JITTER,
    CLAIM_PERIOD,
    COLLISION_BACKOFF,
    DEFENCE_INTERVAL,
    FAILURES_BEFORE_BACKOFF,
    ROLL_CALL_WAIT,
    ChannelConflict,
    EtagsRefused,
    NodeIdConflict,
    Notice,
    RoleChanged,
    StoreFailed,
)
from genus.can._protocol.signatures import MAX_PUBLISHERS, SAME_CATALOG, Conflict, SignatureWatch
from genus.can._wire.frame import BROKER_NODE, CLASSIC_BYTES, ETAG_MASK, FD_BYTES, Frame, ProtocolEtag, subject_uid
from genus.catalog import Catalog
from genus.errors import CatalogConflict, EtagsExhausted, GenusError

ROLL_CALLS = 2
"""The roll is called twice before numbers are granted, in case a node missed the first call."""

PROTOCOL_FRAMES = ((0, ETAG_MASK & ~0x7F),)
"""The acceptance filter of a broker: all event tags below 128."""


class BrokerTxQueue:
    """State: the frames that a broker wants to send, by identifier, and for equal ones by age; each frame once.

    The first frame is put into the mailbox by an output for the driver, which is appended to `outputs`.
    """

    def __init__(self, outputs: list[Output], random: Random) -> None:
        self._outputs = outputs
        self._random = random
        self._waiting: list[Frame] = []
        self._loaded: Frame | None = None
        self._failures = 0
        self.wake_at: int | None = None
        """When a backoff ends."""

    def send(self, frame: Frame) -> None:
        """Queue a frame, unless it is queued already."""
        if frame not in self._waiting:
            insort(self._waiting, frame, key=lambda each: each.id)
            self._load()

    def sent(self, frame: Frame) -> None:
        self._failures = 0
        if frame == self._loaded:
            self._loaded = None
        if frame in self._waiting:
            self._waiting.remove(frame)
        self._load()

    def failed(self, now: int) -> None:
        """A frame was corrupted: it is repeated, after a random backoff if it may collide with another broker's."""
        self._failures += 1
        if self._failures >= FAILURES_BEFORE_BACKOFF:
            self._failures = 0
            self.wake_at = now + 1 + self._random.randrange(COLLISION_BACKOFF)
            self._load()

    def wake(self, now: int) -> None:
        if self.wake_at is not None and now >= self.wake_at:
            self.wake_at = None
            self._load()

    def clear(self) -> None:
        self._waiting.clear()
        self.wake_at = None
        self._load()

    def reset(self) -> None:
        """Drop all frames after the controller lost the contents of its mailbox."""
        self._loaded = None
        self.clear()

    def _load(self) -> None:
        first = self._waiting[0] if self._waiting and self.wake_at is None else None
        if first is not self._loaded:
            self._loaded = first
            self._outputs.append(Load(EVENT_TRIGGERED, first))


class Broker:
    """State: a broker of one bus, as a machine that a driver runs; see `genus can broker` for a live bus.

    `uid` is its own 64-bit number, `store` keeps its tables (`MemoryStore`, `FileStore`). A `standby` begins by
    listening. `fd` says that events may have frames of 64 bytes. `etags` gives event tags to types that have none when
    a node asks for them. `notify` gets notices. BusError for an invalid uid, TableDamaged if the tables cannot be read.
    """

    def __init__(
        self,
        uid: int,
        catalog: Catalog,
        store: TableStore,
        *,
        standby: bool = False,
        fd: bool = False,
        etags: EtagSource | None = None,
        notify: Callable[[Notice], None] = lambda notice: None,
        seed: int | None = None,
    ) -> None:
        self.uid = check_uid(uid)
        self.counts: Counter[str] = Counter()
        """How many requests were processed and dropped, by reason."""
        self._notify = notify
        self._etags = etags or MemoryEtags()
        self._tables = BrokerTables(store)
        self._random = Random(uid + self._tables.epoch if seed is None else seed)
        self._capacity = FD_BYTES if fd else CLASSIC_BYTES
        self._catalog, self._index = catalog, CatalogIndex(catalog, self._capacity)
        self._outputs: list[Output] = [Accept(PROTOCOL_FRAMES)]
        self._tx_queue = BrokerTxQueue(self._outputs, self._random)
        self._registry = NodeRegistry(self._tables)
        self._configuration = ConfigurationServer(self._tx_queue.send, self._grant)
        self._binding = BindingServer(self._tx_queue.send, self._supply)
        self._answers = CatalogServer(self._tx_queue.send, lambda question: self._index.answer(question))
        self._signatures = SignatureWatch(
            send=self._tx_queue.send,
            node=lambda: BROKER_NODE if self._active else None,
            catalog=lambda: self._catalog,
            is_relevant=lambda name: True,
            on_conflict=self._on_conflict,
        )
        self._reported: set[tuple[int, int, str]] = set()
        """Conflicts that were reported."""
        self._now = 0
        self._active = False
        self._seen_epoch = self._other = 0
        self._take_over_at: int | None = BROKER_TIMEOUT if standby else 0
        self._is_new = True
        self._heartbeat_at: int | None = None
        self._defended_at: int | None = None
        self._calls = 0
        self._call: Frame | None = None
        self._listen_until: int | None = None

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether it serves the bus; otherwise it is a standby."""
        return self._active

    @property
    def epoch(self) -> int:
        return self._tables.epoch

    @property
    def numbers(self) -> Mapping[int, int]:
        return self._tables.numbers

    @property
    def channels(self) -> Mapping[str, AnnouncedChannel]:
        return self._tables.channels

    def use(self, catalog: Catalog) -> None:
        """Serve a catalog that has grown; CatalogConflict if it does not extend the current one."""
        if catalog is not self._catalog and not catalog.extends(self._catalog):
            raise CatalogConflict("a broker's catalog may only grow, but types or attributes are missing or changed")
        self._catalog, self._index = catalog, CatalogIndex(catalog, self._capacity)
        self._signatures.use(self._now)
        if self._active:
            self._heartbeat_at = 0

    # -- machine -----------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        self._start(now)
        self._now = now
        message = parse_message(frame)
        if message is not None:
            self._on_message(message, now)
        elif frame.etag == ProtocolEtag.ANSWER:
            self._signatures.receive_layout(frame, now)

    def sent(self, frame: Frame, now: int) -> None:
        self._tx_queue.sent(frame)
        self._configuration.sent(frame, now)
        self._binding.sent(frame)
        self._answers.sent(frame, now)
        if frame == self._call:
            self._call, self._listen_until = None, now + ROLL_CALL_WAIT

    def failed(self, frame: Frame, now: int) -> None:
        self._tx_queue.failed(now)

    def lost(self, now: int) -> None:
        """Another frame won the arbitration; nothing to do."""

    def taken(self, frame: Frame, now: int) -> None:
        """A driver took a frame; nothing to do."""

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        """A frame was not confirmed in time; if it is gone, it is sent again, which does no harm."""

    def error_passive(self, now: int, passive: bool) -> None:
        """The controller became error passive, or active again; nothing to do: a broker has no hard channels."""

    def bus_off(self, now: int) -> None:
        """The controller is off the bus: drop everything that waits."""
        self._tx_queue.reset()
        self._stop_serving()

    def bus_on(self, now: int) -> None:
        """The controller is back on the bus: call the roll again, or listen again as a standby."""
        if self._active:
            self._serve(now)
        elif not self._is_new:
            self._take_over_at = now + BROKER_TIMEOUT

    @property
    def wake_at(self) -> int | None:
        own = (self._take_over_at, self._heartbeat_at, self._listen_until)
        times = (*own, self._tx_queue.wake_at, self._configuration.wake_at, self._answers.wake_at)
        if self._is_new:
            return 0
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: int) -> None:
        self._start(now)
        self._tx_queue.wake(now)
        self._configuration.wake(now)
        self._answers.wake(now)
        if self._take_over_at is not None and now >= self._take_over_at:
            self._take_over(now)
        if self._listen_until is not None and now >= self._listen_until:
            self._end_roll_call()
        if self._heartbeat_at is not None and now >= self._heartbeat_at:
            self._send_heartbeat(now)

    def take(self) -> list[Output]:
        outputs, self._outputs[:] = list(self._outputs), []
        return outputs

    # -- active or standby -------------------------------------------------------------------------------------------

    def _start(self, now: int) -> None:
        """Begin all timeouts at the first time that is known."""
        if self._is_new:
            self._is_new = False
            self._registry.renew_leases(now)
            if self._take_over_at is not None:
                self._take_over_at += now

    def _take_over(self, now: int) -> None:
        self._tables.begin_epoch(self._seen_epoch)
        if not self._save():
            self._take_over_at = now + CLAIM_PERIOD
            return
        self._take_over_at = None
        self._active = True
        self._notify(RoleChanged(True, self._other))
        self._serve(now)

    def _serve(self, now: int) -> None:
        self._registry.renew_leases(now)
        self._send_heartbeat(now)
        self._call_roll()

    def _stop_serving(self) -> None:
        self._configuration.close()
        self._binding.clear()
        self._answers.clear()
        self._take_over_at = self._heartbeat_at = self._call = self._listen_until = None

    def _call_roll(self) -> None:
        """Grant no numbers until all nodes that have one could claim it."""
        self._configuration.close()
        self._listen_until = None
        self._calls = ROLL_CALLS
        self._call_once()

    def _call_once(self) -> None:
        self._calls -= 1
        self._call = Heartbeat(self.epoch, self._index.digest, roll_call=True).frame()
        self._tx_queue.send(self._call)

    def _end_roll_call(self) -> None:
        self._listen_until = None
        if self._calls:
            self._call_once()
        else:
            self._configuration.open()

    def _send_heartbeat(self, now: int) -> None:
        """Send claim and heartbeat, and save what changed in the tables since the last time."""
        self._save()
        self._heartbeat_at = now + CLAIM_PERIOD - self._random.randrange(CLAIM_JITTER)
        self._tx_queue.send(Claim(BROKER_NODE, self.uid).frame())
        self._tx_queue.send(Heartbeat(self.epoch, self._index.digest).frame())

    def _on_other_broker(self, now: int, uid: int = 0) -> None:
        """Another broker serves this bus."""
        self._other = uid or self._other
        if not self._active:
            self._take_over_at = now + BROKER_TIMEOUT + self._random.randrange(CLAIM_JITTER)
        elif uid == self.uid:
            self._notify(NodeIdConflict(BROKER_NODE, uid, kept=True))
        elif 0 < uid < self.uid:
            self._become_standby(now)
        elif self._defended_at is None or now - self._defended_at >= DEFENCE_INTERVAL:
            self._defended_at = now
            self._send_heartbeat(now)
            if uid:  # it will become the standby, but nodes may have numbers from it
                self._call_roll()

    def _become_standby(self, now: int) -> None:
        self._active = False
        self._stop_serving()
        self._tx_queue.clear()
        self._take_over_at = now + BROKER_TIMEOUT
        self._notify(RoleChanged(False, self._other))

    # -- requests ----------------------------------------------------------------------------------------------------

    def _on_message(self, message: Message, now: int) -> None:
        match message:
            case Nibble() if self._active:
                self.counts["nibble" if self._configuration.receive(message, now) else "nibble out of turn"] += 1
            case Claim(node, uid) if node == BROKER_NODE:
                self._on_other_broker(now, uid)
            case Claim(node, uid):
                self._registry.on_claim(uid, node, now)
            case NumberGrant(uid, node):
                self._registry.on_grant(uid, node, now)
            case Heartbeat(epoch):
                self._seen_epoch = max(self._seen_epoch, epoch)
                self._on_other_broker(now)
            case GetEtag(node, subject) if self._active:
                self.counts["request" if self._binding.ask(node, subject) else "request too many"] += 1
            case Announce():
                self._on_announcement(message)
            case Signature():
                self._signatures.receive(message, now)
            case Question(kind=kind) if self._active and kind not in PUBLISHER_QUESTIONS:
                self.counts["question" if self._answers.ask(message) else "question too many"] += 1

    def _grant(self, uid: int, now: int) -> int | None:
        number = self._registry.grant(uid, now)
        self.counts["granted" if number else "no number free"] += 1
        return number if self._save() else None

    def _supply(self, subject: int) -> Supply | None:
        name = self._index.type_without_etag(subject)
        if name is not None and not self._is_refused(name):
            return None
        supply = self._index.supply(subject, self.channels)
        return supply if supply.qos_class is QosClass.UNANNOUNCED or self._save() else None

    def _is_refused(self, name: str) -> bool:
        """Give a type its event tag; True if there is none left.

        The request is not answered now: a heartbeat tells all nodes that the catalog has grown, so that they have it
        when the node asks again and publishes. If the catalog cannot be written now, that is tried again then.
        """
        try:
            self.use(self._etags.give(self._catalog, name))
            self.counts["event tag given"] += 1
        except EtagsExhausted as problem:
            self.counts["event tags exhausted"] += 1
            self._notify(EtagsRefused(name, str(problem)))
            return True
        except (GenusError, OSError) as problem:
            self._notify(StoreFailed(str(problem)))
        return False

    def _on_announcement(self, message: Announce) -> None:
        name = self._index.type_of(message.etag)
        if name is None or self._catalog.etag(name) != message.etag:
            self.counts["announcement of no type"] += 1
            return
        announced = AnnouncedChannel(message.qos_class, message.segmented)
        if self._tables.announce(name, announced) != announced and self._active:
            self.counts["announcement contradicted"] += 1
            self._binding.ask(message.node, subject_uid(name))

    def _on_conflict(self, conflict: Conflict) -> None:
        """A node publishes what contradicts the catalog: object, and report it once."""
        if not self._active:
            return
        self.counts["channel in conflict"] += 1
        self._signatures.object(conflict, self._now)
        key = (conflict.node, conflict.etag, conflict.text)
        if key not in self._reported and len(self._reported) < MAX_PUBLISHERS:
            self._reported.add(key)
            self._notify(ChannelConflict(conflict.node, conflict.etag, f"{conflict.text}; {SAME_CATALOG}"))

    def close(self) -> None:
        """Save what changed in the tables since the last heartbeat."""
        self._save()

    def _save(self) -> bool:
        try:
            self._tables.save()
        except (GenusError, OSError) as problem:
            self.counts["tables not written"] += 1
            self._notify(StoreFailed(str(problem)))
            return False
        return True
