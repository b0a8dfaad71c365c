"""A Python node and a C node in the same role, fed with the same inputs: every output is compared.

The protocol fixes what both send, when, and under which identifiers; and which events they deliver.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from genus.bus._link import QoS
from genus.can._machine import Call, Load, Output
from genus.can._node.channels import Report
from genus.can._node.node import Node
from genus.can._plan.calendar import Slot
from genus.can._protocol.catalog_queries import CatalogIndex
from genus.can._protocol.messages import (
    Announce,
    Claim,
    Heartbeat,
    Nibble,
    NumberGrant,
    Prefix,
    QosClass,
    Question,
    QuestionKind,
    RefusalReason,
    Restart,
    Supply,
    parse_message,
)
from genus.can._protocol.time_service import follow_up_frame, sync_frame
from genus.can._wire.frame import BROKER_NODE, PRIORITY_SHIFT, Frame, Identifier, Priority, ProtocolEtag, Timing
from genus.can._wire.payload import PayloadCodec
from genus.can._wire.segments import split_payload
from genus.catalog import Catalog
from genus.errors import BusError, QueueFull
from genus.filters import Subscription
from genus.model import Event
from tests.devices.c_library import LARGE
from tests.devices.c_node import CNode

Sent = tuple[int, int | None, bytes]
"""A mailbox and the frame that is loaded; None empties it."""


MIN_PERIOD_NS = 17_000_000
"""Closer samples are thinned out by a C clock with room for 32, so that its rate may be another one."""

MAX_WAITING = 60
"""The C node has room for fewer events than the Python node."""

CONSISTENT = (ProtocolEtag.SUPPLY_ETAG_FLAGS, ProtocolEtag.ANNOUNCE, ProtocolEtag.REPORT)
"""What says whether a channel segments; of two that contradict each other the nodes may believe either."""


class Disagreement(AssertionError):
    """The nodes did something different with the same input."""


class Lockstep:
    """State: both nodes, what is in their mailboxes, and how often they were compared."""

    def __init__(
        self,
        uid: int,
        *,
        timing: Timing,
        catalog: Catalog,
        name: str = "",
        number: int | None = None,
        slots: Iterable[Slot] = (),
        synchronised: bool = True,
        seed: int = 0,
        options: tuple[str, ...] = LARGE,
        takes: Callable[[Event], bool] = lambda event: True,
    ) -> None:
        """`takes` says which events a C node with these options delivers of those that the Python node does."""
        slots = tuple(slots)
        self.events: dict[str, list[Event]] = {"python": [], "c": []}
        self.mailboxes: list[Frame | None] = [None, None]
        self._python_frames: dict[Frame, Frame] = {}
        """The frames in the mailboxes as the Python node knows them, which compares by identity."""
        self.compared = self.loaded = 0
        self.now = 0
        self.python = Node(
            uid,
            name=name,
            timing=timing,
            catalog=catalog,
            number=number,
            slots=slots,
            synchronised=synchronised,
            masterable=False,
            seed=seed,
            on_event=lambda event: self.events["python"].append(event) if takes(event) else None,
        )
        self.python.rx.agrees = None  # the C node does not compare signatures, nor read catalogs
        self.python._membership.questions.ask_catalog = lambda now: None  # type: ignore[method-assign]
        self.python._membership.binding._send = self._send_once
        self.python._membership._unanswered = lambda subject: None  # type: ignore[method-assign]
        self.python._membership._refused = lambda subject, reason: None  # type: ignore[method-assign]
        self.c = CNode(
            uid,
            name=name,
            timing=timing,
            catalog=catalog,
            number=number,
            slots=slots,
            synchronised=synchronised,
            seed=seed,
            on_event=self.events["c"].append,
            options=options,
        )

    def _send_once(self, frame: Frame) -> None:
        """Queue a frame of the Python node, unless it is an announcement that waits already, as the C node does."""
        queue = self.python._context.queue
        waiting = [getattr(entry[2], "frame", None) for entry in queue._fixed]
        if frame.etag != ProtocolEtag.ANNOUNCE or frame not in waiting:
            queue.add_frame(frame)

    # -- inputs ------------------------------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        self._both(now, lambda node: node.start(now))

    def announce(self, cls: type[Event], qos: QoS, now: int) -> None:
        self._both(now, lambda node: node.announce(cls, qos, now))

    def subscribe(self, cls: type[Event], now: int) -> None:
        self._both(now, lambda node: node.subscribe(Subscription(cls), now))

    def publish(self, event: Event, now: int) -> bool:
        """Publish an event; returns whether the nodes took it."""

        def publish(node: Node | CNode) -> bool:
            try:
                node.publish(event, now, loop_back=False)
            except (BusError, QueueFull):
                return False
            return True

        results = [publish(self.python), publish(self.c)]
        self._compare(now, f"publish {event}")
        if results[0] != results[1]:
            raise Disagreement(f"publish {event} at {now}: {results}")
        return results[0]

    def receive(self, frame: Frame, now: int) -> None:
        self._both(now, lambda node: node.receive(frame, now), frame)

    def sent(self, mailbox: int, now: int) -> None:
        """The frame in a mailbox was sent."""
        frame = self.mailboxes[mailbox]
        assert frame is not None
        self.mailboxes[mailbox] = None
        self._both(now, lambda node: node.sent(self._own(node, frame), now), frame)

    def failed(self, mailbox: int, now: int) -> None:
        """The frame in a mailbox failed."""
        frame = self.mailboxes[mailbox]
        assert frame is not None
        self._both(now, lambda node: node.failed(self._own(node, frame), now), frame)

    def lost(self, now: int) -> None:
        self._both(now, lambda node: node.lost(now))

    def error_passive(self, passive: bool, now: int) -> None:
        self._both(now, lambda node: node.error_passive(now, passive))

    def bus_off(self, now: int) -> None:
        self.mailboxes = [None, None]
        self._both(now, lambda node: node.bus_off(now))
        self.mailboxes = [None, None]

    def bus_on(self, now: int) -> None:
        self._both(now, lambda node: node.bus_on(now))

    def wake(self, now: int) -> None:
        self._both(now, lambda node: node.wake(now))

    @property
    def waiting(self) -> int:
        """How many events and messages wait."""
        queue = self.python._context.queue
        return queue.soft_waiting + queue.fixed_waiting

    @property
    def wake_at(self) -> int | None:
        """When the next timer is due, at which both agree."""
        times = self.python.wake_at, self.c.wake_at
        if times[0] != times[1]:
            raise Disagreement(f"at {self.now} the nodes want to wake at {times}")
        return times[0]

    # -- comparing ---------------------------------------------------------------------------------------------------

    def _own(self, node: Node | CNode, frame: Frame) -> Frame:
        """The frame as a node knows it."""
        return self._python_frames.get(frame, frame) if node is self.python else frame

    def _both(self, now: int, call: Callable[[Node | CNode], object], what: object = "") -> None:
        call(self.python)
        call(self.c)
        self._compare(now, what)

    def _compare(self, now: int, what: object) -> None:
        self.now = now
        outputs = self.python.take(), self.c.take()
        sent = [self._loads(each) for each in outputs]
        for each in outputs[0]:
            if isinstance(each, Load) and each.frame is not None:
                self._python_frames = {**self._python_frames, each.frame: each.frame}
        for one in outputs:
            for output in one:
                if isinstance(output, Call):
                    output.handler(*output.arguments)
        self.compared += 1
        self.loaded += len(sent[0])
        if sent[0] != sent[1]:
            raise Disagreement(f"{what} at {now}:\npython {sent[0]}\nc      {sent[1]}")
        if self.events["python"] != self.events["c"]:
            raise Disagreement(f"{what} at {now}: delivered {self.events}")
        for cls, channel in self.python.tx.channels.items():
            if channel.counts != self.c.tx_counts(cls):
                raise Disagreement(f"{what} at {now}: {cls} {channel.counts}, {self.c.tx_counts(cls)}")
        if self.python.number != self.c.number:
            raise Disagreement(f"{what} at {now}: numbers {self.python.number}, {self.c.number}")
        times = [(node.time.global_time(now), node.time.precision(now)) for node in (self.python, self.c)]
        if times[0] != times[1]:
            raise Disagreement(f"{what} at {now}: global time and precision {times}")
        for events in self.events.values():
            events.clear()
        for mailbox, identifier, data in sent[0]:
            self.mailboxes[mailbox] = None if identifier is None else Frame(identifier, data)
        self._python_frames = {frame: mine for frame, mine in self._python_frames.items() if frame in self.mailboxes}

    @staticmethod
    def _loads(outputs: list[Output]) -> list[Sent]:
        """The last frame that is loaded into each mailbox."""
        found: dict[int, Sent] = {}
        for output in outputs:
            if isinstance(output, Load):
                frame = output.frame
                found[output.mailbox] = (output.mailbox, frame.id, frame.data) if frame else (output.mailbox, None, b"")
        return [found[mailbox] for mailbox in sorted(found)]


class RandomBus:
    """State: a bus around both nodes that does at random what buses, controllers, brokers and masters do."""

    def __init__(self, pair: Lockstep, seed: str, etags: list[int], subjects: list[Supply]) -> None:
        self.pair = pair
        self.random = Random(seed)
        self._etags = etags
        self._subjects = subjects
        """What the broker knows of the channels."""
        self._sync = 0
        self._synced_at = -MIN_PERIOD_NS
        self._is_off = False
        self._pending: list[Frame] = []

    def step(self, publish: Callable[[Random], Event] | None) -> None:
        """Let some time pass, with the timers that are due, and then something happen."""
        pair, random = self.pair, self.random
        now = pair.now + random.choice((1_000, 50_000, 130_000, 400_000, 2_000_000))
        while (due := pair.wake_at) is not None and due <= now:
            pair.wake(max(due, pair.now))
        drawn = random.random()
        waiting = [mailbox for mailbox, frame in enumerate(pair.mailboxes) if frame is not None]
        if drawn < 0.005 or (self._is_off and drawn < 0.2):
            self._is_off = not self._is_off
            pair.bus_off(now) if self._is_off else pair.bus_on(now)
        elif drawn < 0.015:
            pair.error_passive(random.random() < 0.5, now)
        elif drawn < 0.4 and waiting and not self._is_off:
            pair.sent(min(waiting), now)
        elif drawn < 0.45 and waiting and not self._is_off:
            pair.failed(min(waiting), now)
        elif drawn < 0.5:
            pair.lost(now)
        elif drawn < 0.65 and publish is not None and pair.waiting < MAX_WAITING:
            pair.publish(publish(random), now)
        else:
            pair.receive(self.frame(now), now)

    # -- frames ------------------------------------------------------------------------------------------------------

    def frame(self, now: int) -> Frame:
        """A frame that makes sense, or nearly so."""
        if self._pending:
            return self._pending.pop(0)
        makers = (
            self._time,
            self._time,
            self._number,
            self._binding,
            self._report,
            self._event,
            self._event,
            self._any,
        )
        frame = self.random.choice(makers)(now)
        damaged = self.random.random() < 0.1 and frame.etag not in CONSISTENT and frame.priority
        return self._damage(frame) if damaged else frame

    def _damage(self, frame: Frame) -> Frame:
        random, data = self.random, frame.data
        match random.randrange(4):
            case 0:
                return Frame(frame.id ^ 1 << random.randrange(29), data)
            case 1:
                return Frame(frame.id, data[: random.randrange(9)])
            case 2 if data:
                place = random.randrange(len(data))
                return Frame(frame.id, data[:place] + random.randbytes(1) + data[place + 1 :])
        return Frame(frame.id, random.randbytes(random.randrange(9)))

    def _time(self, now: int) -> Frame:
        """SYNC of a master whose time is ahead by a constant, mostly, and later its FOLLOW_UP."""
        random = self.random
        if now - self._synced_at < MIN_PERIOD_NS:
            return self._event(now)
        self._sync, self._synced_at = self._sync + 1 & 0xFF, now
        node = 1 if random.random() < 0.95 else random.randrange(1, 20)
        time = now + 5_000_000_000 + now // 20_000 + random.choice((0, 0, 0, 0, 300, 3_000_000))
        if random.random() < 0.97:
            self._pending.append(follow_up_frame(node, self._sync, time))
        return sync_frame(node, self._sync, time)

    def _number(self, now: int) -> Frame:
        """What the broker and other nodes say about numbers."""
        random, uid, number = self.random, self.pair.python.uid, self.pair.python.number
        stage = random.randrange(1, 16)
        prefix = uid >> 4 * stage << 4 * stage if random.random() < 0.8 else random.getrandbits(64) >> 60 << 60
        messages = (
            Prefix(stage, prefix),
            Restart(),
            Nibble(random.randrange(16), random.randrange(16)),
            NumberGrant(uid if random.random() < 0.7 else 7, random.randrange(0, 20)),
            Claim(random.choice((number or 3, random.randrange(1, 127))), uid + random.choice((-9, 0, 9, 9, 9))),
            Heartbeat(random.randrange(3), random.randrange(3), roll_call=random.random() < 0.2),
            Question(random.randrange(1, 127), random.choice((0, number or 1)), QuestionKind.SIGNATURE, self._etag()),
            Question(random.randrange(1, 127), number or 1, QuestionKind.LAYOUT, self._etag()),
        )
        weights = (4, 2, 4, 4, 1, 4, 2, 1)
        return random.choices(messages, weights)[0].frame()

    def _binding(self, now: int) -> Frame:
        """The reply of the broker to a request."""
        random = self.random
        supply = random.choice(self._subjects)
        drawn = random.random()
        if drawn < 0.1:
            supply = Supply(supply.subject, 0, reason=random.choice(list(RefusalReason)))
        elif drawn < 0.5:
            supply = Supply(supply.subject, supply.etag)
        first, second = supply.frames(self.pair.python.number or 1)
        self._pending.append(second)
        return first

    def _report(self, now: int) -> Frame:
        random = self.random
        node, etag = random.randrange(1, 14), self._etag()
        segmented = any(each.etag == etag and each.segmented for each in self._subjects)
        if random.random() < 0.3:
            return Announce(node, etag, QosClass(random.randrange(3)), segmented, 8, 1000).frame()
        report = Report(etag, segmented, random.choice((0, random.randrange(30), random.getrandbits(24))), 0, 0)
        return Frame(Identifier(Priority.SYSTEM, node, ProtocolEtag.REPORT).pack(), report.pack())

    def _event(self, now: int) -> Frame:
        random = self.random
        identifier = Identifier(random.choice((0, 0, 3, 100, 254, 255)), random.randrange(1, 14), self._etag()).pack()
        is_hard = identifier >> PRIORITY_SHIFT == Priority.HARD
        if random.random() < 0.3 and not is_hard:
            pieces = split_payload(random.randbytes(random.randrange(1, 30)), random.randrange(32))
            self._pending += [Frame(identifier, piece) for piece in pieces[1:] if random.random() < 0.97]
            return Frame(identifier, pieces[0])
        data = random.randbytes(random.choice((8, 8, 8, random.randrange(9))))
        if is_hard:  # one that a C node can decode, which it does at the deadline
            data = bytes((random.randrange(8) << 5,)) + random.randbytes(7)
        frame = Frame(identifier, data)
        self._pending += [frame] if random.random() < 0.1 else []
        return frame

    def _any(self, now: int) -> Frame:
        random = self.random
        etag = random.choice((*range(4), 5, *range(8, 12), 14, random.getrandbits(14)))
        return Frame(random.getrandbits(15) << 14 | etag, random.randbytes(random.randrange(9)))

    def _etag(self) -> int:
        return self.random.choice(self._etags)


# -- late classes ------------------------------------------------------------------------------------------------------


class LateBus:
    """State: a C node that was built before some classes were registered, and a bus with a broker around it.

    Every event has a number of its own, as `number` of its class; those that reach the program are in `delivered`.
    """

    def __init__(
        self, seed: int, catalog: Catalog, subscription: Subscription, late: Sequence[type[Event]], buffer: int
    ) -> None:
        self.random, self.catalog, self.late = Random(seed), catalog, late
        self.now = 1_000
        self.arrived: dict[int, tuple[type[Event], int]] = {}
        """Class and time of the events that came, by number."""
        self.delivered: list[int] = []
        self.delivered_at: dict[int, int] = {}
        self._sequences: Counter[int] = Counter()
        self._answers: list[tuple[int, list[Frame]]] = []
        self._index = CatalogIndex(catalog)
        self.node = CNode(
            0x1234,
            timing=Timing(500_000),
            catalog=catalog,
            number=5,
            seed=seed,
            knows=self._knows,
            on_event=self._deliver,
            options=(*LARGE, f"-DGENUS_LATE_BYTES={buffer}"),
        )
        self.node.start(self.now)
        self.node.subscribe(subscription, self.now)
        for cls in late:
            self.node.receive(Announce(7, catalog.etag(cls), QosClass.NONE, False, 8, 0).frame(), self.now)
        self._settle()

    def _deliver(self, event: Any) -> None:
        self.delivered.append(event.number)
        self.delivered_at[event.number] = self.now

    def _knows(self, etag: int) -> bool:
        name = self.catalog.type_of(etag)
        return name is not None and self.catalog.etag(name).to_bytes(2, "big") in {
            each[:2] for each in self.node.classes
        }

    @property
    def waiting(self) -> int:
        """How many events neither reached the program nor were dropped."""
        return len(self.arrived) - len(self.delivered) - self.node.dropped()["unknown class"]

    def step(self) -> None:
        """Let some time pass, and then something happen."""
        random = self.random
        self.pass_time(random.choice((1_000_000, 20_000_000, 300_000_000, 700_000_000, 4_000_000_000)))
        drawn = random.random()
        if drawn < 0.7:
            self._publish(random.choice(self.late))
        elif drawn < 0.72:
            self.node.receive(Claim(self.node.number or 5, 1).frame(), self.now)
        elif drawn < 0.8:
            self.node.receive(NumberGrant(0x1234, 5).frame(), self.now)
        elif drawn < 0.85:
            self.node.receive(Heartbeat(random.randrange(9), random.randrange(9)).frame(), self.now)
        self._settle()

    def pass_time(self, span: int) -> None:
        """Let time pass, with the timers and answers that are due."""
        end = self.now + span
        while True:
            answer = min((due for due, _ in self._answers), default=end)
            self.now = max(self.now, min(end, answer, self.node.wake_at or end))
            if self._answers and answer <= self.now:
                _, frames = self._answers.pop([due for due, _ in self._answers].index(answer))
                for frame in frames:
                    self.node.receive(frame, self.now)
            elif (self.node.wake_at or end + 1) <= self.now:
                self.node.wake(self.now)
            elif self.now >= end:
                return
            self._settle()

    def _publish(self, cls: type[Event]) -> None:
        number = len(self.arrived)
        fields: dict[str, Any] = {"number": number, "note": self.random.choice((None, 1))}
        codec = PayloadCodec.of(cls, self.catalog.vector(cls), self.catalog.tagged_attributes(cls))
        etag = self.catalog.etag(cls)
        bits, payload = codec.encode(cls(**fields), self._sequences[etag])
        self._sequences[etag] += 1
        self.arrived[number] = cls, self.now
        self.node.receive(Frame(Identifier(Priority.NONE, 7, etag | bits).pack(), payload), self.now)

    def _settle(self) -> None:
        """Run what the node calls, send what it loads, and answer what it asks, mostly."""
        while outputs := self.node.take():
            for output in outputs:
                if isinstance(output, Call):
                    output.handler(*output.arguments)
                elif isinstance(output, Load) and output.frame is not None and self.random.random() < 0.9:
                    self.node.sent(output.frame, self.now)
                    self._answer(output.frame)

    def _answer(self, frame: Frame) -> None:
        asked = parse_message(frame)
        if not isinstance(asked, Question) or asked.kind is not QuestionKind.CLASS or self.random.random() < 0.3:
            return
        found = self._index.answer(asked) if self.random.random() < 0.7 else b""
        data = bytes((asked.node, asked.number, asked.kind)) + found
        identifier = Identifier(Priority.NONE, BROKER_NODE, ProtocolEtag.ANSWER).pack()
        frames = [Frame(identifier, piece) for piece in split_payload(data, len(self.arrived) % 32)]
        self._answers.append((self.now + self.random.choice((2_000_000, 400_000_000, 900_000_000)), frames))
