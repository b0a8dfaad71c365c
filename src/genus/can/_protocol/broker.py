"""The broker: gives numbers to nodes and event tags to subjects, and answers questions about the catalog.

It can be restarted at any time. Whatever it grants is in its tables before it says so, and it calls the roll before it
grants a number: a node that has one answers with a claim. Claims have a higher priority than the broker's frames, so a
frame of the broker that goes through some time after the roll call shows that no answer waits for the bus any more.

A standby listens and learns. It takes over when the broker is silent; of two that serve, the lower uid stays.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from genus.can._machine import EVENT_TRIGGERED, Accept, Load, Output
from genus.can._protocol.binding import Supplying
from genus.can._protocol.broker_tables import Announced, Roster, Store, Tables
from genus.can._protocol.catalog_queries import Answers, Directory
from genus.can._protocol.configuration import Granting, check_uid
from genus.can._protocol.messages import (
    Announce,
    Claim,
    GetEtag,
    Granted,
    Heartbeat,
    Message,
    Nibble,
    QosClass,
    Question,
    Supply,
    parse,
)
from genus.can._protocol.notices import (
    BROKER_SILENCE,
    CLAIM_JITTER,
    CLAIM_PERIOD,
    COLLISION_PAUSE,
    DEFENCE_PAUSE,
    FAILURES_BEFORE_PAUSE,
    ROLL_CALL_WAIT,
    Conflict,
    Notice,
    Standing,
    StoreFailed,
)
from genus.can._wire.frame import BROKER_NODE, ETAG_MASK, Frame, subject_uid
from genus.catalog import Catalog
from genus.errors import CatalogConflict, GenusError

# The few frames a broker wants to send, of which the one with the lowest identifier is in the mailbox.


class Outgoing:
    """State: frames in the order of their identifiers, equal ones in the order they came; no frame is in it twice.

    What the driver is to do is appended to `outputs`.
    """

    def __init__(self, outputs: list[Output], random: Random) -> None:
        self._outputs = outputs
        self._random = random
        self._waiting: list[Frame] = []
        self._loaded: Frame | None = None
        self._failures = 0
        self.wake_at: int | None = None
        """When a pause ends."""

    def __contains__(self, frame: Frame) -> bool:
        return frame in self._waiting

    def post(self, frame: Frame) -> None:
        """Send a frame in turn, unless it waits already."""
        if frame not in self._waiting:
            insort(self._waiting, frame, key=lambda each: each.id)
            self._load()

    def sent(self, frame: Frame) -> None:
        """A frame went through."""
        self._failures = 0
        if frame == self._loaded:
            self._loaded = None
        if frame in self._waiting:
            self._waiting.remove(frame)
        self._load()

    def failed(self, now: int) -> None:
        """A frame was corrupted: it is repeated, after a random pause if it may have met that of another broker."""
        self._failures += 1
        if self._failures >= FAILURES_BEFORE_PAUSE:
            self._failures = 0
            self.wake_at = now + 1 + self._random.randrange(COLLISION_PAUSE)
            self._load()

    def wake(self, now: int) -> None:
        """Go on after a pause."""
        if self.wake_at is not None and now >= self.wake_at:
            self.wake_at = None
            self._load()

    def clear(self) -> None:
        """Send nothing of it any more."""
        self._waiting.clear()
        self.wake_at = None
        self._load()

    def emptied(self) -> None:
        """The controller lost what was in the mailbox, and nothing of it is wanted any more."""
        self._loaded = None
        self.clear()

    def _load(self) -> None:
        first = self._waiting[0] if self._waiting and self.wake_at is None else None
        if first is not self._loaded:
            self._loaded = first
            self._outputs.append(Load(EVENT_TRIGGERED, first))


ROLL_CALLS = 2
"""The roll is called twice before numbers are granted, in case a node missed the first."""

PROTOCOL_FRAMES = ((0, ETAG_MASK & ~0x7F),)
"""The acceptance filter of a broker: all tags below 128."""


class Broker:
    """State: a machine that serves one bus, or waits to; `tell` gets notices.

    A standby begins by listening. `fd` says that events may be frames of 64 bytes.
    """

    def __init__(
        self,
        uid: int,
        catalog: Catalog,
        store: Store,
        *,
        standby: bool = False,
        fd: bool = False,
        tell: Callable[[Notice], None] = lambda notice: None,
        seed: int | None = None,
    ) -> None:
        self.uid = check_uid(uid)
        self.counts: Counter[str] = Counter()
        """What was done and what was dropped, by reason."""
        self._tell = tell
        self._tables = Tables(store)
        self._random = Random(uid + self._tables.epoch if seed is None else seed)
        self._capacity = 64 if fd else 8
        self._catalog, self._directory = catalog, Directory(catalog, self._capacity)
        self._outputs: list[Output] = [Accept(PROTOCOL_FRAMES)]
        self._outgoing = Outgoing(self._outputs, self._random)
        self._roster = Roster(self._tables)
        self._granting = Granting(self._outgoing.post, self._grant)
        self._supplying = Supplying(self._outgoing.post, self._supply)
        self._answers = Answers(self._outgoing.post, lambda: self._directory)
        self._active = False
        self._heard_epoch = self._other = 0
        self._take_over_at: int | None = BROKER_SILENCE if standby else 0
        self._is_new = True
        self._beat_at: int | None = None
        self._defended_at: int | None = None
        self._calls = 0
        self._call: Frame | None = None
        self._listen_until: int | None = None

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether it serves; else it is a standby."""
        return self._active

    @property
    def epoch(self) -> int:
        """How often a broker began to serve with these tables."""
        return self._tables.epoch

    @property
    def numbers(self) -> Mapping[int, int]:
        """The number of each uid."""
        return self._tables.numbers

    @property
    def channels(self) -> Mapping[str, Announced]:
        """What was announced of each type."""
        return self._tables.channels

    def use(self, catalog: Catalog) -> None:
        """Serve a catalog that has grown; CatalogConflict if it is not the present one with more in it."""
        if not catalog.extends(self._catalog):
            raise CatalogConflict("a broker's catalog may only grow, but types or attributes are missing or changed")
        self._catalog, self._directory = catalog, Directory(catalog, self._capacity)
        if self._active:
            self._beat_at = 0

    # -- machine -----------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        """A frame was heard."""
        self._start(now)
        message = parse(frame)
        if message is not None:
            self._heard(message, now)

    def sent(self, frame: Frame, now: int) -> None:
        """A frame of this broker went through."""
        self._outgoing.sent(frame)
        self._granting.sent(frame, now)
        self._supplying.sent(frame)
        self._answers.sent(frame, now)
        if frame == self._call:
            self._call, self._listen_until = None, now + ROLL_CALL_WAIT

    def failed(self, frame: Frame, now: int) -> None:
        """A frame of this broker was corrupted."""
        self._outgoing.failed(now)

    def lost(self, now: int) -> None:
        """Another frame won the bus; nothing changes by that."""

    def bus_off(self, now: int) -> None:
        """The controller is off the bus: nothing that waits makes sense any more."""
        self._outgoing.emptied()
        self._stop_serving()

    def bus_on(self, now: int) -> None:
        """The controller is back: learn what happened meanwhile."""
        if self._active:
            self._serve(now)
        elif not self._is_new:
            self._take_over_at = now + BROKER_SILENCE

    @property
    def wake_at(self) -> int | None:
        """When something is to be done without a frame."""
        own = (self._take_over_at, self._beat_at, self._listen_until)
        times = (*own, self._outgoing.wake_at, self._granting.wake_at, self._answers.wake_at)
        if self._is_new:
            return 0
        return min((time for time in times if time is not None), default=None)

    def wake(self, now: int) -> None:
        """Do what is due."""
        self._start(now)
        self._outgoing.wake(now)
        self._granting.wake(now)
        self._answers.wake(now)
        if self._take_over_at is not None and now >= self._take_over_at:
            self._take_over(now)
        if self._listen_until is not None and now >= self._listen_until:
            self._end_of_roll_call()
        if self._beat_at is not None and now >= self._beat_at:
            self._beat(now)

    def take(self) -> list[Output]:
        """What is to be done, in order."""
        outputs, self._outputs[:] = list(self._outputs), []
        return outputs

    # -- standing ----------------------------------------------------------------------------------------------------

    def _start(self, now: int) -> None:
        """Begin to count from the first time that is known."""
        if self._is_new:
            self._is_new = False
            self._roster.begin(now)
            if self._take_over_at is not None:
                self._take_over_at += now

    def _take_over(self, now: int) -> None:
        self._tables.begin_epoch(self._heard_epoch)
        if not self._saved():
            self._take_over_at = now + CLAIM_PERIOD
            return
        self._take_over_at = None
        self._active = True
        self._tell(Standing(True, self._other))
        self._serve(now)

    def _serve(self, now: int) -> None:
        self._roster.begin(now)
        self._beat(now)
        self._call_roll()

    def _stop_serving(self) -> None:
        self._granting.close()
        self._supplying.clear()
        self._answers.clear()
        self._take_over_at = self._beat_at = self._call = self._listen_until = None

    def _call_roll(self) -> None:
        """Grant no numbers until everybody who has one had the chance to say so."""
        self._granting.close()
        self._listen_until = None
        self._calls = ROLL_CALLS
        self._call_once()

    def _call_once(self) -> None:
        self._calls -= 1
        self._call = Heartbeat(self.epoch, self._directory.digest, roll_call=True).frame()
        self._outgoing.post(self._call)

    def _end_of_roll_call(self) -> None:
        self._listen_until = None
        if self._calls:
            self._call_once()
        else:
            self._granting.open()

    def _beat(self, now: int) -> None:
        """Tell everybody who serves, and keep what was learned since the last time."""
        self._saved()
        self._beat_at = now + CLAIM_PERIOD - self._random.randrange(CLAIM_JITTER)
        self._outgoing.post(Claim(BROKER_NODE, self.uid).frame())
        self._outgoing.post(Heartbeat(self.epoch, self._directory.digest).frame())

    def _heard_other(self, now: int, uid: int = 0) -> None:
        """Another broker serves this bus."""
        self._other = uid or self._other
        if not self._active:
            self._take_over_at = now + BROKER_SILENCE + self._random.randrange(CLAIM_JITTER)
        elif uid == self.uid:
            self._tell(Conflict(BROKER_NODE, uid, kept=True))
        elif 0 < uid < self.uid:
            self._yield(now)
        elif self._defended_at is None or now - self._defended_at >= DEFENCE_PAUSE:
            self._defended_at = now
            self._beat(now)
            if uid:  # it will yield, but nodes may have numbers from it
                self._call_roll()

    def _yield(self, now: int) -> None:
        self._active = False
        self._stop_serving()
        self._outgoing.clear()
        self._take_over_at = now + BROKER_SILENCE
        self._tell(Standing(False, self._other))

    # -- serving -----------------------------------------------------------------------------------------------------

    def _heard(self, message: Message, now: int) -> None:
        match message:
            case Nibble() if self._active:
                self.counts["nibble" if self._granting.hear(message, now) else "nibble out of turn"] += 1
            case Claim(node, uid) if node == BROKER_NODE:
                self._heard_other(now, uid)
            case Claim(node, uid):
                self._roster.heard_claim(uid, node, now)
            case Granted(uid, node):
                self._roster.heard_grant(uid, node, now)
            case Heartbeat(epoch):
                self._heard_epoch = max(self._heard_epoch, epoch)
                self._heard_other(now)
            case GetEtag(node, subject) if self._active:
                self.counts["request" if self._supplying.ask(node, subject) else "request too many"] += 1
            case Announce():
                self._heard_announcement(message)
            case Question() if self._active:
                self.counts["question" if self._answers.ask(message) else "question too many"] += 1

    def _grant(self, uid: int, now: int) -> int | None:
        number = self._roster.grant(uid, now)
        self.counts["granted" if number else "no number free"] += 1
        return number if self._saved() else None

    def _supply(self, subject: int) -> Supply | None:
        supply = self._directory.supply(subject, self.channels)
        return supply if supply.qos_class is QosClass.UNANNOUNCED or self._saved() else None

    def _heard_announcement(self, message: Announce) -> None:
        name = self._directory.type_of(message.etag)
        if name is None or self._catalog.etag(name) != message.etag:
            self.counts["announcement of no type"] += 1
            return
        announced = Announced(message.qos_class, message.segmented)
        if self._tables.announce(name, announced) != announced and self._active:
            self.counts["announcement contradicted"] += 1
            self._supplying.ask(message.node, subject_uid(name))

    def close(self) -> None:
        """Keep what was learned since the last heartbeat."""
        self._saved()

    def _saved(self) -> bool:
        try:
            self._tables.save()
        except (GenusError, OSError) as problem:
            self.counts["tables not written"] += 1
            self._tell(StoreFailed(str(problem)))
            return False
        return True
