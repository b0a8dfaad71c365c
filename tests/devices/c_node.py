"""`CNode`: the C node in the place of a Python node, in the simulator, in a world or fed by hand.

It has the interface of `genus.can`'s node as far as stations use it, so that worlds, scenarios and the fault table run
with C nodes unchanged. Types and layouts are read from a catalog here, as the generator of firmware does.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ctypes import CDLL, c_int64, c_uint32
from random import Random
from typing import Any

import pytest

from genus.bus._codec import Rejected
from genus.bus._link import BestEffort, Hard, QoS, Soft
from genus.can import World
from genus.can._machine import Accept, Call, Load, Output
from genus.can._node.channels import Announcement, Interest, NodeCounts, TxChannel, TxCounts, layout_of, problem_calls
from genus.can._node.membership import PROTOCOL_FILTER, class_of
from genus.can._node.node import Node
from genus.can._node.problems import (
    BindingFailed,
    BusOff,
    DeadlineMissed,
    DeliveryProblem,
    ErrorActive,
    ErrorPassive,
    EventMissing,
    EventsLost,
    Expired,
    HardResumed,
    HardStopped,
    MaybeSent,
    NodeIdLost,
    NotSent,
    ProblemHandler,
    WrongCatalog,
)
from genus.can._node.slots import SlotSender
from genus.can._plan.calendar import Slot
from genus.can._protocol.clock_model import SYNC_PERIOD_NS, UNBOUNDED_PRECISION
from genus.can._protocol.messages import signed_subject
from genus.can._protocol.notices import Configured, NodeIdConflict
from genus.can._wire.frame import ETAG_MASK, Frame, Timing, subject_uid
from genus.can._world.station import Station
from genus.can._world.world import uid_of
from genus.catalog import Catalog
from genus.errors import BusError, QueueFull
from genus.filters import Subscription
from genus.model import Event, name_of, nanoseconds
from genus.model._types import micros_of_time
from genus.targets.can import SharedFilters, compile
from tests.devices.c_library import (
    LARGE,
    ClassCall,
    EventCall,
    LayoutCall,
    LoadCall,
    NoticeCall,
    RandomCall,
    node_library,
)

NEVER = (1 << 63) - 1
NO_CHANNEL = 0xFF
NOTICES = (
    *("configured", "number lost", "number conflict", "no number free", "ready", "not bound", "wrong catalog"),
    *("sent", "deadline missed", "expired", "not sent", "maybe sent", "event missing", "events lost"),
    *("hard stopped", "hard resumed", "error passive", "error active", "off the bus", "class unknown"),
)
"""As `genus_notice_kind` numbers them."""
DROPS = (
    *("malformed", "unknown event tag", "unknown class", "of a node with another catalog"),
    *(
        "publisher that did not say yet whether it segments",
        "repeated",
        "empty",
        "hard, outside its slot",
        "hard, while the clock is not good enough",
        "too long",
    ),
    *("too many", "in several frames, at a node without segmentation"),
)
"""As `genus_drops` has them."""
CLOCK_DROPS = ("malformed", "own number", "not the master", "duplicate", "unpaired", "contradiction")
"""As `genus_clock_drops` has them."""
SEGMENT_RESULTS = (
    *("kept", "complete", "duplicate", "empty frame", "fd", "missing start", "rest of a lost transfer"),
    *("missing frame", "missing end", "wrong toggle", "wrong length", "wrong crc", "too long", "timed out"),
    "wrong padding",
)
"""As `genus_segment_result` numbers them."""
_FD = 0x100
"""With the size of a frame: it is CAN FD."""
STATES = ("idle", "binding", "ready", "refused")
PUBLISH_RESULTS = ("published", "is not ready", "is too long", "queue full", "comes too soon")


def _size(frame: Frame) -> int:
    return len(frame.data) | (_FD if frame.fd else 0)


class CTime:
    """The bus's time as a C node knows it."""

    def __init__(self, library: CDLL, handle: int) -> None:
        self._library, self._handle = library, handle

    def global_time(self, local: int) -> int:
        return int(self._library.station_global_time(self._handle, local))

    def local_time(self, global_: int) -> int:
        return int(self._library.station_local_time(self._handle, global_))

    def precision(self, now: int) -> int:
        return int(self._library.station_precision(self._handle, now))


class CTx:
    """The channels of a C node, as a station looks at them."""

    def __init__(self) -> None:
        self.channels: dict[type, TxChannel] = {}


class CRx:
    """What a link sets to get all events with their senders."""

    on_received: Callable[[Event, int], object] | None = None


class CNode:
    """A node in C, as a machine of the simulator and as the node of a station."""

    def __init__(
        self,
        uid: int,
        *,
        name: str = "",
        timing: Timing,
        catalog: Catalog,
        number: int | None = None,
        slots: Iterable[Slot] = (),
        synchronised: bool = True,
        sync_period_ns: int = SYNC_PERIOD_NS,
        granularity_ns: int = 100,
        seed: int | None = None,
        on_event: Callable[[Event], object] | None = None,
        on_notice: Callable[[object], object] | None = None,
        knows: Callable[[int], bool] = lambda etag: True,
        options: tuple[str, ...] = LARGE,
    ) -> None:
        self.uid, self.name, self.catalog = uid, name, catalog
        self.outputs: list[Output] = []
        self.notices: Counter[str] = Counter()
        self.told: list[tuple[str, int, int, int, int]] = []
        """Notices with channel, node, event tag and count."""
        self.classes: list[bytes] = []
        """Answers about late classes."""
        self.delivered: list[tuple[int, int, bytes]] = []
        """Event tag, node and payload of all events."""
        self.tx, self.rx = CTx(), CRx()
        self.why_without_number = ""
        self._knows, self._on_event, self._on_notice = knows, on_event, on_notice
        self._random = Random(uid if seed is None else seed)
        self._interests: dict[Interest, None] = {}
        self._filters = SharedFilters(catalog, always=(PROTOCOL_FILTER,))
        self._subjects: dict[str, int] = {}
        self._numbers: dict[type, int] = {}
        """Of the channels, by class."""
        self._classes: list[type[Event]] = []
        self._layouts: list[bytes] = []
        self._events: dict[int, Event] = {}
        self._references = 0
        self._has_news = False
        self._slots = tuple(slots)
        self._fd = timing.data_bitrate is not None
        self._library = node_library(*options, *(("-DGENUS_DATA_BYTES=64",) if self._fd else ()))
        self._handle = self._library.station_new(
            uid, number or 0, synchronised, timing.bit_ns, sync_period_ns, granularity_ns
        )
        self._library.station_data_bit(self._handle, timing.data_bit_ns)
        self._calls = (
            LoadCall(self._load),
            EventCall(self._receive_event),
            NoticeCall(self._notice),
            ClassCall(lambda size, answer: self.classes.append(bytes(answer[:size]))),
            RandomCall(lambda range_: self._random.randrange(range_)),
            LayoutCall(lambda channel, index: self._layouts[channel][index]),
        )
        self._library.station_call(self._handle, *self._calls)
        for slot in self._slots:
            if slot.node != name and slot.event in catalog and catalog.has_etag(slot.event):
                self._add_slot(slot, NO_CHANNEL)
        assert self._library.station_init(self._handle), "the tables do not fit the node"
        self.time = CTime(self._library, self._handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.station_free(self._handle)
            self._handle = 0

    def _add_slot(self, slot: Slot, channel: int) -> None:
        spans = (slot.offset_ns, slot.period_ns, slot.length_ns, slot.wait_ns, slot.gap_ns, slot.closes_ns)
        policy = slot.error_passive != "stop"
        added = self._library.station_add_slot(
            self._handle, channel, slot.number, self.catalog.etag(slot.event), (c_int64 * 6)(*spans), slot.frames,
            slot.omissions, slot.sporadic, policy,
        )  # fmt: skip
        assert added >= 0, "more slots than the library has room for"

    # -- what the C code calls ---------------------------------------------------------------------------------------

    def _load(self, mailbox: int, is_frame: int, identifier: int, size: int, data: Any) -> None:
        self.outputs.append(
            Load(mailbox, Frame(identifier, bytes(data[: size & 0xFF]), bool(size & _FD)) if is_frame else None)
        )

    def _receive_event(self, etag: int, node: int, size: int, payload: Any) -> int:
        data = bytes(payload[:size])
        self.delivered.append((etag, node, data))
        if not self._knows(etag):
            return 0
        name = self.catalog.type_of(etag)
        if name is None:
            return 0
        cls: type[Event] = self.catalog.declare(name)
        layout = layout_of(cls, self.catalog.vector(name), self.catalog.tagged_attributes(name))
        event = layout.decode(etag - self.catalog.etag(name), data)
        interested = any(each.subscription.accepts(cls) for each in self._interests)
        if not isinstance(event, Rejected) and interested:
            if self._on_event is not None:
                self.outputs.append(Call(self._on_event, (event,)))
            if self.rx.on_received is not None:
                self.outputs.append(Call(self.rx.on_received, (event, node)))
        return 1

    def _notice(self, kind: int, channel: int, node: int, etag: int, reference: int, count: int, time: int) -> None:
        what = NOTICES[kind]
        self._has_news = True
        self.notices[what] += 1
        self.told.append((what, channel, node, etag, count))
        self._tell_program(what, node, count)
        if channel < len(self._classes):
            self._tell_publisher(what, channel, node, reference, count, time)
        else:
            self._tell_all(what, node, etag, count, time)

    def _tell_program(self, what: str, node: int, count: int) -> None:
        """Give the notices about the node's number to who runs it."""
        notices = {
            "configured": Configured(node),
            "number conflict": NodeIdConflict(node, self.uid if count else 0, kept=True),
            "number lost": NodeIdConflict(node, 0, kept=False),
        }
        if self._on_notice is not None and what in notices:
            self.outputs.append(Call(self._on_notice, (notices[what],)))

    def _tell_publisher(self, what: str, channel: int, node: int, reference: int, count: int, time: int) -> None:
        cls = self._classes[channel]
        known = self.tx.channels.get(cls)
        if known is None:
            return
        self._read_state(channel, known)
        event = self._events.get(reference)
        if what in ("sent", "expired", "not sent", "maybe sent"):
            self._events.pop(reference, None)
        trouble: DeliveryProblem | None = None
        match what:
            case "deadline missed" if event is not None:
                trouble = DeadlineMissed(known.name, event, time)
            case "expired" if event is not None:
                trouble = Expired(known.name, event, time, sent=bool(count))
            case "not sent" if event is not None:
                trouble = NotSent(known.name, event, count)
            case "maybe sent" if event is not None:
                trouble = MaybeSent(known.name, event)
            case "not bound":
                trouble = BindingFailed(known.name, f"reason {count}")
            case "wrong catalog":
                trouble = WrongCatalog(known.name, count, "")
            case "error passive":
                trouble = ErrorPassive(time, promised=bool(count))
        if trouble is not None:
            self._call(known.announcements, trouble)

    def _tell_all(self, what: str, node: int, etag: int, count: int, time: int) -> None:
        hard = [each for cls in self.tx.channels.values() if isinstance(cls.qos, Hard) for each in cls.announcements]
        everybody = [each for channel in self.tx.channels.values() for each in channel.announcements]
        match what:
            case "events lost":
                self._tell_readers(etag, EventsLost(self._name(etag), node, count))
            case "event missing":
                self._tell_readers(etag, EventMissing(self._name(etag), time))
            case "hard stopped":
                known = None if time >= UNBOUNDED_PRECISION else time
                self._call([*hard, *self._hard_readers()], HardStopped(known, 0))
            case "hard resumed":
                self._call([*hard, *self._hard_readers()], HardResumed(time))
            case "error passive":
                self._call([*hard, *self._hard_readers()], ErrorPassive(time, promised=bool(count)))
            case "error active":
                self._call([*hard, *self._hard_readers()], ErrorActive(time))
            case "off the bus":
                self._call(everybody, BusOff(time))
            case "number lost":
                self._call(everybody, NodeIdLost(node, 0))

    def _tell_readers(self, etag: int, trouble: DeliveryProblem) -> None:
        cls = self.catalog.declare(self._name(etag))
        self._call([each for each in self._interests if each.subscription.accepts(cls)], trouble)

    def _hard_readers(self) -> list[Interest]:
        classes = [self.catalog.declare(slot.event) for slot in self._slots if slot.event in self.catalog]
        return [each for each in self._interests if any(each.subscription.accepts(cls) for cls in classes)]

    def _call(self, parties: Iterable[Announcement | Interest], trouble: DeliveryProblem) -> None:
        for handler, what in problem_calls(list(parties), trouble):
            self.outputs.append(Call(handler, (what,)))

    def _name(self, etag: int) -> str:
        return self.catalog.type_of(etag) or ""

    # -- what a station calls ----------------------------------------------------------------------------------------

    @property
    def number(self) -> int | None:
        return self._library.station_number(self._handle) or None

    @property
    def is_calendar_stopped(self) -> bool:
        joined, running = self._library.station_is_joined, self._library.station_is_running
        return bool(joined(self._handle)) and not running(self._handle)

    @property
    def has_frames(self) -> bool:
        return bool(self._library.station_waiting(self._handle))

    def start(self, now: int) -> None:
        self.outputs.append(Accept(self._filters.pairs))
        self._library.station_start(self._handle, now)

    def know(self, *types: type[Event]) -> None:
        """Compare the signatures of others with what the catalog says of these types."""
        for cls in types:
            subject = signed_subject(subject_uid(name_of(cls)))
            self._library.station_add_known(self._handle, self.catalog.etag(cls), subject)

    def announce(
        self,
        cls: type[Event],
        qos: QoS,
        now: int,
        *,
        on_problem: ProblemHandler | None = None,
        carries: Iterable[str] = (),
    ) -> Announcement:
        channel = self.tx.channels.get(cls)
        if channel is None:
            channel = TxChannel(cls, qos, tuple(carries), 64 if self._fd else 8, fd=self._fd)
            channel.use(self.catalog)
            self._add_channel(channel, qos)
            self.tx.channels[cls] = channel
        announcement = Announcement(channel, on_problem)
        channel.announcements.append(announcement)
        self._library.station_announce(self._handle, self._numbers[cls], now)
        self._read_state(self._numbers[cls], channel)
        return announcement

    def _add_channel(self, channel: TxChannel, qos: QoS) -> None:
        assert channel.wire_layout is not None
        layout = channel.wire_layout.pack()
        span = nanoseconds(qos.period) if isinstance(qos, Hard) else channel.deadline_ns
        width = len(self.catalog.tagged_attributes(channel.name))
        index = self._library.station_add_channel(
            self._handle, channel.uid, channel.etag, width, class_of(qos), qos == BestEffort(priority=1),
            channel.largest or 0, channel.wire_layout.sign(0).digest, len(layout), span, channel.expires_ns or 0,
        )  # fmt: skip
        assert index >= 0, "more channels than the library has room for"
        self._numbers[channel.cls] = index
        self._classes.append(channel.cls)
        self._layouts.append(layout)
        if isinstance(qos, Hard):
            slot = next(each for each in self._slots if each.node == self.name and each.event == channel.name)
            self._add_slot(slot, index)
            channel.slot_sender = SlotSender(slot, lambda frame: None, channel.render, lambda *_: None, lambda *_: None)

    def _read_state(self, index: int, channel: TxChannel) -> None:
        state = STATES[self._library.station_channel_state(self._handle, index)]
        channel.state = "binding" if state == "idle" else state  # type: ignore[assignment]
        channel.segmented = bool(self._library.station_is_segmented(self._handle, index))

    def publish(self, event: Event, now: int, *, loop_back: bool = True) -> tuple[int, bytes]:
        channel = self.tx.channels[type(event)]
        assert channel.layout is not None
        bits, payload = channel.layout.encode(event, 0)
        self._references = self._references + 1 & 0xFFFF
        self._events[self._references] = event
        deadline = expires = 0
        if isinstance(channel.qos, Soft):
            deadline = 0 if event.deadline is None else self._local_time(event.deadline)
            expires = 0 if event.expires is None else self._local_time(event.expires)
        result = self._library.station_publish(
            self._handle, self._numbers[type(event)], channel.etag | bits, payload, len(payload), deadline, expires,
            self._references, now,
        )  # fmt: skip
        if result:
            del self._events[self._references]
            problem = QueueFull if PUBLISH_RESULTS[result] == "queue full" else BusError
            raise problem(f"{channel.name}: {PUBLISH_RESULTS[result]}")
        channel.counts = self.tx_counts(type(event))
        return channel.etag | bits, payload

    def _local_time(self, time: Any) -> int:
        return self.time.local_time(1000 * micros_of_time(time))

    def withdraw(self, announcement: Announcement, now: int) -> None:
        channel = announcement.channel
        channel.announcements.remove(announcement)
        if not channel.announcements:
            self.tx.channels.pop(channel.cls, None)
            self._library.station_withdraw(self._handle, self._numbers[channel.cls], now)

    def subscribe(self, subscription: Subscription, now: int, *, on_problem: ProblemHandler | None = None) -> Interest:
        interest = Interest(subscription, on_problem)
        self._interests[interest] = None
        self.catalog.use_classes(*(cls for cls in subscription.types if cls is not Event))
        interest.filter_handle = self._filters.add(subscription)
        interest.state = "ready"
        self._set_blocks()
        self.outputs.append(Accept(self._filters.pairs))
        for cls in subscription.types:
            if name_of(cls) not in self._subjects:
                self._subjects[name_of(cls)] = self._library.station_add_subject(
                    self._handle, subject_uid(name_of(cls))
                )
            self._library.station_subscribe(self._handle, self._subjects[name_of(cls)], now)
        return interest

    def _set_blocks(self) -> None:
        self._library.station_clear_blocks(self._handle)
        for interest in self._interests:
            for value, mask in compile(interest.subscription, self.catalog).pairs:
                width = len(self.catalog.tagged_attributes(name_of(interest.subscription.types[0])))
                self._library.station_add_block(self._handle, value & ETAG_MASK, mask & ETAG_MASK, width)

    def cancel(self, interest: Interest, now: int) -> None:
        self._interests.pop(interest, None)
        self._filters.remove(interest.filter_handle)
        self._set_blocks()
        self.outputs.append(Accept(self._filters.pairs))

    def close(self, now: int) -> None:
        for channel in list(self.tx.channels.values()):
            for announcement in list(channel.announcements):
                self.withdraw(announcement, now)

    def counts(self) -> NodeCounts:
        names = {self.catalog.etag(name): name for name in self.catalog.types if self.catalog.has_etag(name)}
        received: dict[str, int] = {}
        lost: dict[str, int] = {}
        for etag, name in names.items():
            got, missing = c_uint32(), c_uint32()
            if self._library.station_received(self._handle, etag, got, missing):
                received[name], lost[name] = got.value, missing.value
        sent = {channel.name: self.tx_counts(cls) for cls, channel in self.tx.channels.items()}
        return NodeCounts(sent, received, lost, self.dropped())

    def tx_counts(self, cls: type) -> TxCounts:
        """The counters of a channel."""
        found = (c_uint32 * 7)()
        self._library.station_counts(self._handle, self._numbers[cls], found)
        published, sent, missed, expired, failed, replaced, unknown = found
        return TxCounts(published, sent, missed, expired, failed=failed, replaced=replaced, unknown=unknown)

    def dropped(self) -> Counter[str]:
        """What was dropped, by reason."""
        drops, segments = (c_uint32 * len(DROPS))(), (c_uint32 * len(SEGMENT_RESULTS))()
        self._library.station_drops(self._handle, drops)
        self._library.station_segment_drops(self._handle, segments)
        clock = (c_uint32 * len(CLOCK_DROPS))()
        self._library.station_clock_drops(self._handle, clock)
        found = Counter(dict(zip(DROPS, drops, strict=True)))
        found += Counter(dict(zip(CLOCK_DROPS, clock, strict=True)))
        found += Counter({f"segments: {name}": n for name, n in zip(SEGMENT_RESULTS, segments, strict=True)})
        return found

    # -- machine -----------------------------------------------------------------------------------------------------

    def receive(self, frame: Frame, now: int) -> None:
        self._library.station_receive(self._handle, frame.id, _size(frame), frame.data, now)

    def sent(self, frame: Frame, now: int) -> None:
        self._library.station_sent(self._handle, frame.id, _size(frame), frame.data, now)

    def failed(self, frame: Frame, now: int) -> None:
        self._library.station_failed(self._handle, frame.id, _size(frame), frame.data, now)

    def lost(self, now: int) -> None:
        self._library.station_lost(self._handle, now)

    def taken(self, frame: Frame, now: int) -> None:
        raise AssertionError("the C node is for drivers without a queue")

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        raise AssertionError("the C node is for drivers without a queue")

    def error_passive(self, now: int, passive: bool) -> None:
        self._library.station_error_passive(self._handle, passive, now)

    def bus_off(self, now: int) -> None:
        self._library.station_bus_off(self._handle, now)

    def bus_on(self, now: int) -> None:
        self._library.station_bus_on(self._handle, now)

    @property
    def wake_at(self) -> int | None:
        at = int(self._library.station_wake_at(self._handle))
        return None if at == NEVER else at

    def wake(self, now: int) -> None:
        self._library.station_wake(self._handle, now)

    def take(self) -> list[Output]:
        if self._has_news:
            self._has_news = False
            for index, cls in enumerate(self._classes):
                if (channel := self.tx.channels.get(cls)) is not None:
                    self._read_state(index, channel)
        outputs, self.outputs = self.outputs, []
        return outputs


@contextmanager
def c_stations(*names: str, options: tuple[str, ...] = LARGE) -> Iterator[dict[str, CNode]]:
    """Within the block, worlds make C nodes for the stations with these names; gives them by name."""
    made: dict[str, CNode] = {}
    make_python = World._make_node

    def make_node(world: World, station: Station) -> Node | CNode:
        if station.name not in names:
            return make_python(world, station)
        bus = world.plan.system.bus if world.plan is not None else None
        made[station.name] = CNode(
            uid_of(station.number),
            name=station.slots_of,
            timing=world.simulation.timing,
            catalog=world.catalog,
            number=None if world._has_broker else station.number,
            slots=world.plan.calendar.slots if world.plan is not None else (),
            synchronised=world._clocks == "real",
            sync_period_ns=SYNC_PERIOD_NS if bus is None else bus.sync_period_ns,
            seed=world.seed << 7 | station.number,
            on_event=lambda event: station._receive(event, None),
            options=options,
        )
        return made[station.name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "_make_node", make_node)
        yield made
